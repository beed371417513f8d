"""The decoder in exact arithmetic, for what the chain must repeat (interface 4.2; decision 0087).

The same model as ``model.decoder``, computed by ``model.exact``: about ten times slower, with the
same bits on every machine. Terms: a *row* is one position; *features* are the final norm's output,
rounded to float32, which the head reads.

Invariants: a row's features depend only on the tokens up to it, and not on how the tokens are split
into calls or on what follows. A decoder never changes once it is built, and several threads can use
it, each with its own past.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from meshnode.model.config import DecoderConfig
from meshnode.model.decoder import Decoder, Layer
from meshnode.model.documents import ModelUnreadable
from meshnode.model.exact import (
    Array,
    Fixed,
    bits_for,
    exp,
    exponential_weights,
    fix,
    log,
    mean_square,
    product,
    sigmoid,
    sine_cosine,
)
from meshnode.model.rope import Rope, RopeKind

MAX_PARAMETERS = 1 << 28
"""Weights are doubles here; this many take 2 GiB in addition to the engine's copy."""

Float32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Linear:
    """A matrix ``[out, in]`` and a bias ``[out]``."""

    weight: Fixed
    bias: Array | None

    @classmethod
    def of(cls, module: nn.Linear) -> Linear:
        """Convert a layer that is not packed."""
        bias: Tensor | None = module.bias
        return cls(fixed_rows(_array(module.weight)), None if bias is None else _array(bias))

    def __call__(self, rows: Array) -> Array:
        """``[rows, in]`` to ``[rows, out]``."""
        result = product(rows, self.weight)
        return result if self.bias is None else result + self.bias


@dataclass(frozen=True, slots=True)
class _LayerWeights:
    attention_norm: Array
    qkv: Linear
    output: Linear
    feed_forward_norm: Array
    gate_up: Linear
    down: Linear

    @classmethod
    def of(cls, layer: Layer) -> _LayerWeights:
        return cls(
            attention_norm=_array(layer.attention_norm.weight),
            qkv=Linear.of(layer.attention.qkv),
            output=Linear.of(layer.attention.output),
            feed_forward_norm=_array(layer.feed_forward_norm.weight),
            gate_up=Linear.of(layer.feed_forward.gate_up),
            down=Linear.of(layer.feed_forward.down),
        )


@dataclass(slots=True)
class ExactCache:
    """The keys and values of all positions so far, for each layer as integers and scales."""

    length: int = 0
    layers: list[tuple[Fixed, Fixed]] = field(default_factory=list)


