"""Interface 2.2, 3, 4.2 and 5: what becomes of sound signed inference requests.

The operator's signer makes them (`conformance.signer`).
"""

import time
from contextlib import suppress

from conformance.checks.native import document_at, mapped, native_get, native_pair_later
from conformance.checks.native_documents import numbers_of, under
from conformance.checks.native_records import WHOLE, judge_whole
from conformance.checks.native_rpc import NO_METHOD, error_code
from conformance.checks.payers import (
    EXPIRY,
    HASHED,
    NAMED,
    PAYER,
    SOUND,
    judge_named,
    judge_payer,
)
from conformance.checks.signed_requests import (
    ATOMS,
    BLOCK_S,
    DONE,
    LOOK_S,
    OVER,
    PENDING,
    REFUSED_S,
    Account,
    Meanwhile,
    account_of,
    at_rest,
    atoms_of,
    begin_unanswered,
    first_record,
    has,
    height_of,
    is_refused,
    names_it,
    poll,
    post,
    record_of,
    settled,
    sign,
    state_of,
    while_pending,
)
from conformance.checks.signed_wrong import FORGED, judge_forged
from conformance.context import Context
from conformance.editions import FIFTH, FOURTH, SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.signer import Kind, Signed
from conformance.strictjson import brief, is_int

HEALTHY, NEWEST, PAIR = "NT-RULE-001", "NT-PAGE-007", "NT-RULE-037"
POLLED, COMPLETED = "ST-001", "ST-002"
TWO_IDS = "NT-RULE-013"
NONCE, CHARGED, TWICE, DECODED = "NT-RULE-049", "NT-RULE-050", "NT-RULE-051", "NT-RULE-052"
LOCKED, IN_TIME = "NT-RULE-071", "NT-RULE-073"
AT_MOST, RELEASED, QUEUED = "NT-RULE-078", "NT-RULE-080", "NT-RULE-082"
PROMPT, RELAY = "NT-RULE-086", "NT-RULE-023"
HASH, BY_ONE = "NT-RULE-092", "NT-RULE-107"
ANSWERED, AT_LEAST = "NT-RULE-172", "NT-RULE-173"
QUEUE = "/api/inference queue"
MOST_BLOCKS, PAGE = 24, 5


@requirement(
    POLLED, COMPLETED, TWO_IDS, NONCE, CHARGED, TWICE, DECODED, HEALTHY, NEWEST, PAIR, LOCKED,
    IN_TIME, AT_MOST, RELEASED, QUEUED, PAYER, PROMPT, RELAY, HASH, SOUND, BY_ONE, NAMED,
    EXPIRY, HASHED, WHOLE, FORGED, ANSWERED, AT_LEAST,
)  # fmt: skip
def signed_request(context: Context) -> None:
    """Broadcast a signed inference request, and follow it: record, account, block, once more."""
    made = sign(context, Kind.REQUEST)
    before = account_of(context, made.public_key) if made.public_key else None
    calm = _calm(context, made)
    height, waiting = height_of(context), _queue(context)
    # A page that the node may keep.
    _newest(context)
    answer = post(context, made)
    if is_refused(answer):
        if context.edition >= FIFTH and error_code(answer) == NO_METHOD:
            context.fails(RELAY, "broadcast_tx_sync: there is no such method", answer)
        if context.edition >= FIFTH:
            _judge_refused(context, answer)
        raise Skipped(f"the signed request was refused: {brief(answer.body)}")
    context.budget.charge(made.cost / ATOMS)
    if context.edition >= FIFTH:
        context.holds(SOUND, answer)
        _judge_hash(context, made, answer)
    if context.edition >= FOURTH:
        health = native_get(context, "/healthz")
        why = f"a request waits for its block, and /healthz has status {health.status}"
        context.judge(HEALTHY, health.ok or health.status == 503, why, answer, health)
    within_s = context.target.inference_timeout_s
    looked, record, late = first_record(context, made, height, within_s)
    state = state_of(record)
    why = f"status {looked.status}" if record is None else f"it is {state}: {brief(record)}"
    held = record is not None and state != OVER
    context.judge(POLLED, held, f"the request that was accepted: {why}", answer, looked)
    if late and state == DONE:
        why = "a block had the request, and it was not found before it was completed"
        context.fails(POLLED, why, answer, *late, looked)
    if made.hash and made.hash != made.request_id:
        other, wrong = record_of(context, made.hash)
        why = "the record is under the transaction hash, and not under the request ID"
        context.judge(TWO_IDS, record is not None or wrong is None, why, looked, other)
    if context.edition >= FOURTH and before is not None and state == PENDING:
        judge_locked(context, made, before, while_pending(context, made, before))
    done = record is not None and _judge_end(context, made)
    if before is not None and done:
        _judge_account(context, made, before, answer)
        if calm is not None:
            _judge_paid(context, made, calm, answer)
    if done:
        _judge_queue(context, waiting)
    if height is not None:
        _judge_block(context, made, height, done=done)
    if done and context.edition >= FOURTH:
        _judge_newest(context, answer)
    if done and made.public_key:
        _judge_again(context, made)
    if done and context.edition >= FOURTH:
        # The chain has grown.
        with suppress(Skipped):
            native_pair_later(context)
    if done and context.edition >= FIFTH:
        _judge_prompt(context, made)
        with suppress(Skipped):
            judge_payer(context, made)
    if done and context.edition >= SIXTH:
        judge_forged(context)
    # It expires while other checks run.
    begin_unanswered(context)


