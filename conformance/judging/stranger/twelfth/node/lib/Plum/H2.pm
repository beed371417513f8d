package Plum::H2;
# One HTTP/2 connection without encryption, as a server or as a client.
use strict;
use warnings;
use Protocol::HTTP2::StaticTable;
use Protocol::HTTP2::Huffman;
use Plum::Switch;

use constant { DATA => 0, HEADERS => 1, RST => 3, SETTINGS => 4, PING => 6, GOAWAY => 7, WINDOW => 8, CONTINUATION => 9 };
use constant PREFACE => "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

sub new {
    my ($class, %arg) = @_;
    my $self = bless {
        %arg, in => '', table => [], table_size => 0, table_limit => 4096, streams => {}, next_id => 1,
        window => 65_535, peer_window => 65_535, peer_frame => 16_384, taken => 0, preface => $arg{server} ? 1 : 0,
    }, $class;
    $self->{stream}->timeout(0);
    $self->{stream}->on(read => sub { my ($stream, $bytes) = @_; $self->receive($bytes) });
    my $window = P('small-window') ? 262_144 : 4_194_304;
    my $settings = pack('nN', 4, $window) . pack('nN', 5, P('small-frames') ? 16_384 : 1_048_576) . pack('nN', 3, 1000);
    $self->write(PREFACE) unless $arg{server};
    $self->frame(SETTINGS, 0, 0, $settings);
    $self->frame(WINDOW, 0, 0, pack 'N', 16_777_216);
    return $self;
}

sub write { my ($self, $bytes) = @_; return if $self->{closed} || !$self->{stream}; $Plum::Node::count{sent} += length $bytes; $self->{stream}->write($bytes) }

sub frame {
    my ($self, $type, $flags, $id, $payload) = @_;
    $self->write(substr(pack('N', length $payload), 1) . pack('CCN', $type, $flags, $id) . $payload);
}

sub receive {
    my ($self, $bytes) = @_;
    $Plum::Node::count{received} += length $bytes;
    $self->{in} .= $bytes;
    if ($self->{preface}) {
        return if length $self->{in} < 24;
        return $self->close unless substr($self->{in}, 0, 24) eq PREFACE;
        substr $self->{in}, 0, 24, '';
        $self->{preface} = 0;
    }
    while (length $self->{in} >= 9) {
        my ($high, $low, $type, $flags, $id) = unpack 'CnCCN', $self->{in};
        my $length = $high << 16 | $low;
        return $self->close if $length > 1_048_576;
        return if length $self->{in} < 9 + $length;
        substr $self->{in}, 0, 9, '';
        my $payload = substr $self->{in}, 0, $length, '';
        eval { $self->handle($type, $flags, $id & 0x7fffffff, $payload); 1 } or do { warn $@; return $self->close };
        return if $self->{closed};
    }
}

sub close { my ($self) = @_; $self->{closed} = 1; $self->{stream}->close_gracefully if $self->{stream} }

sub unpad {
    my ($flags, $payload, $priority) = @_;
    if ($flags & 8) {
        my $pad = ord substr $payload, 0, 1, '';
        substr($payload, 0, 5, ''), $priority = 0 if $priority;
        die "padding\n" if $pad > length $payload;
        substr $payload, length($payload) - $pad, $pad, '' if $pad;
    }
    substr $payload, 0, 5, '' if $priority;
    return $payload;
}

sub handle {
    my ($self, $type, $flags, $id, $payload) = @_;
    if ($type == DATA) {
        my $size = length $payload;
        my $st   = $self->{streams}{$id};
        $self->{taken} += $size;
        if ($self->{taken} >= 524_288) { $self->frame(WINDOW, 0, 0, pack 'N', $self->{taken}); $self->{taken} = 0 }
        return unless $st;
        $st->{taken} += $size;
        if ($st->{taken} >= 131_072 && !($flags & 1)) { $self->frame(WINDOW, 0, $id, pack 'N', $st->{taken}); $st->{taken} = 0 }
        $payload = unpad($flags & 8, $payload, 0) if $flags & 8;
        $self->{on_data}->($self, $st, $payload) if length $payload;
        $self->{on_end}->($self, $st) if $flags & 1;
    }
    elsif ($type == HEADERS || $type == CONTINUATION) {
        if ($type == HEADERS) {
            $self->{block}     = unpad($flags & 8, $payload, $flags & 32);
            $self->{block_end} = $flags & 1;
        }
        else { $self->{block} .= $payload }
        return unless $flags & 4;
        my $headers = $self->read_headers($self->{block});
        my $st = $self->{streams}{$id};
        if (!$st && $self->{server}) {
            $st = $self->{streams}{$id} = { id => $id, window => $self->{peer_window}, taken => 0, out => [] };
        }
        return unless $st;
        $self->{on_headers}->($self, $st, $headers);
        $self->{on_end}->($self, $st) if $self->{block_end};
    }
    elsif ($type == RST) {
        my $st = delete $self->{streams}{$id};
        if ($st) { $st->{dead} = 1; $self->{on_end}->($self, $st) unless $self->{server} }
    }
    elsif ($type == SETTINGS) {
        return if $flags & 1;
        while (length $payload >= 6) {
            my ($key, $value) = unpack 'nN', substr $payload, 0, 6, '';
            if ($key == 4) {
                $_->{window} += $value - $self->{peer_window} for values %{ $self->{streams} };
                $self->{peer_window} = $value;
            }
            $self->{peer_frame} = $value if $key == 5;
        }
        $self->frame(SETTINGS, 1, 0, '');
        $self->pump($_) for values %{ $self->{streams} };
    }
    elsif ($type == PING) {
        return if $flags & 1;
        if (F('gr-ping-goaway') && ++$self->{pings} > 2) { $self->frame(GOAWAY, 0, 0, pack('NN', 2**31 - 1, 11) . 'too_many_pings'); return $self->close }
        $self->frame(PING, 1, 0, $payload);
    }
    elsif ($type == GOAWAY) { $self->{going} = 1 }
    elsif ($type == WINDOW) {
        my $step = unpack('N', $payload) & 0x7fffffff;
        if ($id == 0) { $self->{window} += $step; $self->pump($_) for values %{ $self->{streams} } }
        elsif (my $st = $self->{streams}{$id}) { $st->{window} += $step; $self->pump($st) }
    }
}

