"""The commands that sign: transfer, infer, bond, unbond, withdraw, stake, unstake."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from meshnode.client.answers import Network, Quote
from meshnode.client.errors import (
    UNKNOWN,
    Declined,
    GatewayMisbehaves,
    GatewayUnavailable,
    Misused,
)
from meshnode.client.follow import follow, waiting_for_answer
from meshnode.client.gateway import clip
from meshnode.client.keys import load_consensus_key
from meshnode.client.payments import SigningRequest, pay
from meshnode.client.reading import account_of, entry_report
from meshnode.client.session import Report, Session
from meshnode.domain.amounts import parse_amount
from meshnode.domain.amounts import text as format_amount
from meshnode.domain.chain.bonds import possession_message
from meshnode.domain.chain.canonical import Json

DEFAULT_CEILING: Final = "0.1"
"""Whole units for price and fee together; the default limit of the public network's client."""
DEFAULT_TOKENS: Final = 32
LIFETIME_BLOCKS: Final = 120
"""Blocks that a request may wait for its answer, if the network allows that many."""
MAX_PROMPT = 65_536
"""Characters read from standard input. Networks have lower limits and report them."""
_CONSENSUS_KEY = re.compile(r"[0-9a-f]{64}")


def transfer(session: Session, to: str, amount: str, wait_seconds: float) -> Report:
    """Send whole units to an account."""
    receiver, atoms = account_of(to), parse_amount(amount, "AMOUNT")
    summary = f"transfer of {format_amount(atoms)} to {receiver[:16]}…"
    fields: dict[str, Json] = {"to": receiver, "amount": atoms}
    return _carry_out(
        session, SigningRequest("transfer", lambda _: fields, atoms, summary), wait_seconds
    )


def infer(session: Session, wait_seconds: float) -> Report:
    """Ask the network's model. The whole price is known and checked before anything is signed."""
    options = session.options
    ceiling = parse_amount(options.price_ceiling, "--price-ceiling")
    prompt = _prompt(options.prompt)
    network, quote = _offer(session)
    provider = account_of(options.provider) if options.provider else _default_provider(quote)
    usual = min(DEFAULT_TOKENS, quote.max_tokens)
    tokens = usual if options.max_tokens is None else options.max_tokens
    if not 1 <= tokens <= quote.max_tokens:
        raise Misused(f"--max-tokens: this network allows 1 to {quote.max_tokens}")
    price = tokens * quote.price_per_token
    total = price + network.fee
    if total > ceiling:
        raise Declined(
            f"it would cost {format_amount(total)} in all, above the ceiling of "
            f"{format_amount(ceiling)} (--price-ceiling); nothing was signed",
            total=total,
            ceiling=ceiling,
        )
    session.say(
        f"{clip(quote.model_name)}: {format_amount(total)} in all, {format_amount(price)} for "
        f"{tokens} tokens and a fee of {format_amount(network.fee)}. All of it is charged, also "
        "when the answer is shorter. Prompt and answer are public."
    )
    expires = network.height + min(LIFETIME_BLOCKS, quote.lifetime_blocks)
    wish = infer_wish(provider, network.serving_root, prompt, tokens, price, expires)
    entry = pay(session.payer, wish, network)
    entry = follow(session.gateway, session.outbox, entry, wait_seconds)
    report = entry_report(session, entry)
    # A script that uses the answer must notice that there is none yet.
    return replace(report, status=UNKNOWN) if waiting_for_answer(entry) else report


def infer_wish(
    provider: str, model_root: str, prompt: str, max_tokens: int, price: int, expires: int
) -> SigningRequest:
    """An inference request; ``price`` in atoms, ``expires`` a height."""
    fields: dict[str, Json] = {
        "provider": provider,
        "model_root": model_root,
        "request": {"prompt": prompt, "max_tokens": max_tokens},
        "price": price,
        "expires": expires,
    }
    summary = f"question for {format_amount(price)}"
    return SigningRequest("infer", lambda _: fields, price, summary, expires)


