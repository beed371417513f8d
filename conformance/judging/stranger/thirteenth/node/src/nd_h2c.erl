-module(nd_h2c).
-export([call/5]).
%% A unary call to a peer: {Code, Message, Bytes}. Code 14 if nobody answers, 4 after the deadline.
call(Host, Port, Op, Req, Timeout) ->
    Me = self(), Ref = make_ref(),
    P = spawn(fun() -> Me ! {Ref, (catch go(Host, Port, Op, Req, Timeout))} end),
    receive {Ref, {C, M, B}} when is_integer(C) -> {C, M, B}; {Ref, _} -> {14, <<"no answer">>, <<>>}
    after Timeout + 200 -> exit(P, kill), {4, <<"deadline">>, <<>>} end.
go(Host, Port, Op, Req, Timeout) ->
    case gen_tcp:connect(Host, Port, [binary, {active, false}, {nodelay, true}], Timeout) of
        {ok, S} ->
            nd_u:ctr(rpc_out),
            H = nd_hpack:encode([{":method", "POST"}, {":scheme", "http"}, {":path", ["/node.NodeService/", Op]}, {":authority", [Host, ":", integer_to_list(Port)]}, {"te", "trailers"}, {"content-type", "application/grpc"}, {"grpc-timeout", [integer_to_list(Timeout), "m"]}, {"user-agent", "kelvin/3.1"}]),
            D = iolist_to_binary([<<0, (byte_size(Req)):32>>, Req]),
            gen_tcp:send(S, ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", nd_h2:settings(), nd_h2:frame(8, 0, 0, <<0:1, (2147483647 - 65535):31>>), nd_h2:frame(1, 4, 1, H)]),
            End = erlang:monotonic_time(millisecond) + Timeout,
            R = rd(S, End, #{hp => nd_hpack:new(), d => <<>>, h => [], out => D, win => 65535, sw => 65535, init => 65535}),
            gen_tcp:close(S), R;
        {error, timeout} -> {4, <<"deadline">>, <<>>};
        _ -> {14, <<"cannot connect">>, <<>>} end.
pump(S, #{out := O, win := W, sw := Sw} = C) when O =/= done ->
    N = lists:min([W, Sw, 16384, byte_size(O)]),
    if N =< 0 -> C;
       true -> <<A:N/binary, Z/binary>> = O,
            Fl = case Z of <<>> -> 1; _ -> 0 end,
            gen_tcp:send(S, nd_h2:frame(0, Fl, 1, A)),
            pump(S, C#{out := case Z of <<>> -> done; _ -> Z end, win := W - N, sw := Sw - N}) end;
pump(_, C) -> C.
rd(S, End, C0) ->
    C = pump(S, C0),
    T = max(1, End - erlang:monotonic_time(millisecond)),
    case gen_tcp:recv(S, 9, T) of
        {ok, <<L:24, Ty, F, _:1, Id:31>>} ->
            B = case L of 0 -> <<>>; _ -> {ok, X} = gen_tcp:recv(S, L, T), X end,
            case f(Ty, F, Id, B, S, C) of {done, R} -> R; C2 -> rd(S, End, C2) end;
        {error, timeout} -> {4, <<"deadline">>, <<>>};
        _ -> {14, <<"connection lost">>, <<>>} end.
f(4, 1, _, _, _, C) -> C;
f(4, _, _, B, S, C) -> gen_tcp:send(S, nd_h2:frame(4, 1, 0, <<>>)), lists:foldl(fun({4, V}, #{sw := W, init := I} = X) -> X#{sw := W + V - I, init := V}; (_, X) -> X end, C, [{K, V} || <<K:16, V:32>> <= B]);
f(6, 0, _, B, S, C) -> gen_tcp:send(S, nd_h2:frame(6, 1, 0, B)), C;
f(8, _, 0, <<_:1, N:31>>, _, #{win := W} = C) -> C#{win := W + N};
f(8, _, 1, <<_:1, N:31>>, _, #{sw := W} = C) -> C#{sw := W + N};
f(0, F, 1, B, _, #{d := D} = C) -> fin(F, C#{d := <<D/binary, (nd_h2:pad(F, B))/binary>>});
f(1, F, 1, B0, _, #{hp := Hp, h := H} = C) ->
    B1 = nd_h2:pad(F, B0), B = case F band 32 of 0 -> B1; _ -> <<_:40, X/binary>> = B1, X end,
    {Hs, Hp2} = nd_hpack:decode(B, Hp), fin(F, C#{hp := Hp2, h := H ++ Hs});
f(3, _, _, _, _, _) -> {done, {14, <<"stream reset">>, <<>>}};
f(7, _, _, _, _, C) -> C;
f(_, _, _, _, _, C) -> C.
fin(F, #{h := H, d := D} = C) when F band 1 =:= 1 ->
    Code = case lists:keyfind(<<"grpc-status">>, 1, H) of {_, X} -> binary_to_integer(X); _ -> 2 end,
    M = proplists:get_value(<<"grpc-message">>, H, <<>>),
    {done, {Code, M, case D of <<_, N:32, R:N/binary, _/binary>> -> R; _ -> <<>> end}};
fin(_, C) -> C.
