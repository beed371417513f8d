"""From a decoder's modules to layers on a device, one at a time (decision 0229).

The interface is that of ``kernels.lowering.Fusion``. Weights go to the device as they are read, so
the host's memory has one block of one matrix at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from torch import Tensor, nn

from meshnode.model.accelerator.device import Accelerator
from meshnode.model.accelerator.feed_forward import DeviceExperts, DeviceFeedForward
from meshnode.model.accelerator.layers import DeviceLayer, DeviceLayers
from meshnode.model.accelerator.matrix import DeviceEmbedding, DeviceHead, DeviceMatrix
from meshnode.model.decoder import Decoder, Layer
from meshnode.model.feed_forward import SparseFeedForward
from meshnode.model.kernels.formats import Format, Rows, chosen
from meshnode.model.kernels.fused import RotationTable
from meshnode.model.kernels.lowering import cache_dtype
from meshnode.model.kernels.rows import TensorRows
from meshnode.model.norm import RMSNorm

_NORMS = {
    "attention_norm": "attention_norm",
    "attention_post_norm": "attention_post_norm",
    "feed_forward_norm": "feed_forward_norm",
    "feed_forward_post_norm": "feed_forward_post_norm",
    "attention.query_norm": "q_norm",
    "attention.key_norm": "k_norm",
}


class Placing:
    """Moves a decoder to a device layer by layer."""

    def __init__(self, decoder: Decoder, form: Format | None, where: Accelerator) -> None:
        """``form`` is that of all matrices; None keeps each as narrow as it exactly fits."""
        config = decoder.config
        self._decoder, self._form, self._where = decoder, form, where
        tables = [
            RotationTable(rope.frequencies, rope.magnitude, config.context_length)
            for rope in (decoder.rotations.everywhere, decoder.rotations.windowed)
            if rope is not None
        ]
        self._placed = DeviceLayers(config, where, tables)
        self._forms: set[Format] = set()

    def layer(self, index: int, stored: Mapping[str, Rows]) -> None:
        """Move the next layer, at ``index`` among those held, and free its weights.

        Matrices that are not ``stored`` under their parameter's name are those of the decoder.
        """
        layer = self._decoder.layers[index]
        assert isinstance(layer, Layer)  # noqa: S101 - it is placed only once
        matrix = partial(self._matrix, layer, f"layers.{index}.", stored)
        self._placed.add(
            DeviceLayer(
                kind=self._decoder.config.kind(self._decoder.held[index]),
                qkv=matrix("attention.qkv"),
                output=matrix("attention.output"),
                feed_forward=self._feed_forward(layer, matrix),
                norms=self._norms(layer),
            )
        )
        self._decoder.layers[index] = nn.Identity()

    def finish(self, stored: Mapping[str, Rows]) -> None:
        """Move embedding and head; where they share their weights, once. Put all in place.

        They are set by name, because they replace modules of other types.
        """
        decoder, device, matrix = self._decoder, self._where.device, None
        if decoder.embedding is not None:
            rows = stored.get("embedding.weight") or TensorRows(decoder.embedding.weight)
            matrix = self._table(rows)
            setattr(decoder, "embedding", DeviceEmbedding(matrix, device))  # noqa: B010
        if decoder.head is not None and decoder.norm is not None:
            if not (decoder.config.tied_head and matrix is not None):
                rows = stored.get("head.weight") or TensorRows(decoder.head.weight)
                matrix = self._table(rows)
            assert matrix is not None  # noqa: S101 - tied to the embedding, or made just now
            norm, eps = self._weight(decoder.norm), decoder.norm.eps
            head = DeviceHead(matrix, norm, eps, self._where.base_rows)
            setattr(decoder, "head", head)  # noqa: B010
        decoder.cache_dtype = cache_dtype(self._forms)
        self._placed.finish(decoder.cache_dtype)
        decoder.fused = self._placed

    def _matrix(
        self, layer: Layer, prefix: str, stored: Mapping[str, Rows], name: str
    ) -> DeviceMatrix:
        linear = layer.get_submodule(name)
        assert isinstance(linear, nn.Linear)  # noqa: S101 - the layer is made so
        rows = stored.get(f"{prefix}{name}.weight") or TensorRows(linear.weight)
        return DeviceMatrix(rows, self._choose(rows), self._where.device, linear.bias)

    def _feed_forward(
        self, layer: Layer, matrix: Callable[[str], DeviceMatrix]
    ) -> DeviceFeedForward | DeviceExperts:
        config = self._decoder.config

        def gated(name: str) -> DeviceFeedForward:
            both, down = matrix(f"{name}.gate_up"), matrix(f"{name}.down")
            return DeviceFeedForward(both, down, config.activation)

        if config.experts is None or not isinstance(layer.feed_forward, SparseFeedForward):
            return gated("feed_forward")
        experts = [gated(f"feed_forward.experts.{i}") for i in range(config.experts.count)]
        router, base = matrix("feed_forward.router"), self._where.base_rows
        return DeviceExperts(router, experts, config.experts, base)

    def _table(self, rows: Rows) -> DeviceMatrix:
        matrix = DeviceMatrix(rows, self._choose(rows), self._where.device)
        self._placed.prepare(matrix)
        return matrix

    def _choose(self, weight: Rows) -> Format:
        form = chosen(weight, self._form)
        self._forms.add(form)
        return form

    def _norms(self, layer: Layer) -> dict[str, Tensor]:
        modules = dict(layer.named_modules())
        found = {ours: modules.get(name) for name, ours in _NORMS.items()}
        return {
            name: self._weight(norm) for name, norm in found.items() if isinstance(norm, RMSNorm)
        }

    def _weight(self, norm: RMSNorm) -> Tensor:
        norm.pack()
        return norm.weight.detach().float().to(self._where.device)
