-module(nd).
-export([main/0, main/1]).
main() -> main(init:get_plain_arguments()).
main(["sign" | A]) -> nd_sign:main(A), halt(0, [{flush, true}]);
main(A) ->
    case lists:member("--list", A) of
        true -> list(), halt(0, [{flush, true}]);
        _ -> start(opts(A, #{port => 8000, switch => none, peers => []})) end.
opts(["--port", P | R], O) -> opts(R, O#{port := list_to_integer(P)});
opts(["--fault", F | R], O) -> opts(R, O#{switch := known(F)});
opts(["--peculiar", F | R], O) -> opts(R, O#{switch := known(F)});
opts(["--peer", F | R], O) -> [H, P] = string:split(F, ":"), opts(R, O#{peers := [{H, list_to_integer(P)} | maps:get(peers, O)]});
opts([X | _], _) -> io:format(standard_error, "unknown option ~s~n", [X]), halt(2);
opts([], O) -> O.
dir() -> filename:dirname(filename:dirname(code:which(?MODULE))).
ids() ->
    lists:append([begin {ok, B} = file:read_file(filename:join(dir(), F)), [hd(binary:split(L, <<"\t">>)) || L <- binary:split(B, <<"\n">>, [global]), L =/= <<>>] end || F <- ["faults.tsv", "peculiarities.tsv"]]).
known(F) ->
    case lists:member(list_to_binary(F), ids()) of
        true -> list_to_atom(F);
        _ -> io:format(standard_error, "unknown id ~s~n", [F]), halt(2) end.
list() -> io:put_chars([[I, "\n"] || I <- ids()]).
start(#{port := P, switch := S, peers := Pe}) ->
    logger:set_primary_config(level, case os:getenv("ND_DEBUG") of false -> none; _ -> error end),
    persistent_term:put(nd_switch, S),
    persistent_term:put({nd_opt, port}, P),
    persistent_term:put({nd_opt, peers}, Pe),
    persistent_term:put({nd_opt, started}, nd_u:ms()),
    ets:new(nd_ctr, [named_table, public, {write_concurrency, true}]),
    ets:new(nd_kv, [named_table, public]),
    case nd_sup:start_link() of
        {ok, Pid} -> unlink(Pid), io:format("listening on 127.0.0.1:~p and ~p~n", [P, P + 1000]), receive stop -> ok end;
        E -> io:format(standard_error, "~p~n", [E]), halt(1) end.
