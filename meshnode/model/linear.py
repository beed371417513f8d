"""Matrix products whose rounding of a row does not depend on the other rows of the batch.

Decoders are packed into compiled kernels (``model.kernels``, decision 0150) where there are any.
The rest of this module is for machines without them.

Terms: a *row* is one position's hidden state. Weights are *packed* when oneDNN has reordered them
into the blocks that its kernels read.

Why not ``nn.Linear``: its backend picks a kernel by the number of rows, and each kernel sums in its
own order, so that a token could depend on who else is being served (decision 0008). oneDNN's
packed product sums each output in one order for any number of rows from two on; fewer rows than
``FEWEST_ROWS`` are padded. It also reads weights two to three times faster.

The operators are those that ``torch.compile`` emits for packed weights. They are not a public
interface. Therefore only this module uses them, ``pyproject.toml`` bounds torch's version, and
``model.invariance`` checks on the machine at hand that they behave as described.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from meshnode.model.accelerator.device import Accelerator
from meshnode.model.accelerator.placing import Placing
from meshnode.model.decoder import Decoder
from meshnode.model.families import Activation
from meshnode.model.feed_forward import FeedForward
from meshnode.model.kernels.formats import Format, Rows, chosen, rounded
from meshnode.model.kernels.library import library
from meshnode.model.kernels.lowering import Fusion, cache_dtype, can_fuse
from meshnode.model.kernels.rows import TensorRows
from meshnode.model.norm import RMSNorm

FEWEST_ROWS = 4
"""Two rows are enough for a fixed order of summation; from four rows on, kernels are fastest."""


_ACTIVATIONS = {
    None: ("none", ""),
    Activation.SILU: ("swish", ""),
    Activation.GELU_TANH: ("gelu", "tanh"),
}
"""The kernels' names of what they may apply to a product: the function, and its algorithm."""


