-module(nd_chain).
-behaviour(gen_server).
-compile([export_all, nowarn_export_all]).
-include("nd.hrl").
-define(PRICE, 48000).
-define(QFEE, 750).
-define(CHAIN, <<"kelvin-3">>).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
call(M) -> gen_server:call(?MODULE, M, 20000).
tx_hash(B) -> string:uppercase(nd_u:shahex(B)).
request_id(Body, Pub) -> <<"req_", (binary:part(nd_u:shahex([Body, Pub]), 0, 40))/binary>>.
genesis() ->
    persistent_term:get({nd_chain, genesis}).
dataset() -> nd_json:enc({[{name, <<"kelvin-small">>}, {tokenizer, <<"bytes">>}, {rows, [[(I * J * 37) rem 251 || J <- lists:seq(1, 16)] || I <- lists:seq(1, 12)]}]}).
mk_genesis() ->
    G = nd_json:enc({[{chain_id, ?CHAIN}, {genesis_time, <<"2026-02-01T00:00:00Z">>}, {protocol, <<"0.4.0">>}, {initial_height, 1},
        {dataset, {[{path, <<"/network/dataset.json">>}, {sha256, nd_u:shahex(dataset())}]}},
        {allocations, [{[{public_key, nd_key:pubhex(N)}, {atoms, integer_to_binary(A)}]} || {N, A} <- alloc()]}]}),
    persistent_term:put({nd_chain, genesis}, G).
ghash() -> nd_u:shahex(genesis()).
alloc() -> [{<<"alba">>, 91500000}, {<<"bruno">>, 47250000}, {<<"clara">>, 800000}, {<<"dora">>, 20}, {<<"wanda">>, 3000000}, {<<"wolf">>, 3000000}].

adapter(R) -> nd_json:enc({[{kind, adapter}, {round, R}, {rank, 4}, {values, [begin <<V:16/signed, _/binary>> = nd_u:sha(<<R:32, I:32>>), V end || I <- lists:seq(1, 48)]}]}).
update(R, H, T) ->
    A = adapter(R), Sh = nd_u:shahex(A),
    <<Z:16, _/binary>> = nd_u:sha(A),
    ets:insert(nd_art, {Sh, A}),
    #{round => R, height => H, loss => round((3.25 - R * 0.0173 + Z / 6553600) * 1000000) / 1000000, held => round((3.41 - R * 0.0166 + Z / 6553600) * 1000000) / 1000000, root => nd_u:shahex([<<"root">>, Sh]), artifact => Sh, bytes => byte_size(A), time => T}.

