-module(nd_key).
-compile([export_all, nowarn_export_all]).
%% Keys and signatures: ECDSA on secp256k1 over SHA-256 of a domain and the text that is signed.
priv(Name) -> crypto:hash(sha256, [<<"kelvin key ">>, Name]).
pub(Name) -> compress(element(1, crypto:generate_key(ecdh, secp256k1, priv(Name)))).
pubhex(Name) -> case persistent_term:get({nd_pub, Name}, none) of none -> H = nd_u:hex(pub(Name)), persistent_term:put({nd_pub, Name}, H), H; H -> H end.
compress(<<4, X:32/binary, Y:32/binary>>) -> <<(2 + (binary:last(Y) band 1)), X/binary>>.
-define(PP, 16#FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEFFFFFC2F).
expand(<<T, X:256>>) when T =:= 2; T =:= 3 ->
    C = (X * X * X + 7) rem ?PP,
    Y0 = crypto:bytes_to_integer(crypto:mod_pow(C, (?PP + 1) div 4, ?PP)),
    case (Y0 * Y0) rem ?PP of
        C -> Y = case Y0 band 1 =:= T - 2 of true -> Y0; _ -> ?PP - Y0 end, {ok, <<4, X:256, Y:256>>};
        _ -> error end;
expand(_) -> error.
sign(Dom, Text, Name) -> nd_u:hex(crypto:sign(ecdsa, sha256, [Dom, 10, Text], [priv(Name), secp256k1])).
verify(Dom, Text, SigHex, PubHex) ->
    try
        {ok, P} = nd_u:unhex(PubHex), {ok, S} = nd_u:unhex(SigHex), {ok, U} = expand(P),
        crypto:verify(ecdsa, sha256, iolist_to_binary([Dom, 10, Text]), S, [U, secp256k1])
    catch _:_ -> false end.
