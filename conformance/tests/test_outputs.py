"""Values that come back: which byte order they have."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from conformance.checks.outputs import FEW, MOST, plausible

ORDINARY = st.floats(2**-10, 128, width=32) | st.floats(-128, -(2**-10), width=32)


@given(st.lists(ORDINARY, min_size=64, max_size=64))
def test_ordinary_values_are_plausible_in_their_own_order(values: list[float]) -> None:
    data = struct.pack("<64f", *values)
    assert plausible(data, "<") >= MOST


def test_ordinary_values_are_not_plausible_in_the_other_order() -> None:
    values = [0.001 * 1.37**turn * (-1) ** turn for turn in range(32)]
    data = struct.pack(">32f", *values)
    assert plausible(data, ">") >= MOST
    assert plausible(data, "<") < FEW


def test_zeros_say_nothing() -> None:
    assert plausible(bytes(32), "<") == plausible(bytes(32), ">") == 1
