-module(nd_text).
-compile([export_all, nowarn_export_all]).
-include("nd.hrl").

words() -> {<<"harbour">>,<<"lantern">>,<<"quiet">>,<<"river">>,<<"copper">>,<<"the">>,<<"of">>,<<"and">>,<<"a">>,<<"under">>,<<"signal">>,<<"window">>,<<"over">>,<<"slow">>,<<"winter">>,<<"bridge">>,<<"carries">>,<<"letters">>,<<"to">>,<<"every">>,<<"station">>,<<"where">>,<<"people">>,<<"wait">>,<<"for">>,<<"trains">>,<<"that">>,<<"bring">>,<<"salt">>,<<"wool">>,<<"clocks">>,<<"garden">>,<<"path">>,<<"stone">>,<<"in">>,<<"morning">>,<<"light">>,<<"with">>,<<"birds">>,<<"maps">>,<<"drawn">>,<<"by">>,<<"hand">>,<<"across">>,<<"north">>,<<"sea">>,<<"islands">>,<<"keep">>,<<"their">>,<<"own">>,<<"time">>,<<"caf",195,169>>}.

%% The text depends on the prompt alone. {Pieces, Finish, Tokens, NaturalLength}
gen(Prompt, Max, Stops) ->
    H = nd_u:sha(Prompt),
    <<N0:32, _/binary>> = H,
    Nat = 160 + N0 rem 240,
    N = min(Max, Nat),
    Ps = pieces(H, 0, N, []),
    Fin0 = case Max =< Nat of true -> <<"length">>; _ -> <<"stop">> end,
    cut(Ps, Fin0, Stops, N).
pieces(_, N, N, A) -> lists:reverse(A);
pieces(H, I, N, A) ->
    <<X:16, Y:8, _/binary>> = crypto:hash(md5, <<H/binary, I:32>>),
    Ws = words(),
    W = element(1 + X rem tuple_size(Ws), Ws),
    T = if Y < 18 -> <<".">>; Y < 36 -> <<",">>; Y < 40 -> <<"\n">>; true -> <<>> end,
    S = case I of 0 -> <<>>; _ -> <<" ">> end,
    pieces(H, I + 1, N, [<<S/binary, W/binary, T/binary>> | A]).

cut(Ps, Fin, Stops, N) ->
    Text = iolist_to_binary(Ps),
    %! l_stop_first|limits|4.1|NA-INF-036: each of several stop sequences ends the text|only the first of the stop sequences is looked for
    %! u_stop_case|refusals|4.1|NA-INF-041: a stop sequence ends a text letter for letter|string:casefold: it is also found in other letters
    %! u_stop_keep|relations|4.1|NA-INF-013: the text does not continue after (and where it stands) a stop sequence|three more tokens follow the stop sequence
    %! u_stop_word|relations|4.1|NA-INF-036: a stop sequence ends a text where it stands in it|only a stop sequence that is a whole token is found (lists:member of the pieces)
    %! u_stop_last|relations|4.1|NA-INF-041: a stop sequence ends a text where it first stands|string:split(.., trailing): the last occurrence ends it
    %! u_stop_regex|relations|4.1|NA-INF-041: a stop sequence ends a text letter for letter and nowhere else|stop sequences are regular expressions: a point ends at any letter
    %! l_stop_4|limits|4.1|NA-INF-036: each of several stop sequences ends the text|only the first three of the stop sequences are looked for
    %! u_stop_longest|relations|4.1|NA-INF-036: each of several stop sequences ends the text|with several the one that stands last ends the text
    %! u_stop_remember|effects|4.1|NA-INF-018: by default there are no stop sequences|the stop sequences of the request before hold for one that names none
    Stops1 = case true of _ -> case {?F(l_stop_first), ?F(l_stop_4)} of {true, _} -> lists:sublist(Stops, 1); {_, true} -> lists:sublist(Stops, 3); _ -> Stops end end,
    Stops2 = case ?F(u_stop_remember) of true -> Old = nd_u:get1(stops, []), nd_u:put1(stops, Stops1), case Stops1 of [] -> Old; _ -> Stops1 end; _ -> Stops1 end,
    Ms = lists:append([m(Text, S, Ps) || S <- Stops2]),
    case Ms of
        [] -> {Ps, Fin, N};
        _ ->
            At = case ?F(u_stop_longest) of true -> lists:max(Ms); _ -> lists:min(Ms) end,
            {Ps2, K} = take(Ps, At, 0, []),
            case ?F(u_stop_keep) of
                true -> M = min(N, K + 3), {lists:sublist(Ps, M), <<"stop">>, M};
                _ -> {Ps2, <<"stop">>, K}
            end
    end.
m(T, S, Ps) ->
    case {?F(u_stop_case), ?F(u_stop_word), ?F(u_stop_last), ?F(u_stop_regex)} of
        {true, _, _, _} -> [P || {P, _} <- [binary:match(string:lowercase(T), string:lowercase(S))]];
        {_, true, _, _} -> case [I || {I, P} <- lists:zip(lists:seq(1, length(Ps)), Ps), string:trim(P) =:= string:trim(S)] of [] -> []; [I | _] -> [iolist_size(lists:sublist(Ps, I - 1))] end;
        {_, _, true, _} -> case binary:matches(T, S) of [] -> []; L -> [element(1, lists:last(L))] end;
        {_, _, _, true} -> case catch re:run(T, S) of {match, [{P, _} | _]} -> [P]; _ -> [] end;
        _ -> [P || {P, _} <- [binary:match(T, S)]]
    end.
take(_, 0, K, A) -> {lists:reverse(A), K};
take([P | R], At, K, A) when byte_size(P) =< At -> take(R, At - byte_size(P), K + 1, [P | A]);
take([P | _], At, K, A) -> {lists:reverse([binary:part(P, 0, At) | A]), K + 1}.
ptokens(P) -> 1 + string:length(P).
