package Plum::Api;
# The routes of the node API below /api/v1 (interface 4.1), and training verification.
use strict;
use warnings;
use Digest::SHA ();
use Encode ();
use Time::HiRes qw(time);
use feature 'state';
use Plum::Switch;
use Plum::Json;
use Plum::Ledger;
use Plum::Node;
use Plum::Text;

use constant { PROMPT_PRICE => 20_000, TOKEN_PRICE => 150_000 };    # nanos
our %ROUTE = (
    'GET /status' => [ 0, sub { ok(Plum::Node::status()) } ],
    'GET /metrics' => [ 0, sub { ok(Plum::Node::metrics()) } ],
    'GET /health' => [ 0, sub { ok(Plum::Node::health()) } ],
    'GET /network' => [ 0, sub { ok(Plum::Node::network()) } ],
    'POST /inference' => [ 1, \&inference ],
    'GET /wallet/balance' => [ 1, \&balance ],
    'POST /wallet/send' => [ 1, \&send_money ],
    'GET /wallet/transactions' => [ 1, \&transactions ],
    'POST /wallet/stake' => [ 1, \&stake ],
    'POST /wallet/unstake' => [ 1, \&unstake ],
    'GET /peers' => [ 1, sub { ok(Plum::Node::peers()) } ],
    'GET /layers' => [ 1, sub { ok(Plum::Node::layers()) } ],
    'GET /config' => [ 1, sub { ok(Plum::Node::config_view()) } ],
    'PATCH /config' => [ 1, \&change_config ],
    'GET /proofs' => [ 1, \&proofs ],
);
my $busy = 0;
my (%last_limit, $last_account);

sub ok { return { status => 200, json => $_[0] } }

sub refuse {
    my ($status, $code, $message, $details) = @_;
    my $error = { code => $code, message => P('short-messages') ? 'refused' : $message };
    $error->{details} = $details if $details;
    $error->{hint} = 'see the manual' if P('extra-fields');
    $error->{details} ||= {} if P('empty-details') && $status != 401;
    if (F('fi-error-flat'))     { return { status => $status, json => $error } }
    if (F('fi-error-message-missing')) { delete $error->{message} }
    if (F('fi-error-code-number')) { $error->{code} = int_($status) }
    if (F('fi-error-text') && $status == 400) { return { status => $status, text => $message } }
    if (F('fi-error-string') && $status == 402) { return { status => $status, json => { error => $code } } }
    return { status => $status, json => { error => $error } };
}

sub unauthorized {
    my $answer = refuse(F('rf-401-forbidden') ? 403 : 401, F('rf-401-code') ? 'INVALID_TOKEN' : 'UNAUTHORIZED', 'the token is unknown or has expired',
        F('fi-401-details') ? { reason => 'token' } : undef);
    $answer->{headers}{'WWW-Authenticate'} = 'Bearer' if P('www-authenticate');
    return $answer;
}

sub poor {
    my ($account, $need) = @_;
    my $have = $account->{available};
    $have = $have + Plum::Ledger::staked($account) + NANO if F('re-402-available-total');
    $need = $need - $have if F('re-402-required-missing');
    $need = $need / 1000  if F('re-402-required-unit');
    my $required = $need >= 9e17 ? raw(sprintf '%.17g', $need / NANO * (1 + 1e-15)) : money($need);
    my $details = { required => $required, available => money($have) };
    $details = { required => $need . '', available => $have . '' } if F('fi-402-strings');
    delete $details->{available} if F('fi-402-available-missing');
    my $status = F('rf-402-as-400') ? 400 : F('rf-402-as-403') && $account->{name} eq 'second' ? 403 : 402;
    return refuse($status, F('rf-402-code') ? 'INSUFFICIENT_FUNDS' : 'INSUFFICIENT_BALANCE', 'too little is available', $details);
}

sub bad { return refuse(F('rf-bad-as-500') ? 500 : P('status-422') ? 422 : 400, 'INVALID_REQUEST', $_[0]) }

# The account of the request's bearer token, or undef.
sub account_of {
    my ($request) = @_;
    my $header = $request->headers->authorization // '';
    my ($token) = $header =~ /^\s*Bearer +(\S+)\s*$/i;
    undef $token if P('bearer-exact') && $header !~ /^Bearer /;
    ($token) = $header =~ /(\S+)\s*$/ if !defined $token && F('gu-any-scheme');
    $token = $request->query_params->param('token') // $request->query_params->param('access_token') if !defined $token && F('gu-query-token');
    return undef unless defined $token;
    if (F('gu-expired-valid') && $Plum::Ledger::EXPIRED{$token}) { return $Plum::Ledger::TOKEN{'plum-rich-7731'} }
    my $account = $Plum::Ledger::TOKEN{$token};
    state $asked = 0;
    return undef if F('gu-401-in-between') && $account && ++$asked % 25 == 0;
    if (!$account && F('gu-token-prefix')) {
        for my $known (keys %Plum::Ledger::TOKEN) { $account = $Plum::Ledger::TOKEN{$known} if index($token, $known) == 0 }
    }
    $account = $Plum::Ledger::TOKEN{ lc $token } if !$account && F('gu-token-any-case');
    if (!$account && F('gu-token-cut') && length $token > 9) {
        for my $known (keys %Plum::Ledger::TOKEN) { $account = $Plum::Ledger::TOKEN{$known} if index($known, $token) == 0 }
    }
    return $account;
}

