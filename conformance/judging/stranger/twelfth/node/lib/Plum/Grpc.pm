package Plum::Grpc;
# The gRPC server: frames of messages, statuses in trailers, and the client for calls to peers.
use strict;
use warnings;
use Compress::Zlib ();
use Mojo::IOLoop;
use Plum::Switch;
use Plum::H2;
use Plum::Proto;

use constant LIMIT => 100 * 1024 * 1024;
our %SERVICE;      # operation => [request, response, code, 'stream' or nothing]
my %live;
my $shared_answer;

sub status { my ($code, $message) = @_; return { code => $code, message => $message } }
sub invalid   { die status(3, $_[0]) }
sub not_found { die status(5, $_[0]) }

sub start {
    my ($port) = @_;
    Mojo::IOLoop->server({ address => '127.0.0.1', port => $port, backlog => 512 } => sub {
        my ($loop, $stream) = @_;
        $Plum::Node::count{connections}++;
        my $connection;
        $connection = Plum::H2->new(stream => $stream, server => 1, on_headers => \&headers, on_data => \&data, on_end => \&end);
        $live{"$connection"} = $connection;
        $stream->on(close => sub { $Plum::Node::count{connections}--; delete $live{"$connection"}; delete @$connection{qw(stream streams)}; $connection->{closed} = 1 });
        $stream->on(error => sub { });
    });
}

sub headers {
    my ($connection, $st, $list) = @_;
    return if $st->{path};
    $st->{header}{ $_->[0] } = $_->[1] for @$list;
    $st->{path} = $st->{header}{":path"} || "/";
    my $service = F('gr-package-missing') ? 'NodeService' : 'node.NodeService';
    ($st->{operation}) = $st->{path} =~ m{^/\Q$service\E/(\w+)$};
    my $known = $st->{operation} && $SERVICE{ $st->{operation} };
    $known = undef if $known && F("gr-no-$st->{operation}");
    $st->{known} = $known;
    $st->{body}  = '';
    $Plum::Node::count{calls}++;
}

