"""Finds the outcome of a signed transaction (interface 4.2 rules 5 and 6; decision 0092).

Nothing here writes to the network. An inference request is looked up by its application id. Any
other transaction is recognised in two ways: the account's nonce advances past the transaction's,
and a block contains it. Until the nonce has advanced, the same bytes may be sent again without
harm; afterwards they have no effect.
"""

from __future__ import annotations

import time

from meshnode.client.answers import Fields
from meshnode.client.errors import GatewayMisbehaves, GatewayRefuses, GatewayUnavailable
from meshnode.client.gateway import MAX_PAGE, Gateway
from meshnode.client.outbox import OPEN, Entry, Outbox
from meshnode.domain.chain.canonical import JsonLimits, encode, parse
from meshnode.domain.chain.jobs import SOONEST_EXPIRY, request_root

MAX_PAGES = 60
"""Pages of 20 blocks in one search. Public gateways allow 240 requests a minute."""
WAITING = "waiting for its answer"
"""The note on a request that is in a block and can still be answered."""
FIRST_PAUSE, MAX_PAUSE = 0.25, 2.0
"""Seconds between two queries about the same transaction."""


def ask(gateway: Gateway, outbox: Outbox, entry: Entry) -> Entry:
    """Query the outcome of ``entry`` once, and record it."""
    if entry.kind == "infer":
        record = gateway.request(entry.application_id)
        if record is not None:
            return _record_request(outbox, entry, record)
    account = gateway.account(entry.account)
    if account.nonce <= entry.nonce:
        return _not_yet(gateway, outbox, entry)
    # Another entry of this outbox used the nonce, so the blocks need not be searched.
    for other in outbox.of_account(entry.identity, entry.account):
        if other.nonce == entry.nonce and other.state == "committed" and other.hash != entry.hash:
            note = f"nonce used by {other.summary}"
            return outbox.move(entry, "superseded", note=note, height=other.height)
    return _search(gateway, outbox, entry)


def follow(gateway: Gateway, outbox: Outbox, entry: Entry, seconds: float) -> Entry:
    """Poll until the outcome is known (for a request: its answer), or for ``seconds``."""
    deadline = time.monotonic() + seconds
    pause = FIRST_PAUSE
    while entry.state in OPEN or waiting_for_answer(entry):
        try:
            entry = ask(gateway, outbox, entry)
        except (GatewayUnavailable, GatewayMisbehaves, GatewayRefuses):
            # The gateway may recover before the time is up.
            pause = MAX_PAUSE
        if entry.state not in OPEN and not waiting_for_answer(entry):
            break
        if time.monotonic() + pause >= deadline:
            break
        time.sleep(pause)
        pause = min(pause * 1.5, MAX_PAUSE)
    return entry


def waiting_for_answer(entry: Entry) -> bool:
    """Whether a request is in a block and neither answered nor expired yet."""
    return entry.state == "committed" and entry.note == WAITING


def _record_request(outbox: Outbox, entry: Entry, record: Fields) -> Entry:
    status = record.text("status")
    _check_record(entry, record)
    if status == "pending":
        height = record.integer("created_height")
        return outbox.move(entry, "committed", note=WAITING, height=height)
    height = record.integer("height")
    if status == "completed":
        record.atoms("provider_paid")
        record.object("output").text("text")
    else:
        record.atoms("refunded")
    outcome = encode(dict(record.raw)).decode("ascii")
    return outbox.move(entry, "committed", note=status, height=height, outcome=outcome)


def _check_record(entry: Entry, record: Fields) -> None:
    """The gateway's record under the entry's id must match the signed request."""
    body = signed_body(entry)
    if record.text("owner") != entry.account or record.text("provider") != body.text("provider"):
        raise GatewayMisbehaves("the request is shown with another owner or provider")
    if record.text("model_root") != body.text("model_root"):
        raise GatewayMisbehaves("the request is shown with another model")
    if record.raw.get("status") == "completed":
        request, output = body.object("request"), record.object("output")
        root = request_root(request.text("prompt"), request.integer("max_tokens"))
        if output.raw.get("request_root") != root:
            raise GatewayMisbehaves("the answer belongs to another request")


def signed_body(entry: Entry) -> Fields:
    """The body that was signed."""
    value = parse(entry.raw, JsonLimits(len(entry.raw)))
    return Fields(value, "the outbox's entry").object("body")


def _not_yet(gateway: Gateway, outbox: Outbox, entry: Entry) -> Entry:
    if entry.expires is not None:
        # The earliest block that could still take it is the next one.
        next_height = gateway.network().height + 1
        if entry.expires < next_height + SOONEST_EXPIRY:
            return outbox.move(entry, "void", note="its expiry has passed")
    return entry


def _search(gateway: Gateway, outbox: Outbox, entry: Entry) -> Entry:
    """Search the blocks since the signing for the transaction that used the nonce."""
    first, tip = entry.signed_height + 1, gateway.network().height
    for _ in range(MAX_PAGES):
        if first > tip:
            break
        last = min(first + MAX_PAGE - 1, tip)
        for block in gateway.blocks(first, last):
            for one in block.transactions:
                ours = one.hash == entry.hash
                same = one.sender == entry.account and one.nonce == entry.nonce
                if one.code == 0 and ours:
                    note = _note_in_block(entry, tip)
                    return outbox.move(entry, "committed", note=note, height=block.height)
                if one.code == 0 and same:
                    note = f"nonce used by transaction {one.hash}"
                    return outbox.move(entry, "superseded", note=note, height=block.height)
        first = last + 1
    note = "its nonce was used; the blocks that were searched do not show by what"
    return outbox.move(entry, entry.state, note=note)


def _note_in_block(entry: Entry, tip: int) -> str:
    """The note on a request that is in a block but that the gateway does not know by its id."""
    if entry.expires is None:
        return "in a block"
    return WAITING if tip <= entry.expires else "in a block; its answer is kept no longer"
