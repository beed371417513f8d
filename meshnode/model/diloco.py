"""The outer step of DiLoCo: combines many pseudo-gradients into one update (interface 1 and 2.3).

Terms: a *pseudo-gradient* is the anchor minus the weights after a node's inner steps; a *rule*
combines many into one. A *Byzantine* node may send anything.

Invariants: results depend only on the values and their order, not on threads or batches. Every
operation works element by element, in the order of the contributions, one product and one sum at a
time, so replicas that apply the same set to the same anchor get the same bits. With ``f`` Byzantine
nodes among ``n``, ``f`` no more than :func:`tolerated`, every element that ``TRIMMED_MEAN`` and
``MEDIAN`` give lies between those of honest nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

Gradients = Mapping[str, Tensor]
"""Float32 tensors by parameter name."""


class Rule(StrEnum):
    """How pseudo-gradients are combined into one."""

    TRIMMED_MEAN = "trimmed_mean"
    MEDIAN = "median"
    KRUM = "krum"
    MEAN = "mean"
    """Not robust: a single Byzantine contribution can change it at will."""


@dataclass(frozen=True, slots=True)
class OuterStep:
    """Nesterov momentum on the anchor."""

    learning_rate: float = 0.7
    momentum: float = 0.9

    def apply(
        self, anchor: Gradients, velocity: Gradients, gradient: Gradients
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the new anchor and the new velocity. The arguments are not modified."""
        weights, velocities = {}, {}
        for name, value in anchor.items():
            moved = velocity[name].mul(self.momentum).add(gradient[name])
            ahead = moved.mul(self.momentum).add(gradient[name])
            velocities[name] = moved
            weights[name] = value.sub(ahead.mul(self.learning_rate))
        return weights, velocities


def tolerated(count: int) -> int:
    """How many of ``count`` contributions may be Byzantine: less than a third, or one of three."""
    return 1 if count == 3 else max(0, (count - 1) // 3)


def aggregate(rule: Rule, contributions: Sequence[Gradients]) -> dict[str, Tensor]:
    """Combine pseudo-gradients, which have equal names and shapes and are finite, into one.

    Raises ValueError if there are no contributions.
    """
    if not contributions:
        raise ValueError("nothing to aggregate")
    spare = tolerated(len(contributions))
    if rule is Rule.KRUM and spare:
        chosen = contributions[_krum(contributions, spare)]
        return {name: tensor.clone() for name, tensor in chosen.items()}
    combine = _COMBINE.get(rule, _mean)
    return {
        name: combine([contribution[name] for contribution in contributions], spare)
        for name in contributions[0]
    }


def _mean(values: list[Tensor], spare: int) -> Tensor:
    total = values[0].clone()
    for value in values[1:]:
        total.add_(value)
    return total.div_(len(values))


def _trimmed_mean(values: list[Tensor], spare: int) -> Tensor:
    # A stable sort keeps the same one of 0.0 and -0.0 on every machine.
    ordered = torch.stack(values).sort(dim=0, stable=True).values
    return _mean(list(ordered[spare : len(values) - spare]), spare)


def _median(values: list[Tensor], spare: int) -> Tensor:
    ordered = torch.stack(values).sort(dim=0, stable=True).values
    middle = (len(values) - 1) // 2
    return _mean(list(ordered[middle : len(values) - middle]), spare)


_COMBINE: Mapping[Rule, Callable[[list[Tensor], int], Tensor]] = {
    Rule.TRIMMED_MEAN: _trimmed_mean,
    Rule.MEDIAN: _median,
}


def _krum(contributions: Sequence[Gradients], spare: int) -> int:
    """The index of the contribution closest to its nearest neighbours; the first of equals."""
    count = len(contributions)
    neighbours = max(1, count - spare - 2)
    scores = []
    for one in range(count):
        distances = sorted(
            _squared_distance(contributions[one], contributions[other])
            for other in range(count)
            if other != one
        )
        scores.append(sum(distances[:neighbours]))
    return min(range(count), key=scores.__getitem__)


def _squared_distance(a: Gradients, b: Gradients) -> float:
    # In float64, so that a machine's order of summation can matter only in an exact tie.
    return sum(float((a[name].double() - b[name].double()).square().sum()) for name in a)
