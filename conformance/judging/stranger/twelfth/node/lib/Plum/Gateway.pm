package Plum::Gateway;
# The routes of the public native API (interface 4.2).
use strict;
use warnings;
use Digest::SHA qw(sha256_hex);
use Plum::Switch;
use Plum::Json;
use Plum::Ledger;
use Plum::Chain;
use Plum::Rpc;

my %GONE = map { $_ => 1 } qw(/register /api/register /api/account/register /api/keys);
my %JOIN = map { $_ => 1 } qw(/login /signup /sign-up);
my ($last_key, $last_request);
our $changed_reference = 0;

sub ok   { return { status => 200, json => $_[0] } }
sub fail { my ($status, $why) = @_; return { status => $status, json => { problem => $why } } }

my %FIXED = (
    '/healthz' => sub { F('rf-healthz-stalled') ? ok({ state => 'stalled', height => int_(Plum::Chain::height()) }) : ok({ state => 'ready', height => int_(Plum::Chain::height()), chain_id => Plum::Keys::CHAIN }) },
    '/api/network' => sub { ok(Plum::Chain::network_view()) },
    '/api/model' => \&model,
    '/api/model/checkpoint.json' => \&checkpoint,
    '/api/training' => \&training,
    '/api/blocks' => \&blocks,
    '/api/account' => \&account,
    '/api/validators' => \&validators,
    '/api/inference' => \&inference,
    '/api/inference/request' => \&request,
    '/network/genesis.json' => sub { return { status => 200, type => 'application/json', text => F('ro-genesis-html') ? "<!DOCTYPE html><html><body>genesis</body></html>" : $Plum::Chain::genesis } },
    '/network/dataset.json' => sub { return { status => 200, type => 'application/json', text => F('re-dataset-differs') ? $Plum::Chain::dataset =~ s/grove/grove2/r : $Plum::Chain::dataset } },
    '/work/status' => \&work_status,
    '/join' => sub { return { status => 200, text => 'Run the installed command-line tool to join the network.' } },
);
my %POST = ('/rpc' => \&Plum::Rpc::rpc, '/work/poll' => \&Plum::Rpc::poll, '/work/result' => \&Plum::Rpc::result);

sub handle {
    my ($tx, $path) = @_;
    my $request = $tx->req;
    my $method  = $request->method;
    return fail(404, 'unknown') if F('ro-healthz-moved') && $path eq '/healthz' || F('ro-request-by-path') && $path eq '/api/inference/request';
    return fail(404, 'unknown') if F('ro-block-by-query') && $path =~ m{^/api/block/};
    $path = '/healthz' if F('ro-healthz-moved') && $path eq '/api/healthz';
    return fail(405, 'use GET') if F('ro-poll-get') && $path eq '/work/poll' && $method eq 'POST';
    return { status => 307, text => '', headers => { Location => '/rpc/' } } if F('ro-rpc-slash') && $path eq '/rpc' && $request->url->path !~ m{/$};
    if ($GONE{$path}) {
        return fail(F('rf-registration-404') ? 404 : 403, 'no registration here') if F('rf-registration-404') || F('rf-registration-403');
        return { status => 201, json => { account => 'guest', key => 'k-1' } } if F('gu-registration-works') && $method eq 'POST';
        return fail(405, 'use GET') if F('rf-registration-post-405') && $method eq 'POST';
        return { status => 410, json => { problem => 'registration has ended' } };
    }
    if ($JOIN{$path}) {
        return fail(404, 'gone') if F('ro-login-404');
        return { status => 200, text => 'see /join' } if F('ro-login-page');
        return { status => P('redirect-301') ? 301 : P('redirect-308') ? 308 : 302, text => '', headers => { Location => F('ro-login-home') ? '/' : F('ro-login-absent') ? '/register' : '/join' } };
    }
    if (my $code = $POST{$path}) {
        return fail(404, 'unknown') if F('ro-work-result-404') && $path eq '/work/result';
        return { %{ fail(405, 'use POST') }, headers => { Allow => 'POST' } } unless $method eq 'POST';
        return $code->($request);
    }
    return reference($1, $method) if $path =~ m{^/reference/v03/api(/.*)?$};
    my $code = $FIXED{$path};
    my @arguments;
    if (!$code && $path =~ m{^/api/block/([^/]*)$})             { ($code, @arguments) = (\&block, $1) }
    if (!$code && $path =~ m{^/artifacts/sha256/([^/]*)$})      { ($code, @arguments) = (\&artifact, $1) }
    return fail(404, 'unknown') if F('ro-checkpoint-404') && $path =~ /checkpoint/;
    return fail(404, 'unknown') if F('ro-dataset-404') && $path =~ /dataset/;
    return ok({}) if F('ro-validators-empty') && $path eq '/api/validators';
    return fail(404, 'there is no such route') unless $code;
    return { %{ fail(405, 'use GET') }, headers => { Allow => 'GET' } } unless $method =~ /^(GET|HEAD)$/;
    return $code->($request, @arguments);
}

