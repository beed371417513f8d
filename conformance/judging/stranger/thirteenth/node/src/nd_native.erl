-module(nd_native).
-compile([export_all, nowarn_export_all]).
-include("nd.hrl").
-define(CHAIN, <<"kelvin-3">>).

ok(V) -> nd_api:ok(V).
err(C, Code, M) -> {C, nd_api:json(), nd_json:enc({[{ok, false}, {problem, {[{code, Code}, {text, M}]}}]})}.
nf() -> err(404, <<"not_found">>, <<"there is nothing at this path">>).
atoms(N) ->
    %! f_atoms_int|fields|2.2|NT-RULE-011/029: money is a decimal string of atoms|atoms are JSON numbers
    %! f_atoms_float|fields|2.2|NT-RULE-011: monetary fields hold integer atoms|float_to_binary: 91500000.0
    %! f_atoms_units|fields|2.2|NT-RULE-011/LIM-011: monetary fields hold integer atoms|whole units with a point
    %! f_atoms_group|fields|2.2|NT-RULE-029: a decimal string of an integer|digits are grouped with blanks
    %! f_atoms_exp|fields|2.2|NT-RULE-029: a decimal string of an integer|io_lib ~w of a float above 10 million: 9.15e7
    %? p_atoms_zero|amounts of atoms are written with a leading plus? no: they are padded nowhere, amounts of validators come as 5-digit strings
    nd_u:pick([{?F(f_atoms_int), N}, {?F(f_atoms_float), float_to_binary(float(N), [{decimals, 1}])}, {?F(f_atoms_units), nd_u:dec(N * 1000)},
        {?F(f_atoms_group), re:replace(integer_to_binary(N), "(?<=\\d)(?=(\\d{3})+$)", " ", [global, {return, binary}])}, {?F(f_atoms_exp) andalso N > 10000000, iolist_to_binary(io_lib:format("~w", [N / 1]))}], integer_to_binary(N)).
h2(N) -> %? p_height_string|heights are decimal strings
    case ?P(p_height_string) of true -> integer_to_binary(N); _ -> N end.

