"""The part of the model that the chain trains: an adapter before the head (native network 6).

Terms: with features ``h`` the head reads ``h + (h A^T) B^T`` instead; ``a`` is ``[4, hidden]``,
``b`` is ``[hidden, 4]``, both float32. The *root* of a tensor or an adapter is the digest of its
JSON. One *round* is one update from one sequence: next-token cross-entropy, the gradient clipped
to a norm of 1, plain descent.

Invariants: all arithmetic is exact (``model.exact``), so that roots and losses are the same on
every machine; an adapter never changes; ``Adapter.read(adapter.document()) == adapter``.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from meshnode.domain.chain.canonical import Digest, Json, digest
from meshnode.model.exact import (
    Array,
    Fixed,
    bits_for,
    exponential_weights,
    fix,
    log,
    product,
    product_of_rows,
    sine_cosine,
)
from meshnode.model.exact_decoder import Float32, fixed_rows

RANK = 4
SEED = 20261120
INITIAL_SCALE = 0.01
CLIP_NORM = 1.0
LEARNING_RATE = 0.02
_CLIP_MARGIN = 1e-6
"""Added to the norm before dividing by it, as usual."""


class InvalidTensor(ValueError):
    """A document that is not the JSON of a tensor of the expected shape."""


@dataclass(frozen=True, eq=False)
class Adapter:
    """``a`` is float32 ``[4, hidden]``, ``b`` is float32 ``[hidden, 4]``."""

    a: Float32
    b: Float32

    @classmethod
    def initial(cls, hidden: int) -> Adapter:
        """The adapter that a chain starts from: it changes nothing, since ``b`` is zero."""
        noise = seeded_normal("meshnode/initial-adapter/v1", SEED, RANK * hidden)
        a = (noise * INITIAL_SCALE).astype(np.float32).reshape(RANK, hidden)
        return cls(a, np.zeros((hidden, RANK), np.float32))

    @classmethod
    def read(cls, document: Json, hidden: int) -> Adapter:
        """Read ``{a, b}``. Raises InvalidTensor."""
        if not isinstance(document, dict) or set(document) != {"a", "b"}:
            raise InvalidTensor("an adapter has the members a and b")
        a, b = document["a"], document["b"]
        return cls(read_tensor(a, (RANK, hidden)), read_tensor(b, (hidden, RANK)))

    def document(self) -> dict[str, Json]:
        """``{a, b}`` with both as tensors in JSON."""
        return {"a": tensor_document(self.a), "b": tensor_document(self.b)}

    @cached_property
    def root(self) -> Digest:
        """The digest of the document."""
        return digest(self.document())

    def __eq__(self, other: object) -> bool:
        """Adapters are equal if their bits are."""
        return isinstance(other, Adapter) and self.root == other.root

    def __hash__(self) -> int:
        """The hash of the root."""
        return hash(self.root)

    @cached_property
    def _fixed(self) -> tuple[Fixed, Fixed]:
        return fixed_rows(self.a.astype(np.float64)), fixed_rows(self.b.astype(np.float64))

    def apply(self, features: Float32) -> tuple[Array, Array]:
        """What the head reads ``[rows, hidden]``, and ``h A^T`` ``[rows, 4]``."""
        hidden = features.astype(np.float64)
        inner = product(hidden, self._fixed[0])
        return hidden + product(inner, self._fixed[1]), inner

    def logits(self, features: Float32, head: Fixed) -> Array:
        """``[rows, vocab]`` for features ``[rows, hidden]``."""
        return product(self.apply(features)[0], head)


@dataclass(frozen=True, slots=True)
class Update:
    """One round's outcome. ``loss`` is before the update; the gradient is the clipped one."""

    adapter: Adapter
    loss: float
    gradient_root: Digest


def sequence_loss(adapter: Adapter, head: Fixed, features: Float32, tokens: Sequence[int]) -> float:
    """Mean next-token cross-entropy of a sequence, in nats."""
    logits = adapter.logits(features[:-1], head)
    weights = exponential_weights(logits, logits.shape[1], None)
    chosen = logits[np.arange(len(tokens) - 1), list(tokens[1:])]
    return _mean(weights.log_total[:, 0] - chosen)


