"""What becomes of signed requests: how they are made, sent, looked up, and paid for.

A record has no documented fields: it is in a state if a text in it is the name of that state.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from conformance.checks.native import document_at, mapped, members_of, native_get
from conformance.checks.native_named import texts_in
from conformance.context import Context
from conformance.editions import FIFTH, FOURTH
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
# For so long a request is watched that may expire too early.
EARLY_S = 4.0
REST_S = 1.0
# For so long a block has had a request that is not found, so that no index is just behind.
SEEN_S = 1.0
# What was refused may still be taken a little later, and what was accepted be completed.
REFUSED_S, ACCEPTED_S = 1.0, 8.0
LONG = 128
# A request is in one of the next blocks.
IN_BLOCKS = 1


@dataclass
class Account:
    """What GET /api/account says."""

    answer: Answer
    nonces: list[Json] = field(default_factory=list)
    money: list[Json] = field(default_factory=list)


def sign(context: Context, kind: Kind, about: str = "") -> Signed:
    """Have a message made, which may be about a request.

    Raises `Skipped` if there is none, or the budget is used up.
    """
    if context.budget.exhausted:
        raise context.budget.used_up()
    try:
        return ask(context.target.signer or "", context.target.url, kind, about)
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


def first_record(
    context: Context, made: Signed, height: int | None, within_s: float
) -> tuple[Answer, Json, tuple[Answer, ...]]:
    """Look a request up until there is a record; return it, and what shows that it came too late.

    That is a block above the ``height`` that has had the request for a while, and the latest answer
    without a record since then.
    """
    ends, seen, late = time.monotonic() + within_s, None, tuple[Answer, ...]()
    begun = height
    while True:
        answer, record = record_of(context, made.request_id)
        now = time.monotonic()
        if record is not None or now > ends:
            return answer, record, late
        if context.edition >= FIFTH and begun is not None:
            if seen is None:
                block = native_get(context, f"/api/block/{begun + 1}")
                seen = (block, now) if names_it(made, block) else None
                begun += 1 if block.ok and seen is None else 0
            elif now - seen[1] > SEEN_S:
                late = (seen[0], answer)
        time.sleep(LOOK_S)


def names_it(made: Signed, block: Answer) -> bool:
    """Return whether a block has the request, under a name of it or as it was sent."""
    # The transaction as it was sent is the only long text in what broadcasts it.
    sent = [text for text in texts_in(made.body) if len(text) > LONG]
    names = (made.hash, made.request_id, made.prompt, *sent)
    return block.ok and any(has(block, name) for name in names if name)


def has(answer: Answer, text: str) -> bool:
    """Return whether an answer has a text, however JSON writes its letters."""
    return text in answer.body.decode("utf-8", "replace") or any(
        text in each for each in texts_in(answer.json_object())
    )


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
    late: tuple[Answer, ...] = ()
    """What shows that it was not found while it was pending."""
    early: tuple[Answer, ...] = ()
    """What shows that it was over before its block."""
    other: Signed | None = None
    """Another one of the same account, which was pending beside it."""


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
    before, height = account_of(context, made.public_key), height_of(context)
    answer = post(context, made)
    if is_refused(answer) and context.edition >= FIFTH:
        # Some blocks may have been made since it was signed.
        with suppress(Skipped):
            made, height = sign(context, Kind.UNANSWERED), height_of(context)
            answer = post(context, made)
    if is_refused(answer):
        return f"the request that nobody answers was refused: {brief(answer.body)}"
    context.budget.charge(made.cost / ATOMS)
    looked, record, late = first_record(context, made, height, BLOCK_S)
    late = (*late, looked) if late and state_of(record) != PENDING else ()
    meanwhile = while_pending(context, made, before)
    early = _early(context, made)
    other = _begin_another(context, made) if context.edition >= FIFTH else None
    return Unanswered(made, answer, before, meanwhile, late, early, other)


def _begin_another(context: Context, first: Signed) -> Signed | None:
    """Broadcast another one, and read the account, whose amounts are judged in every answer."""
    try:
        made = sign(context, Kind.UNANSWERED)
    except Skipped:
        return None
    if made.public_key != first.public_key or is_refused(post(context, made)):
        return None
    context.budget.charge(made.cost / ATOMS)
    for ident in (made.request_id, first.request_id):
        record_of(context, ident)
        account_of(context, made.public_key)
        time.sleep(LOOK_S)
    return made


def _early(context: Context, made: Signed) -> tuple[Answer, ...]:
    """Return what shows that a request expired before its block, which may lag by one."""
    ends = time.monotonic() + EARLY_S
    while context.edition >= FIFTH and time.monotonic() < ends:
        looked, record = record_of(context, made.request_id)
        # Read later, so that it is no lower than when the request was over.
        height = height_of(context)
        if height is None or height + 1 >= made.expires or state_of(record) == DONE:
            break
        if state_of(record) == OVER:
            return (looked,)
        time.sleep(LOOK_S)
    return ()
