package Plum::Service;
# The operations of node.NodeService (interface 4.3) except those of the DHT.
use strict;
use warnings;
use Digest::SHA qw(sha256_hex);
use Time::HiRes qw(time);
use feature 'state';
use Plum::Switch;
use Plum::Proto;
use Plum::Grpc;
use Plum::Model;
use Plum::Lz4;
use Plum::Node;
use Plum::Text;
use Plum::Dht;

use constant { DIM => Plum::Model::DIM, LAST => Plum::Model::LAYERS - 1, ROUND => Plum::Node::ROUND };
my (%graph, @order, %gossiped);
my $last_output;
my $accepted = 0;

sub define_all {
    my $define = \&Plum::Proto::define;
    $define->('PipelineForwardRequest', '1 session_id string', '2 request_id string', '3 hidden_states bytes', '4 hidden_shape repeated:int64', '5 attention_mask bytes', '6 position_ids bytes', '7 past_key_values repeated:bytes', '8 use_cache bool', '9 source_shard int32', '10 target_shard int32', '11 training_labels bytes', '12 sender_url string');
    my ($loss, $shape) = F('gr-loss-number') ? (11, 9) : F('gr-logits-shape-number') ? (10, 10) : (10, 9);
    $loss = 12 if F('gr-logits-shape-number');
    $define->('PipelineForwardResponse', '1 request_id string', '2 success bool', '3 error_message string', '4 hidden_states bytes', '5 hidden_shape repeated:int64', '6 past_key_values repeated:bytes', '7 is_final bool', '8 logits bytes', "$shape logits_shape repeated:int64", "$loss loss " . (F('gr-loss-float') ? 'float' : 'double'));
    $define->('PipelineBackwardRequest', '1 session_id string', '2 request_id string', F('gr-grad-number') ? ('4 grad_output bytes', '3 grad_shape repeated:int64') : ('3 grad_output bytes', '4 grad_shape repeated:int64'), '5 target_shard int32');
    $define->('PipelineBackwardResponse', '1 success bool', '2 error_message string');
    my ($hash, $stamp) = F('gr-gossip-hash-number') ? (8, 3) : (3, 8);
    $define->('GossipGradientRequest', '1 node_id string', '2 round_id int32', "$hash model_hash string", '4 timestamp double', '5 batch_size int32', '6 loss double', F('gr-gradients-text') ? '7 layer_gradients map_text' : '7 layer_gradients map', "$stamp signature string", '9 ttl int32');
    $define->('GossipGradientResponse', '1 accepted bool', '2 reason string', F('gr-round-number') ? '4 current_round int32' : '3 current_round int32');
    $define->('WeightRequest', F('gr-weights-number') ? '2 shard_range string' : '1 shard_range string');
    $define->('WeightResponse', '1 weights_data bytes');
    $define->('GetCheckpointRequest', '1 model_hash string', '2 min_version int32');
    $define->('GetCheckpointResponse', '1 success bool', '2 error_message string', '3 version int32', '4 model_hash string', '5 phase string', '6 checkpoint_data bytes', '7 total_size int64');
    $define->('GetCheckpointInfoRequest');
    $define->('GetCheckpointInfoResponse', '1 version int32', '2 model_hash string', '3 phase string', F('gr-info-params-number') ? ('5 params int64', '4 loss double') : ('4 params int64', '5 loss double'));
    # Messages that the interface leaves open.
    $define->('InferenceRequest', '1 request_id string', '2 prompt string', '3 max_tokens int32', '4 temperature double');
    $define->('InferenceResponse', '1 request_id string', '2 text string', '3 tokens int32', '4 finished bool', '5 error_message string');
    $define->($_, '1 node_id string', '2 payload bytes') for qw(GossipProofRequest GossipTransactionRequest GossipStakeRequest ProofValidationRequest ValidationVoteRequest SwarmForwardRequest SwarmStatusRequest UpdatePeerCapacityRequest GetShardInfoRequest);
    $define->($_, '1 accepted bool', '2 reason string') for qw(GossipProofResponse GossipTransactionResponse GossipStakeResponse ProofValidationResponse ValidationVoteResponse UpdatePeerCapacityResponse);
    $define->('SwarmForwardResponse', '1 success bool', '2 error_message string');
    $define->('SwarmStatusResponse', '1 node_id string', '2 peers int32', '3 layers repeated:int32');
    $define->('GetShardInfoResponse', '1 node_id string', '2 layers repeated:int32', '3 total_layers int32');
}

