"""A contribution counts by its sequences, and a liar gains little (decision 0245)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.training.weighting import weights_of

SEQUENCES = st.integers(1, 2**31 - 1)


@pytest.mark.parametrize(
    ("declared", "weights"),
    [
        ([500], [1.0]),
        ([400, 400, 400], [1.0, 1.0, 1.0]),
        ([400, 40], [1.0, 0.1]),
        ([40, 400, 400], [0.1, 1.0, 1.0]),
        # One that has done more than half of the others counts as they do.
        ([4000, 400, 100], [1.0, 1.0, 0.25]),
    ],
)
def test_weights(declared: list[int], weights: list[float]) -> None:
    assert weights_of(declared) == weights


@given(st.lists(SEQUENCES, min_size=1, max_size=20))
def test_nobody_weighs_more_than_two_parts_of_all(declared: list[int]) -> None:
    weights = weights_of(declared)
    assert all(0.0 < weight <= 1.0 for weight in weights)
    assert max(weights) / sum(weights) <= 2 / len(weights)


@given(st.lists(SEQUENCES, min_size=3, max_size=12), st.data())
def test_a_liar_gains_at_most_the_weight_of_an_honest_node(
    honest: list[int], data: st.DataObject
) -> None:
    lie = data.draw(SEQUENCES)
    weights = weights_of([lie, *honest])
    assert weights[0] <= max(weights[1:])
    # An honest node loses no more than if the most that an honest one has done were the bound.
    assert all(weight >= one / max(honest) for weight, one in zip(weights[1:], honest, strict=True))
