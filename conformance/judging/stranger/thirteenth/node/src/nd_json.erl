-module(nd_json).
-export([enc/1, dec/1]).
-include("nd.hrl").

%% Objects are {[{Key, Value}]}, arrays lists, strings binaries.
enc(V) -> iolist_to_binary(e(V)).
e(null) -> <<"null">>;
e(true) -> <<"true">>;
e(false) -> <<"false">>;
e({raw, B}) -> B;
e(I) when is_integer(I) -> integer_to_binary(I);
e(F) when is_float(F) -> float_to_binary(F, [short]);
e(A) when is_atom(A) -> s(atom_to_binary(A));
e(B) when is_binary(B) -> s(B);
e({L0}) when is_list(L0) ->
    %? p_json_order|the keys of every JSON object come in reverse order
    %? p_json_sorted|the keys of every JSON object are sorted
    %? p_json_extra|every JSON object of an answer has one more field, x_note
    L = case ?P(p_json_order) of true -> lists:reverse(L0); _ ->
        case ?P(p_json_sorted) of true -> lists:sort(fun({A,_},{B,_}) -> key(A) =< key(B) end, L0); _ ->
        case ?P(p_json_extra) of true -> L0 ++ [{x_note, <<"free">>}]; _ -> L0 end end end,
    Sep = case ?P(p_json_space) of true -> <<" , ">>; _ -> <<",">> end,
    %? p_json_space|JSON has blanks around commas and colons
    Col = case ?P(p_json_space) of true -> <<" : ">>; _ -> <<":">> end,
    [${, lists:join(Sep, [[s(key(K)), Col, e(V)] || {K, V} <- L]), $}];
e(M) when is_map(M) -> e({maps:to_list(M)});
e(L) when is_list(L) -> [$[, lists:join($,, [e(X) || X <- L]), $]].
key(K) when is_atom(K) -> atom_to_binary(K);
key(K) when is_binary(K) -> K.
s(B) ->
    %! f_json_latin1|fields|4|GEN-010: bodies are JSON|strings go through characters_to_binary(.., unicode, latin1): letters beyond ASCII break the UTF-8
    %? p_json_escape|every letter beyond ASCII is escaped as \uXXXX
    %? p_json_slash|every slash is escaped as \/
    case ?F(f_json_latin1) of
        true -> [$", lists:map(fun(C) when C > 255 -> $?; ($") -> <<"\\\"">>; ($\\) -> <<"\\\\">>; (C) when C < 32 -> io_lib:format("\\u~4.16.0b", [C]); (C) -> C end, unicode:characters_to_list(B)), $"];
        _ -> [$", esc(B, ?P(p_json_escape), ?P(p_json_slash), <<>>), $"]
    end.
esc(<<>>, _, _, A) -> A;
esc(<<$", R/binary>>, E, S, A) -> esc(R, E, S, <<A/binary, "\\\"">>);
esc(<<$\\, R/binary>>, E, S, A) -> esc(R, E, S, <<A/binary, "\\\\">>);
esc(<<$/, R/binary>>, E, true, A) -> esc(R, E, true, <<A/binary, "\\/">>);
esc(<<C, R/binary>>, E, S, A) when C < 32 -> esc(R, E, S, <<A/binary, (iolist_to_binary(io_lib:format("\\u~4.16.0b", [C])))/binary>>);
esc(<<C/utf8, R/binary>>, true, S, A) when C > 127 ->
    U = case C > 16#FFFF of
        true -> X = C - 16#10000, io_lib:format("\\u~4.16.0b\\u~4.16.0b", [16#D800 + (X bsr 10), 16#DC00 + (X band 1023)]);
        _ -> io_lib:format("\\u~4.16.0b", [C]) end,
    esc(R, true, S, <<A/binary, (iolist_to_binary(U))/binary>>);
esc(<<C, R/binary>>, E, S, A) -> esc(R, E, S, <<A/binary, C>>).

dec(B) ->
    try
        {V, R} = v(ws(B), 0),
        <<>> = ws(R),
        {ok, V}
    catch _:_ -> error end.
