-module(nd_dht).
-behaviour(gen_server).
-compile([export_all, nowarn_export_all]).
-include("nd.hrl").
-define(K, 10).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
id() -> crypto:hash(sha, nd_key:pub(nd_u:str("node ~p", [nd_u:opt(port, 0)]))).
self_info() ->
    %! d_resp_http_port|grpc|2.3|DH-029: the port of the responder is one under which it is reached|port plus 2000
    %! d_resp_noip|grpc|2.3|DH-028: the responder has an address|ip is empty
    %! d_resp_noport|grpc|2.3|DH-026: the responder has a port|it is 0
    %! d_resp_id_hex|grpc|2.3|DH-003: every node ID is 20 bytes long|it is 40 bytes of hex
    %! d_resp_id_32|grpc|2.3|DH-003/LIM-010: a node ID is 20 bytes long|it is a SHA-256 of 32 bytes
    %! d_resp_id_rand|grpc|4.3|DH-002: the responder has the same node ID in two answers|crypto:strong_rand_bytes(20) each time
    P = nd_u:opt(port, 0) + 1000,
    I = id(),
    #{node_id => nd_u:pick([{?F(d_resp_id_hex), nd_u:hex(I)}, {?F(d_resp_id_32), crypto:hash(sha256, I)}, {?F(d_resp_id_rand), crypto:strong_rand_bytes(20)}], I),
      ip => case ?F(d_resp_noip) of true -> <<>>; _ -> <<"127.0.0.1">> end, port => nd_u:pick([{?F(d_resp_http_port), P + 1000}, {?F(d_resp_noport), 0}], P)}.
init([]) ->
    ets:new(nd_nodes, [named_table, public]), ets:new(nd_vals, [named_table, public]),
    [ets:insert(nd_nodes, {crypto:hash(sha, nd_key:pub(nd_u:str("peer ~p", [I]))), nd_u:str("10.77.~p.~p", [I, 10 + I]), 9000 + I}) || I <- lists:seq(1, 5)],
    [spawn_link(fun() -> timer:sleep(300 + nd_u:rnd(200)), greet(H, P, 0) end) || {H, P} <- nd_u:opt(peers, [])],
    {ok, x}.
