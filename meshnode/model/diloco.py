"""Many pseudo-gradients are combined into one (interface 1 and 2.3).

Terms: a *pseudo-gradient* is the anchor minus the weights after a node's inner steps; a *rule*
combines many into one. A *Byzantine* node may send anything.

A *sparse* pseudo-gradient names some elements and their values; the others were not sent, which is
not the same as a zero: an element that few nodes sent is judged among those that sent it.

Invariants: results depend only on the values and their order, not on threads or batches. Every
operation works element by element, in the order of the contributions, one product and one sum at a
time, so replicas that apply the same set to the same anchor get the same bits. With ``f`` Byzantine
nodes among ``n``, ``f`` no more than :func:`tolerated`, every element that ``TRIMMED_MEAN`` and
``MEDIAN`` give lies between those of honest nodes, whatever the contributions weigh.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

Gradients = Mapping[str, Tensor]
"""Float32 tensors by parameter name."""
WINDOW = 1 << 18
"""Elements that are combined at a time, so that many contributions take little memory."""


@dataclass(frozen=True, slots=True)
class SparseTensor:
    """Some elements of a float32 tensor; the others were not sent."""

    shape: tuple[int, ...]
    indices: Tensor
    """int64, in the flat tensor, ascending."""
    values: Tensor
    """float32, of the same length."""

    def numel(self) -> int:
        """The number of elements of the whole tensor."""
        return torch.Size(self.shape).numel()

    def dense(self) -> Tensor:
        """The whole tensor, with zeros for what was not sent."""
        flat = torch.zeros(self.numel())
        flat[self.indices] = self.values
        return flat.reshape(self.shape)


Contribution = Mapping[str, Tensor | SparseTensor]
"""A pseudo-gradient as received, by parameter name."""


class Rule(StrEnum):
    """How pseudo-gradients are combined into one."""

    TRIMMED_MEAN = "trimmed_mean"
    MEDIAN = "median"
    KRUM = "krum"
    MEAN = "mean"
    """Not robust: a single Byzantine contribution can change it at will."""


def tolerated(count: int) -> int:
    """How many of ``count`` contributions may be Byzantine: less than a third, or one of three."""
    return 1 if count == 3 else max(0, (count - 1) // 3)


def aggregate(
    rule: Rule,
    contributions: Sequence[Contribution],
    scales: Sequence[float] | None = None,
    weights: Sequence[float] | None = None,
) -> dict[str, Tensor]:
    """Combine pseudo-gradients, which have equal names and shapes and are finite, into one.

    ``weights``, from 0 to 1, say how much each counts in a mean; all equally without them. If any
    pseudo-gradient is sparse, those with a norm above the median of all, each divided by its
    weight, are scaled down to it. With ``scales``, each is multiplied by its own instead: then
    these are parts, and the scales those of the whole. Raises ValueError if there are none.
    """
    if not contributions:
        raise ValueError("nothing to aggregate")
    spare = tolerated(len(contributions))
    if rule is Rule.KRUM and spare:
        chosen = contributions[_krum(contributions, spare)]
        return {name: dense(tensor).clone() for name, tensor in chosen.items()}
    weights = [1.0] * len(contributions) if weights is None else weights
    if scales is None:
        scales = scales_of(contributions, weights)
    return {
        name: _combined(rule, [one[name] for one in contributions], scales, weights)
        for name in contributions[0]
    }


def scales_of(
    contributions: Sequence[Contribution], weights: Sequence[float] | None = None
) -> list[float]:
    """By what each of a set is multiplied before it is combined with the others."""
    sparse = is_sparse(contributions)
    return clips(contributions, weights) if sparse else [1.0] * len(contributions)


def is_sparse(contributions: Sequence[Contribution]) -> bool:
    """Whether any contribution is sparse."""
    return any(isinstance(t, SparseTensor) for one in contributions for t in one.values())


def norm(contribution: Contribution) -> float:
    """The L2 norm, rounded to float32 so that machines with other sums of squares agree on it."""
    values = (t.values if isinstance(t, SparseTensor) else t for t in contribution.values())
    square = sum(float(value.double().square().sum()) for value in values)
    return float(torch.tensor(square).sqrt())


def clips(
    contributions: Sequence[Contribution], weights: Sequence[float] | None = None
) -> list[float]:
    """By what each is scaled down, so that none has a norm above the median of all.

    A norm is divided by the weight first: fewer steps lead less far.
    """
    weights = [1.0] * len(contributions) if weights is None else weights
    norms = [norm(one) / weight for one, weight in zip(contributions, weights, strict=True)]
    # The lower median: of two, the smaller one.
    median = sorted(norms)[(len(norms) - 1) // 2]
    return [median / one if one > median else 1.0 for one in norms]


def _combined(
    rule: Rule,
    parts: list[Tensor | SparseTensor],
    scales: Sequence[float],
    weights: Sequence[float],
) -> Tensor:
    weighing = torch.tensor(weights, dtype=torch.float32).unsqueeze(1)
    whole = torch.empty(parts[0].shape)
    flat = whole.view(-1)
    for first in range(0, flat.numel(), WINDOW):
        stop = min(first + WINDOW, flat.numel())
        windows = [_window(part, first, stop) for part in parts]
        values = torch.stack([one * scale for (one, _), scale in zip(windows, scales, strict=True)])
        sent = torch.stack([mask for _, mask in windows])
        flat[first:stop] = _COMBINE.get(rule, _mean)(values, sent, weighing)
    return whole


def _window(part: Tensor | SparseTensor, first: int, stop: int) -> tuple[Tensor, Tensor]:
    """Elements ``first`` to ``stop`` of the flat tensor, and which of them were sent."""
    if isinstance(part, Tensor):
        values = part.reshape(-1)[first:stop]
        return values, torch.ones_like(values, dtype=torch.bool)
    bounds = torch.tensor([first, stop])
    low, high = torch.searchsorted(part.indices, bounds).tolist()
    inside = part.indices[low:high] - first
    values = torch.zeros(stop - first)
    values[inside] = part.values[low:high]
    return values, torch.zeros(stop - first, dtype=torch.bool).index_fill_(0, inside, value=True)


def _mean(values: Tensor, sent: Tensor, weights: Tensor) -> Tensor:
    return _sum(values * weights).div_(_sum(weights))


def _trimmed_mean(values: Tensor, sent: Tensor, weights: Tensor) -> Tensor:
    spare = torch.tensor([tolerated(count) for count in range(len(values) + 1)])
    return _middle(values, sent, weights, lambda count: spare[count])


def _median(values: Tensor, sent: Tensor, weights: Tensor) -> Tensor:
    return _middle(values, sent, weights, lambda count: (count - 1).clamp_(min=0) // 2)


def _middle(
    values: Tensor, sent: Tensor, weights: Tensor, spare: Callable[[Tensor], Tensor]
) -> Tensor:
    """The mean of the sent values without ``spare`` at either end, times the share that sent.

    Both by weight; what is left out at the ends is counted by heads, since a liar may claim any
    weight.
    """
    count = sent.sum(dim=0)
    low = spare(count)
    high = count - low
    # What was not sent goes to the end. A stable sort keeps the same one of 0.0 and -0.0 on every
    # machine.
    ordered, order = values.masked_fill(~sent, torch.inf).sort(dim=0, stable=True)
    rank = torch.arange(len(values)).unsqueeze(1)
    left_out = (rank < low) | (rank >= high)
    weighing = weights.expand_as(values).gather(0, order).masked_fill_(left_out, 0.0)
    # What was not sent is infinite, and infinity times 0 is not a number.
    kept = ordered.masked_fill_(left_out, 0.0).mul_(weighing)
    total = _sum(weighing)
    mean = _sum(kept).div_(total.masked_fill_(total == 0, 1.0))
    share = _sum(weights * sent).div_(_sum(weights))
    return mean.mul_(share)


def _sum(values: Tensor) -> Tensor:
    total = values[0].clone()
    for value in values[1:]:
        total.add_(value)
    return total


_COMBINE: Mapping[Rule, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    Rule.TRIMMED_MEAN: _trimmed_mean,
    Rule.MEDIAN: _median,
}


def dense(tensor: Tensor | SparseTensor) -> Tensor:
    """The whole tensor, with zeros for what was not sent."""
    return tensor.dense() if isinstance(tensor, SparseTensor) else tensor


def _krum(contributions: Sequence[Contribution], spare: int) -> int:
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


def _squared_distance(a: Contribution, b: Contribution) -> float:
    # In float64, so that a machine's order of summation can matter only in an exact tie.
    return sum(
        float((dense(a[name]).double() - dense(b[name]).double()).square().sum()) for name in a
    )
