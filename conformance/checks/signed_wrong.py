"""Interface 2.2, 3 and 5: signed requests that are wrong, which no node accepts.

They are sent before sound ones, and one more after those.
"""

from dataclasses import dataclass, replace

from conformance.checks import signatures
from conformance.checks.signed_requests import (
    ACCEPTED_S,
    ATOMS,
    DONE,
    OVER,
    PENDING,
    REFUSED_S,
    account_of,
    is_refused,
    poll,
    post,
    settled,
    sign,
    state_of,
)
from conformance.context import Context
from conformance.editions import FIFTH, SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.signer import Kind, NotSigned, Signed, ask
from conformance.strictjson import brief

FORGED, FOREIGN, LATE, TOLD = "NT-RULE-046", "NT-RULE-047", "NT-RULE-048", "NT-RULE-090"
USED = "NT-RULE-176"


@requirement(FORGED, FOREIGN, LATE, TOLD, USED)
def signed_wrongly(context: Context) -> None:
    """Broadcast requests with another signature, for another chain, and past their expiry.

    One more has the nonce of a sound one, as a signer makes it that asks the node for the next.
    """
    kinds = {FORGED: Kind.FORGED, FOREIGN: Kind.FOREIGN, LATE: Kind.EXPIRED}
    found = [(ident, _try_wrong(context, kind)) for ident, kind in kinds.items()]
    # Where not even a sound one is accepted, it shows nothing that others are not.
    control = sign(context, Kind.REQUEST)
    # Signed for the same state of the account, so under the same nonce.
    twin = sign(context, Kind.REQUEST) if context.edition >= SEVENTH else None
    answer = post(context, control)
    if is_refused(answer):
        raise Skipped(f"a sound request is refused too: {brief(answer.body)}")
    context.budget.charge(control.cost / ATOMS)
    if context.edition >= FIFTH:
        _judge_borrowed(context, control)
    # Where an ID is made of the nonce, both have one.
    if twin is not None and twin.request_id != control.request_id and settled(context):
        used = _try(context, twin, "signed under a nonce that was used", (PENDING, DONE))
        context.judge(USED, not used.why, used.why, *used.shown)
    # What is paid meanwhile hides what comes back.
    context.service.paid = context.service.unanswered is not None
    for ident, wrong in found:
        if wrong is not None:
            context.judge(ident, not wrong.why, wrong.why, *wrong.shown)
            # One that is past its expiry may be accepted, and expire.
            if not wrong.why and ident != LATE:
                sent = wrong.shown[0]
                why = f"it is not accepted, and its broadcast has status {sent.status}"
                why = f"{why}: {brief(sent.body)}"
                context.judge(TOLD, is_refused(sent), why, *wrong.shown)


def judge_forged(context: Context) -> None:
    """Broadcast a request with the signature of other content, of an account that has paid."""
    wrong = _try_wrong(context, Kind.FORGED)
    if wrong is not None:
        context.judge(FORGED, not wrong.why, wrong.why, *wrong.shown)


def _judge_borrowed(context: Context, sound: Signed) -> None:
    """Broadcast a request with the signature of a sound one, which a node may remember."""
    if not settled(context):
        return
    other = sign(context, Kind.REQUEST)
    body = signatures.borrowed(other.body, sound.body)
    if body is not None:
        what = "signed with the signature of another one"
        wrong = _try(context, replace(other, body=body), what, (PENDING, DONE, OVER))
        context.judge(FORGED, not wrong.why, wrong.why, *wrong.shown)


@dataclass(frozen=True)
class Wrong:
    """What became of a request that is wrong: why it was accepted, or an empty string."""

    why: str
    shown: tuple[Answer, ...]


def _try_wrong(context: Context, kind: Kind) -> Wrong | None:
    """Broadcast a request that is wrong; None if the signer offers none.

    One whose expiry is past may be accepted and expire; it may not be answered.
    """
    try:
        made = ask(context.target.signer or "", context.target.url, kind)
    except NotSigned:
        return None
    # Once it is expired its nonce may be used up.
    if kind is Kind.EXPIRED:
        return _try(context, replace(made, public_key=""), kind.value, (DONE,))
    return _try(context, made, kind.value, (PENDING, DONE, OVER))


def _try(context: Context, made: Signed, what: str, bad: tuple[str, ...]) -> Wrong:
    """Broadcast a request that is wrong, and see whether it gets into one of these states."""
    before = account_of(context, made.public_key) if made.public_key else None
    answer = post(context, made)
    within_s = REFUSED_S if is_refused(answer) else ACCEPTED_S
    ends = {*bad, OVER} if context.edition >= SIXTH else bad
    looked, record = poll(context, made.request_id, lambda seen: state_of(seen) in ends, within_s)
    if record is not None and state_of(record) in bad:
        return Wrong(f"a request that is {what} is {state_of(record)}", (answer, looked))
    if before is not None:
        after = account_of(context, made.public_key)
        if after.nonces != before.nonces:
            why = f"after a request that is {what} the next nonce is {brief(after.nonces)}"
            return Wrong(why, (before.answer, answer, after.answer))
    return Wrong("", (answer, looked))
