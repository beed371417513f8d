package Plum::Node;
# What the node says of itself: status, metrics, health, configuration, peers, layers, training.
use strict;
use warnings;
use Digest::SHA qw(sha256_hex sha1);
use POSIX qw(floor);
use Time::HiRes qw(time);
use Plum::Switch;
use Plum::Json;
use Plum::Ledger;

use constant { LAYERS => 6, WIDTH => 16, ROUND => 12, STEPS_DONE => 37 };
our @HELD  = (1, 2, 4, 5);
our $ROLE  = 'validator';
our (%config, $id, $dht_id, $started, @peers);
our %count = (
    requests => 0, tokens => 0, sent => 0, received => 0, connections => 0, calls => 0,
    submitted => 31, accepted => 29,
);
my (@latency, @moments);
my $last_stamp = 0;

sub start {
    my ($port) = @_;
    $started = time;
    $id      = 'plumnode-' . substr sha256_hex("node at $port"), 0, 24;
    $dht_id  = sha1("public key of the node at $port");
    %config  = (
        node_id => $id, port => $port, grpc_port => $port + 1000, tracker_url => 'http://127.0.0.1:7070/tracker',
        training  => { enabled => 1, batch_size => 24, learning_rate => 0.00075, diloco_steps => 120 },
        resources => { max_memory_gb => 6.5, cpu_threads => 3 },
    );
    @peers = (
        { id => 'plumnode-' . substr(sha256_hex('peer a'), 0, 24), address => '127.0.0.1:4', role => 'driver', layers => [ 0, 1 ], latency => 3.25, since => $started - 7200 },
        { id => 'plumnode-' . substr(sha256_hex('peer b'), 0, 24), address => '127.0.0.1:6', role => 'worker', layers => [ 2, 3 ], latency => 7.5,  since => $started - 4100 },
    );
}

sub uptime {
    my $seconds = floor(time - $started);
    $seconds = floor(time)                  if F('re-uptime-epoch');
    $seconds = floor((time - $started) * 3) if F('re-uptime-fast');
    $seconds = $seconds % 20                if F('re-uptime-wraps');
    $seconds = floor($seconds / 30) * 30    if F('re-uptime-slow-tick');
    return $seconds;
}

sub note_generation {
    my ($tokens, $asked, $milliseconds, $how) = @_;
    my $plain = $how eq 'plain';
    $count{requests}++ unless F('ef-count-stream-missing') && !$plain;
    $count{requests}++ if F('ef-count-stream-twice') && !$plain;
    my $counted = $tokens;
    $counted = $asked < 256 ? $asked : 256 if F('ef-count-asked-tokens');
    $counted = 0           if F('ef-count-stream-tokens') && !$plain;
    $counted = $tokens * 2 if F('ef-count-tokens-twice') && $plain;
    $counted = 0           if F('ef-count-short-tokens') && $tokens < 4;
    $counted = 0, $count{requests}-- if F('re-count-at-once') && @moments && time - $moments[-1] < 0.006;
    $count{tokens} += $counted;
    $count{tokens} %= 4096 if F('re-tokens-wrap');
    push @latency, $milliseconds;
    push @moments, time;
    splice @latency, 0, 500 if @latency > 2000;
    shift @moments while @moments && $moments[0] < time - 60;
}