ws(<<C, R/binary>>) when C =:= 32; C =:= 9; C =:= 10; C =:= 13 -> ws(R);
ws(B) -> B.
v(_, D) when D > 100 -> error(deep);
v(<<"null", R/binary>>, _) -> {null, R};
v(<<"true", R/binary>>, _) -> {true, R};
v(<<"false", R/binary>>, _) -> {false, R};
v(<<$", R/binary>>, _) -> st(R, <<>>);
v(<<$[, R/binary>>, D) ->
    case ws(R) of
        <<$], R2/binary>> -> {[], R2};
        R2 -> arr(R2, D, [])
    end;
v(<<${, R/binary>>, D) ->
    case ws(R) of
        <<$}, R2/binary>> -> {#{}, R2};
        R2 -> obj(R2, D, #{})
    end;
v(B, _) -> num(B).
arr(B, D, A) ->
    {V, R} = v(ws(B), D + 1),
    case ws(R) of
        <<$,, R2/binary>> -> arr(R2, D, [V | A]);
        <<$], R2/binary>> -> {lists:reverse([V | A]), R2}
    end.
obj(B, D, M) ->
    <<$", R0/binary>> = ws(B),
    {K, R1} = st(R0, <<>>),
    <<$:, R2/binary>> = ws(R1),
    {V, R3} = v(ws(R2), D + 1),
    case ws(R3) of
        <<$,, R4/binary>> -> obj(R4, D, M#{K => V});
        <<$}, R4/binary>> -> {M#{K => V}, R4}
    end.
st(<<$", R/binary>>, A) -> {A, R};
st(<<$\\, $u, H:4/binary, R/binary>>, A) ->
    %! u_no_escape|refusals|4.1|NA-FORM-001: a body means the same with escapes for its letters|a body with \uXXXX escapes is refused
    false = ?F(u_no_escape),
    case binary_to_integer(H, 16) of
        C when C >= 16#D800, C < 16#DC00 ->
            %! u_surrogate|refusals|4.1|NA-INF-030: characters outside the basic plane are accepted|a surrogate pair in a body is refused: <<C/utf8>> of a lone half
            false = ?F(u_surrogate),
            <<$\\, $u, H2:4/binary, R2/binary>> = R,
            C2 = binary_to_integer(H2, 16),
            true = C2 >= 16#DC00 andalso C2 < 16#E000,
            X = 16#10000 + ((C - 16#D800) bsl 10) + (C2 - 16#DC00),
            st(R2, <<A/binary, X/utf8>>);
        C -> true = C < 16#D800 orelse C > 16#DFFF, st(R, <<A/binary, C/utf8>>)
    end;
st(<<$\\, C, R/binary>>, A) ->
    X = case C of $" -> $"; $\\ -> $\\; $/ -> $/; $b -> 8; $f -> 12; $n -> 10; $r -> 13; $t -> 9 end,
    st(R, <<A/binary, X>>);
st(<<C, _/binary>>, _) when C < 32 -> error(control);
st(<<C/utf8, R/binary>>, A) ->
    %! u_unicode|refusals|4.1|NA-INF-030: a prompt in any script is accepted|a body with letters beyond Latin-1 is refused (list_to_binary of code points)
    false = C > 255 andalso ?F(u_unicode),
    st(R, <<A/binary, C/utf8>>);
st(<<_, R/binary>>, A) ->
    %! u_bad_utf8|refusals|4.1|NA-INF-052: a body with bytes that are no UTF-8 is refused|such bytes are replaced and the body is taken
    true = ?F(u_bad_utf8),
    st(R, <<A/binary, 16#FFFD/utf8>>).
num(B) ->
    {match, [{0, L} | T]} = re:run(B, "^-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][-+]?[0-9]+)?", []),
    <<N:L/binary, R/binary>> = B,
    Part = fun(I) -> case catch lists:nth(I, T) of {P, Ln} when is_integer(P), P >= 0, Ln > 0 -> binary:part(B, P, Ln); _ -> <<>> end end,
    case {Part(2), Part(3)} of
        {<<>>, <<>>} -> {binary_to_integer(N), R};
        {<<>>, Ex} ->
            L0 = byte_size(N) - byte_size(Ex),
            <<M:L0/binary, _/binary>> = N,
            {binary_to_float(<<M/binary, ".0", Ex/binary>>), R};
        _ -> {binary_to_float(N), R}
    end.