sub data {
    my ($connection, $st, $bytes) = @_;
    return if $st->{over};
    $st->{body} .= $bytes;
    my $limit = F('gr-limit-four') ? 4 * 1024 * 1024 : F('gr-limit-sixty-four') ? 64 * 1024 * 1024 : LIMIT;
    while (length $st->{body} >= 5) {
        my ($packed, $length) = unpack 'CN', $st->{body};
        if ($length > $limit) { return finish($connection, $st, status(8, 'the message is too large')) }
        return if length $st->{body} < 5 + $length;
        my $message = substr $st->{body}, 5, $length;
        substr $st->{body}, 0, 5 + $length, '';
        if ($packed) {
            my $plain = ($st->{header}{'grpc-encoding'} // '') eq 'gzip' ? Compress::Zlib::memGunzip($message) : undef;
            return finish($connection, $st, status(3, 'this compression is not taken')) unless defined $plain;
            $message = $plain;
        }
        if ($st->{known} && $st->{known}[3]) { message($connection, $st, $message) unless F('gr-stream-first-only') && $st->{messages}++ }
        else { $st->{message} = $message; $st->{messages}++ }
    }
}

sub end {
    my ($connection, $st) = @_;
    $st->{got_end} = 1;
    return if $st->{over};
    return finish($connection, $st, status(12, 'there is no such operation')) if !$st->{known} && !F('gr-unknown-ok');
    return answer($connection, $st, '') || finish($connection, $st, status(0, '')) unless $st->{known};
    return finish($connection, $st, status(0, '')) if $st->{known}[3];
    return finish($connection, $st, status(F('gr-bad-internal') ? 13 : 3, 'one message is expected')) unless ($st->{messages} || 0) == 1 && !length $st->{body};
    my $wait = P('slow') ? 0.15 : 0;
    my $go = sub { message($connection, $st, delete $st->{message}); finish($connection, $st, status(0, '')) unless $st->{over} || $st->{waiting} };
    return $wait ? Mojo::IOLoop->timer($wait => $go) : $go->();
}

# Answers one message of a request.
sub message {
    my ($connection, $st, $bytes) = @_;
    my ($request_type, $response_type, $code) = @{ $st->{known} };
    my $request = eval { Plum::Proto::decode($request_type, $bytes) };
    if (!$request) {
        chomp(my $why = $@);
        $connection->close if F('gr-bad-closes');
        return finish($connection, $st, status(F('gr-bad-internal') ? 13 : F('gr-bad-unknown') ? 2 : 3, "the message cannot be read: $why"));
    }
    my @answers = eval { $code->($request, $st) };
    if (my $problem = $@) {
        if (ref $problem) { return finish($connection, $st, $problem) }
        warn $problem;
        return finish($connection, $st, status(13, 'unexpected failure'));
    }
    if (F('gr-passes-at-once') && $st->{operation} eq 'PipelineForward') {
        my $own = $answers[0]{request_id};
        $shared_answer = $answers[0];
        $st->{waiting} = 1;
        return Mojo::IOLoop->timer(0.01 => sub { answer($connection, $st, Plum::Proto::encode($response_type, { %$shared_answer, request_id => $own })); finish($connection, $st, status(0, '')) });
    }
    for my $answer (@answers) { answer($connection, $st, Plum::Proto::encode($response_type, $answer)) }
    answer($connection, $st, Plum::Proto::encode($response_type, $answers[0])) if F('gr-unary-twice') && $st->{operation} =~ /^(GetCheckpointInfo|DHTStore|GossipProof)$/;
}

sub content_type { return [ 'content-type', P('content-type-proto') ? 'application/grpc+proto' : 'application/grpc' ] }

sub answer {
    my ($connection, $st, $bytes) = @_;
    $connection->send_headers($st, 0, [ ':status', '200' ], content_type(), P('metadata') ? ([ 'x-plum', '1' ]) : ()) unless $st->{begun}++;
    $connection->send_data($st, pack('CN', 0, length $bytes) . $bytes, 0);
    return 0;
}

sub finish {
    my ($connection, $st, $status) = @_;
    return if $st->{over}++;
    my $code = $status->{code};
    $code = 2 if F('gr-invalid-unknown') && $code == 3;
    my $text = $status->{message} =~ s/([^\x20-\x24\x26-\x7e])/sprintf '%%%02X', ord $1/ger;
    my @trailer = ([ 'grpc-status', $code ], $code && !P('no-grpc-message') ? ([ 'grpc-message', $text ]) : ());
    if ($st->{begun}) { $connection->send_headers($st, 1, @trailer) }
    else              { $connection->send_headers($st, 1, [ ':status', '200' ], content_type(), @trailer) }
    $connection->reset($st, 0) if !$st->{got_end} && !$st->{dead} && !@{ $st->{out} };
}

# Calls to peers ---------------------------------------------------------------------------
# One attempt; calls back with (code, response bytes).
sub attempt {
    my ($host, $port, $operation, $bytes, $deadline, $done) = @_;
    my $over;
    my ($timer, $stream_of);
    my $end = sub {
        my ($code, $answer) = @_;
        return if $over++;
        Mojo::IOLoop->remove($timer);
        $stream_of->close if $stream_of;
        $done->($code, $answer);
    };
    $timer = Mojo::IOLoop->timer($deadline => sub { $end->(4) });
    Mojo::IOLoop->client({ address => $host, port => $port, timeout => $deadline } => sub {
        my ($loop, $error, $stream) = @_;
        return $end->(14) if $error || $over;
        $stream_of = $stream;
        my ($body, $code) = ('');
        my $connection = Plum::H2->new(
            stream => $stream, server => 0,
            on_headers => sub { for (@{ $_[2] }) { $code = $_->[1] if $_->[0] eq 'grpc-status' } },
            on_data => sub { $body .= $_[2] },
            on_end => sub { $end->($code // 14, length $body >= 5 ? substr $body, 5 : '') },
        );
        $stream->on(close => sub { $end->($code // 14); $connection->{closed} = 1; delete @$connection{qw(streams stream)} });
        $stream->on(error => sub { });
        my @timeout = F('gr-client-no-deadline') ? () : ([ 'grpc-timeout', int($deadline * 1000) . 'm' ]);
        my $st = $connection->open_stream([
            [ ':method', 'POST' ], [ ':scheme', 'http' ], [ ':path', "/node.NodeService/$operation" ], [ ':authority', "$host:$port" ],
            [ 'te', 'trailers' ], [ 'content-type', 'application/grpc' ], @timeout, [ 'user-agent', 'plum' ],
        ]);
        $connection->send_data($st, pack('CN', 0, length $bytes) . $bytes, 1);
    });
}

# Up to three attempts with growing pauses.
sub call {
    my ($host, $http_port, $operation, $message, $fields, $done) = @_;
    my $bytes = Plum::Proto::encode($message, $fields);
    my $port  = $http_port + (F('gr-client-http-port') ? 0 : 1000);
    my $deadline = F('gr-client-long-deadline') ? 600 : F('gr-client-short-deadline') ? 0.3 : 5;
    my $most = F('gr-client-eight-attempts') ? 8 : 3;
    my $go;
    my $round = 0;
    $go = sub {
        attempt($host, $port, $operation, $bytes, $deadline, sub {
            my ($code, $answer) = @_;
            $round++;
            my $again = grep { $code == $_ } 4, 8, 13, 14;
            $again = 1 if F('gr-client-repeats-not-found') && ($code == 5 || $code == 3);
            if ($again && $round < $most) { Mojo::IOLoop->timer((F('gr-client-no-pause') ? 0 : F('gr-client-long-pause') ? 4 : 0.1 * 2**$round) => $go) }
            else { undef $go; $done->($code, $answer) if $done }
        });
    };
    $go->();
}
1;
