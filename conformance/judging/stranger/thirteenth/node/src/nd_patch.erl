-module(nd_patch).
-compile([export_all, nowarn_export_all]).
-include("nd.hrl").

keys() -> [{[training, enabled], bool}, {[training, batch_size], pos}, {[training, learning_rate], posnum}, {[training, diloco_steps], pos},
           {[resources, max_memory_gb], posnum}, {[resources, cpu_threads], pos}].
patch(B) ->
    case nd_api:obj(B) of
        {error, E} -> E;
        {ok, M} ->
            {Good, Bad} = flat(M),
            %! x_patch_partial|effects|4.1|NA-PATCH-115: a change that is refused for one of its keys changes none of the others|the good keys are changed before the bad one is found
            %! x_patch_skip|refusals|4.1|NA-PATCH-105: a change with a value of the wrong type is refused|bad keys are left out without a word
            case Bad of
                [] -> do(Good);
                _ -> case {?F(x_patch_partial), ?F(x_patch_skip)} of
                        {true, _} -> nd_conf:put(Good), nd_api:err(400, <<"INVALID_CHANGE">>, msg(Bad));
                        {_, true} -> do(Good);
                        _ -> nd_api:err(400, <<"INVALID_CHANGE">>, msg(Bad)) end
            end
    end.
msg([K | _]) -> nd_u:str("~ts cannot be changed to that", [K]).
flat(M) ->
    maps:fold(fun(S, V, {G, Bd}) ->
        case {sect(S), V} of
            {none, _} ->
                %! u_patch_dotted|refusals|4.1|NA-PATCH-119: a change is a nested object, not one with dotted keys|dotted keys are taken
                case ?F(u_patch_dotted) andalso [{P, T} || {[A, K] = P, T} <- keys(), S =:= nd_u:str("~s.~s", [A, K])] of
                    [{P, T}] -> case val(T, V) of {ok, X} -> {[{P, X} | G], Bd}; _ -> {G, [S | Bd]} end;
                    _ -> {G, [S | Bd]} end;
            {A, _} when is_map(V) ->
                maps:fold(fun(K, X, {G2, B2}) ->
                    D = <<S/binary, ".", K/binary>>,
                    case [{P, T} || {[A2, K2] = P, T} <- keys(), A2 =:= A, atom_to_binary(K2) =:= K] of
                        [{P, T}] -> case val(T, X) of {ok, Y} -> {[{P, Y} | G2], B2}; _ -> {G2, [D | B2]} end;
                        _ -> {G2, [D | B2]} end end, {G, Bd}, V);
            _ -> {G, [S | Bd]}
        end end, {[], []}, M).
sect(<<"training">>) -> training;
sect(<<"resources">>) -> resources;
sect(_) -> none.
val(T, [X]) -> 
    %! u_patch_array|refusals|4.1|NA-PATCH-120: a change with a value in an array is refused|an array of one value is taken for the value
    case ?F(u_patch_array) of true -> val(T, X); _ -> bad end;
%! u_patch_truthy|refusals|4.1|NA-PATCH-105: a change with a value of the wrong type is refused|strings and numbers are taken for training.enabled
%! u_patch_numstr|refusals|4.1|NA-PATCH-105: a change with a value of the wrong type is refused|a number as a string is taken (binary_to_integer)
%! u_patch_neg|refusals|4.1|NA-SANE-004: counts, sizes and durations are not negative|a batch_size below 0 is taken and shown
%! u_patch_float_int|refusals|4.1|NA-PATCH-105: a change with a value of the wrong type is refused|a batch_size with a fraction is taken and truncated
%! u_patch_enable|refusals|4.1|NA-PATCH-122: where training.enabled can be changed to one value it can be to the other|it cannot be changed to true (case V of false)
val(bool, true) -> case ?F(u_patch_enable) of true -> bad; _ -> {ok, true} end;
val(bool, false) -> {ok, false};
val(bool, X) -> case ?F(u_patch_truthy) andalso not is_map(X) of true -> {ok, lists:member(X, [1, <<"true">>, <<"yes">>])}; _ -> bad end;
val(T, X) when is_binary(X) -> case ?F(u_patch_numstr) andalso (catch binary_to_integer(X)) of N when is_integer(N) -> val(T, N); _ -> bad end;
val(pos, X) when is_integer(X), X > 0, X =< 9007199254740991 -> {ok, X};
val(pos, X) when is_integer(X) -> case ?F(u_patch_neg) of true -> {ok, X}; _ -> bad end;
val(pos, X) when is_float(X), X > 0, X < 9.0e15 -> case trunc(X) == X orelse ?F(u_patch_float_int) of true -> {ok, trunc(X)}; _ -> bad end;
val(posnum, X) when is_number(X), X > 0 -> {ok, X};
val(_, _) -> bad.