class ExactDecoder:
    """A complete decoder for sequences of up to ``positions`` tokens."""

    def __init__(self, decoder: Decoder, positions: int) -> None:
        """Copy the weights of ``decoder``, which must not be packed.

        Raises ModelUnreadable for a model that is incomplete or too large.
        """
        config = decoder.config
        if len(decoder.held) != config.num_layers:
            raise ModelUnreadable("only a part of the model's layers is held")
        require_executable(config)
        norm, head, embedding = decoder.norm, decoder.head, decoder.embedding
        if norm is None or head is None or embedding is None:
            raise ModelUnreadable("the model has no embedding, norm or head")
        self.config = config
        self.positions = min(positions, config.context_length)
        self.head = fixed_rows(_array(head.weight))
        self._embedding: Float32 = embedding.weight.detach().float().numpy().copy()
        self._norm = _array(norm.weight)
        self._layers = [_LayerWeights.of(layer) for layer in _layers(decoder)]
        angles = np.arange(self.positions, dtype=np.float64)[:, None] * frequencies(
            config.rope, config.head_dim
        )
        sine, cosine = sine_cosine(angles)
        magnitude = config.rope.magnitude()
        # Each position has a row, in which each pair of dimensions has two columns.
        self._sine = np.concatenate((-sine, sine), axis=1)[:, None] * magnitude
        self._cosine = np.concatenate((cosine, cosine), axis=1)[:, None] * magnitude
        self._position_bits = bits_for(self.positions)

    @property
    def nbytes(self) -> int:
        """Bytes of the weights: doubles, except for the embedding, which is float32."""
        table = self._embedding.nbytes
        tied = 2 * table if self.config.tied_head else 0
        return 8 * self.config.parameters - 2 * table + tied + table

    def features(self, tokens: list[int], past: ExactCache | None = None) -> Float32:
        """``[rows, hidden]`` features of ``tokens``, which continue ``past``.

        Raises ArithmeticError if the model's features are not finite numbers.
        """
        past = ExactCache() if past is None else past
        start, stop = past.length, past.length + len(tokens)
        if stop > self.positions:
            raise ValueError(f"{stop} positions, and room for {self.positions}")
        with np.errstate(over="ignore", invalid="ignore"):
            hidden = self._embedding[tokens].astype(np.float64)
            for index, weights in enumerate(self._layers):
                attended = self._attention(
                    weights, self._normalise(hidden, weights.attention_norm), past, index
                )
                hidden = hidden + attended
                hidden = hidden + _feed_forward(
                    weights, self._normalise(hidden, weights.feed_forward_norm)
                )
            past.length = stop
            result = self._normalise(hidden, self._norm).astype(np.float32)
        if not np.isfinite(result).all():
            raise ArithmeticError(f"positions {start} to {stop} are not finite numbers")
        return result

    def _normalise(self, hidden: Array, weight: Array) -> Array:
        return hidden / np.sqrt(mean_square(hidden) + self.config.norm_eps) * weight

    def _attention(
        self, weights: _LayerWeights, hidden: Array, past: ExactCache, layer: int
    ) -> Array:
        config = self.config
        rows, groups = hidden.shape[0], config.num_heads // config.num_kv_heads
        heads = weights.qkv(hidden).reshape(rows, -1, config.head_dim)
        rotated = self._rotate(heads[:, : config.num_heads + config.num_kv_heads], past.length)
        head_bits = bits_for(config.head_dim)
        # Heads that share keys lie together: [kv heads, group, rows, head_dim].
        query = rotated[:, : config.num_heads].transpose(1, 0, 2)
        query = query.reshape(config.num_kv_heads, groups, rows, config.head_dim)
        asked = fix(query, head_bits)
        key = fix(rotated[:, config.num_heads :].transpose(1, 0, 2), head_bits)
        value = fix(
            heads[:, config.num_heads + config.num_kv_heads :].transpose(1, 0, 2),
            self._position_bits,
        )
        keys, values = _remember(past, layer, key, value)
        transposed = keys.transposed
        scores = asked.integers @ transposed.integers[:, None]
        scores = scores * asked.scale * transposed.scale[:, None] / math.sqrt(config.head_dim)
        total = scores.shape[-1]
        seen = np.arange(total) <= np.arange(past.length, past.length + rows)[:, None]
        shares = exponential_weights(scores, self.positions, seen).shares
        # The sum is over positions, so each position's scale goes into its share first.
        weighed = fix(shares * values.transposed.scale[:, None], self._position_bits)
        mixed = (weighed.integers @ values.integers[:, None]) * weighed.scale
        by_row = mixed.reshape(config.num_heads, rows, config.head_dim).transpose(1, 0, 2)
        return weights.output(by_row.reshape(rows, -1))

    def _rotate(self, heads: Array, start: int) -> Array:
        places = slice(start, start + heads.shape[0])
        swapped = np.roll(heads, heads.shape[-1] // 2, axis=-1)
        return heads * self._cosine[places] + swapped * self._sine[places]


def require_executable(config: DecoderConfig) -> None:
    """Raise ModelUnreadable for a model that exact arithmetic does not cover."""
    if config.parameters > MAX_PARAMETERS:
        raise ModelUnreadable(
            f"the chain executes models of up to {MAX_PARAMETERS} weights, "
            f"this one has {config.parameters}"
        )
    if not config.is_plain:
        raise ModelUnreadable(
            f"the chain executes models of the Llama family, not {config.architecture}"
        )
    frequencies(config.rope, config.head_dim)


def frequencies(rope: Rope, head_dim: int) -> Array:
    """Angle per position for each pair of dimensions: float64 ``[head_dim / 2]``.

    Raises ModelUnreadable for a scaling that exact arithmetic does not support.
    """
    exponents = np.arange(0, head_dim, 2, dtype=np.float64) / head_dim
    plain = exp(-exponents * log(np.array(rope.theta)))
    if rope.kind in (RopeKind.DEFAULT, RopeKind.DYNAMIC):
        return plain
    if rope.kind is RopeKind.LINEAR:
        return plain / rope.factor
    if rope.kind is RopeKind.LLAMA3:
        turns = plain * (rope.trained_context / (2 * math.pi))
        width = rope.high_frequency_factor - rope.low_frequency_factor
        keep = np.clip((turns - rope.low_frequency_factor) / width, 0.0, 1.0)
        return (1.0 - keep) * plain / rope.factor + keep * plain
    raise ModelUnreadable(f"the chain's arithmetic has no RoPE scaling {rope.kind}")


def fixed_rows(matrix: Array) -> Fixed:
    """A matrix ``[out, in]`` as the right operand of a product over ``in``."""
    return fix(matrix, bits_for(matrix.shape[1]))


def _feed_forward(weights: _LayerWeights, hidden: Array) -> Array:
    gate, up = np.split(weights.gate_up(hidden), 2, axis=-1)
    return weights.down(gate * sigmoid(gate) * up)


def _remember(past: ExactCache, layer: int, key: Fixed, value: Fixed) -> tuple[Fixed, Fixed]:
    """Append one layer's new positions; returns the keys and values of all positions."""
    if layer == len(past.layers):
        past.layers.append((key, value))
    else:
        old_key, old_value = past.layers[layer]
        past.layers[layer] = (_append(old_key, key), _append(old_value, value))
    return past.layers[layer]


def _append(old: Fixed, new: Fixed) -> Fixed:
    return Fixed(
        np.concatenate((old.integers, new.integers), axis=1),
        np.concatenate((old.scale, new.scale), axis=1),
    )


def _layers(decoder: Decoder) -> list[Layer]:
    return [layer for layer in decoder.layers if isinstance(layer, Layer)]


def _array(tensor: Tensor) -> Array:
    return tensor.detach().double().numpy().copy()
