package Plum::Rpc;
# POST /rpc (JSON-RPC 2.0 with a short list of methods) and the worker protocol.
use strict;
use warnings;
use MIME::Base64 qw(encode_base64 decode_base64);
use Encode ();
use Plum::Switch;
use Plum::Json;
use Plum::Ledger;
use Plum::Chain;

my %METHOD = (status => \&status, block => \&block, validators => \&validators, abci_query => \&query, broadcast_tx_sync => \&broadcast);
my %ORDER  = (block => ['height'], validators => [qw(height page per_page)], abci_query => [qw(path data height prove)], broadcast_tx_sync => ['tx']);

sub reply {
    my ($id, $part, $status) = @_;
    $part->{error}{data} = 'see the manual' if $part->{error} && P('rpc-error-data');
    return { status => $status || 200, json => { jsonrpc => '2.0', id => $id, %$part } };
}
sub problem { my ($code, $text) = @_; return { error => { code => int_($code), message => $text } } }

sub rpc {
    my ($request) = @_;
    return reply(undef, problem(-32600, 'the body is too large'), 413) if length $request->body > 200_000;
    my $node = eval { decode_json_($request->body) };
    return reply(undef, problem(-32700, 'the body is no JSON'), 400) unless $node;
    return reply(undef, problem(-32600, 'one call at a time'), 400) unless $node->[0] eq 'o';
    my $call = $node->[1];
    my $id = $call->{id} ? ($call->{id}[0] eq 'n' ? int_($call->{id}[1]) : $call->{id}[0] eq 's' ? $call->{id}[1] : undef) : undef;
    my $name = $call->{method} && $call->{method}[0] eq 's' ? $call->{method}[1] : '';
    my $code = $METHOD{$name};
    $code = undef if F('ro-rpc-no-validators') && $name eq 'validators' || F('ro-rpc-no-status') && $name eq 'status';
    $code = undef if F('ro-rpc-no-query') && $name eq 'abci_query' || F('ro-rpc-no-broadcast') && $name eq 'broadcast_tx_sync';
    return reply($id, { result => undef }) if !$code && F('rf-rpc-null-result');
    $code = \&peers if !$code && F('gu-rpc-net-info') && $name eq 'net_info';
    $code = sub { { result => { unconfirmed => int_(0), key => Plum::Keys::public('validator 0') } } } if !$code && F('gu-rpc-consensus') && $name =~ /consensus|unconfirmed|genesis|unsafe|dump/;
    return reply($id, problem(-32601, "method $name is not allowed"), P('rpc-404') ? 404 : 200) unless $code;
    my %given;
    my $params = $call->{params};
    if ($params && $params->[0] eq 'o')    { $given{$_} = Plum::Json::bare($params->[1]{$_}) for keys %{ $params->[1] } }
    elsif ($params && $params->[0] eq 'a') { @given{ @{ $ORDER{$name} || [] } } = map { Plum::Json::bare($_) } @{ $params->[1] } }
    elsif ($params && $params->[0] ne 'z') { return reply($id, problem(-32602, 'params is no object or array')) }
    return reply($id, $code->(\%given));
}

sub peers { return { result => { listening => bool(1), n_peers => int_(2), peers => [ map { { id => $_->{id}, address => $_->{address} } } @Plum::Node::peers ] } } }

sub chosen {
    my ($given) = @_;
    my $height = $given->{height};
    return scalar Plum::Chain::height() unless defined $height && $height ne '';
    return undef if ref $height || $height !~ /^\d{1,12}$/ || $height < 1 || $height > Plum::Chain::height();
    return $height + 0;
}

sub status {
    my $block = $Plum::Chain::blocks[-1];
    return { result => {
        node_info => { network => F('re-rpc-chain') ? 'plum-main' : Plum::Keys::CHAIN, version => '0.4.0' },
        sync_info => { latest_block_height => "$block->{height}", latest_block_hash => $block->{hash}, catching_up => bool(0) },
    } };
}

sub block {
    my ($given) = @_;
    my $height = chosen($given);
    return problem(-32602, 'there is no block at this height') unless $height;
    return problem(-32602, 'a height is needed') if F('rf-rpc-block-needs-height') && !defined $given->{height};
    $height = Plum::Chain::height() if F('re-rpc-block-latest');
    my $block = $Plum::Chain::blocks[ $height - 1 ];
    my $result = {
        block_id => { hash => $block->{hash} },
        block => {
            header => { chain_id => Plum::Keys::CHAIN, height => "$block->{height}", time => stamp($block->{time}), last_block_id => { hash => $block->{parent} } },
            data => { txs => [ map { encode_base64($_->{bytes}, '') } @{ $block->{txs} } ] },
        },
    };
    delete $result->{block_id} if F('re-rpc-parent-hash');
    return { result => $result };
}

