"""The staking multiplier: 1 + 0.1 * log2(1 + stake / 1000), in integers."""

import math
from decimal import Decimal, getcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.chain.stakes import MULTIPLIER_ONE, stake_multiplier

SCALE = 1_000_000
THOUSAND = 1000 * SCALE


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        (0, 1_000_000),
        (1, 1_000_000),
        (THOUSAND, 1_100_000),
        (3 * THOUSAND, 1_200_000),
        (1023 * THOUSAND, 2_000_000),
        # 1 + 0.1 * log2(1.5) and 1 + 0.1 * log2(11), rounded down.
        (THOUSAND // 2, 1_058_496),
        (10 * THOUSAND, 1_345_943),
    ],
)
def test_known_values(amount: int, expected: int) -> None:
    assert stake_multiplier(amount, SCALE) == expected


@given(st.integers(0, 2**60))
def test_it_is_the_formula_rounded_down(amount: int) -> None:
    getcontext().prec = 60
    ratio = 1 + Decimal(amount) / THOUSAND
    exact = MULTIPLIER_ONE * (1 + ratio.ln() / Decimal(2).ln() / 10)
    # The binary logarithm is cut off after 32 bits: never above, at most one millionth below.
    assert math.floor(exact) - 1 <= stake_multiplier(amount, SCALE) <= math.floor(exact)


@given(st.integers(0, 2**60), st.integers(0, 2**60))
def test_more_stake_never_weighs_less(one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert stake_multiplier(low, SCALE) <= stake_multiplier(high, SCALE)