def bond(session: Session, amount: str, key_file: str, wait_seconds: float) -> Report:
    """Put up a bond for a consensus key, which must sign as well."""
    atoms, consensus = parse_amount(amount, "AMOUNT"), load_consensus_key(Path(key_file))
    network = _ready_network(session)
    if atoms % network.bond_unit:
        unit = format_amount(network.bond_unit)
        raise Misused(f"a bond is a multiple of {unit} on this network")
    domain = session.profile_string("bond_domain")
    owner, key = session.key.public_key, consensus.public_key().public_bytes_raw().hex()

    def fields(nonce: int) -> dict[str, Json]:
        message = possession_message(domain, network.identity.chain_id, owner, key, atoms, nonce)
        possession = consensus.sign(message).hex()
        return {"consensus_key": key, "amount": atoms, "possession": possession}

    summary = f"bond of {format_amount(atoms)} for {key[:16]}…"
    return _carry_out(session, SigningRequest("bond", fields, atoms, summary), wait_seconds)


def leave(session: Session, kind: str, key: str, wait_seconds: float) -> Report:
    """Send ``unbond`` or ``withdraw``. ``key`` is the consensus key, or its file."""
    if not _CONSENSUS_KEY.fullmatch(key):
        key = load_consensus_key(Path(key)).public_key().public_bytes_raw().hex()
    fields: dict[str, Json] = {"consensus_key": key}
    wish = SigningRequest(kind, lambda _: fields, 0, f"{kind} of {key[:16]}…")
    return _carry_out(session, wish, wait_seconds)


def stake(session: Session, amount: str, days: int, wait_seconds: float) -> Report:
    """Lock an amount for ``days`` days."""
    atoms = parse_amount(amount, "AMOUNT")
    fields: dict[str, Json] = {"amount": atoms, "duration_days": days}
    summary = f"stake of {format_amount(atoms)} for {days} days"
    return _carry_out(
        session, SigningRequest("stake", lambda _: fields, atoms, summary), wait_seconds
    )


def unstake(session: Session, amount: str, wait_seconds: float) -> Report:
    """Start the cooldown of a staked amount."""
    atoms = parse_amount(amount, "AMOUNT")
    fields: dict[str, Json] = {"amount": atoms}
    summary = f"unstake of {format_amount(atoms)}"
    return _carry_out(
        session, SigningRequest("unstake", lambda _: fields, 0, summary), wait_seconds
    )


def _carry_out(session: Session, wish: SigningRequest, wait_seconds: float) -> Report:
    entry = pay(session.payer, wish, _ready_network(session))
    entry = follow(session.gateway, session.outbox, entry, wait_seconds)
    return entry_report(session, entry)


def _ready_network(session: Session) -> Network:
    network = session.gateway.network()
    # A gateway that is behind the chain reports an outdated nonce and balance.
    if not network.ready:
        raise GatewayUnavailable(
            f"the gateway is not ready (block {network.height}): catching up, or without new "
            "blocks; nothing was signed"
        )
    return network


def _offer(session: Session) -> tuple[Network, Quote]:
    """Fetch a network and a quote that agree. Retried once, since a block may come in between."""
    for _ in range(2):
        network, quote = _ready_network(session), session.gateway.quote()
        if quote.model_root == network.serving_root:
            break
    else:
        raise GatewayMisbehaves("the offer is for another model than the chain serves")
    params = network.raw.get("params")
    listed = params.get("inference_token_price") if isinstance(params, dict) else None
    if quote.fee != network.fee or quote.price_per_token != listed:
        raise GatewayMisbehaves("the offer's price is not the chain's; nothing was signed")
    return network, quote


def _default_provider(quote: Quote) -> str:
    if quote.provider is None:
        raise Declined("no default provider is offered; name one with --provider")
    if not quote.provider_online:
        raise Declined("the default provider is offline; try later, or name one with --provider")
    return account_of(quote.provider)


def _prompt(text: str) -> str:
    try:
        prompt = sys.stdin.read(MAX_PROMPT).removesuffix("\n") if text == "-" else text
        prompt.encode("utf-8")
    except UnicodeError:
        raise Misused("the prompt is not text in UTF-8") from None
    if not prompt:
        raise Misused("the prompt is empty")
    return prompt
