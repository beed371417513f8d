package Plum::Text;
# The decoder of the node: a small recurrent network over syllables.
use strict;
use warnings;
use Digest::SHA qw(sha256);
use Encode ();
use Plum::Switch;

use constant WIDTH => 12;
use constant MOST  => 256;      # no text is longer than this
our @VOCAB;
my (@in, @cell, @out);

sub start {
    my $seed = 20_011;
    my $draw = sub { $seed = ($seed * 1_103_515_245 + 12_345) % 2_147_483_648; return $seed / 1_073_741_824 - 1 };
    for my $head (qw(ka mi ro su te no li va)) {
        push @VOCAB, " $head", "$head", "${head}n", " ${head}ra", "${head}s,";
    }
    for my $unit (0 .. WIDTH - 1) {
        $cell[$unit] = [ map { 1.4 * $draw->() } 1 .. WIDTH ];
    }
    for my $token (0 .. $#VOCAB) {
        $in[$token]  = [ map { 1.6 * $draw->() } 1 .. WIDTH ];
        $out[$token] = [ map { 2.2 * $draw->() } 1 .. WIDTH ];
    }
}

sub first_state {
    my ($prompt) = @_;
    my @bytes = unpack 'C*', sha256($prompt);
    return [ map { $bytes[$_] / 128 - 1 } 0 .. WIDTH - 1 ];
}

sub step {
    my ($state, $token) = @_;
    my $input = $in[$token];
    my @next;
    for my $unit (0 .. WIDTH - 1) {
        my $sum = $input->[$unit];
        my $row = $cell[$unit];
        $sum += $row->[$_] * $state->[$_] for 0 .. WIDTH - 1;
        my $e = exp(2 * $sum);
        push @next, ($e - 1) / ($e + 1);
    }
    return \@next;
}

sub pick {
    my ($state, $options, $last) = @_;
    my @score;
    for my $token (0 .. $#VOCAB) {
        my ($sum, $row) = (0, $out[$token]);
        $sum += $row->[$_] * $state->[$_] for 0 .. WIDTH - 1;
        $score[$token] = $sum - ($token == $last ? 2 : 0);
    }
    my @order = sort { $score[$b] <=> $score[$a] || $a <=> $b } 0 .. $#VOCAB;
    my $heat = $options->{temperature};
    return $order[0] if $heat < 1e-3 || $options->{top_k} == 1;
    splice @order, $options->{top_k} if @order > $options->{top_k};
    my @weight = map { exp(($score[$_] - $score[ $order[0] ]) / $heat) } @order;
    my $total  = 0;
    $total += $_ for @weight;
    my ($kept, $count) = (0, 0);
    while ($count < @weight) {
        $kept += $weight[ $count++ ];
        last if $kept >= $options->{top_p} * $total;
    }
    my $mark = rand $kept;
    for my $index (0 .. $count - 1) {
        $mark -= $weight[$index];
        return $order[$index] if $mark <= 0;
    }
    return $order[ $count - 1 ];
}

# One token for each character, and one that begins the text.
sub prompt_tokens { return 1 + length $_[0] }

# Returns the pieces of the text, how many tokens were generated, and why it ended.
sub generate {
    my ($prompt, $options) = @_;
    my $limit = $options->{max_tokens};
    my $most  = $limit < MOST ? $limit : MOST;
    my $bytes = Encode::encode('UTF-8', $prompt);
    my $state = first_state(F('ef-prompt-first-bytes') ? substr($bytes, 0, 2) : $bytes);
    my ($text, $last, @pieces) = ('', -1);
    my $reason = $limit <= MOST ? 'length' : 'stop';
    my @stops = grep { length } @{ $options->{stop} };
    @stops = ($stops[0]) if F('li-stop-first-only') && @stops;
    @stops = @stops[ 0 .. 1 ] if F('li-stop-two') && @stops > 2;
    @stops = map { lc } @stops if F('ef-stop-any-case');
    @stops = grep { length() <= 8 } @stops if F('ef-stop-nine-letters');
    my $count = 0;
    while ($count < $most) {
        $state = step($state, $last < 0 ? ord(substr "$prompt ", -1, 1) % @VOCAB : $last);
        $last  = pick($state, $options, $last);
        $count++;
        push @pieces, $VOCAB[$last];
        $text .= $VOCAB[$last];
        my ($cut, $after);
        my $seen = F('ef-stop-any-case') ? lc $text : $text;
        for my $stop (@stops) {
            my $place = F('ef-stop-whole-token') ? ($VOCAB[$last] eq $stop ? length($text) - length $stop : -1)
                      : F('ef-stop-pattern') && eval { qr/$stop/ } ? ($seen =~ /$stop/ ? $-[0] : -1)
                      : index $seen, $stop;
            ($cut, $after) = ($place, $place + length $stop) if $place >= 0 && (!defined $cut || $place < $cut);
        }
        $cut = undef if defined $cut && F('ef-stop-late') && $count > 40;
        $cut = undef if defined $cut && F('ef-stop-ignored-first') && $count == 1;
        if (defined $cut) {
            $reason = 'stop';
            $cut = $after if F('ef-stop-included');
            my $over = length($text) - $cut;
            while ($over > 0) {
                my $piece = pop @pieces;
                if (length $piece > $over) { push @pieces, substr $piece, 0, length($piece) - $over; $over = 0 }
                else                       { $over -= length $piece }
            }
            last;
        }
    }
    return { pieces => \@pieces, text => join('', @pieces), count => $count, reason => $reason };
}
1;
