"""Interface 3 and 4.2: what takes the time of some blocks, and is looked at last.

A signed request that nobody answers expires and is refunded; it is broadcast as soon as another
check has need of the signer. A response is kept, and artifacts are there that are new by then.
"""

import re
import time
from collections.abc import Callable
from itertools import product
from operator import lt

from conformance.checks.mixed_keys import REFUND_NAMED, judge_refund
from conformance.checks.native import document_at, mapped, members_of, native_get
from conformance.checks.native_documents import under
from conformance.checks.native_named import responses, texts_in
from conformance.checks.signed import LOCKED, NONCE, POLLED, judge_locked
from conformance.checks.signed_requests import (
    ATOMS,
    BLOCK_S,
    DONE,
    LOOK_S,
    PENDING,
    Account,
    Unanswered,
    at_rest,
    atoms_of,
    begin_unanswered,
    height_of,
    is_refused,
    poll,
    post,
    record_of,
    sign,
    state_of,
)
from conformance.context import Context
from conformance.editions import FIFTH, FOURTH, SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.signer import Kind, Signed
from conformance.strictjson import Json, brief, is_int

# So many blocks after its expiry a request that is pending for so long will not expire.
LATE_BLOCKS, LATE_S = 3, 4.0
STEP_S = 2.0
# The status of a record that is not there.
NOT_FOUND = 404
REFUNDED, OVER = "ST-004", "expired"
KEPT, LINKED, SILENT = "NT-RULE-083", "NT-RULE-084", "NT-RULE-089"
EARLY, STAYS, GAINED = "NT-RULE-096", "NT-RULE-097", "NT-RULE-098"
RETURNED, OVER_STAYS = "NT-RULE-160", "NT-RULE-101"
_AMOUNT = re.compile(r"atoms|amount", re.IGNORECASE)
ARTIFACT, MOST_LINKS = re.compile(r"/[!-~]*[0-9a-f]{40}[!-~]*\Z", re.ASCII), 4


