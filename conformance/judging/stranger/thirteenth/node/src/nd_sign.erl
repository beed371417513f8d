-module(nd_sign).
-export([main/1]).
%% ./run sign '{"kind":"request","account":"alba","nonce":9,...}'
main([T | _]) ->
    {ok, M} = nd_json:dec(unicode:characters_to_binary(T)),
    G = fun(K, D) -> maps:get(K, M, D) end,
    Forge = G(<<"forge">>, false),
    R = case G(<<"kind">>, <<"request">>) of
        <<"request">> ->
            Who = G(<<"account">>, <<"alba">>),
            Prov = case G(<<"silent">>, false) of true -> <<"prov-silent">>; _ -> G(<<"provider">>, <<"prov-amber">>) end,
            Body = nd_json:enc({[{chain_id, G(<<"chain_id">>, <<"kelvin-3">>)}, {kind, infer}, {nonce, G(<<"nonce">>, 0)}, {provider, Prov},
                {checkpoint, G(<<"checkpoint">>, <<>>)}, {prompt, G(<<"prompt">>, <<"a question">>)}, {max_tokens, G(<<"max_tokens">>, 24)},
                {price_atoms, G(<<"price_atoms">>, 48000)}, {expires_height, G(<<"expires_height">>, 0)}]}),
            Sig = nd_key:sign(<<"kelvin/tx/1">>, case Forge of true -> <<Body/binary, " ">>; _ -> Body end, Who),
            Pub = nd_key:pubhex(Who),
            Tx = nd_json:enc({[{body, Body}, {public_key, Pub}, {signature, Sig}]}),
            {[{path, <<"/rpc">>}, {message, {[{jsonrpc, <<"2.0">>}, {id, G(<<"id">>, 1)}, {method, broadcast_tx_sync}, {params, {[{tx, base64:encode(Tx)}]}}]}},
              {public_key, Pub}, {request_id, nd_chain:request_id(Body, Pub)}, {transaction_hash, nd_chain:tx_hash(Tx)}]};
        K when K =:= <<"poll">>; K =:= <<"result">> ->
            Who = G(<<"account">>, <<"wanda">>),
            Base = [{type, K}, {chain_id, G(<<"chain_id">>, <<"kelvin-3">>)}, {at, G(<<"at">>, erlang:system_time(millisecond))}],
            P = nd_json:enc({Base ++ case K of <<"poll">> -> [{stages, G(<<"stages">>, [<<"generate">>])}]; _ -> [{request_id, G(<<"request_id">>, <<>>)}, {output, G(<<"output">>, <<"an answer">>)}, {tokens, G(<<"tokens">>, 2)}] end}),
            Sig = nd_key:sign(<<"kelvin/work/1">>, case Forge of true -> <<P/binary, " ">>; _ -> P end, Who),
            {[{path, <<"/work/", K/binary>>}, {message, {[{payload, P}, {public_key, nd_key:pubhex(Who)}, {signature, Sig}]}}]}
    end,
    io:put_chars(standard_io, [nd_json:enc(R), "\n"]).
