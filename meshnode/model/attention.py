"""Attention of new positions to those before, causal or within a window (interface 1).

Terms: row ``i`` of a batch continues the session of ``caches[i]``; a layer with a *window* lets a
position attend to the last ``window`` positions only, itself included.

Invariants: no row's rounding depends on another row, because each is computed by itself; positions
that are computed *stepwise* get the same bits as if each were computed in a step of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from meshnode.model.config import DecoderConfig
from meshnode.model.families import HeadNorms
from meshnode.model.kv import KVCache
from meshnode.model.norm import RMSNorm
from meshnode.model.rope import Rotation


@dataclass(frozen=True, slots=True)
class CacheBatch:
    """The caches of a batch's rows, and what ``seq`` new positions of each attend to.

    ``masks[i]`` is bool ``[seq, length + seq]``, or None if the row attends to all before it.
    ``stepwise`` computes attention position by position, as if each were a step of its own.
    """

    caches: Sequence[KVCache]
    masks: Sequence[Tensor | None]
    window: int | None = None
    stepwise: bool = False

    @classmethod
    def of(
        cls,
        caches: Sequence[KVCache],
        seq: int,
        *,
        window: int | None = None,
        stepwise: bool = False,
    ) -> CacheBatch:
        """The state before ``seq`` new positions are appended to every cache."""
        if seq == 1 or stepwise:
            return cls(caches, [None] * len(caches), window, stepwise=stepwise and seq > 1)
        return cls(caches, [causal_mask(seq, c.length, window) for c in caches], window)


def causal_mask(seq: int, length: int, window: int | None = None) -> Tensor:
    """Which of ``length + seq`` positions each of the last ``seq`` attends to."""
    mask = torch.ones(seq, length + seq, dtype=torch.bool).tril(length)
    return mask if window is None else mask.triu(length - window + 1)


class Attention(nn.Module):
    """Grouped-query attention with rotary positions. Query, key and value share a matrix."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads = config.num_heads, config.num_kv_heads
        self.head_dim = config.head_dim
        self.scale, self.cap = config.attention_scale, config.attention_cap
        width = config.num_heads * config.head_dim
        kv_width = config.num_kv_heads * config.head_dim
        self.qkv = nn.Linear(config.hidden_size, width + 2 * kv_width, bias=config.qkv_bias)
        self.output = nn.Linear(width, config.hidden_size, bias=config.output_bias)
        self.head_norms = config.family.head_norms
        if self.head_norms is not HeadNorms.NONE:
            each = self.head_norms is HeadNorms.EACH
            shifted = config.family.shifted_norms
            sizes = (self.head_dim, self.head_dim) if each else (width, kv_width)
            self.query_norm, self.key_norm = (
                RMSNorm(size, config.norm_eps, shifted=shifted) for size in sizes
            )

    def forward(
        self, hidden: Tensor, rotation: Rotation | None, past: CacheBatch | int | None, layer: int
    ) -> Tensor:
        """``[batch, seq, hidden]`` to the same.

        ``past`` is the batch's caches, in which this layer is at index ``layer``, or without caches
        the layer's window. Without ``rotation`` nothing is rotated.
        """
        batch, seq, _ = hidden.shape
        query, key, value = self._heads(hidden, rotation)
        if not isinstance(past, CacheBatch):
            mask = None if past is None else causal_mask(seq, 0, past)
            mixed = self._attend(query, key, value, mask, causal=mask is None)
        else:
            # Row by row: rows differ in length, and no row's rounding may depend on another row.
            attend = self._attend_stepwise if past.stepwise else self._attend_after
            rows = [
                attend(query[i, None], *cache.append(layer, key[i], value[i]), mask, past.window)
                for i, (cache, mask) in enumerate(zip(past.caches, past.masks, strict=True))
            ]
            mixed = rows[0] if batch == 1 else torch.cat(rows)
        result: Tensor = self.output(mixed.transpose(1, 2).reshape(batch, seq, -1))
        return result

    def _heads(self, hidden: Tensor, rotation: Rotation | None) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value, each ``[batch, heads, seq, head_dim]``."""
        batch, seq, _ = hidden.shape
        joined = self.qkv(hidden)
        heads = joined.view(batch, seq, -1, self.head_dim)
        both = self.num_heads + self.num_kv_heads
        asked = heads[:, :, :both]
        if self.head_norms is HeadNorms.EACH:
            query, key = asked[:, :, : self.num_heads], asked[:, :, self.num_heads :]
            asked = torch.cat((self.query_norm(query), self.key_norm(key)), dim=2)
        elif self.head_norms is HeadNorms.ALL:
            width, stop = self.num_heads * self.head_dim, both * self.head_dim
            query, key = joined[..., :width], joined[..., width:stop]
            normalised = torch.cat((self.query_norm(query), self.key_norm(key)), dim=-1)
            asked = normalised.view(batch, seq, both, self.head_dim)
        rotated = (asked if rotation is None else rotation.apply(asked)).transpose(1, 2)
        query, key = rotated[:, : self.num_heads], rotated[:, self.num_heads :]
        return query, key, heads[:, :, both:].transpose(1, 2)

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        *,
        causal: bool = False,
    ) -> Tensor:
        if self.cap is not None:
            mask = causal_mask(query.shape[2], 0) if causal else mask
            return self._attend_capped(query, key, value, mask, self.cap)
        return functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask,
            is_causal=causal,
            scale=self.scale,
            enable_gqa=self.num_heads != self.num_kv_heads,
        )

    def _attend_capped(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, cap: float
    ) -> Tensor:
        """Attention whose logits are bent to stay within ``cap``."""
        scale = self.head_dim**-0.5 if self.scale is None else self.scale
        batch, _, seq, _ = query.shape
        grouped = query.reshape(batch, self.num_kv_heads, -1, seq, self.head_dim)
        logits = (grouped @ key[:, :, None].transpose(-1, -2)) * scale
        logits = torch.tanh(logits / cap) * cap
        if mask is not None:
            logits = logits.masked_fill(~mask, float("-inf"))
        return (logits.softmax(-1) @ value[:, :, None]).flatten(1, 2)

    def _attend_after(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, window: int | None
    ) -> Tensor:
        """Attention of new positions to all keys, or of one to those in its window."""
        if mask is None and window is not None:
            key, value = key[:, :, -window:], value[:, :, -window:]
        return self._attend(query, key, value, mask)

    def _attend_stepwise(
        self, query: Tensor, key: Tensor, value: Tensor, _: Tensor | None, window: int | None
    ) -> Tensor:
        """Attention, computed for each position with the product that a single step would use."""
        seq, stop = query.shape[2], key.shape[2]
        ends = range(stop - seq + 1, stop + 1)
        positions = [
            self._attend_after(
                query[:, :, i : i + 1], key[:, :, :end], value[:, :, :end], None, window
            )
            for i, end in enumerate(ends)
        ]
        return torch.cat(positions, dim=2)
