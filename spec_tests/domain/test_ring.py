from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.ring import Ring


@given(room=st.integers(1, 8), pushed=st.integers(0, 30), place=st.integers(-2, 40))
def test_a_reader_gets_all_that_follows_its_place_or_is_told_that_it_cannot(
    room: int, pushed: int, place: int
) -> None:
    ring: Ring[int] = Ring(room)
    for item in range(1, pushed + 1):
        assert ring.push(item) == item
    found = ring.after(place, 100)
    if max(0, pushed - room) <= place <= pushed:
        assert found == [(n, n) for n in range(place + 1, pushed + 1)]
    else:
        assert found is None


def test_as_many_as_are_wanted_at_once() -> None:
    ring: Ring[str] = Ring(3)
    for item in "abcd":
        ring.push(item)
    assert ring.after(1, 2) == [(2, "b"), (3, "c")]
    with pytest.raises(ValueError, match="room"):
        Ring(0)
