"""When an engine is started again although it runs (decision 0241)."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from meshnode.domain.chain.comet.commits import ABSENT, FOR_BLOCK, Commit, CommitEntry
from meshnode.services.engine.standing import MISSED_BLOCKS, STILL_S, Standing
from meshnode.services.ledger.handle import Readiness

OURS, THEIRS = "A" * 40, "B" * 40


class FakeLedger:
    """Blocks that come when a test says so."""

    def __init__(self) -> None:
        self.height = 0
        self.catching_up = self.executing = self.silent = False
        self.latest: Any = None
        self.age_s = 0.5
        self.members: Sequence[str] = (OURS, THEIRS)
        self._changed = trio.Event()

    def block(self, *signers: str) -> None:
        """One more, whose commit has the votes of ``signers``."""
        self.height += 1
        entries = [
            CommitEntry(FOR_BLOCK, one) if one in signers else CommitEntry(ABSENT)
            for one in self.members
        ]
        commit = Commit(height=self.height - 1, entries=tuple(entries))
        self.latest = SimpleNamespace(block=SimpleNamespace(last_commit=commit))
        self._changed.set()
        self._changed = trio.Event()

    async def wait_beyond(self, height: int) -> int:
        while self.height <= height:
            await self._changed.wait()
        return self.height

    async def validators(self, height: int) -> list[Any]:
        return [SimpleNamespace(address=one) for one in self.members]

    def readiness(self) -> Readiness:
        return Readiness(True, "ok", self.catching_up, False, self.age_s)


class Watched:
    """A standing that is asked again each time it has found its engine lost."""

    def __init__(self) -> None:
        self.ledger = FakeLedger()
        self.reasons: list[str] = []
        self._standing = Standing(self.ledger, OURS, lambda: 0.5)  # type: ignore[arg-type]

    async def run(self) -> None:
        while True:
            self.reasons.append(await self._standing.wait_lost())

    async def blocks(self, count: int, *signers: str) -> None:
        """That many blocks, a second apart."""
        for _ in range(count):
            await trio.sleep(1.0)
            self.ledger.block(*signers)
            await trio.sleep(0.1)


@pytest.fixture
async def watched(nursery: trio.Nursery) -> Watched:
    found = Watched()
    nursery.start_soon(found.run)
    await trio.sleep(0.1)
    return found


async def test_an_engine_whose_votes_nobody_has_is_started_again(
    watched: Watched, autojump_clock: object
) -> None:
    await watched.blocks(MISSED_BLOCKS - 1, THEIRS)
    assert watched.reasons == []
    await watched.blocks(1, THEIRS)
    assert watched.reasons == ["20 blocks without this validator's vote"]


async def test_the_next_time_it_takes_twice_as_many(
    watched: Watched, autojump_clock: object
) -> None:
    await watched.blocks(3 * MISSED_BLOCKS - 1, THEIRS)
    assert len(watched.reasons) == 1
    await watched.blocks(1, THEIRS)
    assert watched.reasons[1:] == ["40 blocks without this validator's vote"]


async def test_one_vote_begins_the_count_anew(watched: Watched, autojump_clock: object) -> None:
    await watched.blocks(MISSED_BLOCKS - 1, THEIRS)
    await watched.blocks(1, THEIRS, OURS)
    await watched.blocks(MISSED_BLOCKS - 1, THEIRS)
    assert watched.reasons == []


async def test_who_has_no_vote_misses_none(watched: Watched, autojump_clock: object) -> None:
    watched.ledger.members = (THEIRS,)
    await watched.blocks(3 * MISSED_BLOCKS, THEIRS)
    assert watched.reasons == []


@pytest.mark.parametrize(("attribute", "value"), [("age_s", 60.0), ("catching_up", True)])
async def test_old_blocks_need_no_vote_of_an_engine_that_did_not_run(
    watched: Watched, autojump_clock: object, attribute: str, value: object
) -> None:
    setattr(watched.ledger, attribute, value)
    await watched.blocks(3 * MISSED_BLOCKS, THEIRS)
    assert watched.reasons == []


async def test_an_engine_that_stands_still_is_started_again_ever_more_seldom(
    watched: Watched, autojump_clock: object
) -> None:
    await trio.sleep(STILL_S + 1)
    assert watched.reasons == ["no block for 90 s"]
    await trio.sleep(2 * STILL_S)
    assert watched.reasons[1:] == ["no block for 180 s"]
    await watched.blocks(1, OURS)
    await trio.sleep(STILL_S + 1)
    assert watched.reasons[2:] == ["no block for 90 s"]


@pytest.mark.parametrize("attribute", ["catching_up", "executing"])
async def test_an_engine_that_has_a_reason_to_wait_is_left_alone(
    watched: Watched, autojump_clock: object, attribute: str
) -> None:
    setattr(watched.ledger, attribute, True)
    await trio.sleep(20 * STILL_S)
    assert watched.reasons == []


async def test_what_an_engine_said_before_it_fell_silent_is_no_reason(
    watched: Watched, autojump_clock: object
) -> None:
    watched.ledger.catching_up = watched.ledger.silent = True
    await trio.sleep(STILL_S + 1)
    assert watched.reasons == ["no block for 90 s"]
