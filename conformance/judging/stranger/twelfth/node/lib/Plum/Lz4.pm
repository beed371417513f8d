package Plum::Lz4;
# LZ4 frames: the frame is written and read here, blocks are compressed by Compress::LZ4.
use strict;
use warnings;
use Compress::LZ4 qw(lz4_compress);
use Plum::Switch;

sub rotate { my ($x, $n) = @_; return (($x << $n) | ($x >> (32 - $n))) & 0xffffffff }
my ($P1, $P2, $P3, $P4, $P5) = (2654435761, 2246822519, 3266489917, 668265263, 374761393);

sub mul {
    my ($a, $b) = @_;
    return (($a & 0xffff) * $b + (((($a >> 16) * ($b & 0xffff)) & 0xffff) << 16)) & 0xffffffff;
}

# xxHash with 32 bits, for data shorter than 16 bytes (the frame's descriptor).
sub short_hash {
    my ($data) = @_;
    my $hash = ($P5 + length $data) & 0xffffffff;
    my $at   = 0;
    while ($at + 4 <= length $data) {
        $hash = ($hash + mul(unpack('V', substr $data, $at, 4), $P3)) & 0xffffffff;
        $hash = mul(rotate($hash, 17), $P4);
        $at += 4;
    }
    while ($at < length $data) {
        $hash = ($hash + mul(ord(substr $data, $at++, 1), $P5)) & 0xffffffff;
        $hash = mul(rotate($hash, 11), $P1);
    }
    $hash = mul($hash ^ ($hash >> 15), $P2);
    $hash = mul($hash ^ ($hash >> 13), $P3);
    return $hash ^ ($hash >> 16);
}

sub frame {
    my ($data) = @_;
    my $sized = !P('lz4-without-size');
    my $descriptor = chr(0x60 | ($sized ? 8 : 0)) . chr(0x40 | 0x10 * 0);
    $descriptor .= pack 'Q<', length $data if $sized;
    my $out = pack('V', 0x184D2204) . $descriptor . chr((short_hash($descriptor) >> 8) & 255);
    for (my $at = 0; $at < length $data; $at += 65536) {
        my $block  = substr $data, $at, 65536;
        my $packed = lz4_compress($block);
        if (!P('lz4-stored') && length $packed < length $block) { $out .= pack('V', length $packed) . $packed }
        else { $out .= pack('V', length($block) | 0x80000000) . $block }
    }
    return $out . pack 'V', 0;
}

# The content of a frame; dies where the bytes are none.
sub unframe {
    my ($data, $limit) = @_;
    die "no frame\n" if length $data < 7 || unpack('V', $data) != 0x184D2204;
    my $flags = ord substr $data, 4, 1;
    die "version of the frame\n" if $flags >> 6 != 1;
    my $header = 2 + ($flags & 8 ? 8 : 0) + ($flags & 1 ? 4 : 0);
    die "cut\n" if length $data < 5 + $header;
    my $descriptor = substr $data, 4, $header;
    die "checksum of the header\n" if ((short_hash($descriptor) >> 8) & 255) != ord substr $data, 4 + $header, 1;
    my $at  = 5 + $header;
    my $out = '';
    while (1) {
        die "cut\n" if $at + 4 > length $data;
        my $size = unpack 'V', substr $data, $at, 4;
        $at += 4;
        last if $size == 0;
        my $length = $size & 0x7fffffff;
        die "cut\n" if $at + $length > length $data;
        if ($size & 0x80000000) { $out .= substr $data, $at, $length }
        else                    { block(\substr($data, $at, $length), \$out, $limit) }
        die "too large\n" if length $out > $limit;
        $at += $length + ($flags & 16 ? 4 : 0);
    }
    return $out;
}

sub block {
    my ($ref, $out, $limit) = @_;
    my $in = $$ref;
    my ($at, $end) = (0, length $in);
    while ($at < $end) {
        my $token   = ord substr $in, $at++, 1;
        my $literal = $token >> 4;
        if ($literal == 15) {
            my $more;
            do { die "cut\n" if $at >= $end; $more = ord substr $in, $at++, 1; $literal += $more } while $more == 255;
        }
        die "cut\n" if $at + $literal > $end;
        $$out .= substr $in, $at, $literal;
        $at += $literal;
        last if $at >= $end;
        die "cut\n" if $at + 2 > $end;
        my $offset = unpack 'v', substr $in, $at, 2;
        $at += 2;
        my $match = 4 + ($token & 15);
        if ($match == 19) {
            my $more;
            do { die "cut\n" if $at >= $end; $more = ord substr $in, $at++, 1; $match += $more } while $more == 255;
        }
        die "offset\n" if !$offset || $offset > length $$out;
        die "too large\n" if length($$out) + $match > $limit;
        my $piece = substr $$out, -$offset, $offset < $match ? $offset : $match;
        $piece = substr $piece x (1 + $match / length $piece), 0, $match if length $piece < $match;
        $$out .= $piece;
    }
}
1;
