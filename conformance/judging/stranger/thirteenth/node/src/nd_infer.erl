-module(nd_infer).
-compile([export_all, nowarn_export_all]).
-include("nd.hrl").

bad(F, M) -> throw({bad, nd_api:err(400, <<"INVALID_PARAMETER">>, nd_u:str("~s: ~s", [F, M]))}).
%% prices in 10^-9 units: a prompt token 20000, a generated one 150000
price(P, C) -> P * 20000 + C * 150000.

post(#{body := B} = R, A) ->
    case nd_api:obj(B) of
        {error, E} -> E;
        {ok, M} ->
            case rate(A) of
                {limited, S} ->
                    %! u_429_code|refusals|7.1|NA-ERR-006: the code of a 429 is RATE_LIMITED|TOO_MANY_REQUESTS
                    %! u_429_503|refusals|7.1|NA-ERR-028: an error with the code RATE_LIMITED has the status 429|503
                    %! u_429_float|refusals|7.1|NA-ERR-007: retry_after is an integer number of seconds|1.5
                    %! u_429_ms|refusals|7.1|NA-ERR-033: retry_after is no hundred times as many seconds as it takes|it is in milliseconds
                    %! u_429_none|refusals|7.1|NA-ERR-007: details.retry_after of a 429 is an integer|it is missing
                    Ra = case true of _ -> case {?F(u_429_float), ?F(u_429_ms)} of {true, _} -> {raw, <<"1.5">>}; {_, true} -> S * 1000; _ -> S end end,
                    nd_api:err(case ?F(u_429_503) of true -> 503; _ -> 429 end, case ?F(u_429_code) of true -> <<"TOO_MANY_REQUESTS">>; _ -> <<"RATE_LIMITED">> end, <<"too many requests">>, case ?F(u_429_none) of true -> none; _ -> {[{retry_after, Ra}]} end);
                ok -> try params(M) of P -> run(P, A, R) catch throw:{bad, E} -> E end
            end
    end.
%% 300 generations of an account in ten seconds; after a refusal a window lasts until it ends
rate(A) ->
    S = erlang:system_time(second),
    %! l_rate_low|limits|5/7.1|NA-INF-040: a few generations at the same time do not make the node fail|a single generation of an account is allowed at a time, others get 500
    %! l_rate_stuck|limits|7.1|NA-ERR-034: some seconds after its retry_after a single request has no 429 any more|once limited, an account stays so, as each try begins the window anew
    %? p_rate_low|only 25 generations of an account in ten seconds are served
    Max = case ?P(p_rate_low) of true -> 25; _ -> case lists:any(fun(X) -> nd_u:on(X) end, [u_429_code, u_429_503, u_429_float, u_429_ms, u_429_none, l_rate_stuck]) of true -> 60; _ -> 300 end end,
    N = nd_u:ctr({rate, A, S div 10}),
    case {N > Max, ?F(l_rate_stuck)} of
        {true, true} -> nd_u:put1({stuck, A}, S), {limited, 3};
        {_, true} -> case S - nd_u:get1({stuck, A}, 0) < 20 of true -> nd_u:put1({stuck, A}, S), {limited, 3}; _ -> ok end;
        {true, _} -> {limited, 10 - S rem 10};
        _ -> ok end.

params(M) ->
    Prompt = case maps:get(<<"prompt">>, M, none) of
        %! u_prompt_none|refusals|4.1|NA-INF-002: a body without a prompt is refused|a text to an empty prompt is generated
        %! u_prompt_number|refusals|4.1|NA-INF-019: a parameter of the wrong type is refused|a prompt that is a number is taken
        %! u_prompt_list|refusals|4.1|NA-INF-043: a parameter in an array is refused|a prompt that is an array of strings is joined: it is an iolist
        %! u_prompt_200|refusals|4.1|NA-INF-048: a prompt of 280 letters is accepted where one of 140 is|more than 200 characters are refused
        %! u_prompt_quote|refusals|4.1|NA-INF-038: a prompt with quotes, line breaks or foreign letters does not make the node fail|io:format of a prompt with ~ or quotes crashes: 500
        none -> case ?F(u_prompt_none) of true -> <<>>; _ -> bad(prompt, "is missing") end;
        N when is_number(N) -> case ?F(u_prompt_number) of true -> nd_u:str("~p", [N]); _ -> bad(prompt, "is a text") end;
        L when is_list(L) -> case ?F(u_prompt_list) andalso (catch iolist_to_binary(L)) of P when is_binary(P) -> P; _ -> bad(prompt, "is a text") end;
        P when is_binary(P) ->
            Len = string:length(P),
            case Len > 32768 orelse (Len > 200 andalso ?F(u_prompt_200)) of true -> bad(prompt, "is too long"); _ -> ok end,
            case ?F(u_prompt_quote) andalso re:run(P, "[\"~\n]") =/= nomatch of true -> error(badarg); _ -> ok end,
            P;
        _ -> bad(prompt, "is a text") end,
    %! l_default_16|limits|4.1|NA-INF-035: without max_tokens as much is generated as with 100|16
    %! l_default_128|limits|4.1|NA-INF-004: without max_tokens at most 100 tokens are generated|128
    %! l_max_64|limits|4.1|NA-INF-035/042: max_tokens is the highest number of generated tokens|more than 64 are never generated
    %! l_max_off|limits|4.1|NA-INF-003: at most max_tokens tokens are generated|one more: lists:seq(0, N)
    %! l_max_prompt|limits|4.1|NA-INF-042: the maximum is not lessened by the tokens of the prompt|it is
    %! l_max_remember|limits|4.1|NA-INF-035: without max_tokens as much is generated as with 100|the max_tokens of the request before holds
    %! u_max_neg|refusals|4.1|NA-INF-051: a max_tokens below 0 is refused|it is taken as the default
    %! u_max_string|refusals|4.1|NA-INF-019: a parameter of the wrong type is refused|max_tokens as a string of digits is taken
    %! u_max_word|refusals|4.1|NA-INF-031: a parameter that no reader can take for its type is refused|a max_tokens that is a word falls back to the default (catch binary_to_integer)
    %! u_max_array|refusals|4.1|NA-INF-043: a parameter in an array is refused|max_tokens [5] is taken
    %! u_max_zero_100|limits|4.1|NA-INF-046: where max_tokens 0 is accepted, no tokens are generated|0 is taken as the default
    Max0 = case maps:get(<<"max_tokens">>, M, none) of
        none -> case true of _ -> case {?F(l_default_16), ?F(l_default_128), ?F(l_max_remember)} of {true, _, _} -> 16; {_, true, _} -> 128; {_, _, true} -> nd_u:get1(last_max, 100); _ -> 100 end end;
        I when is_integer(I), I >= 0 -> case I =:= 0 andalso ?F(u_max_zero_100) of true -> 100; _ -> I end;
        I when is_integer(I) -> case ?F(u_max_neg) of true -> 100; _ -> bad(max_tokens, "is below 0") end;
        F when is_float(F), F >= 0, F < 1.0e15 -> case trunc(F) == F of true -> trunc(F); _ -> bad(max_tokens, "is a whole number") end;
        S when is_binary(S) -> case {?F(u_max_string) andalso (catch binary_to_integer(S)), ?F(u_max_word)} of {I, _} when is_integer(I) -> I; {_, true} -> 100; _ -> bad(max_tokens, "is a whole number") end;
        [I] when is_integer(I) -> case ?F(u_max_array) of true -> I; _ -> bad(max_tokens, "is a whole number") end;
        _ -> bad(max_tokens, "is a whole number") end,
    nd_u:put1(last_max, Max0),
    Max = nd_u:pick([{?F(l_max_64), min(64, Max0)}, {?F(l_max_off), Max0 + 1}, {?F(l_max_prompt), max(1, Max0 - nd_text:ptokens(Prompt))}], Max0),
    %! u_temp_2|refusals|4.1|NA-INF-006: a temperature from 0 to 2 inclusive is accepted|2 is refused
    %! u_temp_0|refusals|4.1|NA-INF-006: a temperature from 0 to 2 inclusive is accepted|0 is refused
    %! u_temp_int|refusals|4.1|NA-INF-006: a temperature from 0 to 2 is accepted|a temperature that is an integer is refused (is_float)
    %! u_temp_high|refusals|8|NA-INF-007: a temperature outside 0 to 2 is refused|everything up to 10 is taken
    %! u_temp_clamp|refusals|8|NA-INF-007: a temperature outside 0 to 2 is refused|it is clamped: min(2, max(0, T))
    %! u_temp_string|refusals|4.1|NA-INF-019: a parameter of the wrong type is refused|a temperature as text is ignored
    %! u_temp_atom|refusals|8|NA-INF-007/031: a value outside or of no type is refused|term order: true and strings are above every number, the check is T >= 0 only
    num(temperature, M, fun(T) -> case true of _ -> Tb = T < 0 orelse T > 2, nd_u:pick([{?F(u_temp_2) andalso T == 2, false}, {?F(u_temp_0) andalso T == 0, false}, {?F(u_temp_int) andalso is_integer(T), false}, {?F(u_temp_high) andalso T =< 10 andalso T >= 0, true}, {?F(u_temp_clamp), true}, {?F(u_temp_atom) andalso T >= 0, true}], not Tb) end end, ?F(u_temp_string) orelse ?F(u_temp_atom)),
    %! u_topp_1|refusals|4.1|NA-INF-008: a top_p above 0 and at most 1 is accepted|1 is refused
    %! u_topp_small|refusals|4.1|NA-INF-008: a top_p above 0 and at most 1 is accepted|below 0.05 it is refused
    num(top_p, M, fun(T) -> T > 0 andalso T =< 1 andalso not (T == 1 andalso ?F(u_topp_1)) andalso not (T < 0.05 andalso ?F(u_topp_small)) end, false),
    %! u_topk_100|refusals|4.1|NA-INF-009: a positive top_k is accepted|above 100 it is refused
    %! u_topk_1|refusals|4.1|NA-INF-009: a positive top_k is accepted|1 is refused
    num(top_k, M, fun(T) -> trunc(T) == T andalso T > 0 andalso not (T > 100 andalso ?F(u_topk_100)) andalso not (T == 1 andalso ?F(u_topk_1)) end, false),
    Stream = case maps:get(<<"stream">>, M, false) of
        B when is_boolean(B) -> B;
        %! u_stream_string|refusals|4.1|NA-INF-019: a parameter of the wrong type is refused|stream "true" is taken
        %! u_stream_object|refusals|4.1|NA-INF-039: a stream parameter that is an object or an array is refused|it is taken as true (anything but false)
        %! u_stream_word|refusals|4.1|NA-INF-031: a parameter that no reader can take for its type is refused|any text for stream is taken as false
        <<"true">> -> case ?F(u_stream_string) of true -> true; _ -> bad(stream, "is true or false") end;
        W when is_binary(W) -> case ?F(u_stream_word) of true -> false; _ -> bad(stream, "is true or false") end;
        O when is_list(O); is_map(O) -> case ?F(u_stream_object) of true -> true; _ -> bad(stream, "is true or false") end;
        _ -> bad(stream, "is true or false") end,
    %! rt_stream_never|routes|4.1|NA-INF-011: with stream true the answer is a stream|it is one JSON result
    %! rt_stream_always|routes|4.1|NA-INF-017: without stream the answer is one JSON result|it is a stream
    %! rt_stream_false|routes|4.1|NA-INF-010: with stream false the answer is one JSON result|maps:is_key(stream): it is a stream
    Stream2 = case true of _ -> case {?F(rt_stream_never), ?F(rt_stream_always) andalso not maps:is_key(<<"stream">>, M), ?F(rt_stream_false) andalso maps:is_key(<<"stream">>, M)} of {true, _, _} -> false; {_, true, _} -> true; {_, _, true} -> true; _ -> Stream end end,
    %! u_stop_empty|refusals|4.1|NA-INF-012: an array of stop sequences is accepted, even an empty one|an empty array is refused
    %! u_stop_string|refusals|4.1|NA-INF-019: a parameter of the wrong type is refused|a string for stop is taken
    %! u_stop_five|refusals|4.1|NA-INF-012: an array of stop sequences is accepted|more than four are refused
    %! u_stop_mixed|refusals|4.1|NA-INF-043: a parameter that no reader can take for its type is refused|an object for stop is taken as no stop sequences
    Stop = case maps:get(<<"stop">>, M, []) of
        [] -> case ?F(u_stop_empty) andalso maps:is_key(<<"stop">>, M) of true -> bad(stop, "is empty"); _ -> [] end;
        L2 when is_list(L2) ->
            case lists:all(fun(X) -> is_binary(X) andalso X =/= <<>> end, L2) andalso length(L2) =< 64 andalso not (length(L2) > 4 andalso ?F(u_stop_five)) of
                true -> L2; _ -> bad(stop, "is an array of texts") end;
        S2 when is_binary(S2), S2 =/= <<>> -> case ?F(u_stop_string) of true -> [S2]; _ -> bad(stop, "is an array of texts") end;
        Mp when is_map(Mp) -> case ?F(u_stop_mixed) of true -> []; _ -> bad(stop, "is an array of texts") end;
        _ -> bad(stop, "is an array of texts") end,
    #{prompt => Prompt, max => Max, stream => Stream2, stop => Stop}.
num(K, M, Ok, Lax) ->
    case maps:get(atom_to_binary(K), M, none) of
        none -> ok;
        N when is_number(N) -> case Ok(N) of true -> ok; _ -> bad(K, "is out of its range") end;
        _ when Lax -> ok;
        _ -> bad(K, "is a number") end.

run(#{prompt := P0, max := Max, stream := Stream, stop := Stop}, A, #{t0 := T0}) ->
    %! e_text_shared|effects|4.1|NA-INF-047: of generations at the same time each has the text of its own prompt|the prompt goes through one ETS entry while it waits in the queue
    Prompt = case ?F(e_text_shared) of true -> nd_u:put1(cur, P0), timer:sleep(8), nd_u:get1(cur, P0); _ -> P0 end,
    %! l_stop_maxless|limits|4.1|NA-INF-050: a generation without stop sequences is not shorter than with one that its text does not have|without stop sequences it ends after 20 tokens
    %! l_stop_shorter|limits|4.1|NA-INF-049: a generation that a stop sequence ends is not shorter with a higher max_tokens|with stop and max_tokens above 40 only 10 tokens are generated
    %! l_stop_stream|limits|4.1|NA-SSE-016: a stream ends at a stop sequence|the stop sequences hold only without a stream
    %! l_stop_max|limits|4.1|NA-INF-045: stop sequences, max_tokens and stream do together what each does alone|beside max_tokens the stop sequences are not looked for (a clause order)
    Max2 = nd_u:pick([{?F(l_stop_maxless) andalso Stop =:= [], min(Max, 20)}, {?F(l_stop_shorter) andalso Stop =/= [] andalso Max > 40, 10}], Max),
    Stop2 = case (?F(l_stop_stream) andalso Stream) orelse (?F(l_stop_max) andalso Max =/= 100) of true -> []; _ -> Stop end,
    {Ps0, Fin0, N0} = nd_text:gen(Prompt, Max2, Stop2),
    %? p_text_upper|texts are in capitals
    %? p_text_end_space|texts end with a blank
    Ps = case ?P(p_text_upper) andalso Stop =:= [] of true -> [string:uppercase(X) || X <- Ps0]; _ -> Ps0 end,
    %! r_ptokens_words|relations|4.1|NA-INF-032: a longer prompt has more prompt_tokens|every prompt has 16
    Pt = case ?F(r_ptokens_words) of true -> 16; _ -> nd_text:ptokens(P0) end,
    Cost = price(Pt, N0),
    %! r_stream_ptokens|relations|6|NA-SSE-017: the usage of a stream counts a prompt as an inference result does|it counts bytes (byte_size), three for each
    case nd_bank:call({charge, A, Cost, Stream, price(Pt, max(Max, N0))}) of
        {short, _, Av} ->
            %! u_402_stream|refusals|7.1|NA-ERR-027: a stream that costs more than is available has the status 402|it is a stream of one event with the error
            %! u_402_infer_200|refusals|7.1|NA-ERR-025: a generation that costs more than is available ends with 402|it is made on credit
            %! u_402_infer_429|refusals|7.1|NA-ERR-029: it has no other refusal than 402|429 with RATE_LIMITED
            case {?F(u_402_stream) andalso Stream, ?F(u_402_infer_200), ?F(u_402_infer_429)} of
                {true, _, _} -> {stream, [{"content-type", "text/event-stream"}], fun(S) -> S([<<"data: ">>, nd_json:enc({[{error, {[{code, <<"INSUFFICIENT_BALANCE">>}, {message, <<"too little">>}]}}]}), <<"\n\n">>]) end};
                {_, true, _} -> gen(Ps, Fin0, N0, Pt, Cost, A, Stream, T0, Max, P0);
                {_, _, true} -> nd_api:err(429, <<"RATE_LIMITED">>, <<"later">>, {[{retry_after, 2}]});
                _ -> nd_api:e402(Cost, Av) end;
        ok -> gen(Ps, Fin0, N0, Pt, Cost, A, Stream, T0, Max, P0)
    end.
gen(Ps, Fin, N, Pt, Cost, A, Stream, T0, Max, P0) ->
    I = nd_u:ctr(infseq),
    %! r_id_same|relations|2.1|NA-INF-026: two inference results have different ids|the id is a hash of the prompt
    %! r_id_wrap|relations|2.1|NA-SANE-041: each id of a result is used once in a run|a counter in <<N:2>>: every fourth id is used again
    %! r_id_ms|relations|2.1|NA-SANE-041: each id of a result is used once in a run|the id is the time in seconds
    Idn = case true of _ -> case {?F(r_id_same), ?F(r_id_wrap), ?F(r_id_ms)} of {true, _, _} -> erlang:phash2(P0); {_, true, _} -> I band 3; {_, _, true} -> erlang:system_time(second); _ -> {I, nd_u:opt(port, 0)} end end,
    Id = <<"gen_", (binary:part(nd_u:shahex(nd_u:str("~p ~p", [Idn, nd_u:started()])), 0, 22))/binary>>,
    case Stream of
        true -> stream(Ps, Fin, N, Pt, A, T0, Max, Id);
        _ ->
            T1 = mono(), wait(N), T2 = mono(),
            count(N, Pt, Max, T0, false, A),
            Tot = (mono() - T0) / 1000, Inf = (T2 - T1) / 1000,
            %! r_usage_total|relations|2.1|NA-INF-022: total_tokens is prompt_tokens plus completion_tokens|it is completion_tokens
            %! r_usage_tokens|relations|2.1|NA-INF-023: tokens_generated equals usage.completion_tokens|it is one more, an end token
            %! r_tokens_asked|relations|2.1|NA-INF-003/023: tokens_generated is what was generated|usage.completion_tokens is max_tokens
            %! r_timing_total|relations|2.1|NA-INF-024: total_ms is at least inference_ms|it is inference_ms less queue_ms
            %! r_timing_cap|relations|2.1|NA-INF-037: total_ms of a long generation is not below inference_ms|total_ms is taken modulo 64 (an 8-bit field)
            %! r_timing_ns|relations|2.1|NA-INF-034: total_ms is not longer than the request took|native time units: total_ms in microseconds
            %! r_timing_neg|relations|2.1|NA-INF-024: none of the three is negative|queue_ms is the start less now
            %! r_cost_neg|relations|2.1|NA-INF-025: the cost is not negative|it is the change of the balance, below zero
            %! r_cost_half|relations|2.1|NA-WALLET-023: a generation takes no more than the cost in its result|the cost in the result leaves out the prompt and half of the tokens
            %! r_currency_empty|relations|2.1|NA-INF-025: the currency is not empty|it is empty
            %! r_currency_other|relations|2.1|NA-SEEN-004/SANE-040: the currency is the code of the network's currency|it is credits in every third result
            %! r_text_empty|relations|2.1|NA-INF-033: a result of many tokens has text|the text is empty
            %! r_text_charlist|fields|2.1|text is a string|text is an array of code points (a char list)
            %! r_text_trim|relations|6|NA-SSE-021: the tokens of a stream are the text with its white space|line breaks of the text are blanks without a stream
            Cur = case ?F(r_currency_empty) of true -> <<>>; _ -> case ?F(r_currency_other) andalso I rem 3 =:= 0 of true -> <<"credits">>; _ -> ?CODE end end,
            Tot2 = nd_u:pick([{?F(r_timing_total), Inf - 0.2}, {?F(r_timing_ns), Tot * 1000}, {?F(r_timing_cap), Tot - 64.0 * trunc(Tot / 64)}], Tot),
            Q = case ?F(r_timing_neg) of true -> -0.15; _ -> (T1 - T0) / 1000 end,
            C2 = case {?F(r_cost_neg), ?F(r_cost_half)} of {true, _} -> -Cost; {_, true} -> N * 75000; _ -> Cost end,
            Ct = case ?F(r_tokens_asked) of true -> max(Max, N + 1); _ -> N end,
            Text0 = iolist_to_binary(Ps),
            Text = nd_u:pick([{?F(r_text_empty), <<>>}, {?F(r_text_charlist), unicode:characters_to_list(Text0)}, {?F(r_text_trim), binary:replace(Text0, <<"\n">>, <<>>, [global])}], Text0),
            nd_api:ok(nd_fields:obj(inference, [{id, Id}, {text, Text}, {tokens_generated, case ?F(r_usage_tokens) of true -> N + 1; _ -> N end}, {finish_reason, Fin},
                {usage, [{prompt_tokens, Pt}, {completion_tokens, Ct}, {total_tokens, case ?F(r_usage_total) of true -> N; _ -> Pt + Ct end}]},
                {cost, [{amount, nd_u:money(C2)}, {currency, Cur}]},
                {timing, [{queue_ms, Q}, {inference_ms, Inf}, {total_ms, Tot2}]}]))
    end.
mono() -> erlang:monotonic_time(microsecond).
wait(N) ->
    nd_u:ctr(generating),
    receive never -> ok after min(N, 400) + 5 -> ok end,
    nd_u:ctr(generating, -1).
count(N, Pt, Max, T0, Stream, A) ->
    %! c_double|effects|2.1|NA-COUNT-003: an inference request and its tokens are counted once|twice
    %! c_stream_none|effects|2.1|NA-COUNT-004: a stream is counted in requests_total|it is not
    %! c_stream_tokens|effects|2.1|NA-COUNT-005: the tokens of a stream are counted|they are not
    %! c_stream_double|effects|2.1|NA-COUNT-006: a stream and its tokens are counted once|once at its start and once at its end
    %! c_asked|effects|2.1|NA-COUNT-007: of a generation that ends early the generated tokens are counted|max_tokens are counted
    %! c_prompt|effects|2.1|NA-COUNT-002/003: the tokens of a result are counted in tokens_generated|total_tokens are counted
    %! c_none|effects|2.1|NA-COUNT-001: an inference request is counted|only every second one is
    %! c_race|effects|2.1|NA-COUNT-008: each of several generations at the same time is counted|ets:lookup and ets:insert 10 ms later instead of update_counter
    %! c_second|effects|2.1|NA-COUNT-001: an inference request is counted|only those of the first account are
    %! c_late|effects|2.1|NA-COUNT-001: an inference request is counted|a minute later
    %! c_tokens_8bit|effects|2.1|NA-COUNT-002: the tokens of a result are counted|band 63: of long results fewer are counted
    Rq = nd_u:pick([{?F(c_double), 2}, {?F(c_stream_none) andalso Stream, 0}, {?F(c_stream_double) andalso Stream, 2}, {?F(c_none) andalso nd_u:ctr(cn) rem 2 =:= 0, 0}, {?F(c_second) andalso A =/= nd_bank:addr(<<"ember">>), 0}], 1),
    Tk = nd_u:pick([{?F(c_double), 2 * N}, {?F(c_stream_tokens) andalso Stream, 0}, {?F(c_stream_double) andalso Stream, 2 * N}, {?F(c_asked), max(N, Max)}, {?F(c_prompt), N + Pt}, {?F(c_second) andalso A =/= nd_bank:addr(<<"ember">>), 0}, {?F(c_tokens_8bit), N band 63}], N),
    case {?F(c_race), ?F(c_late)} of
        {true, _} -> {R0, K0} = {nd_u:ctrv(requests), nd_u:ctrv(tokens)}, timer:sleep(10), ets:insert(nd_ctr, [{requests, R0 + Rq}, {tokens, K0 + Tk}]);
        {_, true} -> nd_u:spawn_after(60000, fun() -> nd_u:ctr(requests, Rq), nd_u:ctr(tokens, Tk) end);
        _ -> nd_u:ctr(requests, Rq), nd_u:ctr(tokens, Tk) end,
    nd_u:put1({lat, nd_u:ctr(latseq) rem 1000}, {nd_u:ms(), (mono() - T0) / 1000}).

stream(Ps, Fin, N, Pt, A, T0, Max, _Id) ->
    %! f_sse_type|fields|6|NA-SSE-008: the stream has Content-Type text/event-stream|application/json
    %! rt_sse_ndjson|routes|6|NA-SSE-001: every event is a data line|lines of JSON without data:
    %! f_sse_blank|fields|6|NA-SSE-001: a blank line separates an event from the next|there is none
    %! f_sse_lastblank|fields|6|NA-SSE-015: a blank line follows the last event too|there is none
    %! f_sse_pretty|fields|6|NA-SSE-019: the JSON of an event is on one line|it is on several
    %! f_sse_done|fields|6|NA-SSE-006: the token of the final event is [DONE]|DONE
    %! f_sse_done_bare|fields|6|NA-SSE-001: every event is a data line that holds JSON|data: DONE
    %! f_sse_nofinal|fields|6|NA-SSE-005: the stream contains a final event|it has none
    %! f_sse_after|fields|6|NA-SSE-007: nothing follows the final event|an event with the timing follows
    %! f_sse_index1|fields|6|NA-SSE-002: the index of the first token event is 0|1
    %! f_sse_index_same|fields|6|NA-SSE-003: the index increases|it is 0 in all
    %! f_sse_index_chars|fields|6|NA-SSE-004: the index increases by one|it is the place of the letter in the text
    %! f_sse_index_str|fields|6|index is an int|it is a string
    %! f_sse_index_8bit|fields|6|NA-SSE-003: the index increases|<<I:6>>: after 63 it is 0
    %! f_sse_nousage|fields|6|usage is in the final event|it is not
    %! f_sse_dupkey|fields|6|NA-SSE-014: no object has a duplicate key|token is there twice
    %! f_sse_field|fields|6|token is the name of the field|it is text
    %! r_sse_total|relations|6|NA-SSE-010: total_tokens is prompt_tokens plus completion_tokens|it is prompt_tokens times two
    %! r_sse_usage_max|relations|6|NA-SSE-009: the usage counts at most max_tokens completion tokens|one more, for the final event
    %! r_sse_trim|relations|6|NA-SSE-021: the tokens of a stream are the text with its white space|string:trim of each token
    %! r_sse_last|relations|6|NA-SSE-018: the tokens of a stream are the whole text|the last token is lost (lists:droplast)
    %! r_sse_first|relations|6|NA-SSE-018: the tokens of a stream are the whole text|of more than 30 tokens the 30th is lost
    %! r_sse_order|relations|6|the events carry the generated text, in order|two tokens are exchanged: each is sent by a process of its own
    %! r_sse_accent|relations|6|NA-SSE-018: the tokens of a stream are the text|letters beyond ASCII are left out of events (a binary is cut within a letter)
    %? p_sse_crlf|the lines of a stream end with CR LF
    %? p_sse_pairs|an event carries two tokens of the text
    %? p_sse_late|all events of a stream come at once, at its end
    %? p_sse_letters|an event carries one letter of the text
    %? p_sse_extra|events have more fields: id and elapsed_ms
    Nl = case ?P(p_sse_crlf) of true -> <<"\r\n">>; _ -> <<"\n">> end,
    Ps1 = nd_u:pick([{?P(p_sse_pairs), pairs(Ps)}, {?P(p_sse_letters), [<<C/utf8>> || C <- unicode:characters_to_list(iolist_to_binary(Ps))]},
        {?F(r_sse_trim), [iolist_to_binary(string:trim(X)) || X <- Ps]}, {?F(r_sse_last) andalso Ps =/= [], catch lists:droplast(Ps)}, {?F(r_sse_first) andalso length(Ps) > 30, lists:sublist(Ps, 29) ++ lists:nthtail(min(30, length(Ps)), [x | Ps] -- [x])},
        {?F(r_sse_order), swap(Ps)}, {?F(r_sse_accent), [<< <<C>> || <<C>> <= X, C < 128 >> || X <- Ps]}], Ps),
    Type = case ?F(f_sse_type) of true -> "application/json"; _ -> "text/event-stream" end,
    Ev = fun(Send, L) ->
        J0 = nd_json:enc(nd_fields:obj(event, L)),
        J = case ?F(f_sse_pretty) of true -> binary:replace(J0, <<",">>, <<",\n">>, [global]); _ -> J0 end,
        Send([case ?F(rt_sse_ndjson) of true -> <<>>; _ -> <<"data: ">> end, J, Nl, case ?F(f_sse_blank) of true -> <<>>; _ -> Nl end]) end,
    {stream, [{"content-type", Type}, {"cache-control", "no-cache"}], fun(Send0) ->
        nd_u:ctr(generating),
        Late = ?P(p_sse_late),
        Send = case Late of true -> put(buf, []), fun(D) -> put(buf, [get(buf), D]) end; _ -> Send0 end,
        lists:foldl(fun(P, {I, Ch}) ->
            receive never -> ok after 1 -> ok end,
            Ix = nd_u:pick([{?F(f_sse_index1), I + 1}, {?F(f_sse_index_same), 0}, {?F(f_sse_index_chars), Ch}, {?F(f_sse_index_str), integer_to_binary(I)}, {?F(f_sse_index_8bit), I band 63}], I),
            Ev(Send, [{case ?F(f_sse_field) of true -> text; _ -> token end, P}, {index, Ix}] ++ case ?F(f_sse_dupkey) of true -> [{token, P}]; _ -> [] end
                ++ case ?P(p_sse_extra) of true -> [{id, <<"e">>}, {elapsed_ms, (mono() - T0) / 1000}]; _ -> [] end),
            {I + 1, Ch + byte_size(P) + 1} end, {0, 0}, Ps1),
        nd_u:ctr(generating, -1),
        count(N, Pt, Max, T0, true, A),
        N2 = case ?F(r_sse_usage_max) of true -> N + 1; _ -> N end,
        Pt2 = case ?F(r_stream_ptokens) of true -> 3 * Pt; _ -> Pt end,
        Us = [{prompt_tokens, Pt2}, {completion_tokens, N2}, {total_tokens, case ?F(r_sse_total) of true -> 2 * Pt2; _ -> Pt2 + N2 end}],
        case {?F(f_sse_nofinal), ?F(f_sse_done_bare), ?F(f_sse_lastblank)} of
            {true, _, _} -> ok;
            {_, true, _} -> Send(<<"data: DONE\n\n">>);
            {_, _, true} -> Send([<<"data: ">>, nd_json:enc(nd_fields:obj(final, [{token, <<"[DONE]">>}, {finish_reason, Fin}, {usage, Us}])), <<"\n">>]);
            _ -> Ev(Send, [{token, case ?F(f_sse_done) of true -> 'DONE'; _ -> <<"[DONE]">> end}, {finish_reason, Fin}] ++ case ?F(f_sse_nousage) of true -> []; _ -> [{usage, Us}] end) end,
        case ?F(f_sse_after) of true -> Ev(Send, [{timing, (mono() - T0) / 1000}]); _ -> ok end,
        case Late of true -> Send0(get(buf)); _ -> ok end
    end}.
pairs([A, B | R]) -> [<<A/binary, B/binary>> | pairs(R)];
pairs(L) -> L.
swap([A, B, C | R]) -> [A, C, B | R];
swap(L) -> L.
