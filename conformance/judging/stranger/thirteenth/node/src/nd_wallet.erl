-module(nd_wallet).
-compile([export_all, nowarn_export_all]).
-include("nd.hrl").

%% a number of the request as an integer of 10^-9 units
amt(M) ->
    case maps:get(<<"amount">>, M, none) of
        N when is_integer(N) -> case ?F(u_amount_whole) of true -> bad; _ -> N * ?UNIT end;
        F when is_float(F) ->
            %! u_amount_float|refusals|4.1|NA-WALLET-060: a transfer of an amount that is not whole is accepted|is_integer: amounts with a fraction are refused
            %! u_amount_whole|refusals|4.1|NA-WALLET-038: a transfer of a whole unit is accepted with and without a decimal point|amounts without a decimal point are refused (is_float)
            case ?F(u_amount_float) andalso trunc(F) /= F of true -> bad; _ -> round(F * ?UNIT) end;
        %! u_amount_string|refusals|4.1|NA-WALLET-041: a value of another type is refused|an amount that is a string of digits is taken
        B when is_binary(B) -> case ?F(u_amount_string) andalso (catch binary_to_integer(B)) of N when is_integer(N) -> N * ?UNIT; _ -> bad end;
        %! u_amount_array|refusals|4.1|NA-WALLET-050: a value in an array is refused and moves nothing|an amount in an array of one is taken
        [N] when is_number(N) -> case ?F(u_amount_array) of true -> round(N * ?UNIT); _ -> bad end;
        %! u_amount_bool|refusals|4.1|NA-WALLET-040: a value that no reader can take for its type is refused|true is taken for 1
        true -> case ?F(u_amount_bool) of true -> ?UNIT; _ -> bad end;
        %! u_amount_default|refusals|4.1|NA-WALLET-051: a transfer without an amount is refused, also behind one that has both|the amount of the request before is taken
        none -> case ?F(u_amount_default) of true -> nd_u:get1(last_amount, bad); _ -> bad end;
        _ -> bad
    end.
bad(M) -> nd_api:err(400, <<"INVALID_REQUEST">>, M).

h(balance, _, A) ->
    X = nd_bank:call({balance, A}),
    Lots = maps:get(lots, X), St = nd_bank:sum(Lots), P = nd_bank:sum(maps:get(pend, X)), Av = maps:get(avail, X),
    %! r_bal_addr|relations|2.1|NA-WALLET-013/SANE-040: what names an account is the same in each answer|the address of the balance has capitals, that of transfers has not
    %! r_bal_unlock_first|relations|2.1|NA-WALLET-028: the balance does not unlock all that is staked before the latest stake is unlocked|it shows the stake that ends first
    %! r_bal_unlock_sum|relations|2.1|NA-WALLET-009: unlock_date of what is staked is start_date plus duration_days|duration_days is the sum of all stakes
    %! r_bal_staked_diff|relations|2.1|NA-WALLET-017: the staking of the balance contains the latest stake|staking.amount is that of the first stake
    %! r_bal_staking_old|relations|2.1|NA-WALLET-017: the staking contains the latest stake|staking is what it was at the reading before
    %? p_total_other|balances.total is available and staked, without what is pending
    %? p_staking_null|where nothing is staked the fields of the stake are null
    Addr = case ?F(r_bal_addr) of true -> string:uppercase(A); _ -> A end,
    Stk = case Lots of
        [] -> [{amount, nd_u:money(0)}] ++ case ?P(p_staking_null) of true -> [{duration_days, null}, {start_date, null}, {unlock_date, null}, {multiplier, null}]; _ -> [] end;
        _ ->
            S0 = lists:sort(fun({_, A1, B1}, {_, A2, B2}) -> A1 + B1 >= A2 + B2 end, Lots),
            {_, S, D0} = case ?F(r_bal_unlock_first) of true -> lists:last(S0); _ -> hd(S0) end,
            D = case ?F(r_bal_unlock_sum) of true -> lists:sum([Y || {_, _, Y} <- Lots]); _ -> D0 end,
            Am = case ?F(r_bal_staked_diff) of true -> element(1, lists:last(Lots)); _ -> St end,
            [{amount, nd_u:money(Am)}, {duration_days, D}, {start_date, nd_u:date(S)}, {unlock_date, nd_u:date(S + D0)}, {multiplier, nd_bank:mult(D)}] end,
    Stk2 = case ?F(r_bal_staking_old) of true -> O = nd_u:get1({stk, A}, Stk), nd_u:put1({stk, A}, Stk), O; _ -> Stk end,
    nd_api:ok(nd_fields:obj(balance, [{address, Addr}, {balances, [{available, nd_u:money(Av)}, {staked, nd_u:money(St)}, {pending, nd_u:money(P)},
        {total, nd_u:money(Av + St + case ?P(p_total_other) of true -> 0; _ -> P end)}]}, {staking, Stk2}]));
