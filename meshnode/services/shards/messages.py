"""Forward messages and their tensors (interface 2.3; decisions 0032, 0033).

Terms: *inputs* are token ids where the layers begin with the model's first, else hidden states; the
*start* of a message is the position of its first input; *past* are the keys and values that a
stateless message brings along.

Invariants: every size is checked against the model before anything is unpacked; whatever a peer
sends, the error is one of the document's table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TypeVar

import numpy as np
import torch
import trio
from torch import Tensor

from meshnode.domain.errors import InvalidRequest, LayerNotHeld, MeshnodeError
from meshnode.model.config import DecoderConfig
from meshnode.turns import counted
from meshnode.wire.tensors import (
    LARGE,
    all_ones,
    unpack_floats,
    unpack_integers,
)

MAX_TENSOR_BYTES = 100 * 1024 * 1024
"""Counted as float32, whether a tensor is sent compressed or not."""
MAX_ROWS = 32
"""Rows of a stateless message. They are computed one after another."""
MAX_DIMENSIONS = 3
"""Batch, positions, and the hidden size."""
BYTES_PER_NUMBER = 4
BESIDE_BYTES = 1 << 16
"""Allowance for an answer's other fields."""
MAX_SESSION_ID = 128
MAX_REQUEST_ID = 256
"""Characters. The id is repeated in the answer."""
MAX_OWNER = 512
"""Characters: a dozen addresses. Longer lists are shortened to a digest."""
HIDDEN, POSITIONS, MASK, PAST = (
    "hidden_states",
    "position_ids",
    "attention_mask",
    "past_key_values",
)

Result = TypeVar("Result")
Item = TypeVar("Item")

_converting = trio.CapacityLimiter(2)
"""Large tensors converted at once: keep cores free for the torch thread."""


