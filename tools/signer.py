"""Signs inference requests for a reference node: ``python -m tools.signer --key FILE URL KIND``.

It is a signer as `conformance.judging.stranger.signing` says, for operators who let a suite judge
their node: what it prints can be broadcast by others. It keeps no outbox and remembers no gateway.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Final

from conformance.judging.stranger import signing
from conformance.judging.stranger.signing import Failed, Message, Request, Unsupported
from meshnode.client.gateway import Gateway
from meshnode.client.keys import load_key, new_key
from meshnode.client.paying import DEFAULT_TOKENS, LIFETIME_BLOCKS, infer_wish
from meshnode.client.payments import compose
from meshnode.client.reading import account_of
from meshnode.client.transport import check_url
from meshnode.domain.amounts import text as format_amount
from meshnode.domain.chain.canonical import Json, encode
from meshnode.domain.chain.envelope import application_id, sign_envelope, transaction_hash
from meshnode.domain.chain.genesis import parse_genesis
from meshnode.domain.chain.jobs import SOONEST_EXPIRY
from meshnode.domain.errors import MeshnodeError
from meshnode.domain.identity import NodeKey
from meshnode.domain.work import POLL, WorkNetwork

ANSWERED: Final = (signing.REQUEST, signing.OTHER, signing.BRIEF)
SPARE_BLOCKS: Final = 2
"""Blocks that may come between this look at the chain and the one that takes the request."""


def make(options: argparse.Namespace) -> Message:
    """Return a message of the kind for the node at the URL. Raises Failed or Unsupported."""
    if not options.key:
        raise Failed("name the file of the key that pays: --key FILE, or MESHNODE_KEY")
    try:
        url, key = check_url(options.url), load_key(Path(options.key))
        gateway = Gateway(url, f"{url}/rpc")
        if options.kind == signing.OTHER:
            if not options.other_key:
                raise Unsupported("there is no --other-key FILE")
            key = load_key(Path(options.other_key))
        if options.kind in (signing.WORK, signing.FORGED_WORK):
            return _poll(gateway, key, forged=options.kind == signing.FORGED_WORK)
        return _request(gateway, key, options.kind)
    except MeshnodeError as error:
        raise Failed(str(error)) from None


def _request(gateway: Gateway, key: NodeKey, kind: str) -> Request:
    network, quote = gateway.network(), gateway.quote()
    account = gateway.account(key.public_key)
    if not quote.provider_online and kind in ANSWERED:
        raise Unsupported("the node offers no provider that is online")
    # A key that nobody has answers nothing.
    provider = new_key().public_key if kind == signing.UNANSWERED else quote.provider
    tokens = min(DEFAULT_TOKENS, quote.max_tokens)
    price, prompt = tokens * quote.price_per_token, signing.new_prompt()
    cost = price + network.fee
    if cost > account.available:
        raise Failed(
            f"{key.public_key} has {format_amount(account.available)}, and a request costs "
            f"{format_amount(cost)}: transfer some to it"
        )
    lives = {
        signing.EXPIRED: 0,
        signing.UNANSWERED: 1 + SOONEST_EXPIRY + SPARE_BLOCKS,
        signing.BRIEF: 1 + SOONEST_EXPIRY + 3 * SPARE_BLOCKS,
    }.get(kind, min(LIFETIME_BLOCKS, quote.lifetime_blocks))
    wish = infer_wish(
        account_of(provider or key.public_key),
        network.serving_root,
        prompt,
        tokens,
        price,
        network.height + lives,
    )
    chain_id = network.identity.chain_id + ("-other" if kind == signing.FOREIGN else "")
    body = compose(wish, chain_id, account.nonce)
    raw = encode(_signed(body, key, forged=kind == signing.FORGED))
    return Request(
        "/rpc",
        signing.broadcast(raw),
        request_id=application_id(body, key.public_key),
        hash=transaction_hash(raw),
        public_key=key.public_key,
        prompt=prompt,
        cost=str(cost),
        expires=network.height + lives,
    )


def _poll(gateway: Gateway, key: NodeKey, *, forged: bool) -> Message:
    """What a worker of the first stage sends when it asks for work."""
    genesis = parse_genesis(gateway.file("/network/genesis.json"))
    network = WorkNetwork(genesis.profile.work_domain, genesis.chain_id)
    body = network.body(POLL, time.time(), stage=0)
    return Message("/work/poll", _signed(body, key, forged=forged))


def _signed(body: dict[str, Json], key: NodeKey, *, forged: bool) -> dict[str, Json]:
    other = sign_envelope({**body, "signed": "something else"}, key.seed)
    envelope = sign_envelope(body, key.seed)
    return {**envelope, "signature": other["signature"]} if forged else envelope


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tools.signer", description=__doc__)
    parser.add_argument(
        "--key",
        metavar="FILE",
        default=os.environ.get("MESHNODE_KEY"),
        help="key file of the account that pays, as for `meshnode infer` (default: MESHNODE_KEY)",
    )
    parser.add_argument(
        "--other-key", metavar="FILE", help="key file of another account, which pays one request"
    )
    signing.run(parser, make, signing.OTHER, signing.BRIEF)