sub start {
    define_all();
    my $add = sub { my ($name, $in, $out, $code, $stream) = @_; $Plum::Grpc::SERVICE{$name} = [ "${in}Request", "${out}Response", $code, $stream ] };
    $add->('PipelineForward', ('PipelineForward') x 2, \&forward);
    $add->('PipelineBackward', ('PipelineBackward') x 2, \&backward);
    $add->('GossipGradient', ('GossipGradient') x 2, \&gossip);
    $add->('GetWeights', ('Weight') x 2, \&weights);
    $add->('GetCheckpoint', ('GetCheckpoint') x 2, \&checkpoint);
    $add->('GetCheckpointInfo', ('GetCheckpointInfo') x 2, \&checkpoint_info);
    $add->('StreamInference', ('Inference') x 2, \&stream_inference, 'stream');
    $add->('UnaryInference', ('Inference') x 2, \&unary_inference);
    for (qw(GossipProof GossipTransaction GossipStake UpdatePeerCapacity)) {
        $add->($_, ($_) x 2, sub { return { accepted => 0, reason => 'the node does not take these messages' } });
    }
    $add->('RequestProofValidation', ('ProofValidation') x 2, sub { return { accepted => 0, reason => 'no such proof' } });
    $add->('GossipValidationVote', ('ValidationVote') x 2, sub { return { accepted => 0, reason => 'no such vote' } });
    $add->('SwarmForward', ('SwarmForward') x 2, sub { return { success => 0, error_message => 'there is no swarm' } });
    $add->('GetSwarmStatus', ('SwarmStatus') x 2, sub { return { node_id => $Plum::Node::id, peers => scalar @Plum::Node::peers, layers => [@Plum::Node::HELD] } });
    $add->('GetShardInfo', ('GetShardInfo') x 2, sub { return { node_id => $Plum::Node::id, layers => [@Plum::Node::HELD], total_layers => LAST + 1 } });
    Plum::Dht::start($add);
}

# The layers that a pass to this one runs through: it and those held after it without a gap.
sub run_of {
    my ($first) = @_;
    my %held = map { $_ => 1 } @Plum::Node::HELD;
    return $first < 0 ? (4, 5) : () if F('gu-negative-layer') && $first < 0;
    $first = $first % (LAST + 1) if F('gu-layer-modulo') && $first > LAST;
    return () if F('gr-layer-two-absent') && $first == 2;
    $first = 1 if F('gu-absent-layer-served') && $first == 3;
    return () unless $held{$first};
    my @run = ($first);
    push @run, $run[-1] + 1 while $held{ $run[-1] + 1 };
    return @run;
}

sub positive { my ($n) = grep { $_ < 1 } @_; return !defined $n }

