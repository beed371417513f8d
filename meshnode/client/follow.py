"""What became of a signed transaction (document, 4.2 rules 5 and 6; decision 0092).

Only reads. An inference request is asked for by its application id. Any other transaction shows in
two ways: the account's nonce passes its own, and a block holds it. While the nonce has not passed,
the same bytes may be sent again without harm; once it has passed, they can do nothing any more.
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
"""Of blocks, in one search: 1200 blocks. Public gateways count 240 requests a minute."""
WAITING = "waiting for its answer"
"""Note of a request that is in a block and can still be answered."""
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 2.0
"""Seconds between two questions about the same thing."""


def ask(gateway: Gateway, outbox: Outbox, entry: Entry) -> Entry:
    """Ask once what became of ``entry``, and record it."""
    if entry.kind == "infer":
        record = gateway.request(entry.application_id)
        if record is not None:
            return _record_request(outbox, entry, record)
    account = gateway.account(entry.account)
    if account.nonce <= entry.nonce:
        return _not_yet(gateway, outbox, entry)
    # Another transaction of ours with this nonce: no need to search for it.
    for other in outbox.of_account(entry.identity, entry.account):
        if other.nonce == entry.nonce and other.state == "committed" and other.hash != entry.hash:
            note = f"nonce used by {other.summary}"
            return outbox.move(entry, "superseded", note=note, height=other.height)
    return _search(gateway, outbox, entry)


def follow(gateway: Gateway, outbox: Outbox, entry: Entry, seconds: float) -> Entry:
    """Ask until the outcome is known, or for ``seconds``; a request also until it is answered."""
    deadline = time.monotonic() + seconds
    pause = FIRST_PAUSE
    while entry.state in OPEN or waiting_for_answer(entry):
        try:
            entry = ask(gateway, outbox, entry)
        except (GatewayUnavailable, GatewayMisbehaves, GatewayRefuses):
            # It may serve again, or speak sense, before the time is up.
            pause = LONGEST_PAUSE
        if entry.state not in OPEN and not waiting_for_answer(entry):
            break
        if time.monotonic() + pause >= deadline:
            break
        time.sleep(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE)
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
    """What the gateway shows under our id must be what was signed under it."""
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
    """What was signed."""
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
    """Look through the blocks since it was signed for the transaction that used its nonce."""
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
    """A request that is in a block, and that the gateway does not show under its id."""
    if entry.expires is None:
        return "in a block"
    return WAITING if tip <= entry.expires else "in a block; its answer is kept no longer"