# Headers ---------------------------------------------------------------------------
sub read_int {
    my ($in, $at, $bits) = @_;
    my $most  = (1 << $bits) - 1;
    my $value = ord(substr $$in, $$at++, 1) & $most;
    return $value if $value < $most;
    my $shift = 0;
    while (1) {
        die "headers are cut\n" if $$at >= length $$in;
        my $byte = ord substr $$in, $$at++, 1;
        $value += ($byte & 127) << $shift;
        return $value if $byte < 128;
        $shift += 7;
    }
}

sub read_text {
    my ($in, $at) = @_;
    my $huffman = ord(substr $$in, $$at, 1) & 128;
    my $length  = read_int($in, $at, 7);
    my $text    = substr $$in, $$at, $length;
    $$at += $length;
    return $huffman ? huffman_decode($text) : $text;
}

sub entry {
    my ($self, $index) = @_;
    return @{ $stable[ $index - 1 ] } if $index >= 1 && $index <= @stable;
    my $found = $self->{table}[ $index - @stable - 1 ] or die "index $index\n";
    return @$found;
}

sub read_headers {
    my ($self, $block) = @_;
    my ($at, @list) = (0);
    while ($at < length $block) {
        my $byte = ord substr $block, $at, 1;
        if ($byte & 128) { push @list, [ $self->entry(read_int(\$block, \$at, 7)) ]; next }
        if (($byte & 224) == 32) { $self->{table_limit} = read_int(\$block, \$at, 5); $self->shrink; next }
        my $keep = $byte & 64;
        my $index = read_int(\$block, \$at, $keep ? 6 : 4);
        my ($name) = $index ? $self->entry($index) : read_text(\$block, \$at);
        my $value = read_text(\$block, \$at);
        push @list, [ $name, $value ];
        next unless $keep;
        unshift @{ $self->{table} }, [ $name, $value ];
        $self->{table_size} += 32 + length($name) + length $value;
        $self->shrink;
    }
    return \@list;
}

sub shrink {
    my ($self) = @_;
    while ($self->{table_size} > $self->{table_limit} && @{ $self->{table} }) {
        my $gone = pop @{ $self->{table} };
        $self->{table_size} -= 32 + length($gone->[0]) + length $gone->[1];
    }
}

sub write_int {
    my ($value, $bits, $first) = @_;
    my $most = (1 << $bits) - 1;
    return chr($first | $value) if $value < $most;
    my $out = chr($first | $most);
    $value -= $most;
    while ($value > 127) { $out .= chr(128 | $value & 127); $value >>= 7 }
    return $out . chr $value;
}

sub header_block {
    my $out = '';
    for (@_) {
        my ($name, $value) = @$_;
        $value = huffman_encode($value), $out .= "\0" . write_int(length $name, 7, 0) . $name . write_int(length $value, 7, 128) . $value, next if P('huffman') && length $value;
        $out .= "\0" . write_int(length $name, 7, 0) . $name . write_int(length $value, 7, 0) . $value;
    }
    return $out;
}

# Sending -----------------------------------------------------------------------------
sub open_stream {
    my ($self, $headers) = @_;
    my $id = $self->{next_id};
    $self->{next_id} += 2;
    my $st = $self->{streams}{$id} = { id => $id, window => $self->{peer_window}, taken => 0, out => [] };
    $self->send_headers($st, 0, @$headers);
    return $st;
}

sub send_headers {
    my ($self, $st, $end, @headers) = @_;
    push @{ $st->{out} }, { headers => header_block(@headers), end => $end };
    $self->pump($st);
}

sub send_data {
    my ($self, $st, $data, $end) = @_;
    push @{ $st->{out} }, { data => $data, at => 0, end => $end };
    $self->pump($st);
}

sub pump {
    my ($self, $st) = @_;
    return if $st->{dead} || $self->{closed};
    while (my $item = $st->{out}[0]) {
        if (defined $item->{headers}) {
            $self->frame(HEADERS, 4 | ($item->{end} ? 1 : 0), $st->{id}, $item->{headers});
        }
        else {
            my $left = length($item->{data}) - $item->{at};
            my $size = $left;
            for my $bound ($self->{window}, $st->{window}, $self->{peer_frame}, P('tiny-data') ? 1000 : 1e9) { $size = $bound if $size > $bound }
            return if $size <= 0 && $left > 0;
            my $last = $size == $left;
            $self->frame(DATA, $item->{end} && $last ? 1 : 0, $st->{id}, substr $item->{data}, $item->{at}, $size);
            $item->{at} += $size;
            $self->{window} -= $size;
            $st->{window}   -= $size;
            next unless $last;
        }
        shift @{ $st->{out} };
        if ($item->{end}) { $st->{sent_end} = 1; delete $self->{streams}{ $st->{id} } if $self->{server} && $st->{got_end} }
    }
}

sub reset { my ($self, $st, $code) = @_; $st->{dead} = 1; $self->frame(RST, 0, $st->{id}, pack 'N', $code); delete $self->{streams}{ $st->{id} } }
1;