@requirement(
    REFUNDED, REFUND_NAMED, LOCKED, NONCE, POLLED, SILENT, EARLY, GAINED, RETURNED, OVER_STAYS
)  # fmt: skip
def without_answer(context: Context) -> None:
    """Broadcast a request that nobody answers, and wait for its expiry and its refund."""
    begun = begin_unanswered(context)
    if isinstance(begun, str):
        raise Skipped(begun)
    made, within_s = begun.made, context.target.inference_timeout_s
    seen = begun.meanwhile.account
    if begun.late:
        why = "a block had the request, and it was not found before it was over"
        context.fails(POLLED, why, begun.sent, *begun.late)
    if context.edition >= FIFTH:
        why = f"it has expired before the chain is at its block {made.expires}"
        context.judge(EARLY, not begun.early, why, begun.sent, *begun.early)
    if context.edition >= FOURTH:
        judge_locked(context, made, begun.before, begun.meanwhile)
    ends, waited = time.monotonic() + within_s, False
    while True:
        looked, record = poll(
            context, made.request_id, lambda seen: state_of(seen) in (OVER, DONE), STEP_S
        )
        if state_of(record) in (OVER, DONE) or time.monotonic() > ends:
            break
        waited = waited or state_of(record) == PENDING
        if context.edition >= FOURTH:
            _judge_late(context, made)
    # Read later, so that it is no lower than when the request was over.
    height = height_of(context) if context.edition >= SEVENTH else None
    if state_of(record) == OVER and height is not None:
        why = f"it has expired at height {height}, before its block {made.expires}"
        context.judge(EARLY, height + 1 >= made.expires, why, begun.sent, looked)
    if state_of(record) in (OVER, DONE):
        why = f"a request that nobody answers is completed: {brief(record)}"
        context.judge(SILENT, state_of(record) == OVER, why, begun.sent, looked)
    if context.edition >= SEVENTH and waited and looked.status == NOT_FOUND:
        # It was looked at all the time, so that not many others can have followed it.
        _judge_lost(context, made, looked)
    if state_of(record) != OVER:
        raise Skipped(f"it has not expired within {within_s:g} s: {brief(record)}")
    judge_refund(context, made.request_id, record, looked)
    if context.edition >= SEVENTH and (
        told := _answer_late(context, made, lambda seen: state_of(seen) == DONE)
    ):
        answers, behind = told
        why = f"a result for a request that had expired: {brief(behind)}"
        context.judge(OVER_STAYS, state_of(behind) != DONE, why, *answers)
    if context.edition >= FIFTH:
        heights = [
            found
            for refund in under(record, "refund")
            for found in under(refund, "height")
            if is_int(found)
        ]
        why = f"its refund is of block {brief(heights)}, and its block expiry {made.expires}"
        # Whether the last block in which it is good is that one or the one before is not said.
        context.judge(EARLY, not heights or min(heights) + 1 >= made.expires, why, looked)
        if context.edition >= SEVENTH and made.expires and heights:
            held = min(heights) < made.expires + LATE_BLOCKS
            context.judge(REFUNDED, held, why, begun.sent, looked)
        _judge_returned(context, made, record, looked)
    other = None
    if begun.other is not None:
        # What it has locked comes back as well.
        _, other = poll(
            context,
            begun.other.request_id,
            lambda seen: state_of(seen) in (OVER, DONE),
            BLOCK_S,
        )
    after = at_rest(context, made.public_key)
    if context.edition >= SEVENTH and state_of(other) in (OVER, DONE) and seen.nonces:
        why = f"the next nonce is {brief(seen.nonces)} before another request, and behind it"
        held = after.nonces != seen.nonces
        context.judge(NONCE, held, why, seen.answer, looked, after.answer)
    if context.service.paid:
        raise Skipped("another request was paid before this one expired")
    before = begun.before.money
    # A fee may be kept, and what was looked at meanwhile may have been over already.
    held = after.money != seen.money or after.money == before
    if context.edition >= FIFTH:
        _judge_gain(context, begun, after)
    if context.edition >= FOURTH and after.money != before:
        if not begun.meanwhile.pending:
            why = "it was over before its account was read, and that has changed otherwise"
            raise Skipped(why)
        held = held and (seen.money == before or _rises(seen, after))
    amounts = f"{brief(before)}, then {brief(seen.money)}"
    why = f"{amounts}; after its expiry {brief(after.money)}: nothing came back"
    context.judge(REFUNDED, held, why, begun.sent, looked, seen.answer, after.answer)


def _answer_late(
    context: Context, made: Signed, changed: Callable[[Json], bool]
) -> tuple[tuple[Answer, ...], Json] | None:
    """Have a worker's result sent for a request that is over, and return its record behind it."""
    try:
        result = sign(context, Kind.LATE_RESULT, made.request_id)
    except Skipped:
        return None
    told = post(context, result)
    looked, record = poll(context, made.request_id, changed, LATE_S)
    return None if record is None else ((told, looked), record)


def _judge_lost(context: Context, made: Signed, looked: Answer) -> None:
    """Rule on a request that was pending, and is not found any more behind its block expiry."""
    height = height_of(context)
    if made.expires and height is not None and height >= made.expires + LATE_BLOCKS:
        again, _ = poll(context, made.request_id, lambda seen: True, LATE_S)
        why = f"it was pending, and at height {height} it is not found: status {again.status}"
        context.judge(REFUNDED, again.status != NOT_FOUND, why, looked, again)


def _judge_returned(context: Context, made: Signed, record: Json, answer: Answer) -> None:
    """Rule on the amounts that the refund in a record has: what was paid, or less by a fee."""
    amounts = {
        name: int(value)
        for refund in under(record, "refund")
        for name, value in (("amount", refund), *members_of(refund))
        if isinstance(value, str) and value.isdecimal() and _AMOUNT.search(name)
    }
    if made.cost and amounts:
        why = f"the refund of a request of {made.cost} has {brief(amounts)}"
        held = all(0 < amount <= made.cost for amount in amounts.values())
        context.judge(RETURNED, held, why, answer)