sub validators {
    my ($given) = @_;
    my $height = chosen($given);
    return problem(-32602, 'there is no block at this height') unless $height;
    return problem(-32602, 'height is not taken') if F('rf-rpc-validators-height') && defined $given->{height};
    my @all = @Plum::Chain::validators;
    return { result => { block_height => "$height", validators => [ map { { address => substr($_->{owner}, 0, 40), voting_power => "$_->{power}" } } @all ], count => scalar(@all) . '', total => scalar(@all) . '' } };
}

sub query {
    my ($given) = @_;
    my $path = ref $given->{path} ? '' : $given->{path} // '';
    my $data = ref $given->{data} ? '' : $given->{data} // '';
    return problem(-32602, 'the paths are /job and /jobs') unless $path eq '/job' || $path eq '/jobs';
    return problem(-32602, 'unknown path') if F('ro-query-no-jobs') && $path eq '/jobs';
    my $value = '';
    my $code  = 0;
    if ($path eq '/jobs') {
        $value = encode_json_([ map { { request_id => $_->{id}, state => $_->{state} } } grep { $_->{state} eq 'pending' } values %Plum::Chain::request ]);
    }
    else {
        my $id  = $data =~ /^(?:[0-9a-f]{2})+$/i ? pack('H*', $data) : $data;
        my $job = $Plum::Chain::request{$id} || $Plum::Chain::request{$data};
        if ($job) { $value = encode_json_(Plum::Chain::request_view($job)) }
        else      { $code = 4 }
    }
    return { result => { response => { code => int_($code), log => $code ? 'unknown job' : '', height => Plum::Chain::height() . '', value => encode_base64($value, '') } } };
}

sub broadcast {
    my ($given) = @_;
    my $tx = $given->{tx};
    return problem(-32602, 'tx is missing') unless defined $tx && !ref $tx;
    my $done = eval { Plum::Chain::broadcast(decode_base64($tx)) };
    if (!$done) {
        chomp(my $why = $@);
        if (F('rf-broadcast-always-ok')) { return { result => { code => int_(0), log => '', hash => uc Digest::SHA::sha256_hex(decode_base64($tx)) } } }
        return { result => { code => int_(7), log => $why, hash => uc Digest::SHA::sha256_hex(decode_base64($tx)) } } if P('refused-in-result');
        return problem(-32010, $why);
    }
    my $hash = F('re-broadcast-hash-is-id') ? $done->{id} : $done->{hash};
    return { result => { code => int_(0), log => '', hash => $hash, request_id => $done->{id} } };
}

# The worker protocol ----------------------------------------------------------------
sub fail { my ($status, $why) = @_; return { status => $status, json => { problem => $why } } }

# The signed content of a message, or an answer that refuses it.
sub opened {
    my ($request, $type) = @_;
    my $node = eval { decode_json_($request->body) };
    return (undef, fail(F('rf-work-500') ? 500 : 400, 'the body is no JSON object')) unless $node && $node->[0] eq 'o';
    my $outer = Plum::Json::bare($node);
    for my $key (qw(payload public_key signature)) {
        next if defined $outer->{$key} && !ref $outer->{$key};
        return ({}, undef) if F('gu-work-unsigned') && $key eq 'signature';
        return (undef, fail(401, "$key is missing"));
    }
    my $payload = Encode::encode('UTF-8', $outer->{payload});
    return (undef, fail(403, 'the signature is not that of the payload')) unless F('gu-work-forged') || Plum::Keys::verify($outer->{public_key}, $payload, $outer->{signature});
    my $body = Plum::Json::bare(eval { decode_json_($payload) });
    return (undef, fail(400, "the payload is no message of type $type")) unless ref $body eq 'HASH' && ($body->{type} // '') eq $type;
    return (undef, fail(403, 'another chain')) unless ($body->{chain_id} // '') eq Plum::Keys::CHAIN;
    return ($body, undef);
}

sub poll {
    my ($request) = @_;
    return { status => 200, json => { work => undef } } if F('gu-work-empty-poll') && $request->body =~ /^\s*(\{\s*\})?\s*$/;
    my ($body, $answer) = opened($request, 'work.poll');
    return $answer if $answer;
    return { status => 200, json => { work => Plum::Chain::poll_work() } };
}

sub result {
    my ($request) = @_;
    my ($body, $answer) = opened($request, 'work.result');
    return $answer if $answer;
    my $attempt = $body->{attempt};
    return fail(400, 'attempt is missing') if !defined $attempt || ref $attempt;
    my $state = $Plum::Chain::attempt{$attempt};
    return fail(404, 'there is no such attempt') unless $state;
    return fail(409, 'this attempt has a result') if $state ne 'open';
    $Plum::Chain::attempt{$attempt} = 'done';
    $Plum::Chain::attempts_left++;
    return { status => 200, json => { accepted => bool(1), attempt => $attempt } };
}
1;
