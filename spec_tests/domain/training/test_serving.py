"""Which weights are worth serving (decision 0225)."""

from __future__ import annotations

import math

import pytest

from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.training.serving import BETTER, LATEST, OFF, Measured, is_worth_serving

OLD, NEW = WeightsVersion(3, "a" * 64), WeightsVersion(4, "b" * 64)


@pytest.mark.parametrize(
    ("setting", "old", "new", "worth"),
    [
        (BETTER, 2.0, 1.9, True),
        (BETTER, 2.0, 2.0, False),
        (BETTER, 2.0, 2.1, False),
        (BETTER, None, 1.9, False),
        (BETTER, 2.0, None, False),
        (BETTER, 2.0, math.nan, False),
        (BETTER, math.nan, 1.9, False),
        (LATEST, 2.0, 9.0, True),
        (LATEST, None, None, True),
        (OFF, 2.0, 1.0, False),
    ],
)
def test_better_asks_for_a_lower_loss_of_this_nodes_own(
    setting: str, old: float | None, new: float | None, worth: bool
) -> None:
    assert is_worth_serving(setting, Measured(OLD, old), Measured(NEW, new)) is worth


@pytest.mark.parametrize("setting", [BETTER, LATEST, OFF])
def test_what_is_served_is_not_served_again(setting: str) -> None:
    assert not is_worth_serving(setting, Measured(OLD, 2.0), Measured(OLD, 1.0))
