"""From a decoder's modules to packed layers: which decoders can be fused, and how.

This is the only module of the kernels that knows the decoder. What it cannot express stays in
torch's operators; nothing else depends on which of the two computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn

from meshnode.model.decoder import Decoder, Layer
from meshnode.model.families import Activation, HeadNorms, LayerKind
from meshnode.model.kernels.formats import Format, Rows, chosen
from meshnode.model.kernels.fused import (
    FusedLayers,
    PackedEmbedding,
    PackedMatrix,
    RotationTable,
    packed,
)
from meshnode.model.kernels.library import LANES, LayerStruct, Library, Matrix, MatrixStruct
from meshnode.model.kernels.rows import TensorRows
from meshnode.model.norm import RMSNorm


def can_fuse(decoder: Decoder) -> bool:
    """Whether the kernels can compute all layers of this decoder."""
    config = decoder.config
    dense = all(type(layer) is Layer for layer in decoder.layers) and config.experts is None
    return dense and config.head_dim % LANES == 0


class Fusion:
    """Packs a decoder layer by layer, which keeps the peak of memory low."""

    def __init__(self, decoder: Decoder, form: Format | None, library: Library) -> None:
        """``form`` is that of all matrices; None keeps each as narrow as it exactly fits."""
        self._decoder, self._form, self._library = decoder, form, library
        config = decoder.config
        tables = [
            RotationTable(rope.frequencies, rope.magnitude, config.context_length)
            for rope in (decoder.rotations.everywhere, decoder.rotations.windowed)
            if rope is not None
        ]
        self._local_table = len(tables) - 1
        """The table of windowed layers, which may be that of all."""
        self._fused = FusedLayers(config, library, tables)
        self._forms: set[Format] = set()

    def layer(self, index: int, stored: Mapping[str, Rows]) -> None:
        """Pack the next layer, at ``index`` among those held, and free its weights.

        Matrices that are not ``stored`` under their parameter's name are those of the decoder.
        """
        config, layer = self._decoder.config, self._decoder.layers[index]
        assert isinstance(layer, Layer)  # noqa: S101 - can_fuse has said so
        kind = config.kind(self._decoder.held[index])
        self._fused.add(self._struct(layer, f"layers.{index}.", kind, stored))
        self._decoder.layers[index] = nn.Identity()

    def finish(self, stored: Mapping[str, Rows]) -> None:
        """Pack embedding and head; where they share their weights, once. Put all in place.

        They are set by name, because they replace modules of other types.
        """
        decoder = self._decoder
        embedding, head, matrix = decoder.embedding, decoder.head, None
        if embedding is not None:
            rows = stored.get("embedding.weight") or TensorRows(embedding.weight)
            matrix = packed(self._library, rows, None, self._choose(rows))
            setattr(decoder, "embedding", PackedEmbedding(self._library, matrix))  # noqa: B010
        if head is not None:
            if not (decoder.config.tied_head and matrix is not None):
                rows = stored.get("head.weight") or TensorRows(head.weight)
                matrix = packed(self._library, rows, None, self._choose(rows))
            assert matrix is not None  # noqa: S101 - tied to the embedding, or packed just now
            setattr(decoder, "head", PackedMatrix(self._library, matrix))  # noqa: B010
        if decoder.norm is not None:
            decoder.norm.pack()
        decoder.fused = self._fused
        decoder.cache_dtype = cache_dtype(self._forms)

    def _choose(self, weight: Rows) -> Format:
        form = chosen(weight, self._form)
        self._forms.add(form)
        return form

    def _struct(
        self, layer: Layer, prefix: str, kind: LayerKind, stored: Mapping[str, Rows]
    ) -> LayerStruct:
        config, fused = self._decoder.config, self._fused

        def struct(name: str, pack: Callable[..., Matrix] = fused.matrix) -> MatrixStruct:
            linear = layer.get_submodule(name)
            assert isinstance(linear, nn.Linear)  # noqa: S101 - the layer is made so
            rows = stored.get(f"{prefix}{name}.weight") or TensorRows(linear.weight)
            return pack(rows, linear.bias, self._choose(rows)).struct

        return LayerStruct(
            **self._norms(layer),
            qkv=struct("attention.qkv"),
            output=struct("attention.output"),
            gate_up=struct("feed_forward.gate_up", fused.gated),
            down=struct("feed_forward.down"),
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            rotary_dim=config.rotary_dim,
            window=(config.window or 0) if kind.windowed else 0,
            activation=config.activation is Activation.GELU_TANH,
            wide_norms=config.family.head_norms is HeadNorms.ALL,
            rotation=self._table(kind),
            softcap=config.attention_cap or 0.0,
            scale=config.attention_scale or config.head_dim**-0.5,
            eps=config.norm_eps,
            residual=1.0,
        )

    def _norms(self, layer: Layer) -> dict[str, int]:
        """The addresses of the norms that the layer has."""
        attention = layer.attention
        found = {
            "attention_norm": getattr(layer, "attention_norm", None),
            "attention_post_norm": getattr(layer, "attention_post_norm", None),
            "feed_forward_norm": getattr(layer, "feed_forward_norm", None),
            "feed_forward_post_norm": getattr(layer, "feed_forward_post_norm", None),
            "q_norm": getattr(attention, "query_norm", None),
            "k_norm": getattr(attention, "key_norm", None),
        }
        norms = {name: norm for name, norm in found.items() if isinstance(norm, RMSNorm)}
        for norm in norms.values():
            norm.pack()
        return {name: self._fused.keep(norm.weight) for name, norm in norms.items()}

    def _table(self, kind: LayerKind) -> int:
        """Which rotation a layer has; -1 stands for none."""
        if not kind.rotated:
            return -1
        return self._local_table if kind.windowed else 0


def cache_dtype(forms: set[Format]) -> torch.dtype:
    """The type of keys and values beside weights in ``forms``."""
    dtypes = {form.cache_dtype for form in forms}
    return dtypes.pop() if len(dtypes) == 1 else torch.float16
