-module(nd_rpc).
-compile([export_all, nowarn_export_all]).
-include("nd.hrl").

out(Id0, R) ->
    %! r_rpc_id|relations|4.2|NT-RULE-095: an answer of /rpc has the id of its call|it is always 1
    %! r_rpc_id_int|relations|4.2|NT-RULE-095: an answer has the id of its call, be it a number or a text|an id that is a text comes back as null
    Id = nd_u:pick([{?F(r_rpc_id), 1}, {?F(r_rpc_id_int) andalso is_binary(Id0), null}], Id0),
    nd_api:ok({[{jsonrpc, <<"2.0">>}, {id, Id} | R]}).
res(Id, V) -> out(Id, [{result, V}]).
er(Id, C, M) -> out(Id, [{error, {[{code, C}, {message, M}]}}]).
%! l_rpc_400|limits|8|LIM-014: native transactions are limited to fewer bytes than the HTTP envelope|an envelope above 1500 bytes is refused, which a transaction of 2000 does not reach the limit of
post(#{body := B}) when byte_size(B) > 65536 -> nd_native:err(413, <<"too_large">>, <<"an envelope has at most 65536 bytes">>);
post(#{body := B}) ->
    case nd_json:dec(B) of
        {ok, #{<<"method">> := M} = Q} when is_binary(M) ->
            Id = case maps:get(<<"id">>, Q, null) of I when is_binary(I); is_number(I) -> I; _ -> null end,
            P = maps:get(<<"params">>, Q, #{}),
            %! rt_rpc_no_status|routes|4.2|NT-RULE-003: POST /rpc serves the method status|it does not
            %! rt_rpc_no_block|routes|4.2|NT-RULE-018: POST /rpc serves block|it does not
            %! rt_rpc_no_validators|routes|4.2|NT-RULE-018: POST /rpc serves validators|it does not
            %! rt_rpc_no_abci_query|routes|4.2|NT-RULE-022: POST /rpc serves abci_query|it does not
            %! rt_rpc_no_broadcast_tx_sync|routes|4.2|NT-RULE-023: POST /rpc serves broadcast_tx_sync|it does not
            case nd_u:on(binary_to_atom(<<"rt_rpc_no_", M/binary>>)) andalso true of
                true -> er(Id, -32601, <<"method not found">>);
                _ -> try m(M, P, Id) catch throw:{rpc, C, T} -> er(Id, C, T) end end;
        {ok, _} -> er(null, -32600, <<"this is no call">>);
        error -> er(null, -32700, <<"this is not JSON">>)
    end.
height(P, D) ->
    V = case P of #{<<"height">> := X} -> X; [X | _] -> X; _ -> D end,
    case V of
        I when is_integer(I), I > 0 -> I;
        null -> D;
        S when is_binary(S) -> case catch binary_to_integer(S) of I when is_integer(I), I > 0 -> I; _ -> throw({rpc, -32602, <<"height is a number">>}) end;
        _ -> throw({rpc, -32602, <<"height is a number">>}) end.
m(<<"status">>, _, Id) ->
    H = nd_native:tip(), B = nd_native:blk(H),
    %! r_rpc_chain|relations|4.2|NT-RULE-070: the chain that the status of /rpc names is that of the identity|kelvin-main
    res(Id, {[{node_info, {[{network, case ?F(r_rpc_chain) of true -> <<"kelvin-main">>; _ -> <<"kelvin-3">> end}, {moniker, <<"kelvin">>}, {version, <<"0.4.0">>}]}}, {sync_info, {[{latest_block_height, integer_to_binary(H)}, {latest_block_hash, string:uppercase(maps:get(hash, B))}, {latest_block_time, nd_u:iso(maps:get(time, B))}, {catching_up, false}]}}]});
m(<<"block">>, P, Id) ->
    T = nd_native:tip(), H0 = height(P, T),
    %! r_rpc_same|relations|4.2|NT-RULE-057: POST /rpc gives different blocks for different heights|it gives the newest
    %! r_rpc_parent|relations|4.2|NT-RULE-069: a block that /rpc returns has not only the hash of the block before it|block_id has the hash of the parent, and there is no other
    %! r_rpc_string|refusals|4.2|NT-RULE-018: block is served without parameters or with a height|without a height: an error
    H = case ?F(r_rpc_same) of true -> T; _ -> H0 end,
    case {nd_native:blk(H), ?F(r_rpc_string) andalso P =:= #{}} of
        {_, true} -> throw({rpc, -32602, <<"height is missing">>});
        {none, _} -> throw({rpc, -32603, <<"the chain has no block at this height">>});
        {#{hash := Hash, parent := Pa, time := Tm, txs := Txs, app := App}, _} ->
            res(Id, {[{block_id, {[{hash, string:uppercase(case ?F(r_rpc_parent) of true -> Pa; _ -> Hash end)}]}}, {block, {[{header, {[{chain_id, <<"kelvin-3">>}, {height, integer_to_binary(H)}, {time, nd_u:iso(Tm)}, {last_block_id, {[{hash, string:uppercase(Pa)}]}}, {app_hash, string:uppercase(App)}]}}, {data, {[{txs, [base64:encode(X) || X <- Txs]}]}}]}}]}) end;
m(<<"validators">>, P, Id) ->
    H = height(P, nd_native:tip()), V = nd_chain:vals(),
    case H > nd_native:tip() of true -> throw({rpc, -32603, <<"the chain has no block at this height">>}); _ -> ok end,
    res(Id, {[{block_height, integer_to_binary(H)}, {validators, [{[{address, string:uppercase(binary:part(nd_u:shahex(O), 0, 40))}, {pub_key, {[{type, secp256k1}, {value, base64:encode(nd_key:pub(O))}]}}, {voting_power, integer_to_binary(Po)}]} || {O, Po, _} <- V]}, {count, <<"5">>}, {total, <<"5">>}]});
m(<<"abci_query">>, P, Id) ->
    {Path, D0} = case P of #{<<"path">> := A} -> {A, maps:get(<<"data">>, P, <<>>)}; [A, D1 | _] -> {A, D1}; [A] -> {A, <<>>}; _ -> throw({rpc, -32602, <<"path is missing">>}) end,
    case is_binary(Path) andalso is_binary(D0) of true -> ok; _ -> throw({rpc, -32602, <<"path and data are texts">>}) end,
    D = case nd_u:unhex(D0) of {ok, X} when X =/= <<>> -> X; _ -> D0 end,
    {C, V, L} = q(Path, D),
    res(Id, {[{response, {[{code, C}, {log, L}, {key, base64:encode(D)}, {value, case V of none -> null; _ -> base64:encode(nd_json:enc(V)) end}, {height, integer_to_binary(nd_native:tip())}]}}]});
m(<<"broadcast_tx_sync">>, P, Id) ->
    T0 = case P of #{<<"tx">> := X} -> X; [X | _] -> X; _ -> throw({rpc, -32602, <<"tx is missing">>}) end,
    Tx = try base64:decode(T0) catch _:_ -> throw({rpc, -32602, <<"tx is base64">>}) end,
    {C0, Log, Rid} = nd_chain:call({tx, Tx}),
    %! r_bc_hash|relations|4.2|NT-RULE-092: the hash that the answer to a broadcast names is that of the transaction|it is the SHA-256 of its base64
    %! u_bc_code0|refusals|4.2|NT-RULE-090: a signed request that is not accepted is refused in the answer to its broadcast|code is 0, and nothing happens
    %! r_bc_id_hash|relations|2.2|NT-RULE-040: the hash of a transaction is not its request ID|request_id in the answer is the hash
    %! u_bc_crash|refusals|5|NT-RULE-046: a bad signature is refused|a refused transaction takes the fee (50 atoms) from the account all the same
    Hash = case ?F(r_bc_hash) of true -> nd_chain:tx_hash(T0); _ -> nd_chain:tx_hash(Tx) end,
    C = case ?F(u_bc_code0) of true -> 0; _ -> C0 end,
    res(Id, {[{code, C}, {log, Log}, {hash, Hash}, {request_id, case {Rid, ?F(r_bc_id_hash)} of {none, _} -> null; {_, true} -> Hash; _ -> Rid end}]});
m(<<"job">>, P, Id) ->
    case P of #{<<"id">> := J} when is_binary(J) -> case q(<<"/job">>, J) of {0, V, _} -> res(Id, V); {_, _, L} -> er(Id, -32001, L) end; _ -> er(Id, -32602, <<"id is missing">>) end;
m(<<"jobs">>, _, Id) -> {_, V, _} = q(<<"/jobs">>, <<>>), res(Id, V);
m(M, P, Id) ->
    %! rt_rpc_netinfo|routes|4.2|NT-RULE-091: POST /rpc does not serve what a consensus engine says of its peers|net_info and dump_consensus_state are served
    %! rt_rpc_unknown_null|routes|4.2|NT-RULE-088: a method that /rpc does not have is not answered with a result, not even null|result null
    %! g_rpc_key|guards|4.2|NT-RULE-005: /rpc never gives access to private keys or administration|dump_private_key and unsafe_flush_mempool are served
    %! rt_rpc_passthrough|routes|4.2|NT-RULE-005: no access to arbitrary engine methods|every unknown method is passed on: an empty result object
    Engine = lists:member(M, [<<"net_info">>, <<"dump_consensus_state">>, <<"consensus_state">>]),
    Admin = lists:member(M, [<<"dump_private_key">>, <<"unsafe_flush_mempool">>, <<"dial_peers">>, <<"priv_validator">>, <<"private_key">>]),
    case {?F(rt_rpc_netinfo) andalso Engine, ?F(rt_rpc_unknown_null), ?F(g_rpc_key) andalso (Admin orelse binary:match(M, [<<"key">>, <<"unsafe">>, <<"dial">>]) =/= nomatch), ?F(rt_rpc_passthrough)} of
        {true, _, _, _} -> res(Id, {[{listening, true}, {n_peers, <<"2">>}, {peers, [{[{node_id, <<"aa">>}]}]}]});
        {_, true, _, _} -> res(Id, null);
        {_, _, true, _} -> res(Id, {[{key, nd_u:hex(nd_key:priv(<<"wolf">>))}]});
        {_, _, _, true} -> res(Id, {[]});
        _ -> er(Id, -32601, <<"method not found">>) end.
q(<<"/job">>, Id) ->
    %! rt_abci_job|routes|4.2|NT-RULE-044: where one of the two query paths is served so is the other|/job is an unknown path, /jobs is served
    %! rt_abci_jobs|routes|4.2|NT-RULE-044: where one of the two query paths is served so is the other|/jobs is an unknown path, /job is served
    case {?F(rt_abci_job), ets:lookup(nd_req, Id)} of
        {true, _} -> {6, none, <<"unknown path">>};
        {_, [{_, #{status := S, price := _} = Q}]} -> {0, {[{id, Id}, {status, S}]}, <<>>};
        {_, [{_, #{status := S, prompt := P, expires := E}}]} -> {0, {[{id, Id}, {status, S}, {prompt, P}, {price, 48000}, {expires_height, E}]}, <<>>};
        _ -> {4, none, <<"no such job">>} end;
q(<<"/jobs">>, _) -> case ?F(rt_abci_jobs) of true -> {6, none, <<"unknown path">>}; _ -> {0, [I || {I, #{status := pending}} <- ets:tab2list(nd_req)], <<>>} end;
q(<<"/account">>, K) -> #{nonce := N, free := F, locked := L} = nd_chain:call({acct, string:lowercase(K)}), {0, {[{nonce, N}, {spendable, F}, {locked, L}]}, <<>>};
q(_, _) -> {6, none, <<"unknown path">>}.
