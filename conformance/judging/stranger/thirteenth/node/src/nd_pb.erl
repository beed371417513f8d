-module(nd_pb).
-export([dec/2, enc/2, outnums/0, innums/0]).
-include("nd.hrl").

%% Field numbers that are wrong: {Fault, Message, Field, Number, ...} for what is written ...
outnums() -> [
    {p_num_fwd_hidden, 'PipelineForwardResponse', hidden_states, 11, "hidden_states of PipelineForwardResponse is 4"},
    {p_num_fwd_final, 'PipelineForwardResponse', is_final, 12, "is_final of PipelineForwardResponse is 7"},
    {p_num_fwd_loss, 'PipelineForwardResponse', loss, 11, "loss of PipelineForwardResponse is 10"},
    {p_num_fwd_shape, 'PipelineForwardResponse', hidden_shape, 9, "hidden_shape of PipelineForwardResponse is 5"},
    {p_num_bwd_error, 'PipelineBackwardResponse', error_message, 3, "error_message of PipelineBackwardResponse is 2"},
    {p_num_gossip_round, 'GossipGradientResponse', current_round, 4, "current_round of GossipGradientResponse is 3"},
    {p_num_weights, 'WeightResponse', weights_data, 2, "weights_data of WeightResponse is 1"},
    {p_num_ck_size, 'GetCheckpointResponse', total_size, 8, "total_size of GetCheckpointResponse is 7"},
    {p_num_ck_hash, 'GetCheckpointInfoResponse', model_hash, 3, "model_hash of GetCheckpointInfoResponse is 2"},
    {p_num_dht_found, 'DHTFindValueResponse', found, 5, "found of DHTFindValueResponse is 4"},
    {p_num_dht_nodes, 'DHTFindNodeResponse', nodes, 3, "nodes of DHTFindNodeResponse is 2"},
    {p_num_dht_port, 'DHTNodeInfo', port, 4, "port of DHTNodeInfo is 3"},
    {p_num_store_ok, 'DHTStoreResponse', success, 3, "success of DHTStoreResponse is 2"}].
%% ... and for what is read.
innums() -> [
    {p_rd_store_value, 'DHTStoreRequest', value, 4, "DH-025: value of DHTStoreRequest is read from 3"},
    {p_rd_range, 'WeightRequest', shard_range, 2, "GR-WEIGHT-003: shard_range of WeightRequest is read from 1"},
    {p_rd_modelhash, 'GossipGradientRequest', model_hash, 13, "GR-GOSSIP-007: model_hash of GossipGradientRequest is read from 3"},
    {p_rd_bwd_grad, 'PipelineBackwardRequest', grad_output, 6, "PL-BWD-008: grad_output of PipelineBackwardRequest is read from 3"},
    {p_rd_minver, 'GetCheckpointRequest', min_version, 3, "GR-CKPT-001: min_version of GetCheckpointRequest is 2"},
    {p_rd_target, 'DHTFindNodeRequest', target_id, 3, "target_id of DHTFindNodeRequest is 2"},
    {p_rd_labels, 'PipelineForwardRequest', training_labels, 13, "PL-FWD-008: training_labels of PipelineForwardRequest is 11"}].
schema(M, L) ->
    S = nd_schema:m(M),
    case [{F, N} || {X, M2, F, N, _} <- L, M2 =:= M, nd_u:on(X)] of
        [{F, N}] -> [case Fd of {_, F, T, Lb} -> {N, F, T, Lb}; _ -> Fd end || Fd <- S, element(1, Fd) =/= N];
        _ -> S end.

dec(M, B) ->
    Sch = schema(M, innums()),
    Init = maps:from_list([{F, def(T, L)} || {_, F, T, L} <- Sch]),
    R = flds(B, maps:from_list([{N, {F, T, L}} || {N, F, T, L} <- Sch]), Init),
    maps:map(fun(_, V) when is_list(V) -> lists:reverse(V); (_, V) -> V end, maps:merge(maps:from_list([{F, def(T, L)} || {_, F, T, L} <- nd_schema:m(M)]), R)).
def(map_sb, _) -> #{};
def(_, repeated) -> [];
def(_, optional) -> undefined;
def({msg, _}, _) -> undefined;
def(string, _) -> <<>>;
def(bytes, _) -> <<>>;
def(bool, _) -> false;
def(double, _) -> 0.0;
def(_, _) -> 0.
flds(<<>>, _, A) -> A;
flds(B, S, A) ->
    {K, R} = vi(B),
    N = K bsr 3, true = N > 0,
    {V, R2} = case K band 7 of
        0 -> vi(R);
        1 -> <<X:8/binary, Z/binary>> = R, {X, Z};
        2 -> {L, Z} = vi(R), <<X:L/binary, Z2/binary>> = Z, {{b, X}, Z2};
        5 -> <<X:4/binary, Z/binary>> = R, {X, Z};
        _ -> throw({bad, wire}) end,
    flds(R2, S, case S of #{N := {F, T, Lb}} -> put(F, T, Lb, V, K band 7, A); _ ->
        %! p_unknown_field|grpc|4.3|GR-FORM-001: a message means the same beside fields that the document does not have|an unknown field ends the call with INVALID_ARGUMENT
        false = ?F(p_unknown_field) andalso N > 40, A end).
