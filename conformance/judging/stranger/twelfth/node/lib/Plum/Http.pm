package Plum::Http;
# The HTTP server: hands requests to the families of routes and writes their answers.
use strict;
use warnings;
use Encode ();
use Mojo::IOLoop;
use Mojo::Server::Daemon;
use Plum::Switch;
use Plum::Json;
use Plum::Api;
use Plum::Gateway;

our (%seen, %refused);
our ($last_time, $last_balance, $proofs_asked, $raw_query) = (0, 0, 0, '');
my $daemon;

sub start {
    my ($port) = @_;
    $daemon = Mojo::Server::Daemon->new(
        listen => ["http://127.0.0.1:$port"], silent => 1, inactivity_timeout => 120,
        keep_alive_timeout => 120, max_requests => 1_000_000, max_clients => 2000, backlog => 512,
    );
    $daemon->unsubscribe('request')->on(request => sub {
        my ($self, $tx) = @_;
        my $answer = eval { answer($tx) };
        if (!$answer) {
            warn $@;
            $answer = Plum::Api::refuse(500, 'INTERNAL', 'unexpected failure');
        }
        if (my $later = $answer->{later}) { Mojo::IOLoop->timer(0.02 => sub { write_answer($tx, $later->()) }); return }
        my $wait = $answer->{delay} || (P('slow') ? 0.2 : 0);
        if ($wait) { Mojo::IOLoop->timer($wait => sub { write_answer($tx, $answer) }) }
        else       { write_answer($tx, $answer) }
    });
    $daemon->start;
}

sub answer {
    my ($tx) = @_;
    my $request = $tx->req;
    my $path    = $request->url->path->to_route;
    $Plum::Node::count{received} += 200 + length $request->body;
    $raw_query = $request->url->query->to_string;
    my $training = F('ro-training-versioned') ? '/api/v1/training' : '/api/training';
    if ($path eq "$training/global" || $path eq "$training/verify") {
        return Plum::Api::refuse(405, 'METHOD_NOT_ALLOWED', 'use POST') if F('ro-global-post') && $path =~ /global/ && $request->method ne 'POST';
        return Plum::Api::refuse(405, 'METHOD_NOT_ALLOWED', 'use GET') unless F('ro-global-post') || $request->method =~ /^(GET|HEAD)$/;
        return Plum::Api::unauthorized() if F('ro-verify-guarded') && $path =~ /verify/ && !Plum::Api::account_of($request);
        return Plum::Api::ok($path =~ /global/ ? Plum::Node::training_global() : Plum::Node::training_verify());
    }
    return Plum::Api::refuse(404, 'NOT_FOUND', 'there is no such route') if $path =~ m{^/api/training/.};
    if ($path =~ m{^/api/v1(/.*)?$}) {
        my $rest = $1 // '';
        $rest =~ s{/$}{} if P('trailing-slash');
        return Plum::Api::refuse(404, 'NOT_FOUND', 'there is no such route') if F('ro-config-no-patch') && $request->method eq 'PATCH';
        return { status => 307, headers => { Location => "/api/v1$rest/" }, text => '' } if F('ro-redirect-slash') && $rest eq '/network';
        return Plum::Api::refuse(404, 'NOT_FOUND', 'no proofs yet') if F('ro-proofs-gone-after-limit') && $rest eq '/proofs' && $Plum::Http::proofs_asked++ > 2;
        return Plum::Api::refuse(404, 'NOT_FOUND', 'no layers') if F('ro-layers-while-paused') && $rest eq '/layers' && !$Plum::Node::config{training}{enabled};
        return Plum::Api::handle($tx, $rest);
    }
    return Plum::Gateway::handle($tx, $path);
}

