"""Matrix products that round a row the same way whatever rows it shares a batch with.

Terms: a *row* is one position's hidden state. Weights are *packed* when oneDNN has reordered them
into the blocks that its kernels read.

Why not ``nn.Linear``: its backend picks a kernel by the number of rows, and each kernel sums in its
own order, so that a token could depend on who else is being served (decisions/0008). oneDNN's
packed product sums each output in one order for any number of rows from two on, and a lone row is
padded to ``FEWEST_ROWS``. It also reads weights two to three times faster.

The operators are those that ``torch.compile`` emits for packed weights. They are not a public
interface, which is why only this module knows them, ``pyproject.toml`` bounds torch's version, and
``model.invariance`` checks what they promise on the machine at hand.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

FEWEST_ROWS = 4
"""Two would do for the order of summation; four is where the kernels are fastest."""


class PackedLinear(nn.Module):
    """An inference-only ``nn.Linear``: ``[..., in]`` to ``[..., out]``, float32."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.out_features = linear.out_features
        self.weight: Tensor = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach())
        bias: Tensor | None = linear.bias
        self.bias = None if bias is None else bias.detach().clone()

    def forward(self, hidden: Tensor) -> Tensor:
        """The product, plus the bias."""
        rows = hidden.reshape(-1, hidden.shape[-1])
        count = rows.shape[0]
        if count < FEWEST_ROWS:
            rows = functional.pad(rows, (0, 0, 0, FEWEST_ROWS - count))
        result: Tensor = torch.ops.mkldnn._linear_pointwise(
            rows, self.weight, self.bias, "none", [], ""
        )
        return result[:count].view(*hidden.shape[:-1], self.out_features)

    def dense(self) -> Tensor:
        """The weight as it was before packing, ``[out, in]``."""
        return self.weight.to_dense()


def pack(module: nn.Module) -> None:
    """Replace every ``nn.Linear`` inside ``module``, one at a time, so that memory peaks by one.

    Does nothing where torch was built without oneDNN.
    """
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, PackedLinear(child))
        else:
            pack(child)
