"""Matrix products whose rounding of a row does not depend on the other rows of the batch.

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

import torch
from torch import Tensor, nn
from torch.nn import functional

from meshnode.model.decoder import FeedForward

FEWEST_ROWS = 4
"""Two rows are enough for a fixed order of summation; from four rows on, kernels are fastest."""


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

    def product(self, rows: Tensor, activation: str = "none") -> Tensor:
        """``[rows, in]`` to ``[rows, out]``, with ``activation`` ("none" or "swish") at the end."""
        result: Tensor = torch.ops.mkldnn._linear_pointwise(
            rows, self.weight, self.bias, activation, [], ""
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
        bias: Tensor | None = dense.gate_up.bias
        gate_bias, up_bias = (None, None) if bias is None else bias.chunk(2)
        gate, up = dense.gate_up.weight.chunk(2)
        self.gate, self.up = PackedLinear(gate, gate_bias), PackedLinear(up, up_bias)
        self.down = PackedLinear(dense.down.weight, dense.down.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """``[..., hidden]`` to the same."""
        rows = _rows(hidden)
        inner = self.up.product_times(rows, self.gate.product(rows, "swish"))
        return _shaped(self.down.product(inner), hidden)


def pack(module: nn.Module) -> None:
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
        else:
            pack(child)


def _rows(hidden: Tensor) -> Tensor:
    """``[..., in]`` as ``[rows, in]``, padded with zeros to at least ``FEWEST_ROWS`` rows."""
    rows = hidden.reshape(-1, hidden.shape[-1])
    missing = FEWEST_ROWS - rows.shape[0]
    return functional.pad(rows, (0, 0, 0, missing)) if missing > 0 else rows


def _shaped(rows: Tensor, like: Tensor) -> Tensor:
    """The rows that are not padding, in the leading shape of ``like``."""
    return rows[: like.shape[:-1].numel()].view(*like.shape[:-1], rows.shape[-1])
