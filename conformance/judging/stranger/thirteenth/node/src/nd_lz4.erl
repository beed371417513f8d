-module(nd_lz4).
-export([frame/1, unframe/1, is_frame/1, xxh/1]).
-define(P1, 2654435761). -define(P2, 2246822519). -define(P3, 3266489917). -define(P4, 668265263). -define(P5, 374761393).
-define(M, 16#FFFFFFFF).
is_frame(<<16#04, 16#22, 16#4D, 16#18, _/binary>>) -> true;
is_frame(_) -> false.
%% LZ4 frames of blocks that are stored as they are.
frame(B) ->
    D = <<16#60, 16#70>>,
    iolist_to_binary([<<16#04, 16#22, 16#4D, 16#18>>, D, (xxh(D) bsr 8) band 255, blocks(B), <<0:32>>]).
blocks(<<>>) -> [];
blocks(<<A:4194304/binary, R/binary>>) -> [<<(4194304 bor 16#80000000):32/little>>, A, blocks(R)];
blocks(A) -> [<<(byte_size(A) bor 16#80000000):32/little>>, A].
unframe(B) -> try {ok, un(B)} catch _:_ -> error end.
un(<<16#04, 16#22, 16#4D, 16#18, F, Bd, R/binary>>) ->
    1 = F bsr 6,
    Sz = case F band 8 of 0 -> 0; _ -> 8 end + case F band 1 of 0 -> 0; _ -> 4 end,
    <<X:Sz/binary, Hc, R2/binary>> = R,
    Hc = (xxh(<<F, Bd, X/binary>>) bsr 8) band 255,
    {Out, R3} = bl(R2, F, <<>>),
    case F band 4 of 0 -> <<>> = R3; _ -> <<C:32/little>> = R3, C = xxh(Out) end,
    case F band 8 of 0 -> ok; _ -> <<N:64/little, _/binary>> = X, N = byte_size(Out) end,
    Out.
bl(<<0:32, R/binary>>, _, A) -> {A, R};
bl(<<S:32/little, R/binary>>, F, A) ->
    N = S band 16#7FFFFFFF,
    <<B:N/binary, R2/binary>> = R,
    A2 = case S bsr 31 of 1 -> <<A/binary, B/binary>>; 0 -> seqs(B, A) end,
    true = byte_size(A2) < 200000000,
    bl(case F band 16 of 0 -> R2; _ -> <<_:32, R3/binary>> = R2, R3 end, F, A2).
seqs(<<L:4, M:4, R/binary>>, A) ->
    {Ll, R1} = len(L, R),
    <<Lit:Ll/binary, R2/binary>> = R1,
    A1 = <<A/binary, Lit/binary>>,
    case R2 of
        <<>> -> A1;
        <<Off:16/little, R3/binary>> -> {Ml, R4} = len(M, R3), seqs(R4, copy(A1, Off, Ml + 4)) end;
seqs(<<>>, A) -> A.
len(15, R) -> len2(R, 15);
len(N, R) -> {N, R}.
len2(<<255, R/binary>>, A) -> len2(R, A + 255);
len2(<<N, R/binary>>, A) -> {A + N, R}.
copy(A, Off, N) ->
    S = byte_size(A), true = Off > 0 andalso Off =< S,
    Src = binary:part(A, S - Off, min(Off, N)),
    case Off >= N of
        true -> <<A/binary, Src/binary>>;
        _ -> Rep = binary:part(binary:copy(Src, N div Off + 1), 0, N), <<A/binary, Rep/binary>> end.
rot(X, N) -> ((X bsl N) bor (X bsr (32 - N))) band ?M.
xxh(B) ->
    N = byte_size(B),
    {H0, R} = case N >= 16 of
        true -> str(B, (?P1 + ?P2) band ?M, ?P2, 0, (0 - ?P1) band ?M);
        _ -> {?P5, B} end,
    tail(R, (H0 + N) band ?M).
str(<<A:32/little, B:32/little, C:32/little, D:32/little, R/binary>>, W, X, Y, Z) -> str(R, rd(W, A), rd(X, B), rd(Y, C), rd(Z, D));
str(R, W, X, Y, Z) -> {(rot(W, 1) + rot(X, 7) + rot(Y, 12) + rot(Z, 18)) band ?M, R}.
rd(V, L) -> (rot((V + L * ?P2) band ?M, 13) * ?P1) band ?M.
tail(<<L:32/little, R/binary>>, H) -> tail(R, (rot((H + L * ?P3) band ?M, 17) * ?P4) band ?M);
tail(<<L, R/binary>>, H) -> tail(R, (rot((H + L * ?P5) band ?M, 11) * ?P1) band ?M);
tail(<<>>, H) ->
    H1 = ((H bxor (H bsr 15)) * ?P2) band ?M,
    H2 = ((H1 bxor (H1 bsr 13)) * ?P3) band ?M,
    H2 bxor (H2 bsr 16).
