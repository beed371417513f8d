"""The feed-forward part of a layer on a device, dense or as a set of experts (decision 0229)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from meshnode.model.accelerator.matrix import DeviceMatrix
from meshnode.model.accelerator.tiles import padded, padded_count, tiled
from meshnode.model.families import Activation, Experts
from meshnode.model.feed_forward import activate


@dataclass(frozen=True, slots=True)
class DeviceFeedForward:
    """A gated feed-forward part. Gate and up projection share a matrix."""

    gate_up: DeviceMatrix
    down: DeviceMatrix
    activation: Activation

    @property
    def matrices(self) -> tuple[DeviceMatrix, ...]:
        """All its matrices."""
        return self.gate_up, self.down

    def __call__(self, rows: Tensor, count: int) -> Tensor:
        """``[R, hidden]`` to the same, of which the first ``count`` rows matter."""
        gate, up = self.gate_up(rows).chunk(2, dim=-1)
        return self.down(activate(gate, self.activation) * up)


@dataclass(frozen=True, slots=True)
class DeviceExperts:
    """Experts, of which a router chooses a few for each position.

    The rows of an expert are filled up as all others are, so that a row's bits depend neither on
    how many rows have chosen it nor on which.
    """

    router: DeviceMatrix
    experts: Sequence[DeviceFeedForward]
    shape: Experts
    base: int
    """The number of rows with which everything is computed."""

    @property
    def matrices(self) -> tuple[DeviceMatrix, ...]:
        """All its matrices."""
        return self.router, *(one for each in self.experts for one in each.matrices)

    def __call__(self, rows: Tensor, count: int) -> Tensor:
        """``[R, hidden]`` to the same, of which the first ``count`` rows matter."""
        chances = tiled(lambda part: part.softmax(-1), self.router(rows), [self.base])
        shares, chosen = chances[:count].topk(self.shape.used, dim=-1)
        if self.shape.shares_sum_to_one:
            # Added one by one, in an order that does not depend on the number of rows.
            shares = shares / sum(torch.split(shares, 1, dim=-1), torch.zeros_like(shares[:, :1]))
        total = torch.zeros_like(rows)
        for number in sorted(set(chosen.flatten().tolist())):
            places, ranks = torch.where(chosen == number)
            whole = padded(rows[places], padded_count(len(places), self.base))
            outcome = self.experts[number](whole, len(places))[: len(places)]
            total[places] += outcome * shares[places, ranks, None]
        return total
