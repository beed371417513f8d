"""Interface 2.3 and 4.3: a gradient that a target accepts, made in the usual form.

The document shows neither what a signature is made of nor what layers are called. A made gradient
is not signed, is of the target's own round and model, and holds nothing but zeros, so that no
weight follows from it. If none is accepted, nothing is judged.
"""

import hashlib
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any

from conformance import messages
from conformance.checks.forms import FRAME, encode
from conformance.checks.frame_forms import forms_of
from conformance.checks.node_reads import CONFIG
from conformance.checks.passes import BUSY, layers_of
from conformance.checks.rpc import FAR_ROUND
from conformance.context import Context
from conformance.editions import FIFTH, FOURTH, SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.grpcwire import Reply
from conformance.httpwire import Unanswered
from conformance.messages import LENGTH, WireField, encode_field, wire_fields
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import brief, is_int

NUMBER = "GR-GOSSIP-007"
BYTES, ROUND_AT = "GR-NUM-002", "GR-GOSSIP-GRADIENT-REQUEST-02"
LAYERS = "GR-GOSSIP-GRADIENT-REQUEST-07"
# The numbers of model_hash, round_id and layer_gradients.
HASH_AT, ROUND_NUMBER, LAYERS_AT = 3, 2, 7
# What says that the server has failed, and the requirement that it does not for a bad request.
FAILED, SERVERS = ("INTERNAL", "UNKNOWN"), "GR-CODE-015"
# The other texts of a gradient.
OTHER_TEXTS = ("signature", "node_id")
# Numbers that the message does not have.
OTHER_NUMBERS = range(10, 16)
FORM = "LZ4 frame of float32"
# One that a number of 32 bits has not.
LOSS = 1.1
VALUES, MOST_VALUES = 64, 10**6
TTL = 2
# As many zeros in a compressed block, whose bytes are all below 128: one that is repeated, another
# one, and five as they are.
_BLOCK = b"\x1f\x00\x01\x00\x64" + b"\x1f\x00\x01\x00\x6f" + b"\x50" + bytes(5)
ASCII_FRAME = FRAME + len(_BLOCK).to_bytes(4, "little") + _BLOCK + bytes(4)
NAMES = ("layers.{}", "layer_{}", "model.layers.{}.weight", "{}")


def send(context: Context, fields: dict[str, Any]) -> tuple[Reply, Any | None]:
    """Gossip a gradient; return the reply, and its message if it is one."""
    message = messages.make("GossipGradientRequest", **fields)
    reply = context.grpc.call("GossipGradient", message, timeout_s=60)
    return reply, reply.message