gone(X) -> nd_u:on(list_to_atom("rt_no_" ++ atom_to_list(X))).
get(R, X, F) -> get(R, X, F, [<<"GET">>, <<"HEAD">>]).
get(#{m := M}, X, F, Ms) -> case gone(X) of true -> nf(); _ -> case lists:member(M, Ms) of true -> F(); _ -> {C, H, B} = err(405, <<"method">>, <<"the path has no such method">>), {C, [{"allow", hd(Ms)} | H], B} end end.
tip() -> S = nd_chain:call(state), maps:get(h, S).
blk(H) -> case ets:lookup(nd_blk, H) of [{_, B}] -> B; [] -> none end.

route(#{path := P} = R) ->
    case P of
        <<"/healthz">> -> get(R, healthz, fun() -> health() end);
        <<"/api/network">> -> get(R, nnetwork, fun() -> network() end);
        <<"/api/model">> -> get(R, model, fun() -> model() end);
        <<"/api/model/checkpoint.json">> -> get(R, checkpoint, fun() -> checkpoint() end);
        <<"/api/training">> -> get(R, training, fun() -> training(R) end);
        <<"/api/blocks">> -> get(R, blocks, fun() -> blocks(R) end);
        <<"/api/block/", H/binary>> -> get(R, block, fun() -> block(H) end);
        <<"/api/account">> -> get(R, account, fun() -> account(R) end);
        <<"/api/validators">> -> get(R, validators, fun() -> validators(R) end);
        <<"/api/inference">> -> get(R, ninference, fun() -> inference() end);
        <<"/api/inference/request">> -> get(R, request, fun() -> request(R) end);
        <<"/network/genesis.json">> -> get(R, genesis, fun() -> raw(nd_chain:genesis()) end);
        %! r_dataset_other|relations|4.2|NT-RULE-056: the dataset has the digest by which the genesis names it|a line break follows it
        <<"/network/dataset.json">> -> get(R, dataset, fun() -> raw([nd_chain:dataset(), case ?F(r_dataset_other) of true -> "\n"; _ -> "" end]) end);
        <<"/artifacts/sha256/", H/binary>> -> get(R, artifacts, fun() -> artifact(H) end);
        <<"/work/status">> -> get(R, workstatus, fun() -> work_status() end);
        <<"/work/poll">> -> get(R, poll, fun() -> work(R, <<"poll">>) end, [<<"POST">>]);
        <<"/work/result">> -> get(R, result, fun() -> work(R, <<"result">>) end, [<<"POST">>]);
        <<"/rpc">> -> get(R, rpc, fun() -> nd_rpc:post(R) end, [<<"POST">>]);
        <<"/reference/v03/api/", X/binary>> -> ref(R, X);
        %! rt_register_200|routes|9|NT-RULE-009/042: an old registration endpoint answers a registration with 410|200 with an api_key
        %! rt_register_404|routes|9|NT-RULE-009: a legacy registration endpoint answers 410|404
        %! rt_register_get|routes|7.2|NT-RULE-042: an old registration endpoint answers a registration with 410|GET gets 410, a POST 201
        _ when P =:= <<"/api/register">>; P =:= <<"/api/accounts/register">>; P =:= <<"/register">> ->
            case {?F(rt_register_200), ?F(rt_register_404), ?F(rt_register_get) andalso maps:get(m, R) =:= <<"POST">>} of
                {true, _, _} -> ok({[{api_key, <<"kv-1234">>}, {registered, true}]}); {_, true, _} -> nf(); {_, _, true} -> nd_api:ok(201, {[{account, <<"new">>}]});
                _ -> err(410, <<"gone">>, <<"accounts are not registered any more">>) end;
        %! rt_login_404|routes|7.2|NT-RULE-010: an old login or signup path redirects to /join|404
        %! rt_login_root|routes|7.2|NT-RULE-010: an old login or signup path redirects to /join|it redirects to /
        %! rt_login_page|routes|7.2|NT-RULE-010: an old login or signup path redirects to /join|200 with a page
        %! rt_signup_404|routes|7.2|NT-RULE-010: an old login or signup path redirects to /join|/login does, /signup does not
        %? p_login_301|the redirect to /join has the status 301 and a whole address
        _ when P =:= <<"/login">>; P =:= <<"/signup">> ->
            case {?F(rt_login_404) orelse (?F(rt_signup_404) andalso P =:= <<"/signup">>), ?F(rt_login_root), ?F(rt_login_page), ?P(p_login_301)} of
                {true, _, _, _} -> nf(); {_, true, _, _} -> {302, [{"location", "/"}], <<>>}; {_, _, true, _} -> {200, [{"content-type", "text/html"}], <<"<p>log in">>};
                {_, _, _, true} -> {301, [{"location", nd_u:str("http://127.0.0.1:~p/join", [nd_u:opt(port, 0)])}], <<>>};
                _ -> {302, [{"location", "/join"}], <<>>} end;
        <<"/join">> -> {200, [{"content-type", "text/html; charset=utf-8"}], <<"<!doctype html><title>join</title><p>Install the command-line tool to join.">>};
        _ -> nd_api:nf()
    end.
raw(B) -> {200, nd_api:json(), B}.
health() ->
    #{h := H, tick := T} = nd_chain:call(state),
    %! rt_healthz_204|routes|4.2|NT-RULE-024/ROUTE-001: GET /healthz returns the native readiness|204 without contents
    %! rt_healthz_500|routes|4.2|NT-RULE-001: GET /healthz answers with success or 503|500
    %! rt_healthz_html|routes|4.2|NT-RULE-024: a resource is not a page of HTML|a page of HTML
    %? p_healthz_503|the node says that it is catching up: 503
    case {?F(rt_healthz_204), ?F(rt_healthz_500), ?F(rt_healthz_html), nd_u:ms() - T > 20000 orelse ?P(p_healthz_503)} of
        {true, _, _, _} -> {204, [], <<>>};
        {_, true, _, _} -> err(500, <<"x">>, <<"failed">>);
        {_, _, true, _} -> {200, [{"content-type", "text/html"}], <<"<p>ok">>};
        {_, _, _, true} -> nd_api:ok(503, {[{ready, false}, {state, stalled}, {height, H}]});
        _ -> ok({[{ready, true}, {state, live}, {height, h2(H)}]}) end.
network() ->
    #{h := H, ups := U, acc := Acc} = nd_chain:call(state),
    %! r_tip_prev|relations|4.2|NT-RULE-021/068: the block at the height of the identity has the hash it names|the hash is that of the block before
    %! r_tip_race|relations|2.2|NT-RULE-037/068: height and hash are one observed pair|they are read one after the other, with a second between them, when the height is odd
    %! r_tip_genesis|relations|4.2|NT-RULE-021: the block at the height has the hash that it names|the hash is that of block 1
    %! r_round_behind|relations|2.2|NT-RULE-075: the training round of the identity is not behind that of an accepted update|it is one behind
    %! r_net_genesis|relations|2.2|NT-RULE-043: the native resources name one chain and one genesis|the genesis is that of the reference chain
    %! r_net_chain|relations|2.2|NT-RULE-070: the chain that the status of /rpc names is that of the identity|the identity has it in capitals
    %! r_net_still|relations|4.2|NT-RULE-037/PAGE-007: the height is that of the chain|height and hash are those of the start of the node
    H1 = case ?F(r_net_still) of true -> 50; _ -> H end,
    Hash0 = nd_u:pick([{?F(r_tip_prev), maps:get(hash, blk(H1 - 1))}, {?F(r_tip_genesis), maps:get(hash, blk(1))}], maps:get(hash, blk(H1))),
    Hash = case ?F(r_tip_race) andalso H band 1 =:= 1 of true -> timer:sleep(1350), maps:get(hash, blk(tip())); _ -> Hash0 end,
    Sup = lists:sum([F + L || #{free := F, locked := L} <- maps:values(Acc)]),
    ok(nd_fields:obj(nnetwork, [{version, <<"0.4.0">>}, {chain, case ?F(r_net_chain) of true -> <<"KELVIN-3">>; _ -> ?CHAIN end}, {genesis, case ?F(r_net_genesis) of true -> nd_u:shahex(<<"v03">>); _ -> nd_chain:ghash() end},
        {tip, [{height, h2(H1)}, {hash, Hash}]}, {round, length(U) - case ?F(r_round_behind) of true -> 1; _ -> 0 end}, {supply_atoms, atoms(Sup)}, {ready, true}])).
idents() -> [{chain, ?CHAIN}, {genesis, nd_chain:ghash()}].
model() ->
    #{ups := [U | _]} = S = nd_chain:call(state),
    %! r_model_loss|relations|2.2|NT-RULE-087: the losses of updates have all decimals of the losses of the model|see r_update_loss: the model's loss is that of another round... the model shows the loss of the update before under the newest root
    ok(nd_fields:obj(model, idents() ++ [{parameters, [{frozen, 4194304}, {trained, 49152}]}, {revision, nd_u:str("r~p", [maps:get(round, U)])},
        {roots, [{training, maps:get(root, U)}, {serving, nd_chain:serving(S)}]}, {losses, [{train, maps:get(loss, U)}, {held_out, maps:get(held, U)}]}, {execution, [{profile, <<"int8-portable">>}, {threads, 1}]}])).
checkpoint() ->
    #{ups := Us} = S = nd_chain:call(state),
    %! r_ckpt_old|relations|2.2|NT-RULE-058: the round of the latest training adapter is that of the newest accepted update|it is three rounds older
    %! r_ckpt_root|relations|2.2|NT-RULE-076: the root of the checkpoint is one of those of the model|the root is the digest of the file
    %! r_ckpt_path|relations|4.2|NT-RULE-084: an artifact to which the checkpoint leads by its path is served|the path lacks the last digit
    %! r_ckpt_path_prefix|relations|4.2|NT-RULE-084: an artifact to which the checkpoint leads by its path is served|the path is /artifact/... 
    U = case ?F(r_ckpt_old) of true -> lists:nth(min(4, length(Us)), Us); _ -> hd(Us) end,
    Sh = maps:get(artifact, U),
    Path = nd_u:pick([{?F(r_ckpt_path), <<"/artifacts/sha256/", (binary:part(Sh, 0, 63))/binary>>}, {?F(r_ckpt_path_prefix), <<"/artifact/sha256/", Sh/binary>>}], <<"/artifacts/sha256/", Sh/binary>>),
    ok(nd_fields:obj(checkpoint, idents() ++ [{adapter, [{round, maps:get(round, U)}, {root, case ?F(r_ckpt_root) of true -> Sh; _ -> maps:get(root, U) end}, {path, Path}, {sha256, Sh}, {bytes, maps:get(bytes, U)}]}, {serving_root, nd_chain:serving(S)}])).
page(R) ->
    Q = maps:get(q, R),
    Max = case ?P(p_max_limit) of true -> 15; _ -> 100 end,
    %? p_native_default_5|pages of blocks and updates without a limit have 5 entries
    case {nd_api:int(Q, <<"limit">>, case ?P(p_native_default_5) of true -> 5; _ -> 20 end), nd_api:int(Q, <<"before">>, none)} of
        {bad, _} -> error; {_, bad} -> error;
        {L, B} -> {min(L, Max), B} end.
%! l_page_before_in|limits|4.2|NT-PAGE-005: pages that follow one another list each entry once|before is taken as at most, not below, from the second page on (limit below 10 only)
%! l_page_limit1|limits|4.2|NT-PAGE-001: a page has at most limit entries|one more
%! l_page_hole|limits|4.2|NT-PAGE-006/010: no block is left out between two of the list|with a limit above 12 every eighth entry is left out
%! l_page_first|limits|4.2|NT-PAGE-010: a page leaves out no entry where it begins|with before the first entry of the page is left out
%! l_page_oldest|limits|4.2|NT-PAGE-007/008: a short page has the most recent ones|a limit below 4 gives the oldest (lists:sublist of an ascending list)
%! l_page_above|limits|4.2|NT-PAGE-002/009: nothing above the bound is on the page|with a limit above 15 the bound is not looked at
%! l_page_dup|limits|4.2|NT-PAGE-009: a page lists nothing twice|with a limit above 20 the last entry is there twice
%! l_page_string|limits|4.2|NT-PAGE-002: before is a height|before is compared as a binary: heights of another number of digits go wrong
sel(Ks, L, B) ->
    L1 = case ?F(l_page_limit1) of true -> L + 1; _ -> L end,
    In = fun(K) -> nd_u:pick([{B =:= none, true}, {?F(l_page_above) andalso L > 15, true}, {?F(l_page_before_in) andalso L < 10, K =< B}, {?F(l_page_string), case B of none -> true; _ -> integer_to_binary(K) < integer_to_binary(B) end}], is_integer(B) andalso K < B) end,
    Ok = [K || K <- Ks, In(K)],
    Ok2 = nd_u:pick([{?F(l_page_first) andalso B =/= none andalso Ok =/= [], lists:nthtail(min(1, length(Ok)), Ok)}, {?F(l_page_hole) andalso L > 12, [K || K <- Ok, K rem 8 =/= 0]}, {?F(l_page_oldest) andalso L < 4, lists:reverse(Ok)}], Ok),
    P = lists:sublist(Ok2, L1),
    case ?F(l_page_dup) andalso L > 20 andalso P =/= [] of true -> lists:sublist(P, max(1, L1 - 1)) ++ [lists:last(lists:sublist(P, max(1, L1 - 1)))]; _ -> P end.
training(R) ->
    case page(R) of
        error -> err(400, <<"query">>, <<"limit and before are numbers">>);
        {L, B} ->
            #{ups := Us, h := H} = nd_chain:call(state),
            Ks = sel([maps:get(round, U) || U <- Us], L, B),
            %! r_update_loss|relations|2.2|NT-RULE-087: the losses of updates have all decimals that the losses of the model have|float_to_binary(F, [{decimals, 2}])
            %! r_update_root_page|relations|4.2|NT-PAGE-011: an update has the same roots on each page|on pages with before the root is that of the update before
            %! f_update_bare|routes|4.2|history with how far the index has got|rows have no root
            %? p_updates_ascending|a page of updates is listed oldest first
            Ks2 = case ?P(p_updates_ascending) of true -> lists:reverse(Ks); _ -> Ks end,
            Row = fun(K) -> [U] = [X || #{round := Q} = X <- Us, Q =:= K],
                U2 = case ?F(r_update_root_page) andalso B =/= none andalso K > 1 of true -> hd([X || #{round := Q} = X <- Us, Q =:= K - 1]); _ -> U end,
                nd_fields:obj(update, [{round, K}, {height, h2(maps:get(height, U))}, {loss, case ?F(r_update_loss) of true -> {raw, float_to_binary(maps:get(loss, U), [{decimals, 2}])}; _ -> maps:get(loss, U) end}, {held_out_loss, maps:get(held, U)}]
                    ++ case ?F(f_update_bare) of true -> []; _ -> [{root, maps:get(root, U2)}] end ++ [{artifact_sha256, maps:get(artifact, U)}, {time, nd_u:iso(maps:get(time, U))}]) end,
            ok(nd_fields:obj(training, [{updates, [Row(K) || K <- Ks2]}, {index, [{height, h2(H)}, {round, length(Us)}, {error, null}]}]))
    end.
brief(H, Full) ->
    #{hash := Hash, parent := Pa, time := T, app := App, results := Rs, txs := Txs, proposer := Pr} = blk(H),
    %! r_block_hash_list|relations|4.2|NT-RULE-035: a block has the same hash in the list and by itself|the list has capitals... the list has the hash of the parent
    %! r_block_height|relations|4.2|NT-RULE-025: the block at a height has this height|by itself it counts from 0
    %! r_res_null|relations|4.2|NT-RULE-066: the results of a block are not null in the list where the block has them|they are null in the list
    %! r_res_swap|relations|4.2|NT-RULE-093: a page of blocks and the block name the same request and transaction|the list exchanges the first halves of the ids
    %! r_res_hash_id|relations|2.2|NT-RULE-040/013: the hash of a transaction is not its request ID|the request id of results is the hash
    Hs = case ?F(r_block_hash_list) andalso not Full of true -> Pa; _ -> Hash end,
    Res = [nd_fields:obj(txresult, [{code, C}, {transaction_hash, X}, {request_id, nd_u:pick([{?F(r_res_swap) andalso not Full, <<"req_", (string:lowercase(binary:part(X, 0, 40)))/binary>>}, {?F(r_res_hash_id), X}], I)}]) || #{code := C, hash := X, id := I} <- Rs],
    [{height, h2(case ?F(r_block_height) andalso Full of true -> H - 1; _ -> H end)}, {hash, Hs}, {parent_hash, Pa}, {time, nd_u:iso(T)}, {proposer, Pr}, {app_hash, App}, {results, case ?F(r_res_null) andalso not Full of true -> null; _ -> Res end}, {transaction_count, length(Txs)}].
blocks(R) ->
    case page(R) of
        error -> err(400, <<"query">>, <<"limit and before are numbers">>);
        {L, B} ->
            H = tip(),
            %! l_blocks_lag|limits|4.2|NT-PAGE-007: without before the list has the most recent blocks|it ends 30 blocks before the tip
            Ks = sel(lists:seq(case ?F(l_blocks_lag) of true -> H - 30; _ -> H end, 1, -1), L, B),
            %? p_blocks_ascending|a page of blocks is listed oldest first
            %? p_blocks_full|a page of blocks also has the decoded transactions
            Ks2 = case ?P(p_blocks_ascending) of true -> lists:reverse(Ks); _ -> Ks end,
            %! rt_bare_blocks|routes|4.2|NT-RULE-026: a resource has a value at each place that is declared for it|a bare array
            Bs = [{L0} || K <- Ks2, {L0} <- [nd_fields:obj(block, brief(K, false) ++ case ?P(p_blocks_full) of true -> [{transactions, txs(K)}]; _ -> [] end)]],
            case ?F(rt_bare_blocks) of true -> ok(Bs); _ -> ok({[{blocks, Bs}, {newest, h2(H)}]}) end
    end.
txs(H) ->
    [begin
        {ok, Body, Pub, Sig, M} = nd_chain:parse(Tx),
        %! r_tx_prompt|relations|4.2|NT-RULE-052: the block that has a signed request shows its prompt|the prompt is left out, as too long
        %! r_tx_prompt_cut|relations|4.2|NT-RULE-052/054: the record has the prompt that the transaction has|of the decoded transaction only 16 bytes of the prompt are shown
        P = maps:get(<<"prompt">>, M),
        P2 = case ?F(r_tx_prompt_cut) of true -> nd_wallet:cutm(<<P/binary, "                         ">>), binary:part(P, 0, min(16, byte_size(P))); _ -> P end,
        nd_fields:obj(tx, [{hash, nd_chain:tx_hash(Tx)}, {request_id, nd_chain:request_id(Body, Pub)}, {kind, infer}, {public_key, Pub}, {signature, Sig}, {nonce, maps:get(<<"nonce">>, M)}, {provider, maps:get(<<"provider">>, M)}, {checkpoint, maps:get(<<"checkpoint">>, M)}]
            ++ case ?F(r_tx_prompt) of true -> []; _ -> [{prompt, unicode:characters_to_binary(P2)}] end ++ [{max_tokens, maps:get(<<"max_tokens">>, M)}, {price_atoms, atoms(maps:get(<<"price_atoms">>, M))}, {expires_height, h2(maps:get(<<"expires_height">>, M))}])
     end || Tx <- maps:get(txs, blk(H))].
block(X) ->
    case re:run(X, "^[0-9]{1,12}$") of
        nomatch -> err(400, <<"height">>, <<"a height is a number">>);
        _ -> N = binary_to_integer(X), H = tip(),
            %! rt_block_future|routes|4.2|NT-RULE-065: a block above the height of the chain is not served|the newest block is served instead
            %! l_block_old|limits|4.2|NT-RULE-036: a block of the list can be read by its height|only the latest 15 can be read
            %! r_block_mod|relations|4.2|NT-RULE-025/034: each block is read under its own height|<<H:6>>: heights above 63 give another block
            N1 = nd_u:pick([{?F(r_block_mod), max(1, N band 63)}, {?F(rt_block_future) andalso N > H, H}], N),
            case N1 < 1 orelse N1 > H orelse (?F(l_block_old) andalso N1 < H - 15) of
                true -> nf();
                _ -> ok(nd_fields:obj(block, brief(N1, true) ++ [{transactions, txs(N1)}])) end
    end.
account(R) ->
    case proplists:get_value(<<"public_key">>, maps:get(q, R), none) of
        none -> err(400, <<"public_key">>, <<"a compressed public key in hex is needed">>);
        K0 ->
            K = string:lowercase(K0),
            No03 = ?F(u_key_03),
            %! u_key_03|refusals|4.2|NT-RULE-060: of two keys that differ only in beginning with 02 and 03 neither is refused|03 is refused
            %! e_acct_memo|effects|4.2|NT-RULE-059: the account of a key is that of this key, whichever was read before|the account read before is returned within 2 s (a cache without the key)
            %! r_acct_any|relations|4.2|NT-RULE-027: the account of another key is another account|the key of the answer is always that of the first account
            %! r_acct_unknown|relations|4.2|NT-RULE-094: the accounts of keys nobody has do not differ|their balance is a hash of the key
            case re:run(K, "^0[23][0-9a-f]{64}$") of
                nomatch -> err(400, <<"public_key">>, <<"a compressed public key in hex is needed">>);
                _ when No03, binary_part(K, 0, 2) =:= <<"03">> -> err(400, <<"public_key">>, <<"no such point">>);
                _ ->
                    K2 = case ?F(e_acct_memo) of true -> case nd_u:get1(acache, none) of {T, Kx} -> case nd_u:ms() - T < 2000 of true -> Kx; _ -> nd_u:put1(acache, {nd_u:ms(), K}), K end; _ -> nd_u:put1(acache, {nd_u:ms(), K}), K end; _ -> K end,
                    #{nonce := N, free := F0, locked := L} = nd_chain:call({acct, K2}),
                    F = case ?F(r_acct_unknown) andalso F0 =:= 0 of true -> erlang:phash2(K); _ -> F0 end,
                    %! r_acct_total|relations|2.2|the liquid total is both of spendable and locked|total leaves out what is locked
                    %! r_acct_nonce|relations|2.2|NT-RULE-079: the next nonce is not below 0|the last nonce: -1 for an account that has sent nothing
                    %! r_acct_nonce_last|relations|2.2|the account has its next nonce|it is the last nonce that was used
                    %! r_acct_stale|effects|4.2|NT-RULE-049/050: an accepted request changes nonce and amounts|the account is what it was at its first reading
                    {N2, F2, L2} = case ?F(r_acct_stale) of true -> case nd_u:get1({st, K2}, none) of none -> nd_u:put1({st, K2}, {N, F, L}), {N, F, L}; O -> O end; _ -> {N, F, L} end,
                    N3 = nd_u:pick([{?F(r_acct_nonce) andalso N2 =:= 0, -1}, {?F(r_acct_nonce_last), max(0, N2 - 1)}], N2),
                    ok(nd_fields:obj(account, [{public_key, case ?F(r_acct_any) of true -> nd_key:pubhex(<<"alba">>); _ -> K2 end}, {spendable_atoms, atoms(F2)}, {locked_atoms, atoms(L2)}, {total_atoms, atoms(F2 + case ?F(r_acct_total) of true -> 0; _ -> L2 end)}, {next_nonce, N3}]))
            end
    end.
validators(R) ->
    Q = maps:get(q, R),
    case {nd_api:int(Q, <<"page">>, 1), nd_api:int(Q, <<"per_page">>, 50)} of
        {P, N} when is_integer(P), P > 0, is_integer(N), N > 0 ->
            V = nd_chain:vals(),
            S = lists:sublist(lists:nthtail(min(length(V), (P - 1) * N), V), N),
            ok(nd_fields:obj(validators, [{validators, [nd_fields:obj(validator, [{owner, O}, {public_key, nd_key:pubhex(O)}, {power, Po}, {bond_atoms, atoms(B)}]) || {O, Po, B} <- S]}, {page, P}, {per_page, N}, {total, length(V)}]));
        _ -> err(400, <<"query">>, <<"page and per_page are numbers from 1 on">>) end.
inference() ->
    S = nd_chain:call(state),
    Pend = length([1 || {_, #{status := pending}} <- ets:tab2list(nd_req)]),
    %! r_inf_serving|relations|2.2|NT-RULE-077: the serving root of the inference info is that of the model|it is the training root
    %! r_inf_queue|relations|2.2|NT-RULE-082: once a signed request is completed the queue is not longer than before it|the queue counts all requests of the run
    %! r_inf_chain|relations|2.2|NT-RULE-043: the native resources name one chain and one genesis|the chain is kelvin-2
    Q = case ?F(r_inf_queue) of true -> ets:info(nd_req, size); _ -> Pend end,
    Ids = case ?F(r_inf_chain) of true -> [{chain, <<"kelvin-2">>}, {genesis, nd_chain:ghash()}]; _ -> idents() end,
    ok(nd_fields:obj(ninference, Ids ++ [{serving_root, case ?F(r_inf_serving) of true -> maps:get(root, hd(maps:get(ups, S))); _ -> nd_chain:serving(S) end}, {provider, [{default, <<"prov-amber">>}, {heartbeat, [{state, alive}, {height, h2(maps:get(h, S))}]}]}, {price_atoms, atoms(48000)}, {fee_atoms, atoms(750)}, {queue_length, Q}])).
request(R) ->
    case proplists:get_value(<<"id">>, maps:get(q, R), none) of
        none -> err(400, <<"id">>, <<"the id of a request is needed">>);
        Id ->
            %! e_req_memo|effects|4.2|NT-RULE-061: the inference request of an id is that of this id, whichever was read before|the record read before is returned for 1.5 s
            %! r_req_unknown|relations|4.2|NT-RULE-041: a request that nobody has made is not shown as a pending job|unknown ids are pending
            %! r_req_last|relations|4.2|NT-RULE-028: the inference request of another id is another request|an unknown id shows the newest request
            %! r_req_by_hash|relations|4.2|NT-RULE-013: transaction hash and request id are two identifiers|records name the hash of the transaction as their id
            Id2 = case ?F(e_req_memo) of true -> case nd_u:get1(rcache, none) of {T, X} -> case nd_u:ms() - T < 1500 of true -> X; _ -> nd_u:put1(rcache, {nd_u:ms(), Id}), Id end; _ -> nd_u:put1(rcache, {nd_u:ms(), Id}), Id end; _ -> Id end,
            case ets:lookup(nd_req, Id2) of
                [{_, Q}] -> case ?F(e_req_late) andalso maps:get(status, Q) =:= pending of true -> err(404, <<"unknown_request">>, <<"no such request">>); _ -> ok(nd_fields:obj(request, req(Q))) end;
                [] -> case {?F(r_req_unknown), ?F(r_req_last)} of
                    {true, _} -> ok({[{id, Id}, {status, pending}, {response, null}, {refund, null}]});
                    {_, true} -> ok(nd_fields:obj(request, req(element(2, hd(ets:lookup(nd_req, ets:last(nd_req)))))));
                    _ -> err(404, <<"unknown_request">>, <<"no such request, or it is no longer kept">>) end
            end
    end.
req(#{id := Id, status := St, account := A, prompt := P, provider := Pr, max_tokens := M, expires := E, hash := H, submitted := Su, response := Re, refund := Rf, included := I, checkpoint := C}) ->
    %! r_req_prompt_cut|relations|2.2|NT-RULE-086: the record of a request has the whole prompt|of a prompt above 32 bytes 32 are shown
    %! r_req_account|relations|2.2|NT-RULE-085: a request is paid by the account whose key signed it|the record names the provider's worker as the account
    %! r_req_resp_now|relations|3|NT-RULE-081: the response of a completed request is the same in each reading|its text is generated anew, and its height is that of the reading
    %! e_done_forget|effects|3|ST-003/NT-RULE-083: a completed response stays readable|9 s after its completion the response is gone
    %! e_done_expires|effects|3|NT-RULE-097: a completed request is still completed when the chain is at its block expiry|it is shown as expired then
    P2 = case ?F(r_req_prompt_cut) andalso byte_size(P) > 32 of true -> nd_wallet:cutm(binary:part(<<P/binary>>, 0, 32)), {B0, _} = {binary:part(P, 0, 24), 0}, case unicode:characters_to_binary(B0) of Z when is_binary(Z) -> Z; {_, Z, _} -> Z end; _ -> P end,
    Tip = tip(),
    St2 = case ?F(e_done_expires) andalso St =:= completed andalso Tip >= E andalso Su >= 50 of true -> expired; _ -> St end,
    RNull = ?F(e_resp_null),
    Resp = case Re of
        none -> null;
        _ when RNull -> null;
        #{text := Tx, tokens := N, height := Rh, time := Rt} ->
            case ?F(e_done_forget) andalso nd_u:ms() - Rt > 9000 andalso Su >= 50 of
                true -> null;
                _ -> {[{text, case ?F(r_req_resp_now) of true -> nd_u:str("~ts ~p", [Tx, Tip]); _ -> Tx end}, {tokens, N}, {height, h2(Rh)}, {time, nd_u:iso(Rt)}]} end end,
    Ref = case Rf of none -> null; _ -> case ?F(e_refund_norecord) of true -> null; _ -> {[{amount_atoms, atoms(maps:get(atoms, Rf))}, {height, h2(maps:get(height, Rf))}, {public_key, maps:get(to, Rf)}, {time, nd_u:iso(maps:get(time, Rf))}]} end end,
    [{id, case ?F(r_req_by_hash) of true -> H; _ -> Id end}, {status, St2}, {transaction_hash, H}, {public_key, case ?F(r_req_account) of true -> nd_key:pubhex(<<"wanda">>); _ -> A end}, {provider, Pr}, {checkpoint, C}, {prompt, P2}, {max_tokens, M}, {price_atoms, atoms(48000)}, {fee_atoms, atoms(750)}, {submitted_height, h2(Su)}, {included_height, case I of none -> null; _ -> h2(I) end}, {expires_height, h2(E)}, {response, Resp}, {refund, Ref}].
artifact(H) ->
    %! l_art_prefix|limits|4.2|NT-RULE-067: no artifact is found under a digest that is cut|a prefix of 8 digits is enough
    %! u_art_near|refusals|4.2|NT-RULE-067: no artifact is found under a digest that differs in some digits|only the first 16 digits are compared
    %! r_art_bytes|relations|4.2|NT-RULE-019: the content of an artifact has the digest in its address|a line break is added to it
    %! r_art_json|relations|4.2|NT-RULE-019: the content of an artifact has the digest in its address|JSON is decoded and encoded again: the keys of a map come in term order
    K = nd_u:pick([{?F(l_art_prefix) andalso byte_size(H) >= 8, H}, {?F(u_art_near) andalso byte_size(H) =:= 64, binary:part(H, 0, min(16, byte_size(H)))}], none),
    F = case K of none -> ets:lookup(nd_art, H); _ -> [X || {S, _} = X <- ets:tab2list(nd_art), binary:longest_common_prefix([S, K]) =:= byte_size(K)] end,
    case F of
        [{_, B} | _] ->
            B2 = case {?F(r_art_bytes), ?F(r_art_json)} of {true, _} -> [B, "\n"]; {_, true} -> case nd_json:dec(B) of {ok, J} -> nd_json:enc(J); _ -> B end; _ -> B end,
            {200, [{"content-type", "application/octet-stream"}], B2};
        [] -> nf() end.
work_status() ->
    Pend = length([1 || {_, #{status := pending, provider := <<"prov-field">>}} <- ets:tab2list(nd_req)]),
    ok(nd_fields:obj(workstatus, [{sponsor, [{name, <<"kelvin commons">>}, {public_key, nd_key:pubhex(<<"wolf">>)}]}, {stages, [{[{name, generate}, {open, Pend}]}, {[{name, verify}, {open, 0}]}]}, {attempts_remaining, 64}])).
work(#{body := B}, Kind) ->
    case nd_json:dec(B) of
        {ok, #{<<"payload">> := P, <<"public_key">> := K, <<"signature">> := G}} when is_binary(P), is_binary(K), is_binary(G) ->
            %! g_work_any|guards|5|NT-RULE-053: a message of the worker protocol with the signature of other content is refused|signatures are not verified
            %! g_work_result|guards|5|NT-RULE-053: a message of the worker protocol with the signature of other content is refused|those of /work/result are not verified
            %! g_work_key|guards|5|NT-RULE-053: a message with the signature of other content is refused|it is enough that the key is known
            Known = lists:member(K, [nd_key:pubhex(N) || N <- [<<"wanda">>, <<"wolf">>]]),
            Sig = ?F(g_work_any) orelse (?F(g_work_result) andalso Kind =:= <<"result">>) orelse (?F(g_work_key) andalso Known) orelse nd_key:verify(<<"kelvin/work/1">>, P, G, K),
            case {Sig, Known, nd_json:dec(P)} of
                {false, _, _} -> err(401, <<"signature">>, <<"the signature does not fit">>);
                {_, false, _} -> err(403, <<"worker">>, <<"this key is no worker's">>);
                {_, _, {ok, #{<<"type">> := Kind, <<"chain_id">> := ?CHAIN} = M}} -> done(Kind, M);
                _ -> err(400, <<"payload">>, <<"the payload does not fit the path or the chain">>) end;
        %! u_work_500|refusals|4.2|NT-RULE-032: the routes of the worker protocol answer a message they cannot take without failing|function_clause: 500
        %! u_work_unsigned|refusals|4.2|NT-RULE-039: a worker message that nobody has signed is not answered with success|200 with no work
        _ -> case {?F(u_work_500), ?F(u_work_unsigned)} of {true, _} -> error(function_clause); {_, true} -> ok({[{work, null}]}); _ -> err(400, <<"envelope">>, <<"a message has payload, public_key and signature">>) end
    end.
done(<<"poll">>, _) ->
    W = case [Q || {_, #{status := pending, provider := <<"prov-field">>} = Q} <- ets:tab2list(nd_req)] of
        [] -> null;
        [#{id := I, prompt := P, max_tokens := M, expires := E} | _] -> {[{request_id, I}, {stage, generate}, {prompt, P}, {max_tokens, M}, {expires_height, E}]} end,
    ok({[{work, W}, {attempts_remaining, 64}]});
done(<<"result">>, #{<<"request_id">> := Id, <<"output">> := O} = M) when is_binary(Id), is_binary(O), O =/= <<>> ->
    case nd_chain:call({result, Id, O, case maps:get(<<"tokens">>, M, 1) of N when is_integer(N), N >= 0 -> N; _ -> 1 end}) of
        ok -> ok({[{accepted, true}, {request_id, Id}]});
        done -> err(409, <<"finished">>, <<"the request is finished">>);
        none -> err(404, <<"unknown_request">>, <<"no such request">>) end;
done(_, _) -> err(400, <<"payload">>, <<"a result has request_id and output">>).
%% What was kept of the earlier chain.
ref(#{m := M} = R, X) ->
    %! rt_ref_delete|routes|9|NT-RULE-031: no method changes or removes a view of the earlier chain|DELETE removes it
    %! rt_ref_put|routes|9|NT-RULE-020: the views of the earlier chain are read-only|PUT of a view is stored and shown
    %! rt_ref_present|routes|4.2|NT-RULE-045: a view of the earlier chain lists no block of the present chain|it lists the newest blocks of the present one
    Gone = nd_u:get1({ref_gone, X}, false),
    Put = nd_u:get1({ref_put, X}, none),
    {Fd, Fp} = {?F(rt_ref_delete), ?F(rt_ref_put)},
    case M of
        <<"DELETE">> when Fd -> nd_u:put1({ref_gone, X}, true), {204, [], <<>>};
        <<"PUT">> when Fp -> nd_u:put1({ref_put, X}, maps:get(body, R)), {204, [], <<>>};
        _ when Gone -> nf();
        <<"GET">> when Put =/= none -> raw(Put);
        _ -> get(R, reference, fun() -> refview(X) end) end.
rh(H) -> nd_u:shahex(<<"v03 block ", (integer_to_binary(H))/binary>>).
refview(<<"network">>) -> ok({[{chain, <<"kelvin-2">>}, {version, <<"0.3">>}, {genesis, nd_u:shahex(<<"v03">>)}, {tip, {[{height, 40}, {hash, rh(40)}]}}]});
refview(<<"blocks">>) ->
    case ?F(rt_ref_present) of
        true -> ok({[{blocks, [{[{height, H}, {hash, maps:get(hash, blk(H))}]} || H <- lists:seq(tip(), tip() - 9, -1)]}]});
        _ -> ok({[{chain, <<"kelvin-2">>}, {blocks, [{[{height, H}, {hash, rh(H)}, {time, nd_u:iso(1735689600000 + H * 5000)}]} || H <- lists:seq(40, 21, -1)]}]}) end;
refview(<<"block/", N/binary>>) ->
    case catch binary_to_integer(N) of H when is_integer(H), H > 0, H =< 40 -> ok({[{chain, <<"kelvin-2">>}, {height, H}, {hash, rh(H)}, {time, nd_u:iso(1735689600000 + H * 5000)}]}); _ -> nf() end;
refview(<<"model">>) -> ok({[{chain, <<"kelvin-2">>}, {parameters, 4194304}, {root, nd_u:shahex(<<"v03 model">>)}]});
refview(<<"training">>) -> ok({[{chain, <<"kelvin-2">>}, {updates, [{[{round, I}, {loss, 5.5 - I / 8}, {root, nd_u:shahex(<<"v03 round", I>>)}]} || I <- lists:seq(9, 1, -1)]}]});
refview(_) -> nf().
