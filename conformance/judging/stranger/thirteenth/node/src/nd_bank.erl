-module(nd_bank).
-behaviour(gen_server).
-compile([export_all, nowarn_export_all]).
-include("nd.hrl").

%% The accounts of the node API. One process owns them, so that what reads and writes them is one at a time.
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
call(M) -> gen_server:call(?MODULE, M, 30000).

addr(A) -> <<"kva1", (binary:part(nd_u:shahex([<<"address/">>, A]), 0, 36))/binary>>.
tokens() -> [{<<"ember-7f3c91d2a0e845">>, <<"ember">>}, {<<"slate-04b8e6617cd93f">>, <<"slate">>},
             {<<"copper-91ac3d5e22f07b">>, <<"copper">>}, {<<"pebble-c0ffee5a1d7e30">>, <<"pebble">>}].
expired() -> [{<<"ashes-5d41402abc4b2a">>, <<"ember">>}, {<<"cinder-8b1a9953c46110">>, <<"slate">>}].

init([]) ->
    T = nd_u:started(),
    D = nd_u:day(T),
    Day = 86400000,
    Main = addr(<<"ember">>),
    Hist0 = [begin
        Ts = T - I * 11 * 3600000 - (I * 7919) rem 3600000,
        case I rem 4 of
            1 -> #{id => id(<<"init">>, I), type => send, amount => -(1250000000 + I * 100000000), ts => Ts, to => addr(<<"slate">>), fee => ?FEE, memo => <<"lunch ", (integer_to_binary(I))/binary>>};
            3 when I > 30 -> #{id => id(<<"init">>, I), type => 'receive', amount => 40 * ?UNIT, ts => Ts, from => addr(<<"copper">>), memo => <<>>};
            _ -> #{id => id(<<"init">>, I), type => reward, amount => 2 * ?UNIT + I * 10000000, ts => Ts, proof => nd_api:proof_id(I), role => <<"validator">>}
        end end || I <- lists:seq(1, 47)],
    Slate = [#{id => id(<<"sl">>, I), type => 'receive', amount => 1250000000 + I * 100000000, ts => T - I * 11 * 3600000, from => Main, memo => <<>>} || I <- lists:seq(1, 9)],
    {ok, #{n => 0,
        Main => (new())#{avail => 25000 * ?UNIT + 375000000, hist => Hist0},
        addr(<<"slate">>) => (new())#{avail => 7300 * ?UNIT, hist => Slate},
        addr(<<"copper">>) => (new())#{avail => 4100 * ?UNIT + 500000000, pend => [{12 * ?UNIT + 500000000, D + 4}],
            lots => [{150 * ?UNIT, D - 20, 120}]},
        addr(<<"pebble">>) => (new())#{avail => 3000}}}.
new() -> #{avail => 0, lots => [], pend => [], hist => []}.
id(P, N) -> <<"txn_", (binary:part(nd_u:shahex(io_lib:format("~s/~p/~p", [P, N, nd_u:started()])), 0, 20))/binary>>.

acct(A, S) -> settle(maps:get(A, S, new())).
settle(#{pend := P} = X) ->
    T = nd_u:today(),
    {Due, Rest} = lists:partition(fun({_, D}) -> D =< T end, P),
    X#{pend := Rest, avail := maps:get(avail, X) + lists:sum([N || {N, _} <- Due])}.
sum(L) -> lists:sum([element(1, X) || X <- L]).
mult(Days) -> 1 + round(Days * 100 / 365) / 200.

handle_call({raw, A}, _, S) -> {reply, acct(A, S), S};
handle_call({put, A, X}, _, S) -> {reply, ok, S#{A => X}};
handle_call({balance, A}, _, S) -> {reply, acct(A, S), S};
handle_call({history, A}, _, S) -> {reply, maps:get(hist, acct(A, S)), S};
handle_call({charge, A, N, Stream, Cap}, _, S) ->
    X = acct(A, S),
    Av = maps:get(avail, X),
    case Av < N of
        true ->
            %! u_402_gen_takes|refusals|7.1|NA-ERR-025: a generation that costs more than is available takes nothing|such a generation takes all that is there
            S2 = case ?F(u_402_gen_takes) of true -> S#{A => X#{avail := 0}}; _ -> S end,
            {reply, {short, N, Av}, S2};
        _ ->
            %! e_stream_free|effects|2.1|NA-WALLET-063: where a generation is charged at once, so is a stream|streams are not charged
            %! e_charge_double|effects|2.1|NA-WALLET-023: a generation takes no more than the cost in its result|a generation is charged twice
            %! e_charge_tenth|effects|2.1|NA-WALLET-046: what a generation takes is not far below its cost|a hundredth of the cost is taken
            %! e_charge_cap|effects|2.1|NA-WALLET-049: a stream that ends early is not charged many times its cost|a stream is charged for max_tokens
            %! e_charge_main|effects|2.1|NA-WALLET-033: a generation is charged to the account whose token asked|the first account pays for all
            %! e_second_free|effects|2.1|NA-WALLET-063: so are a stream and a generation of the second account|only the first account is charged
            %! e_charge_unit|relations|2.1|NA-WALLET-023: no more is taken than the cost in the result|the charge is rounded up to a whole unit
            %! e_charge_stream_later|effects|2.1|NA-WALLET-023: a generation takes no more than its cost|the charge of a stream is taken with the next request of the account as well
            Main = addr(<<"ember">>),
            N2 = case true of _ ->
                Cs = [{?F(e_stream_free) andalso Stream, 0}, {?F(e_charge_double), 2 * N}, {?F(e_charge_tenth), N div 100},
                      {?F(e_charge_cap) andalso Stream, Cap}, {?F(e_second_free) andalso A =/= Main, 0}, {?F(e_charge_unit), ((N + ?UNIT - 1) div ?UNIT) * ?UNIT}],
                case [V || {true, V} <- Cs] of [V | _] -> V; [] -> N end end,
            N3 = case ?F(e_charge_stream_later) of
                true -> Old = nd_u:get1({late, A}, 0), nd_u:put1({late, A}, case Stream of true -> N2; _ -> 0 end), N2 + Old;
                _ -> N2 end,
            A2 = case ?F(e_charge_main) of true -> Main; _ -> A end,
            X2 = acct(A2, S),
            Z = X2#{avail := maps:get(avail, X2) - N3},
            {reply, ok, S#{A2 => Z}}
    end;
handle_call({send, A0, To, Amt0, Memo}, _, S) ->
    %! e_send_second|effects|2.1|NA-WALLET-036/013: a transfer is taken from the sender|every transfer is taken from the first account, whoever asks
    %! e_tx_crash|effects|2.1|NA-WALLET-054: a transfer does not fail for the letters of its memo|list_to_binary of a memo with letters beyond Latin-1 crashes the account process, whose supervisor starts it with the balances of the beginning
    A = case ?F(e_send_second) of true -> addr(<<"ember">>); _ -> A0 end,
    case ?F(e_tx_crash) of true -> list_to_binary(unicode:characters_to_list(Memo)); _ -> ok end,
    %! e_send_u16|effects|2.1|NA-WALLET-039: a transfer of many units takes them|<<Units:8>>: only the lowest 8 bits of the whole units are moved
    %! e_send_floor|effects|2.1|NA-WALLET-010/060: a transfer takes its amount|the fraction of an amount is not moved (div)
    %! e_send_carry|effects|2.1|NA-WALLET-052: whatever came before, a transfer moves its amount|after a transfer that was refused with 402 the next one moves 1 unit more
    Carry = case ?F(e_send_carry) of true -> R0 = nd_u:get1(carry, 0), nd_u:put1(carry, 0), R0; _ -> 0 end,
    Amt = case {?F(e_send_u16), ?F(e_send_floor)} of
        {true, _} -> <<U:8>> = <<(Amt0 div ?UNIT):8>>, U * ?UNIT + Amt0 rem ?UNIT;
        {_, true} when Amt0 > ?UNIT -> Amt0 div ?UNIT * ?UNIT;
        _ -> Amt0 + Carry end,
    X = acct(A, S), Av = maps:get(avail, X),
    Self = A =:= To,
    %! u_all_no_fee|refusals|7.1|NA-ERR-024: a transfer of all that is available is not accepted if it also costs a fee|only the amount is compared with what is available, and the fee is capped
    %! u_all_refused|refusals|7.1|NA-ERR-030: a transfer of what is available, its fee included, does not end with 402|it does: =< instead of <
    %! u_overdraw|refusals|7.1|NA-ERR-035: a transfer of a little more than is available is not made|up to 1 unit more than is available is accepted
    %! u_whole_check|refusals|7.1|NA-ERR-035: a transfer of a little more than is available is not made|the comparison is of whole units (div)
    Need = Amt + ?FEE,
    Short = case true of _ -> case {?F(u_all_no_fee), ?F(u_all_refused), ?F(u_overdraw), ?F(u_whole_check)} of
        {true, _, _, _} -> Amt > Av;
        {_, true, _, _} -> Need >= Av;
        {_, _, true, _} -> Need > Av + ?UNIT;
        {_, _, _, true} -> Need div ?UNIT > Av div ?UNIT;
        _ -> Need > Av end end,
    case Short of
        true ->
            %! u_402_fee|refusals|7.1|NA-ERR-023: a request that is refused with 402 takes nothing|it takes the fee
            %! u_402_hist|refusals|7.1|NA-ERR-026: a refused transfer is not in the history|it is
            %! u_402_credit|refusals|7.1|NA-WALLET-056: a refused transfer changes nothing in the balance of either account|the receiver gets what the sender lacks
            case ?F(e_send_carry) of true -> nd_u:put1(carry, ?UNIT); _ -> ok end,
            S2 = case {?F(u_402_fee), ?F(u_402_hist), ?F(u_402_credit)} of
                {true, _, _} -> S#{A => X#{avail := max(0, Av - ?FEE)}};
                {_, true, _} -> S#{A => X#{hist := [#{id => id(<<"bad">>, nd_u:ctr(badseq)), type => send, amount => -Amt, ts => nd_u:ms(), to => To, fee => ?FEE, memo => Memo} | maps:get(hist, X)]}};
                {_, _, true} -> Y0 = acct(To, S), S#{To => Y0#{avail := maps:get(avail, Y0) + ?UNIT}};
                _ -> S end,
            {reply, {short, Need, Av}, S2};
        _ ->
            N = maps:get(n, S) + 1,
            Now = nd_u:ms(),
            %! e_tx_id_hash|effects|2.1|NA-WALLET-048: transfers made one after another have a transaction_id each|erlang:phash2({To, Amount}): a repeated transfer has the same id
            %! e_tx_id_sec|effects|2.1|NA-SANE-041: each id of a transfer is used once|the id is the time in seconds
            %! e_tx_time_start|relations|2.1|NA-SANE-046: transfers made seconds apart have different times|the timestamp of a transfer is that of the first one
            Id = case {?F(e_tx_id_hash), ?F(e_tx_id_sec)} of
                {true, _} -> id(<<"h">>, erlang:phash2({To, Amt})); {_, true} -> id(<<"s">>, Now div 1000); _ -> id(<<"t">>, N) end,
            Ts = case ?F(e_tx_time_start) of true -> case nd_u:get1(first_ts, 0) of 0 -> nd_u:put1(first_ts, Now), Now; T0 -> T0 end; _ -> Now end,
            %! e_send_twice|effects|2.1|NA-WALLET-010: a transfer takes its amount and its fee|the amount is taken twice
            %! e_send_nodebit|effects|2.1|NA-WALLET-010: a transfer takes its amount and its fee|only the fee is taken
            %! e_send_nofee|effects|2.1|NA-WALLET-010: a transfer takes its amount and its fee|the fee in the result is not taken
            %! e_send_fee2|effects|2.1|NA-WALLET-010: a transfer takes its fee|the fee is taken twice
            %! e_self_fee2|effects|2.1|NA-WALLET-007: a transfer to itself costs at most its fee|it costs the amount too
            %! e_self_gain|effects|2.1|NA-WALLET-025: a transfer to itself does not add its amount|it does: the receiver is written last
            Take = nd_u:pick([{?F(e_send_twice) andalso not Self, 2 * Amt + ?FEE}, {?F(e_send_nodebit), ?FEE}, {?F(e_send_nofee), Amt}, {?F(e_send_fee2), Amt + 2 * ?FEE}], Need),
            E = #{id => Id, type => send, amount => -Amt, ts => Ts, to => To, fee => ?FEE, memo => Memo},
            X1 = X#{avail := case ?F(u_all_no_fee) of true -> max(0, Av - Take); _ -> Av - Take end},
            %! e_hist_none|effects|2.1|NA-WALLET-006: a transfer is afterwards in the transaction list|the first transfer after a refusal or stake is not listed
            %! e_hist_twice|effects|2.1|NA-WALLET-012: a transfer is in the history once|twice
            %! e_hist_late|effects|2.1|NA-WALLET-006: a transfer that was answered with success is afterwards in the list|it comes into the list 20 s later
            %! e_hist_plus|effects|2.1|NA-QUERY-007: an outgoing send has a negative amount|it has a positive one
            %! e_hist_memo|effects|2.1|NA-WALLET-035: a transfer without a memo is listed like any other|it is not listed
            %! e_hist_newaddr|effects|2.1|NA-WALLET-047: a transfer to an address that nobody else uses is in the history|it is not listed
            %! e_hist_prev|effects|2.1|NA-WALLET-053: each transfer is in the history with its own receiver|an entry names the receiver of the transfer before
            %! e_hist_both|effects|2.1|NA-WALLET-064: the history of a sender does not list what he sent as received|it has a second entry of type receive
            %! e_hist_end|effects|4.1|NA-QUERY-025/013: the entries are in the order of their times and keep it|new entries go to the end of a list whose newest is first
            %! e_hist_fee_in|effects|2.1|NA-WALLET-053: an entry has the amount of its transfer|the amount of the entry is amount plus fee
            %! e_hist_cap|effects|4.1|NA-QUERY-017: the pages of a history made longer have as many entries as its total|only the latest 50 entries are kept, the total counts all (lists:sublist)
            Listed = case true of _ -> not ((?F(e_hist_memo) andalso Memo =:= <<>>) orelse (?F(e_hist_newaddr) andalso not maps:is_key(To, S))
                orelse (?F(e_hist_none) andalso nd_u:get1(last_op, send) =/= send)) end,
            nd_u:put1(last_op, send),
            Prev = nd_u:get1(prev_to, To), nd_u:put1(prev_to, To),
            E1 = case true of _ -> case {?F(e_hist_plus), ?F(e_hist_prev), ?F(e_hist_fee_in)} of {true, _, _} -> E#{amount := Amt}; {_, true, _} -> E#{to := Prev}; {_, _, true} -> E#{amount := -Need}; _ -> E end end,
            H0 = maps:get(hist, X),
            R = E#{type := 'receive', amount := Amt, from => A},
            case ?F(e_hist_late) of true -> nd_u:spawn_after(20000, fun() -> call({hist_add, A, E1}) end); _ -> ok end,
            H1 = nd_u:pick([{not Listed orelse ?F(e_hist_late), H0}, {?F(e_hist_twice), [E1, E1 | H0]}, {?F(e_hist_both), [E1, maps:remove(to, R) | H0]}, {?F(e_hist_end), H0 ++ [E1]}], [E1 | H0]),
            X2 = X1#{hist := H1},
            S1 = S#{A => X2, n := N},
            Y = acct(To, S1),
            %! e_recv_fee|effects|2.1|NA-WALLET-011: a transfer adds its amount to the receiver|the fee is taken from what the receiver gets
            %! e_recv_none|effects|2.1|NA-WALLET-011: a transfer adds its amount to the receiver|the receiver gets nothing
            %! e_recv_late|effects|2.1|NA-WALLET-011: a transfer adds its amount to the receiver|it comes 25 s later
            %! e_recv_pend|effects|2.1|NA-WALLET-011: it adds to what the receiver has available|it is pending at the receiver
            %! e_recv_neg|effects|2.1|NA-WALLET-037: a transfer takes nothing from its receiver|an amount above 40 is taken from the receiver (a sign in a 32-bit atom field)
            %! e_recv_hist_neg|effects|2.1|NA-WALLET-057: what an account received is not in its history below zero|the receiver's entry is negative
            %! e_recv_sender_hist|effects|2.1|NA-WALLET-044: a transfer is in the history of the account that made it|it is only in the history of the receiver
            Give = nd_u:pick([{?F(e_recv_fee), Amt - ?FEE}, {?F(e_recv_none) orelse ?F(e_recv_late) orelse ?F(e_recv_pend), 0}, {?F(e_recv_neg) andalso Amt > 40 * ?UNIT, -Amt}], Amt),
            case ?F(e_recv_late) andalso not Self of true -> nd_u:spawn_after(25000, fun() -> call({credit, To, Amt}) end); _ -> ok end,
            P2 = case ?F(e_recv_pend) andalso not Self of true -> [{Amt, nd_u:today() + 1} | maps:get(pend, Y)]; _ -> maps:get(pend, Y) end,
            S2 = case Self of
                true -> G = case {?F(e_self_fee2), ?F(e_self_gain)} of {true, _} -> 0; {_, true} -> 2 * Amt; _ -> Amt end,
                        G2 = case ?F(e_send_nodebit) orelse ?F(e_send_nofee) of true -> Amt + Take - Need + 0 * G; _ -> G end,
                        S1#{A => X2#{avail := maps:get(avail, X2) + G2}};
                _ -> R1 = case ?F(e_recv_hist_neg) of true -> R#{amount := -Amt}; _ -> R end,
                     S1#{To => Y#{avail := maps:get(avail, Y) + Give, pend := P2, hist := [maps:remove(to, R1) | maps:get(hist, Y)]}} end,
            S3 = case ?F(e_recv_sender_hist) andalso not Self of true -> #{A := Xx} = S2, S2#{A => Xx#{hist := H0}}; _ -> S2 end,
            {reply, {ok, Id, Ts}, S3}
    end;
handle_call({hist_add, A, E}, _, S) -> X = acct(A, S), {reply, ok, S#{A => X#{hist := [E | maps:get(hist, X)]}}};
handle_call({credit, A, N}, _, S) -> X = acct(A, S), {reply, ok, S#{A => X#{avail := maps:get(avail, X) + N}}};
handle_call({stake, A, Amt, Days}, _, S) ->
    X = acct(A, S), Av0 = maps:get(avail, X),
    nd_u:put1(last_op, stake),
    %! e_stake_avail_pend|relations|2.1|NA-WALLET-059: a stake is taken from what is available, also where something is pending|what is pending is added to what may be staked, and the stake is taken from it first
    Pend = sum(maps:get(pend, X)),
    Av = case ?F(e_stake_avail_pend) of true -> Av0 + Pend; _ -> Av0 end,
    %! u_stake_more|refusals|7.1|NA-ERR-022: a stake of more than is available ends with 402|all that is available is staked instead, with success
    case Amt > Av andalso not ?F(u_stake_more) of
        true ->
            %! u_stake_402_adds|refusals|7.1|NA-ERR-026: a refused stake adds nothing to what is staked|it adds a lot of what was available, without taking it
            S2 = case ?F(u_stake_402_adds) of true -> S#{A => X#{lots := [{Av0 + 1, nd_u:today(), Days} | maps:get(lots, X)]}}; _ -> S end,
            {reply, {short, Amt, Av}, S2};
        _ ->
            %! e_stake_twice|effects|2.1|NA-WALLET-031: a stake takes its amount once|twice
            %! e_stake_nodebit|effects|2.1|NA-WALLET-015: a stake takes its amount from what is available|nothing is taken
            %! e_stake_noadd|effects|2.1|NA-WALLET-014: a stake adds its amount to what is staked|a second stake adds nothing
            %! e_stake_replace|effects|2.1|NA-WALLET-014: a stake adds its amount to what is staked|it replaces what was staked (maps:put)
            %! e_stake_pend|effects|2.1|NA-WALLET-043: what is staked does not become pending as well|it does
            %! e_stake_shorter|effects|4.1|NA-WALLET-027: a stake is locked for as long as its request says|it is locked for a day less
            %! e_stake_longer|effects|4.1|NA-WALLET-045: a stake is locked for no longer than its request says|durations are rounded up to months of 30 days
            %! e_stake_365|effects|4.1|NA-WALLET-027: a stake is locked for as long as its request says|min(Days, 365)
            %! e_stake_u8|effects|4.1|NA-WALLET-027: a stake is locked for as long as its request says|<<Days:8>>: 300 days become 44
            %! e_stake_tomorrow|effects|2.1|NA-WALLET-020: a stake begins on the day of its request|it begins on the day after
            %! e_stake_late|effects|2.1|NA-WALLET-016: new_balance is what the balance shows next|the balance shows the stake 15 s later
            %! e_stake_second|effects|2.1|NA-WALLET-022: the first stake of an account is in its balance as the result says|the first stake of an account goes to the first account of the node
            Today = nd_u:today(),
            Amt1 = min(Amt, Av),
            D2 = nd_u:pick([{?F(e_stake_shorter), max(1, Days - 1)}, {?F(e_stake_longer), (Days + 29) div 30 * 30}, {?F(e_stake_365), min(Days, 365)}, {?F(e_stake_u8), Days band 255}], Days),
            Start = case ?F(e_stake_tomorrow) of true -> Today + 1; _ -> Today end,
            Lot = {Amt1, Start, D2},
            Take = case {?F(e_stake_twice), ?F(e_stake_nodebit), ?F(e_stake_avail_pend)} of {true, _, _} -> 2 * Amt1; {_, true, _} -> 0; {_, _, true} -> max(0, Amt1 - Pend); _ -> Amt1 end,
            Pd = case ?F(e_stake_avail_pend) of true when Pend > 0 -> [{max(0, Pend - Amt1), Today + 3}]; _ -> maps:get(pend, X) end,
            L0 = maps:get(lots, X),
            L1 = case {?F(e_stake_noadd) andalso L0 =/= [], ?F(e_stake_replace)} of {true, _} -> L0; {_, true} -> [Lot]; _ -> [Lot | L0] end,
            Pd2 = case ?F(e_stake_pend) of true -> [{Amt1, Today + 2} | Pd]; _ -> Pd end,
            X2 = X#{avail := Av0 - Take, lots := L1, pend := Pd2},
            Nb = {maps:get(avail, X2), sum(L1)},
            case ?F(e_stake_late) of
                true -> nd_u:spawn_after(15000, fun() -> call({put_stake, A, Take, Lot}) end), {reply, {ok, Lot, Nb}, S};
                _ -> case ?F(e_stake_second) andalso L0 =:= [] andalso A =/= addr(<<"ember">>) of
                        true -> M = addr(<<"ember">>), Xm = acct(M, S), {reply, {ok, Lot, Nb}, S#{M => Xm#{lots := [Lot | maps:get(lots, Xm)]}}};
                        _ -> {reply, {ok, Lot, Nb}, S#{A => X2}} end
            end
    end;
handle_call({put_stake, A, Take, Lot}, _, S) ->
    X = acct(A, S), {reply, ok, S#{A => X#{avail := maps:get(avail, X) - Take, lots := [Lot | maps:get(lots, X)]}}};
handle_call({unstake, A, Amt}, _, S) ->
    X = acct(A, S), L = maps:get(lots, X), Tot = sum(L),
    nd_u:put1(last_op, unstake),
    %! u_unstake_over|refusals|3|NA-WALLET-024: more than is staked is not unstaked|it is: what is missing is made
    %! u_unstake_all|refusals|3|NA-WALLET-058: an unstake of all that is staked is accepted where one of all but a little is|Amt >= Staked is refused
    Bad = (Amt > Tot andalso not ?F(u_unstake_over)) orelse (Amt =:= Tot andalso ?F(u_unstake_all)),
    case Bad of
        true ->
            %! u_unstake_refused|refusals|7.1|NA-WALLET-056: an unstake that is refused changes nothing|a refused unstake makes all that is staked pending
            S2 = case ?F(u_unstake_refused) of true -> S#{A => X#{lots := [], pend := [{Tot, nd_u:today() + 9} | maps:get(pend, X)]}}; _ -> S end,
            {reply, {over, Tot}, S2};
        _ ->
            Sorted = lists:sort(fun({_, A1, B1}, {_, A2, B2}) -> A1 + B1 =< A2 + B2 end, L),
            Av = nd_u:today() + 9,
            %! e_unstake_all|effects|3|NA-WALLET-029: an unstake of a part leaves the rest staked|all is unstaked
            %! e_unstake_now|effects|3|NA-WALLET-019: unstaked money is not available before its cooldown|it is available at once
            %! e_unstake_lost|effects|2.1|NA-WALLET-069: what is unstaked is pending or available|it is neither
            %! e_unstake_keep|effects|3|NA-WALLET-018: an unstake takes its amount from what is staked|it stays staked and is pending as well
            %! e_unstake_pend_put|effects|3|NA-WALLET-055: what is unstaked is pending beside what is pending already|it replaces what was pending
            %! e_unstake_20s|effects|3|NA-WALLET-019: unstaked money is not available before its cooldown|erlang:send_after with seconds for days: it is available 9 s later
            %! e_unstake_twice|effects|3|NA-WALLET-018: an unstake takes its amount from what is staked|twice the amount is taken from the stake
            A2 = case ?F(e_unstake_twice) of true -> min(Tot, 2 * Amt); _ -> Amt end,
            L2 = case true of _ -> case {?F(e_unstake_all), ?F(e_unstake_keep)} of {true, _} -> []; {_, true} -> L; _ -> cut(Sorted, A2) end end,
            P0 = maps:get(pend, X),
            P2 = case true of _ -> case {?F(e_unstake_now) orelse ?F(e_unstake_lost), ?F(e_unstake_pend_put)} of {true, _} -> P0; {_, true} -> [{Amt, Av}]; _ -> [{Amt, Av} | P0] end end,
            case ?F(e_unstake_20s) of true -> erlang:send_after(9000, self(), {free, A, {Amt, Av}}); _ -> ok end,
            N2 = case ?F(e_unstake_now) of true -> Amt; _ -> 0 end,
            {reply, {ok, Av}, S#{A => X#{lots := L2, pend := P2, avail := maps:get(avail, X) + N2}}}
    end.
cut(L, 0) -> L;
cut([{N, S, D} | T], A) when N > A -> [{N - A, S, D} | T];
cut([{N, _, _} | T], A) -> cut(T, A - N);
cut([], _) -> [].
handle_cast(_, S) -> {noreply, S}.
handle_info({free, A, P}, S) -> X = acct(A, S), {noreply, S#{A => X#{pend := lists:delete(P, maps:get(pend, X)), avail := maps:get(avail, X) + element(1, P)}}};
handle_info(_, S) -> {noreply, S}.
