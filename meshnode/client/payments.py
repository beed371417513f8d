"""Getting a transaction into a block: check, sign, store, send, follow (decision 0092).

The order of the steps protects the user. Every local check comes before signing. A signed
transaction is on the disk before any byte of it is sent. The outcome of a transaction that may have
been sent is queried, by its id, before anything else of the account is signed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from meshnode.client.answers import Account, Network
from meshnode.client.errors import (
    Declined,
    GatewayMisbehaves,
    GatewayRefuses,
    GatewayUnavailable,
    Misused,
    NotReached,
    OutcomeUnknown,
    TooManyRequests,
)
from meshnode.client.follow import ask
from meshnode.client.gateway import Broadcast, Gateway
from meshnode.client.outbox import OPEN, Entry, Outbox
from meshnode.domain.amounts import text as format_amount
from meshnode.domain.chain.canonical import Json, encode
from meshnode.domain.chain.envelope import application_id, sign_envelope, transaction_hash
from meshnode.domain.identity import NodeKey

ATTEMPTS = 4
"""How often one command sends the same bytes at most."""
PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Seconds before each further attempt."""
MAX_PATIENCE = 10
"""Longest wait, in seconds, that a gateway's rate limit may ask for."""
KNOWN_THERE = "already exists in cache"
"""CometBFT's error for bytes that it has seen before."""
NONCE_RULE = "nonce"
"""Part of the error when a waiting transaction, perhaps this one, has taken the nonce."""


@dataclass(frozen=True, slots=True)
class Payer:
    """The paying key, its gateway and its outbox. ``say`` reports progress.

    Without a key nothing new can be signed, but earlier transactions can be sent again.
    """

    key: NodeKey | None
    gateway: Gateway
    outbox: Outbox
    say: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class SigningRequest:
    """A transaction to be signed: its kind, its own fields, and its cost.

    ``cost`` does not include the fee. ``fields`` makes the fields once the nonce is known, because
    a bond's proof of possession covers the nonce.
    """

    kind: str
    fields: Callable[[int], dict[str, Json]]
    cost: int
    summary: str
    expires: int | None = None


def compose(wish: SigningRequest, chain_id: str, nonce: int) -> dict[str, Json]:
    """The body that is signed."""
    own = wish.fields(nonce)
    return {"kind": wish.kind, "chain_id": chain_id, "nonce": nonce, **own}


def settle(payer: Payer, account: Account) -> None:
    """Determine the outcome of every open entry. Raises OutcomeUnknown if one stays open."""
    identity = payer.gateway.identity
    assert identity is not None  # noqa: S101 - a connected gateway has one
    for entry in payer.outbox.of_account(identity, account.public_key):
        if entry.state in OPEN:
            now = ask(payer.gateway, payer.outbox, entry)
            if now.state in OPEN:
                raise OutcomeUnknown(
                    f"{now.summary} (id {now.application_id[:16]}…, nonce {now.nonce}) is still "
                    "open: run 'meshnode outbox resume' first; nothing was signed now",
                    application_id=now.application_id,
                )
            payer.say(f"earlier: {now.summary}: {now.state} {now.note}".rstrip())
        elif entry.state in ("refused", "void", "forgotten"):
            _settle_refused(payer, account, entry)


def _settle_refused(payer: Payer, account: Account, entry: Entry) -> None:
    # A refusal is one gateway's claim: the transaction may still have been relayed.
    if entry.nonce < account.nonce:
        now = ask(payer.gateway, payer.outbox, entry)
        if now.state == "committed":
            raise OutcomeUnknown(
                f"{now.summary} was {entry.state} earlier, but is in block {now.height} after all; "
                "nothing was signed now: repeat the command if it is still wanted",
                application_id=now.application_id,
            )
        if now.state == entry.state:
            payer.outbox.move(now, "superseded", note="its nonce was used by something else")
    elif entry.nonce > account.nonce and entry.state != "void" and entry.state != "forgotten":
        raise OutcomeUnknown(
            f"{entry.summary} was signed with nonce {entry.nonce}, which is still to come: it "
            "could be carried out later. 'meshnode outbox forget' accepts that; "
            "nothing was signed now",
            application_id=entry.application_id,
        )


