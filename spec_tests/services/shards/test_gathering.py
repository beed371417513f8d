"""Messages of a convoy wait for one another at a holder, but not for long (decision 0213)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import trio

from meshnode.domain.convoys import ConvoyName
from meshnode.domain.errors import InvalidRequest
from meshnode.services.shards import convoys
from meshnode.services.shards.convoys import (
    FORGOTTEN_S,
    LONGEST_S,
    MAX_CONVOYS,
    MAX_SIZE,
    SHORTEST_S,
    ConvoyPart,
    Gatherings,
)
from meshnode.services.shards.messages import ForwardCall

STEP_S = 0.02
PATIENCE_S = STEP_S * convoys.STEP_SHARE


@dataclass
class Hall:
    """Where messages arrive; notes when each goes on."""

    gatherings: Gatherings = field(default_factory=lambda: Gatherings(lambda: STEP_S))
    gone: dict[str, float] = field(default_factory=dict)

    async def arrive(self, who: str, part: str, after_s: float = 0.0, owner: str = "::1") -> None:
        await trio.sleep(after_s)
        found = await self.gatherings.wait(call(part, owner), 1)
        assert found == ConvoyName(owner, part.partition(":")[0])
        self.gone[who] = trio.current_time()


def call(convoy: str, owner: str = "::1") -> ForwardCall:
    return ForwardCall(
        caller_ip=owner,
        session_id="s",
        request_id="r",
        layers=range(1, 2),
        data=b"",
        shape=(),
        convoy=convoy,
    )


async def test_the_last_message_lets_all_go_at_once(autojump_clock: object) -> None:
    hall, began = Hall(), trio.current_time()
    async with trio.open_nursery() as nursery:
        for who, after_s in (("a", 0.0), ("b", 0.001), ("c", 0.004)):
            nursery.start_soon(hall.arrive, who, "x:3", after_s)
        # Another owner's convoy of the same name is another one.
        nursery.start_soon(hall.arrive, "d", "x:2", 0.0, "::2")
    assert hall.gone["a"] == hall.gone["b"] == hall.gone["c"] == pytest.approx(began + 0.004)
    assert hall.gone["d"] - began == pytest.approx(PATIENCE_S)


async def test_nobody_is_waited_for_longer_than_the_patience(autojump_clock: object) -> None:
    hall, began = Hall(), trio.current_time()
    async with trio.open_nursery() as nursery:
        for who, after_s in (("a", 0.0), ("b", 0.001), ("late", 2 * PATIENCE_S)):
            nursery.start_soon(hall.arrive, who, "x:4", after_s)
    assert hall.gone["a"] == hall.gone["b"] == pytest.approx(began + PATIENCE_S)
    assert hall.gone["late"] == pytest.approx(began + 2 * PATIENCE_S)
    await trio.sleep(FORGOTTEN_S)
    await hall.arrive("other", "y:1")
    assert not len(hall.gatherings)


@pytest.mark.parametrize(("step_s", "patience_s"), [(0.0, SHORTEST_S), (9.0, LONGEST_S)])
async def test_the_patience_has_bounds(
    step_s: float, patience_s: float, autojump_clock: object
) -> None:
    hall, began = Hall(Gatherings(lambda: step_s)), trio.current_time()
    await hall.arrive("a", "x:2")
    assert hall.gone["a"] - began == pytest.approx(patience_s)


async def test_the_number_of_convoys_is_bounded(autojump_clock: object) -> None:
    hall, began = Hall(), trio.current_time()
    async with trio.open_nursery() as nursery:
        for number in range(MAX_CONVOYS):
            nursery.start_soon(hall.arrive, str(number), f"x{number}:2")
        await trio.testing.wait_all_tasks_blocked()
        await hall.arrive("one too many", "z:2")
        assert hall.gone["one too many"] == began
        assert len(hall.gatherings) == MAX_CONVOYS


async def test_other_messages_wait_for_nobody(autojump_clock: object) -> None:
    gatherings, began = Gatherings(lambda: STEP_S), trio.current_time()
    assert await gatherings.wait(call(""), 1) is None
    assert await gatherings.wait(call("x:2"), 7) is None
    assert trio.current_time() == began


@pytest.mark.parametrize(
    "text", ["x", "x:", ":2", "x:0", f"x:{MAX_SIZE + 1}", "x:-1", "x y:2", "é:2", "x" * 33 + ":2"]
)
async def test_what_is_no_convoy_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        await Gatherings(lambda: STEP_S).wait(call(text), 1)


def test_the_metadata_is_read_back() -> None:
    part = ConvoyPart("0f", 7)
    assert ConvoyPart.read(str(part), "convoy") == part
