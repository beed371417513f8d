-module(nd_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    P = nd_u:opt(port, 8000),
    C = fun(M, A) -> #{id => M, start => {M, start_link, A}} end,
    {ok, {#{strategy => one_for_one, intensity => 200, period => 10},
        [C(nd_bank, []), C(nd_conf, []), C(nd_chain, []), C(nd_dht, []), C(nd_pipe, []), C(nd_h2, [P + 1000]), C(nd_http, [P])]}}.