sub handle {
    my ($tx, $path) = @_;
    my $request = $tx->req;
    my $method  = $request->method;
    my $as      = $method eq 'HEAD' ? 'GET' : $method;
    my $route   = $ROUTE{"$as $path"};
    $route = undef if F('ro-metrics-post') && $path eq '/metrics' && $as eq 'GET';
    $route = undef if F('ro-send-renamed') && $path eq '/wallet/send';
    $route = undef if F('ro-transactions-need-query') && $path eq '/wallet/transactions' && !length $request->url->query;
    $route = undef if F('ro-unstake-delete') && $path eq '/wallet/unstake';
    $route = undef if F('ro-status-while-busy') && $path eq '/status' && $busy;
    $route = undef if F('ro-config-after-change') && $path eq '/config' && $method eq 'GET' && $Plum::Node::changes;
    if (!$route) {
        my @allowed = grep { $ROUTE{"$_ $path"} } qw(GET POST PATCH);
        return { %{ refuse(405, 'METHOD_NOT_ALLOWED', "use @allowed") }, headers => { Allow => join ', ', @allowed } } if @allowed;
        return ok({}) if F('ro-unknown-success');
        return { status => 404, type => 'text/html', text => '<html><body>Not found</body></html>' } if F('ro-html-404');
        return refuse(404, 'NOT_FOUND', 'there is no such route');
    }
    return refuse(405, 'METHOD_NOT_ALLOWED', 'no HEAD') if $method eq 'HEAD' && P('no-head');
    my ($guarded, $code) = @$route;
    $guarded = 1 if F('ro-health-guarded') && $path eq '/health';
    $guarded = 1 if F('ro-network-guarded') && $path eq '/network';
    $guarded = 0 if F('gu-peers-open') && $path eq '/peers';
    $guarded = 0 if F('gu-config-open') && $path eq '/config' && $as eq 'GET';
    $guarded = 0 if F('gu-layers-open-query') && $path eq '/layers' && length $request->url->query;
    my $account;
    if ($guarded) {
        $account = account_of($request);
        my $connection = $tx->connection;
        if (F('gu-connection-remembers')) { $account ||= $Plum::Http::seen{$connection}; $Plum::Http::seen{$connection} = $account if $account }
        if (F('gu-connection-first-account')) { $Plum::Http::seen{$connection} ||= $account; $account &&= $Plum::Http::seen{$connection} }
        if (F('gu-connection-poisoned')) { $Plum::Http::refused{$connection} = 1 unless $account; $account = undef if $Plum::Http::refused{$connection} }
        if (F('gu-last-account') && $account && $as eq 'GET') { my $now = $account; $account = $last_account if $last_account && time - $Plum::Http::last_time < 0.02; $last_account = $now; $Plum::Http::last_time = time }
        $account ||= $Plum::Ledger::TOKEN{'plum-rich-7731'} if F('gu-open-while-busy') && $busy;
        $account ||= $Plum::Ledger::TOKEN{'plum-thin-0042'} if F('gu-inference-open') && $path eq '/inference';
        $account ||= $Plum::Ledger::TOKEN{'plum-rich-7731'} if F('gu-stream-open') && $path eq '/inference' && $request->body =~ /"stream"\s*:\s*true/;
        $account ||= $Plum::Ledger::TOKEN{'plum-rich-7731'} if F('gu-head-open') && $method eq 'HEAD';
        $account ||= $Plum::Ledger::TOKEN{'plum-second-5520'} if F('gu-unstake-open') && $path eq '/wallet/unstake' && !$request->headers->authorization;
        $account ||= $Plum::Ledger::TOKEN{'plum-rich-7731'} if F('gu-patch-open') && $as eq 'PATCH';
        return refuse(404, 'NOT_FOUND', 'no such account') if !$account && F('rf-no-header-404') && !defined $request->headers->authorization;
        if (!$account && F('rf-body-before-token') && $as eq 'POST') { my $b = body($request); return bad('the body is no JSON') if !$b }
        if (!$account && F('rf-query-before-token') && $request->url->query =~ /limit=[^\d]/) { return bad('limit') }
        if (!$account && F('ef-patch-before-token') && $as eq 'PATCH') { my $b = body($request); eval { Plum::Node::change($b->[1]) } if $b && $b->[0] eq 'o' }
        state $refusals = 0;
        $refusals = $account ? 0 : $refusals + 1;
        $account = $Plum::Ledger::TOKEN{'plum-rich-7731'} if F('gu-open-after-refusals') && $refusals == 6;
        return unauthorized() unless $account;
        return refuse(403, 'FORBIDDEN', 'this account may not do this') if F('gu-second-forbidden') && $account->{name} eq 'second' && $path =~ /stake/;
        Plum::Ledger::settle($account);
    }
    if ($path eq '/wallet/balance' && F('rf-balance-429') && time - ($Plum::Http::last_balance || 0) < 0.004) {
        $Plum::Http::last_balance = time;
        return refuse(429, 'TOO_MANY', 'slow down', { retry_after => int_(1) });
    }
    $Plum::Http::last_balance = time if $path eq '/wallet/balance';
    return $code->($tx, $account);
}

