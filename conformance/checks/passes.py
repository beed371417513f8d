"""Interface 2.3 and 4.3: a forward pass that a target accepts, declared by it or found by trying.

The document shows neither the encoding of tensors nor the number of a layer. What
`[target.pipeline]` does not declare is tried: usual forms, the sizes and layers that the node
itself names over HTTP, in GetShardInfo and in its own refusals, and a few usual sizes. Tries are
bounded. If none is accepted, nothing can be judged, and nothing is.

Terms: a *shard* is the number in target_shard, which may be that of a layer or of a part of the
model. So no number that the model's layers or parts could have is known to be absent.
"""

import math
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conformance import messages
from conformance.checks.answers import UNKNOWN, is_named
from conformance.checks.forms import FORMS, encode
from conformance.context import Context
from conformance.findings import Skipped
from conformance.grpcwire import Metadata, Reply
from conformance.httpwire import Unanswered
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_int

# The first edition in which a pass is looked for that the target does not declare.
FOUND_SINCE = 3
BUSY = ("RESOURCE_EXHAUSTED", "UNAVAILABLE")
# Sizes of hidden states that many models have, where the node names none.
USUAL_SIZES = (64, 128, 256, 512, 768, 1024, 2048, 4096)
SIZES = range(8, 65537)
# As many tries, and seconds, as a search may take.
MAX_TRIES, MAX_S = 150, 20.0
MAX_SHARDS = 10
# A tensor has no more axes and values than these.
MOST_AXES, MOST_VALUES = 8, 2**22
# Further from any number of layers or parts than a model has of them.
FAR = 1_000_000
# The shard that a pass says it comes from: none.
SOURCE = -1
_NUMBER = re.compile(r"(?<![\d.])\d{1,5}(?![\d.])", re.ASCII)


@dataclass(frozen=True)
class Layers:
    """What the node says of its layers: those that it holds, and how many the model has."""

    held: tuple[int, ...]
    total: int | None
    # Whether the first layer is 0; None where no answer shows it.
    from_zero: bool | None

    @property
    def last(self) -> bool | None:
        """Whether the node holds the last layer, or None if it does not say so."""
        if not self.held or self.total is None or self.from_zero is None:
            return None
        return max(self.held) == self.total - (1 if self.from_zero else 0)

    @property
    def absent(self) -> int | None:
        """The first layer of the model, if the node does not hold it."""
        if self.from_zero is None or not self.held:
            return None
        first = 0 if self.from_zero else 1
        return None if first in self.held else first


def pipeline_of(context: Context) -> Mapping[str, Any]:
    """Return the declared forward pass, or one that was found; raise `Skipped` without one."""
    if context.target.pipeline:
        return context.target.pipeline
    if context.edition < FOUND_SINCE:
        raise Skipped("the target declares no pipeline")
    known = context.service
    if known.no_pass is None and known.found_pass is None:
        try:
            _look(context)
        except Unanswered as reason:
            known.no_pass = f"a tensor of a usual form is not answered: {reason.why}"
    if known.found_pass is None:
        raise Skipped(f"the target declares no pipeline, and {known.no_pass}")
    return known.found_pass


def is_found(context: Context) -> bool:
    """Return whether the pass of this target was found, not declared."""
    return not context.target.pipeline


def hidden_shape(context: Context) -> list[int]:
    """Return the shape of the hidden states, [batch, seq, hidden]."""
    return [int(size) for size in pipeline_of(context)["hidden_shape"] if is_int(size)]


def form_of(context: Context) -> str:
    """Return the name of the form of tensors."""
    return str(pipeline_of(context).get("format", "float32"))


def tensor_of(context: Context, scale: float = 1.0) -> bytes:
    """Make hidden states of the shape and form of the pass."""
    return encode(form_of(context), hidden_shape(context), scale)


def fresh_id() -> str:
    """Return an identifier that nobody has used."""
    return f"conformance-{uuid.uuid4().hex}"


def send_forward(context: Context, metadata: Metadata = (), **fields: Any) -> Reply:
    """Send the pass, with some fields changed."""
    return _send(context, metadata=metadata, **{**_fields(context), **fields})