sub status {
    my %held = map { $_ => 1 } @HELD;
    my $training = $config{training};
    my $enabled  = F('re-status-enabled-start') ? 1 : $training->{enabled};
    my $answer = {
        node_id => F('re-status-id-changes') ? $id . '-' . (uptime() % 2) : $id,
        version => F('fi-version-empty') ? '' : F('fi-version-number') ? num(0.9) : '0.9.4-plum',
        uptime_seconds => F('fi-uptime-fraction') ? num(sprintf '%.3f', 0.001 + time - $started) : F('fi-uptime-string') ? uptime() . '' : int_(uptime()),
        status => F('fi-status-capitals') ? 'RUNNING' : 'running', role => $ROLE,
        layers => [ map { int_($_) } F('re-status-layer-missing') ? @HELD[ 0 .. 2 ] : F('re-status-layer-twice') ? (@HELD, 5) : @HELD ],
        peer_count => int_(@peers + (F('re-peer-count-self') ? 1 : 0)),
        training => {
            enabled => bool($enabled), epoch => int_(2), step => int_(ROUND * 120 + STEPS_DONE),
            loss => F('fi-training-loss-string') ? '2.41' : num(2.4137),
        },
        resources => {
            gpu_memory_used => int_(F('re-gpu-used-above') ? 9_000_000_000 : 1_610_612_736), gpu_memory_total => int_(8_589_934_592),
            cpu_percent => F('fi-cpu-null') ? undef : num(11.5), ram_used => int_(268_435_456),
        },
    };
    $answer->{resources}{ram_used} = int_(-1) if F('fi-ram-negative');
    delete $answer->{training}{epoch} if F('fi-epoch-missing') && !$training->{enabled};
    $answer->{training}{step} = int_(-3) if F('fi-step-negative');
    $answer->{layers} = [ map { "$_" } @HELD ] if F('fi-layers-strings');
    $answer->{training} = bool(1) if F('fi-training-flat');
    $answer->{region} = 'orchard' if P('extra-fields');
    return $answer;
}