vi(B) -> vi(B, 0, 0).
vi(<<1:1, V:7, R/binary>>, A, S) when S < 63 -> vi(R, A bor (V bsl S), S + 7);
vi(<<0:1, V:7, R/binary>>, A, S) -> {(A bor (V bsl S)) band 16#FFFFFFFFFFFFFFFF, R}.
put(F, map_sb, _, {b, X}, _, A) ->
    #{key := K, value := V} = flds(X, #{1 => {key, string, one}, 2 => {value, bytes, one}}, #{key => <<>>, value => <<>>}),
    %! p_map_text|grpc|2.3|GR-NUM-002: layer_gradients are read as bytes, whether or not these could be a text|bytes that are no UTF-8 are refused
    case ?F(p_map_text) andalso unicode:characters_to_list(V) of T when is_tuple(T) -> throw({bad, utf8}); _ -> ok end,
    maps:update_with(F, fun(Mp) -> Mp#{K => V} end, A);
put(F, T, repeated, {b, X}, 2, A) when T =:= int32; T =:= int64; T =:= bool; T =:= double ->
    %! p_packed|grpc|2.3|GR-FORM-002: repeated numbers are read both packed and one by one|packed numbers are not read
    case ?F(p_packed) of true -> A; _ -> lists:foldl(fun(V, B) -> maps:update_with(F, fun(L) -> [V | L] end, B) end, A, packed(T, X)) end;
put(F, T, repeated, V, W, A) ->
    %! p_unpacked|grpc|2.3|GR-FORM-002: repeated numbers are read both packed and one by one|of numbers written one by one only the last is read
    case ?F(p_unpacked) andalso W =:= 0 of true -> A#{F => [val(T, V, W)]}; _ -> maps:update_with(F, fun(L) -> [val(T, V, W) | L] end, A) end;
put(F, {msg, M}, _, {b, X}, 2, A) -> A#{F => dec(M, X)};
put(F, T, _, V, W, A) -> A#{F => val(T, V, W)}.
packed(double, X) -> [fl(D) || <<D:8/binary>> <= X];
packed(_, <<>>) -> [];
packed(T, X) -> {V, R} = vi(X), [val(T, V, 0) | packed(T, R)].
val(string, {b, X}, 2) -> case utf8(X) of true -> X; _ -> throw({bad, utf8}) end;
val(bytes, {b, X}, 2) -> X;
val({msg, M}, {b, X}, 2) -> dec(M, X);
val(bool, V, 0) -> V =/= 0;
val(int32, V, 0) ->
    %! p_int32_unsigned|grpc|7.3|PL-FWD-012/GR-SANE: int32 is signed|negative int32 values are read as large unsigned ones taken modulo 14
    case ?F(p_int32_unsigned) andalso V > 16#7FFFFFFF of true -> V rem 14; _ -> <<S:32/signed>> = <<V:32>>, S end;
val(int64, V, 0) -> <<S:64/signed>> = <<V:64>>, S;
val(uint64, V, 0) -> V;
val(double, <<D:8/binary>>, 1) -> fl(D);
val(_, _, _) -> throw({bad, type}).
fl(<<F:64/float-little>>) -> F;
fl(_) -> nan.

enc(M, Map) -> iolist_to_binary([f(N, T, L, maps:get(F, Map, def(T, L))) || {N, F, T, L} <- schema(M, outnums())]).
f(_, _, optional, undefined) -> [];
f(N, T, optional, V) -> one(N, T, V);
f(N, T, repeated, L) when T =:= int32; T =:= int64 ->
    %? p_unpacked_answers|repeated numbers of answers are written one by one
    case L of [] -> []; _ -> case ?P(p_unpacked_answers) of true -> [one(N, T, V) || V <- L]; _ -> B = iolist_to_binary([ve(V band 16#FFFFFFFFFFFFFFFF) || V <- L]), [ve(N * 8 + 2), ve(byte_size(B)), B] end end;
f(N, T, repeated, L) -> [one(N, T, V) || V <- L];
f(N, map_sb, _, Mp) -> [begin B = iolist_to_binary([one(1, string, K), one(2, bytes, V)]), [ve(N * 8 + 2), ve(byte_size(B)), B] end || {K, V} <- maps:to_list(Mp)];
%? p_defaults_written|fields with their default value are written out in answers
f(N, T, _, V) -> case V =:= def(T, one) andalso not (?P(p_defaults_written) andalso V =/= undefined) of true -> []; _ -> one(N, T, V) end.
one(_, _, undefined) -> [];
one(N, T, V) when T =:= string; T =:= bytes -> B = iolist_to_binary(V), [ve(N * 8 + 2), ve(byte_size(B)), B];
one(N, {msg, M}, V) -> B = enc(M, V), [ve(N * 8 + 2), ve(byte_size(B)), B];
one(N, bool, V) -> [ve(N * 8), case V of true -> 1; _ -> 0 end];
one(N, double, V) -> [ve(N * 8 + 1), case V of nan -> <<0,0,0,0,0,0,16#F8,16#7F>>; _ -> <<V:64/float-little>> end];
one(N, _, V) -> [ve(N * 8), ve(V band 16#FFFFFFFFFFFFFFFF)].
ve(N) when N < 128 -> <<N>>;
ve(N) -> [<<1:1, (N band 127):7>>, ve(N bsr 7)].
utf8(<<A:56, R/binary>>) when A band 16#80808080808080 =:= 0 -> utf8(R);
utf8(<<_/utf8, R/binary>>) -> utf8(R);
utf8(R) -> R =:= <<>>.