class PackedLinear(nn.Module):
    """An inference-only ``nn.Linear``: ``[..., in]`` to ``[..., out]``, float32."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """``weight`` is ``[out, in]``, ``bias`` is ``[out]``; neither is kept."""
        super().__init__()
        self.weight: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach())
        self.bias = None if bias is None else bias.detach().clone()

    def forward(self, hidden: Tensor) -> Tensor:
        """The product, plus the bias."""
        rows = _rows(hidden)
        return _shaped(self.product(rows), hidden)

    def product(self, rows: Tensor, activation: Activation | None = None) -> Tensor:
        """``[rows, in]`` to ``[rows, out]``, with the activation at the end."""
        name, algorithm = _ACTIVATIONS[activation]
        result: Tensor = torch.ops.mkldnn._linear_pointwise(
            rows, self.weight, self.bias, name, [], algorithm
        )
        return result

    def product_times(self, rows: Tensor, factors: Tensor) -> Tensor:
        """``[rows, in]`` to ``[rows, out]``, multiplied by ``factors`` ``[rows, out]``."""
        result: Tensor = torch.ops.mkldnn._linear_pointwise.binary(
            rows, factors, self.weight, self.bias, "mul"
        )
        return result

    def dense(self) -> Tensor:
        """The weight before packing, ``[out, in]``."""
        return self.weight.to_dense()


class PackedFeedForward(nn.Module):
    """An inference-only ``FeedForward`` whose activation and product run inside the kernels.

    As separate operators, their rounding would depend on an element's place: torch splits a large
    tensor among its threads, and computes elements next to a split with a different exponential.
    """

    def __init__(self, dense: FeedForward) -> None:
        super().__init__()
        self.activation = dense.activation
        bias: Tensor | None = dense.gate_up.bias
        gate_bias, up_bias = (None, None) if bias is None else bias.chunk(2)
        gate, up = dense.gate_up.weight.chunk(2)
        self.gate, self.up = PackedLinear(gate, gate_bias), PackedLinear(up, up_bias)
        self.down = PackedLinear(dense.down.weight, dense.down.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """``[..., hidden]`` to the same."""
        rows = _rows(hidden)
        inner = self.up.product_times(rows, self.gate.product(rows, self.activation))
        return _shaped(self.down.product(inner), hidden)


NOTHING: Mapping[str, Rows] = {}


class Packing:
    """Packs a decoder for inference: on a device, into compiled kernels, or for torch's operators.

    In torch's operators for the CPU, weights are float32, rounded as the format would round them.
    """

    def __init__(
        self,
        decoder: Decoder,
        form: Format | None,
        *,
        compiled: bool = True,
        where: Accelerator | None = None,
    ) -> None:
        """``form`` is that of all matrices; None keeps each as it is. ``where`` is not the CPU."""
        self._decoder, self._form = decoder, form
        self._fusion: Fusion | Placing | None = None
        if where is not None:
            self._fusion = Placing(decoder, form, where)
        elif compiled and can_fuse(decoder):
            kernels = library(torch.get_num_threads())
            self._fusion = None if kernels is None else Fusion(decoder, form, kernels)
        self._forms: set[Format] = set()

    @property
    def by_rows(self) -> bool:
        """Whether matrices may be given as what reads their rows instead of in the decoder."""
        return self._fusion is not None

    def layer(self, index: int, stored: Mapping[str, Rows] = NOTHING) -> None:
        """Pack a layer whose weights are complete; they come in the order of their indices.

        ``stored`` has matrices, by their parameters' names, that are not in the decoder.
        """
        if self._fusion is not None:
            self._fusion.layer(index, stored)
            return
        self._round(self._decoder.layers[index])
        _pack(self._decoder.layers[index])

    def finish(self, stored: Mapping[str, Rows] = NOTHING) -> None:
        """Pack embedding and head, once all layers are packed."""
        if self._fusion is not None:
            self._fusion.finish(stored)
            return
        for table in (self._decoder.embedding, self._decoder.head):
            if table is not None:
                self._round(table)
        _pack(self._decoder)
        self._decoder.cache_dtype = cache_dtype(self._forms)

    @torch.no_grad()
    def _round(self, module: nn.Module) -> None:
        for parameter in module.parameters():
            if parameter.dim() == 2:
                form = chosen(TensorRows(parameter), self._form)
                self._forms.add(form)
                parameter.copy_(rounded(parameter, form))


def pack(
    decoder: Decoder,
    form: Format | None = Format.FLOAT32,
    *,
    compiled: bool = True,
    where: Accelerator | None = None,
) -> None:
    """Pack all of a decoder's weights, as :class:`Packing` does."""
    packing = Packing(decoder, form, compiled=compiled, where=where)
    for index in range(len(decoder.layers)):
        packing.layer(index)
    packing.finish()


def _pack(module: nn.Module) -> None:
    """Replace the matrices inside ``module``, a few at a time, to keep the peak of memory low.

    Does nothing where torch was built without oneDNN.
    """
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return
    for name, child in module.named_children():
        if isinstance(child, FeedForward):
            setattr(module, name, PackedFeedForward(child))
        elif isinstance(child, nn.Linear):
            setattr(module, name, PackedLinear(child.weight, child.bias))
        elif isinstance(child, RMSNorm):
            child.pack()
        else:
            _pack(child)


def _rows(hidden: Tensor) -> Tensor:
    """``[..., in]`` as ``[rows, in]``, padded with zeros to at least ``FEWEST_ROWS`` rows."""
    rows = hidden.reshape(-1, hidden.shape[-1])
    missing = FEWEST_ROWS - rows.shape[0]
    return functional.pad(rows, (0, 0, 0, missing)) if missing > 0 else rows


def _shaped(rows: Tensor, like: Tensor) -> Tensor:
    """The rows that are not padding, in the leading shape of ``like``."""
    return rows[: like.shape[:-1].numel()].view(*like.shape[:-1], rows.shape[-1])