class SessionBehind(MeshnodeError):
    """The session is unknown here, or shorter than the message assumes. The driver replays."""

    def __init__(self, length: int | None, message: str = "") -> None:
        has = "not here" if length is None else f"has {length} positions"
        super().__init__(message or f"session unknown or behind: {has}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardCall:
    """One message as received. Bytes are empty where nothing was sent."""

    caller_ip: str
    session_id: str
    request_id: str
    layers: range
    data: bytes = field(repr=False)
    shape: tuple[int, ...]
    mask: bytes = field(default=b"", repr=False)
    positions: bytes = field(default=b"", repr=False)
    past: tuple[bytes, ...] = field(default=(), repr=False)
    use_cache: bool = False
    reserve: int | None = None
    """Positions to reserve memory for when the session begins."""
    decode_from: int | None = None
    origin: str = ""
    """The addresses for which the caller relays the message, that of the first caller first."""
    order: str = ""
    """The caller's signed order for this message, if it sent one (decision 0098); unchecked."""
    credential: str = ""
    """What the caller is known by, if it sent that (decision 0164); unchecked."""
    wanted: str = ""
    """Which logits the answer should have (``wanted.WantedLogits``); empty: the last position's."""
    flight: str = ""
    """Where the message belongs among those sent ahead (``flights.Flight``), if it is one."""

    convoy: str = ""
    """The messages that it should be computed with (``convoys.ConvoyPart``), if there are any."""

    model_hash: str = ""
    """Of the model to compute with, where the message begins a session; empty for the served."""

    @property
    def owner(self) -> str:
        """The session's owner: the caller, and all addresses for which it relays.

        Two peers that use the same relaying node cannot reach each other's sessions.
        """
        if not self.origin:
            return self.caller_ip
        path = f"{self.origin},{self.caller_ip}"
        if len(path) <= MAX_OWNER:
            return path
        first, _, others = path.partition(",")
        return f"{first},{blake2b(others.encode(), digest_size=16).hexdigest()}"

    @property
    def nbytes(self) -> int:
        """An upper bound on the unpacked size, before the shape has been checked."""
        # Only as many factors as a valid shape has: multiplying a million of them takes hours.
        size = 4 * math.prod(self.shape[:MAX_DIMENSIONS])
        return max(size, len(self.data) + sum(map(len, self.past)))

    @property
    def closes(self) -> bool:
        """Whether the message ends the session."""
        return bool(self.session_id) and not (
            self.use_cache or self.data or self.shape or self.past
        )

    @property
    def has_session(self) -> bool:
        """Whether keys and values stay here between messages."""
        return self.use_cache and bool(self.session_id) and not self.past

    def validate_ids(self) -> None:
        """Raises InvalidRequest for ids that are too long."""
        for name, value, most in (
            ("session_id", self.session_id, MAX_SESSION_ID),
            ("request_id", self.request_id, MAX_REQUEST_ID),
        ):
            if len(value) > most:
                raise InvalidRequest(name, f"must be at most {most} characters")


@dataclass(frozen=True, slots=True)
class ForwardAnswer:
    """The answer to a message."""

    data: bytes = field(repr=False)
    shape: tuple[int, ...]
    is_final: bool
    """Whether ``data`` are logits ``[batch, 1, vocab]``."""
    past: tuple[bytes, ...] = field(default=(), repr=False)
    queue_ms: float = 0.0
    compute_ms: float = 0.0
    model_hash: str = ""
    """Of the model that computed it."""
    ids: bytes = field(default=b"", repr=False)
    """Token ids of the logits, int64, unless these are of all tokens."""


@dataclass(frozen=True, slots=True)
class ForwardInputs:
    """The tensors of a message."""

    states: Tensor = field(repr=False)
    """int64 ``[batch, seq]`` or float32 ``[batch, seq, hidden]``."""
    start: int | None
    """None where the message has no positions: it continues the session."""
    past: Tensor | None = field(default=None, repr=False)
    """float32 ``[layers, 2, batch, kv_heads, positions, head_dim]``."""


def unpack(call: ForwardCall, config: DecoderConfig, context: int) -> ForwardInputs:
    """The tensors of a message. Raises InvalidRequest. Takes long for large ones."""
    batch, seq = _validated_shape(call.layers, call.shape, config, context)
    start = _start(call.positions, batch, seq, context)
    past = _past(call, config, batch, context - seq)
    states = unpack_states(call.layers, call.data, call.shape, config, context)
    return ForwardInputs(states, start, past)


def unpack_states(
    layers: range, data: bytes, shape: Sequence[int], config: DecoderConfig, context: int
) -> Tensor:
    """What enters ``layers``: int64 ``[batch, seq]`` or float32 ``[batch, seq, hidden]``.

    Raises InvalidRequest. Takes long for large tensors.
    """
    batch, seq = _validated_shape(layers, shape, config, context)
    if layers.start > 0:
        return torch.from_numpy(unpack_floats(data, shape, HIDDEN))
    ids = unpack_integers(data, (batch, seq), HIDDEN)
    if ids.min() < 0 or ids.max() >= config.vocab_size:
        raise InvalidRequest(HIDDEN, f"token ids must be 0 to {config.vocab_size - 1}")
    return torch.from_numpy(ids)


def validate_mask(mask: bytes, batch: int, total: int) -> None:
    """Raises InvalidRequest unless every position up to ``total`` may be attended to."""
    if mask and not all_ones(mask, batch * total):
        raise InvalidRequest(MASK, f"must be empty, or {batch * total} ones (uint8 or int64)")


async def off_loop(size: int, function: Callable[[], Result]) -> Result:
    """Run a conversion of ``size`` bytes; in a thread if it would hold up the event loop."""
    if size <= LARGE:
        return function()
    convert = counted(function)
    return await trio.to_thread.run_sync(convert, limiter=_converting, abandon_on_cancel=True)


def bounded(values: Sequence[Item], most: int) -> tuple[Item, ...]:
    """At most ``most + 1`` of the values: enough to see that there are too many."""
    return tuple(values[: most + 1])


def answer_bytes(positions: int, width: int) -> int:
    """The most bytes of an answer with ``positions`` rows of at most ``width`` numbers."""
    return BYTES_PER_NUMBER * positions * width + BESIDE_BYTES


def held_from(first: int, held: Sequence[int]) -> range:
    """The layers from ``first`` to the last that is held. Raises LayerNotHeld."""
    if first not in held:
        raise LayerNotHeld(f"layer {first} is not held here, only {held[0]} to {held[-1]}")
    return range(first, held[-1] + 1)


def _validated_shape(
    layers: range, shape: Sequence[int], config: DecoderConfig, context: int
) -> tuple[int, int]:
    first = layers.start == 0
    wanted = "[batch, seq]" if first else f"[batch, seq, {config.hidden_size}]"
    if len(shape) != (2 if first else 3) or (not first and shape[2] != config.hidden_size):
        raise InvalidRequest("hidden_shape", f"must be {wanted} for layer {layers.start}")
    batch, seq = shape[:2]
    if not 1 <= batch <= MAX_ROWS:
        raise InvalidRequest("hidden_shape", f"must have 1 to {MAX_ROWS} rows")
    if not 1 <= seq <= context:
        raise InvalidRequest("hidden_shape", f"must have 1 to {context} positions")
    if math.prod(shape) * (8 if first else 4) > MAX_TENSOR_BYTES:
        raise InvalidRequest("hidden_shape", f"must be at most {MAX_TENSOR_BYTES} bytes")
    return batch, seq


def _start(data: bytes, batch: int, seq: int, context: int) -> int | None:
    if not data:
        return None
    ids = unpack_integers(data, (batch, seq), POSITIONS)
    start = int(ids[0, 0])
    if not 0 <= start <= context - seq:
        raise InvalidRequest(POSITIONS, f"must lie within the context of {context}")
    if not (ids == np.arange(start, start + seq)).all():
        raise InvalidRequest(POSITIONS, "must be consecutive, and the same in every row")
    return start


def _past(call: ForwardCall, config: DecoderConfig, batch: int, most: int) -> Tensor | None:
    if not call.past:
        return None
    if len(call.past) != len(call.layers):
        raise InvalidRequest(PAST, f"must be {len(call.layers)}, one for each layer run here")
    size = len(call.past[0])
    position = 2 * batch * config.num_kv_heads * config.head_dim * 4
    positions, rest = divmod(size, position)
    if rest or any(len(layer) != size for layer in call.past) or positions > most:
        raise InvalidRequest(
            PAST,
            f"must be float32 [2, {batch}, {config.num_kv_heads}, positions, {config.head_dim}] "
            f"with at most {most} positions, the same for each layer",
        )
    shape = (2, batch, config.num_kv_heads, positions, config.head_dim)
    layers = np.empty((len(call.past), *shape), dtype=np.float32)
    for place, data in enumerate(call.past):
        layers[place] = np.frombuffer(data, "<f4").reshape(shape)
    if not np.isfinite(layers).all():
        raise InvalidRequest(PAST, "has numbers that are not finite")
    return torch.from_numpy(layers)
