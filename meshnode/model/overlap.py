"""Contributions that are alike: copies under another name count once (decision 0212).

Terms: the *overlap* of two sparse contributions is the number of elements that both sent with the
same sign, divided by how many the one sent that sent more; zeros do not count. Of contributions
that are not both sparse, the cosine of the angle between them takes its place. Two are *alike* when
their overlap, or their cosine, reaches a threshold that nodes with data of their own do not reach.

Invariant: all sums are of integers, and tensors are compared in the order of their names; so all
nodes that compare the same set come to the same result, on any machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from meshnode.model.diloco import WINDOW, Contribution, SparseTensor

MAX_OVERLAP = 0.95
"""Of the indices and signs of two sparse contributions. Nodes with data of their own have reached
0.89, in a small model that sends a quarter of its values after five steps."""
MAX_COSINE = 0.999
"""Of two that are not both sparse: nodes that train from the same weights have reached 0.99."""
DECIDED_AFTER = 10_000
"""Elements after which a pair that is alike by less than half is not compared further."""
STEPS = 2**15 - 1
"""Values are compared as integers up to this: sums of 2**32 products fit 64 bits."""


@dataclass(slots=True)
class _Pair:
    """What two contributions have in common so far."""

    sparse: bool
    same: int = 0
    sent: tuple[int, int] = (0, 0)
    product: int = 0
    squares: tuple[int, int] = (0, 0)

    @property
    def likeness(self) -> float:
        if self.sparse:
            return self.same / max(1, *self.sent)
        size = math.isqrt(self.squares[0] * self.squares[1])
        return self.product / max(1, size)

    @property
    def alike(self) -> bool:
        return self.likeness >= (MAX_OVERLAP if self.sparse else MAX_COSINE)


def alike(contributions: Sequence[Contribution]) -> list[list[int]]:
    """Groups of contributions that are alike, by their places; each group has at least two."""
    group = list(range(len(contributions)))
    for (one, other), pair in _compared(contributions).items():
        if pair.alike:
            joined, left = sorted((group[one], group[other]))
            group = [joined if each == left else each for each in group]
    groups = [[at for at, each in enumerate(group) if each == first] for first in sorted({*group})]
    return [members for members in groups if len(members) > 1]


def likeness(one: Contribution, other: Contribution) -> float:
    """Their overlap, or their cosine."""
    return _compared([one, other], decided_after=math.inf)[0, 1].likeness


def _compared(
    contributions: Sequence[Contribution], *, decided_after: float = DECIDED_AFTER
) -> dict[tuple[int, int], _Pair]:
    """What each pair has in common, of those that may be alike."""
    looks = [_look(contribution) for contribution in contributions]
    pairs = {
        (one, other): _Pair(looks[one][0] and looks[other][0])
        for one, other in combinations(range(len(contributions)), 2)
    }
    for name in sorted(contributions[0]) if pairs else ():
        wanted = sorted({place for pair in pairs for place in pair})
        tensors = {at: contributions[at][name] for at in wanted}
        size = tensors[wanted[0]].numel() if wanted else 0
        for first in range(0, size, WINDOW):
            stop = min(first + WINDOW, size)
            parts = {at: _part(each, first, stop, looks[at][1]) for at, each in tensors.items()}
            for places, pair in pairs.items():
                _compare(pair, *(parts[place] for place in places))
        for places, pair in list(pairs.items()):
            if max(pair.sent) >= decided_after and pair.likeness < MAX_OVERLAP / 2:
                del pairs[places]
    return pairs


def _look(contribution: Contribution) -> tuple[bool, float]:
    """Whether a contribution is sparse, and its greatest magnitude."""
    sparse, greatest = True, 0.0
    for tensor in contribution.values():
        sparse = sparse and isinstance(tensor, SparseTensor)
        values = tensor.values if isinstance(tensor, SparseTensor) else tensor
        greatest = max(greatest, float(values.abs().max()) if values.numel() else 0.0)
    return sparse, greatest


@dataclass(frozen=True, slots=True)
class _Elements:
    """The elements of a part of a tensor that were sent, in ascending order of their indices."""

    indices: Tensor | None
    """None for all elements."""
    steps: Tensor
    """int64: the values, scaled and rounded."""
    signs: Tensor


def _part(tensor: Tensor | SparseTensor, first: int, stop: int, greatest: float) -> _Elements:
    """Elements ``first`` to ``stop`` of the flat tensor."""
    indices = None
    if isinstance(tensor, SparseTensor):
        low, high = torch.searchsorted(tensor.indices, torch.tensor([first, stop])).tolist()
        indices, values = tensor.indices[low:high], tensor.values[low:high]
        sent = values != 0
        indices, values = indices[sent] - first, values[sent]
    else:
        values = tensor.reshape(-1)[first:stop]
    # Operations on single elements give the same bits on every machine, unlike sums.
    steps = values.double().mul_(STEPS / greatest if greatest else 0.0).round_().to(torch.int64)
    return _Elements(indices, steps, values.sign().to(torch.int8))


def _compare(pair: _Pair, one: _Elements, other: _Elements) -> None:
    pair.sent = (pair.sent[0] + len(one.steps), pair.sent[1] + len(other.steps))
    squares = [int((each.steps * each.steps).sum()) for each in (one, other)]
    pair.squares = (pair.squares[0] + squares[0], pair.squares[1] + squares[1])
    mine, theirs = _common(one, other)
    pair.same += int((one.signs[mine] == other.signs[theirs]).sum())
    pair.product += int((one.steps[mine] * other.steps[theirs]).sum())


def _common(one: _Elements, other: _Elements) -> tuple[Tensor | slice, Tensor | slice]:
    """Where both have the elements that both have sent."""
    if one.indices is None or other.indices is None:
        mine = slice(None) if other.indices is None else other.indices
        return mine, slice(None) if one.indices is None else one.indices
    if not len(other.indices):
        return slice(0), slice(0)
    at = torch.searchsorted(other.indices, one.indices).clamp_(max=len(other.indices) - 1)
    both = other.indices[at] == one.indices
    return both.nonzero().squeeze(1), at[both]
