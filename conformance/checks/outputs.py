"""Interface 2.3: what a pass returns, beside what was sent: the form of its values, and a cache."""

import math
import struct
from typing import Any

from conformance.checks.mixed_ids import turned
from conformance.checks.mixed_passes import output_of
from conformance.checks.passes import form_of, hidden_shape, pipeline_of, send_forward
from conformance.context import Context
from conformance.findings import Skipped
from conformance.registry import requirement

ORDER, RETURNED, USED = "PL-FWD-017", "PL-FWD-018", "PL-FWD-019"
FLOAT32 = "float32"
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


@requirement(RETURNED, USED)
def pipeline_cache(context: Context) -> None:
    """Send a pass with use_cache, and the next one with what came back and without."""
    if not pipeline_of(context).get("past_entries"):
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
    context.judge(RETURNED, bool(cache), "use_cache is set, and no cache comes back", begun)
    if not any(cache):
        return
    alone = send_forward(context, hidden_states=following, hidden_shape=shape)
    after = send_forward(
        context, hidden_states=following, hidden_shape=shape, past_key_values=cache
    )
    same = bool(output_of(alone)) and output_of(alone) == output_of(after)
    if output_of(after):
        why = "a pass has the same result with the cache of an earlier one and without"
        context.judge(USED, not same, why, begun, alone, after)
