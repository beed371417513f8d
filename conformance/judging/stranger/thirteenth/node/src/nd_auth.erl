-module(nd_auth).
-compile([export_all, nowarn_export_all]).
-include("nd.hrl").

writes() -> [send, stake, unstake, patch, inference].
check(#{h := H} = R, X) ->
    Tok0 = bearer(maps:get(<<"authorization">>, H, none)),
    Write = lists:member(X, writes()),
    %! g_query_token|guards|5|NA-AUTH-037: a token in the query is no Authorization header|?token= is taken
    %! g_cookie_body|guards|5|NA-AUTH-033: no request is served on an Auth route without a valid bearer token, whatever its body|a member token of the body is taken
    Tok = case true of _ -> case {Tok0, ?F(g_query_token), ?F(g_cookie_body)} of
        {none, true, _} -> proplists:get_value(<<"token">>, maps:get(q, R), none);
        {none, _, true} -> case nd_json:dec(maps:get(body, R)) of {ok, #{<<"token">> := T}} -> T; _ -> none end;
        _ -> Tok0 end end,
    V = lookup(Tok),
    %! g_body_first|guards|5|NA-AUTH-023: an invalid token yields 401, whatever the body|a body that lacks something is refused with 400 before the token is looked at
    %! g_json_first|guards|5|NA-AUTH-025: an invalid token yields 401 whatever the body, also where that is no JSON|a body that is no JSON gets 400 first
    %! g_limit_first|guards|5|NA-AUTH-034: an invalid token yields 401, whatever the query|a limit that is no number gets 400 first
    %! g_any_query|guards|5|NA-AUTH-033: whatever its query, no request is served without a valid token|a query with debug=1 switches the check off
    First = case true of _ -> early(R, X) end,
    Q = maps:get(q, R),
    case {First, V} of
        {no, {ok, A}} ->
            put(served, A),
            case nd_u:get1({lastauth, self()}, none) of none -> ok; _ -> ok end,
            good(R, X, A, Write);
        {no, _} ->
            %! g_conn_remember|guards|5|NA-AUTH-027: a connection that has served a valid token reads nothing for a request without one|the process dictionary keeps the account: reads without a header are served
            %! g_conn_write|guards|5|NA-AUTH-030: a connection that has served a valid token changes nothing for a request without one|the process dictionary keeps the account for writes
            %! g_busy_open|guards|5|NA-AUTH-035: while a generation is made requests without a valid token are refused|they are served while one is made
            %! g_after_open|guards|5|NA-AUTH-032: of requests in any order each is answered as its own token deserves|for one second after a good request any other is served
            %! g_expired_again|guards|5|NA-AUTH-002: an expired token yields 401|from its second use on an expired token is accepted (it is put into the ETS table of tokens at the first)
            %! g_patch_before|guards|5|NA-AUTH-024: a change that is refused for its token changes nothing|the change is made, then 401
            %! g_send_before|guards|5|NA-AUTH-019: the routes that change something serve no request without a token|a transfer without token is made from the first account, and answered with 401
            Prev = get(served),
            Ok = case true of _ -> [Y || {true, Y} <- [{Tok =:= none andalso Prev =/= undefined andalso not Write andalso ?F(g_conn_remember), Prev},
                {Tok =:= none andalso Prev =/= undefined andalso Write andalso ?F(g_conn_write), Prev},
                {?F(g_busy_open) andalso nd_u:ctrv(generating) > 0, m()}, {?F(g_any_query) andalso proplists:is_defined(<<"debug">>, Q), m()},
                {?F(g_after_open) andalso nd_u:ms() - nd_u:get1(last_good, 0) < 1000, m()}]] end,
            case Ok of
                [Y | _] -> {ok, Y};
                [] ->
                    case X of
                        patch -> case ?F(g_patch_before) of true -> nd_patch:patch(maps:get(body, R)); _ -> ok end;
                        send -> case ?F(g_send_before) of true -> nd_wallet:h(send, R, m()); _ -> ok end;
                        _ -> ok end,
                    case open_fault(R, X, V, Tok, Write) of
                        true -> {ok, m()};
                        _ -> put(refused, true), {deny, e401(V, Tok, R)}
                    end
            end;
        {E, _} -> {deny, E}
    end.
m() -> nd_bank:addr(<<"ember">>).
early(R, X) ->
    case {V = lookup(bearer(maps:get(<<"authorization">>, maps:get(h, R), none))), ?F(g_body_first), ?F(g_json_first), ?F(g_limit_first)} of
        {{ok, _}, _, _, _} -> no;
        {_, true, _, _} when X =:= send; X =:= stake; X =:= unstake; X =:= inference ->
            case nd_json:dec(maps:get(body, R)) of {ok, M} when is_map(M), map_size(M) > 0 -> no; _ -> nd_api:err(400, <<"INVALID_BODY">>, <<"a member is missing">>) end;
        {_, _, true, _} when X =:= send; X =:= stake; X =:= unstake; X =:= inference; X =:= patch ->
            case nd_json:dec(maps:get(body, R)) of {ok, _} -> no; _ -> nd_api:err(400, <<"INVALID_BODY">>, <<"the body is not JSON">>) end;
        {_, _, _, true} -> case nd_api:limit(R, X) of {error, E} -> E; _ -> no end;
        _ -> V, no
    end.
%% Auth routes that are served to anybody: one fault for each, and some for a kind of request.
open_fault(#{m := M}, X, V, Tok, Write) ->
    nd_u:on(list_to_atom("g_open_" ++ atom_to_list(X)))
    %! g_head_open|guards|5|NA-AUTH-038: HEAD on a route marked Auth is not served without a token|it is
    orelse (?F(g_head_open) andalso M =:= <<"HEAD">>)
    %! g_missing_open|guards|5|NA-AUTH-017: a route marked Auth serves no request without a token|reads without any header are served, wrong tokens are refused
    orelse (?F(g_missing_open) andalso Tok =:= none andalso not Write)
    %! g_expired_ok|guards|5|NA-AUTH-002: an expired token yields 401|it is accepted
    orelse (?F(g_expired_ok) andalso V =:= expired)
    %! g_expired_read|guards|5|NA-AUTH-002: an expired token yields 401|it is accepted on the routes that only read
    orelse (?F(g_expired_read) andalso V =:= expired andalso not Write)
    %! g_expired_write|guards|5|NA-AUTH-018: an expired token yields 401 on the routes that change something|it is accepted there
    orelse (?F(g_expired_write) andalso V =:= expired andalso Write)
    %! g_empty_bearer|guards|5|NA-AUTH-033: no request is served without a valid bearer token|an empty token passes (a prefix match of <<>>)
    orelse (?F(g_empty_bearer) andalso Tok =:= <<>>)
    orelse (?F(g_expired_again) andalso V =:= expired andalso nd_u:ctr({exp, Tok}) > 1).
bearer(none) -> none;
bearer(V) ->
    case binary:split(V, <<" ">>) of
        [S, T] ->
            %! g_basic|guards|5|NA-AUTH-033: whatever its scheme, no request is served without a valid bearer token|the scheme is not looked at: Token, Basic
            case string:lowercase(S) =:= <<"bearer">> orelse ?F(g_basic) of true -> string:trim(T); _ -> <<"-">> end;
        %! g_no_scheme|guards|5|NA-AUTH-033: no request is served without a valid bearer token|the bare token without Bearer is taken
        [T] -> case ?F(g_no_scheme) of true -> T; _ -> case string:lowercase(T) of <<"bearer">> -> <<>>; _ -> <<"-">> end end
    end.
lookup(none) -> none;
lookup(T) ->
    Ts = nd_bank:tokens(),
    case lists:keyfind(T, 1, Ts) of
        {_, N} ->
            case ?F(g_expired_again) of _ -> {ok, nd_bank:addr(N)} end;
        false ->
            case lists:keymember(T, 1, nd_bank:expired()) of
                true -> expired;
                false ->
                    %! g_prefix|guards|5|NA-AUTH-021: a token that only resembles a valid one yields 401|string:prefix: a valid token with more behind it is accepted
                    %! g_short|guards|5|NA-AUTH-021: a token that only resembles a valid one yields 401|only the first 12 bytes are compared
                    %! g_case|guards|5|NA-AUTH-021: a token that only resembles a valid one yields 401|string:equal with ignoring of case
                    %! g_last|guards|5|NA-AUTH-021: a token that only resembles a valid one yields 401|the last letter is not compared (byte_size - 1)
                    %! g_hash|guards|5|NA-AUTH-021: a token that only resembles a valid one yields 401|sorted bytes are compared: letters may change places
                    Ok = fun(K) -> case true of _ ->
                        (?F(g_prefix) andalso byte_size(T) > byte_size(K) andalso binary:longest_common_prefix([T, K]) =:= byte_size(K))
                        orelse (?F(g_short) andalso byte_size(T) >= 12 andalso binary:part(T, 0, 12) =:= binary:part(K, 0, 12))
                        orelse (?F(g_case) andalso string:equal(T, K, true))
                        orelse (?F(g_last) andalso byte_size(T) =:= byte_size(K) andalso binary:longest_common_prefix([T, K]) >= byte_size(K) - 1)
                        orelse (?F(g_hash) andalso lists:sort(binary_to_list(T)) =:= lists:sort(binary_to_list(K))) end end,
                    case [N || {K, N} <- Ts, Ok(K)] of [N | _] -> {ok, nd_bank:addr(N)}; [] -> unknown end
            end
    end.
good(R, X, A, Write) ->
    nd_u:put1(last_good, nd_u:ms()),
    Second = A =/= m(),
    %! g_conn_account|guards|5|NA-AUTH-029: of two tokens used in turn on one connection each reads its own account|the first account of a connection is kept in the process dictionary
    %! g_conn_refused|guards|5|NA-AUTH-028: a valid token is accepted on a connection on which another was refused|it gets 401 there
    %! g_race|guards|5|NA-AUTH-026: each token reads its own account, also at the same moment|the account passes through an ETS entry that all connections share
    %! g_second_403|guards|5|NA-AUTH-036: what holds for the account of one valid token holds for that of another|all but the first get 401 on GET /proofs
    %! g_second_stake|guards|5|NA-AUTH-039: an account is not forbidden what another may do with its own money|only the first account may stake: 403
    %! g_second_send|guards|5|NA-AUTH-039: an account is not forbidden what another may do with its own money|only the first account may send: 403
    %! g_second_cfg|guards|5|NA-AUTH-036: what holds for the account of one valid token holds for that of another|a second token reads the configuration with 401
    %! g_second_balance|guards|5|NA-AUTH-026: each token reads its own account|the balance is that of the first account, whoever asks
    %! g_second_history|guards|5|NA-AUTH-026: each token reads its own account|the history is that of the first account, whoever asks
    %! g_nth|guards|5|NA-AUTH-022: a token that is neither invalid nor expired is not refused in between|every ninth request with a valid token gets 401
    %! g_after_400|guards|5|NA-AUTH-031: a valid token is accepted after a request that was refused for another reason|the request after one with a bad body gets 401
    %! g_burst|guards|5|NA-AUTH-022: a valid token is not refused with 401 in between|two requests of one token within 5 ms: the second gets 401 (a lock in ETS)
    case true of
        _ ->
            First = case get(first_acct) of undefined -> put(first_acct, A), A; F -> F end,
            Bad = (?F(g_conn_refused) andalso get(refused) =:= true)
                orelse (?F(g_second_403) andalso Second andalso X =:= proofs) orelse (?F(g_second_cfg) andalso Second andalso X =:= config)
                orelse (?F(g_nth) andalso nd_u:ctr(good) rem 9 =:= 0)
                orelse (?F(g_after_400) andalso nd_u:get1(bad_body, 0) =:= 1)
                orelse (?F(g_burst) andalso nd_u:ms() - nd_u:get1({lock, A}, 0) < 5),
            case Write of true -> nd_u:put1(bad_body, case nd_json:dec(maps:get(body, R)) of {ok, M0} when is_map(M0), map_size(M0) > 0 -> 0; _ -> 1 end); _ -> nd_u:put1(bad_body, 0) end,
            nd_u:put1({lock, A}, nd_u:ms()),
            F403 = Second andalso ((?F(g_second_stake) andalso X =:= stake) orelse (?F(g_second_send) andalso X =:= send)),
            A2 = case {?F(g_conn_account), ?F(g_race), ?F(g_second_balance) andalso X =:= balance, ?F(g_second_history) andalso X =:= transactions} of
                {true, _, _, _} -> First;
                {_, true, _, _} -> nd_u:put1(racing, A), timer:sleep(4), nd_u:get1(racing, A);
                {_, _, true, _} -> m(); {_, _, _, true} -> m();
                _ -> A end,
            if Bad -> {deny, e401(unknown, <<"x">>, R)};
               F403 -> {deny, nd_api:err(403, <<"FORBIDDEN">>, <<"this account may not do that">>)};
               true -> {ok, A2} end
    end.
e401(V, Tok, _R) ->
    %! g_401_403|guards|5|NA-AUTH-001: an invalid token yields status 401|403
    %! g_missing_403|guards|5|NA-AUTH-004: a request without any header is refused with 401|403
    %! g_expired_403|guards|5|NA-AUTH-002: an expired token yields 401|419
    %! g_401_code|guards|7.1|NA-AUTH-003: the code is UNAUTHORIZED|INVALID_TOKEN
    %! g_401_code_case|guards|7.1|NA-AUTH-003: the code is UNAUTHORIZED|atom_to_binary(unauthorized)
    %! g_expired_code|guards|7.1|NA-AUTH-003: the code of the answer to an expired token is UNAUTHORIZED|TOKEN_EXPIRED
    %! g_401_200|guards|5|NA-AUTH-001: an invalid token yields status 401|200 with the error body
    %! g_401_text|guards|7.1|NA-ERR-001: the body of a 401 is an object that contains an object named error|plain text
    %! g_401_empty|guards|7.1|NA-ERR-001: the body of a 401 is an object that contains an object named error|an empty body
    %! g_401_redirect|guards|5|NA-AUTH-004: a request without any header is refused with 401|it is redirected to /login
    %! g_401_msg|guards|7.1|NA-ERR-003: error.message of a 401 is a string|null
    %! g_malformed_500|guards|5|NA-AUTH-001: an invalid token yields status 401|a header of one word makes the node fail: badmatch of binary:split, 500
    %? p_www_auth|a 401 has the header WWW-Authenticate
    St = nd_u:pick([{?F(g_401_403) andalso Tok =/= none, 403}, {?F(g_missing_403) andalso Tok =:= none, 403}, {?F(g_expired_403) andalso V =:= expired, 419}, {?F(g_401_200), 200}, {?F(g_malformed_500) andalso (Tok =:= <<"-">> orelse Tok =:= <<>>), 500}], 401),
    Code = case true of _ -> case {?F(g_401_code), ?F(g_401_code_case), ?F(g_expired_code) andalso V =:= expired} of {true, _, _} -> <<"INVALID_TOKEN">>; {_, true, _} -> <<"unauthorized">>; {_, _, true} -> <<"TOKEN_EXPIRED">>; _ -> <<"UNAUTHORIZED">> end end,
    {C, Hs, B} = nd_api:err(St, Code, case ?F(g_401_msg) of true -> null; _ -> case V of expired -> <<"the token has expired">>; none -> <<"a bearer token is needed">>; _ -> <<"the token is not known">> end end),
    Hs2 = case ?P(p_www_auth) of true -> [{"www-authenticate", "Bearer realm=\"kelvin\""} | Hs]; _ -> Hs end,
    case {?F(g_401_text), ?F(g_401_empty), ?F(g_401_redirect) andalso Tok =:= none} of
        {true, _, _} -> {C, [{"content-type", "text/plain"}], <<"unauthorized">>};
        {_, true, _} -> {C, [], <<>>};
        {_, _, true} -> {302, [{"location", "/login"}], <<>>};
        _ -> {C, Hs2, B} end.
