package Plum::Model;
# The model of the pipeline: six layers over vectors of 16 values, and a head over 32 tokens.
# A layer adds tanh(W h + b + c) to h, where c is half the mean of h so far in its sequence.
use strict;
use warnings;
use Digest::SHA qw(sha256_hex);
use Plum::Switch;
use Plum::Lz4;

use constant { DIM => 16, LAYERS => 6, TOKENS => 32 };
our (@weight, @bias, @head, @checkpoints);

sub start {
    my $seed = 77_123;
    my $draw = sub { $seed = ($seed * 1_103_515_245 + 12_345) % 2_147_483_648; return $seed / 1_073_741_824 - 1 };
    for my $layer (0 .. LAYERS - 1) {
        $weight[$layer] = [ map { [ map { 0.3 * $draw->() } 1 .. DIM ] } 1 .. DIM ];
        $bias[$layer]   = [ map { 0.1 * $draw->() } 1 .. DIM ];
    }
    @head = map { [ map { 0.5 * $draw->() } 1 .. DIM ] } 1 .. TOKENS;
    for my $version (10 .. 12) {
        my $state = state_dict(1 - (12 - $version) / 16, 0 .. LAYERS - 1);
        push @checkpoints, { version => $version, hash => sha256_hex($state), state => $state, phase => 'early' };
    }
}

sub current { return $checkpoints[-1] }

# A state dictionary: a line of text for each tensor, then the values as 32-bit floats.
sub state_dict {
    my ($scale, @layers) = @_;
    my ($text, $values) = ("plum-state 1\n", '');
    for my $layer (@layers) {
        $text .= "layers.$layer.weight " . DIM . 'x' . DIM . "\nlayers.$layer.bias " . DIM . "\n";
        $values .= pack 'f<*', map { $scale * $_ } map({ @$_ } @{ $weight[$layer] }), @{ $bias[$layer] };
    }
    return "$text\n$values";
}

sub parameters { return LAYERS * (DIM * DIM + DIM) + TOKENS * DIM }

# Runs a pass through layers: (flat values, batch, seq, layers, past) with past per layer as
# [[count, sum...] for each sequence]. Returns values, what a backward pass needs, the new past.
sub forward {
    my ($values, $batch, $seq, $layers, $past) = @_;
    my @h = @$values;
    my (@trace, @cache);
    for my $place (0 .. $#$layers) {
        my $layer = $layers->[$place];
        my ($w, $b) = ($weight[$layer], $bias[$layer]);
        my (@next, @slope, @kept, @counts);
        for my $row (0 .. $batch - 1) {
            my ($count, @sum) = $past->[$place] ? @{ $past->[$place][$row] } : (0, (0) x DIM);
            push @counts, $count;
            for my $position (0 .. $seq - 1) {
                my $at = ($row * $seq + $position) * DIM;
                my @x = @h[ $at .. $at + DIM - 1 ];
                $sum[$_] += $x[$_] for 0 .. DIM - 1;
                $count++;
                for my $unit (0 .. DIM - 1) {
                    my ($z, $line) = ($b->[$unit] + 0.5 * $sum[$unit] / $count, $w->[$unit]);
                    $z += $line->[$_] * $x[$_] for 0 .. DIM - 1;
                    $z = $z > 20 ? 20 : $z < -20 ? -20 : $z;
                    my $e = exp(2 * $z);
                    my $t = ($e - 1) / ($e + 1);
                    push @next, $x[$unit] + $t;
                    push @slope, 1 - $t * $t;
                }
            }
            push @kept, [ $count, @sum ];
        }
        push @trace, { layer => $layer, slope => \@slope, counts => \@counts };
        push @cache, \@kept;
        @h = @next;
    }
    return (\@h, \@trace, \@cache);
}

sub logits {
    my ($values, $positions) = @_;
    my @out;
    for my $position (0 .. $positions - 1) {
        my @x = @$values[ $position * DIM .. $position * DIM + DIM - 1 ];
        for my $line (@head) {
            my $sum = 0;
            $sum += $line->[$_] * $x[$_] for 0 .. DIM - 1;
            push @out, $sum;
        }
    }
    return \@out;
}

# Mean cross entropy and its gradient by the logits. Labels below 0 do not count.
sub loss {
    my ($logits, $labels) = @_;
    my ($total, $count, @gradient) = (0, scalar grep { $_ >= 0 } @$labels);
    return (0, [ (0) x @$logits ]) unless $count;
    for my $position (0 .. $#$labels) {
        my @row = @$logits[ $position * TOKENS .. $position * TOKENS + TOKENS - 1 ];
        if ($labels->[$position] < 0) { push @gradient, (0) x TOKENS; next }
        my ($most) = sort { $b <=> $a } @row;
        my ($sum, @p) = (0);
        for (@row) { push @p, exp($_ - $most); $sum += $p[-1] }
        $total += log($sum) + $most - $row[ $labels->[$position] ];
        push @gradient, map { ($p[$_] / $sum - ($_ == $labels->[$position] ? 1 : 0)) / $count } 0 .. TOKENS - 1;
    }
    return ($total / $count, \@gradient);
}

sub head_backward {
    my ($gradient, $positions) = @_;
    my @out;
    for my $position (0 .. $positions - 1) {
        my @sum = (0) x DIM;
        for my $token (0 .. TOKENS - 1) {
            my ($g, $line) = ($gradient->[ $position * TOKENS + $token ], $head[$token]);
            $sum[$_] += $g * $line->[$_] for 0 .. DIM - 1;
        }
        push @out, @sum;
    }
    return \@out;
}

# The gradient by the input of a pass, from that by its output.
sub backward {
    my ($gradient, $batch, $seq, $trace) = @_;
    my @g = @$gradient;
    for my $step (reverse @$trace) {
        my $w = $weight[ $step->{layer} ];
        my @before = (0) x @g;
        for my $row (0 .. $batch - 1) {
            my @later = (0) x DIM;
            for my $position (reverse 0 .. $seq - 1) {
                my $at    = ($row * $seq + $position) * DIM;
                my $count = $step->{counts}[$row] + $position + 1;
                my @dz = map { $g[ $at + $_ ] * $step->{slope}[ $at + $_ ] } 0 .. DIM - 1;
                $later[$_] += 0.5 * $dz[$_] / $count for 0 .. DIM - 1;
                for my $unit (0 .. DIM - 1) {
                    my $sum = $g[ $at + $unit ] + $later[$unit];
                    $sum += $w->[$_][$unit] * $dz[$_] for 0 .. DIM - 1;
                    $before[ $at + $unit ] = $sum;
                }
            }
        }
        @g = @before;
    }
    return \@g;
}
1;
