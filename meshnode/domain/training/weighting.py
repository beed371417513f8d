"""What a contribution weighs: the sequences that it was computed over (decision 0245).

Terms: a contribution *declares* how many sequences it was computed over (``batch_size`` of its
message, which is signed); the *bound* of a set is the upper median of what its contributions
declare, and a *weight* is what one declares, at most the bound, divided by the bound.

Invariants: weights depend on the set alone, so all nodes that apply it agree on them; they are
above 0 and at most 1; at least half of a set weighs 1, so nobody, whatever it declares, has more
than two ``n``-th parts of the weight of all ``n``. If fewer than a third lie, or one of three, the
bound lies between what honest nodes declare.
"""

from __future__ import annotations

from collections.abc import Sequence


def weights_of(declared: Sequence[int]) -> list[float]:
    """The weight of each contribution of a set, from what they declare, which is above 0."""
    bound = sorted(declared)[len(declared) // 2]
    return [min(one, bound) / bound for one in declared]
