"""The commands that only ask: status, account, validators, block, request."""

from __future__ import annotations

import re

from meshnode.client.answers import Fields
from meshnode.client.errors import (
    REFUSED,
    ClientError,
    Declined,
    GatewayRefuses,
    GatewayUnavailable,
    Misused,
    OutcomeUnknown,
)
from meshnode.client.follow import ask, follow, waiting_for_answer
from meshnode.client.gateway import clip
from meshnode.client.keys import public_key_of
from meshnode.client.node_view import ask_node, node_table
from meshnode.client.outbox import OPEN, Entry
from meshnode.client.session import Report, Session
from meshnode.domain.account_address import address_of, read_account
from meshnode.domain.amounts import text as format_amount
from meshnode.domain.chain.canonical import Json, JsonLimits, parse
from meshnode.domain.errors import InvalidRequest

_ID = re.compile(r"[0-9a-f]{64}")
_HEIGHT = re.compile(r"0*[1-9][0-9]{0,17}")
# Control characters except tab and newline, and characters that reorder text (bidi).
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
MAX_VALIDATORS = 10_000
"""The most rows that are fetched, even if the gateway reports further pages."""


def show_status(session: Session) -> Report:
    """Show the node, the network, its provider, and the user's account if there is a key."""
    network = session.gateway.network()
    value: dict[str, Json] = {"network": dict(network.raw), "account": None, "inference": None}
    as_json = getattr(session.options, "json", False)
    table = "" if as_json else _node_table(session.gateway.api)
    state = "ready" if network.ready else "not ready: catching up, or without new blocks"
    lines = [
        f"{clip(network.identity.chain_id)} at block {network.height}, {state}",
        f"genesis {network.identity.genesis_sha256}",
    ]
    try:
        quote = session.gateway.quote()
    except (GatewayRefuses, GatewayUnavailable) as error:
        lines.append(f"no offer of inference: {error}")
    else:
        value["inference"] = dict(quote.raw)
        online = "online" if quote.provider_online else "offline"
        lines.append(
            f"{clip(quote.model_name)}: {format_amount(quote.price_per_token)} a token, "
            f"at most {quote.max_tokens}; default provider {online}"
        )
    if session.key_file.exists():
        report = show_account(session, None)
        value["account"] = report.value
        lines.append(report.text)
    return Report("\n".join([table, "", *lines] if table else lines), value)


def _node_table(base: str) -> str:
    """The state of the node that was asked; empty if it does not serve the node API."""
    try:
        return node_table(*(ask_node(base, f"/{name}") for name in ("status", "health", "metrics")))
    except ClientError:
        return ""


def show_account(session: Session, named: str | None) -> Report:
    """Show the balance and nonce of the user's own account, or of the named one."""
    public_key = account_of(named) if named else public_key_of(session.key_file)
    # The answer about an account does not name its chain.
    session.gateway.network()
    account = session.gateway.account(public_key)
    address = address_of(public_key)
    value: dict[str, Json] = {**account.raw, "address": address}
    lines = [
        f"account {public_key}",
        f"address {address}",
        f"{format_amount(account.available)} available, {format_amount(account.locked)} locked, "
        f"next nonce {account.nonce}",
    ]
    try:
        stake = Fields(session.gateway.query("/stake", public_key=public_key), "/stake")
    except (GatewayRefuses, GatewayUnavailable):
        # Networks without stakes do not have this query; a failure hides only the stake.
        stake = None
    if stake is not None:
        value["stake"] = dict(stake.raw)
        if stake.atoms("amount"):
            lines.append(f"{format_amount(stake.atoms('amount'))} staked")
    return Report("\n".join(lines), value)


def show_validators(session: Session) -> Report:
    """Show all validators, fetched page by page."""
    rows: list[Fields] = []
    after, total = "", 0
    # The answer does not name its chain.
    session.gateway.network()
    while len(rows) < MAX_VALIDATORS:
        page = session.gateway.validators(after=after)
        fresh = page.objects("validators")
        rows += fresh
        total = page.integer("total")
        following = page.raw.get("next_after")
        # A cursor that points backwards would loop forever.
        if not fresh or not isinstance(following, str) or following <= after:
            break
        after = following
    lines = [
        f"{clip(row.text('public_key'))}  power {row.integer('power')}  "
        f"bond {format_amount(row.atoms('bond'))}  owner {clip(row.text('owner'))}"
        for row in rows
    ]
    lines.append(f"{total} with voting power")
    return Report("\n".join(lines), {"validators": [row.raw for row in rows], "total": total})