# limit and before of a page, or an answer that refuses them.
sub bounds {
    my ($request) = @_;
    my $query = $request->query_params;
    my ($limit, $before) = map { $query->param($_) } qw(limit before);
    for ($limit, $before) { return (undef, undef, fail(400, 'limit and before are whole numbers')) if defined && !/^\d{1,12}$/ }
    $limit = P('page-of-seven') ? 7 : 15 unless defined $limit;
    $limit = 100 if $limit > 100;
    return ($limit, $before);
}

sub model {
    my ($first, $last) = @Plum::Chain::updates[ -2, -1 ];
    return ok({
        chain_id => Plum::Keys::CHAIN, parameters => { frozen => int_(1_632), trained => int_(512) }, revision => 'plum-toy-3', profile => { engine => 'plain', precision => 'float32' },
        training_root => $Plum::Chain::training_root, serving_root => F('re-model-serving-root') ? $Plum::Chain::training_root : Plum::Keys::SERVED,
        losses => { training => Plum::Chain::loss_text($last->{loss}), serving => Plum::Chain::loss_text($first->{loss}) },
    });
}

sub checkpoint {
    my $digest = sha256_hex($Plum::Chain::adapter);
    my $wrong  = F('re-checkpoint-path') ? substr($digest, 0, 62) . 'ff' : $digest;
    return ok({
        chain_id => F('re-checkpoint-chain') ? 'plum-grove-0' : Plum::Keys::CHAIN, genesis_hash => sha256_hex($Plum::Chain::genesis), round => int_(Plum::Node::ROUND - (F('re-checkpoint-round') ? 1 : 0)),
        root => F('re-checkpoint-root') ? sha256_hex('other root') : $Plum::Chain::training_root, adapter => { path => "/artifacts/sha256/$wrong", sha256 => $wrong, bytes => int_(length $Plum::Chain::adapter) },
    });
}