def pay(payer: Payer, wish: SigningRequest, network: Network) -> Entry:
    """Sign, store and send a transaction. The returned entry is ``accepted`` or beyond.

    Raises Declined if nothing is in flight, and OutcomeUnknown if the stored entry may be.
    """
    key = payer.key
    if key is None:
        raise Misused("this takes a key")
    settle(payer, payer.gateway.account(key.public_key))
    # Read again, because an open entry may have been carried out in the meantime.
    account = payer.gateway.account(key.public_key)
    total = wish.cost + network.fee
    if total > account.available:
        raise Declined(
            f"it takes {format_amount(total)} with the fee, "
            f"and {format_amount(account.available)} is available",
            required=total,
            available=account.available,
        )
    body = compose(wish, network.identity.chain_id, account.nonce)
    raw = encode(sign_envelope(body, key.seed))
    if len(raw) > network.max_bytes:
        raise Misused(f"the transaction takes {len(raw)} bytes; {network.max_bytes} are allowed")
    entry = Entry(
        application_id=application_id(body, key.public_key),
        hash=transaction_hash(raw),
        raw=raw,
        chain_id=network.identity.chain_id,
        genesis_sha256=network.identity.genesis_sha256,
        account=key.public_key,
        nonce=account.nonce,
        kind=wish.kind,
        summary=wish.summary,
        signed_at=int(time.time()),
        signed_height=network.height,
        expires=wish.expires,
    )
    known = payer.outbox.get(entry.application_id)
    stored = payer.outbox.store(entry)
    payer.say(f"signed: {wish.summary}, id {stored.application_id}")
    return send(payer, stored, maybe_sent=known is not None and known.state != "unsent")


def send(payer: Payer, entry: Entry, *, maybe_sent: bool = False) -> Entry:
    """Send the stored bytes until a gateway gives a definite answer about them.

    ``maybe_sent``: an earlier command may have sent them, so a refusal alone proves nothing.
    """
    trouble = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSES[attempt - 1])
        try:
            # Rule 6: query the same id first, then send the same bytes, and never new ones.
            if maybe_sent:
                entry = ask(payer.gateway, payer.outbox, entry)
                if entry.state not in OPEN:
                    return entry
            answer = _broadcast(payer.gateway, entry.raw)
            if answer.code == 0 or KNOWN_THERE in answer.log:
                return payer.outbox.move(entry, "accepted", note="taken by the gateway")
            if maybe_sent:
                entry = _refused_again(payer, entry, answer.log)
            else:
                entry = payer.outbox.move(entry, "refused", note=answer.log)
        except NotReached as error:
            trouble = str(error)
        except TooManyRequests as error:
            trouble = str(error)
            time.sleep(min(error.seconds, MAX_PATIENCE))
        except (GatewayUnavailable, GatewayMisbehaves, GatewayRefuses) as error:
            trouble, maybe_sent = str(error), True
            payer.say(f"{trouble}; asking what became of {entry.application_id}")
        else:
            if entry.state == "refused":
                raise Declined(
                    f"the network refuses: {entry.note}", application_id=entry.application_id
                )
            return entry
    if not maybe_sent:
        payer.outbox.move(entry, "unsent", note=trouble)
        raise GatewayUnavailable(f"{trouble}; nothing was sent")
    raise OutcomeUnknown(
        f"{trouble}; {entry.summary} may or may not be under way. It is in the outbox: run "
        f"'meshnode outbox resume {entry.application_id[:16]}' before paying again",
        application_id=entry.application_id,
    )


def _broadcast(gateway: Gateway, raw: bytes) -> Broadcast:
    """Send the bytes once. The gateway's own refusal is treated like one from its node."""
    try:
        return gateway.broadcast(raw)
    except GatewayRefuses as refusal:
        return Broadcast(1, refusal.reason)


def _refused_again(payer: Payer, entry: Entry, reason: str) -> Entry:
    """Ask the chain after a refusal, because a second copy is refused if the first arrived."""
    entry = ask(payer.gateway, payer.outbox, entry)
    if entry.state not in OPEN:
        return entry
    if NONCE_RULE in reason.lower():
        return payer.outbox.move(entry, "accepted", note="its nonce is taken by what waits")
    return payer.outbox.move(entry, "refused", note=reason)
