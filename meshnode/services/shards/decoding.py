"""Forward messages of both operations, decoded (interface 4.3; decisions 0033, 0034, 0035, 0098).

``PipelineForward`` and ``SwarmForward`` ask for the same work. Here are the names of the metadata
beside their messages, and the only code that reads the fields of the messages and that metadata.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.training.position import PLACE, place_in
from meshnode.rpc.caller import Caller
from meshnode.rpc.metadata import CONVOY
from meshnode.services.shards.messages import MAX_DIMENSIONS, ForwardCall, bounded, held_from
from meshnode.services.shards.training_call import TrainingCall
from meshnode.wire import node_pb2 as pb

RESERVE, DECODE_FROM, ORIGIN = "session-positions", "decode-from", "session-origin"
"""Metadata of a forward call (decision 0033)."""
ORDER = "work-order"
"""Metadata of a forward call: the caller's signed order (decision 0098)."""
CREDENTIAL = "peer-session"
"""Metadata of a forward call: what the caller is known by (decision 0164)."""
MODEL = "model-hash"
"""Metadata of the first call of a session: which weights to compute with (decision 0225)."""
WANTED, FLIGHT = "logits", "flight"
"""Metadata of a forward call of a driver that sends ahead (decision 0230)."""
QUEUE_MS, COMPUTE_MS = "queue-ms", "compute-ms"
"""Metadata of an answer."""
TRAINING = "training"
"""Metadata of a message that trains: one of the values below."""
ADD_UP, STEP = "1", "step"
"""Add the gradients up, or update the weights by them as well."""
LOSS, EXCHANGE = "loss", "exchange"
"""Only measure the loss; or the message has a command for the layers (decision 0222)."""
MAX_POSITIONS = 1 << 31
_HASH = re.compile(r"[0-9a-f]{64}")
_ADDRESSES = re.compile(r"[0-9A-Fa-f.:%,a-z]{0,512}")


def decode_pipeline_forward(
    message: pb.PipelineForwardRequest, caller: Caller, held: Sequence[int]
) -> ForwardCall:
    """A PipelineForward message to the holder of the layers ``held``.

    It runs from its ``target_shard`` to the last held layer. Raises InvalidRequest and
    LayerNotHeld.
    """
    closes = bool(message.session_id) and not (
        message.use_cache or message.hidden_states or message.hidden_shape
    )
    return ForwardCall(
        caller_ip=caller.ip,
        session_id=message.session_id,
        request_id=message.request_id,
        layers=held_from(held[0] if closes else message.target_shard, held),
        data=message.hidden_states,
        shape=bounded(message.hidden_shape, MAX_DIMENSIONS),
        mask=message.attention_mask,
        positions=message.position_ids,
        past=bounded(message.past_key_values, len(held)),
        use_cache=message.use_cache,
        reserve=_positions(caller, RESERVE),
        decode_from=_positions(caller, DECODE_FROM),
        order=caller.metadata.get(ORDER, ""),
        credential=caller.metadata.get(CREDENTIAL, ""),
        model_hash=_model(caller),
        wanted=caller.metadata.get(WANTED, ""),
        flight=caller.metadata.get(FLIGHT, ""),
        convoy=caller.metadata.get(CONVOY, ""),
    )


def decode_swarm_forward(message: pb.SwarmForwardRequest, caller: Caller) -> ForwardCall:
    """A SwarmForward message, without its layers: the relay takes these from the route.

    Raises InvalidRequest.
    """
    return ForwardCall(
        caller_ip=caller.ip,
        origin=_origin(caller),
        session_id=message.session_id,
        request_id=message.request_id,
        layers=range(0),
        data=message.hidden_states,
        shape=bounded(message.hidden_shape, MAX_DIMENSIONS),
        mask=message.attention_mask,
        positions=message.position_ids,
        use_cache=message.use_cache,
        reserve=_positions(caller, RESERVE),
        decode_from=_positions(caller, DECODE_FROM),
        order=caller.metadata.get(ORDER, ""),
        credential=caller.metadata.get(CREDENTIAL, ""),
        model_hash=_model(caller),
        wanted=caller.metadata.get(WANTED, ""),
        flight=caller.metadata.get(FLIGHT, ""),
        convoy=caller.metadata.get(CONVOY, ""),
    )


def trains(message: pb.PipelineForwardRequest, caller: Caller) -> bool:
    """Whether a PipelineForward message trains."""
    return bool(message.training_labels) or caller.metadata.get(TRAINING) in (ADD_UP, STEP, LOSS)


def decode_training(
    message: pb.PipelineForwardRequest, caller: Caller, call: ForwardCall, member: str
) -> TrainingCall:
    """What a message that trains has beside its forward ``call``; ``member`` has signed it.

    Raises InvalidRequest.
    """
    wanted = caller.metadata.get(TRAINING)
    place = place_in(caller.metadata.get(PLACE, "")) if wanted == STEP else None
    return TrainingCall(
        call=call,
        labels=message.training_labels,
        sender_url=message.sender_url,
        source_shard=message.source_shard,
        backward=wanted in (ADD_UP, STEP) or bool(message.sender_url),
        step=wanted == STEP,
        place=place,
        member=member,
    )


def _positions(caller: Caller, key: str) -> int | None:
    """A number of positions in the metadata. Raises InvalidRequest for anything else there."""
    text = caller.metadata.get(key)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 10) or int(text) > MAX_POSITIONS:
        raise InvalidRequest(key, "must be a number of positions")
    return int(text)


def _model(caller: Caller) -> str:
    """The hash of the weights to compute with. Raises InvalidRequest."""
    text = caller.metadata.get(MODEL, "")
    if text and _HASH.fullmatch(text) is None:
        raise InvalidRequest(MODEL, "must be 64 lowercase hex characters")
    return text


def _origin(caller: Caller) -> str:
    """The addresses that the caller says it passes the message on for. Raises InvalidRequest."""
    text = caller.metadata.get(ORIGIN, "")
    if _ADDRESSES.fullmatch(text) is None:
        raise InvalidRequest(ORIGIN, "must be addresses")
    return text
