-module(nd_grpc).
-compile([export_all, nowarn_export_all]).
-include("nd.hrl").

call(Conn, Id, Hs, Ip, End) ->
    nd_u:ctr(rpc),
    Path = proplists:get_value(<<":path">>, Hs, <<>>),
    Gz = proplists:get_value(<<"grpc-encoding">>, Hs, <<"identity">>),
    %! s_service|grpc|4.3|GR-NAME-001: the service is called NodeService in package node|it is meshnode.NodeService
    Svc = case ?F(s_service) of true -> <<"/meshnode.NodeService/">>; _ -> <<"/node.NodeService/">> end,
    L = byte_size(Svc),
    Op = case Path of <<Svc:L/binary, O/binary>> -> O; _ -> <<"?">> end,
    Ty = case Path of <<Svc:L/binary, _/binary>> -> nd_schema:op(Op); _ -> none end,
    %! the operations that are left out: one fault for each
    Out = nd_u:on(binary_to_atom(<<"s_no_", Op/binary>>)),
    A = fun(Fs) -> Conn ! {answer, Id, Fs} end,
    case {Ty, Out} of
        {{In, Ot}, false} ->
            case Op of
                <<"StreamInference">> -> A([{h, hd0(), false}]), stream(A, End, <<>>, Gz, In, Ot, 0);
                _ -> unary(A, Op, In, Ot, data(End, []), Gz, Ip) end;
        _ ->
            %! s_unknown_ok|grpc|4.3|GR-NAME-002: an operation that the service does not list is answered with an error|an empty message and OK
            case ?F(s_unknown_ok) andalso not Out of
                true -> A([{h, hd0(), false}, {d, <<0, 0:32>>}, {h, [{"grpc-status", "0"}], true}]);
                _ -> fail(A, 12, <<"no such operation">>) end
    end.
hd0() -> [{":status", "200"}, {"content-type", "application/grpc"}] ++ case ?P(p_grpc_headers) of true -> [{"server", "kelvin"}, {"x-node", "1"}]; _ -> [] end.
%? p_grpc_headers|gRPC answers have more headers
fail(A, C, M) -> A([{h, hd0() ++ [{"grpc-status", integer_to_list(C)}, {"grpc-message", M}], true}]).
data(true, Acc) -> iolist_to_binary(lists:reverse(Acc));
data(false, Acc) -> receive {data, B, E} -> data(E, [B | Acc]) after 120000 -> exit(normal) end.
unz(0, B, _) -> B;
unz(1, B, <<"gzip">>) -> zlib:gunzip(B);
unz(1, B, <<"deflate">>) -> zlib:uncompress(B).
unary(A, Op, In, Ot, D, Gz, Ip) ->
    R = case D of
        <<C, N:32, M:N/binary>> ->
            case (catch {m, unz(C, M, Gz)}) of
                {m, M2} ->
                    case (catch {ok, nd_pb:dec(In, M2)}) of
                        {ok, Q} -> run(Op, Q, Ip);
                        %! s_bad_internal|grpc|7.3|GR-CODE-002: a bad request is answered with INVALID_ARGUMENT|a message that cannot be decoded ends with INTERNAL
                        _ -> {error, case ?F(s_bad_internal) of true -> 13; _ -> 3 end, <<"the message cannot be decoded">>} end;
                _ -> {error, 3, <<"the message cannot be decompressed">>} end;
        _ -> {error, 3, <<"a unary call has one message">>} end,
    case R of
        {ok, Map} -> B = nd_pb:enc(Ot, Map),
            %! s_two_messages|grpc|4.3|GR-OP-023: a unary operation answers with one message|with two
            %! s_no_trailers|grpc|7.3|GR-CODE-001: a call ends with one of the documented status codes|the trailers have no grpc-status
            %! s_status_header|grpc|7.3|GR-CODE-001: a call that succeeds ends with OK|an answer of DHTStore ends with ABORTED behind its message
            %? p_grpc_split|a message of an answer comes in several DATA frames
            M1 = <<0, (byte_size(B)):32, B/binary>>,
            Ds = case {?F(s_two_messages) andalso Op =:= <<"DHTPing">>, ?P(p_grpc_split)} of {true, _} -> [{d, M1}, {d, M1}]; {_, true} -> [{d, binary:part(M1, 0, 3)}, {d, binary:part(M1, 3, byte_size(M1) - 3)}]; _ -> [{d, M1}] end,
            St = case ?F(s_status_header) andalso Op =:= <<"DHTStore">> of true -> "10"; _ -> "0" end,
            A([{h, hd0(), false}] ++ Ds ++ [{h, case ?F(s_no_trailers) of true -> [{"x-done", "1"}]; _ -> [{"grpc-status", St}] end, true}]);
        {error, Cd, Txt} -> fail(A, Cd, Txt) end,
    %! s_conn_dies|grpc|7.3|GR-CODE-003: after a bad request the same connection still serves valid ones|the connection is closed
    case R of {error, 3, _} -> case ?F(s_conn_dies) of true -> timer:sleep(30), exit(whereis_conn(A), kill); _ -> ok end; _ -> ok end.
