-module(nd_fields).
-export([obj/2, table/0]).
-include("nd.hrl").

%% Objects of answers. The plain slips of single fields are in a table: {Fault, Resource, Path, Slip}.
obj(Name, L) ->
    F = persistent_term:get(nd_switch, none),
    L2 = case F of
        none -> L;
        _ -> case lists:keyfind(F, 1, table()) of
                {_, Name, Path, Op, _, _} -> slip(L, Path, Op);
                _ -> L end end,
    wrap(L2).
wrap(L) -> {[{K, w(V)} || {K, V} <- L]}.
w([{K, _} | _] = L) when is_atom(K) -> wrap(L);
w(V) -> V.
slip(L, [K], Op) -> lists:append([case X of {K, V} -> op(K, V, Op); _ -> [X] end || X <- L]);
slip(L, [K | R], Op) -> [case X of {K, V} when is_list(V) -> {K, slip(V, R, Op)}; _ -> X end || X <- L].
op(_, _, drop) -> [];
op(_, V, {name, N}) -> [{N, V}];
op(K, V, str) when is_binary(V) -> [{K, V}];
op(K, V, str) -> [{K, nd_json:enc(case V of [{_, _} | _] -> wrap(V); _ -> V end)}];
op(K, _, {set, N}) -> [{K, N}];
op(K, V, {mul, N}) -> [{K, V * N}];
op(K, V, neg) -> [{K, -V - 1}];
op(K, V, arr) -> [{K, [w(V)]}];
op(K, V, {add, N}) -> [{K, V + N}].