sub metrics {
    my ($account) = values %{ { map { $_->{name} eq 'rich' ? (a => $_) : () } values %Plum::Ledger::ACCOUNT } };
    my $now = time;
    my $step = P('stamp-millis') ? 0.001 : 0.000001;
    $now = $last_stamp + 2 * $step if $now <= $last_stamp + $step;
    $last_stamp = $now;
    $now = int($now / 10) * 10    if F('re-metrics-stamp-ten');
    $now = $now + 3600            if F('re-metrics-stamp-hour');
    $now = $now - rand 3          if F('re-metrics-stamp-back');
    $now = $started               if F('re-metrics-stamp-start');
    my @sorted = sort { $a <=> $b } @latency;
    my ($sum, $average) = (0, 0);
    $sum += $_ for @sorted;
    $average = $sum / @sorted if @sorted;
    my $high = @sorted ? $sorted[ int(0.99 * $#sorted + 0.999) ] : 0;
    $high = $average if $high < $average;
    $average /= 1000 if F('re-latency-seconds');
    $high = $sorted[0] if F('re-p99-lowest') && @sorted > 2;
    my ($total, $day, $waiting) = (0, 0, 0);
    for my $proof (@{ $account->{proofs} }) {
        if (!$proof->{verified}) { $waiting += $proof->{reward}; next }
        $total += $proof->{reward};
        $day += $proof->{reward} if floor($proof->{time} / 86400) == Plum::Ledger::today();
    }
    my $requests = $count{requests};
    $requests %= 12 if F('re-requests-wrap');
    my $answer = {
        timestamp => stamp($now),
        inference => {
            requests_total => int_($requests), requests_per_minute => num(scalar grep { $_ > time - 60 } @moments),
            avg_latency_ms => num(sprintf '%.3f', $average), p99_latency_ms => num(sprintf '%.3f', $high + 0.0005),
            tokens_generated => F('fi-tokens-string') ? "$count{tokens}" : int_($count{tokens}),
        },
        training => {
            steps_total => int_(ROUND * 120 + STEPS_DONE), steps_per_hour => F('fi-steps-hour-fraction') ? num(41.5) : int_(41),
            gradients_submitted => int_($count{submitted}), gradients_accepted => int_($count{accepted} + (F('re-accepted-above') ? 9 : 0)),
        },
        network => {
            bytes_sent => int_($count{sent}), bytes_received => int_($count{received}),
            active_connections => int_($count{connections}), rpc_calls => int_($count{calls}),
        },
        rewards => {
            earned_today => money(F('re-earned-today-above') ? $total + NANO : $day), earned_total => money($total),
            pending => money($waiting),
        },
    };
    delete $answer->{inference}{p99_latency_ms} if F('fi-p99-missing') && !@latency;
    $answer->{inference}{avg_latency_ms} = undef if F('fi-latency-null') && !@latency;
    $answer->{network}{bytes_sent} = int_(2_147_000_000 - 4_294_967_296) if F('fi-bytes-overflow');
    $answer->{network}{active_connections} = int_(-1) if F('fi-connections-negative');
    $answer->{rewards}{pending} = '0.75' if F('fi-reward-string');
    delete $answer->{network}{rpc_calls} if F('fi-rpc-calls-missing');
    $answer->{network}{rpc_failures} = int_(0) if P('extra-fields');
    return $answer;
}

sub health {
    my %checks = map { $_ => 'ok' } qw(gpu network storage peers);
    $checks{gpu} = bool(1)  if F('fi-health-bool');
    $checks{gpu} = 'OK'     if F('fi-health-capitals');
    delete $checks{storage} if F('fi-health-storage-missing');
    $checks{gpu} = 'none'   if P('health-no-gpu');
    return { healthy => F('fi-healthy-string') ? 'true' : bool(1), checks => F('fi-checks-list') ? [ map { { name => $_, state => $checks{$_} } } sort keys %checks ] : \%checks };
}

sub network {
    my @roles = ($ROLE, map { $_->{role} } @peers);
    my $of = sub { my $role = shift; return scalar grep { $_ eq $role } @roles };
    my $weights = LAYERS * (WIDTH * WIDTH + WIDTH) + 32 * WIDTH;
    return {
        nodes => {
            total => int_(F('re-nodes-total-low') ? 2 : @roles), drivers => int_($of->('driver')),
            workers => int_($of->('worker')), validators => int_($of->('validator')),
        },
        architecture => {
            layers => int_(F('re-network-layers-held') ? scalar @HELD : LAYERS), hidden_dim => int_(WIDTH),
            parameters => F('fi-parameters-number') ? int_($weights) : "$weights",
        },
        capacity => { total_memory_gb => num(24.5), used_memory_gb => num(F('re-memory-used-above') ? 30.25 : 4.25) },
        training => {
            epoch => int_(2), global_step => int_(ROUND * 120 + STEPS_DONE),
            loss => F('fi-network-loss-nan') ? raw('NaN') : num(2.4137),
        },
    };
}

sub layers {
    my @list = map { {
        index => int_($_), type => 'transformer', status => F('fi-layer-status-capital') ? 'Active' : 'active',
        memory_mb => F('fi-layer-memory-fraction') ? num(1.5) : int_(3),
    } } @HELD;
    pop @list if F('re-layers-list-short');
    $list[1]{index} = int_(7) if F('re-layer-index-high');
    $list[0]{type} = ''       if F('fi-layer-type-empty');
    delete $list[0]{memory_mb} if F('fi-layer-memory-missing');
    @list = map { int_($_) } @HELD if F('fi-layers-bare');
    return {
        layers => \@list, total_layers => int_(F('re-total-layers-network') ? LAYERS + 1 : LAYERS),
        my_layer_count => int_(F('re-my-layer-count') ? LAYERS : scalar @HELD),
    };
}

sub peers {
    my @list = map { {
        id => $_->{id}, address => F('fi-peer-address-url') ? "http://$_->{address}/" : F('fi-peer-address-host') ? $_->{address} =~ s/:.*//r : $_->{address},
        role => $_->{role}, layers => [ map { int_($_) } @{ $_->{layers} } ],
        latency_ms => num(F('fi-peer-latency-negative') ? -1 : $_->{latency}),
        connected_since => F('fi-peer-since-number') ? int_($_->{since}) : stamp(F('re-peer-since-future') ? time + 5000 : $_->{since}),
    } } @peers;
    $list[1]{layers} = undef if F('fi-peer-layers-null');
    $list[1]{id} = $list[0]{id}, $list[1]{id} = '' if F('fi-peer-id-empty');
    return { peers => \@list, total => int_(F('re-peers-total') ? 3 : scalar @list) };
}

my $successes = 118;
my $failures  = 4;

sub training_global {
    my $enabled = $config{training}{enabled};
    my $total   = $config{training}{diloco_steps};
    my $done    = STEPS_DONE < $total ? STEPS_DONE : $total;
    $done = STEPS_DONE if F('re-inner-above-total');
    my $progress = $done / $total;
    $progress = 100 * $progress if F('re-progress-percent');
    $progress = STEPS_DONE / 120 if F('re-progress-stale');
    my $agreement = F('re-agreement-percent') ? 100 : F('re-agreement-low-converging') ? 2 / 3 : 1;
    my $answer = {
        global_avg_loss => num(2.4302), global_min_loss => num(F('re-min-above-avg') ? 2.5119 : 2.3871),
        hash_agreement_rate => num($agreement), total_nodes_training => int_(F('fi-nodes-training-negative') ? -1 : $enabled ? 3 : 2),
        successful_syncs => int_($successes), failed_syncs => int_($failures),
        sync_success_rate => num(F('re-sync-rate-percent') ? 96.7 : F('re-sync-rate-failures') ? $failures / ($successes + $failures) : $successes / ($successes + $failures)),
        global_steps => int_(ROUND * 120 + STEPS_DONE), global_tokens => int_(1_477 * 24 * 32),
        data_shards_covered => [ map { int_($_) } 0 .. 3 ], is_converging => bool(1), training_verified => bool(1),
        loss_trend => F('fi-trend-capital') ? 'Improving' : F('fi-trend-empty') ? '' : 'improving',
        local => {
            node_id => F('re-local-node-id') ? $peers[0]{id} : $id, training_rounds => int_(ROUND), current_loss => num(2.4137),
            is_training => bool($enabled),
        },
        diloco => {
            enabled => F('fi-diloco-enabled-int') ? int_(1) : bool(1), inner_step_count => int_($done), inner_steps_total => int_($total),
            progress => num($progress), outer_step_count => int_(ROUND),
        },
    };
    $answer->{data_shards_covered} = '0-3' if F('fi-shards-text');
    delete $answer->{diloco}{outer_step_count} if F('fi-outer-missing');
    $answer->{local}{current_loss} = undef if F('fi-local-loss-null');
    $answer->{successful_syncs} = num(118.5) if F('fi-syncs-fraction');
    $answer->{global_min_loss} = raw('-Infinity') if F('fi-min-loss-infinity');
    return $answer;
}

sub training_verify {
    my $low = F('re-agreement-low-converging');
    my $answer = {
        is_working => bool(1), reason => F('fi-reason-empty') ? '' : 'all hashes agree and the loss falls',
        metrics => {
            loss_trend => F('re-verify-trend') ? 'stable' : 'improving',
            hash_agreement => F('re-verify-agreement-differs') ? '66.7%' : F('fi-verify-agreement-fraction') ? '1.0' : $low ? '66.7%' : '100.0%',
            global_loss => F('fi-verify-loss-string') ? '2.4302' : num(2.4302),
        },
    };
    delete $answer->{metrics} if F('fi-verify-metrics-missing');
    if (F('fi-verify-action-missing') || F('re-verify-not-working')) {
        $answer = { is_working => bool(0), reason => 'nodes disagree' };
        $answer->{action} = '' if F('re-verify-not-working');
    }
    return $answer;
}

# Configuration ---------------------------------------------------------------
my $int_from = sub {
    my ($low, $high) = @_;
    return sub {
        my ($node) = @_;
        return undef unless $node->[0] eq 'n' && $node->[2] && $node->[1] >= $low && $node->[1] <= $high;
        return int $node->[1];
    };
};
our %SETTING = (
    'tracker_url'             => sub { $_[0][0] eq 's' && $_[0][1] =~ m{^https?://[^\s/]+} ? $_[0][1] : undef },
    'training.enabled'        => sub { $_[0][0] eq 'b' ? $_[0][1] : F('gu-enabled-any') && $_[0][0] =~ /[ns]/ ? ($_[0][1] ? 1 : 0) : undef },
    'training.batch_size'     => $int_from->(1, 2**31 - 1),
    'training.learning_rate'  => sub { $_[0][0] eq 'n' && $_[0][1] > 0 && $_[0][1] <= 10 ? $_[0][1] : F('gu-rate-text') && $_[0][0] eq 's' && $_[0][1] =~ /^0?\.\d+$/ ? 0 + $_[0][1] : undef },
    'training.diloco_steps'   => $int_from->(1, 2**31 - 1),
    'resources.max_memory_gb' => sub { $_[0][0] eq 'n' && $_[0][1] > 0 && $_[0][1] <= 1e6 ? $_[0][1] : undef },
    'resources.cpu_threads'   => $int_from->(1, 4096),
);

my $readings = 0;
my %old;

sub config_view {
    my ($now) = @_;
    $now ||= \%config;
    my ($training, $resources) = @$now{qw(training resources)};
    ($training, $resources) = @old{qw(training resources)} if F('re-config-second-reading') && %old && ++$readings % 2 == 0;
    my $view = {
        node_id => F('re-config-node-id') ? uc $id : $id, port => F('fi-port-string') ? "$now->{port}" : int_($now->{port}),
        grpc_port => int_(F('re-grpc-port-plus-one') ? $now->{port} + 1 : $now->{grpc_port}), tracker_url => $now->{tracker_url},
        training => {
            enabled => bool($training->{enabled}), batch_size => int_($training->{batch_size}),
            learning_rate => F('fi-rate-string') ? plain_rate($training) : num(F('re-rate-rounded') ? sprintf('%.3f', $training->{learning_rate}) : $training->{learning_rate}),
            diloco_steps => int_(F('re-steps-sixteen-bits') ? $training->{diloco_steps} % 65_536 : $training->{diloco_steps}),
        },
        resources => { max_memory_gb => num(F('re-memory-whole') ? int $resources->{max_memory_gb} : $resources->{max_memory_gb}), cpu_threads => int_($resources->{cpu_threads}) },
    };
    delete $view->{tracker_url} if F('fi-tracker-missing');
    $view->{grpc_port} = undef if F('fi-grpc-port-null');
    $view->{training}{enabled} = int_($training->{enabled}) if F('fi-enabled-int');
    return $view;
}

sub plain_rate { return '' . $_[0]{learning_rate} }

# Applies a change. Returns (updated paths) or dies with what is wrong.
sub change {
    my ($body) = @_;
    my %found;
    for my $key (sort keys %$body) {
        my $node = $body->{$key};
        if ($key =~ /^(training|resources)$/) {
            die "$key is no object\n" unless $node->[0] eq 'o';
            $found{"$key.$_"} = $node->[1]{$_} for keys %{ $node->[1] };
        }
        elsif ($key =~ /\./ && !F('gu-dotted-keys')) { die "$key cannot be changed\n" }
        else { $found{$key} = $node }
    }
    my %new;
    for my $path (sort keys %found) {
        my $node  = $found{$path};
        my $check = $SETTING{$path} or die "$path cannot be changed\n";
        $node = $node->[1][0] if F('gu-config-array') && $node->[0] eq 'a' && @{ $node->[1] } == 1;
        my $value = $check->($node);
        if (!defined $value) {
            apply(%new) if F('ef-refused-partly');
            die "$path has a value of the wrong type or range\n";
        }
        $new{$path} = $value;
    }
    die "one key is too few\n" if F('rf-single-key') && keys %new == 1 && $new{'resources.cpu_threads'};
    apply(%new);
    return sort keys %new;
}

our $changes = 0;

# Takes back the latest change.
sub undo { %config = (%config, training => { %{ $old{training} } }, resources => { %{ $old{resources} } }) if %old }


sub apply {
    my (%new) = @_;
    $changes++;
    %old = (training => { %{ $config{training} } }, resources => { %{ $config{resources} } });
    for my $path (keys %new) {
        next if F('ef-threads-not-changed') && $path eq 'resources.cpu_threads';
        next if F('ef-three-keys-lost') && keys %new > 2 && $path eq 'training.diloco_steps';
        if ($path =~ /^(\w+)\.(\w+)$/) { $config{$1}{$2} = $new{$path} }
        else                           { $config{$path} = $new{$path} }
        $config{training}{diloco_steps} = 120 if F('ef-batch-resets-steps') && $path eq 'training.batch_size';
        $config{resources}{cpu_threads} = $new{$path} if F('ef-batch-to-threads') && $path eq 'training.batch_size';
        if (F('ef-change-expires')) { my $old = 24; Mojo::IOLoop->timer(6 => sub { $config{training}{batch_size} = $old }) }
    }
}
1;