init([]) ->
    [ets:new(T, [named_table, public, ordered_set]) || T <- [nd_blk, nd_req, nd_art]],
    mk_genesis(),
    ets:insert(nd_art, [{nd_u:shahex(X), X} || X <- [genesis(), dataset(), <<"kelvin base weights, frozen\n">>]]),
    T0 = nd_u:started(),
    Acc = maps:from_list([{nd_key:pubhex(N), #{nonce => 0, free => A, locked => 0}} || {N, A} <- alloc()]),
    S0 = #{h => 0, acc => Acc, mem => [], done => [], ups => [], seen => #{}, tick => T0},
    S = lists:foldl(fun(H, S1) ->
        Tm = T0 - (50 - H) * 1300,
        Who = case H rem 3 of 0 -> <<"bruno">>; _ -> <<"alba">> end,
        S2 = case H rem 2 of
            1 when H > 3, H < 46 ->
                Pub = nd_key:pubhex(Who),
                #{nonce := N} = maps:get(Pub, maps:get(acc, S1)),
                Silent = H =:= 9 orelse H =:= 21,
                {_, Tx} = mktx(Who, N, serving(S1), nd_u:str("what does station ~p sell", [H]), case Silent of true -> <<"prov-silent">>; _ -> <<"prov-amber">> end, H + 6),
                {_, S3} = check(Tx, S1), S3;
            _ -> S1 end,
        block(S2, Tm) end, S0, lists:seq(1, 50)),
    erlang:send_after(1300, self(), tick),
    {ok, S}.
mktx(Who, N, Root, Prompt, Prov, Exp) ->
    Body = nd_json:enc({[{chain_id, ?CHAIN}, {kind, infer}, {nonce, N}, {provider, Prov}, {checkpoint, Root}, {prompt, Prompt}, {max_tokens, 24}, {price_atoms, ?PRICE}, {expires_height, Exp}]}),
    {Body, nd_json:enc({[{body, Body}, {public_key, nd_key:pubhex(Who)}, {signature, nd_key:sign(<<"kelvin/tx/1">>, Body, Who)}]})}.
serving(#{ups := U}) -> case U of [_, _, X | _] -> maps:get(root, X); _ -> nd_u:shahex(<<"base">>) end.
acct(P, S) -> maps:get(P, maps:get(acc, S), #{nonce => 0, free => 0, locked => 0}).

parse(Tx) ->
    try
        {ok, #{<<"body">> := B, <<"public_key">> := P, <<"signature">> := G}} = nd_json:dec(Tx),
        true = is_binary(B) andalso is_binary(P) andalso is_binary(G),
        {ok, M} = nd_json:dec(B),
        {ok, B, string:lowercase(P), G, M}
    catch _:_ -> error end.

%% The preliminary check of a transaction, and with it the account's new state.
check(Tx, S) ->
    case parse(Tx) of
        error -> {{2, <<"the transaction cannot be decoded">>, none}, S};
        {ok, B, P, G, M} ->
            Hash = tx_hash(Tx), Id = request_id(B, P),
            %! g_sig_any|guards|5|NT-RULE-046: a request with a signature of other content is not accepted|signatures are not verified
            %! g_sig_prompt|guards|5|NT-RULE-046: a request with a signature of other content is not accepted|a signature of the first 64 bytes of other content counts: any well-formed DER signature passes
            %! u_chain_any|refusals|4.2|NT-RULE-047: a request signed for another chain is not accepted|the chain id is not compared
            %! u_chain_prefix|refusals|4.2|NT-RULE-047: a request signed for another chain is not accepted|string:prefix: kelvin-3x and kelvin-30 are taken
            %! u_expired_ok|refusals|3|NT-RULE-048: a request past its block expiry when it is broadcast is never completed|it is accepted and completed
            %! u_nonce_any|refusals|5|NT-RULE-051: a signed request broadcast once more changes nothing in its account|the nonce is not compared, and a repeated request is paid again
            %! u_nonce_low|refusals|4.2|an account's next nonce names the nonce of its next request|a nonce below the next one is taken as well
            %! u_funds_any|refusals|4.2|spending needs money: NT-RULE-078/050|a request of an account with too little is accepted; its balance stays
            #{nonce := N, free := F, locked := L} = A = acct(P, S),
            V = fun(K) -> maps:get(K, M, none) end,
            Sig = ?F(g_sig_any) orelse (?F(g_sig_prompt) andalso byte_size(G) > 130) orelse nd_key:verify(<<"kelvin/tx/1">>, B, G, P),
            Chain = V(<<"chain_id">>) =:= ?CHAIN orelse ?F(u_chain_any) orelse (?F(u_chain_prefix) andalso is_binary(V(<<"chain_id">>)) andalso string:prefix(V(<<"chain_id">>), ?CHAIN) =/= nomatch),
            Exp = V(<<"expires_height">>), H = maps:get(h, S),
            Seen = maps:is_key(Id, maps:get(seen, S)),
            NonceOk = V(<<"nonce">>) =:= N orelse ?F(u_nonce_any) orelse (?F(u_nonce_low) andalso is_integer(V(<<"nonce">>)) andalso V(<<"nonce">>) < N),
            AnyN = ?F(u_nonce_any),
            Cost = ?PRICE + ?QFEE,
            Prompt = V(<<"prompt">>), Mt = V(<<"max_tokens">>),
            E = if byte_size(Tx) > 8192 -> {3, <<"the transaction is too large">>};
                not Sig -> {4, <<"the signature does not fit">>};
                not Chain -> {5, <<"the transaction is for another chain">>};
                Seen, not AnyN -> {19, <<"the transaction is known already">>};
                not NonceOk -> {6, nd_u:str("the next nonce is ~p", [N])};
                not is_binary(Prompt); Prompt =:= <<>>; byte_size(Prompt) > 2048 -> {7, <<"prompt is a text of 1 to 2048 bytes">>};
                not is_integer(Mt); Mt < 1; Mt > 256 -> {7, <<"max_tokens is from 1 to 256">>};
                true -> case {lists:member(V(<<"provider">>), [<<"prov-amber">>, <<"prov-silent">>, <<"prov-field">>]), V(<<"checkpoint">>) =:= serving(S) orelse lists:member(V(<<"checkpoint">>), maps:get(roots, S, [])), V(<<"price_atoms">>), F >= Cost orelse ?F(u_funds_any)} of
                    {false, _, _, _} -> {8, <<"the provider is not known">>};
                    {_, false, _, _} -> {9, <<"the checkpoint is not served">>};
                    {_, _, Pr, _} when Pr =/= ?PRICE -> {10, nd_u:str("the price is ~p atoms", [?PRICE])};
                    {_, _, _, false} -> {11, <<"the account has too little">>};
                    _ -> case is_integer(Exp) andalso ((Exp > H andalso Exp =< H + 600) orelse (?F(u_expired_ok) andalso Exp =< H)) of
                            true -> ok; _ -> {12, <<"expires_height is not within the next 600 blocks">>} end end end,
            case E of
                ok ->
                    %! e_nonce_same|effects|4.2|NT-RULE-049: an accepted request changes the next nonce of its account|it does not
                    %! e_nonce_plus2|relations|4.2|NT-RULE-049/080: the next nonce is the one the next request has|it grows by two: a nonce is skipped
                    %! e_lock_none|effects|4.2|NT-RULE-050: an accepted request changes what its account has available or locked|nothing changes until it is completed
                    %! e_lock_double|effects|4.2|NT-RULE-078: a signed request takes no more than its total price|twice the price is locked
                    %! e_pay_other|effects|4.2|NT-RULE-085: a signed request is paid by the account whose key signed it|the other account pays
                    Free = nd_u:pick([{?F(e_lock_none), F}, {?F(e_lock_double), F - 2 * Cost}, {?F(u_funds_any), max(0, F - Cost)}], F - Cost),
                    Lock = nd_u:pick([{?F(e_lock_none), L}, {?F(e_lock_double), L + 2 * ?PRICE}], L + ?PRICE),
                    A2 = A#{nonce := nd_u:pick([{?F(e_nonce_same), N}, {?F(e_nonce_plus2), N + 2}], N + 1), free := Free, locked := Lock},
                    Other = case nd_key:pubhex(<<"alba">>) of P -> nd_key:pubhex(<<"bruno">>); O -> O end,
                    Payer = case ?F(e_pay_other) andalso H >= 50 of true -> Other; _ -> P end,
                    Acc = maps:get(acc, S),
                    Acc2 = case Payer of P -> Acc#{P => A2}; _ -> Ao = acct(Payer, S), Acc#{Payer => Ao#{free := maps:get(free, Ao) - Cost, locked := maps:get(locked, Ao) + ?PRICE}, P => A#{nonce := N + 1}} end,
                    Q = #{id => Id, status => pending, account => P, payer => Payer, prompt => Prompt, provider => V(<<"provider">>), max_tokens => Mt, checkpoint => V(<<"checkpoint">>), expires => Exp, hash => Hash, submitted => H, nonce => N, response => none, refund => none, included => none},
                    %! e_req_late|effects|3|ST-001: after its preliminary acceptance a request is pending and can be polled|it is only found once it is completed or expired
                    ets:insert(nd_req, {Id, Q}),
                    {{0, <<>>, Id}, S#{acc := Acc2, mem := maps:get(mem, S) ++ [{Tx, Id}], seen := (maps:get(seen, S))#{Id => true}}};
                {C, Log} -> {{C, Log, Id}, S}
            end
    end.

block(#{h := H0, mem := Mem} = S, T) ->
    H = H0 + 1,
    Parent = case ets:lookup(nd_blk, H0) of [{_, #{hash := P}}] -> P; [] -> nd_u:hex(<<0:256>>) end,
    Txs = [Tx || {Tx, _} <- Mem],
    Rs = [#{hash => tx_hash(Tx), id => Id, code => 0} || {Tx, Id} <- Mem],
    App = nd_u:shahex([Parent, <<"app">>]),
    Hash = nd_u:shahex(term_to_binary({H, Parent, T, Txs, App})),
    ets:insert(nd_blk, {H, #{height => H, hash => Hash, parent => Parent, time => T, app => App, txs => Txs, results => Rs, proposer => element(1, lists:nth(1 + H rem 5, vals()))}}),
    [upd(Id, fun(Q) -> Q#{included := H} end) || {_, Id} <- Mem],
    S1 = S#{h := H, mem := []},
    S2 = case (H =< 50 andalso H rem 4 =:= 0) orelse (H > 50 andalso H rem 10 =:= 4) of
        true -> R = length(maps:get(ups, S1)) + 1, S1#{ups := [update(R, H, T) | maps:get(ups, S1)], roots => lists:sublist([serving(S1) | maps:get(roots, S1, [])], 3)};
        _ -> S1 end,
    lists:foldl(fun(Q, Sx) -> step(Q, H, T, Sx) end, S2, [Q || {_, #{status := pending} = Q} <- ets:tab2list(nd_req)]).
vals() -> [{<<"harbour">>, 40, 4000000}, {<<"lantern">>, 30, 3000000}, {<<"quarry">>, 20, 2000000}, {<<"saltworks">>, 10, 1000000}, {<<"weir">>, 5, 500000}].
upd(Id, F) -> case ets:lookup(nd_req, Id) of [{_, Q}] -> ets:insert(nd_req, {Id, F(Q)}); [] -> ok end.
step(#{id := Id, included := Inc, expires := Exp, provider := Prov} = Q, H, T, S) when is_integer(Inc) ->
    %! e_expire_late|effects|3|ST-004: a pending request that has no response at its block expiry becomes expired|it expires 12 blocks later
    %! e_expire_early|effects|3|NT-RULE-096: a request that nobody answers does not expire before the chain is at its block expiry|it expires two blocks earlier
    %! e_silent_done|effects|3|NT-RULE-089: a signed request that nobody answers is not completed at its block expiry|it is completed, with an empty response
    %! e_never_done|effects|3|NT-RULE-073: a signed request is completed while a run waits for it|no request of a run is completed, they wait for their expiry
    %! e_alternate_done|effects|3|NT-RULE-073: a signed request is completed|only the requests of the first account are
    %! e_expired_completes|effects|3|NT-RULE-048: a request past its block expiry is never completed|see u_expired_ok: completions are not checked against the expiry
    Run = H > 51,
    Never = (?F(e_never_done) andalso Run) orelse (?F(e_alternate_done) andalso Run andalso maps:get(account, Q) =/= nd_key:pubhex(<<"alba">>)),
    if H >= Inc + 2, Prov =:= <<"prov-amber">>, (H =< Exp orelse Exp < Inc), not Never -> complete(Q, H, T, answer(Q), S);
       true ->
            Due = nd_u:pick([{?F(e_expire_late) andalso Run, H >= Exp + 12}, {?F(e_expire_early) andalso Run, H >= Exp - 2}], H >= Exp),
            case Due of
                true -> case ?F(e_silent_done) andalso Run of true -> complete(Q, H, T, {<<"-">>, 1}, S); _ -> expire(Q, H, T, S) end;
                _ -> S end
    end;
step(_, _, _, S) -> S.
answer(#{prompt := P, max_tokens := M}) -> {Ps, _, N} = nd_text:gen(P, M, []), {iolist_to_binary(Ps), N}.
pay(P, S, F) -> Acc = maps:get(acc, S), A = acct(P, S), S#{acc := Acc#{P => F(A)}}.
complete(#{id := Id, payer := P} = Q, H, T, {Text, N}, S) ->
    %! e_lock_stays|effects|2.2|NT-RULE-080: what was locked for a request is not locked any more once it is completed|it stays locked
    %! e_done_refund|effects|2.2|NT-RULE-098/078: a completed request is paid|the locked price goes back to the account on completion
    %! e_resp_null|effects|2.2|NT-RULE-064: the record of a completed request has a response that is not null|the response is null
    ets:insert(nd_req, {Id, Q#{status := completed, response := #{text => Text, tokens => N, height => H, time => T}}}),
    S1 = pay(P, S, fun(#{locked := L, free := F} = A) -> case {?F(e_lock_stays), ?F(e_done_refund)} of {true, _} -> A; {_, true} -> A#{locked := L - ?PRICE, free := F + ?PRICE + ?QFEE}; _ -> A#{locked := max(0, L - ?PRICE)} end end),
    keep(Id, S1).
expire(#{id := Id, payer := P} = Q, H, T, S) ->
    %! e_refund_none|effects|3|ST-004/NT-RULE-071: an expired request has its money back, a refund record says so|the record says so, the money stays locked
    %! e_refund_more|effects|3|NT-RULE-098: after the refund of a request its account has no more than before it|twice the price is refunded
    %! e_refund_fee_twice|effects|3|NT-RULE-098: after the refund its account has no more than before it|the fee is refunded twice
    %! e_refund_norecord|effects|3|NT-RULE-062: the record of an expired request says something of its refund|the record has no refund
    ets:insert(nd_req, {Id, Q#{status := expired, refund := #{atoms => ?PRICE, height => H, time => T, to => P}}}),
    S1 = pay(P, S, fun(#{locked := L, free := F} = A) -> case {?F(e_refund_none) andalso H > 50, ?F(e_refund_more) andalso H > 50, ?F(e_refund_fee_twice)} of {true, _, _} -> A; {_, true, _} -> A#{locked := max(0, L - ?PRICE), free := F + 2 * ?PRICE}; {_, _, true} -> A#{locked := max(0, L - ?PRICE), free := F + ?PRICE + 2 * ?QFEE}; _ -> A#{locked := max(0, L - ?PRICE), free := F + ?PRICE} end end),
    keep(Id, S1).
keep(Id, #{done := D} = S) ->
    %! l_kept_8|limits|8|LIM-008: the latest 128 completed or expired jobs can be looked up|only the latest 12
    Max = case ?F(l_kept_8) of true -> 12; _ -> 128 end,
    {New, Old} = lists:split(min(Max, length(D) + 1), [Id | D]),
    [ets:delete(nd_req, O) || O <- Old],
    S#{done := New}.

handle_call(state, _, S) -> {reply, S, S};
handle_call({acct, P}, _, S) -> {reply, acct(P, S), S};
handle_call(mem, _, S) -> {reply, length(maps:get(mem, S)), S};
handle_call({tx, Tx}, _, S) -> {R, S2} = check(Tx, S), {reply, R, S2};
handle_call({result, Id, Text, N}, _, S) ->
    case ets:lookup(nd_req, Id) of
        [{_, #{status := pending} = Q}] -> {reply, ok, complete(Q, maps:get(h, S), nd_u:ms(), {Text, N}, S)};
        [{_, Q}] ->
            %! e_resp_replace|effects|3|NT-RULE-081/083: the response of a completed request is the same in each reading|a later result of a worker replaces it, with success
            case ?F(e_resp_replace) of true -> ets:insert(nd_req, {Id, Q#{status := completed, response := #{text => Text, tokens => N, height => maps:get(h, S), time => nd_u:ms()}}}), {reply, ok, S}; _ -> {reply, done, S} end;
        [] -> {reply, none, S} end.
handle_cast(_, S) -> {noreply, S}.
handle_info(tick, S) ->
    %? p_slow_blocks|blocks are made every 2.6 s
    erlang:send_after(case ?P(p_slow_blocks) of true -> 2600; _ -> 1300 end, self(), tick),
    {noreply, (block(S, nd_u:ms()))#{tick := nd_u:ms()}};
handle_info(_, S) -> {noreply, S}.