def _judge_brief(context: Context) -> None:
    """Broadcast a request whose block expiry comes soon after its answer, and wait for both."""
    try:
        made = sign(context, Kind.BRIEF)
    except Skipped:
        return
    sent = post(context, made)
    if is_refused(sent):
        return
    context.budget.charge(made.cost / ATOMS)
    first, record = poll(context, made.request_id, lambda seen: state_of(seen) != PENDING, BLOCK_S)
    if state_of(record) != DONE or not made.expires:
        return
    ends = time.monotonic() + context.target.inference_timeout_s
    while (height_of(context) or 0) <= made.expires:
        if time.monotonic() > ends:
            return
        time.sleep(LOOK_S)
    answer, record = record_of(context, made.request_id)
    why = f"a request was completed, and is {state_of(record)} behind its block {made.expires}"
    context.judge(STAYS, state_of(record) == DONE, why, sent, first, answer)


@requirement(KEPT, LINKED, STAYS)
def signed_kept(context: Context) -> None:
    """GET the record of a completed request once more, some seconds after it was completed."""
    if context.edition >= FIFTH:
        # An adapter may be newer than when it was looked for first.
        artifact_linked(context)
        _judge_brief(context)
    if context.service.completed is None:
        raise Skipped("no signed request was completed")
    made, first = context.service.completed
    before = sorted(set(responses(first.json_object())))
    if not before:
        return
    told = None
    if context.edition >= SEVENTH:
        told = _answer_late(context, made, lambda seen: sorted(set(responses(seen))) != before)
    if told is None:
        answer, record = record_of(context, made.request_id)
        told = (answer,), record
    answers, record = told
    after = sorted(set(responses(record)))
    why = f"the response of a completed request is {brief(before)}, and later {brief(after)}"
    context.judge(KEPT, after == before, why, first, *answers)


@requirement(LINKED)
def artifact_linked(context: Context) -> None:
    """GET the artifacts to which the checkpoint of the training adapter leads."""
    listed, known = _links(context)
    for path in known[:MOST_LINKS]:
        answer = native_get(context, path)
        # Another adapter may have taken its place.
        again, still = _links(context)
        if answer.status < 500 and (answer.ok or path in still):
            why = f"the checkpoint names {path}, which has status {answer.status}"
            context.judge(LINKED, answer.ok, why, listed, answer, again)


def _links(context: Context) -> tuple[Answer, list[str]]:
    """Return the paths of artifacts that the checkpoint names."""
    answer = native_get(context, "/api/model/checkpoint.json")
    texts = texts_in(answer.json_object() if answer.ok else None)
    return answer, [text for text in texts if ARTIFACT.match(text)]


def _judge_gain(context: Context, begun: Unanswered, after: Account) -> None:
    """Rule on an account that a refund has given more than it had, by a price or a fee."""
    answer, document = document_at(context, "/api/inference")
    prices = Account(answer, [], mapped(context, "/api/inference money", document))
    had, has = atoms_of(begun.before), atoms_of(after)
    if len(had) == len(has):
        gains = {now - then for then, now in zip(had, has, strict=True)} - {0}
        single = {begun.made.cost, *atoms_of(prices)}
        if context.edition >= SIXTH:
            # A second refund is the price, without a fee that is not given back.
            single |= {one - other for one, other in product(single, single) if one > other}
        both = {one + other for one, other in product(single, single) if begun.other is not None}
        wrong = gains & (single | both)
        why = f"{brief(begun.before.money)} before it, and {brief(after.money)} after its refund"
        context.judge(GAINED, not wrong, why, begun.before.answer, begun.sent, after.answer)


def _rises(earlier: Account, later: Account) -> bool:
    """Whether one of the amounts of an account is higher, or cannot be compared."""
    before, after = atoms_of(earlier), atoms_of(later)
    comparable = len(before) == len(after) == len(earlier.money) == len(later.money)
    return not comparable or any(map(lt, before, after))


def _judge_late(context: Context, made: Signed) -> None:
    """Rule on a request that is pending although its block expiry is long past.

    What shows records may lag behind the chain, so it is looked at for a while.
    """
    height = height_of(context)
    if not made.expires or height is None or height < made.expires + LATE_BLOCKS:
        return
    looked, record = poll(context, made.request_id, lambda seen: state_of(seen) == OVER, LATE_S)
    why = f"it is {state_of(record)} at height {height}, and was to expire at {made.expires}"
    context.judge(REFUNDED, state_of(record) != PENDING, why, looked)
