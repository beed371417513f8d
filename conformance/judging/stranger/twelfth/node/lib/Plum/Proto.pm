package Plum::Proto;
# Protocol buffers: messages are described by tables number => [name, type].
use strict;
use warnings;
use Encode ();
use Plum::Switch;

our %MESSAGE;

sub define {
    my ($name, @fields) = @_;
    for (@fields) {
        my ($number, $field, $type) = split ' ', $_;
        my $many = $type =~ s/^repeated://;
        push @{ $MESSAGE{$name}{order} }, $number;
        $MESSAGE{$name}{field}{$number} = { name => $field, type => $type, many => $many };
    }
    $MESSAGE{$name}{order} ||= [];
}

sub varint {
    my ($value) = @_;
    my $out = '';
    no warnings 'portable';
    my $bits = $value < 0 ? unpack('Q', pack('q', $value)) : $value;
    while ($bits > 127) {
        $out .= chr(($bits & 127) | 128);
        $bits >>= 7;
    }
    return $out . chr $bits;
}

sub read_varint {
    my ($in, $at, $end) = @_;
    my ($value, $shift) = (0, 0);
    while (1) {
        die "truncated\n" if $$at >= $end || $shift > 63;
        my $byte = ord substr $$in, $$at++, 1;
        $value |= ($byte & 127) << $shift;
        return $value if $byte < 128;
        $shift += 7;
    }
}

sub signed { return unpack 'q', pack 'Q', $_[0] }

my %WIRE = (
    string => 2, bytes => 2, int32 => 0, int64 => 0, bool => 0, double => 1, float => 5, 'map' => 2, map_text => 2,
);

sub scalar_bytes {
    my ($type, $value) = @_;
    return varint(int $value) if $type eq 'int32' || $type eq 'int64';
    return varint($value ? 1 : 0) if $type eq 'bool';
    return pack 'd<', $value if $type eq 'double';
    return pack 'f<', $value if $type eq 'float';
    my $data = $type eq 'string' ? Encode::encode('UTF-8', $value)
             : $type eq 'bytes'  ? $value
             :                     encode($type, $value);
    return varint(length $data) . $data;
}

sub encode {
    my ($name, $values) = @_;
    my $table = $MESSAGE{$name} or die "no message $name";
    my $out   = '';
    my @order = @{ $table->{order} };
    @order = reverse @order if P('pb-reverse');
    for my $number (@order) {
        my $field = $table->{field}{$number};
        my $value = $values->{ $field->{name} };
        next unless defined $value;
        my $type = $field->{type};
        my $wire = $WIRE{$type} // 2;
        if ($type =~ /^map/) {
            for my $key (sort keys %$value) {
                my $entry = scalar_bytes('string', $key);
                my $data  = scalar_bytes('bytes',  $value->{$key});
                my $pair  = "\x0a$entry\x12$data";
                $out .= varint($number << 3 | 2) . varint(length $pair) . $pair;
            }
        }
        elsif ($field->{many}) {
            next unless @$value;
            if ($wire != 2 && !P('pb-unpacked')) {
                my $data = join '', map { scalar_bytes($type, $_) } @$value;
                $out .= varint($number << 3 | 2) . varint(length $data) . $data;
            }
            else {
                $out .= varint($number << 3 | $wire) . scalar_bytes($type, $_) for @$value;
            }
        }
        else {
            my $empty = $wire == 2 ? !ref $value && $value eq '' : $value == 0;
            next if $empty && !P('pb-defaults');
            $out .= varint($number << 3 | $wire) . scalar_bytes($type, $value);
        }
    }
    $out .= varint(900 << 3 | 2) . "\x05extra" if P('pb-unknown') && $name =~ /Response$/;
    return $out;
}

sub decode {
    my ($name, $data) = @_;
    my $table = $MESSAGE{$name} or die "no message $name";
    my %out;
    for my $field (values %{ $table->{field} }) {
        $out{ $field->{name} } =
              $field->{type} =~ /^map/ ? {}
            : $field->{many}          ? []
            : $field->{type} =~ /^(string|bytes)$/ ? ''
            : exists $WIRE{ $field->{type} } ? 0
            :                                  undef;
    }
    my ($at, $end) = (0, length $data);
    while ($at < $end) {
        my $tag = read_varint(\$data, \$at, $end);
        my ($number, $wire) = ($tag >> 3, $tag & 7);
        die "field number 0\n" if $number == 0;
        my $raw;
        if    ($wire == 0) { $raw = read_varint(\$data, \$at, $end) }
        elsif ($wire == 1) { $raw = take(\$data, \$at, $end, 8) }
        elsif ($wire == 2) { $raw = take(\$data, \$at, $end, read_varint(\$data, \$at, $end)) }
        elsif ($wire == 5) { $raw = take(\$data, \$at, $end, 4) }
        else               { die "wire type $wire\n" }
        die "field $number is not known\n" if !$table->{field}{$number} && F('gr-unknown-field-refused');
        die "fields are out of order\n" if F('gr-order-needed') && $number < ($out{-last} || 0);
        $out{-last} = $number if F('gr-order-needed');
        my $field = $table->{field}{$number} or next;
        my ($type, $key) = @$field{qw(type name)};
        my $expected = $WIRE{$type} // 2;
        if ($type =~ /^map/) {
            next if $wire != 2;
            my $entry = decode($type eq 'map' ? 'MapEntry' : 'TextEntry', $raw);
            $out{$key}{ $entry->{key} } = $entry->{value};
        }
        elsif ($field->{many} && $wire == 2 && $expected != 2) {
            my ($inner, $stop) = (0, length $raw);
            while ($inner < $stop) {
                push @{ $out{$key} }, $expected == 0
                    ? scalar_value($type, read_varint(\$raw, \$inner, $stop))
                    : scalar_value($type, take(\$raw, \$inner, $stop, $expected == 1 ? 8 : 4));
            }
        }
        elsif ($wire != $expected) { next }
        elsif ($field->{many} && F('gr-unpacked-last') && $wire != 2) { $out{$key} = [ scalar_value($type, $raw) ] }
        elsif ($field->{many}) { push @{ $out{$key} }, scalar_value($type, $raw) }
        else                   { $out{$key} = scalar_value($type, $raw) }
    }
    return \%out;
}

sub take {
    my ($in, $at, $end, $length) = @_;
    die "truncated\n" if $length > $end - $$at;
    my $piece = substr $$in, $$at, $length;
    $$at += $length;
    return $piece;
}

sub scalar_value {
    my ($type, $raw) = @_;
    return $raw if $type eq 'bytes';
    if ($type eq 'string') {
        my $text = eval { Encode::decode('UTF-8', my $copy = $raw, Encode::FB_CROAK) };
        die "a string that is not UTF-8\n" unless defined $text;
        return $text;
    }
    return unpack('l', pack('L', $raw & 0xffffffff)) if $type eq 'int32';
    return signed($raw) if $type eq 'int64';
    return $raw ? 1 : 0 if $type eq 'bool';
    return unpack 'd<', $raw if $type eq 'double';
    return unpack 'f<', $raw if $type eq 'float';
    return decode($type, $raw);
}

define('MapEntry', '1 key string', '2 value bytes');
define('TextEntry', '1 key string', '2 value string');
1;