sub forward {
    my ($request) = @_;
    my ($target, $shape) = @$request{qw(target_shard hidden_shape)};
    my @run = run_of($target);
    if (!@run) {
        die Plum::Grpc::status(14, 'try another peer') if F('gr-absent-unavailable');
        Plum::Grpc::invalid('no such layer') if F('gr-absent-invalid');
        return { request_id => $request->{request_id}, success => 0, F('gr-forward-reason-missing') ? () : (error_message => "layer $target is not held") } if F('gr-absent-in-answer') || F('gr-forward-reason-missing');
        Plum::Grpc::not_found("layer $target is not held");
    }
    my @shape = @$shape;
    my $refuse = sub { F('gr-bad-shape-internal') ? die Plum::Grpc::status(13, 'exception') : Plum::Grpc::invalid($_[0]) };
    $refuse->('hidden_shape is no [batch, seq, ' . DIM . ']') unless @shape == 3 && positive(@shape) && $shape[2] == DIM;
    my ($batch, $seq) = @shape;
    $refuse->('at most 2048 positions') if $batch * $seq > 2048;
    $refuse->('one sequence at a time') if F('rf-two-sequences') && $batch > 1;
    my $data = $request->{hidden_states};
    $refuse->('hidden_states does not have the size of its shape') if length $data != 4 * DIM * $batch * $seq;
    my @values = unpack 'f<*', $data;
    for (@values) { Plum::Grpc::invalid('values are not finite') unless $_ == $_ && abs $_ < 1e30 }
    my @past;
    if (my @given = @{ $request->{past_key_values} }) {
        Plum::Grpc::invalid('past_key_values does not fit') if @given != @run || grep { length $_ != 4 * $batch * (DIM + 1) } @given;
        @past = map { my @all = unpack 'f<*', $_; [ map { [ @all[ $_ * (DIM + 1) .. $_ * (DIM + 1) + DIM ] ] } 0 .. $batch - 1 ] } @given;
        for my $list (map { @$_ } @past) { Plum::Grpc::invalid('past_key_values is not valid') if grep({ $_ != $_ || abs $_ > 1e30 } @$list) || $list->[0] < 0 }
        @past = () if F('ef-past-ignored');
    }
    my $final = $run[-1] == LAST;
    my @labels;
    if ($final && length $request->{training_labels}) {
        my $bytes = $request->{training_labels};
        @labels = length $bytes == 8 * $batch * $seq ? unpack('q<*', $bytes) : unpack('l<*', $bytes);
        Plum::Grpc::invalid('training_labels do not fit') if @labels != $batch * $seq || grep { $_ >= Plum::Model::TOKENS || $_ < 0 && $_ != -100 } @labels;
    }
    my ($out, $trace, $cache) = Plum::Model::forward(\@values, $batch, $seq, \@run, \@past);
    my %answer = (request_id => $request->{request_id}, success => 1);
    $answer{request_id} = substr $answer{request_id}, 0, 36 if F('gr-request-id-cut');
    $answer{request_id} = $request->{session_id} if F('gr-request-id-session');
    $answer{request_id} =~ s/[^\x20-\x7e]/?/g if F('gr-request-id-ascii');
    my $kept = { shape => [@shape], trace => $trace, target => $target, sender => $request->{sender_url}, source => $request->{source_shard}, final => $final };
    my $give = $out;
    if (F('ef-result-of-before')) { ($give, $last_output) = ($last_output && @$last_output == @$out ? $last_output : $out, $out) }
    if (F('ef-second-row-first') && $batch > 1) { my $size = $seq * DIM; @$give[ $size .. 2 * $size - 1 ] = @$give[ 0 .. $size - 1 ] }
    if ($request->{use_cache} && !F('gr-cache-not-returned')) {
        my @lists = @$cache;
        $answer{past_key_values} = [ map { pack 'f<*', map { @$_ } @$_ } @lists ];
    }
    if ($final) {
        my $logits = Plum::Model::logits($give, $batch * $seq);
        $answer{is_final}     = F('gr-final-missing') || F('gr-final-only-single') && $batch > 1 ? 0 : 1;
        $answer{logits}       = pack F('gr-big-endian') ? 'f>*' : 'f<*', @$logits;
        $answer{logits_shape} = [ $batch, $seq, F('gr-logits-shape-dim') ? DIM : Plum::Model::TOKENS ];
        delete $answer{logits_shape} if F('gr-logits-shape-missing');
        $answer{logits} = substr $answer{logits}, 0, 4 * Plum::Model::TOKENS if F('gr-logits-last-only') && $seq > 1;
        if (F('gr-logits-first-sequence') && $batch > 1) { $answer{logits} = substr $answer{logits}, 0, length($answer{logits}) / $batch; $answer{logits_shape}[0] = 1 }
        if (@labels) {
            my ($loss, $gradient) = Plum::Model::loss($logits, \@labels);
            $answer{loss} = F('gr-loss-nan') ? 9**9**9 / 9**9**9 : $loss unless F('gr-loss-missing');
            return_gradients($request, $kept, Plum::Model::head_backward($gradient, $batch * $seq));
            $kept->{taken} = 1;
        }
    }
    else {
        $answer{hidden_states} = pack F('gr-big-endian') ? 'f>*' : 'f<*', @$give;
        $answer{hidden_shape} = F('gr-hidden-shape-flat') ? [ $batch * $seq, DIM ] : F('gr-hidden-shape-negative') ? [ -1, $seq, DIM ] : [@shape];
        $answer{is_final} = 1 if F('gr-final-always');
        $answer{logits} = pack 'f<*', @$give if F('gr-logits-not-final');
        $answer{hidden_states} = pack 'f<*', @values if F('gr-layers-skipped');
    }
    keep($request, $kept);
    return \%answer;
}

