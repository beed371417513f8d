"""Interface 3: a signed request that nobody answers, which expires and is refunded.

It is broadcast as soon as another check has need of the signer, and judged last: blocks take time.
"""

from conformance.checks.mixed_keys import REFUND_NAMED, judge_refund
from conformance.checks.signed import at_rest, begin_unanswered, poll, state_of
from conformance.context import Context
from conformance.findings import Skipped
from conformance.registry import requirement
from conformance.strictjson import brief

REFUNDED, OVER = "ST-004", "expired"


@requirement(REFUNDED, REFUND_NAMED)
def without_answer(context: Context) -> None:
    """Broadcast a request that nobody answers, and wait for its expiry and its refund."""
    begun = begin_unanswered(context)
    if isinstance(begun, str):
        raise Skipped(begun)
    made, within_s = begun.made, context.target.inference_timeout_s
    looked, record = poll(context, made.request_id, lambda seen: state_of(seen) == OVER, within_s)
    if state_of(record) != OVER:
        raise Skipped(f"it has not expired within {within_s:g} s: {brief(record)}")
    judge_refund(context, made.request_id, record, looked)
    if context.service.paid:
        raise Skipped("another request was paid before this one expired")
    after = at_rest(context, made.public_key)
    # A fee may be kept, and what was looked at meanwhile may have been over already.
    held = after.money != begun.meanwhile.money or after.money == begun.before.money
    amounts = f"{brief(begun.before.money)}, then {brief(begun.meanwhile.money)}"
    why = f"{amounts}; after its expiry the same"
    context.judge(REFUNDED, held, why, begun.sent, looked, begun.meanwhile.answer, after.answer)
