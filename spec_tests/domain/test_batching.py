"""Sessions join and leave between tokens, the cache is bounded, no session starves."""

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from meshnode.domain import batching
from meshnode.domain.batch_states import Batched
from meshnode.domain.batching import EngineLimits, Scheduler, State
from meshnode.domain.transitions import IllegalTransition
from spec_tests.domain.transition_tables import documented, draw, pairs, run_until_all_happened

LIMITS = EngineLimits(max_batch=3, max_queue=4, kv_bytes=100, prefill_chunk=4)


class Batching(RuleBasedStateMachine):
    """Random joins, leaves and steps, compared with a small model: a queue and a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler: Scheduler[int] = Scheduler(LIMITS)
        self.next_key = 0
        self.sizes: dict[int, tuple[int, int]] = {}
        self.queue: list[int] = []
        self.batch: list[int] = []
        self.computed: dict[int, int] = {}
        self.patience: dict[int, int] = {}
        # Pipeline sessions: next position, end, and the position where a chunk must end; None at
        # rest.
        self.work: dict[int, tuple[int, int, int] | None] = {}
        self.single: set[int] = set()
        # Where the prompt of a generation ends that was suspended.
        self.breaks: dict[int, int] = {}

    @rule(kv=st.integers(1, 100))
    def submit_resting(self, kv: int) -> None:
        key, self.next_key = self.next_key, self.next_key + 1
        room = len(self.queue) < LIMITS.max_queue + LIMITS.max_batch - len(self.batch)
        assert self.scheduler.submit_resting(key, kv) == room
        if room:
            self.queue.append(key)
            self.sizes[key] = (0, kv)
            self.work[key] = None

    def resting(self) -> list[int]:
        return [key for key in self.batch if key in self.work and self.work[key] is None]

    @precondition(lambda self: self.resting())
    @rule(
        data=st.data(),
        start=st.integers(0, 9),
        count=st.integers(1, 12),
        break_at=st.integers(-1, 12),
    )
    def begin(self, data: st.DataObject, start: int, count: int, break_at: int) -> None:
        key = data.draw(st.sampled_from(self.resting()))
        self.scheduler.begin(key, start, start + count, break_at)
        self.work[key] = (start, start + count, break_at)
        (self.single.add if count == 1 else self.single.discard)(key)
        self.patience[key] = 0

    @precondition(lambda self: self.batch)
    @rule(data=st.data(), kv=st.integers(1, 100))
    def resize(self, data: st.DataObject, kv: int) -> None:
        key = data.draw(st.sampled_from(self.batch))
        fits = self.kv() - self.sizes[key][1] + kv <= LIMITS.kv_bytes
        assert self.scheduler.resize(key, kv) == fits
        if fits:
            self.sizes[key] = (self.sizes[key][0], kv)

    @precondition(lambda self: any(key in self.work for key in self.batch))
    @rule(data=st.data())
    def rest(self, data: st.DataObject) -> None:
        """End a session's work, as when its caller leaves or it fails; may already be at rest."""
        key = data.draw(st.sampled_from([key for key in self.batch if key in self.work]))
        self.scheduler.rest(key)
        self.work[key] = None

    @rule(prompt=st.integers(1, 20), kv=st.integers(1, 100))
    def submit(self, prompt: int, kv: int) -> None:
        key, self.next_key = self.next_key, self.next_key + 1
        free = LIMITS.max_batch - len(self.batch)
        room = len(self.queue) < LIMITS.max_queue + free
        assert self.scheduler.full != room
        assert self.scheduler.submit(key, prompt, kv) == room
        if room:
            self.queue.append(key)
            self.sizes[key] = (prompt, kv)
            self.computed[key] = 0

    @precondition(lambda self: self.sizes)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.sizes)))
        self.scheduler.leave(key)
        self.forget(key)

    @precondition(lambda self: any(key not in self.work for key in self.batch))
    @rule(data=st.data(), generated=st.integers(0, 6))
    def suspend(self, data: st.DataObject, generated: int) -> None:
        key = data.draw(st.sampled_from([key for key in self.batch if key not in self.work]))
        prompt, kv = self.sizes[key]
        self.breaks.setdefault(key, prompt)
        self.scheduler.suspend(key, prompt + generated, self.breaks[key])
        self.sizes[key], self.computed[key] = (prompt + generated, kv), 0
        self.batch.remove(key)
        self.queue.insert(0, key)

    @rule(cancel=st.booleans())
    def step(self, cancel: bool) -> None:
        admitted = self.scheduler.admit()
        # Sessions are admitted in the order of arrival.
        assert admitted == self.queue[: len(admitted)]
        self.queue, self.batch = self.queue[len(admitted) :], self.batch + admitted
        if self.queue and len(self.batch) < LIMITS.max_batch:
            assert self.kv() + self.sizes[self.queue[0]][1] > LIMITS.kv_bytes
        for key in admitted:
            self.patience[key] = 0
        chunk = self.scheduler.next_chunk()
        waiting = [key for key in self.batch if self.prefills(key)]
        assert (chunk is None) == (not waiting)
        if chunk is not None:
            start, prompt, break_at = self.bounds(chunk.key)
            assert chunk.start == start
            # A chunk ends at the next multiple of the chunk size, at the break, or at the end.
            ends = {prompt, (start // LIMITS.prefill_chunk + 1) * LIMITS.prefill_chunk}
            assert chunk.stop == min(ends | ({break_at} if break_at > start else set()))
            assert chunk.last == (chunk.stop == prompt)
            for key in waiting:
                self.patience[key] += 1
                # Each waiting session gets a chunk within one round of the batch.
                assert self.patience[key] <= LIMITS.max_batch
            self.patience[chunk.key] = 0
            if cancel:
                self.scheduler.leave(chunk.key)
                self.forget(chunk.key)
            elif chunk.key in self.work:
                self.work[chunk.key] = None if chunk.last else (chunk.stop, prompt, break_at)
            else:
                self.computed[chunk.key] = chunk.stop
            self.scheduler.prefilled(chunk)
        ready = {k for k in self.batch if k not in self.work and not self.prefills(k)}
        assert set(self.scheduler.decoding()) == ready
        stepping = {k for k in self.batch if k in self.work and self.steps(k)}
        assert set(self.scheduler.stepping()) == stepping
        for key in stepping:
            self.scheduler.rest(key)
            self.work[key] = None

    def bounds(self, key: int) -> tuple[int, int, int]:
        """The next position, the end and the break of a session's prefill; -1 means no break."""
        work = self.work.get(key)
        if work is not None:
            return work
        return self.computed[key], self.sizes[key][0], self.breaks.get(key, -1)

    def prefills(self, key: int) -> bool:
        if key in self.work:
            return self.work[key] is not None and not self.steps(key)
        return self.computed[key] < self.sizes[key][0]

    def steps(self, key: int) -> bool:
        """Whether the session's work began as one position; the rest of a longer one is a chunk."""
        work = self.work[key]
        return work is not None and key in self.single

    def forget(self, key: int) -> None:
        del self.sizes[key]
        self.work.pop(key, None)
        self.queue = [k for k in self.queue if k != key]
        self.batch = [k for k in self.batch if k != key]

    def kv(self) -> int:
        return sum(self.sizes[key][1] for key in self.batch)

    @invariant()
    def memory_and_places_are_bounded(self) -> None:
        assert self.scheduler.kv_bytes_in_use == self.kv() <= LIMITS.kv_bytes
        assert self.scheduler.computing == len(self.batch) <= LIMITS.max_batch
        assert self.scheduler.queued == len(self.queue) <= LIMITS.max_queue + LIMITS.max_batch
        assert set(self.scheduler.sessions()) == set(self.sizes)
        busy = [key for key in self.batch if key not in self.work or self.work[key] is not None]
        assert self.scheduler.idle == (not busy)

    def teardown(self) -> None:
        for key in list(self.sizes):
            self.scheduler.leave(key)
        assert self.scheduler.kv_bytes_in_use == 0
        assert self.scheduler.sessions() == []


TestBatching = Batching.TestCase


def test_the_documented_table_is_the_one_in_use() -> None:
    assert draw(pairs(batching.TRANSITIONS)) == draw(documented(batching))


@pytest.mark.slow
def test_states_change_as_the_table_says(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: set[tuple[str, str]] = set()
    enter = Scheduler._enter

    def watched(scheduler: Scheduler[int], key: int, session: Any, state: State) -> None:
        before = session.state
        enter(scheduler, key, session, state)
        taken.add((before.name, state.name))

    monkeypatch.setattr(Scheduler, "_enter", watched)
    run_until_all_happened(Batching, batching.TRANSITIONS, taken)


def test_transitions_outside_the_table_are_refused() -> None:
    for state in State:
        for other in set(State) - batching.TRANSITIONS[state]:
            scheduler: Scheduler[int] = Scheduler(LIMITS)
            session = Batched(1, stop=1, state=state)
            with pytest.raises(IllegalTransition, match=f"{state.name} .* {other.name}"):
                scheduler._enter(0, session, other)
            assert session.state is state


@pytest.mark.parametrize(("prompt", "kv"), [(0, 1), (1, 0), (1, 101)])
def test_what_could_never_be_admitted_is_an_error(prompt: int, kv: int) -> None:
    with pytest.raises(ValueError, match="never"):
        Scheduler[int](LIMITS).submit(0, prompt, kv)


def test_a_large_session_is_not_overtaken_by_small_ones() -> None:
    scheduler: Scheduler[str] = Scheduler(LIMITS)
    scheduler.submit("first", 1, 60)
    scheduler.submit("large", 1, 100)
    scheduler.submit("small", 1, 1)
    assert scheduler.admit() == ["first"]
    assert scheduler.admit() == []
    scheduler.leave("first")
    assert scheduler.admit() == ["large"]


def test_a_short_prompt_does_not_wait_for_all_of_a_long_one() -> None:
    scheduler: Scheduler[str] = Scheduler(LIMITS)
    scheduler.submit("long", 40, 10)
    scheduler.submit("short", 3, 10)
    scheduler.admit()
    turns = []
    while (chunk := scheduler.next_chunk()) is not None:
        turns.append(chunk.key)
        scheduler.prefilled(chunk)
    assert turns[:3] == ["long", "short", "long"]
    assert scheduler.decoding() == ["short", "long"]
