-module(nd_conf).
-behaviour(gen_server).
-compile([export_all, nowarn_export_all]).
-compile({no_auto_import,[get/0,get/1,put/2]}).
-include("nd.hrl").
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
get() -> gen_server:call(?MODULE, get).
get(P) -> maps:get(P, get()).
put(L) -> gen_server:call(?MODULE, {put, L}).
init([]) ->
    {ok, #{[training, enabled] => true, [training, batch_size] => 24, [training, learning_rate] => 0.00035, [training, diloco_steps] => 90,
           [resources, max_memory_gb] => 12.5, [resources, cpu_threads] => 6}}.
handle_call(get, _, S) -> {reply, S, S};
handle_call({put, L}, _, S) -> {reply, ok, maps:merge(S, maps:from_list(L))}.
handle_cast(_, S) -> {noreply, S}.
handle_info({undo, L}, S) -> {noreply, maps:merge(S, maps:from_list(L))};
handle_info(_, S) -> {noreply, S}.
