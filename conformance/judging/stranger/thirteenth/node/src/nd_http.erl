-module(nd_http).
-compile([export_all, nowarn_export_all]).
-include("nd.hrl").

start_link(Port) ->
    {ok, L} = gen_tcp:listen(Port, [binary, {ip, {127,0,0,1}}, {active, false}, {reuseaddr, true}, {backlog, 256}, {nodelay, true}, {packet, http_bin}, {packet_size, 65536}]),
    Pid = spawn_link(fun() -> receive go -> accept(L) end end),
    gen_tcp:controlling_process(L, Pid),
    Pid ! go,
    {ok, Pid}.
accept(L) ->
    {ok, S} = gen_tcp:accept(L),
    P = spawn(fun() -> receive go -> nd_u:ctr(conns), try conn(S, 0) after nd_u:ctr(conns, -1) end end end),
    gen_tcp:controlling_process(S, P),
    P ! go,
    accept(L).

conn(S, N) ->
    inet:setopts(S, [{packet, http_bin}]),
    case gen_tcp:recv(S, 0, 75000) of
        {ok, {http_request, M, U, V}} ->
            case headers(S, #{}, 0) of
                {ok, H} ->
                    inet:setopts(S, [{packet, raw}]),
                    case body(S, H) of
                        {ok, B} ->
                            nd_u:ctr(bytes_in, byte_size(B) + 200),
                            Keep = keep(V, H),
                            R = request(M, U, H, B, N),
                            Go = reply(S, M, R, V, Keep),
                            case Go andalso Keep of true -> conn(S, N + 1); _ -> bye(S) end;
                        {bad, Code} -> reply(S, M, nd_api:err(Code, bad_body(Code), <<"the body cannot be read">>), V, false), bye(S)
                    end;
                bad -> reply(S, 'GET', nd_api:err(431, <<"HEADERS_TOO_LARGE">>, <<"too many headers">>), {1,1}, false), bye(S);
                closed -> gen_tcp:close(S)
            end;
        {ok, {http_error, X}} when X =:= "\r\n"; X =:= <<"\r\n">>; X =:= <<"\n">> -> conn(S, N);
        {ok, {http_error, _}} -> reply(S, 'GET', nd_api:err(400, <<"BAD_REQUEST">>, <<"this is not HTTP">>), {1,1}, false), bye(S);
        _ -> gen_tcp:close(S)
    end.
bye(S) -> gen_tcp:shutdown(S, write), inet:setopts(S, [{packet, raw}]), gen_tcp:recv(S, 0, 200), gen_tcp:close(S).
bad_body(413) -> <<"BODY_TOO_LARGE">>;
bad_body(_) -> <<"INVALID_BODY">>.
headers(_, _, N) when N > 100 -> bad;
headers(S, M, N) ->
    case gen_tcp:recv(S, 0, 20000) of
        {ok, {http_header, _, K, Raw, V}} ->
            Key = string:lowercase(case is_atom(K) of true -> atom_to_binary(K); _ -> K end),
            %! g_header_case|guards|5|NA-FORM-004: the names of headers are read in any case|Authorization is only found when it is written with a capital A
            Key2 = case ?F(g_header_case) andalso Key =:= <<"authorization">> andalso rawname(Raw) =/= <<"Authorization">> of true -> <<"x">>; _ -> Key end,
            headers(S, M#{Key2 => V}, N + 1);
        {ok, http_eoh} -> {ok, M};
        {ok, {http_error, _}} -> bad;
        _ -> closed
    end.
rawname(R) when is_binary(R) -> R;
rawname(R) when is_list(R) -> list_to_binary(R);
rawname(_) -> <<>>.
keep({1, 1}, H) -> string:lowercase(maps:get(<<"connection">>, H, <<>>)) =/= <<"close">>;
keep(_, H) -> string:lowercase(maps:get(<<"connection">>, H, <<>>)) =:= <<"keep-alive">>.
-define(MAXBODY, 2097152).
body(S, H) ->
    case string:lowercase(maps:get(<<"expect">>, H, <<>>)) of <<"100-continue">> -> gen_tcp:send(S, <<"HTTP/1.1 100 Continue\r\n\r\n">>); _ -> ok end,
    case maps:get(<<"transfer-encoding">>, H, undefined) of
        undefined ->
            case catch binary_to_integer(maps:get(<<"content-length">>, H, <<"0">>)) of
                0 -> {ok, <<>>};
                %! l_body_4k|limits|4.1|NA-INF-048/030: a longer prompt is accepted as well|a body of more than 512 bytes gets 413
                N when is_integer(N), N > 512 -> case N > ?MAXBODY orelse ?F(l_body_4k) of true -> {bad, 413}; _ -> rd(S, N) end;
                N when is_integer(N), N > 0 -> rd(S, N);
                _ -> {bad, 400}
            end;
        _ ->
            %! u_chunked|refusals|4.1|NA-FORM-002: a body is accepted in chunks|a body with Transfer-Encoding: chunked gets 411
            case ?F(u_chunked) of
                true -> {bad, 411};
                _ -> inet:setopts(S, [{packet, line}]), chunks(S, [], 0)
            end
    end.
rd(S, N) -> case gen_tcp:recv(S, N, 30000) of {ok, B} -> {ok, B}; _ -> {bad, 400} end.
chunks(_, _, N) when N > ?MAXBODY -> {bad, 413};
chunks(S, A, N) ->
    case gen_tcp:recv(S, 0, 30000) of
        {ok, L} ->
            [X | _] = binary:split(string:trim(L), <<";">>),
            case catch binary_to_integer(X, 16) of
                0 -> trail(S), {ok, iolist_to_binary(lists:reverse(A))};
                K when is_integer(K), K > 0, K =< ?MAXBODY ->
                    inet:setopts(S, [{packet, raw}]),
                    case gen_tcp:recv(S, K + 2, 30000) of
                        {ok, B} ->
                            inet:setopts(S, [{packet, line}]),
                            %! u_chunk_first|refusals|4.1|NA-FORM-002: a body is accepted in chunks|only the first chunk of a body is read
                            A2 = case ?F(u_chunk_first) andalso A =/= [] of true -> A; _ -> [binary:part(B, 0, K) | A] end,
                            chunks(S, A2, N + K);
                        _ -> {bad, 400}
                    end;
                _ -> {bad, 400}
            end;
        _ -> {bad, 400}
    end.
trail(S) -> case gen_tcp:recv(S, 0, 5000) of {ok, <<"\r\n">>} -> ok; {ok, <<"\n">>} -> ok; {ok, _} -> trail(S); _ -> ok end.

request(M, U, H, B, N) ->
    Raw = case U of {abs_path, P} -> P; {absoluteURI, _, _, _, P} -> P; '*' -> <<"*">>; {scheme, _, _} -> <<"/">>; P when is_binary(P) -> P; _ -> <<"/">> end,
    {Path, Q} = case binary:split(hd(binary:split(Raw, <<"#">>)), <<"?">>) of [A] -> {A, <<>>}; [A, C] -> {A, C} end,
    Meth = case is_atom(M) of true -> atom_to_binary(M); _ -> M end,
    Req = #{m => Meth, path => pct(Path, false), q => query(Q), h => H, body => B, n => N, t0 => erlang:monotonic_time(microsecond)},
    try nd_api:route(Req)
    catch C2:E:St ->
        case os:getenv("ND_DEBUG") of false -> ok; _ -> io:format(standard_error, "~p~n", [{C2, E, St}]) end,
        %! u_traceback|refusals|7.1|NA-ERR-014: an error does not show a traceback|errors carry the Erlang stack
        nd_api:err(500, <<"INTERNAL_ERROR">>, <<"the node failed">>)
    end.
query(<<>>) -> [];
query(Q) ->
    [case binary:split(X, <<"=">>) of
        %! u_query_pct|refusals|4.1|NA-FORM-003: a query means the same with letters in percent encoding|the names of parameters are not decoded
        [K, V] -> {case ?F(u_query_pct) of true -> K; _ -> pct(K, true) end, pct(V, true)};
        [K] -> {pct(K, true), <<>>} end || X <- binary:split(Q, <<"&">>, [global]), X =/= <<>>].
pct(<<$%, A, B, R/binary>> = All, Plus) ->
    try X = binary_to_integer(<<A, B>>, 16), <<X, (pct(R, Plus))/binary>>
    catch _:_ -> <<C, T/binary>> = All, <<C, (pct(T, Plus))/binary>> end;
pct(<<$+, R/binary>>, true) -> <<32, (pct(R, true))/binary>>;
pct(<<C, R/binary>>, P) -> <<C, (pct(R, P))/binary>>;
pct(<<>>, _) -> <<>>.

status(S) -> case S of 100 -> "Continue"; 200 -> "OK"; 201 -> "Created"; 202 -> "Accepted"; 204 -> "No Content"; 302 -> "Found"; 303 -> "See Other"; 307 -> "Temporary Redirect"; 301 -> "Moved Permanently"; 400 -> "Bad Request"; 401 -> "Unauthorized"; 402 -> "Payment Required"; 403 -> "Forbidden"; 404 -> "Not Found"; 405 -> "Method Not Allowed"; 409 -> "Conflict"; 410 -> "Gone"; 411 -> "Length Required"; 413 -> "Payload Too Large"; 422 -> "Unprocessable Entity"; 429 -> "Too Many Requests"; 431 -> "Header Fields Too Large"; 500 -> "Internal Server Error"; 503 -> "Service Unavailable"; _ -> "Status" end.

reply(S, M, {stream, Hs, Fun}, V, Keep) ->
    Chunk = V =:= {1, 1},
    Te = case Chunk of true -> [{"transfer-encoding", "chunked"}]; _ -> [] end,
    gen_tcp:send(S, head(200, Hs ++ Te ++ conn_h(V, Keep andalso Chunk))),
    case M of
        'HEAD' -> true;
        _ ->
            Send = fun(D0) -> D = iolist_to_binary(D0), nd_u:ctr(bytes_out, byte_size(D)),
                case Chunk of true -> gen_tcp:send(S, [integer_to_list(byte_size(D), 16), "\r\n", D, "\r\n"]); _ -> gen_tcp:send(S, D) end end,
            Fun(Send),
            %! l_sse_open|limits|6|NA-SSE-022: the response of a stream ends with its last event|the last chunk of a stream comes 9 s after its last event
            case ?F(l_sse_open) of true -> timer:sleep(9000); _ -> ok end,
            case Chunk of true -> gen_tcp:send(S, <<"0\r\n\r\n">>), true; _ -> false end
    end;
reply(S, M, {Code, Hs, Body0}, V, Keep) ->
    Body = iolist_to_binary(Body0),
    nd_u:ctr(bytes_out, byte_size(Body) + 150),
    %? p_chunked_answers|every answer with a body is sent in chunks
    %? p_slow|every answer comes 250 ms late
    %? p_close|every answer ends its connection
    %? p_dribble|an answer is sent in pieces of 7 bytes
    case ?P(p_slow) of true -> timer:sleep(250); _ -> ok end,
    Keep2 = Keep andalso not ?P(p_close),
    case ?P(p_chunked_answers) andalso V =:= {1, 1} andalso M =/= 'HEAD' of
        true ->
            gen_tcp:send(S, head(Code, Hs ++ [{"transfer-encoding", "chunked"}] ++ conn_h(V, Keep2))),
            Half = byte_size(Body) div 2, <<A:Half/binary, B/binary>> = Body,
            [gen_tcp:send(S, [integer_to_list(byte_size(X), 16), "\r\n", X, "\r\n"]) || X <- [A, B], X =/= <<>>],
            gen_tcp:send(S, <<"0\r\n\r\n">>);
        _ ->
            Len = [{"content-length", integer_to_list(byte_size(Body))}],
            Out = [head(Code, Hs ++ Len ++ conn_h(V, Keep2)), case M of 'HEAD' -> <<>>; _ -> Body end],
            case ?P(p_dribble) of
                true -> drib(S, iolist_to_binary(Out));
                _ -> gen_tcp:send(S, Out)
            end
    end,
    Keep2.
drib(S, <<A:700/binary, R/binary>>) -> gen_tcp:send(S, A), timer:sleep(3), drib(S, R);
drib(S, A) -> gen_tcp:send(S, A).
conn_h({1, 1}, true) -> [];
conn_h(_, true) -> [{"connection", "keep-alive"}];
conn_h(_, false) -> [{"connection", "close"}].
head(Code, Hs) ->
    %? p_header_upper|the names of all headers of answers are in capitals
    %? p_header_more|answers have more headers: Server, X-Request-Id, Cache-Control
    %? p_reason_empty|the status line has no reason
    Up = fun(K) -> case ?P(p_header_upper) of true -> string:uppercase(K); _ -> K end end,
    More = case ?P(p_header_more) of true -> [{"server", "kelvin"}, {"x-request-id", integer_to_list(nd_u:rnd(1000000))}, {"cache-control", "no-store"}]; _ -> [] end,
    ["HTTP/1.1 ", integer_to_list(Code), " ", case ?P(p_reason_empty) of true -> ""; _ -> status(Code) end, "\r\n", Up("date"), ": ", nd_u:httpdate(), "\r\n",
     [[Up(K), ": ", V, "\r\n"] || {K, V} <- Hs ++ More], "\r\n"].