def fresh(fields: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return the fields of another gradient of the same form, of a node that is new."""
    ident = hashlib.sha1(uuid.uuid4().bytes).hexdigest()  # noqa: S324 - the document's digest
    return {**fields, "node_id": ident, "timestamp": time.time(), **changes}


def gradient_of(context: Context) -> dict[str, Any]:
    """Return the fields of a gradient that the node accepts; each use takes a `fresh` one.

    Raises `Skipped` if none of the usual form is accepted.
    """
    known = context.service
    if known.found_gradient is None and known.no_gradient is None:
        try:
            _look(context)
        except Unanswered as reason:
            known.no_gradient = f"a gradient of the usual form is not answered: {reason.why}"
        except messages.BadMessage as reason:
            known.no_gradient = f"GetCheckpointInfo answers with no message: {reason}"
    if known.found_gradient is None:
        raise Skipped(f"the target declares no gradient, and {known.no_gradient}")
    return known.found_gradient


def _look(context: Context) -> None:
    known = context.service
    reply = context.grpc.call("GetCheckpointInfo", messages.make("GetCheckpointInfoRequest"))
    info: Any = messages.parse("GetCheckpointInfoResponse", reply.body) if reply.ok else None
    if info is None or not info.model_hash:
        known.no_gradient = f"GetCheckpointInfo names no model: {reply.code}"
        return
    plain: dict[str, Any] = {
        "model_hash": info.model_hash, "batch_size": 2, "loss": LOSS,
    }  # fmt: skip
    layer, why = max(layers_of(context).held, default=0), ""
    if context.edition >= SEVENTH:
        # One behind which none was refused yet.
        layers = {NAMES[0].format(layer): encode(FORM, [VALUES], scale=0.0)}
        fields = {**plain, "ttl": 0, "round_id": info.version, "layer_gradients": layers}
        _, answer = send(context, fresh(fields))
        if answer is not None and answer.accepted:
            known.found_gradient = fields
            known.shut = _shut(context, fields)
            return
    _, refused = send(context, fresh(plain, model_hash="0" * 64, round_id=FAR_ROUND))
    rounds = [refused.current_round] if refused is not None and not refused.accepted else []
    sizes = (VALUES, *(_sizes(context, layer) if context.edition >= FOURTH else ()))
    # A node may be wrong in refusing what is not to be forwarded, and says so of all others.
    ttls = (0, TTL) if context.edition >= SIXTH else (0,)
    batches = [plain["batch_size"], *_configured_batch(context)]
    listed = dict.fromkeys([*rounds, info.version])
    # What comes behind a checkpoint is the round that has its number, or the next one.
    further = [info.version + 1] if context.edition >= SIXTH else []
    tries = product(batches, ttls, dict.fromkeys([*listed, *further]), sizes, NAMES)
    for batch, ttl, round_id, size, name in tries:
        layers = {name.format(layer): encode(FORM, [size], scale=0.0)}
        fields = {**plain, "ttl": ttl, "round_id": round_id, "layer_gradients": layers}
        fields["batch_size"] = batch
        usual = batch == batches[0] and not ttl and round_id in listed
        if usual and (size == VALUES or name == NAMES[0]):
            known.tried_gradients.append(fields)
        reply, answer = send(context, fresh(fields))
        if answer is not None and answer.accepted:
            known.found_gradient = fields
            return
        why = f"{reply.code} {reply.details}" if answer is None else brief(answer.reason)
    known.no_gradient = f"none of the usual form is accepted: {why}"
    if context.edition >= SIXTH:
        _look_in_frames(context, plain, [*listed, *further], layer)


def _shut(context: Context, fields: dict[str, Any]) -> tuple[Reply, ...]:
    """Return what shows that none is accepted behind the first refusal, and two were before it."""
    control, accepted = send(context, fresh(fields))
    bad, refused = send(context, fresh(fields, model_hash="0" * 64))
    if not (accepted and accepted.accepted) or (refused is not None and refused.accepted):
        return ()
    shown = [control, bad]
    for _ in range(3):
        reply, answer = send(context, fresh(fields))
        if answer is None or answer.accepted:
            return ()
        shown.append(reply)
    return tuple(shown)


def _look_in_frames(
    context: Context, plain: dict[str, Any], rounds: Sequence[int], layer: int
) -> None:
    """Look for a gradient that is accepted in another form of an LZ4 frame."""
    content = bytes(4 * VALUES)
    for (_, frame), round_id, name in product(forms_of(content), rounds, NAMES):
        layers = {name.format(layer): frame}
        fields = {**plain, "ttl": 0, "round_id": round_id, "layer_gradients": layers}
        _, answer = send(context, fresh(fields))
        if answer is not None and answer.accepted:
            context.service.found_gradient = fields
            return


def _configured_batch(context: Context) -> list[int]:
    """Return the batch size of the node's configuration, if it can be read."""
    if context.edition < SIXTH or context.target.token is None:
        return []
    answer = context.api("GET", CONFIG.path, credential=context.target.valid)
    found = lookup(answer.json_object() or {}, "training.batch_size")
    return [int(size) for size in found if is_int(size) and size > 0]


def of_layers(context: Context, fields: dict[str, Any]) -> dict[str, Any] | None:
    """Return the fields of a gradient of two layers, alike but for the layer; None without two."""
    held = sorted(layers_of(context).held)
    ((name, content),) = fields["layer_gradients"].items()
    form = name.replace(str(held[-1]), "{}", 1) if held else name
    if len(held) < 2 or form.format(held[-1]) != name:
        return None
    return {**fields, "layer_gradients": {form.format(index): content for index in held[-2:]}}


def _sizes(context: Context, layer: int) -> list[int]:
    """Return how many values a layer may have, by the weights of it that the node serves.

    How weights are written is not shown: as numbers of four or two bytes, or behind a header in
    JSON that has its own length before it.
    """
    request = messages.make("WeightRequest", shard_range=str(layer))
    reply: Any = context.grpc.call("GetWeights", request, timeout_s=60).message
    data: bytes = reply.weights_data if reply is not None else b""
    found = [len(data) // width for width in (4, 2)]
    for width in (4, 8):
        header = int.from_bytes(data[:width], "little")
        if data[width : width + 1] in (b"{", b"[") and header < len(data):
            found.append((len(data) - width - header) // 4)
    return [size for size in dict.fromkeys(found) if 0 < size <= MOST_VALUES]


@requirement(BYTES, SERVERS)
def gossip_bytes(context: Context) -> None:
    """Gossip gradients for an unknown model, of plain bytes and of such as no text has.

    Where the second ends otherwise, the map of bytes is read as the signature, which is a text.
    """
    _judge_bytes(context, {"model_hash": "0" * 64}, "none")
    if context.edition >= FOURTH:
        # A node may look at the map only in gradients of its own model and round.
        with suppress(Skipped):
            gradient_of(context)
        for fields in context.service.tried_gradients:
            with suppress(Skipped):
                _judge_bytes(context, fresh(fields), *fields["layer_gradients"])
    if context.edition >= FIFTH and context.service.found_gradient is None:
        _judge_ascii(context)


def _judge_ascii(context: Context) -> None:
    """Rule on the gradients that the node refuses, where it takes them as bytes of ASCII alone.

    Both are frames of the same zeros. What reads a map of bytes as one of texts spoils the others.
    """
    for fields in context.service.tried_gradients:
        (name,) = fields["layer_gradients"]
        ascii_only = {**fields, "layer_gradients": {name: ASCII_FRAME}}
        reply, answer = send(context, fresh(ascii_only))
        if answer is not None and answer.accepted:
            again = send(context, fresh(fields))
            refused = again[1] is None or not again[1].accepted
            why = "a frame of zeros is accepted where all its bytes are ASCII, and otherwise not"
            context.judge(BYTES, not refused, why, reply, again[0])
            return


def _judge_bytes(context: Context, fields: dict[str, Any], name: str) -> None:
    """Send gradients of a layer twice, of plain bytes and of others; neither can be used."""
    replies = [
        send(context, {**fields, "layer_gradients": {name: content}})[0]
        for content in (b"plain", b"\xff\xfe\x80") * 2
    ]
    plain, odd = replies[0::2], replies[1::2]
    if context.edition >= FOURTH and plain[-1].code not in BUSY:
        why = f"a gradient of plain bytes ends with {plain[-1].code}: {plain[-1].details}"
        context.judge(SERVERS, plain[-1].code not in FAILED, why, *plain)
    if not all(reply.ok for reply in plain):
        raise Skipped(f"a useless gradient is answered with {plain[-1].code}")
    why = f"a gradient of plain bytes ends with OK, one of other bytes with {odd[-1].code}"
    refused = all(not reply.ok and reply.code not in BUSY for reply in odd)
    context.judge(BYTES, not refused, why, *replies)


@requirement(NUMBER, ROUND_AT, LAYERS)
def gossip_elsewhere(context: Context) -> None:
    """Gossip gradients whose model_hash is elsewhere, if none is accepted in its place."""
    with suppress(Skipped):
        gradient_of(context)
        context.holds(NUMBER)
        return
    places = [*OTHER_TEXTS, *(OTHER_NUMBERS if context.edition >= FOURTH else ())]
    for place in places:
        reply = _accepted(context, place)
        if reply is not None:
            shown = place if isinstance(place, str) else f"field {place}"
            why = f"a gradient is accepted with its model_hash as {shown}, and not in its place"
            context.fails(NUMBER, why, reply)
            return
    if context.edition >= FOURTH:
        _judge_swapped(context)
    raise Skipped(f"wherever its hash is, {context.service.no_gradient}")


def _judge_swapped(context: Context) -> None:
    """Fail a node that takes gradients with two fields at each other's numbers only.

    A number that the message does not have is that of nothing.
    """
    for moved, other in product((HASH_AT, ROUND_NUMBER, LAYERS_AT), range(1, 16)):
        for fields in context.service.tried_gradients if moved != other else ():
            request = messages.make("GossipGradientRequest", **fresh(fields))
            places = {moved: other, other: moved}
            content = b"".join(
                encode_field(replace(field, number=places.get(field.number, field.number)))
                for field in wire_fields(request.SerializeToString())
            )
            reply = context.grpc.call("GossipGradient", content, timeout_s=60)
            answer: Any = reply.message
            if answer is not None and answer.accepted and not _as_read(context, fields, content):
                why = f"a gradient is accepted with fields {moved} and {other} at each other's"
                ident = {HASH_AT: NUMBER, ROUND_NUMBER: ROUND_AT, LAYERS_AT: LAYERS}[moved]
                context.fails(ident, f"{why} number, and not otherwise", reply)
                return


def _as_read(context: Context, fields: dict[str, Any], content: bytes) -> bool:
    """Tell whether a gradient is accepted that has, in its place, what is read of another one.

    The node may want another round than the suite has tried, or look at no hash.
    """
    try:
        read = messages.parse("GossipGradientRequest", content)
    except messages.BadMessage:
        return False
    own = {name: getattr(read, name) for name in ("round_id", "model_hash", "layer_gradients")}
    return any(
        answer is not None and answer.accepted
        for _, answer in (send(context, fresh({**fields, name: own[name]})) for name in own)
    )


def _accepted(context: Context, place: str | int) -> Reply | None:
    """Return the answer to a gradient with its hash in another field, if it is accepted."""
    for fields in context.service.tried_gradients:
        moved, known = fresh({**fields, "model_hash": "0" * 64}), fields["model_hash"]
        if isinstance(place, str):
            moved[place] = known
        content = messages.make("GossipGradientRequest", **moved).SerializeToString()
        if isinstance(place, int):
            content += encode_field(WireField(place, LENGTH, known.encode()))
        reply = context.grpc.call("GossipGradient", content, timeout_s=60)
        answer: Any = reply.message
        if answer is not None and answer.accepted:
            return reply
    return None
