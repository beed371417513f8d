"""Interface 2.3, 4.3 and 8: gossiped gradients, one of them as large as messages may be."""

import uuid
from itertools import pairwise
from typing import Any

from conformance import messages
from conformance.catalogue import fields_of_message
from conformance.checks.answers import judge_failure_reason, judge_message, judge_operation
from conformance.checks.numbers import judge_necessary
from conformance.checks.passes import fresh_id
from conformance.checks.rpc import FAR_ROUND
from conformance.context import Context
from conformance.editions import FOURTH, SIXTH
from conformance.findings import Skipped
from conformance.grpcwire import Reply
from conformance.httpwire import Unanswered
from conformance.registry import requirement
from conformance.strictjson import brief

SIZE = "LIM-040"


@requirement(
    "GR-OP-004", "GR-GOSSIP-001", "GR-NUM-001", *fields_of_message("GossipGradientResponse")
)
def gossip_gradient(context: Context) -> None:
    """Gossip useless gradients: another model, a round long ago or far ahead, no data."""
    for round_id in (FAR_ROUND, 0) if context.edition >= ROUND_SINCE else (FAR_ROUND,):
        reply = context.grpc.call(
            "GossipGradient",
            messages.make(
                "GossipGradientRequest",
                node_id=f"conformance-{uuid.uuid4().hex}",
                round_id=round_id,
                model_hash="0" * 64,
                batch_size=1,
                loss=1.0,
                ttl=0,
            ),
        )
        if judge_operation(context, "GR-OP-004", reply):
            _judge_gossip(context, reply)


@requirement(
    "GR-OP-004", "GR-GOSSIP-001", "GR-NUM-001", *fields_of_message("GossipGradientResponse")
)
def gossip_accepted(context: Context) -> None:
    """Gossip the declared gradient, byte for byte as it is in its file."""
    gradient = context.target.gradient
    if gradient is None:
        raise Skipped("the target declares no gradient")
    reply = context.grpc.call("GossipGradient", gradient, timeout_s=60)
    if not judge_operation(context, "GR-OP-004", reply):
        raise Skipped(f"the declared gradient was answered with {reply.code}: {reply.details}")
    answer = _judge_gossip(context, reply)
    # Rounds pass: a gradient that was valid yesterday is rightly refused today.
    if answer is not None and not answer.accepted:
        raise Skipped(f"the declared gradient was not accepted: {brief(answer.reason)}")


def _judge_gossip(context: Context, reply: Reply) -> Any | None:
    """Rule on an answer of GossipGradient: its fields, and the reason of a refusal."""
    answer = judge_message(context, "GossipGradientResponse", reply)
    if answer is not None:
        judge_failure_reason(
            context,
            "GR-GOSSIP-001",
            reply,
            refused=not answer.accepted,
            reason=answer.reason,
            key="reason",
        )
        if not answer.accepted:
            needed = {"reason": bool(answer.reason)}
            if context.edition >= ROUND_SINCE and _has_rounds(context):
                needed["current_round"] = answer.current_round != 0
            judge_necessary(context, "GossipGradientResponse", needed, reply.body, reply)
    return answer


def _has_rounds(context: Context) -> bool:
    """Return whether the node has a checkpoint of a later round than the first."""
    info = context.grpc.call("GetCheckpointInfo", messages.make("GetCheckpointInfoRequest"))
    known = info.message
    return known is not None and known.version > 0