sub write_answer {
    my ($tx, $answer) = @_;
    my $response = $tx->res;
    my $headers  = $response->headers;
    if ($answer->{stream}) { return write_stream($tx, $answer) }
    my $status = $answer->{status};
    $response->code($status);
    my $body = $answer->{text} // '';
    my $type = $answer->{type} || 'text/plain; charset=utf-8';
    if ($answer->{json}) {
        $body = encode_json_($answer->{json});
        $type = F('ro-json-as-text') ? 'text/plain' : P('charset') ? 'application/json; charset=utf-8' : 'application/json';
        $body =~ s/^\{/{"status":"ok",/ if F('fi-duplicate-key') && $body =~ /"uptime_seconds"/;
        $body = ")]}',\n$body" if F('ro-json-guard') && $body =~ /"proofs"/;
    }
    elsif (utf8::is_utf8($body)) { $body = Encode::encode('UTF-8', $body) }
    $type = 'text/html' if F('ro-inference-html') && $answer->{json} && $answer->{json}{tokens_generated};
    $headers->content_type($type) unless F('ro-no-content-type') && $status >= 400;
    $headers->header($_ => $answer->{headers}{$_}) for keys %{ $answer->{headers} || {} };
    if (P('upper-headers')) { $headers->header('X-Node-Build' => 'plum') }
    $headers->connection('close') if P('close');
    $headers->header('Cache-Control' => 'no-store') if P('no-store');
    $headers->header(Date => 'Thu, 01 Jan 1970 00:00:00 GMT') if F('ro-date-1970');
    $Plum::Node::count{sent} += 150 + length $body;
    $answer->{done}->() if $answer->{done};
    if (P('chunked') && length $body && $tx->req->method ne 'HEAD') {
        $response->content->write_chunk($body => sub { $_[0]->write_chunk('') });
    }
    else { $response->body($body) }
    $tx->resume;
}

# Server-sent events (interface 6).
sub write_stream {
    my ($tx, $answer) = @_;
    my $response = $tx->res;
    $response->code(200);
    $response->headers->content_type(F('ro-stream-type') ? 'application/json' : P('charset') ? 'text/event-stream; charset=utf-8' : 'text/event-stream');
    $response->headers->header('Cache-Control' => 'no-cache');
    my @pieces = @{ $answer->{stream}{pieces} };
    @pieces = (join '', @pieces) if P('one-token-event') && @pieces;
    pop @pieces if F('re-stream-last-token') && @pieces > 1;
    shift @pieces if F('re-stream-first-token') && @pieces > 1;
    my $index = F('re-index-from-one') ? 1 : 0;
    my $finished = $answer->{done};
    my $send;
    $tx->on(finish => sub { $finished->() if $finished; undef $finished; undef $send });
    my $batch = P('stream-at-once') ? 1e9 : 4;
    $send = sub {
        my $out = '';
        for (1 .. $batch) {
            last unless @pieces;
            my $piece = shift @pieces;
            $piece =~ s/^ // if F('re-stream-space-lost');
            $piece =~ s/,$// if F('re-stream-comma-lost');
            my $event = { token => $piece, index => F('fi-index-string') ? "$index" : int_($index) };
            delete $event->{index} if F('fi-index-missing') && $index == 0;
            $event->{time} = stamp_() if P('extra-fields');
            $out .= event($event);
            $index += F('re-index-by-two') ? 2 : F('re-index-stuck') && $index >= 20 ? 0 : 1;
        }
        if (!@pieces) {
            my $final = {
                token => F('fi-done-word') ? 'DONE' : '[DONE]', usage => $answer->{usage},
                finish_reason => $answer->{stream}{reason},
            };
            delete $final->{usage} if F('fi-final-usage-missing');
            delete $final->{finish_reason} if F('fi-final-reason-missing');
            $final->{finish_reason} = undef if F('fi-final-reason-null') && $answer->{stream}{reason} eq 'length';
            $out .= event($final) unless F('ro-no-final-event');
            $out .= event({ token => '', index => int_($index) }) if F('ro-after-final');
            $out .= "data: [DONE]\n\n" if F('ro-raw-done');
            $out =~ s/\n$// if F('ro-last-blank-missing');
        }
        $Plum::Node::count{sent} += length $out;
        if (@pieces) {
            $response->content->write_chunk($out => sub { my $next = $send; Mojo::IOLoop->timer(0.002 => sub { $next->() }) if $next });
        }
        elsif (F('ro-stream-hangs')) { $response->content->write_chunk($out) }
        else { $response->content->write_chunk($out => sub { $_[0]->write_chunk('') }) }
        $tx->resume;
    };
    $send->();
}

sub stamp_ { return Plum::Ledger::stamp() }

sub event {
    my ($value) = @_;
    my $text = encode_json_($value, 1);
    $text =~ s/,"token"/,\ndata: "token"/ if F('ro-event-two-lines');
    $text =~ s/^\{/{"token":"",/ if F('fi-event-duplicate');
    return "$text\n\n" if F('ro-event-no-prefix');

    return "data: $text\n" if F('ro-no-blank-line');
    return "data: $text\n\n";
}
1;
