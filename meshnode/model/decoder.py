"""A decoder, or a contiguous range of its layers (interface 1, 2.3).

This is what the families of ``model.families`` share; how they differ is in the configuration.
Terms: *hidden states* ``[batch, seq, hidden]`` enter and leave every layer. The holder of layer 0
also holds the embedding, so its input is token ids; the holder of the last layer also holds the
final norm and the head, so its output is logits. Any holder in between maps hidden states to hidden
states.

A decoder can also run any contiguous range of the layers that it holds, for one of several shards.

Invariants: splitting the layers over several decoders does not change a bit of the logits;
positions that are computed *stepwise* get the same bits as if each were computed in a step of its
own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from meshnode.domain.errors import LayerNotHeld
from meshnode.model.accelerator.layers import DeviceLayers
from meshnode.model.accelerator.matrix import DeviceHead
from meshnode.model.attention import Attention, CacheBatch
from meshnode.model.config import DecoderConfig
from meshnode.model.families import Norms
from meshnode.model.feed_forward import feed_forward_of
from meshnode.model.kernels.fused import FusedLayers, PackedMatrix
from meshnode.model.kv import KVCache
from meshnode.model.norm import RMSNorm
from meshnode.model.rope import Rotation
from meshnode.model.rotations import RopeTables


class Layer(nn.Module):
    """One transformer layer: attention, then feed-forward, each normalised and added.

    A family normalises what enters the two, what leaves them, or both.
    """

    def __init__(self, config: DecoderConfig, index: int) -> None:
        super().__init__()
        norms = config.family.norms
        if norms is not Norms.AFTER:
            self.attention_norm = _norm(config)
            self.feed_forward_norm = _norm(config)
        if norms is not Norms.BEFORE:
            self.attention_post_norm = _norm(config)
            self.feed_forward_post_norm = _norm(config)
        self.norms = norms
        self.attention = Attention(config)
        self.feed_forward: Any = feed_forward_of(config, index)

    def forward(
        self, hidden: Tensor, rotation: Rotation | None, past: CacheBatch | int | None, layer: int
    ) -> Tensor:
        """``[batch, seq, hidden]`` to the same. ``past`` and ``layer`` are as in Attention."""
        before, after = self.norms is not Norms.AFTER, self.norms is not Norms.BEFORE
        inner = self.attention_norm(hidden) if before else hidden
        inner = self.attention(inner, rotation, past, layer)
        hidden = hidden + (self.attention_post_norm(inner) if after else inner)
        inner = self.feed_forward(self.feed_forward_norm(hidden) if before else hidden)
        result: Tensor = hidden + (self.feed_forward_post_norm(inner) if after else inner)
        return result


def _norm(config: DecoderConfig) -> RMSNorm:
    return RMSNorm(config.hidden_size, config.norm_eps, shifted=config.family.shifted_norms)


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
        self.layers = nn.ModuleList(Layer(config, index) for index in self.held)
        self.norm = _norm(config) if self.is_last else None
        self.head = (
            nn.Linear(config.hidden_size, config.vocab_size, bias=False) if self.is_last else None
        )
        self.tie_head()
        # Not buffers: they follow from the configuration, so checkpoints do not contain them. They
        # are computed even if the weights are created on the meta device.
        with torch.device("cpu"):
            self.rotations = RopeTables(config)
        self.fused: FusedLayers | DeviceLayers | None = None
        """The layers in compiled kernels or on a device, once packed so; ``layers`` are empty."""
        self.cache_dtype = torch.float32
        """The type of keys and values."""

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
        Results are on the device that computes.

        Returns float32 logits ``[batch, seq, vocab]`` from the holder of the last layer (only
        those of the last position, ``[batch, 1, vocab]``, with ``last_only``), else hidden states.
        """
        return self.run(self.held, inputs, caches, last=1 if last_only else None)

    def run(
        self,
        layers: range,
        inputs: Tensor,
        caches: Sequence[KVCache] | None = None,
        *,
        last: int | None = None,
        stepwise: bool = False,
    ) -> Tensor:
        """Run ``layers``, which are some of those held, as ``forward`` runs all of them.

        Inputs are token ids if ``layers`` begin with the first of the model, outputs are logits if
        they end with the last: those of the ``last`` so many positions, or of all. The caches have
        ``len(layers)`` layers. ``stepwise`` is for replay. Raises LayerNotHeld.
        """
        if layers.start not in self.held or layers[-1] not in self.held:
            raise LayerNotHeld(f"layers {layers.start} to {layers[-1]} are not all held here")
        hidden = self._embed(inputs) if layers.start == 0 else inputs
        first = layers.start - self.held.start
        hidden = self.transform(
            hidden, caches, range(first, first + len(layers)), stepwise=stepwise
        )
        if layers.stop < self.config.num_layers:
            return hidden
        if last == 1:
            return self.predict(hidden[:, -1:])
        if last is None or hidden.shape[0] > 1:
            return self.predict(hidden if last is None else hidden[:, hidden.shape[1] - last :])
        if last == 0:
            return hidden.new_empty(1, 0, self.config.vocab_size)
        # Each position a row of its own, as in a step of so many sessions: the same bits as alone.
        return self.predict(hidden[0, hidden.shape[1] - last :, None]).transpose(0, 1)

    def run_ragged(self, tokens: Sequence[Tensor], caches: Sequence[KVCache]) -> Tensor:
        """Run all layers on several sessions, each continued by ``tokens[i]`` int64 ``[seq]``.

        Needs layers in compiled kernels or on a device. Returns logits ``[sessions, vocab]`` of the
        last position of each.
        """
        if self.fused is None:
            raise RuntimeError("sessions of different lengths need compiled kernels")
        counts = [len(each) for each in tokens]
        hidden = self._embed(torch.cat(list(tokens)))
        hidden = self.fused.run(hidden, caches, counts, range(len(self.held)))
        for cache, count in zip(caches, counts, strict=True):
            cache.advance(count)
        return self.predict(hidden[torch.tensor(counts).cumsum(0) - 1])

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
        if self.fused is not None:
            return self.fused.transform(hidden, caches, layer_indices)
        starts = torch.tensor([[cache.length] for cache in caches] if caches else [[0]])
        rotations = self.rotations.at(starts + torch.arange(seq))
        window = self.config.window
        pasts: dict[bool, CacheBatch | int | None] = {False: None, True: window}
        if caches:
            pasts[False] = CacheBatch.of(caches, seq, stepwise=stepwise)
            if window is not None:
                pasts[True] = CacheBatch.of(caches, seq, window=window, stepwise=stepwise)
        for index, layer_index in enumerate(layer_indices):
            kind = self.config.kind(self.held[layer_index])
            layer = self.layers[layer_index]
            hidden = layer(hidden, rotations.of(kind), pasts[kind.windowed], index)
        for cache in caches or ():
            cache.advance(seq)
        return hidden

    def predict(self, hidden: Tensor) -> Tensor:
        """Logits ``[..., vocab]`` of the last layer's ``[..., hidden]``. Raises LayerNotHeld."""
        if self.norm is None or self.head is None:
            raise LayerNotHeld("the model's head is not held here")
        if isinstance(self.head, DeviceHead):
            logits: Tensor = self.head(hidden)
        elif isinstance(self.head, PackedMatrix):
            logits = self.head.normed(hidden, self.norm.weight, self.norm.eps)
        else:
            logits = self.head(self.norm(hidden))
        cap = self.config.logit_cap
        if cap is None:
            return logits
        if logits.device.type != "cpu":
            return torch.tanh(logits / cap) * cap
        # Row by row: what an element's function returns may depend on where it stands in a tensor.
        return torch.stack([torch.tanh(row / cap) * cap for row in logits])

    def new_cache(self, num_layers: int, capacity: int) -> KVCache:
        """An empty cache of one session for some of the held layers, where they compute."""
        if isinstance(self.fused, DeviceLayers):
            return self.fused.new_cache(num_layers, capacity)
        return KVCache.allocate(self.config, num_layers, capacity, self.cache_dtype)

    def _embed(self, tokens: Tensor) -> Tensor:
        if self.embedding is None:
            raise LayerNotHeld("the model's embedding is not held here")
        embedded: Tensor = self.embedding(tokens)
        scale = self.config.embedding_scale
        return embedded if scale == 1.0 else embedded * scale

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator | None = None) -> None:
        """Initialise the weights: normal with the configured deviation; norms 1, biases 0.

        Matrices that write to the residual stream are scaled down by the square root of the number
        of writes, so that its variance does not grow with depth.
        """
        deviation = self.config.initializer_range
        for name, parameter in self.named_parameters():
            if parameter.dim() == 1:
                zero = name.endswith("bias") or self.config.family.shifted_norms
                parameter.fill_(0.0 if zero else 1.0)
            else:
                writes = name.endswith(("attention.output.weight", "feed_forward.down.weight"))
                scale = (2 * self.config.num_layers) ** -0.5 if writes else 1.0
                parameter.normal_(0.0, deviation * scale, generator=generator)