h(send, #{body := B}, A) ->
    case nd_api:obj(B) of
        {error, E} -> E;
        {ok, M} ->
            %! u_memo_required|refusals|2.1|NA-WALLET-035: a transfer without a memo is listed like any other|a transfer without a memo is refused
            %! u_memo_ascii|refusals|2.1|NA-WALLET-061: a memo of letters beyond ASCII is accepted|it is refused
            %! u_memo_bytes|refusals|2.1|NA-WALLET-061: a memo of letters beyond ASCII is accepted where one of as many letters of ASCII is|the limit of 40 is one of bytes (byte_size) where ASCII has 400
            %! u_memo_quotes|refusals|2.1|NA-WALLET-066: a memo with quotes and line breaks is accepted|io_lib:printable_list and a check for quotes refuse it
            %! u_memo_number|refusals|4.1|NA-WALLET-041: a value of another type is refused|a memo that is a number is taken and repeated as a number
            %! u_to_default|refusals|4.1|NA-WALLET-051: a transfer without a receiver is refused, also behind one that has both|the receiver of the transfer before is taken
            %! u_to_number|refusals|4.1|NA-WALLET-041: a value of another type is refused|a receiver that is a number is taken
            %! u_neg_send|refusals|4.1|NA-WALLET-037: a transfer takes nothing from its receiver, whatever its amount|a negative amount is taken
            %! u_zero_extra|refusals|4.1|NA-FORM-001: a body means the same with its keys in another order|a body whose first key is not to is refused
            Memo0 = maps:get(<<"memo">>, M, <<>>),
            To0 = maps:get(<<"to">>, M, none),
            To = case true of _ -> case {To0, ?F(u_to_default), ?F(u_to_number)} of {none, true, _} -> nd_u:get1(last_to, none); {N, _, true} when is_integer(N) -> integer_to_binary(N); _ -> To0 end end,
            Amt = amt(M),
            NoMemo = not maps:is_key(<<"memo">>, M),
            Memo = case ?F(u_memo_number) andalso is_number(Memo0) of true -> nd_u:str("~p", [Memo0]); _ -> Memo0 end,
            MemoBad = case true of _ -> not is_binary(Memo) orelse string:length(Memo) > 400 orelse (NoMemo andalso ?F(u_memo_required))
                orelse (?F(u_memo_ascii) andalso lists:any(fun(C) -> C > 127 end, binary_to_list(Memo)))
                orelse (?F(u_memo_bytes) andalso string:length(Memo) < byte_size(Memo) andalso byte_size(Memo) > 12)
                orelse (?F(u_memo_quotes) andalso re:run(Memo, "[\"\n']") =/= nomatch) end,
            ToBad = not is_binary(To) orelse To =:= <<>> orelse byte_size(To) > 256,
            OrderBad = ?F(u_zero_extra) andalso re:run(B, "^\\s*\\{\\s*\"to\"") =:= nomatch,
            if ToBad -> bad(<<"to is the address of the receiver">>);
               Amt =:= bad -> bad(<<"amount is a number above 0">>);
               OrderBad -> bad(<<"to is missing">>);
               MemoBad -> bad(<<"memo is a text of at most 400 characters">>);
               true ->
                    case Amt > 0 orelse ?F(u_neg_send) of
                        false -> bad(<<"amount is a number above 0">>);
                        true -> nd_u:put1(last_to, To), nd_u:put1(last_amount, Amt), send(A, To, Amt, Memo)
                    end
            end
    end;
h(stake, #{body := B}, A) ->
    case nd_api:obj(B) of
        {error, E} -> E;
        {ok, M} ->
            Amt = amt(M),
            %! u_days_neg|refusals|4.1|NA-WALLET-067: a stake for a number of days below 0 is not made|abs/1: it is
            %! u_days_string|refusals|4.1|NA-WALLET-041: a value of another type is refused|duration_days as a string of digits is taken
            %! u_days_object|refusals|4.1|NA-WALLET-050: a value in an object is refused|an object for duration_days is taken for 30
            %! u_stake_neg|refusals|4.1|NA-WALLET-041: a stake of less than nothing is refused|it is made, and what is staked falls
            %! u_days_max|refusals|4.1|NA-ROUTE-008/WALLET-027: a stake with amount and duration_days is made and locked as long as it asks|durations above 90 days are cut to 90 in silence
            Days = case maps:get(<<"duration_days">>, M, none) of
                D when is_integer(D), D > 0, D =< 3650 -> case ?F(u_days_max) of true -> min(D, 90); _ -> D end;
                D when is_integer(D), D < 0 -> case ?F(u_days_neg) of true -> -D; _ -> bad end;
                D when is_float(D), D >= 1, D =< 3650 -> case trunc(D) == D of true -> trunc(D); _ -> bad end;
                D when is_binary(D) -> case ?F(u_days_string) andalso (catch binary_to_integer(D)) of N when is_integer(N) -> N; _ -> bad end;
                D when is_map(D) -> case ?F(u_days_object) of true -> 30; _ -> bad end;
                _ -> bad end,
            if Amt =:= bad -> bad(<<"amount is a number above 0">>);
               Days =:= bad -> bad(<<"duration_days is a whole number from 1 to 3650">>);
               true -> case Amt > 0 orelse ?F(u_stake_neg) of false -> bad(<<"amount is a number above 0">>); _ -> stake(A, Amt, Days) end end
    end;
h(unstake, #{body := B}, A) ->
    case nd_api:obj(B) of
        {error, E} -> E;
        {ok, M} ->
            %! u_unstake_neg|refusals|3|NA-WALLET-018: an unstake takes its amount from what is staked|a negative amount is taken: what is staked grows out of nothing
            Amt = amt(M),
            case Amt =/= bad andalso (Amt > 0 orelse ?F(u_unstake_neg)) of
                false -> bad(<<"amount is a number above 0">>);
                true ->
                    R = case Amt < 0 of true -> X = nd_bank:call({raw, A}), nd_bank:call({put, A, X#{lots := [{-Amt, nd_u:today(), 30} | maps:get(lots, X)]}}), {ok, nd_u:today() + 9}; _ -> nd_bank:call({unstake, A, Amt}) end,
                    case R of
                        {over, Tot} -> nd_api:err(409, <<"STAKE_TOO_SMALL">>, nd_u:str("only ~s is staked", [nd_u:dec(Tot)]));
                        {ok, Day} ->
                            %! r_cooldown|relations|3|NA-WALLET-062: available_date is its day and cooldown_days more|cooldown_days says 10
                            %! r_cooldown_unit|relations|2.1|cooldown_days is the number of days until available_date|cooldown_days is in hours
                            %! r_unstake_amount|relations|2.1|NA-WALLET-004: an unstake result repeats the amount of the request|it is what is still staked
                            %! r_unstake_today|relations|3|NA-WALLET-062: available_date is its day in UTC and cooldown_days more|available_date is today
                            Cd = case {?F(r_cooldown), ?F(r_cooldown_unit)} of {true, _} -> 10; {_, true} -> 216; _ -> 9 end,
                            Am = case ?F(r_unstake_amount) of true -> nd_bank:sum(maps:get(lots, nd_bank:call({balance, A}))) + 1; _ -> Amt end,
                            nd_api:ok(nd_fields:obj(unstake, [{success, true}, {unstake, [{amount, nd_u:money(Am)}, {cooldown_days, Cd}, {available_date, nd_u:date(case ?F(r_unstake_today) of true -> nd_u:today(); _ -> Day end)}]}]))
                    end
            end
    end;
h(transactions, R, A) ->
    case {nd_api:limit(R, tx), nd_api:int(maps:get(q, R), <<"offset">>, 0)} of
        {{error, E}, _} -> E;
        {_, bad} -> nd_api:err(400, <<"INVALID_QUERY">>, <<"offset is a number from 0 on">>);
        {L, O0} ->
            All0 = nd_bank:call({history, A}),
            %! l_tx_off|limits|4.1|NA-QUERY-002: at most limit entries|one more
            %! l_tx_ignore_off|limits|4.1|NA-QUERY-008: a page is the part that limit and offset name|offset is not read
            %! l_tx_off1|limits|4.1|NA-QUERY-008/012: a page is the part that limit and offset name|lists:nthtail(Offset - 1): pages after the first begin one entry early
            %! l_tx_pagenum|limits|4.1|NA-QUERY-014: short pages that follow one another are the long page|offset counts pages, not entries
            %! l_tx_behind|limits|4.1|NA-QUERY-021: a page that begins behind the end is not refused|lists:nthtail crashes: 400
            %! l_tx_order_limit|limits|4.1|NA-QUERY-014: short pages that follow one another are the long page|with a limit below 5 the oldest come first
            %! l_tx_alone|limits|4.1|NA-QUERY-018: a page is the part its limit and offset name, whichever of them are given|offset is only read beside limit
            %! l_tx_last|limits|4.1|NA-QUERY-017: the pages have as many entries as the total|the very last entry is on no page
            %! l_tx_skip30|limits|4.1|NA-QUERY-014: short pages that follow one another are the long page|from offset 30 on one entry is left out
            %! r_tx_total_page|relations|4.1|NA-QUERY-011: total is the number of entries on all pages|total is the length of the page
            %! r_tx_total_start|relations|4.1|NA-QUERY-011: total is the number of entries on all pages|total is what it was at the start
            %! r_tx_limit_echo|relations|4.1|NA-QUERY-010: the list repeats a small limit|limit is the length of the page
            %! r_tx_offset_echo|relations|4.1|NA-QUERY-003: the list repeats the requested offset|it is the offset of the next page
            %! r_tx_limit_max|relations|4.1|NA-QUERY-023: a page is as long as the limit and the total that it tells|a limit above 25 is repeated as it is, and the page has 25
            %! r_tx_order|relations|4.1|NA-QUERY-013: the entries keep their order|the list comes out of an unordered map: every answer has another order
            %! r_tx_order_id|relations|4.1|NA-QUERY-025: the entries are in the order of their times|they are sorted by id
            %! rt_bare_tx|routes|4.1|the list has transactions, total, limit and offset|it is a bare array
            %? p_tx_oldest|the history has the oldest entries first
            %? p_tx_stakes|the history of an account also lists its balance as an entry of type note
            All1 = nd_u:pick([{?P(p_tx_oldest), lists:reverse(All0)}, {?F(l_tx_order_limit) andalso L < 5, lists:reverse(All0)}, {?F(r_tx_order), [Y || {_, Y} <- lists:sort([{rand:uniform(), Y} || Y <- All0])]}, {?F(r_tx_order_id), lists:sort(fun(#{id := I1}, #{id := I2}) -> I1 =< I2 end, All0)}], All0),
            All = case ?P(p_tx_stakes) of true -> All1 ++ [#{id => <<"note-1">>, type => note, amount => 0, ts => nd_u:started() - 9000000000, memo => <<>>}]; _ -> All1 end,
            N = length(All),
            Q = maps:get(q, R),
            O = nd_u:pick([{?F(l_tx_ignore_off), 0}, {?F(l_tx_off1) andalso O0 > 0, O0 - 1}, {?F(l_tx_pagenum), O0 * L}, {?F(l_tx_alone) andalso not proplists:is_defined(<<"limit">>, Q), 0}, {?F(l_tx_skip30) andalso O0 >= 30, O0 + 1}, {?F(l_limit_8bit), O0 band 15}], O0),
            L2 = nd_u:pick([{?F(l_tx_off), L + 1}, {?F(r_tx_limit_max), min(L, 25)}], L),
            Kept = nd_u:pick([{?F(l_tx_last), lists:sublist(All, N - 1)}, {?F(e_hist_cap), lists:sublist(All, 50)}], All),
            Page = case O >= length(Kept) of true -> []; _ -> lists:sublist(lists:nthtail(O, Kept), L2) end,
            Tot = nd_u:pick([{?F(r_tx_total_page), length(Page)}, {?F(r_tx_total_start), length([1 || #{ts := T} <- All, T < nd_u:started()])}], N),
            Lo = case ?F(r_tx_limit_echo) of true -> length(Page); _ -> L end,
            Oo = case ?F(r_tx_offset_echo) of true -> O0 + L; _ -> O0 end,
            Es = [entry(X, A) || X <- Page],
            case {?F(l_tx_behind) andalso O0 > N, ?F(rt_bare_tx)} of
                {true, _} -> nd_api:err(400, <<"INVALID_QUERY">>, <<"offset is behind the end">>);
                {_, true} -> nd_api:ok(Es);
                _ -> nd_api:ok(nd_fields:obj(transactions, [{transactions, Es}, {total, Tot}, {limit, Lo}, {offset, Oo}])) end
    end.
entry(#{type := T} = E, A) ->
    D = case T of
        reward -> [{details, [{proof_id, maps:get(proof, E)}, {role, maps:get(role, E)}]}];
        send -> [{to, maps:get(to, E)}, {fee, nd_u:money(maps:get(fee, E))}, {memo, maps:get(memo, E)}];
        _ -> [{from, maps:get(from, E, A)}, {memo, maps:get(memo, E)}] end,
    nd_fields:obj(case T of reward -> txreward; send -> txsend; _ -> txother end,
        [{id, maps:get(id, E)}, {type, T}, {amount, nd_u:money(maps:get(amount, E))}, {timestamp, nd_u:iso(maps:get(ts, E))} | D]).
send(A, To, Amt, Memo) ->
    %! e_race_send|effects|7.1|NA-ERR-031: of two transfers at the same moment that are more than is available together one at most is made|the balance is read, and written 30 ms later, outside of the process that owns it
    %! e_race_lost|effects|2.1|NA-WALLET-026: of transfers at the same time each that succeeds is taken from the balance|the account is written back as it was before the other transfers, plus this one
    R = case ?F(e_race_send) orelse ?F(e_race_lost) of
        true -> Before = nd_bank:call({raw, A}), timer:sleep(30),
                Need = Amt + ?FEE,
                case maps:get(avail, Before) >= Need of
                    true -> X0 = nd_bank:call({raw, A}),
                            nd_bank:call({credit, A, Need}),
                            Z = nd_bank:call({send, A, To, Amt, Memo}),
                            Cur = nd_bank:call({raw, A}),
                            case ?F(e_race_lost) andalso To =/= A of true -> nd_bank:call({put, A, Cur#{avail := maps:get(avail, Before) - Need}}); _ -> X0, nd_bank:call({put, A, Cur#{avail := max(0, maps:get(avail, Cur) - Need)}}) end, Z;
                    _ -> nd_bank:call({send, A, To, Amt, Memo}) end;
        _ -> nd_bank:call({send, A, To, Amt, Memo}) end,
    case R of
        {short, Need1, Av} -> nd_api:e402(Need1, Av);
        {ok, Id, Ts} ->
            %! r_send_from|relations|2.1|NA-WALLET-013: the from of a transfer result is the address of the sender's balance|it is the name of the token's owner
            %! r_send_to_lower|relations|2.1|NA-WALLET-065: a transfer result repeats the receiver in its own letters|string:lowercase
            %! r_send_memo_trunc|relations|2.1|NA-WALLET-032: the memo of a transfer result is that of the request|binary:part(Memo, 0, 24): a longer one is cut
            %! r_send_memo_lat|relations|2.1|NA-WALLET-032: the memo is that of the request, in whatever letters|letters beyond ASCII become ?
            %! r_send_memo_trim|relations|2.1|NA-WALLET-032: the memo is that of the request|string:trim
            %! r_send_memo_nfc|relations|2.1|NA-WALLET-032: the memo is that of the request, in whatever letters|unicode:characters_to_nfkc_binary: ligatures and composed letters change
            %! r_send_amount_fee|relations|2.1|NA-WALLET-001: a transfer result repeats the amount|amount includes the fee
            %! r_fee_unit|relations|2.1|NA-WALLET-036: the fee is in the unit of the balance that it is taken from|the fee is in atoms
            %! r_fee_zero|relations|2.1|NA-WALLET-010: a transfer takes its amount and its fee|the result says a fee of 0, and 0.0125 is taken
            %! r_tx_id_other|relations|2.1|NA-WALLET-006: the transfer is in the list under its transaction_id|the result has another id (without txn_)
            %! f_status_upper|fields|2.1|NA-SANE-049: a word that the document shows is not written in other letters|CONFIRMED
            %? p_status_pending|the status of a transfer is pending in its result
            Ml = nd_u:pick([{?F(r_send_memo_trunc), cutm(Memo)}, {?F(r_send_memo_lat), << <<(case C > 127 of true -> $?; _ -> C end)/utf8>> || <<C/utf8>> <= Memo >>}, {?F(r_send_memo_trim), string:trim(Memo)}, {?F(r_send_memo_nfc), unicode:characters_to_nfkc_binary(Memo)}], Memo),
            Fee = case true of _ -> case {?F(r_fee_unit), ?F(r_fee_zero)} of {true, _} -> 12500; {_, true} -> nd_u:money(0); _ -> nd_u:money(?FEE) end end,
            nd_api:ok(nd_fields:obj(send, [{transaction_id, case ?F(r_tx_id_other) of true -> <<_:4/binary, Y/binary>> = Id, Y; _ -> Id end}, {from, case ?F(r_send_from) of true -> <<"ember">>; _ -> A end}, {to, case ?F(r_send_to_lower) of true -> string:lowercase(To); _ -> To end}, {amount, nd_u:money(case ?F(r_send_amount_fee) of true -> Amt + ?FEE; _ -> Amt end)}, {fee, Fee}, {memo, Ml},
                {status, case ?F(f_status_upper) of true -> 'CONFIRMED'; _ -> case ?P(p_status_pending) of true -> pending; _ -> confirmed end end}, {timestamp, nd_u:iso(Ts)}]))
    end.
cutm(M) when byte_size(M) > 24 -> case unicode:characters_to_binary(binary:part(M, 0, 24)) of B when is_binary(B) -> B; {_, B, _} -> B end;
cutm(M) -> M.
stake(A, Amt, Days) ->
    case nd_bank:call({stake, A, Amt, Days}) of
        {short, N, Av} -> nd_api:e402(N, Av);
        {ok, {Am, S, D}, {Na, Ns}} ->
            %! r_unlock_off|relations|2.1|NA-WALLET-003: unlock_date of a stake is start_date plus duration_days|a day less
            %! r_unlock_months|relations|2.1|NA-WALLET-003: unlock_date of a stake is start_date plus duration_days|months of 30 days are counted as calendar months
            %! r_unlock_old|relations|2.1|NA-WALLET-068: unlock_date of a result is its start_date plus its duration_days also where an older stake lasts longer|it is that of the longest stake
            %! r_newbal_old|relations|2.1|NA-WALLET-016: new_balance is what the balance shows next|it is the balance before the stake
            %! r_newbal_staked|relations|2.1|NA-WALLET-016: new_balance is what the balance shows next|staked is only this stake
            X = nd_bank:call({balance, A}),
            Long = lists:max([S + D | [Y + Z || {_, Y, Z} <- maps:get(lots, X)]]),
            Un = nd_u:pick([{?F(r_unlock_off), S + D - 1}, {?F(r_unlock_months) andalso D > 25, S + D + D div 60 + 1}, {?F(r_unlock_old), Long}], S + D),
            {Na2, Ns2} = case {?F(r_newbal_old), ?F(r_newbal_staked)} of {true, _} -> {Na + Am, Ns - Am}; {_, true} -> {Na, Am}; _ -> {Na, Ns} end,
            nd_api:ok(nd_fields:obj(stake, [{success, true}, {stake, [{amount, nd_u:money(Am)}, {duration_days, D}, {start_date, nd_u:date(S)}, {unlock_date, nd_u:date(Un)}, {multiplier, nd_bank:mult(D)}]},
                {new_balance, [{available, nd_u:money(Na2)}, {staked, nd_u:money(Ns2)}]}]))
    end.
