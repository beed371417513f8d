-module(nd_pipe).
-behaviour(gen_server).
-compile([export_all, nowarn_export_all]).
-include("nd.hrl").
-define(H, 24).
-define(V, 96).
-define(LAST, 13).
%% The layers 8 to 13 of 14, and the graphs that are kept for a backward pass.
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
init([]) -> ets:new(nd_graph, [named_table, public]), head(), {ok, x}.
handle_call(_, _, S) -> {reply, ok, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(_, S) -> {noreply, S}.
held(L) -> L >= 8 andalso L =< ?LAST.
bias(L) -> case persistent_term:get({nd_bias, L}, none) of none -> B = [begin <<X:16/signed, _/binary>> = nd_u:sha(<<"bias", L, J>>), X / 65536 end || J <- lists:seq(1, ?H)], persistent_term:put({nd_bias, L}, B), B; B -> B end.
head() -> case persistent_term:get(nd_head, none) of none -> W = [[begin <<X:16/signed, _/binary>> = crypto:hash(md5, <<"head", J, V>>), X / 32768 end || J <- lists:seq(1, ?H)] || V <- lists:seq(1, ?V)], persistent_term:put(nd_head, W), W; W -> W end.

bad(M) -> throw({st, 3, M}).
%% tensors: float32, little-endian, as they are or in an LZ4 frame
read(B, N) ->
    Z = nd_lz4:is_frame(B) andalso byte_size(B) =/= N * 4,
    D = case Z of true -> case nd_lz4:unframe(B) of {ok, X} -> X; _ -> bad(<<"the LZ4 frame is damaged">>) end; _ -> B end,
    %! t_size_any|grpc|7.3|GR-CODE-002/PL-FWD-007: a bad request is answered with INVALID_ARGUMENT|a tensor with fewer bytes than its shape is filled with zeros
    D2 = case ?F(t_size_any) andalso byte_size(D) < N * 4 of true -> <<D/binary, 0:((N * 4 - byte_size(D)) * 8)>>; _ -> D end,
    byte_size(D2) =:= N * 4 orelse bad(<<"the tensor does not have the size of its shape">>),
    L = [F || <<F:32/float-little>> <= D2],
    length(L) =:= N orelse bad(<<"the tensor has values that are not finite">>),
    {L, Z}.
write(L, Z) ->
    B = try << <<(clip(F)):32/float-little>> || F <- L >> catch _:_ -> bad(<<"the values are too large">>) end,
    case Z of true -> nd_lz4:frame(B); _ -> B end.
clip(F) when F > 3.4e38 -> 3.4e38;
clip(F) when F < -3.4e38 -> -3.4e38;
clip(F) -> F.
rows([]) -> [];
rows(L) -> {A, B} = lists:split(?H, L), [A | rows(B)].
chunk([], _) -> [];
chunk(L, N) -> {A, B} = lists:split(N, L), [A | chunk(B, N)].
layer(L, Rows, Past) ->
    B = bias(L),
    Zero = lists:duplicate(?H, 0.0),
    {S0, N0} = lists:foldl(fun(R, {S, N}) -> {add(S, R), N + 1} end, {Zero, 0}, Past),
    {Out, _} = lists:mapfoldl(fun(R, {S, N}) ->
        S1 = add(S, R), N1 = N + 1,
        {row(R, tl(R) ++ [hd(R)], B, S1, 0.05 / N1), {S1, N1}} end, {S0, N0}, Rows),
    Out.
add([A | X], [B | Y]) -> [A + B | add(X, Y)];
add([], []) -> [].
row([A | X], [N | Y], [B | Z], [S | W], K) -> [0.9 * A + 0.1 * N + B + K * S | row(X, Y, Z, W, K)];
row([], [], [], [], _) -> [].
%% the gradient of what went in, of that of what came out
back(Gs, Past) ->
    N = length(Gs),
    {Out, _} = lists:mapfoldl(fun({G, I}, Acc) ->
        Acc1 = add(Acc, [0.05 * X / (Past + I) || X <- G]),
        Prev = [lists:last(G) | lists:droplast(G)],
        {[0.9 * A + 0.1 * P + C || {A, P, C} <- lists:zip3(G, Prev, Acc1)], Acc1} end, lists:duplicate(?H, 0.0), lists:reverse(lists:zip(Gs, lists:seq(1, N)))),
    lists:reverse(Out).
dot(A, B) -> dot(A, B, 0.0).
dot([A | X], [B | Y], S) -> dot(X, Y, S + A * B);
dot([], [], S) -> S.
shape(Sh) -> case Sh of
    [B, S, ?H] when B > 0, S > 0 -> B * S =< 40000 orelse throw({st, 8, <<"the pass is too long">>}), {B, S};
    _ -> bad(<<"hidden_shape is [batch, seq, 24]">>) end.
nl(T) ->
    %! t_nolayer_unavail|grpc|7.3|GR-CODE-013: a layer that is not on the peer is not reported as a peer that is offline|UNAVAILABLE
    %! t_nolayer_false|grpc|7.3|GR-CODE-004: a call for a layer that is not on the peer ends with NOT_FOUND|OK with success false
    %! t_nolayer_invalid|grpc|7.3|GR-CODE-004: a call for a layer that is not on the peer ends with NOT_FOUND|INVALID_ARGUMENT
    %! t_layer_mod|grpc|7.3|PL-FWD-022: a pass to a number far above the layers is not served as one to a layer that it holds|<<T:4>>: layer 24 is layer 8
    %! t_layer_any|grpc|7.3|GR-CODE-004: a call for a layer that is not on the peer ends with NOT_FOUND|the nearest layer that it holds serves it
    %! t_layer_last|grpc|7.3|GR-CODE-014: a layer that the node lists as its own is found by a pass|layer 13 is not (lists:seq(8, 12))
    T2 = nd_u:pick([{?F(t_layer_mod) andalso T >= 0, T band 15}, {?F(t_layer_any), max(8, min(13, T))}, {?F(p_int32_unsigned), T}], T),
    Nf = fun() -> throw(nd_u:pick([{?F(t_nolayer_unavail), {st, 14, <<"no such layer">>}}, {?F(t_nolayer_invalid), {st, 3, <<"no such layer">>}}, {?F(t_nolayer_false), nosuch}], {st, 5, <<"the layer is not on this node">>})) end,
    if T2 < 0 -> bad(<<"there is no layer below 0">>); true -> ok end,
    case held(T2) andalso not (T2 =:= 13 andalso ?F(t_layer_last)) of true -> T2; _ -> Nf() end.

forward(#{request_id := Rid} = R, _) ->
    try fwd(R) catch throw:nosuch -> {ok, #{request_id => Rid, success => false, error_message => <<"no such layer">>}};
        throw:{st, 3, M} ->
            %! t_fail_empty|grpc|4.3|PL-FWD-001: a forward answer with success false gives the reason in error_message|a bad pass is answered with success false and no reason
            %! t_bad_internal|grpc|7.3|GR-CODE-015: a request for what does not fit is not called a failure of the server|INTERNAL
            %! t_bad_unknown|grpc|7.3|GR-CODE-001: a call ends with one of the seven documented codes|UNKNOWN (a crash that nobody caught)
            nd_u:pick([{?F(t_fail_empty), {ok, #{request_id => Rid, success => false}}}, {?F(t_bad_internal), {error, 13, M}}, {?F(t_bad_unknown), {error, 2, <<"badmatch">>}}], {error, 3, M}) end.
fwd(#{session_id := Sid, request_id := Rid, hidden_states := Hb, hidden_shape := Sh, past_key_values := Pk, use_cache := Uc, target_shard := T0, source_shard := Src, training_labels := Lab, sender_url := Url}) ->
    T = nl(T0),
    {B, S} = shape(Sh),
    %! t_batch1|grpc|2.3|PL-FWD-016: a pass of two sequences is accepted|it is refused
    %! t_batch_first|grpc|2.3|PL-FWD-010: the answer to a pass has as many sequences as the pass|only the first is computed, the shape says 1
    (?F(t_batch1) andalso B > 1) andalso bad(<<"one sequence at a time">>),
    {Vals0, Z} = read(Hb, B * S * ?H),
    %! t_shared|grpc|4.3|PL-FWD-015: of passes at the same time each is answered with the result of its own tensor|the tensor goes through an ETS entry that all calls share
    %! t_prev|grpc|4.3|PL-FWD-014: a pass is answered with the result of its own tensor, not that of the pass before|a pass of the same session within 5 s has the result of the one before (a cache by session and shape)
    Vals = case true of _ -> case {?F(t_shared), ?F(t_prev)} of
        {true, _} -> nd_u:put1(tensor, Vals0), timer:sleep(6), X0 = nd_u:get1(tensor, Vals0), case length(X0) =:= length(Vals0) of true -> X0; _ -> Vals0 end;
        {_, true} -> K = {pv, Sid, Sh, T}, case nd_u:get1(K, none) of {T1, X1} -> case nd_u:ms() - T1 < 5000 of true -> X1; _ -> nd_u:put1(K, {nd_u:ms(), Vals0}), Vals0 end; _ -> nd_u:put1(K, {nd_u:ms(), Vals0}), Vals0 end;
        _ -> Vals0 end end,
    Seqs = chunk(rows(Vals), S),
    Past = case Pk of
        [] -> lists:duplicate(B, []);
        [P | _] ->
            Raw = case nd_lz4:is_frame(P) of true -> case nd_lz4:unframe(P) of {ok, X} -> X; _ -> bad(<<"past_key_values are damaged">>) end; _ -> P end,
            Np = byte_size(Raw) div (B * ?H * 4),
            {Pv, _} = read(Raw, B * Np * ?H),
            %! t_past_ignored|grpc|2.3|PL-FWD-019: a pass with past_key_values has another result than without|they are not read
            case Np =:= 0 orelse ?F(t_past_ignored) of true -> lists:duplicate(B, []); _ -> chunk(rows(Pv), Np) end end,
    %! t_source|grpc|2.3|PL-FWD-024: the result depends neither on its source_shard nor on how long its identifiers are|the bias grows with source_shard
    Outs0 = [layer(T, Sq, Pa) || {Sq, Pa} <- lists:zip(Seqs, Past)],
    Outs1 = case ?F(t_source) of true -> [[[V + Src / 100 || V <- R] || R <- Sq] || Sq <- Outs0]; _ -> Outs0 end,
    %! t_identity|grpc|4.3|PL-FWD-004: PipelineForward passes hidden states through the node's layers|it gives back what came
    %! t_bigendian|grpc|2.3|PL-FWD-017: the values of a result are in the byte order of those of the request|<<F:32/float>> without little
    Outs = case ?F(t_identity) of true -> Seqs; _ -> case ?F(t_batch_first) of true -> [hd(Outs1)]; _ -> Outs1 end end,
    B2 = length(Outs),
    Keep = Url =/= <<>> orelse Lab =/= <<>>,
    %! b_key_request|grpc|4.3|PL-BWD-010: the gradients of the passes of two sessions with one request_id are both accepted|graphs are kept under the request_id alone, and the second pass makes the first one's sender go
    %! b_key_session|grpc|4.3|PL-BWD-011: the gradients of two passes of one session are both accepted|graphs are kept under the session_id alone
    %! b_one_graph|grpc|4.3|PL-BWD-012: the gradients of two passes are both accepted|only the graph of the newest pass is kept
    %! b_sender_last|grpc|4.3|PL-BWD-009: the gradients of each pass go back to where that pass came from|they go to the sender of the newest pass
    case Keep of
        true ->
            case ?F(b_one_graph) of true -> ets:delete_all_objects(nd_graph); _ -> ok end,
            nd_u:put1(last_url, Url),
            ets:insert(nd_graph, {gkey(Sid, Rid, T), #{b => B, s => S, past => length(hd(Past)), url => Url, src => Src, t => nd_u:ms(), z => Z, sid => Sid, rid => Rid}});
        _ -> ok end,
    %! t_kv_none|grpc|2.3|PL-FWD-018: a pass with use_cache returns past_key_values|it does not
    Kv = case Uc andalso not ?F(t_kv_none) of true -> [write(lists:append([lists:append(Pa ++ Sq) || {Pa, Sq} <- lists:zip(Past, Seqs)]), Z)]; _ -> [] end,
    %! t_rid_trim|grpc|2.3|PL-FWD-013: the request_id of an accepted pass is in its answer as it is, whatever its length|it is cut after 32 characters
    %! t_rid_session|grpc|2.3|PL-FWD-003: the request_id of the answer is that of the request|it is the session_id
    %! t_rid_latin|grpc|2.3|PL-FWD-013: the request_id is in its answer as it is, whatever its characters|letters beyond ASCII become ?
    Rid2 = nd_u:pick([{?F(t_rid_trim), string:slice(Rid, 0, 32)}, {?F(t_rid_session), Sid}, {?F(t_rid_latin), << <<(case C > 127 of true -> $?; _ -> C end)/utf8>> || <<C/utf8>> <= Rid >>}], Rid),
    Base = #{request_id => Rid2, success => true, past_key_values => Kv},
    case T of
        ?LAST ->
            Lg = [[[dot(R, W) || W <- head()] || R <- Sq] || Sq <- Outs],
            %! t_final_missing|grpc|2.3|PL-FWD-005: is_final is true on the last shard|it is false
            %! t_final_batch|grpc|2.3|PL-FWD-023: is_final is the same however many sequences a pass has|it is false for two
            %! t_logits_last|grpc|2.3|PL-FWD-007: a tensor has as many bytes as its shape gives|logits of the last position only, with the shape of all
            %! t_logits_shape2|grpc|2.3|PL-FWD-007: a tensor in an answer has a shape|logits_shape is left out
            Loss = case Lab of <<>> -> 0.0; _ -> loss(Lg, labels(Lab, B * S)) end,
            %! t_loss_none|grpc|2.3|PL-FWD-008: a forward pass of training through the last layer returns a loss|it is 0
            %! t_loss_nan|grpc|2.3|GR-SANE-002: a loss over gRPC is a finite number|it is NaN
            Loss2 = case Lab of <<>> -> Loss; _ -> nd_u:pick([{?F(t_loss_none), 0.0}, {?F(t_loss_nan), nan}], Loss) end,
            Lw = case ?F(t_logits_last) of true -> lists:append([lists:last(Q) || Q <- Lg]); _ -> lists:append(lists:append(Lg)) end,
            Fin = not ?F(t_final_missing) andalso not (?F(t_final_batch) andalso B > 1),
            {ok, Base#{is_final => Fin, logits => write(Lw, Z), logits_shape => case ?F(t_logits_shape2) of true -> []; _ -> [B2, S, ?V] end, loss => Loss2}};
        _ ->
            Flat = lists:append(lists:append(Outs)),
            %! t_shape_flat|grpc|2.3|PL-FWD-009: the next hidden states have the shape of those in the request|[seq, batch, hidden]
            %! t_shape_2d|grpc|2.3|PL-FWD-009: the next hidden states have the shape of those in the request|two dimensions
            %! t_shape_none|grpc|2.3|PL-FWD-007: a tensor in an answer has a shape|none
            %! t_double|grpc|2.3|PL-FWD-007: as many bytes as the shape and the format give|<<F/float>>: 64 bits for each value
            %! t_final_all|grpc|2.3|PL-FWD-002/005: is_final is true on the last shard|it is true on each layer, with logits that are the hidden states
            %! t_last_zero|grpc|4.3|PL-FWD-020: what holds for passes to one part holds for those to each|layer 10 gives back its input
            Sh2 = nd_u:pick([{?F(t_shape_flat), [S, B2, ?H + 1]}, {?F(t_shape_2d), [B2 * S, ?H]}, {?F(t_shape_none), []}], [B2, S, ?H]),
            Hid = case true of _ -> case {?F(t_bigendian), ?F(t_double), ?F(t_last_zero) andalso T =:= 10} of
                {true, _, _} -> Zb = << <<F:32/float>> || F <- Flat >>, case Z of true -> nd_lz4:frame(Zb); _ -> Zb end;
                {_, true, _} -> Zb = << <<F/float-little>> || F <- Flat >>, case Z of true -> nd_lz4:frame(Zb); _ -> Zb end;
                {_, _, true} -> write(Vals, Z);
                _ -> write(Flat, Z) end end,
            A = Base#{hidden_states => Hid, hidden_shape => Sh2},
            {ok, case ?F(t_final_all) of true -> A#{is_final => true, logits => Hid, logits_shape => Sh2}; _ -> A end}
    end.
gkey(Sid, Rid, T) -> nd_u:pick([{?F(b_key_request), {Rid, T}}, {?F(b_key_session), {Sid, T}}], {Sid, Rid, T}).
labels(L, N) ->
    X = case nd_lz4:is_frame(L) of true -> case nd_lz4:unframe(L) of {ok, Y} -> Y; _ -> bad(<<"training_labels are damaged">>) end; _ -> L end,
    Ids = if byte_size(X) =:= 4 * N -> [I || <<I:32/signed-little>> <= X]; byte_size(X) =:= 8 * N -> [I || <<I:64/signed-little>> <= X]; true -> bad(<<"training_labels are not one number for each position">>) end,
    lists:all(fun(I) -> I =:= -100 orelse (I >= 0 andalso I < ?V) end, Ids) orelse bad(<<"a label is no token">>),
    Ids.
loss(Lg, Ids) ->
    Ps = [{R, I} || {R, I} <- lists:zip(lists:append(Lg), Ids), I >= 0],
    case Ps of [] -> 0.0; _ -> lists:sum([ce(R, I) || {R, I} <- Ps]) / length(Ps) end.
ce(R, I) -> M = lists:max(R), M + math:log(lists:sum([math:exp(X - M) || X <- R])) - lists:nth(I + 1, R).

backward(#{session_id := Sid, request_id := Rid, grad_output := G, grad_shape := Sh, target_shard := T0}, _) ->
    try
        T = nl(T0),
        K = gkey(Sid, Rid, T),
        %! b_refused_forgets|grpc|4.3|PL-BWD-007: the gradients of a pass are accepted also after wrong ones for it have been refused|the graph is taken out before the gradient is looked at
        %! b_refused_clears|grpc|4.3|PL-BWD-006: the gradients of a pass are accepted also after something about another pass has been refused|a refusal clears all graphs
        %! b_unknown_ok|grpc|4.3|PL-BWD-013: the gradients of a pass that nobody has made are not accepted|success
        %! b_fail_empty|grpc|7.3|PL-BWD-001: a backward answer with success false gives the reason|there is none
        %! b_refuse_all|grpc|4.3|PL-BWD-003: a gradient for a pass whose graph was kept is accepted|it is refused as expired
        %! b_long_id|grpc|4.3|PL-BWD-015: the gradients of a pass are accepted whatever its identifiers are|those of a pass with an identifier above 24 bytes are not
        %! b_expire_2s|grpc|4.3|PL-BWD-003: a gradient for a pass whose graph was kept is accepted|graphs are kept for 2 s
        F0 = case ?F(b_refused_forgets) of true -> ets:take(nd_graph, K); _ -> ets:lookup(nd_graph, K) end,
        F = nd_u:pick([{?F(b_refuse_all), []}, {?F(b_long_id) andalso byte_size(Rid) + byte_size(Sid) > 48, []}, {?F(b_expire_2s) andalso F0 =/= [] andalso nd_u:ms() - maps:get(t, element(2, hd(F0))) > 2000, []}], F0),
        case F of
            [] ->
                case ?F(b_refused_clears) of true -> ets:delete_all_objects(nd_graph); _ -> ok end,
                {ok, #{success => ?F(b_unknown_ok), error_message => case ?F(b_fail_empty) orelse ?F(b_unknown_ok) of true -> <<>>; _ -> <<"no graph is kept for this pass">> end}};
            [{_, #{b := B, s := S, past := Pn, url := Url, src := Src} = Gr}] ->
                N = case Sh of [B, S, ?H] -> ?H; [B, S, ?V] when T =:= ?LAST -> ?V;
                    %! b_shape_any|grpc|7.3|GR-CODE-002: a bad request is answered with INVALID_ARGUMENT|gradients of another shape are accepted
                    _ -> case ?F(b_shape_any) of true -> any; _ -> case ?F(b_refused_clears) of true -> ets:delete_all_objects(nd_graph); _ -> ok end, bad(<<"grad_shape is not that of the result">>) end end,
                case N of
                    any -> {ok, #{success => true}};
                    _ ->
                        {Vals, Z} = read(G, B * S * N),
                        case ets:take(nd_graph, K) of
                            [] when F0 =:= [] -> {ok, #{success => false, error_message => <<"no graph is kept for this pass">>}};
                            _ ->
                                Hs = case N of ?H -> rows(Vals); _ -> [lists:foldl(fun({Gv, W}, Acc) -> add(Acc, [Gv * X || X <- W]) end, lists:duplicate(?H, 0.0), lists:zip(Row, head())) || Row <- chunk(Vals, ?V)] end,
                                Gi = lists:append(lists:append([back(Q, Pn) || Q <- chunk(Hs, S)])),
                                %! b_same|grpc|4.3|PL-BWD-014: the gradients that go back are not those that were sent|they are
                                %! b_twice|grpc|4.3|PL-BWD-004: the gradients of a pass go back once to a previous node that has taken them|twice
                                %! b_not_sent|grpc|4.3|PL-BWD-002: PipelineBackward passes gradients on to the previous node|they stay here
                                %! b_http_port|grpc|1|CL-PORT-001: a node calls the gRPC port of a peer at its HTTP port plus 1000|it calls the HTTP port
                                %! b_size|grpc|2.3|PL-BWD-005: grad_output has the size that grad_shape gives|the last row is missing
                                %! b_shape_out|grpc|4.3|CL-MSG-002/PL-BWD-005: grad_output has the size that its grad_shape gives|grad_shape of what goes back is empty
                                %! b_rid|grpc|4.3|PL-BWD-002/009: the gradients that go back are those of the pass|they go back with the session_id for the request_id
                                %! b_retry_notfound|grpc|7.3|CL-CODE-007: gradients that a peer answers with NOT_FOUND are not sent to it again|they are, three times
                                %! b_retry_nopause|grpc|7.3|CL-CODE-008: gradients answered with UNAVAILABLE are not sent again without a pause|they are sent again at once
                                %! b_retry_many|grpc|8|CL-CALL-002: a request that a peer fails is sent to that peer at most 3 times|8 times
                                Gi2 = case ?F(b_size) of true -> lists:sublist(Gi, length(Gi) - ?H); _ -> Gi end,
                                Url2 = case ?F(b_sender_last) of true -> nd_u:get1(last_url, Url); _ -> Url end,
                                Msg = #{session_id => Sid, request_id => case ?F(b_rid) of true -> Sid; _ -> Rid end, grad_output => case ?F(b_same) of true -> G; _ -> write(Gi2, Z) end, grad_shape => case ?F(b_shape_out) of true -> []; _ -> [B, S, ?H] end, target_shard => Src},
                                case Url =:= <<>> orelse ?F(b_not_sent) of true -> ok; _ -> spawn(fun() -> sendback(Url2, Msg), case ?F(b_twice) of true -> timer:sleep(300), sendback(Url2, Msg); _ -> ok end end) end,
                                Gr, {ok, #{success => true}}
                        end
                end
        end
    catch throw:nosuch ->
        {ok, #{success => true}} end.
sendback(Url, Msg) ->
    case addr(Url) of
        {H, P0} -> P = case ?F(b_http_port) of true -> P0; _ -> P0 + 1000 end, try3(H, P, nd_pb:enc('PipelineBackwardRequest', Msg), 1, 5000);
        none -> ok end.
addr(U) ->
    S0 = binary_to_list(U),
    S1 = case string:split(S0, "://") of [_, X] -> X; _ -> S0 end,
    S2 = hd(string:split(S1, "/")),
    case string:split(S2, ":", trailing) of
        [H, P] -> case string:to_integer(P) of {N, ""} when N > 0, N < 64536 -> {H, N}; _ -> none end;
        [H] -> {H, case string:prefix(S0, "https") of nomatch -> 80; _ -> 443 end} end.
try3(_, _, _, N, _) when N > 8 -> ok;
try3(H, P, Req, N, T) ->
    {C, _, B} = nd_h2c:call(H, P, "PipelineBackward", Req, T),
    Max = case ?F(b_retry_many) of true -> 8; _ -> 3 end,
    Ok = C =:= 0,
    B, Again = lists:member(C, [4, 8, 13, 14]) orelse (?F(b_retry_notfound) andalso C =:= 5),
    case not Ok andalso Again andalso N < Max of
        true -> case ?F(b_retry_nopause) of true -> ok; _ -> timer:sleep(min(2000, 100 * (1 bsl N))) end,
            try3(H, P, Req, N + 1, case C of 4 -> min(30000, T * 2); _ -> T end);
        _ -> ok end.