def _judge_refused(context: Context, refused: Answer) -> None:
    """Rule on a sound request that was refused, if another one is refused as well."""
    again = post(context, sign(context, Kind.REQUEST))
    why = f"two sound requests of the operator's signer are refused: {brief(again.body)}"
    context.judge(SOUND, not is_refused(again), why, refused, again)


def _judge_hash(context: Context, made: Signed, answer: Answer) -> None:
    """Rule on the hash, and the request ID, that the answer to a broadcast names."""
    named = [one for one in under(answer.json_object(), "hash") if isinstance(one, str)]
    if made.hash and named:
        held = made.hash.lower() in (one.lower().removeprefix("0x") for one in named)
        why = f"the answer names the hash {brief(named)}, the signer {brief(made.hash)}"
        context.judge(HASH, held, why, answer)
    ids = [one for one in under(answer.json_object(), "request_id") if isinstance(one, str)]
    if ids and context.edition >= SIXTH:
        why = f"the answer names the request ID {brief(ids)}, the signer {brief(made.request_id)}"
        context.judge(ANSWERED, made.request_id in ids, why, answer)


def judge_locked(context: Context, made: Signed, before: Account, meanwhile: Meanwhile) -> None:
    """Rule on the account of a request while that is pending."""
    changed = meanwhile.account.money != before.money
    if before.money and made.cost and meanwhile.pending and (meanwhile.in_block or changed):
        why = f"{brief(before.money)} before a request of {made.cost} and while it is pending"
        context.judge(LOCKED, changed, why, before.answer, meanwhile.account.answer)


def _judge_account(context: Context, made: Signed, before: Account, sent: Answer) -> None:
    ends = time.monotonic() + BLOCK_S
    while True:
        after = account_of(context, made.public_key)
        waits = (before.nonces and after.nonces == before.nonces) or (
            before.money and after.money == before.money
        )
        if not waits or time.monotonic() > ends:
            break
        time.sleep(LOOK_S)
    shown = (before.answer, sent, after.answer)
    if before.nonces and after.nonces:
        why = f"next nonce {brief(before.nonces)}, and then {brief(after.nonces)}"
        context.judge(NONCE, after.nonces != before.nonces, why, *shown)
        grown = [
            later - earlier
            for earlier, later in zip(before.nonces, after.nonces, strict=False)
            if is_int(earlier) and is_int(later) and later != earlier
        ]
        if context.edition >= FIFTH and grown:
            context.judge(BY_ONE, grown == [1], f"one request, and {why}", *shown)
    if made.cost and before.money and after.money:
        why = f"amounts {brief(before.money)}, and then the same"
        context.judge(CHARGED, after.money != before.money, why, *shown)


def _calm(context: Context, made: Signed) -> Account | None:
    """Return the account once nothing of earlier requests is settled any more, if it ever is so."""
    if not made.public_key or context.edition < FOURTH or not settled(context):
        return None
    try:
        return at_rest(context, made.public_key)
    except Skipped:
        return None


def _judge_paid(context: Context, made: Signed, before: Account, sent: Answer) -> None:
    """Rule on what a completed request has taken, and on what of it is still locked."""
    after = _calm(context, made)
    if after is None or not made.cost or len(atoms_of(before)) != len(before.money):
        return
    pairs = list(zip(atoms_of(before), atoms_of(after), strict=False))
    amounts = f"{brief(before.money)}, and then {brief(after.money)}"
    if len(atoms_of(after)) == len(pairs) == len(before.money):
        shown = (before.answer, sent, after.answer)
        most = max((earlier - later for earlier, later in pairs), default=0)
        why = f"a request of {made.cost} has taken {most}: {amounts}"
        context.judge(AT_MOST, most <= made.cost, why, *shown)
        if context.edition >= SEVENTH:
            context.judge(AT_LEAST, most >= made.cost, why, *shown)
        places = context.target.field_map.get("/api/account money", ())
        if len(places) == len(pairs):
            locked = [pair for place, pair in zip(places, pairs, strict=True) if "lock" in place]
            kept = [later for earlier, later in locked if later > earlier]
            why = f"a request is completed, and {brief(kept)} is locked: {amounts}"
            if locked:
                context.judge(RELEASED, not kept, why, *shown)