whereis_conn(A) -> {env, E} = erlang:fun_info(A, env), hd([P || P <- E, is_pid(P)]).
run(Op, Q, Ip) ->
    try op(Op, Q, Ip)
    catch throw:{st, C, M} -> {error, C, M};
        C1:E:S -> case os:getenv("ND_DEBUG") of false -> ok; _ -> io:format(standard_error, "~p~n", [{C1, E, S}]) end, {error, 13, <<"the node failed">>} end.

%% each message of a stream is a generation
stream(A, End, Buf, Gz, In, Ot, N) ->
    case Buf of
        <<C, L:32, M:L/binary, R/binary>> ->
            case (catch {ok, nd_pb:dec(In, unz(C, M, Gz))}) of
                {ok, Q} ->
                    %! s_stream_one|grpc|4.3|GR-OP-022: StreamInference takes several messages in one call|only the first is answered
                    case ?F(s_stream_one) andalso N > 0 of true -> ok; _ ->
                    case gen(Q) of
                        {ok, Ps, F} ->
                            Rid = maps:get(request_id, Q),
                            lists:foldl(fun(P, I) -> msg(A, Ot, #{request_id => Rid, id => maps:get(id, F), text => P, index => I}), I + 1 end, 0, Ps),
                            %! s_stream_nofinal|grpc|4.3|GR-OP-001 and node.proto: a stream ends a generation with a final response|there is none
                            case ?F(s_stream_nofinal) of true -> ok; _ -> msg(A, Ot, F#{text => <<>>}) end;
                        {error, Cd, T} -> A([{h, [{"grpc-status", integer_to_list(Cd)}, {"grpc-message", T}], true}]), exit(normal) end end,
                    stream(A, End, R, Gz, In, Ot, N + 1);
                _ -> A([{h, [{"grpc-status", "3"}, {"grpc-message", "the message cannot be decoded"}], true}]) end;
        _ when End -> A([{h, [{"grpc-status", "0"}], true}]);
        _ -> receive {data, B, E} -> stream(A, E, <<Buf/binary, B/binary>>, Gz, In, Ot, N) after 120000 -> ok end
    end.
msg(A, Ot, M) -> B = nd_pb:enc(Ot, M), A([{d, <<0, (byte_size(B)):32, B/binary>>}]).
gen(#{request_id := Rid, prompt := P, max_tokens := Mt, temperature := T, top_p := Tp, top_k := Tk, stop := St}) ->
    Bad = (P =:= <<>>) orelse (is_integer(Mt) andalso Mt < 0) orelse (T =/= undefined andalso (T =:= nan orelse T < 0 orelse T > 2)) orelse (Tp =/= undefined andalso (Tp =:= nan orelse Tp =< 0 orelse Tp > 1)) orelse (Tk =/= undefined andalso Tk < 0) orelse lists:member(<<>>, St),
    case Bad of
        true -> {error, 3, <<"a parameter is missing or out of its range">>};
        _ ->
            Max = case Mt of undefined -> 100; _ -> Mt end,
            {Ps, F, N} = nd_text:gen(P, Max, St),
            Pt = nd_text:ptokens(P),
            {ok, Ps, #{request_id => Rid, id => nd_u:str("gg-~p", [nd_u:ctr(ggseq)]), text => iolist_to_binary(Ps), index => N, is_final => true, finish_reason => F, tokens_generated => N,
                usage => #{prompt_tokens => Pt, completion_tokens => N, total_tokens => Pt + N}, timing => #{queue_ms => 0.0, inference_ms => 1.0, total_ms => 1.0}}} end.

-define(ROUND, 41).
mhash(V) -> nd_u:shahex(nd_u:str("kelvin model ~p", [V])).
safetensors(Ts, Meta) ->
    {H, _} = lists:mapfoldl(fun({N, Sh, B}, O) -> {{N, {[{dtype, <<"F32">>}, {shape, Sh}, {data_offsets, [O, O + byte_size(B)]}]}}, O + byte_size(B)} end, 0, Ts),
    J = nd_json:enc({case Meta of [] -> []; _ -> [{<<"__metadata__">>, {Meta}}] end ++ H}),
    iolist_to_binary([<<(byte_size(J)):64/little>>, J, [B || {_, _, B} <- Ts]]).
tensors(L) -> [{nd_u:str("layers.~p.bias", [L]), [24], nd_pipe:write(nd_pipe:bias(L), false)}] ++ case L of 13 -> [{<<"head.weight">>, [96, 24], nd_pipe:write(lists:append(nd_pipe:head()), false)}]; _ -> [] end.
ckpt(V) -> nd_lz4:frame(safetensors(lists:append([tensors(L) || L <- lists:seq(8, 13)]), [{version, integer_to_binary(V)}, {model_hash, mhash(V)}])).
phase(V) -> case V of 39 -> <<"bootstrap">>; _ -> <<"early">> end.
range(S) ->
    case re:run(S, "^\\d{1,4}(-\\d{1,4})?(,\\d{1,4}(-\\d{1,4})?)*$") of
        nomatch -> throw({st, 3, <<"shard_range is like 8, 8-10 or 8,10-12">>});
        _ -> lists:usort(lists:append([case [binary_to_integer(X) || X <- binary:split(P, <<"-">>)] of [A] -> [A]; [A, B] when A =< B -> lists:seq(A, B); _ -> throw({st, 3, <<"a range goes upwards">>}) end || P <- binary:split(S, <<",">>, [global])])) end.

op(<<"UnaryInference">>, Q, _) ->
    case gen(Q) of {ok, _, F} -> timer:sleep(maps:get(index, F) div 4), {ok, F}; E -> E end;
op(<<"GetWeights">>, #{shard_range := R}, _) ->
    %! w_all|grpc|7.3|GR-WEIGHT-002: GetWeights for a layer that is not on the peer ends with NOT_FOUND|the layers that are there are returned
    %! w_empty|grpc|4.3|GR-WEIGHT-001: weights that are answered with OK contain data|a layer that is not there gives OK without data
    %! w_garbage|grpc|4.3|GR-WEIGHT-006: a shard_range that names no layer brings no weights|it brings all
    %! w_first|grpc|2.3|GR-WEIGHT-007: the weights of two layers are not those of one of them|of a range only the first layer is returned
    %! w_same|grpc|2.3|GR-WEIGHT-004: the weights of two layers differ|every layer has those of layer 8
    %! w_unavail|grpc|7.3|GR-WEIGHT-002: GetWeights for a layer that is not on the peer ends with NOT_FOUND|UNAVAILABLE
    Ls0 = try range(R) catch throw:{st, 3, M} -> case ?F(w_garbage) of true -> lists:seq(8, 13); _ -> throw({st, 3, M}) end end,
    Held = [L || L <- Ls0, nd_pipe:held(L)],
    Ls = case ?F(w_first) of true -> lists:sublist(Held, 1); _ -> Held end,
    case length(Held) =:= length(Ls0) orelse (?F(w_all) andalso Held =/= []) of
        true -> {ok, #{weights_data => safetensors(lists:append([tensors(case ?F(w_same) of true -> 8; _ -> L end) || L <- Ls]), [])}};
        _ -> case {?F(w_empty), ?F(w_unavail)} of {true, _} -> {ok, #{}}; {_, true} -> {error, 14, <<"busy">>}; _ -> {error, 5, <<"a layer of the range is not on this node">>} end end;
op(<<"GossipGradient">>, Q, Ip) -> gossip(Q, Ip);
op(<<"GetCheckpoint">>, #{model_hash := H, min_version := V}, _) ->
    %! k_min_ignored|grpc|4.3|GR-CKPT-001: a checkpoint returned for a minimum version is not older|min_version is not read: version 41 for 99
    %! k_min_oldest|grpc|4.3|GR-CKPT-015/001: a checkpoint for a minimum version|the oldest that is kept is returned, whatever the version
    %! k_hash_ignored|grpc|4.3|GR-CKPT-002: a checkpoint returned for a model hash has that hash|an unknown hash brings the newest
    %! k_hash_lost|grpc|4.3|GR-CKPT-012: a checkpoint that the node has is returned for its own hash|it is not found by its hash
    %! k_both|grpc|4.3|GR-CKPT-016: asked for by a hash and a minimum version it has that hash and is not older|of both only the hash counts
    %! k_fail_data|grpc|7.3|GR-CKPT-013: an answer with success false has no checkpoint|it has the newest
    %! k_fail_silent|grpc|7.3|GR-CKPT-003: an answer with success false gives the reason|there is none
    %! k_empty|grpc|4.3|GR-CKPT-005: a returned checkpoint contains data|it has none
    %! k_size_zero|grpc|2.3|GR-CKPT-010: the total_size of a returned checkpoint is above zero|it is 0
    %! k_size_hash|grpc|4.3|GR-CKPT-018: a checkpoint has the same total_size whichever way it is asked for|asked by hash it is that of the uncompressed data
    %! k_not_lz4|grpc|2.3|GR-CKPT-014: the data of a checkpoint is an LZ4 frame|it is zlib:compress
    %! k_info_other|grpc|4.3|GR-CKPT-004: GetCheckpointInfo reports the version and hash of the checkpoint that GetCheckpoint returns|it reports one version more
    %! k_phase|grpc|4.3|GR-CKPT-017: a checkpoint has the phase that GetCheckpointInfo names|asked by hash it is bootstrap
    %! k_hash_case|grpc|4.3|GR-CKPT-002/017: a checkpoint has the hash that GetCheckpointInfo names|the hash is in capitals in GetCheckpoint
    V < 0 andalso throw({st, 3, <<"min_version is below 0">>}),
    Min = case ?F(k_min_ignored) of true -> 0; _ -> V end,
    Vs = [X || X <- [41, 40, 39], (H =:= <<>> orelse mhash(X) =:= H) andalso not (H =/= <<>> andalso ?F(k_hash_lost)), X >= Min orelse (?F(k_both) andalso H =/= <<>>)],
    Vs2 = nd_u:pick([{?F(k_hash_ignored) andalso Vs =:= [], [41]}, {?F(k_min_oldest) andalso H =:= <<>> andalso Vs =/= [], [39]}], Vs),
    case Vs2 of
        [W | _] ->
            D = ckpt(W),
            D2 = nd_u:pick([{?F(k_empty), <<>>}, {?F(k_not_lz4), zlib:compress(D)}], D),
            Sz = nd_u:pick([{?F(k_size_zero), 0}, {?F(k_size_hash) andalso H =/= <<>>, byte_size(D2) * 3}], byte_size(D)),
            {ok, #{success => true, version => W, model_hash => case ?F(k_hash_case) of true -> string:uppercase(mhash(W)); _ -> mhash(W) end, phase => case ?F(k_phase) andalso H =/= <<>> of true -> <<"bootstrap">>; _ -> phase(W) end, checkpoint_data => D2, total_size => Sz}};
        [] ->
            E = #{success => false, error_message => case ?F(k_fail_silent) of true -> <<>>; _ -> <<"no such checkpoint is kept">> end},
            {ok, case ?F(k_fail_data) of true -> E#{version => 41, model_hash => mhash(41), checkpoint_data => ckpt(41), total_size => 10}; _ -> E end} end;
op(<<"GetCheckpointInfo">>, _, _) ->
    %! k_params|grpc|2.3|GR-CKPT-011: a model that has a hash has parameters|params is 0
    %! k_info_neg|grpc|2.3|GR-SANE-001: versions are not negative|the version is -41
    {ok, #{version => nd_u:pick([{?F(k_info_other), 42}, {?F(k_info_neg), -41}], 41), model_hash => mhash(41), phase => phase(41), params => case ?F(k_params) of true -> 0; _ -> 3312 end, loss => 2.31725}};
op(<<"PipelineForward">>, Q, Ip) -> nd_pipe:forward(Q, Ip);
op(<<"PipelineBackward">>, Q, Ip) -> nd_pipe:backward(Q, Ip);
op(<<"DHTPing">>, Q, Ip) -> nd_dht:ping(Q, Ip);
op(<<"DHTFindNode">>, Q, Ip) -> nd_dht:find_node(Q, Ip);
op(<<"DHTFindValue">>, Q, Ip) -> nd_dht:find_value(Q, Ip);
op(<<"DHTStore">>, Q, Ip) -> nd_dht:store(Q, Ip);
op(<<"GossipProof">>, #{proof := undefined}, _) -> {ok, #{accepted => false, reason => <<"there is no proof">>}};
op(<<"GossipProof">>, _, _) -> {ok, #{accepted => false, reason => <<"the signature of the proof does not fit">>}};
op(<<"GossipValidationVote">>, _, _) -> {ok, #{accepted => false, reason => <<"the signature of the vote does not fit">>, proof_status => <<"pending">>}};
op(<<"RequestProofValidation">>, _, _) -> {ok, #{success => false, error_message => <<"nothing is kept of this proof">>}};
op(<<"GossipTransaction">>, #{transaction := <<>>}, _) -> {ok, #{accepted => false, reason => <<"there is no transaction">>}};
op(<<"GossipTransaction">>, #{transaction := T}, _) ->
    {C, L, Id} = nd_chain:call({tx, T}),
    {ok, #{accepted => C =:= 0, reason => L, transaction_hash => nd_chain:tx_hash(T), application_id => case Id of none -> <<>>; _ -> Id end}};
op(<<"GossipStake">>, _, _) -> {ok, #{accepted => false, reason => <<"this node takes no stakes from other nodes">>}};
op(<<"GetShardInfo">>, _, _) ->
    {ok, #{node_id => nd_api:node_id(), role => <<"validator">>, version => <<"3.1.4-kelvin">>, model_name => <<"kelvin-small">>, model_hash => mhash(41), total_layers => 14, layers => [8, 9, 10, 11, 12, 13], has_head => true, hidden_dim => 24, vocab_size => 96, context_length => 4096, capacity => cap(), weights_version => 41, model_hashes => [mhash(41)], numeric_class => <<"erlang-double">>}};
op(<<"GetSwarmStatus">>, #{only_training := O}, _) ->
    {ok, #{node_id => nd_api:node_id(), status => <<"running">>, role => <<"validator">>, model_hash => mhash(41), total_layers => 14, layers => [8, 9, 10, 11, 12, 13], capacity => cap(),
        peers => case O of true -> []; _ -> [#{node_id => proplists:get_value(id, L), address => proplists:get_value(address, L), role => atom_to_binary(proplists:get_value(role, L)), layers => proplists:get_value(layers, L), latency_ms => proplists:get_value(latency_ms, L)} || {L} <- nd_api:peers()] end,
        training => #{round_id => 41, state => <<"inner">>, version => 41, model_hash => mhash(41), figures => #{loss => 2.31725, validation_loss => 2.4, steps => nd_api:steps(), tokens => 98304000, rounds => 41, successful_syncs => 396, failed_syncs => 4, data_shards => [0, 1, 2, 5, 7]}}}};
op(<<"UpdatePeerCapacity">>, #{node_id := <<>>}, _) -> {ok, #{accepted => false, reason => <<"node_id is missing">>}};
op(<<"UpdatePeerCapacity">>, #{node_id := N, timestamp := T}, _) ->
    case nd_u:get1({cap, N}, -1.0) of
        O when T =:= nan -> O, {ok, #{accepted => false, reason => <<"timestamp is no number">>}};
        O when T < O -> {ok, #{accepted => false, reason => <<"a newer report is known">>}};
        _ -> nd_u:put1({cap, N}, T), {ok, #{accepted => true}} end;
op(<<"SwarmForward">>, #{request_id := Rid, route := []}, _) -> {ok, #{request_id => Rid, success => false, error_message => <<"the route is empty">>}};
op(<<"SwarmForward">>, #{request_id := Rid, session_id := Sid, hidden_states := H, hidden_shape := Sh, route := [Hop | Rest]}, Ip) ->
    #{first_layer := F, last_layer := L} = Hop,
    Ok = nd_pipe:held(F) andalso nd_pipe:held(L) andalso F =< L,
    Ok orelse throw({st, 5, <<"a layer of the hop is not on this node">>}),
    {ok, R} = lists:foldl(fun(T, {ok, #{hidden_states := Hi, hidden_shape := Si}}) ->
        case nd_pipe:forward(#{session_id => Sid, request_id => Rid, hidden_states => Hi, hidden_shape => Si, past_key_values => [], use_cache => false, target_shard => T, source_shard => 0, training_labels => <<>>, sender_url => <<>>}, Ip) of {ok, X} -> {ok, X}; {error, C, M} -> throw({st, C, M}) end end,
        {ok, #{hidden_states => H, hidden_shape => Sh}}, lists:seq(F, L)),
    case {R, Rest} of
        {#{is_final := true, logits := Lg, logits_shape := Ls}, []} -> {ok, #{request_id => Rid, success => true, logits => Lg, logits_shape => Ls, hops => [#{node_id => nd_api:node_id(), first_layer => F, last_layer => L, compute_ms => 1.0}]}};
        _ -> {ok, #{request_id => Rid, success => false, error_message => <<"the next hop cannot be reached">>}} end.
cap() -> #{memory_total => 25769803776, memory_used => 6442450944, kv_total => 1073741824, kv_used => 0, queue_depth => 0, active_sessions => 0, max_batch => 8, tokens_per_second => 640.0}.

gossip(#{node_id := N, round_id := R, model_hash := H, batch_size := B, loss := Ls, layer_gradients := G, ttl := Ttl} = Q, _) ->
    %! o_round_any|grpc|4.3|GR-GOSSIP-002: accepted says whether the receiver accepted the gradient|a gradient of any round is answered with accepted
    %! o_hash_any|grpc|2.3|GR-GOSSIP-006: a gradient whose model_hash is that of another model is not accepted|it is
    %! o_noreason|grpc|7.3|GR-GOSSIP-001: a gradient that is not accepted is answered with a reason|there is none
    %! o_round_echo|grpc|4.3|GR-GOSSIP-003: current_round is the round of the receiver|it is the round_id of the message
    %! o_round_zero|grpc|4.3|GR-GOSSIP-008: where a gradient of another round is refused current_round says which round it is|0
    %! o_round_count|grpc|2.3|GR-GOSSIP-004: refusals of one gradient after another do not each name another round|each refusal counts the round on
    %! o_round_accept|grpc|4.3|GR-GOSSIP-005: current_round of an accepted gradient is the receiver's|it is one more
    %! o_batch|grpc|4.3|GR-GOSSIP-009: a gradient like one that is accepted is accepted with another batch size, loss and ttl|a batch size above 32 is refused
    %! o_ttl_zero|grpc|4.3|GR-GOSSIP-009: a gradient like one that is accepted is accepted with another ttl|ttl 0 is refused
    %! o_loss_int|grpc|4.3|GR-GOSSIP-009: a gradient like one that is accepted is accepted with another loss|a loss above 5 is refused
    %! o_once|grpc|4.3|GR-GOSSIP-009: a gradient like one that is accepted is accepted|after three gradients of one node its others are refused, with the reason duplicate
    %! o_ttl_same|grpc|2.3|CL-GOSSIP-001: a gradient is passed on with a lower ttl|with the same
    %! o_changed|grpc|2.3|CL-GOSSIP-003: a gradient that is passed on is the one that came but for its ttl|with this node's node_id
    Bad = gradbad(maps:to_list(G)),
    Why = if N =:= <<>> -> <<"node_id is missing">>;
             H =/= <<>>, R >= 0 -> nd_u:pick([{H =/= "x" andalso not ?F(o_hash_any) andalso H =/= mhash(41), <<"the gradient is of another model">>}], none);
             true -> case ?F(o_hash_any) of true -> none; _ -> <<"the gradient is of another model">> end end,
    Why2 = nd_u:pick([{Why =/= none, Why}, {R =/= ?ROUND andalso R =/= ?ROUND - 1 andalso not ?F(o_round_any), <<"the gradient is of another round">>}, {Bad =/= none, Bad},
        {B < 0 orelse Ls =:= nan orelse Ttl < 0, <<"batch_size, loss or ttl is out of range">>}, {?F(o_batch) andalso B > 32, <<"the batch is too large">>}, {?F(o_ttl_zero) andalso Ttl =:= 0, <<"the ttl is used up">>}, {?F(o_loss_int) andalso is_float(Ls) andalso Ls > 5, <<"the loss is too high">>},
        {?F(o_once) andalso nd_u:ctr({once, N}) > 3, <<"duplicate">>}], none),
    Cr0 = nd_u:pick([{?F(o_round_echo), R}, {?F(o_round_zero), 0}, {?F(o_round_count), ?ROUND + nd_u:ctr(refcount)}], ?ROUND),
    case Why2 of
        none ->
            nd_u:ctr(grads),
            Key = {grad, N, R, erlang:phash2(G, 4294967296)},
            New = ets:insert_new(nd_kv, {Key, true}),
            case Ttl > 0 andalso New of
                true -> Q2 = Q#{ttl := case ?F(o_ttl_same) of true -> Ttl; _ -> Ttl - 1 end},
                    Q3 = case ?F(o_changed) of true -> Q2#{node_id := nd_api:node_id()}; _ -> Q2 end,
                    [spawn(fun() -> nd_h2c:call(Ho, P + 1000, "GossipGradient", nd_pb:enc('GossipGradientRequest', Q3), 5000) end) || {Ho, P} <- nd_u:opt(peers, [])];
                _ -> ok end,
            {ok, #{accepted => true, current_round => case ?F(o_round_accept) of true -> ?ROUND + 1; _ -> Cr0 end}};
        _ -> {ok, #{accepted => false, reason => case ?F(o_noreason) of true -> <<>>; _ -> Why2 end, current_round => Cr0}} end.
gradbad([]) -> <<"there are no gradients">>;
gradbad(L) -> lists:foldl(fun({K, V}, none) ->
    case re:run(K, "^layers\\.(\\d{1,2})$", [{capture, [1], binary}]) of
        {match, [I]} -> case binary_to_integer(I) < 14 of
            true -> case nd_lz4:unframe(V) of
                {ok, D} when byte_size(D) > 0, byte_size(D) rem 4 =:= 0 -> case length([x || <<_:32/float-little>> <= D]) * 4 =:= byte_size(D) of true -> none; _ -> <<"a gradient has values that are not finite">> end;
                _ -> <<"a gradient is no LZ4 frame of float32">> end;
            _ -> <<"a gradient is of no layer">> end;
        _ -> <<"a gradient is of no layer">> end; (_, W) -> W end, none, L).