do(G0) ->
    nd_u:ctr(patched),
    %! x_patch_none|effects|4.1|NA-PATCH-104: after a change that needs no restart GET /config shows the new values|nothing is changed, with success
    %! x_patch_first|effects|4.1|NA-PATCH-121: keys that are changed each by itself are changed by one request as well|only one of several keys is changed (hd of the list)
    %! x_patch_undo|effects|4.1|NA-PATCH-117: a change lasts|it is undone 12 s later (erlang:send_after)
    %! x_patch_late|effects|4.1|NA-PATCH-113: a change that needs no restart is in every reading that follows|it is made 3 s later
    %! x_patch_reset|effects|4.1|NA-PATCH-103: keys that were not sent keep their values|the other keys of the same part fall back to their first values (maps:put of the part)
    %! x_patch_reset_other|effects|4.1|NA-PATCH-108: several changes made one after the other are all in force|a change of resources undoes those of training
    %! x_patch_int32|effects|4.1|NA-PATCH-123: a number is shown as it was set, however large|whole numbers go through <<N:16>>
    %! x_patch_round|effects|4.1|NA-PATCH-123: a number is shown as it was set, however small|numbers are rounded to four decimals
    %! x_patch_race|effects|4.1|NA-PATCH-118: of changes of several keys at the same time none is lost|the whole configuration is read, and written 40 ms later
    %! x_patch_alternate|effects|4.1|NA-PATCH-113: a change is in every reading that follows|every second reading has the values from before (two processes with a copy each)
    %! x_patch_both|effects|4.1|NA-PATCH-103: keys that were not sent keep their values|a change of batch_size changes diloco_steps as well
    Old = nd_conf:get(),
    G = case true of _ -> [{P, num(V)} || {P, V} <- G0] end,
    case true of
        _ ->
            case {?F(x_patch_none), ?F(x_patch_first), ?F(x_patch_late), ?F(x_patch_race)} of
                {true, _, _, _} -> ok;
                {_, true, _, _} -> nd_conf:put(lists:sublist(G, 1));
                {_, _, true, _} -> nd_u:spawn_after(3000, fun() -> nd_conf:put(G) end);
                {_, _, _, true} -> C = nd_conf:get(), timer:sleep(40), nd_conf:put(maps:to_list(maps:merge(C, maps:from_list(G))));
                _ -> nd_conf:put(G) end,
            case ?F(x_patch_undo) of true -> erlang:send_after(12000, whereis(nd_conf), {undo, [{P, maps:get(P, Old)} || {P, _} <- G]}); _ -> ok end,
            {ok, Init} = nd_conf:init([]),
            Parts = lists:usort([A || {[A, _], _} <- G]),
            case ?F(x_patch_reset) of true -> nd_conf:put([{P, V} || {[A, _] = P, V} <- maps:to_list(Init), lists:member(A, Parts), not lists:keymember(P, 1, G)]); _ -> ok end,
            case ?F(x_patch_reset_other) andalso Parts =:= [resources] of true -> nd_conf:put([{P, V} || {[training, _] = P, V} <- maps:to_list(Init)]); _ -> ok end,
            case ?F(x_patch_both) of true -> [nd_conf:put([{[training, diloco_steps], V}]) || {[_, batch_size], V} <- G]; _ -> ok end
    end,
    %! f_patch_last|fields|4.1|NA-PATCH-101: updated lists each changed key by its dotted path|only the last part of the path is listed
    %! f_patch_slash|fields|4.1|NA-PATCH-101: updated lists each changed key by its dotted path|the parts are joined with a slash (filename:join)
    %! f_patch_nested|fields|4.1|NA-PATCH-101: updated lists each changed key by its dotted path|updated is the nested object itself
    %! r_patch_more|relations|4.1|NA-PATCH-102: updated lists no key that was not sent|all keys of the configuration are listed
    %! r_patch_one|relations|4.1|NA-PATCH-101: updated lists each changed key|only one is listed
    %? p_patch_sorted|updated is in another order than the request
    Path = fun([A, K]) -> case {?F(f_patch_last), ?F(f_patch_slash)} of {true, _} -> atom_to_binary(K); {_, true} -> nd_u:str("~s/~s", [A, K]); _ -> nd_u:str("~s.~s", [A, K]) end end,
    Up0 = [Path(P) || {P, _} <- G0],
    Up = nd_u:pick([{?F(r_patch_more), [Path(P) || {P, _} <- keys()]}, {?F(r_patch_one), lists:sublist(Up0, 1)}, {?P(p_patch_sorted), lists:reverse(lists:sort(Up0))}, {?F(f_patch_nested), {[{P, V} || {[_, P], V} <- G0]}}], Up0),
    nd_api:ok(nd_fields:obj(patch, [{success, true}, {updated, Up}, {restart_required, false}])).
num(V) when is_integer(V) -> case ?F(x_patch_int32) of true -> V band 16#FFFF; _ -> V end;
num(V) when is_float(V) -> case ?F(x_patch_round) of true -> round(V * 10000) / 10000; _ -> V end;
num(V) -> V.