def _judge_end(context: Context, made: Signed) -> bool:
    """Wait for the response; return whether the request is completed."""
    within_s = context.target.inference_timeout_s
    answer, record = poll(
        context, made.request_id, lambda seen: state_of(seen) != PENDING, within_s
    )
    height = height_of(context)
    if state_of(record) == OVER and height is not None and height < made.expires:
        why = f"it is expired at height {height}, before its expiry at {made.expires}"
        context.fails(COMPLETED, f"{why}: {brief(record)}", answer)
    if state_of(record) == DONE:
        context.holds(COMPLETED, answer)
        if context.edition >= SIXTH:
            judge_whole(context, made.request_id, answer, record)
        context.service.completed = (made, answer)
    if context.edition >= FOURTH and state_of(record) in (PENDING, DONE):
        why = f"it is pending after {within_s:g} s, and expires at height {made.expires}"
        context.judge(IN_TIME, state_of(record) == DONE, why, answer)
    return state_of(record) == DONE


def _judge_prompt(context: Context, made: Signed) -> None:
    """Rule on the prompt in the record of a request, if it has a member of that name."""
    answer, record = record_of(context, made.request_id)
    told = [value for value in under(record, "prompt") if isinstance(value, str)]
    why = f"the prompt is {brief(made.prompt)}, and in the record {brief(told)}"
    if made.prompt and told:
        context.judge(PROMPT, made.prompt in told, why, answer)
    judge_named(context, made, record, answer)


def _queue(context: Context) -> tuple[Answer, int] | None:
    """Return how many requests wait; None where the target does not declare the place."""
    if QUEUE not in context.target.field_map:
        return None
    answer, document = document_at(context, "/api/inference")
    found = mapped(context, QUEUE, document)
    return (answer, int(found[0])) if found and is_int(found[0]) else None


def _judge_queue(context: Context, before: tuple[Answer, int] | None) -> None:
    """Rule on the queue once a request is completed; those of others may wait for a while."""
    ends = time.monotonic() + BLOCK_S
    while before is not None and (after := _queue(context)) is not None:
        held = after[1] <= before[1]
        if held or time.monotonic() > ends:
            why = f"{before[1]} requests waited, and once another one is completed {after[1]}"
            context.judge(QUEUED, held, why, before[0], after[0])
            return
        time.sleep(LOOK_S)


def _judge_again(context: Context, made: Signed) -> None:
    """Send the same bytes once more."""
    before = at_rest(context, made.public_key)
    again = post(context, made)
    time.sleep(REFUSED_S)
    after = account_of(context, made.public_key)
    same = (before.nonces, before.money) == (after.nonces, after.money)
    why = "the account has changed after the same request was broadcast once more"
    context.judge(TWICE, same, why, before.answer, again, after.answer)


def _newest(context: Context) -> tuple[Answer, int]:
    """Return a page of blocks, and the highest of them."""
    answer, document = document_at(context, "/api/blocks", {"limit": PAGE})
    return answer, max(numbers_of(context, "/api/blocks height", "height", document), default=0)


def _judge_newest(context: Context, sent: Answer) -> None:
    """Rule on the page of the newest blocks, once a request has come into one."""
    ends, tip = time.monotonic() + BLOCK_S, height_of(context) or 0
    page, highest = _newest(context)
    while highest < tip and time.monotonic() < ends:
        # The index may lag.
        time.sleep(LOOK_S)
        page, highest = _newest(context)
    if highest and tip:
        why = f"the page of the newest blocks ends at {highest}, the network was at {tip} before"
        context.judge(NEWEST, highest >= tip, why, sent, page)


def _judge_block(context: Context, made: Signed, height: int, *, done: bool) -> None:
    """Look for the block that has the request: one that names it, or any once it is `done`."""
    last, seen = height_of(context) or height, list[Answer]()
    for number in range(height + 1, min(last, height + MOST_BLOCKS) + 1):
        answer = native_get(context, f"/api/block/{number}")
        if not answer.ok:
            # The index may lag.
            return
        seen.append(answer)
        shown = bool(made.prompt) and has(answer, made.prompt)
        if shown or names_it(made, answer):
            why = f"block {number} names the request, and does not show its prompt"
            context.judge(DECODED, shown, why, answer)
            if context.edition >= SEVENTH:
                _judge_ids(context, made, answer)
            return
    if done and seen and last <= height + MOST_BLOCKS:
        why = f"none of the blocks {height + 1} to {last} shows the request, which is completed"
        context.fails(DECODED, why, *seen[:3])


def _judge_ids(context: Context, made: Signed, block: Answer) -> None:
    """Rule on a block that calls the hash of its transaction the request ID, or the reverse."""
    document, both = block.json_object(), {made.hash, made.request_id}
    for name, value in (("request_id", made.hash), ("transaction_hash", made.request_id)):
        named = both.intersection(map(str, under(document, name))) if len(both) > 1 else ()
        if named and made.hash:
            why = f"{name} is {brief(value)} in the block of the request, and that is the other one"
            context.judge(TWO_IDS, value not in named, why, block)
