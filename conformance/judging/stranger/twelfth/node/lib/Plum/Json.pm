package Plum::Json;
# JSON with explicit types. Writing: plain scalars are strings, numbers are made
# by int_/num/money, booleans by yes/no. Reading: every value is a node [type, value].
use strict;
use warnings;
use Encode ();
use Exporter 'import';
use Plum::Switch;
our @EXPORT = qw(int_ num money raw bool encode_json_ decode_json_ NANO);
use constant NANO => 1_000_000_000;

sub raw($)   { return bless [ $_[0] ], 'Plum::Json::Raw' }
sub bool($)  { return raw($_[0] ? 'true' : 'false') }
sub int_($)  { return raw(sprintf '%.0f', $_[0]) }

sub plain {
    my ($value) = @_;
    my $text = sprintf '%.15g', $value;
    if ($text =~ /^-?\d+$/) {
        $text .= '.0' if P('float-whole');
    }
    elsif ($text =~ /^-?[\d.]+$/ && P('exponent')) {
        $text = sprintf '%.14e', $value;
    }
    return $text;
}
sub num($) { return raw(plain($_[0])) }

# An amount in nanos, written as whole units with decimals.
sub money($) {
    my ($nanos) = @_;
    return raw(plain($nanos / NANO)) if $nanos =~ /[eE.]/ || abs($nanos) >= 9e17;
    my $sign = $nanos < 0 ? '-' : '';
    my $text = sprintf '%d.%09d', abs($nanos) / NANO, abs($nanos) % NANO;
    return raw($sign . $text) if P('money-nine-digits');
    $text =~ s/0+$//;
    $text =~ s/\.$/P('money-point') ? '.0' : ''/e;
    return raw($sign . $text);
}

my %escape = ("\n" => '\n', "\r" => '\r', "\t" => '\t', '"' => '\"', '\\' => '\\\\');

sub quote {
    my ($text) = @_;
    $text =~ s/(["\\\x00-\x1f\x7f])/$escape{$1} || sprintf('\u%04x', ord $1)/ge;
    $text =~ s{/}{\\/}g if P('slash-escapes');
    if (P('ascii-json')) {
        $text =~ s/([^\x00-\x7f])/ascii($1)/ge;
    }
    return "\"$text\"";
}

sub ascii {
    my $code = ord $_[0];
    return sprintf '\u%04x', $code if $code < 0x10000;
    $code -= 0x10000;
    return sprintf '\u%04x\u%04x', 0xd800 + ($code >> 10), 0xdc00 + ($code & 0x3ff);
}

sub text_of {
    my ($value, $pad) = @_;
    return 'null' unless defined $value;
    my $kind = ref $value;
    return quote($value) unless $kind;
    return $value->[0] if $kind eq 'Plum::Json::Raw';
    my $pretty = P('pretty-json');
    my $inner  = $pad . '  ';
    my ($open, $close, @parts);
    if ($kind eq 'ARRAY') {
        ($open, $close) = ('[', ']');
        @parts = map { text_of($_, $inner) } @$value;
    }
    else {
        ($open, $close) = ('{', '}');
        my @keys = sort keys %$value;
        @keys = reverse @keys if P('reverse-keys');
        my $colon = $pretty || P('space-json') ? ': ' : ':';
        @parts = map { quote($_) . $colon . text_of($value->{$_}, $inner) } @keys;
    }
    return $open . $close unless @parts;
    return "$open\n$inner" . join(",\n$inner", @parts) . "\n$pad$close" if $pretty && $pad ne '-';
    return $open . join(P('space-json') ? ', ' : ',', @parts) . $close;
}

sub encode_json_ {
    my ($value, $one_line) = @_;
    my $text = text_of($value, '');
    $text =~ s/\n\s*/ /g if $one_line && P('pretty-json');
    return Encode::encode('UTF-8', $text);
}

# Reading. Dies with a short text where the bytes are not strict JSON.
sub decode_json_ {
    my ($bytes) = @_;
    my $copy = $bytes;
    my $text = eval { Encode::decode('UTF-8', $copy, Encode::FB_CROAK) };
    die "not UTF-8\n" unless defined $text;
    pos($text) = 0;
    my $node = value(\$text, 0);
    $text =~ /\G[ \t\r\n]*/gc;
    die "text after the value\n" if pos($text) < length $text;
    return $node;
}

sub value {
    my ($in, $depth) = @_;
    die "too deep\n" if $depth > 64;
    $$in =~ /\G[ \t\r\n]*/gc;
    return [ 's', string($in) ] if $$in =~ /\G"/gc;
    return [ 'n', 0 + $1, whole($1), $1 ] if $$in =~ /\G(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)/gc;
    return [ 'b', 1 ] if $$in =~ /\Gtrue/gc;
    return [ 'b', 0 ] if $$in =~ /\Gfalse/gc;
    return [ 'z', undef ] if $$in =~ /\Gnull/gc;
    if ($$in =~ /\G\[[ \t\r\n]*/gc) {
        my @list;
        return [ 'a', \@list ] if $$in =~ /\G\]/gc;
        while (1) {
            push @list, value($in, $depth + 1);
            return [ 'a', \@list ] if $$in =~ /\G[ \t\r\n]*\]/gc;
            $$in =~ /\G[ \t\r\n]*,/gc or die "no comma in an array\n";
        }
    }
    if ($$in =~ /\G\{[ \t\r\n]*/gc) {
        my %map;
        return [ 'o', \%map ] if $$in =~ /\G\}/gc;
        while (1) {
            $$in =~ /\G[ \t\r\n]*"/gc or die "no key\n";
            my $key = string($in);
            $$in =~ /\G[ \t\r\n]*:/gc or die "no colon\n";
            $map{$key} = value($in, $depth + 1);
            return [ 'o', \%map ] if $$in =~ /\G[ \t\r\n]*\}/gc;
            $$in =~ /\G[ \t\r\n]*,/gc or die "no comma in an object\n";
        }
    }
    die "no value\n";
}

sub whole {
    my ($text) = @_;
    return 1 if $text =~ /^-?\d+$/;
    my $number = 0 + $text;
    return abs($number) < 9e15 && $number == int $number ? 1 : 0;
}

my %plain_escape = (n => "\n", r => "\r", t => "\t", b => "\b", f => "\f");

sub string {
    my ($in) = @_;
    my $out = '';
    while (1) {
        $out .= $1 if $$in =~ /\G([^"\\\x00-\x1f]+)/gc;
        return $out if $$in =~ /\G"/gc;
        if ($$in =~ /\G\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})/gc) {
            $out .= chr(0x10000 + ((hex($1) & 0x3ff) << 10) + (hex($2) & 0x3ff));
        }
        elsif ($$in =~ /\G\\u([0-9a-fA-F]{4})/gc) {
            my $code = hex $1;
            $out .= chr($code >= 0xd800 && $code < 0xe000 ? 0xfffd : $code);
        }
        elsif ($$in =~ m{\G\\([nrtbf"\\/])}gc) {
            $out .= exists $plain_escape{$1} ? $plain_escape{$1} : $1;
        }
        else { die "bad string\n" }
    }
}

# A node as plain Perl data, for places where types do not matter.
sub bare {
    my ($node) = @_;
    return undef unless $node;
    return [ map { bare($_) } @{ $node->[1] } ] if $node->[0] eq 'a';
    return { map { $_ => bare($node->[1]{$_}) } keys %{ $node->[1] } } if $node->[0] eq 'o';
    return $node->[1];
}
1;
