"""Interface 3: a signed request that nobody answers, which expires and is refunded.

It is broadcast as soon as another check has need of the signer, and judged last: blocks take time.
"""

import time
from operator import lt

from conformance.checks.mixed_keys import REFUND_NAMED, judge_refund
from conformance.checks.signed import LOCKED, judge_locked
from conformance.checks.signed_requests import (
    PENDING,
    Account,
    at_rest,
    atoms_of,
    begin_unanswered,
    height_of,
    poll,
    state_of,
)
from conformance.context import Context
from conformance.editions import FOURTH
from conformance.findings import Skipped
from conformance.registry import requirement
from conformance.signer import Signed
from conformance.strictjson import brief

# So many blocks after its expiry a request that is pending for so long will not expire.
LATE_BLOCKS, LATE_S = 3, 4.0
STEP_S = 2.0
REFUNDED, OVER = "ST-004", "expired"


@requirement(REFUNDED, REFUND_NAMED, LOCKED)
def without_answer(context: Context) -> None:
    """Broadcast a request that nobody answers, and wait for its expiry and its refund."""
    begun = begin_unanswered(context)
    if isinstance(begun, str):
        raise Skipped(begun)
    made, within_s = begun.made, context.target.inference_timeout_s
    seen = begun.meanwhile.account
    if context.edition >= FOURTH:
        judge_locked(context, made, begun.before, begun.meanwhile)
    ends = time.monotonic() + within_s
    while True:
        looked, record = poll(context, made.request_id, lambda seen: state_of(seen) == OVER, STEP_S)
        if state_of(record) == OVER or time.monotonic() > ends:
            break
        if context.edition >= FOURTH:
            _judge_late(context, made)
    if state_of(record) != OVER:
        raise Skipped(f"it has not expired within {within_s:g} s: {brief(record)}")
    judge_refund(context, made.request_id, record, looked)
    if context.service.paid:
        raise Skipped("another request was paid before this one expired")
    after = at_rest(context, made.public_key)
    before = begun.before.money
    # A fee may be kept, and what was looked at meanwhile may have been over already.
    held = after.money != seen.money or after.money == before
    if context.edition >= FOURTH and after.money != before:
        if not begun.meanwhile.pending:
            why = "it was over before its account was read, and that has changed otherwise"
            raise Skipped(why)
        held = held and (seen.money == before or _rises(seen, after))
    amounts = f"{brief(before)}, then {brief(seen.money)}"
    why = f"{amounts}; after its expiry {brief(after.money)}: nothing came back"
    context.judge(REFUNDED, held, why, begun.sent, looked, seen.answer, after.answer)


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