@requirement("GR-GOSSIP-004", "GR-GOSSIP-021")
def gossip_rounds(context: Context) -> None:
    """Gossip useless gradients one after another, and compare the rounds of the refusals."""
    rounds, replies, asked = list[int](), list[Reply](), list[int]()
    for number in range(CALLS):
        # Not rising, so that a round that goes on is no echo of them.
        asked.append(FAR_ROUND + 3 * (number % 2) - number)
        request = messages.make(
            "GossipGradientRequest",
            node_id=f"conformance-{uuid.uuid4().hex}",
            model_hash="0" * 64,
            round_id=asked[-1],
        )
        reply = context.grpc.call("GossipGradient", request)
        answer = reply.message
        if answer is None or answer.accepted:
            raise Skipped(f"a useless gradient is answered with {reply.code}, not refused")
        rounds.append(answer.current_round)
        replies.append(reply)
    # Rounds pass, but not one for each call.
    stands = rounds != asked and any(earlier == later for earlier, later in pairwise(rounds))
    why = f"current_round of refusals one after another: {brief(rounds)}"
    context.judge("GR-GOSSIP-004", stands, why, *replies)


# Above what libraries take where nobody tells them otherwise.
LARGE_BYTES, SMALL_BYTES = 5 * 1024 * 1024, 5 * 1024
# The first edition that looks for the receiver's round at other numbers.
ROUND_SINCE = 4
# So many useless gradients one after another.
CALLS = 6
# This leaves 1 MiB of the limit for the other fields of the message.
NEARLY_BYTES = 99 * 1024 * 1024


# With what libraries end a call whose message is larger than they take.
TOO_LARGE = ("RESOURCE_EXHAUSTED", "CANCELLED", "INTERNAL", "UNKNOWN", "OUT_OF_RANGE")


@requirement("LIM-007", SIZE)
def grpc_large(context: Context) -> None:
    """Gossip a useless gradient of 99 MiB, which must not be refused for its size."""
    try:
        reply = _useless(context, NEARLY_BYTES)
    except Unanswered as reason:
        _judge_reset(context, reason)
        return
    refused = reply.code == "RESOURCE_EXHAUSTED"
    shown = [reply]
    if context.edition >= FOURTH and reply.code in TOO_LARGE and not refused:
        # A small one is answered in another way, both times.
        shown = [_useless(context, 0), reply, _useless(context, NEARLY_BYTES)]
        refused = shown[0].code not in TOO_LARGE and shown[-1].code == reply.code
    why = f"{reply.code} {brief(reply.details, 80)}"
    context.judge("LIM-007", not refused, why, *shown)
    if context.edition >= SIXTH:
        _judge_large(context, "PipelineForward", "hidden_states")
        _judge_large(context, "PipelineBackward", "grad_output")


def _judge_large(context: Context, operation: str, field: str) -> None:
    """Rule on a large pass that is of no use, which ends as a small one of the same kind does."""

    def send(size: int) -> Reply:
        content = bytes(size)
        message = messages.make(f"{operation}Request", request_id=fresh_id(), **{field: content})
        return context.grpc.call(operation, message.SerializeToString())

    large = send(LARGE_BYTES)
    if large.code not in TOO_LARGE:
        context.holds(SIZE, large)
        return
    small, again = send(SMALL_BYTES), send(LARGE_BYTES)
    sized = small.code not in TOO_LARGE and again.code == large.code
    why = f"{operation} of {LARGE_BYTES} bytes ends twice with {large.code}, of {SMALL_BYTES} with"
    context.judge(SIZE, not sized, f"{why} {small.code}", small, large, again)


def _judge_reset(context: Context, reason: Unanswered) -> None:
    """Rule on a call that is reset, as some libraries do with a message that is too large."""
    if context.edition < FOURTH or not reason.why.startswith("reset"):
        raise reason
    small = _useless(context, 0)
    try:
        _useless(context, NEARLY_BYTES)
    except Unanswered as again:
        if not again.why.startswith("reset"):
            raise
        why = f"a message of 99 MiB is reset twice, a small one is answered with {small.code}"
        context.fails("LIM-007", why, small, again.exchange)
        return
    raise reason


def _useless(context: Context, size: int) -> Reply:
    message = messages.make(
        "GossipGradientRequest", node_id="conformance", model_hash="0" * 64,
        layer_gradients={"none": bytes(size)},
    )  # fmt: skip
    content = message.SerializeToString()
    return context.grpc.call("GossipGradient", content, timeout_s=60)