def forward_request(context: Context) -> Any:
    """Return the message of the pass, under identifiers of its own."""
    return _message(_fields(context))


def _fields(context: Context) -> dict[str, Any]:
    known = pipeline_of(context)
    return {
        "hidden_states": tensor_of(context),
        "hidden_shape": hidden_shape(context),
        "target_shard": known["shard"],
        **known.get("more", {}),
    }


def _message(fields: Mapping[str, Any]) -> Any:
    ids = {"session_id": fresh_id(), "request_id": fresh_id()}
    request: dict[str, Any] = {**ids, "source_shard": SOURCE, **fields}
    return messages.make("PipelineForwardRequest", **request)


def gradient_shape(context: Context, answer: Any, sent: Sequence[int] | None = None) -> list[int]:
    """Return the shape of a gradient for the answer to a pass, empty if it can have none.

    It is that of what came back: of the hidden states, or of the logits where there are no others.
    Where a node was found to take the other one of the two, it is that one; the hidden states are
    those that were ``sent``, by default as declared. No gradient is made for more values than the
    suite has memory for, whatever the answer says.
    """
    shape = list(answer.hidden_shape if answer.hidden_states else answer.logits_shape)
    if context.service.other_gradients and answer.logits:
        states = list(sent or hidden_shape(context))
        shape = list(answer.logits_shape) if answer.hidden_states else states
    fits = len(shape) <= MOST_AXES and all(0 < size <= MOST_VALUES for size in shape)
    return shape if fits and math.prod(shape) <= MOST_VALUES else []


def send_backward(context: Context, shape: list[int], shard: int, **ids: str) -> Reply:
    """Send a gradient of a shape to a shard, for the pass that `ids` name."""
    request = messages.make(
        "PipelineBackwardRequest",
        grad_output=encode(form_of(context), shape),
        grad_shape=shape,
        target_shard=shard,
        **ids,
    )
    timeout_s = context.target.inference_timeout_s
    return context.grpc.call("PipelineBackward", request, timeout_s=timeout_s)


def _send(context: Context, *, metadata: Metadata = (), **fields: Any) -> Reply:
    message = _message(fields)
    timeout_s = context.target.inference_timeout_s
    reply = context.grpc.call("PipelineForward", message, timeout_s=timeout_s, metadata=metadata)
    if reply.code == UNKNOWN and context.edition > 1 and not is_named(context):
        raise Skipped("the service has another name, which GR-NAME-001 reports")
    return reply


def layers_of(context: Context) -> Layers:
    """Return what the node says of its layers; the passive checks judge the answers elsewhere."""
    status, listed = _read(context, "/status"), _read(context, "/layers")
    network, peers = _read(context, "/network"), _read(context, "/peers")
    named = lookup(status, "layers")
    held: list[Json] = named[0] if named and isinstance(named[0], list) else []
    numbers = sorted({int(index) for index in held if is_int(index) and index >= 0})
    totals = [*lookup(listed, "total_layers"), *lookup(network, "architecture.layers")]
    total = next((int(value) for value in totals if is_int(value) and value > 0), None)
    others = [item for item in lookup(peers, "peers[].layers") if isinstance(item, list)]
    seen = {index for item in others for index in item} | set(numbers)
    seen |= {index for index in lookup(listed, "layers[].index") if is_int(index)}
    from_zero = True if 0 in seen else False if total in seen else None
    return Layers(tuple(numbers), total, from_zero)


def _read(context: Context, path: str) -> Json:
    # Not `context.api`: whether these answers are right is a matter of other checks.
    try:
        answer = context.http.call("GET", f"/api/v1{path}", credential=context.target.valid)
    except Unanswered:
        return None
    return answer.json_object() if answer.ok else None


def named_size(context: Context) -> int | None:
    """Return the size of hidden states that the node names over HTTP."""
    found = lookup(_read(context, "/network"), "architecture.hidden_dim")
    return next((int(size) for size in found if is_int(size) and size > 0), None)


def _sizes(context: Context) -> list[int]:
    """Return the sizes of hidden states that the node names."""
    named = named_size(context)
    sizes = [] if named is None else [named]
    try:
        reply = context.grpc.call("GetShardInfo", b"")
        # The messages of this operation are not shown, so that any number may be the size.
        sizes += [size for size in _numbers(reply.body) if size in SIZES and size % 8 == 0]
    except (Unanswered, messages.BadMessage):
        pass
    return list(dict.fromkeys(sizes))


