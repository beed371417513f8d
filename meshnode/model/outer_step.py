"""The outer step of DiLoCo: how far the weights go along the combined pseudo-gradients.

Decision 0248. Which step it is follows from the set of contributions alone, so nodes that apply the
same set take the same one, and no node chooses it: the share of its values that a contribution
sends is the lower median of the set, and the agreement is one that as many pairs have as there are
of honest nodes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from meshnode.model.diloco import (
    Contribution,
    Gradients,
    SparseTensor,
    is_sparse,
    norm,
    tolerated,
)


@dataclass(frozen=True, slots=True)
class OuterStep:
    """Nesterov momentum on the anchor."""

    learning_rate: float = 0.7
    momentum: float = 0.9
    longest: float = math.inf
    """The most that a combined tensor is long, in parts of the contributions' lower median."""

    def apply(
        self,
        anchor: Gradients,
        velocity: Gradients,
        gradient: Gradients,
        contributions: Sequence[Contribution],
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the new anchor and the new velocity. The arguments are not modified.

        ``gradient`` combines the contributions. An empty velocity is zero, and without momentum the
        new one is empty.
        """
        gradient = self._bounded(gradient, contributions)
        if not self.momentum:
            return {n: v.sub(gradient[n] * self.learning_rate) for n, v in anchor.items()}, {}
        weights, velocities = {}, {}
        for name, value in anchor.items():
            moved = gradient[name]
            if velocity:
                moved = velocity[name].mul(self.momentum).add(moved)
            ahead = moved.mul(self.momentum).add(gradient[name])
            velocities[name] = moved
            weights[name] = value.sub(ahead.mul(self.learning_rate))
        return weights, velocities

    def _bounded(self, gradient: Gradients, contributions: Sequence[Contribution]) -> Gradients:
        """The combined gradient with no tensor above ``longest``.

        A tensor's bound follows from what the set says of that tensor alone, so that holders of
        some layers come to the same as nodes with all.
        """
        if math.isinf(self.longest):
            return gradient
        return {
            name: _shortened(tensor, self.longest * _length(name, contributions))
            for name, tensor in gradient.items()
        }


DENSE_STEP = OuterStep()
SPARSE_STEP = OuterStep(learning_rate=1.0, momentum=0.0)
"""For sparse contributions that are mostly feedback, which does what momentum would do."""
HALF_STEP = OuterStep(learning_rate=0.5, momentum=0.9)
"""For sparse contributions that send half of their values, or more."""
APART_STEP = OuterStep(learning_rate=1.0, momentum=0.7, longest=0.5)
"""For contributions that agree little, whose noise a longer momentum would add up. Where some
tensors agree more than others, their mean is longer: their bound is what four that have nothing in
common come to."""
STEPS = (DENSE_STEP, SPARSE_STEP, HALF_STEP, APART_STEP)
"""In the order of their numbers in commands to the holders of a pipeline."""
MOST_SENT = 0.5
"""The share of its values from which on a contribution is not mostly feedback."""
LEAST_AGREEMENT = 0.35
"""The cosine below which contributions agree little."""
COMPARED = 1 << 18
"""About how many elements of each contribution are compared, spread evenly over each tensor."""


def step_of(contributions: Sequence[Contribution]) -> OuterStep:
    """The outer step for a set (decision 0248), one of ``STEPS``.

    A sparse set whose contributions send less than half of their values takes that of SparseLoCo,
    and one that agrees little one with bounds. Otherwise it is that of the DiLoCo paper, or a
    shorter one of its kind for sparse sets.
    """
    sparse = is_sparse(contributions)
    if sparse:
        shares = sorted(map(share_sent, contributions))
        if shares[(len(shares) - 1) // 2] < MOST_SENT:
            return SPARSE_STEP
    if agreement(contributions) < LEAST_AGREEMENT:
        return APART_STEP
    return HALF_STEP if sparse else DENSE_STEP


def share_sent(contribution: Contribution) -> float:
    """The share of its values that a contribution sends."""
    sent = whole = 0
    for tensor in contribution.values():
        sent += (tensor.values if isinstance(tensor, SparseTensor) else tensor).numel()
        whole += tensor.numel()
    return sent / whole


def agreement(contributions: Sequence[Contribution]) -> float:
    """The cosine that as many pairs reach as there are pairs of honest nodes; 1.0 for one alone.

    So Byzantine nodes, as many as are tolerated, cannot bring it below that of honest ones.
    """
    honest = math.comb(len(contributions) - tolerated(len(contributions)), 2)
    if not honest:
        return 1.0
    whole = sum(tensor.numel() for tensor in contributions[0].values())
    pace = max(1, whole // COMPARED)
    # In float64, so that a machine's order of summation can matter only in an exact tie.
    rows = torch.stack([_compared(contribution, pace) for contribution in contributions])
    rows /= rows.norm(dim=1, keepdim=True).clamp_min_(torch.finfo(rows.dtype).tiny)
    pairs = torch.triu_indices(len(rows), len(rows), offset=1)
    return float((rows @ rows.T)[pairs[0], pairs[1]].sort(descending=True).values[honest - 1])


def _compared(contribution: Contribution, pace: int) -> Tensor:
    """One of ``pace`` elements of each tensor, in float64, with zeros for what was not sent."""
    return torch.cat([_every(pace, contribution[name]) for name in sorted(contribution)])


def _length(name: str, contributions: Sequence[Contribution]) -> float:
    """The lower median of the lengths of one tensor."""
    lengths = sorted(norm({name: contribution[name]}) for contribution in contributions)
    return lengths[(len(lengths) - 1) // 2]


def _shortened(tensor: Tensor, longest: float) -> Tensor:
    length = norm({"": tensor})
    return tensor * (longest / length) if length > longest else tensor


def _every(pace: int, tensor: Tensor | SparseTensor) -> Tensor:
    if isinstance(tensor, Tensor):
        return tensor.reshape(-1)[::pace].double()
    chosen = tensor.indices % pace == 0
    found = torch.zeros(-(-tensor.numel() // pace), dtype=torch.float64)
    found[tensor.indices[chosen] // pace] = tensor.values[chosen].double()
    return found