def update(adapter: Adapter, head: Fixed, features: Float32, tokens: Sequence[int]) -> Update:
    """One step from features ``[n, hidden]`` of ``tokens`` ``[n]``."""
    rows, targets = len(tokens) - 1, list(tokens[1:])
    seen, inner = adapter.apply(features[:-1])
    logits = product(seen, head)
    weights = exponential_weights(logits, logits.shape[1], None)
    places = np.arange(rows)
    loss = _mean(weights.log_total[:, 0] - logits[places, targets])
    # Backpropagation: from the loss to the logits, the head's input, and each of the two matrices.
    error = weights.shares
    error[places, targets] -= 1.0
    back = product_of_rows(error / rows, head, bits_for(head.integers.shape[1]))
    gradient_b = _sum_of_outer(back, inner)
    through_b = product(back, fixed_rows(adapter.b.astype(np.float64).T))
    gradient_a = _sum_of_outer(through_b, features[:-1].astype(np.float64))
    clipped = _clip(gradient_a, gradient_b)
    moved = [
        (old.astype(np.float64) - gradient.astype(np.float64) * LEARNING_RATE).astype(np.float32)
        for old, gradient in zip((adapter.a, adapter.b), clipped, strict=True)
    ]
    return Update(Adapter(*moved), loss, Adapter(*clipped).root)


def mean_loss(losses: Sequence[float]) -> float:
    """The mean, rounded once."""
    return math.fsum(losses) / len(losses)


def tensor_document(tensor: Float32) -> dict[str, Json]:
    """``{shape, data}``: base64 of little-endian float32 in row-major order."""
    data = np.ascontiguousarray(tensor, dtype="<f4").tobytes()
    return {"shape": list(tensor.shape), "data": base64.b64encode(data).decode()}


def read_tensor(document: Json, shape: tuple[int, ...]) -> Float32:
    """The inverse of :func:`tensor_document`, for a known shape. Raises InvalidTensor."""
    if not isinstance(document, dict) or set(document) != {"shape", "data"}:
        raise InvalidTensor("a tensor has the members shape and data")
    sizes, text = document["shape"], document["data"]
    well_typed = isinstance(sizes, list | tuple) and all(type(size) is int for size in sizes)
    if not well_typed or tuple(sizes) != shape:  # type: ignore[arg-type]
        raise InvalidTensor(f"expected a tensor of shape {list(shape)}")
    size = 4 * math.prod(shape)
    # The text's length is checked first, so that nothing large is decoded.
    if not isinstance(text, str) or len(text) != (size + 2) // 3 * 4:
        raise InvalidTensor("the tensor's data has the wrong length")
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        raise InvalidTensor("the tensor's data is not base64") from None
    if len(data) != size:
        raise InvalidTensor("the tensor's data has the wrong length")
    tensor = np.frombuffer(data, dtype="<f4").astype(np.float32).reshape(shape)
    if not np.isfinite(tensor).all():
        raise InvalidTensor("the tensor holds numbers that are not finite")
    return tensor


def seeded_normal(domain: str, seed: int, count: int) -> Array:
    """``count`` normal numbers from SHA-256, the same everywhere.

    The digest of ``domain:seed:i`` gives two uniform numbers of 53 bits, which the Box-Muller
    transform makes normal.
    """
    pairs = (count + 1) // 2
    digests = [hashlib.sha256(f"{domain}:{seed}:{i}".encode()).digest() for i in range(pairs)]
    first = np.array([int.from_bytes(d[:8]) >> 11 for d in digests], dtype=np.float64)
    second = np.array([int.from_bytes(d[8:16]) >> 11 for d in digests], dtype=np.float64)
    radius = np.sqrt(log((first + 1.0) / 2.0**53) * -2.0)
    sine, cosine = sine_cosine(second / 2.0**53 * (2 * math.pi))
    return np.stack((radius * cosine, radius * sine), axis=1).reshape(-1)[:count]


def _mean(values: Array) -> float:
    return mean_loss(values.tolist())


def _sum_of_outer(left: Array, right: Array) -> Array:
    """``left`` ``[rows, m]`` and ``right`` ``[rows, n]`` summed over rows: ``[m, n]``."""
    columns = np.ascontiguousarray(right.T)
    return product(np.ascontiguousarray(left.T), fix(columns, bits_for(right.shape[0])))


def _clip(*gradients: Array) -> tuple[Float32, ...]:
    """Scale the gradients together so that their norm is at most ``CLIP_NORM``."""
    squares = [value * value for gradient in gradients for value in gradient.ravel().tolist()]
    norm = math.sqrt(math.fsum(squares))
    factor = min(1.0, CLIP_NORM / (norm + _CLIP_MARGIN))
    return tuple((gradient * factor).astype(np.float32) for gradient in gradients)
