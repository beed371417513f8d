"""Interface 2.3: what a pass returns, beside what was sent: the form of its values, and a cache."""

import math
import struct
from itertools import pairwise
from typing import Any

from conformance.checks.mixed_ids import turned
from conformance.checks.mixed_passes import FAILED, SERVERS, output_of
from conformance.checks.numbers import judge_necessary
from conformance.checks.passes import form_of, hidden_shape, pipeline_of, send_forward
from conformance.context import Context
from conformance.editions import SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.grpcwire import Reply
from conformance.registry import requirement
from conformance.strictjson import is_int

ORDER, RETURNED, USED = "PL-FWD-017", "PL-FWD-018", "PL-FWD-019"
ENTRIES, GROWS, NUMBER = "PL-FWD-037", "PL-FWD-038", "GR-NUM-001"
FLOAT32, BFLOAT16 = "float32", "bfloat16"
# The forms of values in `struct`, by their bytes.
FORMATS = {2: "e", 4: "f", 8: "d"}
# A value that is off by more than this part of the largest one is not rounded.
ROUNDED = 0.1
# Layers make values of about this size out of small ones.
SMALLEST, LARGEST = 1e-9, 1e6
# So many of the values read in one order, and so few in the other one, leave no doubt.
MOST, FEW = 0.95, 0.5


def plausible(data: bytes, order: str) -> float:
    """Return the share of values that are 0 or of an ordinary size, read in this byte order."""
    values: tuple[float, ...] = struct.unpack(f"{order}{len(data) // 4}f", data)
    fits = [
        value == 0 or (math.isfinite(value) and SMALLEST < abs(value) < LARGEST) for value in values
    ]
    return sum(fits) / max(len(fits), 1)


def values_of(context: Context, reply: Reply) -> list[float]:
    """Return the values that a pass has computed; none if their form is not known."""
    answer: Any = reply.message
    data = output_of(reply)
    if answer is None or not data:
        return []
    count = math.prod(answer.logits_shape if answer.logits else answer.hidden_shape)
    wide = len(data) // count if count > 0 and len(data) % count == 0 else 0
    if wide == 2 and form_of(context) == BFLOAT16:
        data, wide = b"".join(bytes(2) + data[at : at + 2] for at in range(0, len(data), 2)), 4
    form = FORMATS.get(wide)
    found = list(struct.unpack(f"<{count}{form}", data)) if form else []
    return found if all(map(math.isfinite, found)) else []


def are_near(one: list[float], other: list[float], part: float = ROUNDED) -> bool:
    """Return whether values differ by such a part of the largest, or cannot be compared."""
    if not one or len(one) != len(other):
        return True
    largest = max(map(abs, (*one, *other)))
    return max(abs(a - b) for a, b in zip(one, other, strict=True)) <= part * largest


def is_steady(outcomes: list[list[float]]) -> bool:
    """Return whether values are mostly near to those before: a model may have changed once."""
    turns = sum(not are_near(one, other) for one, other in pairwise(outcomes))
    return turns <= len(outcomes) // 4


@requirement(ORDER)
def pipeline_byte_order(context: Context) -> None:
    """Send a pass of little-endian values, and read those that come back."""
    if form_of(context) != FLOAT32:
        raise Skipped("the tensor that is accepted is not one of raw 32-bit values")
    reply = send_forward(context)
    data = output_of(reply)
    if not data or len(data) % 4:
        raise Skipped(f"the pass ends with {reply.code}, or its values are not of 32 bits")
    turned_round = plausible(data, ">") >= MOST and plausible(data, "<") < FEW
    why = "the values of the result have the other byte order than those that were sent"
    context.judge(ORDER, not turned_round, why, reply)


@requirement(RETURNED, USED, ENTRIES, GROWS, NUMBER, SERVERS)
def pipeline_cache(context: Context) -> None:
    """Send a pass with use_cache, and the next one with what came back and without."""
    declared = bool(pipeline_of(context).get("past_entries"))
    if not declared and context.edition < SEVENTH:
        raise Skipped("pipeline.past_entries is not declared")
    first, following = turned(context)
    shape = hidden_shape(context)
    # A node that keeps the cache of a session need not return it; there is none without a name.
    sessions: tuple[dict[str, Any], ...] = ({}, {"session_id": ""})
    for session in sessions:
        begun = send_forward(
            context, hidden_states=first, hidden_shape=shape, use_cache=True, **session
        )
        if begun.message is None or not begun.message.success:
            raise Skipped(f"a pass with use_cache ends with {begun.code}")
        cache = list(begun.message.past_key_values)
        if cache:
            break
    if not (cache or declared):
        raise Skipped("a pass returns no past_key_values, and pipeline.past_entries is 0")
    context.judge(RETURNED, bool(cache), "use_cache is set, and no cache comes back", begun)
    if context.edition >= SIXTH:
        there = {"past_key_values": bool(cache)}
        judge_necessary(context, "PipelineForwardResponse", there, begun.body, begun)
    if not any(cache):
        return
    if context.edition >= SIXTH:
        _judge_entries(context, cache, begun)
    alone = send_forward(context, hidden_states=following, hidden_shape=shape)
    after = send_forward(
        context, hidden_states=following, hidden_shape=shape, past_key_values=cache
    )
    same = bool(output_of(alone)) and output_of(alone) == output_of(after)
    if output_of(after) and declared:
        why = "a pass has the same result with the cache of an earlier one and without"
        context.judge(USED, not same, why, begun, alone, after)
    if context.edition >= SIXTH and output_of(after):
        _judge_contents(context, [first, following], cache, begun)
    if context.edition >= SEVENTH and output_of(after):
        for other in (cache[:-1], [*cache, cache[-1]]):
            reply = send_forward(
                context, hidden_states=following, hidden_shape=shape, past_key_values=other
            )
            why = f"a pass with {len(other)} past_key_values for {len(cache)} ends with"
            held = reply.code not in FAILED
            context.judge(SERVERS, held, f"{why} {reply.code}: {reply.details}", after, reply)


def _judge_entries(context: Context, cache: list[bytes], begun: Reply) -> None:
    declared = pipeline_of(context).get("past_entries")
    if not is_int(declared):
        return
    why = f"{len(cache)} past_key_values come back, {declared} are declared"
    context.judge(ENTRIES, len(cache) == declared, why, begun)


def _judge_contents(
    context: Context, tensors: list[bytes], cache: list[bytes], begun: Reply
) -> None:
    """Rule on what a pass makes of two caches of one size, and on the cache that it returns."""
    shape, following = hidden_shape(context), tensors[1]

    def send(tensor: bytes, **more: Any) -> Reply:
        return send_forward(
            context, hidden_states=tensor, hidden_shape=shape, use_cache=True, session_id="", **more
        )

    other = send(following)
    caches = [cache, list(other.message.past_key_values) if other.message is not None else []]
    if not all(caches) or caches[0] == caches[1]:
        return
    replies = [send(following, past_key_values=one) for one in caches]
    outputs = [output_of(reply) for reply in replies]
    if all(outputs) and pipeline_of(context).get("past_entries"):
        why = "a pass has the same result with the caches of two other tensors"
        context.judge(USED, outputs[0] != outputs[1], why, begun, other, *replies)
    grown: Any = replies[0].message
    returned = [] if grown is None else list(grown.past_key_values)
    if returned:
        why = "a pass returns the past_key_values that it was sent"
        context.judge(GROWS, returned != cache, why, begun, replies[0])
