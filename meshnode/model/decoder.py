"""A decoder of the Llama family, or a contiguous range of its layers (interface 1, 2.3).

Reads from top to bottom: normalisation, attention, feed-forward, layer, decoder. Terms: *hidden
states* ``[batch, seq, hidden]`` enter and leave every layer. The holder of layer 0 also holds the
embedding, so its input is token ids; the holder of the last layer also holds the final norm and
the head, so its output is logits. Any holder in between maps hidden states to hidden states.

A decoder can also run any contiguous range of the layers that it holds, for one of several shards.

Invariants: splitting the layers over several decoders does not change a bit of the logits;
positions that are computed *stepwise* get the same bits as if each were computed in a step of its
own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from meshnode.domain.errors import LayerNotHeld
from meshnode.model.config import DecoderConfig
from meshnode.model.kv import KVCache
from meshnode.model.rope import Rotation


class RMSNorm(nn.Module):
    """Scale to unit root mean square, then by a learned weight."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, hidden: Tensor) -> Tensor:
        """Normalise the last dimension."""
        return functional.rms_norm(hidden, self.weight.shape, self.weight, self.eps)


@dataclass(frozen=True, slots=True)
class CacheBatch:
    """The caches of a batch's rows: row ``i`` continues ``caches[i]``.

    ``masks[i]`` is bool ``[seq, length + seq]``, or None if the row attends to all before it.
    ``stepwise`` computes attention position by position, as if each were a step of its own.
    """

    caches: Sequence[KVCache]
    masks: Sequence[Tensor | None]
    stepwise: bool = False

    @classmethod
    def of(cls, caches: Sequence[KVCache], seq: int, *, stepwise: bool = False) -> CacheBatch:
        """The state before ``seq`` new positions are appended to every cache."""
        if seq == 1 or stepwise:
            return cls(caches, [None] * len(caches), stepwise=stepwise and seq > 1)
        return cls(
            caches,
            [torch.ones(seq, c.length + seq, dtype=torch.bool).tril(c.length) for c in caches],
        )


class Attention(nn.Module):
    """Causal grouped-query attention with rotary positions. Query, key and value share a matrix."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads = config.num_heads, config.num_kv_heads
        self.head_dim = config.head_dim
        width = config.num_heads * config.head_dim
        kv_width = config.num_kv_heads * config.head_dim
        self.qkv = nn.Linear(config.hidden_size, width + 2 * kv_width, bias=config.qkv_bias)
        self.output = nn.Linear(width, config.hidden_size, bias=config.output_bias)

    def forward(
        self, hidden: Tensor, rotation: Rotation, past: CacheBatch | None, layer: int
    ) -> Tensor:
        """``[batch, seq, hidden]`` to the same. ``layer`` is its index in the caches."""
        batch, seq, _ = hidden.shape
        heads = self.qkv(hidden).view(batch, seq, -1, self.head_dim)
        rotated = rotation.apply(heads[:, :, : self.num_heads + self.num_kv_heads]).transpose(1, 2)
        query, key = rotated[:, : self.num_heads], rotated[:, self.num_heads :]
        value = heads[:, :, self.num_heads + self.num_kv_heads :].transpose(1, 2)
        if past is None:
            mixed = self._attend(query, key, value, None, causal=True)
        else:
            # Row by row: rows differ in length, and no row's rounding may depend on another row.
            attend = self._attend_stepwise if past.stepwise else self._attend
            rows = [
                attend(query[i, None], *cache.append(layer, key[i], value[i]), mask)
                for i, (cache, mask) in enumerate(zip(past.caches, past.masks, strict=True))
            ]
            mixed = rows[0] if batch == 1 else torch.cat(rows)
        result: Tensor = self.output(mixed.transpose(1, 2).reshape(batch, seq, -1))
        return result

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        *,
        causal: bool = False,
    ) -> Tensor:
        return functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask,
            is_causal=causal,
            enable_gqa=self.num_heads != self.num_kv_heads,
        )

    def _attend_stepwise(
        self, query: Tensor, key: Tensor, value: Tensor, _: Tensor | None
    ) -> Tensor:
        """Attention, computed for each position with the product that a single step would use."""
        seq, stop = query.shape[2], key.shape[2]
        ends = range(stop - seq + 1, stop + 1)
        positions = [
            self._attend(query[:, :, i : i + 1], key[:, :, :end], value[:, :, :end], None)
            for i, end in enumerate(ends)
        ]
        return torch.cat(positions, dim=2)


class FeedForward(nn.Module):
    """SwiGLU. Gate and up projection share a matrix."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.gate_up = nn.Linear(
            config.hidden_size, 2 * config.intermediate_size, bias=config.mlp_bias
        )
        self.down = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.mlp_bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """``[batch, seq, hidden]`` to the same."""
        gate, up = self.gate_up(hidden).chunk(2, dim=-1)
        result: Tensor = self.down(functional.silu(gate) * up)
        return result


