-module(nd_u).
-compile([export_all, nowarn_export_all]).
-include("nd.hrl").

on(X) -> persistent_term:get(nd_switch, none) =:= X.
opt(K, D) -> persistent_term:get({nd_opt, K}, D).
ms() -> erlang:system_time(millisecond).
started() -> opt(started, 0).
hex(B) -> << <<(hd1(X bsr 4)), (hd1(X band 15))>> || <<X>> <= iolist_to_binary(B) >>.
hd1(N) when N < 10 -> $0 + N;
hd1(N) -> $a + N - 10.
unhex(H) ->
    try {ok, binary:decode_hex(H)} catch _:_ -> error end.
sha(B) -> crypto:hash(sha256, B).
shahex(B) -> hex(sha(B)).
str(F, A) -> unicode:characters_to_binary(io_lib:format(F, A)).

%% A point of time in milliseconds since 1970 as ISO 8601 in UTC.
iso(Ms0) ->
    %! f_time_local|fields|2|GEN-008: every timestamp is in UTC|timestamps are two hours ahead, without an offset that says so
    %! r_time_future|relations|2|GEN-019: a time of this moment agrees with the Date header|timestamps are 90 s ahead of the Date header
    Ms = case true of
        _ -> case {?F(f_time_local), ?F(r_time_future)} of {true, _} -> Ms0 + 7200000; {_, true} -> Ms0 + 90000; _ -> Ms0 end end,
    {{Y, M, D}, {H, Mi, S}} = calendar:system_time_to_universal_time(Ms div 1000, second),
    %! f_time_space|fields|2|GEN-020: a T stands between date and time|a blank stands between date and time
    %! f_time_nopad|fields|2|GEN-008: timestamps are ISO 8601|~B without padding: one-digit months, hours and seconds
    %! f_time_nozone|fields|2|GEN-008: timestamps are in UTC and say so|calendar:rfc3339 with an offset of -05:00 but the UTC clock
    case true of
        _ -> case {?F(f_time_space), ?F(f_time_nopad), ?F(f_time_nozone)} of
            {true, _, _} -> str("~4..0B-~2..0B-~2..0B ~2..0B:~2..0B:~2..0B", [Y, M, D, H, Mi, S]);
            {_, true, _} -> str("~B-~B-~BT~B:~B:~BZ", [Y, M, D, H, Mi, S]);
            {_, _, true} -> str("~4..0B-~2..0B-~2..0BT~2..0B:~2..0B:~2..0B.~3..0B-05:00", [Y, M, D, H, Mi, S, Ms rem 1000]);
            _ -> Fmt = "~4..0B-~2..0B-~2..0BT~2..0B:~2..0B:~2..0B.~3..0B",
                 %? p_time_offset|timestamps end in +00:00 instead of Z
                 %? p_time_micro|timestamps have microseconds
                 Tail = case ?P(p_time_offset) of true -> "+00:00"; _ -> case ?P(p_time_micro) of true -> "000Z"; _ -> "Z" end end,
                 str(Fmt ++ Tail, [Y, M, D, H, Mi, S, Ms rem 1000])
        end end.
today() -> day(ms()).
day(Ms) -> calendar:date_to_gregorian_days(element(1, calendar:system_time_to_universal_time(Ms div 1000, second))).
date(Days) ->
    {Y, M, D} = calendar:gregorian_days_to_date(Days),
    %! f_date_dmy|fields|2|GEN-009: every date is written YYYY-MM-DD|dates are written DD.MM.YYYY
    %! f_date_nopad|fields|2|GEN-009: every date is written YYYY-MM-DD|integer_to_list without padding: 2026-1-5
    %! f_date_time|fields|2|GEN-009: every date is written YYYY-MM-DD|dates carry a time of midnight
    case {?F(f_date_dmy), ?F(f_date_nopad), ?F(f_date_time)} of
        {true, _, _} -> str("~2..0B.~2..0B.~4..0B", [D, M, Y]);
        {_, true, _} -> str("~B-~B-~B", [Y, M, D]);
        {_, _, true} -> str("~4..0B-~2..0B-~2..0BT00:00:00Z", [Y, M, D]);
        _ -> str("~4..0B-~2..0B-~2..0B", [Y, M, D])
    end.
httpdate() ->
    {{Y, M, D}, {H, Mi, S}} = calendar:universal_time(),
    W = element(calendar:day_of_the_week(Y, M, D), {"Mon","Tue","Wed","Thu","Fri","Sat","Sun"}),
    Mo = element(M, {"Jan","Feb","Mar","Apr","May","Jun","Jul","Aug","Sep","Oct","Nov","Dec"}),
    io_lib:format("~s, ~2..0B ~s ~4..0B ~2..0B:~2..0B:~2..0B GMT", [W, D, Mo, Y, H, Mi, S]).

%% Money of the node API: integers of 10^-9 units inside, exact decimals outside.
money(N) ->
    %! f_money_2dec|fields|2.1|NA-WALLET-008/010: the balance is what the transfers leave|float_to_list(F, [{decimals, 2}]) on the way out, the fee of 0.0125 vanishes
    %! f_money_g|fields|2.1|NA-WALLET-010/014: a transfer or stake moves its amount|io_lib ~g: six significant digits
    %! f_money_str|fields|2.1|NA: balances and amounts are numbers|amounts are decimal strings as in the native API
    %! f_money_atoms|fields|2.1|NA-WALLET-001/036: amounts are whole units with decimals|amounts go out as integers of atoms
    %! f_money_trunc|fields|2.1|NA-WALLET-001/010: the amount is repeated and taken|trunc/1: amounts go out without decimals
    case {?F(f_money_2dec), ?F(f_money_g), ?F(f_money_str), ?F(f_money_atoms), ?F(f_money_trunc)} of
        {true, _, _, _, _} -> {raw, float_to_binary(N / ?UNIT, [{decimals, 2}])};
        {_, true, _, _, _} -> {raw, iolist_to_binary(io_lib:format("~g", [N / ?UNIT]))};
        {_, _, true, _, _} -> dec(N);
        {_, _, _, true, _} -> N div 1000;
        {_, _, _, _, true} -> trunc(N / ?UNIT);
        %? p_money_int|whole amounts are written without a decimal point
        %? p_money_exp|amounts are written in scientific notation where that is exact
        _ -> case ?P(p_money_exp) of
                true -> {raw, str("~Be-9", [N])};
                _ -> {raw, dec(N)}
             end
    end.
dec(N) when N < 0 -> <<"-", (dec(-N))/binary>>;
dec(N) ->
    I = integer_to_binary(N div ?UNIT),
    Fr = string:trim(str("~9..0B", [N rem ?UNIT]), trailing, "0"),
    case iolist_to_binary(Fr) of
        <<>> -> case ?P(p_money_int) of true -> I; _ -> <<I/binary, ".0">> end;
        X -> <<I/binary, ".", X/binary>>
    end.
rnd(N) -> rand:uniform(N) - 1.
spawn_after(T, Fun) -> spawn(fun() -> timer:sleep(T), Fun() end).
ctr(K) -> ctr(K, 1).
ctr(K, N) -> ets:update_counter(nd_ctr, K, N, {K, 0}).
ctrv(K) -> case ets:lookup(nd_ctr, K) of [{_, V}] -> V; [] -> 0 end.
put1(K, V) -> ets:insert(nd_kv, {K, V}).
get1(K, D) -> case ets:lookup(nd_kv, K) of [{_, V}] -> V; [] -> D end.
%% the value of the first condition that holds
pick([{true, V} | _], _) -> V;
pick([_ | R], D) -> pick(R, D);
pick([], D) -> D.
