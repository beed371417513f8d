"""The layers of a decoder on a device, one call for the rows of a step (decision 0229).

The interface is that of ``kernels.fused.FusedLayers``, and so are the terms: a *row* is one
position of one session; rows of a session are consecutive.

Invariants: a row's results depend on its session's inputs up to its position alone, to the bit, as
far as the probes of ``model.invariance`` find that the device keeps to it; hidden states are
float32 on the device from the first layer to the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from meshnode.model.accelerator.attention import GROUP_ROWS, PagedAttention, StepPlan, plan_step
from meshnode.model.accelerator.device import Accelerator
from meshnode.model.accelerator.feed_forward import DeviceExperts, DeviceFeedForward
from meshnode.model.accelerator.graphs import recordings_for
from meshnode.model.accelerator.matrix import DeviceMatrix
from meshnode.model.accelerator.pool import BLOCK, KVPool, PagedCache
from meshnode.model.accelerator.tiles import agreeing_sizes, padded, padded_count, tiled
from meshnode.model.config import DecoderConfig
from meshnode.model.families import HeadNorms, LayerKind
from meshnode.model.kernels.fused import RotationTable
from meshnode.model.kv import KVCache
from meshnode.model.rope import Rotation

MAX_TILED_OUTPUTS = 65536
"""Heads have more outputs. They are computed for a few rows a step, always in the base number."""


@dataclass(frozen=True, slots=True)
class DeviceLayer:
    """The weights of one layer. Norms are float32 ``[size]`` by their names in ``Layer``."""

    kind: LayerKind
    qkv: DeviceMatrix
    output: DeviceMatrix
    feed_forward: DeviceFeedForward | DeviceExperts
    norms: dict[str, Tensor] = field(repr=False)

    @property
    def matrices(self) -> tuple[DeviceMatrix, ...]:
        """All its matrices."""
        return self.qkv, self.output, *self.feed_forward.matrices

    @property
    def nbytes(self) -> int:
        """Device memory that its weights take."""
        norms = sum(norm.nbytes for norm in self.norms.values())
        return norms + sum(matrix.nbytes for matrix in self.matrices)


class DeviceRotations:
    """Cosines and sines of all positions on the device, filled as needed."""

    def __init__(self, table: RotationTable, device: torch.device) -> None:
        self._table = table
        self._rows = torch.zeros_like(table.rows, device=device)
        self._filled = 0

    def reach(self, stop: int) -> None:
        """Fill the rows of all positions below ``stop``."""
        if stop > self._filled:
            filled = self._table.reach(stop)
            self._rows[self._filled : filled] = self._table.rows[self._filled : filled]
            self._filled = filled

    def at(self, positions: Tensor) -> Rotation:
        """The rotation at ``positions`` ``[R]``, for heads ``[R, heads, head_dim]``."""
        cosine, sine = self._rows[positions][:, None].chunk(2, dim=-1)
        return Rotation(torch.cat((cosine, cosine), -1), torch.cat((-sine, sine), -1))


class DeviceLayers:
    """Some layers of a model on a device."""

    def __init__(
        self, config: DecoderConfig, where: Accelerator, tables: Sequence[RotationTable]
    ) -> None:
        """``tables`` are the rotations of all layers and, if they have others, of windowed ones."""
        self.where = where
        # Which experts compute is known only when their router has computed.
        self.recordings = recordings_for(where.device) if config.experts is None else None
        """Steps of one position for each session, recorded where the device can."""
        self.layer_bytes: list[int] = []
        """Memory that each layer's weights take."""
        self._config = config
        self._layers: list[DeviceLayer] = []
        self._attention = PagedAttention(config)
        self._rotations = [DeviceRotations(table, where.device) for table in tables]
        self._norm_sizes: dict[tuple[int, ...], list[int]] = {}
        self._matrix_sizes: dict[tuple[object, ...], list[int]] = {}
        self._pool: KVPool | None = None

    @property
    def shapes(self) -> frozenset[tuple[object, ...]]:
        """Format and shape of the matrices: what kernels are chosen by, besides rows."""
        return frozenset(self._matrix_sizes)

    @property
    def pool(self) -> KVPool:
        """The memory for keys and values. Raises RuntimeError before ``finish``."""
        if self._pool is None:
            raise RuntimeError("the layers are not complete")
        return self._pool

    def add(self, layer: DeviceLayer) -> None:
        """Append the next layer."""
        self._layers.append(layer)
        self.layer_bytes.append(layer.nbytes)
        for matrix in layer.matrices:
            self.prepare(matrix)

    def prepare(self, matrix: DeviceMatrix) -> None:
        """Find the numbers of rows that a product may have, once for each shape."""
        base = self.where.base_rows
        shape = matrix.format, matrix.outputs, matrix.inputs
        if matrix.outputs > MAX_TILED_OUTPUTS:
            self._matrix_sizes[shape] = [base]
        if shape not in self._matrix_sizes:
            probe = partial(self._random, matrix.inputs)
            self._matrix_sizes[shape] = agreeing_sizes(matrix.product, base, probe)
        matrix.sizes = self._matrix_sizes[shape]

    def finish(self, cache_dtype: torch.dtype) -> None:
        """All layers are there: make the memory for keys and values, and probe attention."""
        device = self.where.device
        self._pool = KVPool(self._config, len(self._layers), cache_dtype, device)
        self._attention.sizes = self._agreeing_pairs(cache_dtype)

    def share(self, pool: KVPool) -> None:
        """Use the memory for keys and values of another version, which must fit. ValueError."""
        ours, theirs = self.pool.storage, pool.storage
        if ours.dtype != theirs.dtype or ours.shape[0] != theirs.shape[0]:
            raise ValueError("it keeps other keys and values than the version that is served")
        self._pool = pool

    def new_cache(self, num_layers: int, capacity: int) -> PagedCache:
        """An empty cache of one session. Raises PoolEmpty."""
        return PagedCache(self.pool, num_layers, capacity)

    def transform(self, hidden: Tensor, caches: Sequence[KVCache] | None, layers: range) -> Tensor:
        """As ``Decoder.transform``: ``[batch, seq, hidden]`` to the same, on the device."""
        batch, seq, size = hidden.shape
        if caches is None:
            caches = [self.new_cache(len(layers), seq) for _ in range(batch)]
        result = self.run(hidden.reshape(-1, size), caches, [seq] * batch, layers)
        for cache in caches:
            cache.advance(seq)
        return result.view(batch, seq, size)

    def run(
        self, hidden: Tensor, caches: Sequence[KVCache], counts: Sequence[int], layers: range
    ) -> Tensor:
        """Run ``layers`` on ``hidden`` ``[rows, hidden]``: ``counts[i]`` rows of ``caches[i]``.

        Appends to the caches, whose lengths do not change. Raises CacheFull, and what torch raises
        when the device has no memory left.
        """
        rows, device = hidden.shape[0], self.where.device
        paged = [cache for cache in caches if isinstance(cache, PagedCache)]
        for cache, count in zip(paged, counts, strict=True):
            cache.require(cache.length + count)
        whole = padded_count(rows, self.where.base_rows)
        plan = plan_step(
            paged,
            counts,
            rows=whole,
            base_pairs=self.where.base_items,
            window=self._config.window,
            device=device,
        )
        longest = max(cache.length + count for cache, count in zip(paged, counts, strict=True))
        for table in self._rotations:
            table.reach(longest)
        states = padded(hidden.detach().to(device=device, dtype=torch.float32), whole)
        through = partial(self._through, layers)
        if self.recordings is None or rows > len(caches):
            return through(states, plan)[:rows]
        about = layers, self.pool.storage.data_ptr()
        return self.recordings.run(through, states, plan, about)[:rows]

    def _through(self, layers: range, states: Tensor, plan: StepPlan) -> Tensor:
        """``[R, hidden]`` to the same."""
        rotations = [table.at(plan.positions) for table in self._rotations]
        for place, index in enumerate(layers):
            layer = self._layers[index]
            rotation = rotations[-1 if layer.kind.windowed else 0] if layer.kind.rotated else None
            storage = self.pool.storage[place]
            inner = self._normed(layer, "attention_norm", states)
            inner = self._attend(layer, inner, rotation, storage, plan)
            states = states + self._normed(layer, "attention_post_norm", inner)
            inner = self._normed(layer, "feed_forward_norm", states)
            inner = layer.feed_forward(inner, plan.count)
            states = states + self._normed(layer, "feed_forward_post_norm", inner)
        return states

    def _attend(
        self,
        layer: DeviceLayer,
        states: Tensor,
        rotation: Rotation | None,
        storage: Tensor,
        plan: StepPlan,
    ) -> Tensor:
        config = self._config
        joined = layer.qkv(states)
        both = config.num_heads + config.num_kv_heads
        if config.family.head_norms is HeadNorms.ALL:
            widths = config.num_heads, config.num_kv_heads, config.num_kv_heads
            split = torch.split(joined, [count * config.head_dim for count in widths], dim=-1)
            query, key, value = split
            query = self._normed(layer, "q_norm", query.contiguous())
            key = self._normed(layer, "k_norm", key.contiguous())
            joined = torch.cat((query, key, value), dim=-1)
        heads = joined.view(len(joined), -1, config.head_dim)
        asked, value = heads[:, :both], heads[:, both:]
        if config.family.head_norms is HeadNorms.EACH:
            query, key = asked[:, : config.num_heads], asked[:, config.num_heads :]
            query = self._normed(layer, "q_norm", query.contiguous())
            key = self._normed(layer, "k_norm", key.contiguous())
            asked = torch.cat((query, key), dim=1)
        if rotation is not None:
            asked = rotation.apply(asked)
        query, key = asked[:, : config.num_heads], asked[:, config.num_heads :]
        # Keys and values of padding go to block 0, which no session has.
        storage[plan.blocks, 0, :, plan.offsets] = key.to(storage.dtype)
        storage[plan.blocks, 1, :, plan.offsets] = value.to(storage.dtype)
        return layer.output(self._attention(query, storage, plan, windowed=layer.kind.windowed))

    def _normed(self, layer: DeviceLayer, name: str, states: Tensor) -> Tensor:
        """``[R, ..., size]`` after the norm, if the layer has it."""
        weight = layer.norms.get(name)
        if weight is None:
            return states
        norm = self._norm(weight)
        shape = tuple(states.shape[1:])
        if shape not in self._norm_sizes:

            def probe(count: int) -> Tensor:
                return self._random(states[0].numel(), count).view(count, *shape)

            self._norm_sizes[shape] = agreeing_sizes(norm, self.where.base_rows, probe)
        return tiled(norm, states, self._norm_sizes[shape])

    def _norm(self, weight: Tensor) -> Callable[[Tensor], Tensor]:
        return partial(
            functional.rms_norm,
            normalized_shape=weight.shape,
            weight=weight,
            eps=self._config.norm_eps,
        )

    def _random(self, width: int, count: int) -> Tensor:
        generator = torch.Generator().manual_seed(count)
        return torch.randn(count, width, generator=generator).to(self.where.device)

    def _agreeing_pairs(self, dtype: torch.dtype) -> list[int]:
        """The numbers of pairs that attention may compute at once."""
        config, base = self._config, self.where.base_items
        rows = GROUP_ROWS * (config.num_heads // config.num_kv_heads)
        query = (config.num_kv_heads, rows, config.head_dim)
        keys = (2, config.num_kv_heads, BLOCK, config.head_dim)
        widths = [torch.Size(shape).numel() for shape in (query, keys)]

        def of_pairs(both: Tensor) -> Tensor:
            asking, held = torch.split(both, widths, dim=-1)
            held = held.view(-1, *keys).to(dtype)
            allowed = torch.ones(len(both), GROUP_ROWS, BLOCK, dtype=torch.bool, device=both.device)
            parts = self._attention.of_pairs(
                asking.reshape(-1, *query), held, allowed.tril(BLOCK // 2)
            )
            return torch.cat([each.flatten(1) for each in parts], dim=-1)

        return agreeing_sizes(of_pairs, base, partial(self._random, sum(widths)))