class Layer(nn.Module):
    """One transformer layer: attention, then feed-forward, each normalised and added."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.attention = Attention(config)
        self.feed_forward_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.feed_forward = FeedForward(config)

    def forward(
        self, hidden: Tensor, rotation: Rotation, past: CacheBatch | None, layer: int
    ) -> Tensor:
        """``[batch, seq, hidden]`` to the same. ``layer`` is its index in the caches."""
        hidden = hidden + self.attention(self.attention_norm(hidden), rotation, past, layer)
        result: Tensor = hidden + self.feed_forward(self.feed_forward_norm(hidden))
        return result


def _embedding(config: DecoderConfig) -> nn.Embedding:
    # This skips the usual initialisation, which on the meta device imports torch's compiler, at a
    # cost of a second and 70 MB.
    rows, columns = config.vocab_size, config.hidden_size
    return nn.Embedding(rows, columns, _weight=torch.empty(rows, columns))


class Decoder(nn.Module):
    """The layers ``held`` of a model. The first has the embedding, the last the head."""

    def __init__(self, config: DecoderConfig, held: range | None = None) -> None:
        super().__init__()
        self.config = config
        self.held = range(config.num_layers) if held is None else held
        self.embedding = _embedding(config) if self.is_first else None
        self.layers = nn.ModuleList(Layer(config) for _ in self.held)
        self.norm = RMSNorm(config.hidden_size, config.norm_eps) if self.is_last else None
        self.head = (
            nn.Linear(config.hidden_size, config.vocab_size, bias=False) if self.is_last else None
        )
        self.tie_head()
        # Not a buffer: it follows from the configuration, so checkpoints do not contain it. It is
        # computed even if the weights are created on the meta device.
        with torch.device("cpu"):
            self.frequencies = config.rope.frequencies(config.head_dim)
        self.magnitude = config.rope.magnitude()

    @property
    def is_first(self) -> bool:
        """Whether the input is token ids."""
        return self.held.start == 0

    @property
    def is_last(self) -> bool:
        """Whether the output is logits."""
        return self.held.stop == self.config.num_layers

    def tie_head(self) -> None:
        """Share the embedding's matrix with the head if the model ties them and both are held."""
        if self.config.tied_head and self.embedding is not None and self.head is not None:
            self.head.weight = self.embedding.weight

    def forward(
        self, inputs: Tensor, caches: Sequence[KVCache] | None = None, *, last_only: bool = False
    ) -> Tensor:
        """Run the held layers.

        ``inputs`` is int64 token ids ``[batch, seq]`` for the holder of layer 0, else float32
        hidden states ``[batch, seq, hidden]``. Row ``i`` continues the session of ``caches[i]``,
        which then holds ``seq`` more positions; without caches every row starts at position 0.

        Returns float32 logits ``[batch, seq, vocab]`` from the holder of the last layer (only
        those of the last position, ``[batch, 1, vocab]``, with ``last_only``), else hidden states.
        """
        return self.run(self.held, inputs, caches, last_only=last_only)

    def run(
        self,
        layers: range,
        inputs: Tensor,
        caches: Sequence[KVCache] | None = None,
        *,
        last_only: bool = False,
        stepwise: bool = False,
    ) -> Tensor:
        """Run ``layers``, which are some of those held, as ``forward`` runs all of them.

        Inputs are token ids if ``layers`` begin with the first of the model, outputs are logits if
        they end with the last. The caches have ``len(layers)`` layers. ``stepwise`` is for replay.
        Raises LayerNotHeld.
        """
        if layers.start not in self.held or layers[-1] not in self.held:
            raise LayerNotHeld(f"layers {layers.start} to {layers[-1]} are not all held here")
        hidden = self.embedding(inputs) if self.embedding and layers.start == 0 else inputs
        first = layers.start - self.held.start
        hidden = self.transform(
            hidden, caches, range(first, first + len(layers)), stepwise=stepwise
        )
        if layers.stop < self.config.num_layers:
            return hidden
        return self.predict(hidden[:, -1:] if last_only else hidden)

    def transform(
        self,
        hidden: Tensor,
        caches: Sequence[KVCache] | None,
        layer_indices: range,
        *,
        stepwise: bool = False,
    ) -> Tensor:
        """Run the held layers at ``layer_indices``, counted from 0, on ``[batch, seq, hidden]``."""
        seq = hidden.shape[1]
        starts = torch.tensor([[cache.length] for cache in caches] if caches else [[0]])
        rotation = Rotation.at(starts + torch.arange(seq), self.frequencies, self.magnitude)
        past = CacheBatch.of(caches, seq, stepwise=stepwise) if caches else None
        for index, layer_index in enumerate(layer_indices):
            hidden = self.layers[layer_index](hidden, rotation, past, index)
        for cache in caches or ():
            cache.advance(seq)
        return hidden

    def predict(self, hidden: Tensor) -> Tensor:
        """Logits ``[..., vocab]`` of the last layer's ``[..., hidden]``. Raises LayerNotHeld."""
        if self.norm is None or self.head is None:
            raise LayerNotHeld("the model's head is not held here")
        logits: Tensor = self.head(self.norm(hidden))
        return logits

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator | None = None) -> None:
        """Initialise the weights: normal with the configured deviation; norms 1, biases 0.

        Matrices that write to the residual stream are scaled down by the square root of the number
        of writes, so that its variance does not grow with depth.
        """
        deviation = self.config.initializer_range
        for name, parameter in self.named_parameters():
            if parameter.dim() == 1:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
            else:
                writes = name.endswith(("attention.output.weight", "feed_forward.down.weight"))
                scale = (2 * self.config.num_layers) ** -0.5 if writes else 1.0
                parameter.normal_(0.0, deviation * scale, generator=generator)