sub key_of {
    my ($request) = @_;
    return $request->{request_id} if F('gr-graph-by-request');
    return $request->{session_id} if F('gr-graph-by-session');
    return 'only' if F('gr-graph-single');
    return join "\0", @$request{qw(session_id request_id target_shard)};
}

sub keep {
    my ($request, $kept) = @_;
    my $key = key_of($request);
    push @order, $key unless $graph{$key};
    $graph{$key} = { %$kept, request => $request->{request_id}, session => $request->{session_id} };
    delete $graph{ shift @order } while @order > 600;
}

my $first_sender;

sub return_gradients {
    my ($request, $kept, $gradient) = @_;
    my $url = $kept->{sender};
    if (F('ef-gradients-first-sender')) { $url = $first_sender ||= $url }
    return unless $url =~ m{(?:^|//)([^/:\s]+|\[[^\]]+\]):(\d{1,5})(?:/|$)};
    my ($host, $port) = ($1, $2);
    return if $port < 1 || $port > 64_535 || F('ef-gradients-not-passed');
    my ($batch, $seq) = @{ $kept->{shape} };
    my $back = F('ef-gradients-unchanged') && $kept->{given} ? $kept->{given} : Plum::Model::backward($gradient, $batch, $seq, $kept->{trace});
    my $fields = {
        session_id => $request->{session_id}, request_id => $request->{request_id}, grad_output => pack('f<*', @$back),
        grad_shape => F('gr-back-shape-flat') ? [ DIM, $seq * 2, $batch ] : $kept->{shape}, target_shard => $kept->{source},
    };
    my $send = sub { Plum::Grpc::call($host, $port, 'PipelineBackward', 'PipelineBackwardRequest', $fields) };
    $send->();
    Mojo::IOLoop->timer(0.5 => $send) if F('ef-gradients-twice');
}

sub backward {
    my ($request) = @_;
    my $target = $request->{target_shard};
    if (!run_of($target)) {
        return { success => 1 } if F('gu-backward-absent-layer');
        Plum::Grpc::not_found("layer $target is not held");
    }
    my $fail = sub { return { success => 0, F('gr-backward-reason-missing') ? () : (error_message => $_[0]) } };
    my $key  = key_of($request);
    my $kept = $graph{$key};
    return { success => 1 } if !$kept && F('gu-backward-unknown');
    return $fail->('there is no such pass') unless $kept;
    return $fail->('the gradients of this pass are taken already') if $kept->{taken};
    my ($batch, $seq) = @{ $kept->{shape} };
    my @want  = ($batch, $seq, $kept->{final} ? Plum::Model::TOKENS : DIM);
    my $shape = join ',', @{ $request->{grad_shape} };
    if ($shape ne join(',', @want) || length $request->{grad_output} != 4 * $want[0] * $want[1] * $want[2]) {
        delete $graph{$key} if F('gr-graph-lost-wrong');
        %graph = () if F('gr-graphs-lost-refusal');
        return $fail->('grad_output does not have the shape of the output');
    }
    my @gradient = unpack 'f<*', $request->{grad_output};
    return $fail->('values are not finite') if grep { $_ != $_ || abs $_ > 1e30 } @gradient;
    $kept->{taken} = 1;
    %graph = () if F('gr-graphs-lost-success');
    my $inner = $kept->{final} ? Plum::Model::head_backward(\@gradient, $batch * $seq) : \@gradient;
    $kept->{given} = $inner;
    return_gradients($request, $kept, $inner);
    return { success => 1 };
}

sub gossip {
    my ($request) = @_;
    $Plum::Node::count{submitted}++;
    my $round = ROUND;
    $round += int rand 50 if F('gr-round-random');
    my $refuse = sub { return { accepted => 0, F('gr-gossip-reason-missing') ? () : (reason => $_[0]), current_round => $round } };
    return $refuse->('node_id is missing') unless length $request->{node_id};
    return $refuse->('the gradient is of another model') if $request->{model_hash} ne Plum::Model::current()->{hash} && !F('gu-gossip-any-model');
    return $refuse->('the round is another one') if abs($request->{round_id} - ROUND) > 1;
    return $refuse->('batch_size is not above 0') if $request->{batch_size} < 1;
    return $refuse->('loss is not finite') unless $request->{loss} == $request->{loss} && abs $request->{loss} < 1e30;
    my $all = $request->{layer_gradients};
    return $refuse->('there are no gradients') unless %$all;
    for my $name (sort keys %$all) {
        my ($layer) = $name =~ /(\d+)/;
        return $refuse->("$name names no layer") if defined $layer && $layer > LAST;
        my $plain = eval { Plum::Lz4::unframe($all->{$name}, 64 * 1024 * 1024) };
        return $refuse->("the gradient of $name is no LZ4 frame") unless defined $plain;
        return $refuse->("the gradient of $name has no values") if !length $plain || length($plain) % 4;
        return $refuse->("the gradient of $name is not finite") if grep { $_ != $_ || abs $_ > 1e30 } unpack 'f<*', $plain;
    }
    $Plum::Node::count{accepted}++;
    $accepted++;
    state %heard;
    $round = 0 if F('gr-repeated-round-zero') && $heard{ join ' ', @$request{qw(node_id round_id)} }++;
    pass_on($request) if $request->{ttl} > 0 || F('gr-ttl-zero-passed');
    return { accepted => 1, reason => '', current_round => F('gr-accepted-round-sender') ? $request->{round_id} + 5 : $round };
}

# Passes an accepted gradient on, once, to the nodes that have pinged this one.
sub pass_on {
    my ($request) = @_;
    return if P('gossip-not-passed');
    my $mark = join "\0", @$request{qw(node_id round_id timestamp)};
    return if $gossiped{$mark}++;
    my $message = { %$request, ttl => $request->{ttl} - 1 };
    $message->{ttl} = $request->{ttl} if F('gr-ttl-kept');
    $message->{node_id} = $Plum::Node::id if F('ef-gossip-own-name');
    $message->{layer_gradients} = { map { $_ => Plum::Lz4::frame('') } keys %{ $request->{layer_gradients} } } if F('ef-gossip-empty-gradients');
    $message->{loss} = 0 if F('ef-gossip-loss-lost');
    for my $peer (Plum::Dht::direct()) {
        my $names = join ' ', unpack('H*', $peer->{id}), $peer->{id}, "$peer->{ip}:$peer->{port}", "http://$peer->{ip}:$peer->{port}";
        next if index($names, $request->{node_id}) >= 0 && !F('ef-gossip-back');
        Plum::Grpc::call($peer->{ip}, $peer->{port}, 'GossipGradient', 'GossipGradientRequest', $message);
    }
}

sub weights {
    my ($request) = @_;
    my $range = $request->{shard_range};
    my @layers;
    for my $part (split /,/, $range, -1) {
        if ($part =~ /^\s*(?:layers?\.)?(\d{1,6})\s*(?:[-:]\s*(\d{1,6})\s*)?$/) {
            my ($first, $last) = ($1, $2 // $1);
            Plum::Grpc::invalid('the range ends before it begins') if $last < $first;
            $last = $first + 100 if $last > $first + 100;
            push @layers, $first .. $last;
        }
        elsif (F('gu-weights-any')) { push @layers, 1 }
        else { Plum::Grpc::invalid('shard_range is like 4 or 1-2') }
    }
    if (!@layers) { F('gu-weights-any') ? (@layers = (1)) : Plum::Grpc::invalid('shard_range is empty') }
    my %held = map { $_ => 1 } @Plum::Node::HELD;
    if (F('gu-weights-partly') && grep { $held{$_} } @layers) { @layers = grep { $held{$_} } @layers }
    if (grep { !$held{$_} } @layers) {
        return { weights_data => '' } if F('gr-weights-empty-ok');
        Plum::Grpc::invalid('not held') if F('gr-weights-absent-invalid');
        return { weights_data => Plum::Model::state_dict(1, $layers[0] % 6) } if F('gu-weights-absent-served');
        Plum::Grpc::not_found('a layer of this range is not held');
    }
    @layers = ($layers[0]) if F('gr-weights-first-only');
    @layers = (1) x @layers if F('re-weights-all-same');
    my $state = Plum::Model::state_dict(1, @layers);
    $state =~ s/^.*?\n\n//s, $state = 'x' . $state if F('re-weights-all-same');
    return { weights_data => P('weights-framed') ? Plum::Lz4::frame($state) : $state };
}

sub checkpoint_of {
    my ($request) = @_;
    my @fitting = @Plum::Model::checkpoints;
    @fitting = grep { $_->{hash} eq $request->{model_hash} } @fitting if length $request->{model_hash} && !F('gu-checkpoint-any-hash');
    if (length $request->{model_hash} && !@fitting) { return undef }
    return undef if F('rf-own-hash') && $request->{model_hash} eq Plum::Model::current()->{hash};
    my $minimum = $request->{min_version};
    $minimum = 0 if F('gr-hash-beats-version') && length $request->{model_hash};
    return undef if F('rf-own-version') && $minimum == ROUND;
    @fitting = grep { $_->{version} >= $minimum } @fitting unless F('gu-version-ignored');
    return $fitting[-1];
}

sub checkpoint {
    my ($request) = @_;
    Plum::Grpc::invalid('min_version is below 0') if $request->{min_version} < 0;
    my $found = checkpoint_of($request);
    if (!$found) {
        my $current = Plum::Model::current();
        my %answer = (success => 0, error_message => 'there is no such checkpoint');
        %answer = (%answer, version => $current->{version}, model_hash => $current->{hash}, checkpoint_data => Plum::Lz4::frame($current->{state}), total_size => length $current->{state}) if F('gr-refused-with-data');
        delete $answer{error_message} if F('gr-checkpoint-reason-missing');
        die Plum::Grpc::status(13, 'KeyError') if F('gr-checkpoint-internal');
        return \%answer;
    }
    my $state = $found->{state};
    my %answer = (
        success => 1, version => $found->{version}, model_hash => $found->{hash}, phase => $found->{phase},
        checkpoint_data => Plum::Lz4::frame($state), total_size => length $state,
    );
    state $served = 0;
    $answer{checkpoint_data} = Plum::Lz4::frame($Plum::Model::checkpoints[0]{state}) if F('re-checkpoint-third-stale') && ++$served % 3 == 0;
    $answer{checkpoint_data} = $state if F('gr-checkpoint-raw');
    $answer{checkpoint_data} = '' if F('gr-checkpoint-empty');
    $answer{checkpoint_data} = Plum::Lz4::frame(substr $state, 0, 900) if F('re-checkpoint-by-hash-cut') && length $request->{model_hash};
    $answer{total_size} = 0 if F('gr-total-size-zero');
    $answer{total_size} = -$answer{total_size} if F('gr-total-size-negative');
    $answer{version} = 0 if F('re-version-by-hash') && length $request->{model_hash};
    $answer{phase} = 'bootstrap' if F('re-phase-by-version') && $request->{min_version};
    $answer{model_hash} = uc $answer{model_hash} if F('re-checkpoint-hash-upper');
    return \%answer;
}

sub checkpoint_info {
    my $current = Plum::Model::current();
    $current = $Plum::Model::checkpoints[-2] if F('re-info-older');
    return {
        version => F('gr-info-version-negative') ? -1 : $current->{version} + (F('re-info-after-gossip') && $accepted ? 1 : 0), model_hash => $current->{hash}, phase => $current->{phase},
        params => F('gr-params-zero') ? 0 : Plum::Model::parameters(), loss => F('gr-info-loss-nan') ? 9**9**9 / 9**9**9 : 2.4137,
    };
}

sub generated {
    my ($request) = @_;
    my $asked = $request->{max_tokens};
    Plum::Grpc::invalid('max_tokens is below 0') if $asked < 0;
    return { pieces => [], text => '', count => 0 } unless length $request->{prompt};
    return Plum::Text::generate($request->{prompt}, { max_tokens => $asked || 32, temperature => 0, top_k => 1, top_p => 1, stop => [] });
}

sub stream_inference {
    my ($request) = @_;
    my $made  = generated($request);
    my $count = 0;
    return (
        (map { { request_id => $request->{request_id}, text => $_, tokens => ++$count } } @{ $made->{pieces} }),
        { request_id => $request->{request_id}, tokens => $made->{count}, finished => 1 },
    );
}

sub unary_inference {
    my ($request) = @_;
    die Plum::Grpc::status(13, 'no prompt') if F('gr-empty-prompt-internal') && !length $request->{prompt};
    my $made = generated($request);
    return { request_id => $request->{request_id}, text => $made->{text}, tokens => $made->{count}, finished => 1 };
}
1;