def show_block(session: Session, which: str) -> Report:
    """Show one block with its transactions."""
    if which == "latest":
        height = session.gateway.network().height
    elif _HEIGHT.fullmatch(which):
        height = int(which)
    else:
        raise Misused(f"{clip(which)!r} is not a height: give a number from 1, or 'latest'")
    block = session.gateway.block(height)
    lines = [f"block {block.height}  {block.hash}", f"time {clip(block.time)}"]
    for one in block.transactions:
        outcome = "accepted" if one.code == 0 else f"refused: {clip(one.log)}"
        lines.append(f"{clip(one.kind)} by {clip(one.sender)}: {outcome}")
        lines.append(f"  transaction {one.hash}")
    if not block.transactions:
        lines.append("no transactions")
    return Report("\n".join(lines), dict(block.raw))


def show_request(session: Session, which: str, wait_seconds: float) -> Report:
    """Show an inference request by its id; one in the outbox also by a prefix of its id."""
    known = session.outbox.get(which) if _ID.fullmatch(which) else session.outbox.find(which)
    if known is None:
        record = session.gateway.request(which)
        if record is None:
            raise Declined("the gateway knows no such request; it may be too long ago")
        return _request_report(dict(record.raw))
    if known.identity != session.identity:
        raise Misused(f"that was signed for chain {known.chain_id}: choose its gateway or network")
    # A final outcome, such as an answer, comes from the outbox: chains keep only recent ones.
    if known.state in OPEN or waiting_for_answer(known):
        known = ask(session.gateway, session.outbox, known)
        known = follow(session.gateway, session.outbox, known, wait_seconds)
    return entry_report(session, known)


def entry_report(session: Session, entry: Entry) -> Report:
    """Show the outcome of a committed transaction signed here.

    Raises OutcomeUnknown while it is open, and Declined if it ended in any other way.
    """
    if entry.state in OPEN:
        raise OutcomeUnknown(
            f"{entry.summary} is {entry.state}: not in a block yet, as far as the gateway shows. "
            f"Ask again with 'meshnode outbox resume {entry.application_id[:16]}'",
            application_id=entry.application_id,
        )
    if entry.state != "committed":
        raise Declined(
            f"{entry.summary}: {entry.state}: {clip(entry.note)}",
            application_id=entry.application_id,
        )
    if entry.outcome is not None:
        value = parse(entry.outcome.encode(), JsonLimits(len(entry.outcome)))
        return _request_report(value if isinstance(value, dict) else {})
    if entry.kind == "infer":
        record = session.gateway.request(entry.application_id)
        if record is not None:
            return _request_report(dict(record.raw))
    return Report(f"{entry.summary}: in block {entry.height}", entry_value(entry))


def entry_value(entry: Entry) -> dict[str, Json]:
    """An entry as JSON for scripts, with both of its identifiers."""
    return {
        "application_id": entry.application_id,
        "transaction_hash": entry.hash,
        "chain_id": entry.chain_id,
        "account": entry.account,
        "nonce": entry.nonce,
        "kind": entry.kind,
        "summary": entry.summary,
        "state": entry.state,
        "note": entry.note,
        "height": entry.height,
    }


def account_of(text: str) -> str:
    """The public key of an account given by the user, as an address or as the plain key."""
    try:
        return read_account(text)
    except InvalidRequest as error:
        raise Misused(f"{clip(text)!r} {error.reason}") from None


def _request_report(record: dict[str, Json]) -> Report:
    fields = Fields(record, "request")
    status = fields.text("status")
    if status == "completed":
        text = printable(fields.object("output").text("text"))
        paid = format_amount(fields.atoms("provider_paid"))
        block = fields.integer("height")
        return Report(f"{text}\n\n(in block {block}; the provider got {paid})", record)
    if status == "expired":
        refund = format_amount(fields.atoms("refunded"))
        text = f"expired without an answer; {refund} were unlocked, the fee is spent"
        return Report(text, record, status=REFUSED)
    text = f"pending: accepted in block {fields.integer('created_height')}, "
    return Report(f"{text}to be answered by block {fields.integer('expires')}", record)


def printable(text: str) -> str:
    """An answer without characters that could control a terminal. Newlines are kept."""
    return _STEERING.sub("\N{REPLACEMENT CHARACTER}", text)
