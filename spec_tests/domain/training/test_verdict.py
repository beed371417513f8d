"""Whether a round made the weights worse: the same for all, and not by a few liars (0226)."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.training.message import Contribution
from meshnode.domain.training.verdict import HeldOut, is_worse

BEFORE = "a" * 64
BETTER, WORSE = HeldOut(BEFORE, 2.0, 1.9), HeldOut(BEFORE, 2.0, 2.1)
SAME = HeldOut(BEFORE, 2.0, 2.001)
OTHER = HeldOut("b" * 64, 2.0, 9.0)


@pytest.mark.parametrize(
    ("measured", "worse"),
    [
        ([WORSE], True),
        ([BETTER], False),
        ([SAME], False),
        ([HeldOut(BEFORE, 2.0, math.inf)], True),
        ([WORSE, WORSE, BETTER], True),
        ([WORSE, BETTER, BETTER], False),
        # Of two that disagree nobody knows who lies: nothing is dropped.
        ([WORSE, BETTER], False),
        ([WORSE, None], False),
        ([WORSE, WORSE, None], True),
        ([WORSE, OTHER], False),
        ([], False),
        ([None, None], False),
    ],
)
def test_the_median_of_most_contributions_decides(
    measured: list[HeldOut | None], worse: bool
) -> None:
    assert is_worse(measured, BEFORE) is worse


losses = st.floats(0.01, 100)
measurements = st.builds(HeldOut, st.just(BEFORE), losses, losses)


@given(st.lists(measurements, min_size=1, max_size=9), st.lists(measurements, max_size=4))
def test_a_minority_of_liars_changes_no_verdict_that_all_others_share(
    honest: list[HeldOut], lies: list[HeldOut]
) -> None:
    shared = {one.worse for one in honest}
    if len(lies) < len(honest) and len(shared) == 1:
        assert is_worse([*honest, *lies], BEFORE) in shared
        assert is_worse([*lies, *honest], BEFORE) is is_worse([*honest, *lies], BEFORE)


@pytest.mark.parametrize("losses", [(0.0, 1.0), (math.nan, 1.0), (1.0, math.nan), (math.inf, 1.0)])
def test_implausible_losses_are_refused(losses: tuple[float, float]) -> None:
    with pytest.raises(InvalidRequest, match="held_out"):
        HeldOut(BEFORE, *losses).check()


def test_a_measurement_is_signed() -> None:
    plain = Contribution("", 1, "", 0.0, 1, 0.0, {})
    assert b"held_out" not in plain.statement()
    statements = {replace(plain, held_out=one).statement() for one in (BETTER, WORSE, OTHER)}
    assert len(statements) == 3