greet(H, P, N) ->
    S = self_info(),
    R = nd_h2c:call(H, P + 1000, "DHTPing", nd_pb:enc('DHTPingRequest', #{sender => S}), 5000),
    case {R, N} of {{0, _, _}, 0} -> nd_h2c:call(H, P + 1000, "DHTFindNode", nd_pb:enc('DHTFindNodeRequest', #{sender => S, target_id => id()}), 5000); _ -> ok end,
    timer:sleep(case R of {0, _, _} -> 20000; _ -> min(30000, 2000 bsl min(N, 4)) end),
    greet(H, P, case R of {0, _, _} -> 1; _ -> N + 1 end).
handle_call({sender, Id, Ip, Port}, _, S) ->
    %! d_moved_twice|grpc|4.3|DH-024: a node whose address has changed is listed once|it is listed at both addresses
    %! d_moved_old|grpc|4.3|DH-034: a node whose address has changed is listed at its new address|ets:insert_new: it stays at the old one
    case {?F(d_moved_old), ?F(d_moved_twice)} of
        {true, _} -> ets:insert_new(nd_nodes, {Id, Ip, Port});
        {_, true} -> case ets:lookup(nd_nodes, Id) of [{_, Ip, Port}] -> ok; [{_, A, B}] -> ets:insert(nd_nodes, {{old, Id}, A, B}), ets:insert(nd_nodes, {Id, Ip, Port}); _ -> ets:insert(nd_nodes, {Id, Ip, Port}) end;
        _ -> case ets:info(nd_nodes, size) > 20000 of true -> ok; _ -> ets:insert(nd_nodes, {Id, Ip, Port}) end end,
    {reply, ok, S};
handle_call({store, K, V}, _, S) -> ets:insert(nd_vals, {K, V, nd_u:ms()}), {reply, ok, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(_, S) -> {noreply, S}.

%% the sender of a request becomes known
learn(undefined, _) -> ok;
learn(#{node_id := <<>>}, _) -> ok;
learn(#{node_id := Id}, _) when byte_size(Id) =/= 20 -> throw({st, 3, <<"a node id has 20 bytes">>});
learn(#{node_id := Id, ip := Ip0, port := P}, Peer) ->
    %! d_noaddr_listed|grpc|2.3|DH-027: a sender that names no address is not listed without one|it is listed with an empty ip
    %! d_port_any|grpc|4.3|DH-013: every port in a DHTNodeInfo is between 1 and 65535|a sender with port 0 or 70000 is listed with it
    %! d_ip_tuple|grpc|2.3|DH-033: the ip of listed nodes is readable text|the four raw bytes of the address
    %! d_no_learn|grpc|4.3|DH-012: the K closest among those that the node knows|senders of requests are forgotten if 8 are known
    Ip = case {Ip0, ?F(d_noaddr_listed)} of {<<>>, false} -> list_to_binary(inet:ntoa(Peer)); _ -> Ip0 end,
    Me = id(),
    case (P > 0 andalso P < 65536) orelse ?F(d_port_any) of
        true when Id =/= Me -> case ?F(d_no_learn) andalso ets:info(nd_nodes, size) >= 8 andalso not ets:member(nd_nodes, Id) of true -> ok; _ -> gen_server:call(?MODULE, {sender, Id, Ip, P}) end;
        _ -> ok end.
closest(T) ->
    %! d_k_bigger|grpc|4.3|DH-020: a search lists the K closest nodes|two of them, where more are known
    %! d_far|grpc|4.3|DH-016: no node is listed that is farther than one that is left out|the farthest are listed
    %! d_lexical|grpc|4.3|DH-012: the K nodes closest to target_id|sorted by id, not by XOR
    %! d_diff|grpc|4.3|DH-012: the K nodes closest to target_id|the distance is the difference of the numbers, not their XOR
    %! d_xor_64|grpc|4.3|DH-030: of known nodes whose IDs begin alike those that are closest are listed too|only the first 16 bits are compared
    %! d_last_two|grpc|4.3|DH-006: a search for the ID of a node that is listed finds it|an exact match is left out (distance 0 is taken for the node itself)
    %! d_dup|grpc|4.3|DH-005: no node is listed twice|the first node is there twice
    %! d_self_twice|grpc|4.3|DH-012: among those that the node knows|only the nodes of the start are searched
    Ns = [N || {I, _, _} = N <- ets:tab2list(nd_nodes), is_binary(I) orelse is_tuple(I)],
    Key = fun({I0, _, _}) -> I = case I0 of {old, X} -> X; X -> X end,
        A = binary:decode_unsigned(I), B = binary:decode_unsigned(T), D = A bxor B,
        nd_u:pick([{?F(d_far), -D}, {?F(d_lexical), A}, {?F(d_diff), abs(A - B)}, {?F(d_xor_64), {D bsr 144, A}}], D) end,
    L = [N || {_, N} <- lists:sort([{Key(N), N} || N <- Ns])],
    %? p_k_3|K is 3
    %? p_k_20|K is 20
    Kk = nd_u:pick([{?P(p_k_3), 3}, {?P(p_k_20), 20}, {?F(d_k_bigger), 2}], ?K),
    L2 = case ?F(d_last_two) of true -> [N || {I, _, _} = N <- L, I =/= T]; _ -> L end,
    L3 = case ?F(d_self_twice) of true -> [N || {_, <<"10.77", _/binary>>, _} = N <- L2]; _ -> L2 end,
    R = [#{node_id => case I of {old, X} -> X; _ -> I end, ip => case ?F(d_ip_tuple) of true -> <<10, 77, 1, 11>>; _ -> Ip end, port => P} || {I, Ip, P} <- lists:sublist(L3, Kk)],
    case ?F(d_dup) andalso R =/= [] of true -> [hd(R) | R]; _ -> R end.
ping(#{sender := S}, Peer) -> learn(S, Peer), {ok, #{responder =>
    %! d_ping_sender|grpc|4.3|DH-001/017: DHTPing answers with the node itself as responder|it answers with the sender
    case ?F(d_ping_sender) andalso S =/= undefined of true -> S; _ -> self_info() end}}.
k20(K) -> case byte_size(K) of 20 -> ok;
    %! d_len_internal|grpc|7.3|GR-CODE-011/015: a search for an ID of another length ends with a documented status|it ends with UNKNOWN (a crash of the call)
    %! d_len_fatal|grpc|7.3|GR-CODE-015: a well-formed request for what does not fit is not called a failure of the server|INTERNAL
    _ -> case {?F(d_len_internal), ?F(d_len_fatal)} of {true, _} -> throw({st, 2, <<"function_clause">>}); {_, true} -> throw({st, 13, <<"function_clause">>}); _ -> throw({st, 3, <<"a key has 20 bytes">>}) end end.
find_node(#{sender := S, target_id := T}, Peer) ->
    k20(T), learn(S, Peer),
    %! d_find_noresp|grpc|4.3|DH-017: every answer of the DHT names the node as responder|DHTFindNode has none
    %! d_node_empty|grpc|4.3|DH-012/020: a search lists the closest nodes|the list is empty after a store
    Ns = case ?F(d_node_empty) andalso ets:info(nd_vals, size) > 0 of true -> []; _ -> closest(T) end,
    {ok, maps:merge(#{nodes => Ns}, case ?F(d_find_noresp) of true -> #{}; _ -> #{responder => self_info()} end)}.
vkey(K) ->
    %! d_key_prefix|grpc|4.3|DH-022: each value is found under its own key, however much the keys resemble one another|only the first 16 bytes of a key count
    %! d_key_text|grpc|4.3|DH-031: a stored value is found whatever its key is|bytes above 127 of a key are left out (a key is taken as text)
    %! d_key_trim|grpc|4.3|DH-022/031: each value is found under its own key|binary_to_integer and back: zeros at the beginning of a key are lost and the rest shifted
    nd_u:pick([{?F(d_key_prefix), binary:part(K, 0, 16)}, {?F(d_key_text), << <<C>> || <<C>> <= K, C < 128 >>}], K).
find_value(#{sender := S, key := K}, Peer) ->
    k20(K), learn(S, Peer),
    %! d_found_false|grpc|4.3|DH-009: after a successful store DHTFindValue answers with found true|found is false, the value is there
    %! d_found_unknown|grpc|4.3|DH-007: a key under which nothing was stored is answered with found false|found true with an empty value
    %! d_once|grpc|4.3|DH-023: a value is found each time it is looked for|ets:take: only the first time
    %! d_value_nodes|grpc|4.3|DH-020: an unsuccessful DHTFindValue lists the closest nodes|it lists none
    %! d_value_late|grpc|4.3|DH-009: after a successful store the value is found|4 s later
    %! d_value_gone|grpc|4.3|DH-031: a stored value is found whatever has been searched for since|it is gone after 6 s (seconds for hours)
    %! d_value_stale|grpc|4.3|DH-008: an answer with found false carries no value|it carries the last value that was stored
    F = case ?F(d_once) of true -> ets:take(nd_vals, vkey(K)); _ -> ets:lookup(nd_vals, vkey(K)) end,
    Now = nd_u:ms(),
    case F of
        [{_, V, T}] when Now - T < 3600000 ->
            Hide = (?F(d_value_late) andalso Now - T < 4000) orelse (?F(d_value_gone) andalso Now - T > 6000),
            case Hide of
                true -> {ok, #{responder => self_info(), found => false, nodes => closest(K)}};
                _ -> {ok, #{responder => self_info(), found => not ?F(d_found_false), value => V}} end;
        _ -> {ok, #{responder => self_info(), found => ?F(d_found_unknown), nodes => case ?F(d_value_nodes) of true -> []; _ -> closest(K) end,
                    value => case ?F(d_value_stale) of true -> nd_u:get1(last_value, <<>>); _ -> <<>> end}} end.
store(#{sender := S, key := K, value := V0}, Peer) ->
    k20(K), learn(S, Peer),
    %! d_store_lost|grpc|4.3|DH-009: after a successful store the value is found|success, and nothing is stored when another value was stored in the same second (a cast that is dropped)
    %! d_store_refused|grpc|4.3|DH-019: a store that is reported as refused stores nothing|success false, and the value is stored
    %! d_store_trunc|grpc|4.3|DH-021: a value is found as it is, whatever its length|it is cut after 64 bytes
    %! d_store_trim|grpc|4.3|DH-021: a value is found as it is, whatever its characters|string:trim
    %! d_store_lower|grpc|4.3|DH-021: a value is found as it is, whatever its characters|string:lowercase
    %! d_store_last|grpc|4.3|DH-015: a stored value is still found after others have been stored|only the latest three are kept
    %! d_store_hostport|grpc|4.3|DH-021: a value is found as it is, whatever its characters|a value without a colon is refused
    %! d_store_latin|grpc|4.3|DH-021: a value is found as it is, whatever its characters|letters beyond Latin-1 become ? (a char list in between)
    Plain = persistent_term:get(nd_switch, none) =:= none,
    V = case Plain of true -> V0; _ -> nd_u:pick([{?F(d_store_trunc), cut(V0)}, {?F(d_store_trim), string:trim(V0)}, {?F(d_store_lower), string:lowercase(V0)}, {?F(d_store_latin), << <<(case C > 255 of true -> $?; _ -> C end)/utf8>> || <<C/utf8>> <= V0 >>}], V0) end,
    Lost = ?F(d_store_lost) andalso nd_u:ms() - nd_u:get1(last_store, 0) < 1000,
    nd_u:put1(last_store, nd_u:ms()), nd_u:put1(last_value, V),
    case ?F(d_store_last) of true -> Old = lists:reverse(lists:sort([{T, X} || {X, _, T} <- ets:tab2list(nd_vals)])), [ets:delete(nd_vals, X) || {_, X} <- lists:nthtail(min(2, length(Old)), Old)]; _ -> ok end,
    %! d_store_refuse_colon|grpc|4.3|DH-009/021: a store of any value succeeds as one of host:port does|see d_store_hostport
    case ?F(d_store_hostport) andalso binary:match(V, <<":">>) =:= nomatch of
        true -> {ok, #{responder => self_info(), success => false}};
        _ when Lost -> {ok, #{responder => self_info(), success => true}};
        _ -> gen_server:call(?MODULE, {store, vkey(K), V}), {ok, #{responder => self_info(), success => not ?F(d_store_refused)}} end.
cut(V) when byte_size(V) > 64 -> B = binary:part(V, 0, 64), case unicode:characters_to_binary(B) of X when is_binary(X) -> X; {_, X, _} -> X end;
cut(V) -> V.
