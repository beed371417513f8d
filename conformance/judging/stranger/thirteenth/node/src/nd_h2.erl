-module(nd_h2).
-compile([export_all, nowarn_export_all]).
-include("nd.hrl").
%% An HTTP/2 server for gRPC over cleartext TCP (prior knowledge), one process for a connection, one for a call.

start_link(Port) ->
    {ok, L} = gen_tcp:listen(Port, [binary, {ip, {127,0,0,1}}, {active, false}, {reuseaddr, true}, {backlog, 256}, {nodelay, true}, {packet, raw}, {buffer, 262144}]),
    Pid = spawn_link(fun() -> receive go -> accept(L) end end),
    gen_tcp:controlling_process(L, Pid), Pid ! go, {ok, Pid}.
accept(L) ->
    {ok, S} = gen_tcp:accept(L),
    P = spawn(fun() -> receive go -> nd_u:ctr(conns), try serve(S) catch _:_ -> ok after nd_u:ctr(conns, -1), gen_tcp:close(S) end end end),
    gen_tcp:controlling_process(S, P), P ! go,
    accept(L).
-define(PREFACE, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").
-define(BIG, 2147483647).
frame(T, F, Id, B) -> [<<(iolist_size(B)):24, T, F, 0:1, Id:31>>, B].
settings() -> frame(4, 0, 0, <<4:16, ?BIG:32, 5:16, 1048576:32, 3:16, 1000:32>>).

serve(S) ->
    {ok, <<?PREFACE>>} = gen_tcp:recv(S, 24, 30000),
    gen_tcp:send(S, [settings(), frame(8, 0, 0, <<0:1, (?BIG - 65535):31>>)]),
    {ok, {Ip, _}} = inet:peername(S),
    loop(#{s => S, ip => Ip, hp => nd_hpack:new(), st => #{}, win => 65535, init => 65535, maxf => 16384, wait => [], cont => none, got => 0, self => self()}).
%% The reader is a process of its own, so that answers can be sent while nothing comes.
loop(#{s := S} = C) ->
    Me = self(),
    R = spawn_link(fun() -> reader(S, Me) end),
    process_flag(trap_exit, true),
    run(C#{reader => R}).
reader(S, Me) ->
    case gen_tcp:recv(S, 9) of
        {ok, <<L:24, T, F, _:1, Id:31>>} when L =< 1048576 ->
            P = case L of 0 -> {ok, <<>>}; _ -> gen_tcp:recv(S, L) end,
            case P of {ok, B} -> Me ! {frame, T, F, Id, B},
                receive ok -> ok after 0 -> ok end, reader(S, Me); _ -> ok end;
        _ -> ok end.
run(C) ->
    receive
        {frame, T, F, Id, B} -> case fr(T, F, Id, B, C) of stop -> ok; C2 -> run(C2) end;
        {answer, Id, Fs} -> run(flush(push(Id, Fs, C)));
        {'EXIT', R, _} -> case C of #{reader := R} -> [exit(P, kill) || #{pid := P} <- maps:values(maps:get(st, C)), is_pid(P)], ok; _ -> run(C) end;
        _ -> run(C)
    end.
send(#{s := S}, X) -> gen_tcp:send(S, X).
fr(_, _, _, _, #{cont := {_, _, _}} = C) when false -> C;
fr(4, 1, _, _, C) -> C;
fr(4, _, 0, B, C) ->
    C2 = lists:foldl(fun({4, V}, X) -> D = V - maps:get(init, X), X#{init := V, st := maps:map(fun(_, Q) -> Q#{win := maps:get(win, Q) + D} end, maps:get(st, X))};
                        ({5, V}, X) -> X#{maxf := V}; (_, X) -> X end, C, [{K, V} || <<K:16, V:32>> <= B]),
    send(C, frame(4, 1, 0, <<>>)), flush(C2);
fr(6, 1, _, _, C) -> C;
fr(6, _, 0, B, C) -> send(C, frame(6, 1, 0, B)), C;
fr(8, _, 0, <<_:1, N:31>>, C) -> flush(C#{win := maps:get(win, C) + N});
fr(8, _, Id, <<_:1, N:31>>, #{st := St} = C) ->
    case St of #{Id := Q} -> flush(C#{st := St#{Id := Q#{win := maps:get(win, Q) + N}}}); _ -> C end;
fr(1, F, Id, B0, C) ->
    B1 = pad(F, B0),
    B = case F band 32 of 0 -> B1; _ -> <<_:40, X/binary>> = B1, X end,
    case F band 4 of 0 -> C#{cont := {Id, F, B}}; _ -> head(Id, F, B, C) end;
fr(9, F, Id, B, #{cont := {Id, F0, A}} = C) ->
    case F band 4 of 0 -> C#{cont := {Id, F0, <<A/binary, B/binary>>}}; _ -> head(Id, F0, <<A/binary, B/binary>>, C#{cont := none}) end;
fr(0, F, Id, B0, #{st := St, got := Got} = C) ->
    B = pad(F, B0),
    N = byte_size(B0),
    C1 = case Got + N > 16777216 of
        true -> send(C, frame(8, 0, 0, <<0:1, (Got + N):31>>)), C#{got := 0};
        _ -> C#{got := Got + N} end,
    nd_u:ctr(bytes_in, N),
    case St of
        #{Id := #{pid := P, sum := Sum} = Q} ->
            %! l_grpc_4m|limits|8|LIM-007: a server accepts a gRPC message of nearly 100 MiB|messages above 4 MiB end the call with RESOURCE_EXHAUSTED
            %! l_grpc_64m|limits|8|LIM-007: a server accepts a gRPC message of nearly 100 MiB|messages above 64 MiB end the call (a limit in bytes written as MB)
            Lim = case {?F(l_grpc_4m), ?F(l_grpc_64m)} of {true, _} -> 4194304; {_, true} -> 67108864; _ -> 110000000 end,
            case Sum + N > Lim of
                true -> exit(P, kill), flush(push(Id, [{h, [{":status", "200"}, {"content-type", "application/grpc"}, {"grpc-status", "8"}, {"grpc-message", "message too large"}], true}], C1));
                _ -> P ! {data, B, F band 1 =:= 1}, C1#{st := St#{Id := Q#{sum := Sum + N}}} end;
        _ -> C1 end;
fr(3, _, Id, _, #{st := St} = C) -> case St of #{Id := #{pid := P}} -> exit(P, kill); _ -> ok end, C#{st := maps:remove(Id, St)};
fr(7, _, _, _, _) -> stop;
fr(_, _, _, _, C) -> C.
pad(F, <<N, B/binary>>) when F band 8 =/= 0 -> binary:part(B, 0, byte_size(B) - N);
pad(_, B) -> B.
head(Id, F, B, #{hp := Hp, st := St, init := I, ip := Ip} = C) ->
    {Hs, Hp2} = nd_hpack:decode(B, Hp),
    Conn = self(),
    case St of
        #{Id := #{pid := P}} -> P ! {data, <<>>, true}, C#{hp := Hp2};
        _ ->
            P = spawn(fun() -> nd_grpc:call(Conn, Id, Hs, Ip, F band 1 =:= 1) end),
            C#{hp := Hp2, st := St#{Id => #{pid => P, win => I, q => [], sum => 0}}}
    end.
%% what a call answers: {h, Headers, End} and {d, Data}
push(Id, Fs, #{st := St} = C) -> case St of #{Id := #{q := Q} = X} -> C#{st := St#{Id := X#{q := Q ++ Fs}}}; _ -> C end.
flush(#{st := St} = C) -> lists:foldl(fun(Id, X) -> out(Id, X) end, C, [Id || {Id, #{q := [_ | _]}} <- maps:to_list(St)]).
out(Id, #{st := St, win := W, maxf := M} = C) ->
    #{Id := #{q := Q, win := Sw} = X} = St,
    case Q of
        [] -> C;
        [{h, Hs, End} | R] ->
            send(C, frame(1, 4 bor (case End of true -> 1; _ -> 0 end), Id, nd_hpack:encode(Hs))),
            case End of true -> C#{st := maps:remove(Id, St)}; _ -> out(Id, C#{st := St#{Id := X#{q := R}}}) end;
        [{d, <<>>} | R] -> out(Id, C#{st := St#{Id := X#{q := R}}});
        [{d, B} | R] ->
            N = lists:min([W, Sw, M, byte_size(B)]),
            case N > 0 of
                true ->
                    <<A:N/binary, Z/binary>> = B,
                    nd_u:ctr(bytes_out, N),
                    send(C, frame(0, 0, Id, A)),
                    out(Id, C#{win := W - N, st := St#{Id := X#{win := Sw - N, q := [{d, Z} | R]}}});
                _ -> C end
    end.
