"""Interface 2.3, 4.3 and 7.3: what a node answers to gradients that it accepts, and to others."""

import time
from typing import Any

from conformance.checks.gradients import fresh, gradient_of, send
from conformance.checks.passes import BUSY
from conformance.checks.rpc import FAR_ROUND
from conformance.context import Context
from conformance.editions import FIFTH, FOURTH, SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.grpcwire import Reply
from conformance.registry import requirement
from conformance.strictjson import brief

ROUND, HASH = "GR-GOSSIP-005", "GR-GOSSIP-006"
REFUSED, AT_ONCE = "GR-GOSSIP-008", "GR-GOSSIP-023"
# So long a node may be shut to all gradients behind one that it has refused.
OPENS_S = 4.0


@requirement(ROUND, HASH, REFUSED, AT_ONCE)
def gossip_made(context: Context) -> None:
    """Gossip gradients of zeros until one is accepted, then one of another model."""
    fields = gradient_of(context)
    if context.service.shut:
        why = "two gradients are accepted, and none any more once another one was refused"
        context.fails(AT_ONCE, why, *context.service.shut)
    refused_reply, refused = send(context, fresh(fields, layer_gradients={}, model_hash="0" * 64))
    known = fresh(fields)
    reply, answer = send(context, known)
    if answer is None or not answer.accepted:
        _judge_shut(context, fields, reply)
        raise Skipped("a gradient like the one that was accepted is refused now")
    context.holds(AT_ONCE, refused_reply, reply)
    if refused is not None and not refused.accepted and refused.current_round:
        near = refused.current_round <= answer.current_round <= refused.current_round + 1
        if near and context.edition >= FOURTH:
            # A round may pass in between, but then it has passed for a refusal too.
            _, later = send(context, fresh(fields, layer_gradients={}, model_hash="0" * 64))
            stands = later is not None and later.current_round == refused.current_round
            near = not stands or answer.current_round == refused.current_round
        why = f"current_round is {refused.current_round} of a refusal, then {answer.current_round}"
        context.judge(ROUND, near, why, refused_reply, reply)
    # A node whose rounds have another number than 0 says so, also where it accepts one.
    told = answer.current_round or (context.edition >= SIXTH and fields["round_id"])
    if context.edition >= FIFTH and told:
        # Of the same model, so that nothing but its round is wrong.
        later_reply, late = send(context, fresh(fields, round_id=FAR_ROUND))
        if late is not None and not late.accepted:
            why = f"current_round is {answer.current_round} where a gradient is accepted, and"
            why = f"{why} {late.current_round} where one of another round is refused"
            context.judge(REFUSED, bool(late.current_round), why, reply, later_reply)
        _judge_second(context, known, reply)
    turned = fields["model_hash"][::-1]
    if turned == fields["model_hash"]:
        turned = "0" * len(turned)
    others = [fresh(fields, model_hash=turned)]
    if context.edition >= FOURTH:
        # And one of a node whose last gradient was accepted.
        others.append({**known, "timestamp": time.time(), "model_hash": turned})
        # And of models whose hash differs in the last digit, or in the first.
        own = fields["model_hash"]
        alike = own[:-1] + _other_digit(own[-1]), _other_digit(own[0]) + own[1:]
        others += [fresh(fields, model_hash=one) for one in alike]
        if context.edition >= SEVENTH:
            # And of which a part is that of this one.
            parts = own[:-4], own[: len(own) // 2], f"{own}0"
            others += [fresh(fields, model_hash=one) for one in parts]
    if context.edition >= FIFTH:
        others.append(fresh(fields, model_hash=""))
    for other in others:
        reply, answer = send(context, other)
        if answer is not None or not reply.ok:
            taken = answer is not None and answer.accepted
            context.judge(HASH, not taken, "a gradient of another model is accepted", reply)


def _judge_shut(context: Context, fields: dict[str, Any], reply: Reply) -> None:
    """Rule on a gradient that is refused behind a refusal: one that follows it may be accepted."""
    useless = {"layer_gradients": {}, "model_hash": "0" * 64}
    for _ in range(2):
        later_reply, later = send(context, fresh(fields))
        ends = time.monotonic() + (OPENS_S if context.edition >= SEVENTH else 0)
        while later is not None and not later.accepted and time.monotonic() < ends:
            time.sleep(OPENS_S / 4)
            later_reply, later = send(context, fresh(fields))
        _, refused = send(context, fresh(fields, **useless))
        again_reply, again = send(context, fresh(fields))
        if later is None or refused is None or again is None or reply.code in BUSY:
            return
        if not later.accepted or refused.accepted or again.accepted:
            return
        why = "a gradient is refused behind a refusal, and one that follows it is accepted: "
        why = f"{why}{brief(again.reason)}"
    context.fails(AT_ONCE, why, reply, later_reply, again_reply)


def _judge_second(context: Context, known: dict[str, Any], first: Reply) -> None:
    """Rule on the round that a second gradient of the same node is answered with."""
    rounds = first.message.current_round if first.message else 0
    reply, answer = send(context, {**known, "timestamp": time.time()})
    if answer is not None and answer.accepted:
        near = rounds <= answer.current_round <= rounds + 1
        why = f"current_round is {rounds} of a gradient, and {answer.current_round} of the next"
        context.judge(ROUND, near, f"{why} of the same node", first, reply)


def _other_digit(digit: str) -> str:
    return "0" if digit != "0" else "1"