table() -> [
    {f_st_uptime_float, status, [uptime_seconds], {add, 0.5}, "NA-STATUS-006: uptime_seconds is an int", "it has a fraction"},
    {f_st_no_version, status, [version], drop, "GEN-014/NA-STATUS-003: the status has a version", "it is missing"},
    {f_st_role_null, status, [role], {set, null}, "NA-STATUS-010: role is a string", "null (the atom undefined)"},
    {f_st_layers_str, status, [layers], str, "NA-STATUS-012: layers is an array of int", "a string"},
    {f_st_layers_chars, status, [layers], {set, <<8,9,10,11,12,13>>}, "NA-STATUS-012: layers is an array of int", "the list of indices is taken for a char list and goes out as a string"},
    {f_st_enabled_str, status, [training, enabled], str, "NA-STATUS-018: training.enabled is a bool", "the string true"},
    {f_st_loss_none, status, [training, loss], drop, "NA-STATUS-023: training.loss is present", "it is missing"},
    {f_st_cpu_str, status, [resources, cpu_percent], {set, <<"12.75%">>}, "NA-STATUS-032: cpu_percent is a number", "a string with a percent sign"},
    {f_st_ram_neg, status, [resources, ram_used], neg, "NA-SANE-004: sizes are not negative", "it is negative"},
    {f_st_peers_name, status, [peer_count], {name, peerCount}, "NA-STATUS-013: peer_count is present", "it is called peerCount"},
    {f_st_nodeid_empty, status, [node_id], {set, <<>>}, "NA-SANE-014: identifiers are not empty", "it is empty"},
    {f_st_step_float, status, [training, step], {add, 0.25}, "NA-STATUS-022: training.step is an int", "it has a fraction"},
    {f_me_total_str, metrics, [inference, requests_total], str, "NA-METRICS-006: requests_total is an int", "a string"},
    {f_me_no_rewards, metrics, [rewards], drop, "NA-METRICS-035: rewards is present", "it is missing"},
    {f_me_time_int, metrics, [timestamp], {set, 1790000000}, "NA-METRICS-002/GEN-008: timestamp is an ISO string", "seconds since 1970"},
    {f_me_rpc_name, metrics, [network, rpc_calls], {name, grpc_calls}, "NA-METRICS-033: network.rpc_calls is present", "another name"},
    {f_me_hour_float, metrics, [training, steps_per_hour], {set, {raw, <<"1800.4">>}}, "NA-METRICS-020: steps_per_hour is an int", "it has a fraction"},
    {f_me_nan, metrics, [inference, avg_latency_ms], {set, {raw, <<"NaN">>}}, "GEN-010: NaN does not exist in JSON", "avg_latency_ms is NaN"},
    {f_he_healthy_str, health, [healthy], {set, ok}, "NA: healthy is a bool", "the word ok"},
    {f_he_check_bool, health, [checks, peers], {set, true}, "NA: checks.peers is a string", "true"},
    {f_he_checks_arr, health, [checks], arr, "NA: checks is an object", "an array"},
    {f_he_ok_upper, health, [checks, gpu], {set, 'OK'}, "NA-SANE-049: ok is not written in other letters", "OK"},
    {f_in_finish_null, inference, [finish_reason], {set, null}, "NA: finish_reason is a string", "null"},
    {f_in_usage_flat, inference, [usage], drop, "NA: usage is present", "it is missing"},
    {f_in_cost_num, inference, [cost], {set, 0.015}, "NA: cost is an object", "a number"},
    {f_in_timing_str, inference, [timing, total_ms], str, "NA: timing.total_ms is a number", "a string"},
    {f_in_text_name, inference, [text], {name, output}, "NA: text is present", "it is called output"},
    {f_in_id_int, inference, [id], {set, 17}, "NA: id is a string", "a number"},
    {f_ba_pending_none, balance, [balances, pending], drop, "NA: balances.pending is present", "it is missing"},
    {f_ba_dur_str, balance, [staking, duration_days], str, "NA: staking.duration_days is an int", "a string"},
    {f_ba_addr_obj, balance, [address], arr, "NA: address is a string", "an array of one"},
    {f_ba_mult_none, balance, [staking, multiplier], drop, "NA: staking.multiplier is there where something is staked", "it is missing"},
    {f_se_memo_none, send, [memo], drop, "NA: memo is present", "it is missing"},
    {f_se_fee_str, send, [fee], {set, <<"0.0125">>}, "NA: fee is a number", "a string"},
    {f_se_status_bool, send, [status], {set, true}, "NA: status is a string", "true"},
    {f_se_id_name, send, [transaction_id], {name, id}, "NA: transaction_id is present", "it is called id"},
    {f_tx_type_upper, txreward, [type], {set, 'REWARD'}, "NA-SANE-049: reward is not written in other letters", "REWARD"},
    {f_tx_details_none, txreward, [details], drop, "NA: details of a reward is present", "it is missing"},
    {f_tx_to_none, txsend, [to], drop, "NA: to of a send is present", "it is missing"},
    {f_tx_total_str, transactions, [total], str, "NA: total is an int", "a string"},
    {f_sk_success_str, stake, [success], {set, <<"true">>}, "NA: success is a bool", "a string"},
    {f_sk_new_none, stake, [new_balance], drop, "NA: new_balance is there where success is true", "it is missing"},
    {f_un_cool_str, unstake, [unstake, cooldown_days], {set, <<"9 days">>}, "NA: cooldown_days is an int", "a string"},
    {f_pe_since_none, peer, [connected_since], drop, "NA: connected_since is present", "it is missing"},
    {f_pe_layers_str, peer, [layers], {set, <<"0-2">>}, "NA: layers of a peer is an array of int", "a range as string"},
    {f_la_mem_str, layer, [memory_mb], {set, <<"104 MB">>}, "NA: memory_mb is an int", "a string with a unit"},
    {f_la_total_none, layerlist, [total_layers], drop, "NA: total_layers is present", "it is missing"},
    {f_ne_params_int, network, [architecture, parameters], {set, 3312}, "NA: architecture.parameters is a string", "a number"},
    {f_ne_nodes_int, network, [nodes], {set, 23}, "NA: nodes is an object", "a number"},
    {f_co_lr_str, config, [training, learning_rate], {set, <<"3.5e-4">>}, "NA: learning_rate is a number", "a string"},
    {f_co_port_str, config, [port], str, "NA: port is an int", "a string"},
    {f_gl_shards_int, global, [data_shards_covered], {set, 5}, "NA: data_shards_covered is an array of int", "a count"},
    {f_gl_verified_int, global, [training_verified], {set, 1}, "NA: training_verified is a bool", "1"},
    {f_gl_failed_neg, global, [failed_syncs], {set, -1}, "TR-RULE-011: counts are not negative", "-1"},
    {f_ve_reason_empty, verify, [reason], {set, <<>>}, "TR-RULE-010: reason is not empty", "it is empty"},
    {f_pr_verified_int, proof, [verified], {set, 1}, "NA: verified is a bool", "1"},
    {f_pr_stats_none, proofs, [stats], drop, "NA: stats is present", "it is missing"},
    {f_pa_updated_str, patch, [updated], {set, <<"training.batch_size">>}, "NA: updated is an array of string", "a string"}
].