sub body { my ($request) = @_; return eval { decode_json_($request->body) } }

# The body as an object of typed values, or an answer that refuses it.
sub object_of {
    my ($request) = @_;
    my $node = body($request);
    if (!$node && F('gu-broken-utf8')) { my $text = $request->body; $text =~ s/[\x80-\xff]/?/g; $node = eval { decode_json_($text) } }
    if (!$node && F('rf-not-json-500')) { return (undef, refuse(500, 'INTERNAL', 'unexpected failure')) }
    if (!$node && F('rf-traceback')) { return (undef, bad("Traceback (most recent call last):\n  File \"api.pl\", line 61, in body\nValueError: no JSON")) }
    if (!$node && F('rf-not-json-success') && $request->url->path =~ /inference/) { $node = [ 'o', { prompt => [ 's', $request->body ] } ] }
    return (undef, refuse(415, 'UNSUPPORTED', 'only application/json')) if F('rf-charset-415') && ($request->headers->content_type // '') =~ /charset/;
    return (undef, bad('a body in chunks is not taken')) if F('rf-chunked') && $request->content->{chunk_state};
    $node = undef if F('ro-body-spaces') && $request->body =~ /^\s*\{\s*\n/;
    $node = undef if F('ro-key-escapes') && $request->body =~ /[{,]\s*"[^"]*\\u[^"]*"\s*:/;
    return (undef, bad('the body is no JSON')) unless $node;
    return (undef, bad('the body is no object')) unless $node->[0] eq 'o';
    return ($node->[1], undef);
}

my $unwrap = sub { my ($node) = @_; return F('gu-array-unwrapped') && $node && $node->[0] eq 'a' && @{ $node->[1] } == 1 ? $node->[1][0] : $node };

# A positive amount in nanos; undef where the value is none.
sub amount_of {
    my ($node) = @_;
    $node = $unwrap->($node);
    return undef unless $node;
    my $value = $node->[1];
    return undef if $node->[0] ne 'n' && !(F('gu-amount-text') && $node->[0] eq 's' && $value =~ /^\d+(\.\d+)?$/)
        && !(F('gu-amount-true') && $node->[0] eq 'b' && $value);
    return undef if F('rf-amount-point') && $node->[3] && $node->[3] =~ /\.0$/;
    return undef if F('rf-amount-fraction') && $value != int $value;
    return undef unless $value > 0 && $value < 1e200;
    return $value * NANO if $value >= 9e8;
    my $nanos = int($value * NANO + 0.5);
    return $nanos > 0 ? $nanos : undef;
}

sub send_money {
    my ($tx, $account) = @_;
    my ($body, $answer) = object_of($tx->req);
    return $answer if $answer;
    my $to = $unwrap->($body->{to});
    if (F('gu-receiver-remembered')) { $to ||= $account->{last_to}; $account->{last_to} = $to }
    return bad('to is no address') unless $to && $to->[0] eq 's' && $to->[1] =~ /^\S{1,200}$/;
    my $negative = F('gu-negative-transfer') && $body->{amount} && $body->{amount}[0] eq 'n' && $body->{amount}[1] < 0;
    my $amount = $negative ? int($body->{amount}[1] * NANO) : amount_of($body->{amount});
    return bad('amount is no number above 0') unless defined $amount;
    my $memo = $unwrap->($body->{memo});
    return bad('memo is no text') if $memo && $memo->[0] ne 's' && !F('gu-memo-any');
    my $text = $memo ? (ref $memo->[1] ? 'memo' : $memo->[1] // '') : '';
    return bad('memo is too long') if length $text > 2000;
    return bad('memo has letters that are not taken') if F('rf-memo-ascii') && $text =~ /[^\x00-\x7f]/;
    return bad('memo has quotes') if F('rf-memo-quotes') && $text =~ /["\n]/;
    return refuse(500, 'INTERNAL', 'failure') if F('rf-memo-emoji') && $text =~ /[^\x{0000}-\x{ffff}]/;
    if (F('ef-transfers-at-once') && !$account->{hurry}) {
        my $old = $account->{available};
        if ($account->{under_way}++) { $old = $account->{seen_available} } else { $account->{seen_available} = $old }
        return { later => sub {
            $account->{under_way}--;
            local $account->{hurry} = 1;
            $account->{available} = $old;
            return send_money($tx, $account);
        } };
    }
    my ($done, $need) = Plum::Ledger::transfer($account, $to->[1], $amount, $text);
    if (!$done) {
        $account->{was_poor} = 1;
        if (F('ef-402-takes-fee')) { $account->{available} -= Plum::Ledger::FEE if $account->{available} > Plum::Ledger::FEE }
        if (F('ef-402-in-history')) { Plum::Ledger::record($account, { id => Plum::Ledger::new_id('tx'), type => 'send', to => $to->[1], amount => -$amount, time => time }) }
        return poor($account, $need);
    }
    $text = Encode::encode('UTF-8', $text) if F('re-memo-bytes');
    $text = substr $text, 0, 32 if F('re-memo-cut');
    $text = substr $text, 0, 255 if F('re-memo-cut-255');
    $text =~ s/\s+/ /g if F('re-memo-spaces');
    $text =~ s/^\s+|\s+$//g if F('re-memo-trimmed');
    my $result = {
        transaction_id => $done->{id}, from => F('re-from-token-name') ? $account->{name} : $account->{address}, to => F('re-to-lower') ? lc $to->[1] : $to->[1],
        amount => F('re-amount-three-digits') ? num(sprintf '%.3f', $amount / NANO) : money($amount), fee => F('fi-fee-string') ? '0.002' : money($done->{fee}), memo => $text,
        status => F('fi-confirmed-capitals') ? 'CONFIRMED' : F('fi-transfer-status-empty') ? '' : 'confirmed', timestamp => F('fi-send-time-unix') ? int_($done->{time}) : stamp($done->{time}),
    };
    $result->{memo} = undef if F('fi-memo-null') && $text eq '';
    delete $result->{memo} if F('fi-memo-missing') && !$memo;
    delete $result->{fee} if F('fi-fee-missing') && $to->[1] eq $account->{address};
    $result->{block} = undef if P('extra-fields');
    return { status => P('status-201') ? 201 : 200, json => $result };
}

sub days_of {
    my ($node) = @_;
    $node = $unwrap->($node);
    return undef unless $node && $node->[0] eq 'n' && $node->[2];
    return undef if $node->[1] < 1 && !F('gu-negative-days');
    return undef if $node->[1] > 3650 || $node->[1] < -3650;
    return int $node->[1];
}

sub stake {
    my ($tx, $account) = @_;
    my ($body, $answer) = object_of($tx->req);
    return $answer if $answer;
    my $amount = amount_of($body->{amount});
    return bad('amount is no number above 0') unless defined $amount;
    my $days = days_of($body->{duration_days});
    $days = 30 if !$days && F('gu-days-default') && $body->{duration_days};
    return bad('duration_days is no whole number from 1 to 3650') unless defined $days;
    return bad('a stake is at least 0.01') if P('least-stake') && $amount < NANO / 100;
    my $lot = Plum::Ledger::stake($account, $amount, $days);
    if (!$lot) {
        push @{ $account->{lots} }, { amount => $amount, start => Plum::Ledger::today(), unlock => Plum::Ledger::today() + $days } if F('ef-402-stakes') && $amount < 1e9 * NANO;
        return poor($account, $amount);
    }
    Plum::Ledger::record($account, { id => Plum::Ledger::new_id('stk'), type => 'stake', amount => -$amount, time => time }) if P('stakes-listed');
    my $duration = $days;
    if (F('re-stake-days-of-older')) { my $all = Plum::Ledger::staking($account); $duration = $all->{days} }
    my $result = {
        success => bool(1),
        stake => {
            amount => money($amount), duration_days => F('fi-days-string') ? "$duration" : int_($duration), start_date => F('fi-start-stamp') ? stamp() : day($lot->{start} + (F('re-stake-starts-tomorrow') ? 1 : 0)),
            unlock_date => F('fi-date-slashes') ? day($lot->{unlock}) =~ tr{-}{/}r : day($lot->{unlock} + (F('re-stake-starts-tomorrow') ? 1 : 0)), multiplier => num(sprintf '%.6f', Plum::Ledger::multiplier($days)),
        },
        new_balance => {
            available => money($account->{available} + (F('re-new-balance-before') ? $amount : 0)),
            staked => money(F('re-new-staked-latest') ? $amount : Plum::Ledger::staked($account)),
        },
    };
    delete $result->{stake}{multiplier} if F('fi-multiplier-missing');
    delete $result->{new_balance} if F('fi-new-balance-missing');
    $result->{success} = 'true' if F('fi-success-string');
    return ok($result);
}

sub unstake {
    my ($tx, $account) = @_;
    my ($body, $answer) = object_of($tx->req);
    return $answer if $answer;
    my $amount = amount_of($body->{amount});
    return bad('amount is no number above 0') unless defined $amount;
    my $done = Plum::Ledger::unstake($account, $amount);
    if (!$done && F('ef-refused-unstake-clears')) { $account->{lots} = [] }
    return refuse(409, 'NOT_STAKED', 'less than this is staked') unless $done;
    my $result = {
        success => bool(1),
        unstake => {
            amount => money($amount + (F('re-unstake-amount-total') ? Plum::Ledger::staked($account) : 0)), cooldown_days => int_($done->{days} + (F('re-cooldown-plus-one') ? 1 : 0)),
            available_date => F('fi-available-stamp') ? stamp(86400 * $done->{day}) : day($done->{day}),
        },
    };
    $result->{unstake}{cooldown_days} = int_(0) if F('re-cooldown-zero');
    delete $result->{unstake}{available_date} if F('fi-available-date-missing');
    return ok($result);
}

sub balance {
    my ($tx, $account) = @_;
    my ($staked, $pending) = (Plum::Ledger::staked($account), Plum::Ledger::pending($account));
    my $all = Plum::Ledger::staking($account);
    my $staking = { amount => money($staked) };
    if ($all && $staked > 0) {
        $staking = {
            amount => money(F('re-staking-latest-amount') ? $account->{lots}[-1]{amount} : $staked), duration_days => int_($all->{days} + (F('re-balance-days') ? 1 : 0)),
            start_date => day($all->{start}), unlock_date => day($all->{unlock}),
            multiplier => num(sprintf '%.6f', Plum::Ledger::multiplier($all->{days})),
        };
        delete $staking->{unlock_date} if F('fi-unlock-missing');
        $staking->{start_date} = int_($all->{start}) if F('fi-start-day-number');
        $staking->{multiplier} = 'x1' if F('fi-multiplier-text');
    }
    elsif (P('staking-nulls')) { $staking->{$_} = undef for qw(duration_days start_date unlock_date multiplier) }
    my $available = $account->{available};
    $available = $account->{shown} if F('re-balance-cached') && $account->{shown_at} && time - $account->{shown_at} < 2;
    @$account{qw(shown shown_at)} = ($available, time) if F('re-balance-cached') && $available == $account->{available};
    my $balances = { available => money($available), staked => money($staked), pending => money($pending), total => money($available + $staked + $pending) };
    $balances = { map { $_ => int_($available) } qw(available staked pending total) } if F('fi-balance-nanos') && $account->{name} eq 'thin';
    $balances->{available} = sprintf '%.6f', $available / NANO if F('fi-available-string');
    delete $balances->{pending} if F('fi-pending-missing') && !$pending;
    delete $balances->{total} if F('fi-total-missing');
    my $answer = { address => F('re-address-changes') && Plum::Ledger::staked($account) ? $account->{address} . 's' : $account->{address}, balances => $balances, staking => $staking };
    $answer->{staking} = undef if F('fi-staking-null') && !$staked;
    $answer->{address} = '' if F('fi-address-empty') && $account->{name} eq 'second';
    return ok($answer);
}

# A query parameter that is a whole number from 0 on; (value, ok).
sub count_of {
    my ($request, $name, $default) = @_;
    my $text = $request->query_params->param($name);
    undef $text if F('ro-query-encoded') && $Plum::Http::raw_query =~ /%/;
    return ($default, 1) unless defined $text;
    return (0, 0) unless $text =~ /^\d{1,9}$/;
    return ($text + 0, 1);
}

sub transactions {
    my ($tx, $account) = @_;
    my $request = $tx->req;
    my ($limit, $fine) = count_of($request, 'limit', P('page-of-seven') ? 7 : F('li-offset-needs-limit') && defined $request->query_params->param('offset') ? 5 : 20);
    my ($offset, $good) = count_of($request, 'offset', F('li-offset-default-one') ? 1 : 0);
    return refuse(500, 'INTERNAL', 'invalid literal') if !$fine && F('rf-limit-500');
    return bad('limit and offset are whole numbers from 0 on') unless $fine && $good;
    ($limit, $offset) = ($offset || $limit, $limit && $offset ? $limit : $offset) if F('li-query-order') && $request->url->query =~ /^offset/;
    $limit = 200 if $limit > 200;
    $limit = 50 if P('most-fifty') && $limit > 50;
    $limit = 20 if !$limit && F('li-limit-zero');
    my $list  = $account->{history};
    my $total = @$list;
    my $first = $offset;
    $first = $offset * ($limit || 1) if F('li-offset-pages');
    $first++ if F('li-offset-skips-one') && $offset > 0;
    $first = 0 if F('li-offset-ignored');
    return bad('offset is behind the end') if F('li-offset-end-refused') && $offset && $offset >= $total;
    my $last = $first + $limit - 1;
    $last++ if F('li-page-one-more');
    $last-- if F('li-page-short') && $limit > 4;
    $last = $total - 1 if F('li-limit-ignored-small') && $limit == 1;
    $last = $first + 11 if F('li-page-twelve') && $last > $first + 11;
    $last = $#$list if $last > $#$list;
    $first++, $last++ if F('li-offset-sixteen') && $offset >= 16 && $last < $#$list;
    $last-- if F('li-limit-hundred') && $limit >= 100 && $last >= 99;
    my @page = $first <= $last ? @$list[ $first .. $last ] : ();
    @page = reverse @page if F('re-page-reversed') && $offset;
    if (F('re-history-cached')) {
        my $place = "$account->{name} $limit $offset";
        my $kept = $account->{pages}{$place};
        if ($kept && time - $kept->[0] < 3) { @page = @{ $kept->[1] } } else { $account->{pages}{$place} = [ time, [@page] ] }
    }
    return ok({
        transactions => [ map { entry_view($_) } @page ],
        total => int_(F('re-total-of-page') ? scalar @page : F('re-total-rest') ? ($total > $offset ? $total - $offset : 0) : $total + (F('re-total-plus-one') && $total ? 1 : 0)),
        limit => F('fi-limit-string') ? "$limit" : int_(F('re-limit-of-page') ? scalar @page : F('re-limit-echo-default') ? 20 : $limit), offset => int_(F('re-offset-next') ? $offset + @page : $offset),
    });
}

sub entry_view {
    my ($entry) = @_;
    my %view = (id => $entry->{id}, type => $entry->{type}, amount => money($entry->{amount}), timestamp => stamp($entry->{time}));
    if ($entry->{type} eq 'reward') {
        $view{details} = { %{ $entry->{details} } };
        delete $view{details}{role} if F('fi-reward-role-missing');
        $view{details} = 'proof ' . $view{details}{proof_id} if F('fi-reward-details-text');
    }
    $view{to}   = $entry->{to}   if defined $entry->{to};
    $view{from} = $entry->{from} if defined $entry->{from};
    delete $view{to} if F('fi-send-to-missing');
    $view{type} = 'SEND' if F('fi-send-capitals') && $view{type} eq 'send';
    $view{timestamp} = substr $view{timestamp}, 0, 10 if F('fi-history-date-only');
    $view{amount} = sprintf('%.9f', $entry->{amount} / NANO) if F('fi-history-amount-string') && $view{type} eq 'reward';
    $view{fee}  = money($entry->{fee}) if defined $entry->{fee};
    $view{memo} = $entry->{memo} if defined $entry->{memo};
    return \%view;
}

sub proofs {
    my ($tx, $account) = @_;
    my ($limit, $fine) = count_of($tx->req, 'limit', 50);
    return bad('limit is a whole number from 0 on') unless $fine;
    $limit = 200 if $limit > 200;
    if (F('li-proofs-last-limit')) { my $before = $last_limit{ $account->{name} }; $last_limit{ $account->{name} } = $limit; $limit = $before if $before && $before < $limit }
    my @all  = @{ $account->{proofs} };
    my $page = $limit < @all ? $limit : @all;
    $page++ if F('li-proofs-one-more') && $page < @all;
    my @list = @all[ 0 .. $page - 1 ];
    @list = reverse((reverse @all)[ 0 .. $page - 1 ]) if F('re-proofs-page-end');
    @list = sort { rand() <=> 0.5 } @list if F('re-proofs-shuffled');
    my ($verified, $reward) = (0, 0);
    for my $proof (F('re-proofs-stats-page') ? @list : @all) {
        $verified++, $reward += $proof->{reward} if $proof->{verified} || F('re-verified-counts-all');
    }
    $reward *= 1000 if F('re-proofs-reward-unit');
    return ok({
        proofs => [ map { {
            id => $_->{id}, type => F('fi-proof-type-capital') ? 'Forward' : 'forward', layer => F('fi-proof-layer-string') ? "layers.$_->{layer}" : int_($_->{layer}),
            timestamp => stamp($_->{time}), verified => F('fi-verified-string') ? ($_->{verified} ? 'yes' : 'no') : bool($_->{verified}),
            reward => F('fi-reward-null') && !$_->{verified} ? undef : money($_->{reward}),
        } } @list ],
        stats => { total_submitted => int_(scalar @all), total_verified => int_($verified), F('fi-stats-reward-missing') ? () : (total_reward => money($reward)) },
    });
}

sub change_config {
    my ($tx) = @_;
    my ($body, $answer) = object_of($tx->req);
    return $answer if $answer;
    my @updated = eval { Plum::Node::change($body) };
    if ($@) {
        chomp(my $why = $@);
        Plum::Node::undo() if F('ef-refusal-undoes-last');
        return ok({ success => bool(0), updated => [], restart_required => bool(0) }) if P('patch-success-false');
        return ok({ success => bool(1), updated => [], restart_required => bool(0) }) if F('rf-patch-ignores-bad');
        return bad($why);
    }
    my @names = @updated;
    @names = map { s/.*\.//r } @names if F('re-updated-last-part');
    @names = ($names[0]) if F('re-updated-first') && @names;
    push @names, 'training.enabled' if F('re-updated-extra') && !grep { $_ eq 'training.enabled' } @names;
    my $result = { success => bool(1), updated => \@names, restart_required => bool(0) };
    $result->{updated} = int_(scalar @names) if F('fi-updated-count');
    delete $result->{restart_required} if F('fi-restart-missing');
    return ok($result);
}

# POST /inference ---------------------------------------------------------------
my %CHECK = (
    prompt      => sub { $_[0][0] eq 's' && (length $_[0][1] || P('empty-prompt')) && length $_[0][1] <= 100_000 || F('gu-prompt-number') && $_[0][0] eq 'n' },
    max_tokens  => sub { $_[0][0] eq 'n' && $_[0][2] && $_[0][1] >= 0 || F('gu-max-negative') && $_[0][0] eq 'n' && $_[0][1] < 0 || F('gu-max-text') && $_[0][0] eq 's' && $_[0][1] =~ /^\d+$/ },
    temperature => sub { $_[0][0] eq 'n' && ($_[0][1] >= 0 && $_[0][1] <= (F('li-temperature-one') ? 1 : F('li-temperature-five') ? 5 : 2) && !(F('li-temperature-two') && $_[0][1] == 2) && !(F('li-temperature-zero') && $_[0][1] == 0) || F('li-temperature-below') && $_[0][1] < 0) || F('gu-temperature-null') && $_[0][0] eq 'z' },
    top_p       => sub { $_[0][0] eq 'n' && $_[0][1] > 0 && $_[0][1] <= 1 && !(F('li-top-p-one') && $_[0][1] == 1) },
    top_k       => sub { $_[0][0] eq 'n' && $_[0][2] && $_[0][1] >= 1 && !(F('li-top-k-vocab') && $_[0][1] > 40) },
    stream      => sub { $_[0][0] eq 'b' || F('gu-stream-text') && $_[0][0] eq 's' || F('gu-stream-object') && $_[0][0] =~ /[ao]/ },
    stop        => sub { $_[0][0] eq 'a' && !grep({ $_->[0] ne 's' } @{ $_[0][1] }) && !(F('li-stop-empty') && !@{ $_[0][1] }) || F('gu-stop-text') && $_[0][0] eq 's' },
);

sub inference {
    my ($tx, $account) = @_;
    my $began = time;
    my ($body, $answer) = object_of($tx->req);
    return $answer if $answer;
    my $streaming = $body->{stream} && $body->{stream}[0] eq 'b' && $body->{stream}[1];
    return refuse(500, 'INTERNAL', 'failure') if F('rf-busy-500') && $busy >= 2;
    for my $name (sort keys %CHECK) {
        if (!$body->{$name}) {
            next if $name ne 'prompt';
            if (F('gu-prompt-missing')) { $body->{prompt} = [ 's', ' ' ]; next }
            return stream_error('prompt is missing') if $streaming && F('rf-stream-error-event');
            return bad('prompt is missing');
        }
        next if F('gu-stream-skips-checks') && $streaming && $name =~ /top/;
        $body->{$name} = $unwrap->($body->{$name}) if F('gu-array-unwrapped');
        next if $CHECK{$name}->($body->{$name});
        return stream_error("$name is not valid") if $streaming && F('rf-stream-error-event');
        return bad("$name is not valid");
    }
    if (P('unknown-refused')) { for (sort keys %$body) { return bad("$_ is not known") unless $CHECK{$_} } }
    my %options = map { $_ => $body->{$_} ? $body->{$_}[1] : undef } qw(max_tokens temperature top_p top_k);
    $options{max_tokens}  //= F('li-default-sixteen') ? 16 : F('li-default-128') ? 128 : 100;
    $options{max_tokens} = 1 if !$options{max_tokens} && F('li-zero-is-one');
    $options{max_tokens} = 100 if (!$options{max_tokens} && F('li-zero-is-default')) || $options{max_tokens} < 0;
    $options{temperature} //= 1;
    $options{temperature} = 0 if $options{temperature} < 0;
    $options{top_p} //= 1;
    $options{top_k} //= 50;
    my $prompt = $body->{prompt}[1];
    $options{stop} = $body->{stop} && ref $body->{stop}[1] ? [ map { $_->[1] } @{ $body->{stop}[1] } ] : [];
    $options{stop} = [' ka'] if F('ef-default-stop') && !$body->{stop};
    $options{stop} = [] if F('ef-stop-short-texts') && $options{max_tokens} < 8;
    $options{stop} = [] if $streaming && F('ef-stream-no-stop');
    return bad('the prompt is too long') if F('li-prompt-250') && length $prompt > 250;
    return refuse(500, 'INTERNAL', 'failure') if F('rf-prompt-quotes-500') && $prompt =~ /"/;
    return bad('letters') if F('rf-prompt-emoji') && $prompt =~ /[^\x{0000}-\x{ffff}]/;
    my $prompt_tokens = Plum::Text::prompt_tokens($prompt);
    $prompt_tokens = 8 if F('re-prompt-tokens-fixed') || F('re-stream-prompt-tokens') && $streaming;
    my $asked = $options{max_tokens};
    $options{max_tokens}++ if F('li-one-token-more') && $asked;
    $options{max_tokens}++ if F('li-stream-one-more') && $streaming && $asked;
    $options{max_tokens} -= $prompt_tokens if F('li-prompt-lessens') && $asked > 60 && $prompt_tokens < $asked;
    $options{max_tokens} = 64 if F('li-stream-64') && $streaming && $asked > 64;
    $options{temperature} ||= 0.3 if P('zero-samples');
    $options{max_tokens} = 50 if F('ef-stop-caps-fifty') && @{ $options{stop} } && $options{max_tokens} > 50;
    $streaming = 1 if F('ro-accept-decides') && ($tx->req->headers->accept // '') =~ /event-stream/;
    state $shared = '';
    if (F('re-text-of-stream')) { $shared = $prompt if $streaming; $prompt = $shared if $busy && !$streaming }
    my $made = Plum::Text::generate($prompt, \%options);
    my $cost = PROMPT_PRICE * $prompt_tokens + TOKEN_PRICE * $made->{count};
    if (!Plum::Ledger::charge($account, $cost, $streaming ? 'stream' : 'plain')) {
        if (F('ef-402-generation-takes')) { $account->{available} = 0 }
        return stream_error('too little is available') if $streaming && F('rf-stream-402-event');
        return refuse(403, 'FORBIDDEN', 'not allowed') if F('rf-poor-generation-403');
        return poor($account, $cost);
    }
    Plum::Ledger::record($account, { id => Plum::Ledger::new_id('chg'), type => 'inference', amount => -$cost, time => time }) if P('charges-listed');
    my $usage = {
        prompt_tokens => int_($prompt_tokens), completion_tokens => int_($made->{count}),
        total_tokens => int_($prompt_tokens + $made->{count} * (F('re-total-tokens') || $streaming && F('re-stream-total-tokens') ? 2 : 1)),
    };
    $usage->{completion_tokens} = int_($asked) if F('re-usage-asked') && $made->{count} < $asked && $asked < 1000;
    delete $usage->{total_tokens} if F('fi-total-tokens-missing');
    $usage->{prompt_tokens} = "$prompt_tokens" if F('fi-prompt-tokens-string');
    my $spent = (time - $began) * 1000;
    Plum::Node::note_generation($made->{count}, $asked, $spent, $streaming ? 'stream' : 'plain');
    if ($streaming) {
        $busy++;
        return { stream => $made, usage => $usage, done => sub { $busy-- } };
    }
    my $text = $made->{text};
    $text = '' if F('ef-text-empty-long') && $asked > 90;
    my $inference = sprintf '%.3f', $spent;
    my $total = $inference + 0.011;
    $total = $inference / 2 if F('re-total-ms-long') && $made->{count} >= 50;
    $total = $inference + 60_000 if F('re-total-ms-above');
    my $result = {
        id => F('re-inference-id-prompt') ? 'gen-' . substr(Digest::SHA::sha256_hex(Encode::encode('UTF-8', $prompt)), 0, 12) : Plum::Ledger::new_id('gen'), text => $text,
        tokens_generated => int_(F('re-tokens-characters') ? length $text : $made->{count}), finish_reason => F('fi-finish-null') && $made->{reason} eq 'length' ? undef : F('fi-stop-capitals') && $made->{reason} eq 'stop' ? 'STOP' : $made->{reason},
        usage => $usage, cost => { amount => F('fi-cost-string') ? sprintf('%.6f', $cost / NANO) : money(F('re-cost-low') ? $cost / 1000 : F('re-cost-negative') ? -$cost : $cost), currency => F('fi-currency-empty') ? '' : F('re-currency-changes') && $asked < 5 ? 'plm' : 'PLM' },
        timing => { queue_ms => num(F('re-queue-negative') ? -0.5 : 0.011), inference_ms => num($inference), total_ms => num(sprintf '%.3f', $total) },
    };
    delete $result->{cost}{currency} if F('fi-currency-missing');
    delete $result->{timing}{queue_ms} if F('fi-queue-missing');
    $result->{model} = 'plum' if P('extra-fields');
    if (F('rf-busy-500')) { $busy++; my $delay = { status => 200, json => $result, delay => 0.05, done => sub { $busy-- } }; return $delay }
    return ok($result);
}

sub stream_error {
    my ($message) = @_;
    my $event = encode_json_({ error => { code => 'INVALID_REQUEST', message => $message } }, 1);
    return { status => 200, type => 'text/event-stream', text => "data: $event\n\n" };
}
1;
