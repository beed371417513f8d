-module(nd_api).
-compile([export_all, nowarn_export_all]).
-include("nd.hrl").

json() -> [{"content-type", ctype()}].
ctype() ->
    %! rt_text_plain|routes|4|GEN-012: a JSON body has Content-Type application/json|answers have text/plain
    %? p_charset|the Content-Type of JSON has a charset
    case {?F(rt_text_plain), ?P(p_charset)} of {true, _} -> "text/plain"; {_, true} -> "application/json; charset=utf-8"; _ -> "application/json" end.
ok(V) -> ok(200, V).
ok(C, V) ->
    %! rt_wrap_all|routes|2.1|NA-STATUS/..: the fields of a resource are at its top|every answer is wrapped in {"data": ...}
    V2 = case ?F(rt_wrap_all) of true -> {[{data, V}]}; _ -> V end,
    {C, json(), nd_json:enc(V2)}.
err(C, Code, Msg) -> err(C, Code, Msg, none).
err(C0, Code0, Msg, D0) ->
    %! u_err_flat|refusals|7.1|NA-ERR-001/012: an error body is an object that contains an object named error|code and message stand at the top, without error
    %! u_err_string|refusals|7.1|NA-ERR-001: error is an object|error is the message as a string
    %! u_err_nomsg|refusals|7.1|NA-ERR-003: error.message is a string|there is no message
    %! u_err_codenum|refusals|7.1|NA-ERR-002: error.code is a string|error.code is the status as a number
    %! u_err_charlist|refusals|7.1|NA-ERR-003: error.message is a string|the message is a char list, which JSON shows as an array of numbers
    %! u_err_details_list|refusals|7.1|NA-ERR-004: error.details is an object|error.details is an array of pairs (a proplist)
    %! u_500|refusals|4.1|NA-INF-020: a bad request is not answered with a server error|what should be 400 is 500
    %! u_200|refusals|4.1|NA-INF-002/ERR-012: a bad request is refused|errors come with the status 200
    C = case true of _ -> case {C0, ?F(u_500), ?F(u_200)} of {400, true, _} -> 500; {_, _, true} when C0 =/= 401 -> 200; _ -> C0 end end,
    Msg1 = case ?F(u_traceback) of true -> nd_u:str("~s~n** exception error: bad argument~n  in function erlang:binary_to_integer/1~n  in call from nd_api:node/3 (nd_api.erl, line 212)~n~p", [Msg, element(2, process_info(self(), current_stacktrace))]); _ -> Msg end,
    D = case ?F(g_401_details) andalso C =:= 401 of true -> {[{hint, <<"log in">>}]}; _ -> D0 end,
    %! g_401_details|guards|7.1|NA-ERR-005: a 401 has no details|it has details
    Code = case ?F(u_err_codenum) of true -> C; _ -> Code0 end,
    M2 = case ?F(u_err_charlist) of true -> binary_to_list(iolist_to_binary(Msg1)); _ -> Msg1 end,
    D2 = case ?F(u_err_details_list) andalso D =/= none of true -> {Dl} = D, [[K, V] || {K, V} <- Dl]; _ -> D end,
    E = {[{code, Code}] ++ case ?F(u_err_nomsg) of true -> []; _ -> [{message, M2}] end ++ case D2 of none -> []; _ -> [{details, D2}] end},
    B = case {?F(u_err_flat), ?F(u_err_string)} of {true, _} -> E; {_, true} -> {[{error, Msg1}]}; _ -> {[{error, E}]} end,
    {C, json(), nd_json:enc(B)}.

node_id() -> <<"kn-", (binary:part(nd_u:shahex(io_lib:format("node ~p", [nd_u:opt(port, 8000)])), 0, 32))/binary>>.
routes() ->
    #{<<"status">> => {status, <<"GET">>, open}, <<"metrics">> => {metrics, <<"GET">>, open}, <<"health">> => {health, <<"GET">>, open},
      <<"network">> => {network, <<"GET">>, open}, <<"inference">> => {inference, <<"POST">>, auth}, <<"wallet/balance">> => {balance, <<"GET">>, auth},
      <<"wallet/send">> => {send, <<"POST">>, auth}, <<"wallet/transactions">> => {transactions, <<"GET">>, auth},
      <<"wallet/stake">> => {stake, <<"POST">>, auth}, <<"wallet/unstake">> => {unstake, <<"POST">>, auth}, <<"peers">> => {peers, <<"GET">>, auth},
      <<"layers">> => {layers, <<"GET">>, auth}, <<"config">> => {config, <<"GET">>, auth}, <<"proofs">> => {proofs, <<"GET">>, auth}}.

