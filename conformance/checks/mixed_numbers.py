"""Interface 2.3: the numbers under which a node reads the fields of gradients.

Where no gradients are accepted as they are documented, they are sent with one field at another
number, or with two exchanged. Whoever takes these, and refuses what lacks the same fields, reads
them there.
"""

from collections.abc import Iterator

from conformance import messages
from conformance.checks.kept_passes import (
    BACKWARD,
    Fields,
    is_taken,
    send_back,
    send_bytes_back,
    send_kept,
    ways,
)
from conformance.checks.mixed_passes import REFUSED
from conformance.checks.money import TRIES
from conformance.context import Context
from conformance.grpcwire import Reply
from conformance.registry import requirement

NUMBERS = "PL-BWD-008"
# The fields by their numbers, and numbers that none of them has.
FIELDS = {1: "session_id", 2: "request_id", 3: "grad_output", 4: "grad_shape", 5: "target_shard"}
UNUSED = (6, 7)
EXCHANGED = ((1, 2), (3, 4), (4, 5))
WIRE_TYPE = 7


@requirement(NUMBERS)
def back_numbers(context: Context) -> None:
    """Send gradients as documented, and if these are refused, with fields at other numbers."""
    refused = list[tuple[Fields, Reply]]()
    for way in ways(context):
        kept = send_kept(context, way)
        if kept is None:
            continue
        reply = send_back(context, kept.fields)
        if is_taken(reply):
            context.holds(NUMBERS, kept.reply, reply)
            return
        if reply.ok or reply.code in REFUSED:
            refused.append((way, reply))
    for way, reply in refused:
        for moved in _moves():
            if _is_read_there(context, way, moved):
                named = " and ".join(f"{FIELDS[at]} at {to}" for at, to in moved.items())
                why = f"gradients end with {reply.code}, and are accepted with {named}"
                context.fails(NUMBERS, why, reply)
                return


def _moves() -> Iterator[dict[int, int]]:
    """Yield the new numbers of fields by their documented ones."""
    for at in FIELDS:
        yield from ({at: to} for to in UNUSED)
    for one, other in EXCHANGED:
        yield {one: other, other: one}


def _is_read_there(context: Context, way: Fields, moved: dict[int, int]) -> bool:
    """Return whether gradients are accepted with these fields moved, and never otherwise."""
    for _ in range(TRIES):
        if not _is_accepted(context, way, moved):
            return False
        lacking = dict.fromkeys(moved, 0)
        if _is_accepted(context, way, lacking) or _is_accepted(context, way, {}):
            return False
    return True


def _is_accepted(context: Context, way: Fields, moved: dict[int, int]) -> bool:
    """Send a pass and its gradients, some fields of which are moved; 0 leaves a field out."""
    kept = send_kept(context, way)
    if kept is None:
        return False
    message = b""
    for at, name in FIELDS.items():
        part = messages.make(f"{BACKWARD}Request", **{name: kept.fields[name]}).SerializeToString()
        to = moved.get(at, at)
        if part and to:
            message += bytes([to << 3 | (part[0] & WIRE_TYPE)]) + part[1:]
    return is_taken(send_bytes_back(context, message))
