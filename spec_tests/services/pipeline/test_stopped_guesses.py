"""Guesses that stopped since they cost too much begin again when they would pay (decision 0230)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import pytest

from meshnode.domain.speculation import FORGOTTEN_AFTER, FORGOTTEN_LATEST
from meshnode.model.draft import DraftSession
from meshnode.services.pipeline.guessing import Guesses, SharedFigures

ONE_MS = 20.0
LENGTH = 12
"""Tokens of a generation: too few for a trial of its own."""
ROOM = 100


class AlwaysRight:
    """A draft for a text that counts."""

    unread = 0
    """Pieces of the text that it has not read."""

    def behind(self, text: Sequence[int]) -> bool:
        return self.unread > 0

    out_of_memory = closed = False

    def read(self, text: Sequence[int]) -> list[int]:
        if self.out_of_memory:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        self.unread -= 1
        return []

    def close(self) -> None:
        self.closed = True

    def propose(self, text: Sequence[int], count: int) -> list[int]:
        return [text[-1] + 1 + number for number in range(count)]


async def at_once(compute: Callable[[], list[int]]) -> list[int]:
    return compute()


def never(work: Callable[[], Awaitable[None]]) -> None:
    raise AssertionError("there is nothing to read")


async def passes_until_guessed(shared: SharedFigures, most: int) -> int:
    """Generate short texts, and count passes until one has guesses."""
    passes = 0
    while passes < most:
        draft = cast(DraftSession, AlwaysRight())
        guesses = Guesses(shared, [1000 * passes], draft, at_once, never)
        for token in range(LENGTH):
            passes += 1
            if await guesses.propose(ROOM):
                return passes
            guesses.settle(1000 * passes + token)
            shared.costs.measured(1, ONE_MS)
    return passes


def troubled() -> SharedFigures:
    """The figures after somebody kept the machine so busy that guesses took a second."""
    shared = SharedFigures()
    for _ in range(40):
        shared.costs.measured(1, ONE_MS)
        shared.costs.measured(5, 1000.0)
        shared.draft.seen(accepted=True)
    shared.draft_ms = 100.0
    return shared


async def test_they_begin_again_after_a_time_of_trouble() -> None:
    shared = troubled()
    assert await passes_until_guessed(shared, 10 * FORGOTTEN_LATEST) == FORGOTTEN_AFTER + 1
    # Now they cost little.
    shared.costs.measured(5, 1.2 * ONE_MS)
    for _ in range(10):
        assert await passes_until_guessed(shared, LENGTH) == 1


async def test_they_are_tried_ever_more_rarely_where_they_never_pay() -> None:
    shared = troubled()
    waits = []
    for _ in range(6):
        waits.append(await passes_until_guessed(shared, 10 * FORGOTTEN_LATEST))
        shared.costs.measured(5, 1000.0)
    assert waits == sorted(waits)
    assert waits[-1] == pytest.approx(FORGOTTEN_LATEST, abs=2)


async def test_a_draft_that_does_not_know_the_text_reads_it_meanwhile() -> None:
    shared = SharedFigures()
    shared.costs.measured(1, ONE_MS)
    draft, tasks = AlwaysRight(), list[Callable[[], Awaitable[None]]]()
    draft.unread = 3
    guesses = Guesses(shared, [1000], cast(DraftSession, draft), at_once, tasks.append)
    for token in range(2):
        # One task reads, and no pass waits for it.
        assert await guesses.propose(ROOM) == []
        guesses.settle(1001 + token)
    (reading,) = tasks
    await reading()
    assert draft.unread == 0
    assert (await guesses.propose(ROOM))[:2] == [1003, 1004]


async def test_a_text_that_has_ended_is_read_no_further() -> None:
    shared = SharedFigures()
    shared.costs.measured(1, ONE_MS)
    draft, tasks = AlwaysRight(), list[Callable[[], Awaitable[None]]]()
    draft.unread = 3
    guesses = Guesses(shared, [1000], cast(DraftSession, draft), at_once, tasks.append)
    await guesses.propose(ROOM)
    guesses.close()
    (reading,) = tasks
    await reading()
    assert draft.unread == 3


async def test_a_draft_that_fails_to_read_is_given_up() -> None:
    shared = SharedFigures()
    shared.costs.measured(1, ONE_MS)
    draft, tasks = AlwaysRight(), list[Callable[[], Awaitable[None]]]()
    draft.unread, draft.out_of_memory = 3, True
    guesses = Guesses(shared, [1000], cast(DraftSession, draft), at_once, tasks.append)
    await guesses.propose(ROOM)
    (reading,) = tasks
    await reading()
    assert draft.closed