def _numbers(data: bytes) -> Iterator[int]:
    for found in messages.wire_fields(data):
        if isinstance(found.value, int):
            yield found.value


def _shards(layers: Layers) -> list[int]:
    """Return numbers to try, the highest first: the last of those that the node serves."""
    numbers = {*sorted(layers.held, reverse=True)[: MAX_SHARDS - 5], 0, 1, 2, 3}
    if layers.held:
        numbers.add(min(layers.held))
    return sorted(numbers, reverse=True)


def _tries(sizes: list[int], shards: list[int]) -> Iterator[tuple[str, list[int], int, bool]]:
    """Yield the form, the shape and the shard of each try, and whether positions are sent too."""
    for size in sizes:
        for form in FORMS:
            yield from ((form, [1, 2, size], shard, False) for shard in shards)
        yield from (("float32", [1, 1, size], shard, False) for shard in shards)
        yield from (("float32", [1, 2, size], shard, True) for shard in shards)


def _usual(shards: list[int]) -> Iterator[tuple[str, list[int], int, bool]]:
    """Yield tries for a node that names no size: the raw forms of the usual ones."""
    for size in USUAL_SIZES:
        for form in ("float32", "float16", "bfloat16"):
            yield from ((form, [1, 2, size], shard, False) for shard in shards[-4:])


def _look(context: Context) -> None:
    """Look for a pass that the node accepts, and remember it or why there is none."""
    known, layers = context.service, layers_of(context)
    sizes, shards = _sizes(context), _shards(layers)
    ends, tried, last = time.monotonic() + MAX_S, 0, "none was tried"
    # Shards that the node does not have, whatever the tensor.
    lacking: set[int] = set()
    named: list[int] = []
    queue = [_tries(sizes, shards), _usual(shards)]
    while queue and tried < MAX_TRIES and time.monotonic() < ends:
        step = next(queue[0], None)
        if step is None:
            queue.pop(0)
            continue
        form, shape, shard, positioned = step
        if shard in lacking:
            continue
        tried += 1
        more: dict[str, Any] = _positions(shape[1]) if positioned else {}
        fields: dict[str, Any] = {"hidden_states": encode(form, shape), "hidden_shape": shape}
        reply = _send(context, target_shard=shard, **fields, **more)
        known.tries.append(reply)
        if reply.code == UNKNOWN or reply.code in BUSY:
            known.no_pass = f"PipelineForward ends with {reply.code}"
            return
        if reply.code == "NOT_FOUND":
            lacking.add(shard)
        answer = reply.message
        if answer is not None and answer.success:
            known.found_pass = _described(layers, form, shape, shard, more)
            return
        last = f"{reply.code} {reply.details}" if answer is None else answer.error_message
        fresh = [size for size in _named_in(last) if size not in (*sizes, *named)][:3]
        if fresh:
            # The node's own words name a size.
            named += fresh
            queue.insert(0, _tries(fresh, shards))
    known.no_pass = (
        f"none of {tried} tensors of usual forms is accepted; the last one: {brief(last, 120)}"
    )


def _positions(count: int) -> dict[str, bytes]:
    numbers = b"".join(number.to_bytes(8, "little") for number in range(count))
    return {"position_ids": numbers, "attention_mask": (1).to_bytes(8, "little") * count}


def _named_in(text: str) -> list[int]:
    """Return sizes that the words of a refusal may name, as a size or as bytes of two positions."""
    found = [int(match) for match in _NUMBER.findall(text)]
    sizes = [*found, *(number // 8 for number in found), *(number // 4 for number in found)]
    return [size for size in dict.fromkeys(sizes) if size in SIZES and size % 8 == 0]


def _described(
    layers: Layers, form: str, shape: list[int], shard: int, more: dict[str, bytes]
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "format": form, "hidden_shape": shape, "shard": shard, "more": more, "layers": layers,
        "absent_shard": FAR,
    }  # fmt: skip
    if layers.last is not None:
        found["last"] = layers.last
    return found
