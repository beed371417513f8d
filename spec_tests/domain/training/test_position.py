"""Where a pipeline is in its training: as text, and what nodes have in common (decision 0201)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.training.position import (
    PipelineVersion,
    Place,
    Position,
    common_version,
    place_in,
    versions_in,
    versions_text,
)
from meshnode.domain.training.steps import StepStatement, Turn

names = st.text("0123456789abcdef", min_size=16, max_size=16)
numbers = st.integers(1, 10**9 - 1)
versions = st.just(PipelineVersion()) | st.builds(PipelineVersion, numbers, names)
positions = st.builds(Position, versions, st.integers(0, 10**9 - 1))
modes = st.sampled_from([(False, False), (True, False), (False, True)])


@given(positions, st.none() | positions, modes)
def test_a_place_is_read_as_it_was_written(
    position: Position, origin: Position | None, mode: tuple[bool, bool]
) -> None:
    place = Place(position, origin, *mode)
    assert place_in(str(place)) == place


@pytest.mark.parametrize(
    "text",
    [
        *("1:0", "0-0123456789abcdef:0", "1-0123456789abcdeF:0", "0:-1", "0:1 back adopt", "0"),
        *("0:1 from ", "0:٣", "0:1234567890", "0:0 " + "x" * 200, " 0:0", "0:0\n"),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        place_in(text)


def test_no_place_is_none() -> None:
    assert place_in("") is None


@given(st.lists(st.builds(PipelineVersion, numbers, names), max_size=4))
def test_versions_are_read_as_they_were_written(found: list[PipelineVersion]) -> None:
    assert versions_in(versions_text(found)) == tuple(found)


@pytest.mark.parametrize("text", ["", "none none", "1", "x", " ".join(["0"] * 5), "0  0"])
def test_other_versions_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        versions_in(text)


def test_the_newest_that_all_have_is_common() -> None:
    one, two, other = (PipelineVersion(n, name * 16) for n, name in ((1, "a"), (2, "b"), (2, "c")))
    assert common_version([two, one], [[two, one], [one]]) == one
    assert common_version([two, one], [[two, one]]) == two
    assert common_version([two], [[other]]) is None
    # Nothing is on the disk of version 0.
    assert common_version([PipelineVersion()], [[PipelineVersion()]]) is None


def test_a_missed_step_does_not_part_nodes() -> None:
    version = PipelineVersion(3, "a" * 16)
    assert Position(version, 7).is_near(Position(version, 9))
    assert not Position(version, 7).is_near(Position(version, 10))
    assert not Position(version, 7).is_near(Position(PipelineVersion(3, "b" * 16), 7))


def test_the_drivers_signature_covers_the_place() -> None:
    """Statements without a place are those of earlier versions."""
    statement = StepStatement(
        driver="d",
        holder="h",
        turn=Turn("r", 1),
        update=True,
        session_id="s",
        request_id="q",
        source_shard=0,
        target_shard=2,
        sender_url="",
        shape=(1, 2, 3),
        states=b"",
        labels=b"",
    )
    said = [replace(statement, place=str(Place(Position(steps=n)))).encode() for n in range(2)]
    assert len({*said, statement.encode()}) == 3
    assert b"place" not in statement.encode()