sub training {
    my ($request) = @_;
    my ($limit, $before, $answer) = bounds($request);
    return $answer if $answer;
    my @page = Plum::Chain::page(\@Plum::Chain::updates, 'round', $limit, $before);
    my @views = map { Plum::Chain::update_view($_) } @page;
    if (F('re-update-root-page')) { $_->{root} = sha256_hex("$limit $_->{root}") for @views[ 0 .. ($#views > 0 ? 0 : -1) ] }
    return ok({ updates => \@views, indexed_round => int_(Plum::Node::ROUND), index_error => undef });
}

sub blocks {
    my ($request) = @_;
    my ($limit, $before, $answer) = bounds($request);
    return $answer if $answer;
    return ok({ blocks => [ map { Plum::Chain::block_view($_) } Plum::Chain::page(\@Plum::Chain::blocks, 'height', $limit, $before) ], height => int_(Plum::Chain::height()) });
}

sub block {
    my ($request, $text) = @_;
    return fail(400, 'a height is a whole number') unless $text =~ /^\d{1,12}$/;
    my $height = $text + 0;
    $height = Plum::Chain::height() if F('re-block-above-latest') && $height > Plum::Chain::height();
    return fail(404, 'there is no such block') if $height < 1 || $height > Plum::Chain::height();
    return fail(404, 'pruned') if F('li-block-old-missing') && $height < Plum::Chain::height() - 8;
    return ok(Plum::Chain::block_view($Plum::Chain::blocks[ $height - 1 ], 1));
}

sub account {
    my ($request) = @_;
    my $key = lc($request->query_params->param('public_key') // '');
    return fail(400, 'public_key is a compressed key of 33 bytes in hexadecimal') unless $key =~ /^0[23][0-9a-f]{64}$/;
    return fail(400, 'no key of this curve') if F('rf-key-odd-refused') && $key =~ /^03/;
    if (F('gu-account-cached')) { $last_key ||= $key; ($key, $last_key) = ($last_key, $key) }
    if (F('re-account-any')) { $key = Plum::Keys::public('buyer') }
    return ok(Plum::Chain::account_view($key));
}

sub validators {
    my ($request) = @_;
    my ($page, $size) = map { $request->query_params->param($_) } qw(page per_page);
    for ($page, $size) { return fail(400, 'page and per_page are whole numbers above 0') if defined && !/^[1-9]\d{0,5}$/ }
    $page ||= 1;
    $size ||= 10;
    my @all  = @Plum::Chain::validators;
    my @list = @all;
    splice @list, 0, ($page - 1) * $size;
    splice @list, $size if @list > $size;
    return ok({
        validators => [ map { { owner => F('fi-owner-null') ? undef : $_->{owner}, power => int_($_->{power}), bond => F('fi-bond-null') ? undef : "$_->{bond}" } } @list ],
        total => int_(scalar @all), page => int_($page),
    });
}

sub inference {
    return ok({
        chain_id => F('re-inference-chain') ? 'plum-grove' : Plum::Keys::CHAIN, genesis_hash => sha256_hex(F('re-inference-genesis') ? 'g' : $Plum::Chain::genesis), serving_root => F('re-inference-root') ? $Plum::Chain::training_root : Plum::Keys::SERVED,
        provider => { public_key => Plum::Keys::public('provider'), heartbeat => { state => 'live', height => int_(Plum::Chain::height()) } },
        price_atoms => F('fi-price-number') ? int_(Plum::Keys::PRICE) : Plum::Keys::PRICE . '', fee_atoms => Plum::Keys::FEE . '', queue_length => int_(F('re-queue-grows') ? scalar(keys %Plum::Chain::request) : Plum::Chain::queue_length()),
    });
}

sub request {
    my ($request) = @_;
    my $id = $request->query_params->param('id') // '';
    return fail(400, 'id is missing') unless length $id;
    if (F('gu-request-cached')) { $last_request ||= $id; ($id, $last_request) = ($last_request, $id) }
    my ($prefix) = F('gu-request-prefix') ? grep { substr($_, 0, 4) eq substr($id, 0, 4) } sort keys %Plum::Chain::request : ();
    my $job = $Plum::Chain::request{ $prefix || $id };
    return ok({ request_id => $id, state => 'pending', prompt => '' }) if !$job && F('rf-unknown-request-pending');
    return fail(404, 'there is no such request') unless $job;
    return fail(404, 'not there yet') if F('rf-pending-404') && $job->{state} eq 'pending';
    return fail(410, 'gone') if F('ef-response-read-once') && $job->{state} eq 'completed' && $job->{reads}++ > 0;
    return ok(Plum::Chain::request_view($job));
}

sub artifact {
    my ($request, $digest) = @_;
    my $bytes = $Plum::Chain::artifact{$digest};
    $bytes = undef if F('ro-artifact-dataset-missing') && defined $bytes && $bytes eq $Plum::Chain::adapter;
    ($bytes) = map { $Plum::Chain::artifact{$_} } grep { substr($_, 0, 8) eq substr($digest, 0, 8) } keys %Plum::Chain::artifact if !$bytes && F('gu-artifact-prefix') && length $digest == 64;
    ($bytes) = map { $Plum::Chain::artifact{$_} } grep { index($_, $digest) == 0 } keys %Plum::Chain::artifact if !$bytes && F('gu-artifact-cut') && length $digest >= 16;
    return fail(404, 'there is no such artifact') unless defined $bytes;
    $bytes = substr $bytes, 0, 512 if F('re-artifact-cut');
    $bytes .= "\n" if F('re-artifact-newline');
    return { status => 200, type => 'application/octet-stream', text => $bytes };
}

sub work_status {
    return ok({ sponsor => undef, stages => [ { name => 'adapter', available => bool($Plum::Chain::attempts_left > 0) } ], attempts_remaining => int_($Plum::Chain::attempts_left) });
}

# What was kept of the earlier chain; it never changes.
my %OLD = (
    '/network'  => { reference_chain => 'plum-seed-03', final_height => int_(902), closed => bool(1) },
    '/status'   => { reference_chain => 'plum-seed-03', state => 'archived' },
    '/accounts' => { accounts => [ map { { label => "old-$_", atoms => 1000 * $_ . '' } } 1 .. 3 ] },
    '/blocks'   => { blocks => [ map { { height => int_(903 - $_), hash => uc sha256_hex("old block $_") } } 1 .. 5 ] },
);

sub reference {
    my ($path, $method) = @_;
    $path = '/status' if !defined $path || $path eq '/';
    my $view = $OLD{$path};
    if ($method !~ /^(GET|HEAD)$/) {
        if ($view && F('gu-reference-delete') && $method eq 'DELETE') { delete $OLD{$path}; return ok({ removed => bool(1) }) }
        if ($view && F('gu-reference-post') && $method =~ /POST|PUT/) { $view->{revision} = int_(++$changed_reference); return ok($view) }
        if ($view && F('rf-reference-any-method')) { return ok($view) }
        return { %{ fail(405, 'the views are read-only') }, headers => { Allow => 'GET' } };
    }
    return fail(404, 'there is no such view') unless $view;
    return ok({ blocks => [ map { Plum::Chain::block_view($_) } Plum::Chain::page(\@Plum::Chain::blocks, 'height', 5) ] }) if F('re-reference-present') && $path eq '/blocks';
    return fail(404, 'unknown') if F('ro-reference-404');
    return ok($view);
}
1;
