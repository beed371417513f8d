"""Root-mean-square normalisation."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class RMSNorm(nn.Module):
    """Scale to unit root mean square, then by a learned weight.

    Where norms are ``shifted``, the parameter is the weight minus one.
    """

    def __init__(self, size: int, eps: float, *, shifted: bool = False) -> None:
        super().__init__()
        self.eps = eps
        self.shifted = shifted
        self.weight = nn.Parameter(torch.zeros(size) if shifted else torch.ones(size))

    def forward(self, hidden: Tensor) -> Tensor:
        """Normalise the last dimension."""
        weight = self.weight + 1 if self.shifted else self.weight
        return functional.rms_norm(hidden, self.weight.shape, weight, self.eps)

    def pack(self) -> None:
        """Add the one to the weight once and for all; the module can only infer afterwards."""
        if self.shifted:
            self.weight = nn.Parameter(self.weight.detach() + 1, requires_grad=False)
            self.shifted = False
