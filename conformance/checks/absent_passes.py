"""Interface 4.3 and 7.3: passes of every kind to a layer that is not on the peer.

A pass may be of a session, with labels, of two sequences, from somewhere: the layer is not here for
any of them. A node may call a pass a bad request before it looks at the layer.
"""

from collections.abc import Iterator

from conformance.checks.forms import encode
from conformance.checks.kept_passes import (
    Fields,
    is_taken,
    kept_way,
    labels,
    metadata_of,
    send_back,
    send_kept,
)
from conformance.checks.mixed_passes import BUSY, output_of
from conformance.checks.passes import form_of, fresh_id, hidden_shape, is_found, send_forward
from conformance.context import Context
from conformance.editions import SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.grpcwire import Reply
from conformance.registry import requirement

ABSENT, OFFLINE, UNKNOWN = "GR-CODE-020", "GR-CODE-013", "GR-CODE-023"
TRIES = 3
SENDER = "http://192.0.2.1:8000"


def _kinds(context: Context, session: str) -> Iterator[tuple[str, Fields]]:
    """Yield kinds of passes; the session is one that the node knows."""
    rows, length, width = hidden_shape(context)
    double = [2 * rows, length, width]
    tensor = encode(form_of(context), double)
    yield "of a session that is known", {"session_id": session}
    yield "of that session, with use_cache", {"session_id": session, "use_cache": True}
    yield "with use_cache", {"use_cache": True}
    yield "with labels", {"training_labels": labels(rows * length)}
    if context.edition >= SEVENTH:
        yield "with labels of 32 bits", {"training_labels": labels(rows * length, "i")}
    yield "with a sender_url", {"sender_url": SENDER}
    yield "from layer 0", {"source_shard": 0}
    yield "of two sequences", {"hidden_states": tensor, "hidden_shape": double}


@requirement(ABSENT, OFFLINE)
def absent_kinds(context: Context) -> None:
    """Send passes of several kinds to a layer that is not here, between passes that are served."""
    if context.edition < SIXTH or is_found(context):
        raise Skipped("later editions ask for it, of a pass that is declared")
    shard = context.target.pipeline.get("absent_shard")
    if shard is None:
        raise Skipped("[target.pipeline] declares no absent_shard")
    plain, session = send_forward(context, target_shard=shard), fresh_id()
    if plain.code != "NOT_FOUND":
        raise Skipped(f"a plain pass to shard {shard} ends with {plain.code}")
    known = send_forward(context, metadata_of(context), session_id=session, use_cache=True)
    for name, fields in _kinds(context, session):
        reply = send_forward(context, target_shard=shard, **fields)
        if reply.code in BUSY:
            control = send_forward(context), send_forward(context, target_shard=shard, **fields)
            if output_of(control[0]) and control[1].code == reply.code:
                why = f"a pass {name} to shard {shard} ends twice with {reply.code}, a plain one"
                context.fails(OFFLINE, f"{why} with {plain.code}", plain, reply, *control)
            continue
        why = f"a pass {name} to shard {shard}, which is not here, is served"
        context.judge(ABSENT, not output_of(reply), why, plain, known, reply)


@requirement(UNKNOWN)
def gradients_absent(context: Context) -> None:
    """Send gradients of passes that were never made, before and behind those of one that was."""
    if context.edition < SEVENTH:
        raise Skipped("later editions ask for it")
    way, busy = kept_way(context), list[Reply]()
    for _ in range(TRIES):
        kept = send_kept(context, way)
        if kept is None:
            raise Skipped("a pass is refused that was accepted before")
        unknown = {**kept.fields, "session_id": fresh_id(), "request_id": fresh_id()}
        reply, own = send_back(context, unknown), send_back(context, kept.fields)
        if reply.code not in BUSY or not is_taken(own):
            context.holds(UNKNOWN, reply)
            return
        busy += [reply, own]
    why = f"gradients of a pass that nobody has made end {TRIES} times with {busy[0].code}"
    context.fails(UNKNOWN, why, *busy[:2])
