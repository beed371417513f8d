"""What becomes of signed requests: how they are made, sent, looked up, and paid for.

A record has no documented fields: it is in a state if a text in it is the name of that state.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from conformance.checks.native import document_at, mapped, members_of, native_get
from conformance.checks.native_named import texts_in
from conformance.context import Context
from conformance.editions import FOURTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.signer import Kind, NotSigned, Signed, ask
from conformance.strictjson import Json, brief, is_int

NONCES = "/api/account nonce"
PENDING, DONE, OVER = "pending", "completed", "expired"
ATOMS = 1_000_000
# No amount of atoms has more digits.
DIGITS = 40
# Until the next block, and between two looks.
BLOCK_S, LOOK_S = 10.0, 0.25
REST_S = 1.0
# A request is in one of the next blocks.
IN_BLOCKS = 1


@dataclass
class Account:
    """What GET /api/account says."""

    answer: Answer
    nonces: list[Json] = field(default_factory=list)
    money: list[Json] = field(default_factory=list)


def sign(context: Context, kind: Kind) -> Signed:
    """Have a message made. Raises `Skipped` if there is none, or the budget is used up."""
    if context.budget.exhausted:
        raise context.budget.used_up()
    try:
        return ask(context.target.signer or "", context.target.url, kind)
    except NotSigned as reason:
        raise Skipped(str(reason)) from None


def post(context: Context, made: Signed) -> Answer:
    """Broadcast, or send what else was signed."""
    if made.request_id:
        context.service.broadcast.append(made.request_id)
    return context.http.call("POST", made.path, json_body=made.body)


def is_refused(answer: Answer) -> bool:
    """Return whether the answer to a broadcast is a refusal, as JSON-RPC and engines write it."""
    document = answer.json_object() or {}
    result = document.get("result")
    code = result.get("code") if isinstance(result, dict) else None
    return not answer.ok or bool(document.get("error")) or (is_int(code) and code != 0)


def record_of(context: Context, ident: str) -> tuple[Answer, Json]:
    """GET the record of a request; None if there is none."""
    answer = native_get(context, "/api/inference/request", {"id": ident})
    return answer, answer.json_object() if answer.ok else None


def state_of(record: Json) -> str:
    """Return the one state that a record names, or an empty string."""
    found = {text.lower() for text in texts_in(record)} & {PENDING, DONE, OVER}
    return found.pop() if len(found) == 1 else ""


def poll(
    context: Context, ident: str, done: Callable[[Json], bool], within_s: float
) -> tuple[Answer, Json]:
    """Look a request up until it is `done`, or the time is over."""
    ends = time.monotonic() + within_s
    while True:
        answer, record = record_of(context, ident)
        if (record is not None and done(record)) or time.monotonic() > ends:
            return answer, record
        time.sleep(LOOK_S)


def account_of(context: Context, key: str) -> Account:
    """GET an account: its nonces and its amounts, as they are called."""
    answer, document = document_at(context, "/api/account", {"public_key": key})
    if NONCES in context.target.field_map:
        nonces = mapped(context, NONCES, document)
    else:
        nonces = [value for name, value in members_of(document) if "nonce" in name.lower()]
    if "/api/account money" in context.target.field_map:
        return Account(answer, nonces, mapped(context, "/api/account money", document))
    # Amounts are decimal strings that hold integers.
    whole = [value for _, value in members_of(document) if isinstance(value, str)]
    return Account(answer, nonces, [value for value in whole if value.isdecimal()])


def atoms_of(account: Account) -> list[int]:
    """Return the amounts of an account that are decimal texts."""
    texts = [value for value in account.money if isinstance(value, str)]
    return [int(text) for text in texts if text.isdecimal() and len(text) <= DIGITS]


def settled(context: Context) -> bool:
    """Wait for the requests of this run; return whether none of them is pending any more."""
    ends = time.monotonic() + context.target.inference_timeout_s
    for ident in dict.fromkeys(context.service.broadcast):
        while state_of(record_of(context, ident)[1]) == PENDING:
            if time.monotonic() > ends:
                return False
            time.sleep(LOOK_S)
    return True


def at_rest(context: Context, key: str) -> Account:
    """Return the account once it has not changed for a while. Raises `Skipped` if it never does."""
    ends = time.monotonic() + BLOCK_S
    seen = account_of(context, key)
    while time.monotonic() < ends:
        time.sleep(REST_S)
        seen, earlier = account_of(context, key), seen
        if (seen.nonces, seen.money) == (earlier.nonces, earlier.money):
            return seen
    raise Skipped("the account changes without the suite")


def height_of(context: Context) -> int | None:
    """Return the height in the network identity; None without one."""
    _, document = document_at(context, "/api/network")
    if "/api/network height" in context.target.field_map:
        found = mapped(context, "/api/network height", document)
    else:
        found = [value for name, value in members_of(document) if name == "height"]
    return int(found[0]) if found and is_int(found[0]) else None


@dataclass(frozen=True)
class Meanwhile:
    """An account while a request of it may be pending."""

    account: Account
    pending: bool
    """Whether the account was read before the request was over."""
    in_block: bool
    """Whether blocks were made before that."""


@dataclass(frozen=True)
class Unanswered:
    """A request that nobody answers, and its account before it and after it was broadcast."""

    made: Signed
    sent: Answer
    before: Account
    meanwhile: Meanwhile


def while_pending(context: Context, made: Signed, before: Account) -> Meanwhile:
    """Read the account of a request until it has changed, or the request is in a block, or over."""
    begun, ends = height_of(context), time.monotonic() + BLOCK_S
    while True:
        seen = account_of(context, made.public_key)
        _, record = record_of(context, made.request_id)
        pending = state_of(record) == PENDING
        in_block = begun is not None and (height_of(context) or 0) > begun + IN_BLOCKS
        waits = context.edition >= FOURTH and pending and not in_block
        if seen.money != before.money or not waits or time.monotonic() > ends:
            return Meanwhile(seen, pending, in_block)
        time.sleep(LOOK_S)


def begin_unanswered(context: Context) -> Unanswered | str:
    """Broadcast a request that nobody answers, once in a run; or return why there is none."""
    if context.service.unanswered is None:
        context.service.unanswered = _begin(context)
    begun: Unanswered | str = context.service.unanswered
    return begun


def _begin(context: Context) -> Unanswered | str:
    try:
        made = sign(context, Kind.UNANSWERED)
    except Skipped as reason:
        return str(reason)
    before = account_of(context, made.public_key)
    answer = post(context, made)
    if is_refused(answer):
        return f"the request that nobody answers was refused: {brief(answer.body)}"
    context.budget.charge(made.cost / ATOMS)
    poll(context, made.request_id, lambda _: True, BLOCK_S)
    return Unanswered(made, answer, before, while_pending(context, made, before))