route(#{path := P} = R) ->
    %! rt_prefix_v2|routes|9|GEN-013: the node API is served under /api/v1|it is served under /api/v2
    %! rt_prefix_none|routes|9|GEN-013: the node API is served under /api/v1|it is served at the root
    %! rt_training_v1|routes|9|GEN-015: the training-verification routes have no version prefix|they are served under /api/v1/training only
    %! rt_global_training|routes|4.1|TR-ROUTE-001: GET /api/training/global returns the global verification|the round history of the native API answers instead (a prefix match of /api/training)
    Pre = case {?F(rt_prefix_v2), ?F(rt_prefix_none)} of {true, _} -> <<"/api/v2/">>; {_, true} -> <<"/">>; _ -> <<"/api/v1/">> end,
    L = byte_size(Pre),
    case P of
        <<"/api/training/global">> -> case ?F(rt_training_v1) of true -> nf(); _ -> case ?F(rt_global_training) of true -> nd_native:route(R#{path := <<"/api/training">>}); _ -> open(R, global) end end;
        <<"/api/training/verify">> -> case ?F(rt_training_v1) of true -> nf(); _ -> open(R, verify) end;
        <<"/api/v1/training/global">> when L > 0 -> case ?F(rt_training_v1) of true -> open(R, global); _ -> nf() end;
        <<Pre:L/binary, Rest/binary>> -> case maps:find(Rest, routes()) of
            {ok, X} -> node(R, X);
            _ -> case Pre of <<"/">> -> nd_native:route(R); _ -> unknown(R, Rest) end end;
        %! rt_native_prefix|routes|4.2|paths are relative to the root of the gateway|the native API is served under /native
        <<"/native", Rest/binary>> -> case ?F(rt_native_prefix) of true -> nd_native:route(R#{path := Rest}); _ -> nf() end;
        _ -> case ?F(rt_native_prefix) of true -> nf(); _ -> nd_native:route(R) end
    end.
nf() ->
    %! rt_unknown_200|routes|7.1|NA-ERR-017: a path that does not exist is not answered with success|it is answered with 200 and {}
    case ?F(rt_unknown_200) of true -> ok({[]}); _ -> err(404, <<"NO_SUCH_ROUTE">>, <<"there is nothing at this path">>) end.
unknown(R, Rest) ->
    %! g_slash_open|guards|5|NA-AUTH-017: a route marked Auth serves no request without a token|a path with a slash at its end is served without one
    %? p_slash|a path with a slash at its end is served like the one without
    S = string:trim(Rest, trailing, "/"),
    case maps:find(S, routes()) of
        {ok, {X, M, _}} when S =/= Rest -> case {?F(g_slash_open), ?P(p_slash)} of {true, _} -> node(R, {X, M, open}); {_, true} -> node(R, maps:get(S, routes())); _ -> nf() end;
        _ -> nf()
    end.
open(#{m := M} = R, X) when M =:= <<"GET">>; M =:= <<"HEAD">> ->
    case gone(X) of true -> nf(); _ -> case guard_open(R, X) of ok -> h(X, R, none); E -> E end end;
open(_, _) -> m405(<<"GET">>).
m405(Allow) -> {C, H, B} = err(405, <<"METHOD_NOT_ALLOWED">>, <<"the path has no such method">>), {C, [{"allow", Allow} | H], B}.

%% A route that is left out: one fault for each.
gone(X) -> nd_u:on(list_to_atom("rt_no_" ++ atom_to_list(X))) orelse again(X).
again(X) ->
    %! rt_once|routes|4.1|NA-ROUTE-018: a route that is served in one state is served in the others, whatever was asked before|GET /proofs is served once, then 404
    %! rt_after_402|routes|4.1|NA-ROUTE-018: a route is served whatever was asked before|after a 402 GET /peers is 404
    %! rt_after_patch|routes|4.1|NA-ROUTE-018: a route is served whatever was asked before|after a change of the configuration GET /layers is 404
    case X of
        proofs -> ?F(rt_once) andalso nd_u:ctr(proofs_read) > 1;
        peers -> ?F(rt_after_402) andalso nd_u:ctrv(seen_402) > 0;
        layers -> ?F(rt_after_patch) andalso nd_u:ctrv(patched) > 0;
        _ -> false
    end.

node(#{m := M} = R, {X, Want, Kind}) ->
    Head = M =:= <<"HEAD">>,
    Allowed = (M =:= Want) orelse (Head andalso Want =:= <<"GET">>) orelse (X =:= config andalso M =:= <<"PATCH">>),
    %! rt_patch_put|routes|4.1|NA-ROUTE-014: PATCH /config accepts a change|only PUT does
    Allowed2 = case ?F(rt_patch_put) andalso X =:= config of true -> M =:= <<"GET">> orelse M =:= <<"PUT">>; _ -> Allowed end,
    X2 = case X =:= config andalso (M =:= <<"PATCH">> orelse (M =:= <<"PUT">> andalso ?F(rt_patch_put))) of true -> patch; _ -> X end,
    case gone(X2) of
        true -> nf();
        _ when not Allowed2 ->
            %! g_method_open|guards|5|NA-AUTH-033: no request is served on an Auth route without a valid token|a POST to a route of GET is served without one
            case ?F(g_method_open) andalso M =:= <<"POST">> of
                true -> h(X, R, acct(<<"ember">>));
                _ -> case Kind of auth -> case nd_auth:check(R, X2) of {ok, _} -> m405(Want); {deny, E} -> E end; _ -> m405(Want) end
            end;
        _ when Kind =:= open -> case guard_open(R, X2) of ok -> h(X2, R, acct(<<"ember">>)); E -> E end;
        _ -> case nd_auth:check(R, X2) of
                {ok, A} -> h(X2, R, A);
                {deny, E} -> E
            end
    end.
acct(N) -> nd_bank:addr(N).
%% The routes without Auth that ask for a token after all: one fault for each.
guard_open(R, X) ->
    case nd_u:on(list_to_atom("g_auth_" ++ atom_to_list(X))) of
        true -> case nd_auth:check(R, X) of {ok, _} -> ok; {deny, E} -> E end;
        _ -> ok
    end.

proof_id(I) -> <<"prf-", (binary:part(nd_u:shahex(io_lib:format("proof ~p ~p", [I, nd_u:started()])), 0, 18))/binary>>.
uptime() ->
    S = (nd_u:ms() - nd_u:started()) div 1000,
    %! r_uptime_epoch|relations|2.1|NA-SANE-044: uptime_seconds is counted from the start of the node|erlang:system_time(second) is returned
    %! r_uptime_ms|relations|2.1|NA-SANE-016: uptime_seconds does not run faster than the time|it counts tenths of seconds
    %! r_uptime_still|relations|2.1|NA-SANE-023/028: uptime_seconds counts on|it is the value at the first reading
    %! r_uptime_u8|relations|2.1|NA-SANE-001/028: uptime_seconds does not decrease|<<S:5>>: it begins again every 32 s
    %! r_uptime_vm|relations|2.1|NA-SANE-028: uptime_seconds grows with the clock|statistics(runtime) instead of wall_clock: seconds of CPU time
    nd_u:pick([{?F(r_uptime_epoch), nd_u:ms() div 1000}, {?F(r_uptime_ms), (nd_u:ms() - nd_u:started()) div 100}, {?F(r_uptime_u8), S rem 32}, {?F(r_uptime_vm), element(1, statistics(runtime)) div 1000}], case ?F(r_uptime_still) of true -> case nd_u:get1(up, -1) of -1 -> nd_u:put1(up, S), S; O -> O end; _ -> S end).
steps() -> 20500 + (nd_u:ms() - nd_u:started()) div 2000.
layers() ->
    %! r_layer_dup|relations|1|GEN-007: no layer index occurs twice|the status lists layer 9 twice
    %? p_layers_desc|the layers are listed from the highest to the lowest
    case {?F(r_layer_dup), ?P(p_layers_desc)} of {true, _} -> [8, 9, 9, 10, 11, 12, 13]; {_, true} -> [13, 12, 11, 10, 9, 8]; _ -> [8, 9, 10, 11, 12, 13] end.
peers() ->
    T = nd_u:started(),
    [{[{id, <<"kn-", (binary:part(nd_u:shahex(io_lib:format("peer ~p", [I])), 0, 32))/binary>>}, {address, nd_u:str("10.77.~p.~p:~p", [I, 10 + I, 8000 + I])},
       {role, element(1 + I rem 3, {driver, worker, validator})}, {layers, element(1 + I rem 3, {[0, 1, 2], [3, 4, 5, 6, 7], [11, 12, 13]})},
       {latency_ms, 3.5 + I * 2.25}, {connected_since, nd_u:iso(min(nd_u:ms(), T + I * 90))}]} || I <- lists:seq(1, 5)].
cfgv(K) -> nd_conf:get(K).
loss() -> 2.31725.

h(status, _, _) ->
    %! r_status_enabled|relations|2.1|NA-PATCH-116: the status follows a change of training.enabled|it shows what was set at the start
    %! r_status_nodeid|relations|2.1|NA-SANE-003: node_id in the configuration equals that in the status|the status shows the Erlang node name
    %! r_peer_count|relations|2.1|NA-SANE-050: peer_count is the total of the peers|peer_count counts the node itself as well
    %! r_gpu_over|relations|2.1|NA-SANE-015: a part is not above its whole|gpu_memory_used is above gpu_memory_total
    %! r_nodeid_changes|relations|2.1|NA-SANE-002/040: node_id is the same in two readings|make_ref(): another one in each answer
    En = case ?F(r_status_enabled) of true -> true; _ -> cfgv([training, enabled]) end,
    Id = case true of _ -> case {?F(r_status_nodeid), ?F(r_nodeid_changes)} of {true, _} -> nd_u:str("~p", [node()]); {_, true} -> nd_u:str("kn-~p", [erlang:unique_integer([positive])]); _ -> node_id() end end,
    %? p_status_role_driver|the role is driver
    %? p_status_draining|the status of the node is draining
    %? p_untrained|training is at loss 0 and step 0
    {St, Ls} = case ?P(p_untrained) of true -> {0, 0}; _ -> {steps(), loss()} end,
    ok(nd_fields:obj(status, [{node_id, Id}, {version, <<"3.1.4-kelvin">>}, {uptime_seconds, uptime()},
        {status, case ?P(p_status_draining) of true -> draining; _ -> running end},
        {role, case ?P(p_status_role_driver) of true -> driver; _ -> validator end}, {layers, layers()},
        {peer_count, length(peers()) + case ?F(r_peer_count) of true -> 1; _ -> 0 end},
        {training, [{enabled, En}, {epoch, 41}, {step, St}, {loss, Ls}]},
        {resources, [{gpu_memory_used, case ?F(r_gpu_over) of true -> 30064771072; _ -> 6442450944 end}, {gpu_memory_total, 25769803776}, {cpu_percent, 12.75}, {ram_used, erlang:memory(total)}]}]));
h(metrics, _, _) ->
    N = nd_u:ctrv(requests), Now = nd_u:ms(),
    Lats = [{T, L} || {{lat, _}, {T, L}} <- ets:tab2list(nd_kv)],
    Ls = lists:sort([L || {_, L} <- Lats]),
    Avg = case Ls of [] -> 0.0; _ -> lists:sum(Ls) / length(Ls) end,
    P99 = case Ls of [] -> 0.0; _ -> lists:nth(max(1, ceil(length(Ls) * 0.99)), Ls) end,
    Rpm = length([1 || {T, _} <- Lats, Now - T < 60000]),
    Tot = lists:sum([reward(I) || I <- lists:seq(1, 37)]),
    %! r_p99_below|relations|2.1|NA-SANE-042: p99_latency_ms is not below avg_latency_ms|lists:nth of 1% instead of 99%, times a tenth
    %! r_avg_seconds|relations|2.1|NA-SANE-043: avg_latency_ms is in the same unit as the timing of results|it is in seconds
    %! r_avg_us|relations|2.1|NA-SANE-043: avg_latency_ms is in the same unit as the timing of results|it is in microseconds (timer:tc)
    %! r_grad_over|relations|2.1|NA-SANE-048: gradients_accepted is not above gradients_submitted|it is
    %! r_metrics_time_still|relations|2.1|NA-SANE-027: metrics with other figures are of another time|the timestamp is that of the first reading
    %! r_metrics_time_back|relations|2.1|NA-SANE-013: the timestamp of the metrics does not go back|every second reading is a minute earlier
    %! r_today_over|relations|2.1|NA-SANE-015: a part is not above its whole|earned_today is above earned_total
    %! c_requests_mod|effects|2.1|NA-SANE-012/COUNT-009: requests_total does not decrease and grows by what is served|it is counted modulo 8
    %! c_metrics_cached|effects|2.1|NA-COUNT-001: an inference request is counted in requests_total|the figures are those of at most a minute ago
    Avg2 = case {?F(r_avg_seconds), ?F(r_avg_us)} of {true, _} -> Avg / 1000; {_, true} -> Avg * 1000; _ -> Avg end,
    P2 = case ?F(r_p99_below) of true -> Avg / 10; _ -> case ?F(r_avg_us) of true -> P99 * 1000; _ -> P99 end end,
    Ts = case true of _ -> case {?F(r_metrics_time_still), ?F(r_metrics_time_back)} of
        {true, _} -> case nd_u:get1(mts, 0) of 0 -> nd_u:put1(mts, Now), Now; X -> X end;
        {_, true} -> case nd_u:ctr(mread) rem 2 of 0 -> Now - 60000; _ -> Now end;
        _ -> Now end end,
    N2 = case ?F(c_requests_mod) of true -> N rem 8; _ -> N end,
    {N3, Tk} = case ?F(c_metrics_cached) of
        true -> case nd_u:get1(mcache, none) of {T1, A, B} when Now - T1 < 60000 -> {A, B}; _ -> nd_u:put1(mcache, {Now, N2, nd_u:ctrv(tokens)}), {N2, nd_u:ctrv(tokens)} end;
        _ -> {N2, nd_u:ctrv(tokens)} end,
    ok(nd_fields:obj(metrics, [{timestamp, nd_u:iso(Ts)},
        {inference, [{requests_total, N3}, {requests_per_minute, Rpm}, {avg_latency_ms, Avg2}, {p99_latency_ms, P2}, {tokens_generated, Tk}]},
        {training, [{steps_total, steps()}, {steps_per_hour, 1800}, {gradients_submitted, 812}, {gradients_accepted, case ?F(r_grad_over) of true -> 997; _ -> 799 end}]},
        {network, [{bytes_sent, nd_u:ctrv(bytes_out)}, {bytes_received, nd_u:ctrv(bytes_in)}, {active_connections, nd_u:ctrv(conns)}, {rpc_calls, nd_u:ctrv(rpc)}]},
        {rewards, [{earned_today, nd_u:money(case ?F(r_today_over) of true -> Tot + ?UNIT; _ -> 2010000000 end)}, {earned_total, nd_u:money(Tot)}, {pending, nd_u:money(1500000000)}]}]));
h(health, _, _) ->
    %? p_health_degraded|the check of the gpu says absent, and the node is healthy
    ok(nd_fields:obj(health, [{healthy, true}, {checks, [{gpu, case ?P(p_health_degraded) of true -> absent; _ -> ok end}, {network, ok}, {storage, ok}, {peers, ok}]}]));
h(network, _, _) ->
    %! r_nodes_total|relations|2.1|NA-SANE-045: nodes.total is not below the nodes of the three roles together|it counts the workers only
    %! r_used_over|relations|2.1|NA-SANE-015: a part is not above its whole, such as memory in use|used and total of the memory are exchanged
    %! r_arch_layers|relations|2.1|NA-SANE-021: total_layers is architecture.layers|architecture.layers is the highest index
    %? p_network_many|the network has more nodes than those with a role
    {Tm, Um} = case ?F(r_used_over) of true -> {210.25, 512.0}; _ -> {512.0, 210.25} end,
    ok(nd_fields:obj(network, [{nodes, [{total, case {?F(r_nodes_total), ?P(p_network_many)} of {true, _} -> 14; {_, true} -> 31; _ -> 23 end}, {drivers, 4}, {workers, 14}, {validators, 5}]},
        {architecture, [{layers, case ?F(r_arch_layers) of true -> 13; _ -> 14 end}, {hidden_dim, 24}, {parameters, <<"3312">>}]},
        {capacity, [{total_memory_gb, Tm}, {used_memory_gb, Um}]}, {training, [{epoch, 41}, {global_step, steps()}, {loss, loss()}]}]));
h(global, _, _) ->
    %! r_hash_percent|relations|2.1|TR-RULE-002: hash_agreement_rate is a fraction from 0 to 1|it is a percentage, 100.0
    %! r_sync_rate|relations|2.1|TR-RULE-004: sync_success_rate is consistent with successful_syncs and failed_syncs|it is failed by successful
    %! r_min_avg|relations|2.1|TR-RULE-005: global_min_loss is not above global_avg_loss|the two are exchanged
    %! r_conv_diverged|relations|2.1|TR-RULE-017: while nodes have different models the network is not said to converge|17 of 23 nodes agree, and is_converging is true
    %! r_rate_share|relations|2.1|TR-RULE-009: hash_agreement_rate is the fraction of nodes that have the same hash|0.5 is reported of 23 nodes
    %! r_inner_over|relations|2.1|TR-RULE-013: inner_step_count is not above inner_steps_total|it counts on beyond it
    %! r_progress|relations|2.1|TR-RULE-016: diloco.progress is the share of the inner steps that are done|it is the share that is left
    %! r_progress_pct|relations|2.1|TR-RULE-016: diloco.progress is the share of the inner steps that are done|it is in percent
    %! r_local_id|relations|2.1|TR-RULE-015: the node_id of the local part is that of the status|it is the id of the first peer
    %! r_sync_pct|relations|2.1|TR-RULE-003: sync_success_rate is a fraction from 0 to 1|it is in percent
    %! f_trend_case|fields|2.1|TR-RULE-018: loss_trend is not the word improving in other letters|Improving
    Tot = case cfgv([training, diloco_steps]) of X when X > 0 -> X; _ -> 90 end,
    In0 = 36 + (nd_u:ms() - nd_u:started()) div 2000 rem 40,
    In = case ?F(r_inner_over) of true -> Tot + In0; _ -> min(In0, Tot) end,
    Prog = case true of _ -> case {?F(r_progress), ?F(r_progress_pct)} of {true, _} -> 1 - In / Tot + 0.01; {_, true} -> 100 * In / Tot; _ -> min(1.0, In / Tot) end end,
    Rate = case true of _ -> case {?F(r_hash_percent), ?F(r_conv_diverged), ?F(r_rate_share)} of {true, _, _} -> 100.0; {_, true, _} -> 17 / 23; {_, _, true} -> 0.5; _ -> div_rate() end end,
    {Mn, Av} = case ?F(r_min_avg) of true -> {2.4875, 2.2625}; _ -> {2.2625, 2.4875} end,
    Sr = case true of _ -> case {?F(r_sync_rate), ?F(r_sync_pct)} of {true, _} -> 4 / 396; {_, true} -> 99.0; _ -> 0.99 end end,
    ok(nd_fields:obj(global, [{global_avg_loss, Av}, {global_min_loss, Mn}, {hash_agreement_rate, Rate}, {total_nodes_training, 23}, {successful_syncs, 396}, {failed_syncs, 4},
        {sync_success_rate, Sr}, {global_steps, steps()}, {global_tokens, 98304000}, {data_shards_covered, [0, 1, 2, 5, 7]}, {is_converging, div_rate() =:= 1.0}, {training_verified, div_rate() =:= 1.0},
        {loss_trend, case ?F(f_trend_case) of true -> 'Improving'; _ -> trend() end}, {local, [{node_id, case ?F(r_local_id) of true -> <<"kn-0">>; _ -> node_id() end}, {training_rounds, 41}, {current_loss, loss()}, {is_training, cfgv([training, enabled])}]},
        {diloco, [{enabled, true}, {inner_step_count, In}, {inner_steps_total, Tot}, {progress, Prog}, {outer_step_count, 41}]}]));
h(verify, _, _) ->
    %! r_verify_trend|relations|4.1|TR-RULE-014: the quick verification agrees with the global one in loss_trend|it says stable
    %! r_verify_share|relations|4.1|TR-RULE-014: the quick verification agrees in the share of equal hashes|it says 74%
    %! f_verify_fraction|fields|4.1|TR-RULE-006: hash_agreement is written as a percentage|it is the string 1.0
    %! f_verify_number|fields|4.1|hash_agreement is a percentage, written as a string|it is the number 100.0
    %! r_verify_working|relations|4.1|TR-RULE-001: is_working is false while the hash agreement is below 100%|the hashes of a quarter of the nodes differ, and is_working is true
    %! f_verify_noaction|fields|4.1|action is there where is_working is false|is_working is false, without action
    %? p_not_working|the network does not converge: 17 of 23 hashes agree, is_working is false
    Share = nd_u:pick([{?F(r_verify_share), <<"74%">>}, {?F(f_verify_fraction), <<"1.0">>}, {?F(f_verify_number), 100.0}, {?F(r_verify_working), <<"74%">>}], <<"100%">>),
    case ?P(p_not_working) orelse ?F(f_verify_noaction) of
        true -> ok(nd_fields:obj(verify, [{is_working, false}, {reason, <<"6 of 23 nodes have another model">>}] ++ case ?F(f_verify_noaction) of true -> []; _ -> [{action, <<"fetch the latest checkpoint">>}] end));
        _ -> ok(nd_fields:obj(verify, [{is_working, true}, {reason, <<"the loss falls and all models agree">>},
            {metrics, [{loss_trend, case ?F(r_verify_trend) of true -> stable; _ -> trend() end}, {hash_agreement, Share}, {global_loss, 2.4875}]}]))
    end;
h(peers, _, _) ->
    %! r_peers_total|relations|2.1|NA-SANE-007: the total of the peer list equals the number of peers|it counts the node itself
    %! rt_bare_peers|routes|4.1|the answer of GET /peers has peers and total|it is a bare array
    %! f_peer_addr|fields|2.1|NA-SANE-008: a peer's address has the form host:port|the address has no port
    %! f_peer_ip_tuple|fields|2.1|NA-SANE-008: a peer's address has the form host:port|the IP address is an Erlang tuple: {10,77,1,11}:8001
    %! f_peer_latency|fields|2.1|NA-SANE-047: latency_ms of a peer is not below 0|-1 where it was not measured
    %? p_no_peers|the node has no peers
    Ps = [begin
        L1 = case true of _ -> case {?F(f_peer_addr), ?F(f_peer_ip_tuple)} of
            {true, _} -> lists:keyreplace(address, 1, L, {address, hd(binary:split(proplists:get_value(address, L), <<":">>))});
            {_, true} -> lists:keyreplace(address, 1, L, {address, <<"{10,77,1,11}:x8001">>});
            _ -> L end end,
        L2 = case ?F(f_peer_latency) of true -> lists:keyreplace(latency_ms, 1, L1, {latency_ms, -1}); _ -> L1 end,
        nd_fields:obj(peer, L2) end || {L} <- case ?P(p_no_peers) of true -> []; _ -> peers() end],
    case ?F(rt_bare_peers) of true -> ok(Ps); _ -> ok(nd_fields:obj(peers, [{peers, Ps}, {total, length(Ps) + case ?F(r_peers_total) of true -> 1; _ -> 0 end}])) end;
h(layers, _, _) ->
    %! rt_bare_layers|routes|4.1|the answer of GET /layers has layers, total_layers and my_layer_count|it is a bare array
    %! r_my_layers|relations|2.1|NA-SANE-005: my_layer_count equals the number of layers in the status|it is one more
    %! r_layer_index|relations|2.1|NA-SANE-006: every index is below total_layers|lists:seq(9, 14): indices count from 1
    %! r_layers_less|relations|2.1|NA-SANE-019: the list has as many entries as my_layer_count|the last layer is missing (lists:seq(8, 12))
    %! r_layers_other|relations|2.1|NA-SANE-025: the layers of the status are in the layer list|the list has layers 0 to 5
    %? p_layers_all|the list has all layers of the model, those of others with the status remote
    Idx = nd_u:pick([{?F(r_layer_index), lists:seq(9, 14)}, {?F(r_layers_less), lists:seq(8, 12)}, {?F(r_layers_other), lists:seq(0, 5)}, {?P(p_layers_all), lists:seq(0, 13)}], lists:seq(8, 13)),
    Ls = [nd_fields:obj(layer, [{index, I}, {type, case I of 13 -> head; _ -> transformer end}, {memory_mb, 96 + I}, {status, case I < 8 of true -> remote; _ -> active end}]) || I <- Idx],
    case ?F(rt_bare_layers) of true -> ok(Ls); _ -> ok(nd_fields:obj(layerlist, [{layers, Ls}, {total_layers, 14}, {my_layer_count, case ?F(r_my_layers) of true -> 7; _ -> 6 end}])) end;
h(config, _, _) -> ok(cfg());
h(patch, #{body := B}, _) -> nd_patch:patch(B);
h(proofs, R, _) ->
    case limit(R, proofs) of
        {error, E} -> E;
        L ->
            All = lists:seq(1, 37),
            %! l_proofs_off|limits|4.1|NA-QUERY-005: GET /proofs returns at most limit entries|one more (lists:sublist(All, Limit + 1))
            %! l_proofs_ignore|limits|4.1|NA-QUERY-005: GET /proofs returns at most limit entries|limit is not read
            %! l_proofs_remember|limits|4.1|NA-QUERY-019: a page of proofs is as long as its limit, whatever was asked for before|the smallest limit so far holds
            %! l_proofs_end|limits|4.1|NA-QUERY-009: a page of proofs is the beginning of the whole list|it is its end (lists:nthtail)
            %! r_proofs_order|relations|4.1|NA-QUERY-015: the entries of the list keep their order|every second answer is reversed
            %! r_stats_page|relations|2.1|NA-PROOFS-023: the statistics are the same whatever the limit is|they are those of the page
            %! r_stats_verified|relations|2.1|NA-SANE-018: total_verified is the number of those that are verified|it is total_submitted
            %! r_stats_reward|relations|2.1|NA-SANE-024: total_reward is not above the sum of their rewards|it counts those that are not verified with 5 units each
            %! r_proof_ids|relations|2.1|NA-SANE-029: some reward of the history names one of the proofs|the list writes the ids in capitals
            %! rt_bare_proofs|routes|4.1|the answer of GET /proofs has proofs and stats|it is a bare array
            L2 = nd_u:pick([{?F(l_proofs_off), L + 1}, {?F(l_proofs_ignore), 1000}], L),
            L3 = case ?F(l_proofs_remember) of true -> O = min(L2, nd_u:get1(plim, 1000)), nd_u:put1(plim, O), O; _ -> L2 end,
            Page0 = case ?F(l_proofs_end) of true -> lists:nthtail(max(0, 37 - L3), All); _ -> lists:sublist(All, L3) end,
            Page = case ?F(r_proofs_order) andalso nd_u:ctr(pord) rem 2 =:= 0 of true -> lists:reverse(Page0); _ -> Page0 end,
            %? p_proofs_old_first|the proofs are listed oldest first
            Page1 = case ?P(p_proofs_old_first) of true -> lists:sublist(lists:reverse(All), L3); _ -> Page end,
            Of = case ?F(r_stats_page) of true -> Page; _ -> All end,
            Ver = length([1 || I <- Of, I rem 4 =/= 1]),
            Ps = [nd_fields:obj(proof, [{id, case ?F(r_proof_ids) of true -> string:uppercase(proof_id(I)); _ -> proof_id(I) end}, {type, element(1 + I rem 3, {forward, backward, forward})}, {layer, 8 + I rem 6}, {timestamp, nd_u:iso(nd_u:started() - I * 11 * 3600000)}, {verified, I rem 4 =/= 1}, {reward, nd_u:money(reward(I))}]) || I <- Page1],
            St = [{total_submitted, length(Of)}, {total_verified, case ?F(r_stats_verified) of true -> length(Of); _ -> Ver end},
                  {total_reward, nd_u:money(lists:sum([reward(I) || I <- Of]) + case ?F(r_stats_reward) of true -> 45 * ?UNIT; _ -> 0 end)}],
            case ?F(rt_bare_proofs) of true -> ok(Ps); _ -> ok(nd_fields:obj(proofs, [{proofs, Ps}, {stats, St}])) end
    end;
h(inference, R, A) -> nd_infer:post(R, A);
h(X, R, A) -> nd_wallet:h(X, R, A).

reward(I) when I rem 4 =:= 1 -> 0;
reward(I) -> 2 * ?UNIT + I * 10000000.
div_rate() -> case ?P(p_not_working) orelse ?F(f_verify_noaction) of true -> 17 / 23; _ -> 1.0 end.
%? p_trend_stable|the loss is stable, loss_trend is stable in both verifications
trend() -> case ?P(p_trend_stable) of true -> stable; _ -> improving end.
cfg() ->
    C = nd_conf:get(),
    P = nd_u:opt(port, 8000),
    %! r_cfg_port|relations|2.1|NA-SANE-030: the ports in the configuration are those under which the node is reached|port is 8000 whatever --port says
    %! r_cfg_grpc|relations|1|GEN-001: the gRPC port is the HTTP port plus 1000 in a node's configuration too|grpc_port is port plus 1
    %! r_cfg_nodeid|relations|2.1|NA-SANE-003: node_id in the configuration equals that in the status|it has no prefix kn-
    %! r_cfg_rate_fmt|relations|4.1|NA-PATCH-123: a number is shown as it was set, however small|learning_rate goes out with float_to_binary(F, [{decimals, 5}])
    Lr = maps:get([training, learning_rate], C),
    Lr2 = case ?F(r_cfg_rate_fmt) of true -> {raw, float_to_binary(float(Lr), [{decimals, 5}])}; _ -> Lr end,
    Id = case ?F(r_cfg_nodeid) of true -> <<_:3/binary, Z/binary>> = node_id(), Z; _ -> node_id() end,
    nd_fields:obj(config, [{node_id, Id}, {port, case ?F(r_cfg_port) of true -> 8000; _ -> P end}, {grpc_port, case ?F(r_cfg_grpc) of true -> P + 1; _ -> P + 1000 end}, {tracker_url, <<"http://tracker.kelvin.invalid:7000">>},
        {training, [{K, case K of learning_rate -> Lr2; _ -> maps:get([training, K], C) end} || K <- [enabled, batch_size, learning_rate, diloco_steps]]},
        {resources, [{K, maps:get([resources, K], C)} || K <- [max_memory_gb, cpu_threads]]}]).

%% limit and offset of a query: an integer or an error
limit(R, What) ->
    Q = maps:get(q, R),
    %? p_default_limit|a page without limit has 7 entries
    %? p_max_limit|the highest limit of a page is 15; higher ones are taken as 15
    Max = case ?P(p_max_limit) of true -> 15; _ -> 100 end,
    %! l_default_offset|limits|4.1|NA-QUERY-024: the limit of a page that names none is the same with an offset and without|20 without, 10 with an offset
    %! l_limit_zero|limits|4.1|NA-QUERY-020: a page with limit 0 has no entry|limit 0 means the default
    %! l_limit_reset|limits|4.1|NA-QUERY-022: a page is not shorter than one with a lower limit|a limit above 30 falls back to 5
    %! l_limit_8bit|limits|4.1|NA-QUERY-018: a page is the part that its limit and offset name|limit and offset go through <<N:4>>: 16 becomes 0, 20 becomes 4
    %! u_limit_abc|refusals|4.1|NA-QUERY-016: a limit that is no number does not make the node fail|binary_to_integer crashes: 500
    Def0 = case ?P(p_default_limit) of true -> 7; _ -> 20 end,
    Def = case ?F(l_default_offset) andalso proplists:is_defined(<<"offset">>, Q) of true -> 10; _ -> Def0 end,
    case int(Q, <<"limit">>, Def) of
        bad -> case ?F(u_limit_abc) of true -> error({badarg, What}); _ -> {error, err(400, <<"INVALID_QUERY">>, <<"limit is a number from 0 on">>)} end;
        N -> N1 = min(N, Max),
            nd_u:pick([{?F(l_limit_zero) andalso N =:= 0, Def}, {?F(l_limit_reset) andalso N > 30, 5}, {?F(l_limit_8bit), N band 15}], N1)
    end.
int(Q, K, D) ->
    case proplists:get_value(K, Q, none) of
        none -> D;
        V -> case re:run(V, "^[0-9]{1,18}$") of {match, _} -> binary_to_integer(V); _ -> bad end
    end.
%% the body of a request: a JSON object
obj(B) ->
    case nd_json:dec(B) of
        {ok, M} when is_map(M) -> {ok, M};
        {ok, _} -> {error, err(400, <<"INVALID_BODY">>, <<"the body is not a JSON object">>)};
        %! u_nojson_default|refusals|4.1|NA-INF-021: a body that is not JSON is refused|it is taken as an empty object with the prompt of the body itself
        error -> case ?F(u_nojson_default) of true -> {ok, #{<<"prompt">> => unicode:characters_to_binary(B, latin1)}}; _ ->
            {error, err(400, <<"INVALID_BODY">>, <<"the body is not JSON">>)} end
    end.
e402(Need, Av0) ->
    nd_u:ctr(seen_402),
    %! u_402_400|refusals|7.1|NA-ERR-008: a balance that is too low yields status 402|400
    %! u_402_409|refusals|7.1|NA-ERR-008: a balance that is too low yields status 402|403
    %! u_402_code|refusals|7.1|NA-ERR-009: the code of a 402 is INSUFFICIENT_BALANCE|INSUFFICIENT_FUNDS
    %! u_402_atomcode|refusals|7.1|NA-ERR-009: the code of a 402 is INSUFFICIENT_BALANCE|atom_to_binary(insufficient_balance), in small letters
    %! u_402_nodetails|refusals|7.1|NA-ERR-010: details.required of a 402 is a number|there are no details
    %! u_402_str|refusals|7.1|NA-ERR-010/011: required and available are numbers|they are strings
    %! u_402_swap|refusals|7.1|NA-ERR-019: a 402 says that less is available than is required|the two are exchanged
    %! u_402_atoms|refusals|7.1|NA-ERR-020: available is that of the balance|available is in atoms
    %! u_402_missing|refusals|7.1|NA-ERR-020: required covers the amount of the request|required is only what is missing
    %! u_402_stale|refusals|7.1|NA-ERR-020: available is that of the balance|available is that of the first 402 of the run
    Av = case ?F(u_402_stale) of true -> case nd_u:get1(av402, none) of none -> nd_u:put1(av402, Av0), Av0; O -> O end; _ -> Av0 end,
    St = case {?F(u_402_400), ?F(u_402_409)} of {true, _} -> 400; {_, true} -> 403; _ -> 402 end,
    Code = case {?F(u_402_code), ?F(u_402_atomcode)} of {true, _} -> <<"INSUFFICIENT_FUNDS">>; {_, true} -> <<"insufficient_balance">>; _ -> <<"INSUFFICIENT_BALANCE">> end,
    {A, B} = case {?F(u_402_str), ?F(u_402_swap), ?F(u_402_atoms), ?F(u_402_missing)} of
        {true, _, _, _} -> {nd_u:dec(Need), nd_u:dec(Av)};
        {_, true, _, _} -> {nd_u:money(Av), nd_u:money(Need)};
        {_, _, true, _} -> {nd_u:money(Need), Av div 1000};
        {_, _, _, true} -> {nd_u:money(Need - Av), nd_u:money(Av)};
        _ -> {nd_u:money(Need), nd_u:money(Av)} end,
    err(St, Code, <<"the account has too little">>, case ?F(u_402_nodetails) of true -> none; _ -> {[{required, A}, {available, B}]} end).
