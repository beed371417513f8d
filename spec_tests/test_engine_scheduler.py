"""design: sessions join and leave at token boundaries, the cache is bounded, nobody starves."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from meshnode.domain.batching import EngineLimits, Scheduler

LIMITS = EngineLimits(max_batch=3, max_queue=4, kv_bytes=100, prefill_chunk=4)


class Batching(RuleBasedStateMachine):
    """Random joins, leaves and steps against a small model: a queue in order, and a set."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler: Scheduler[int] = Scheduler(LIMITS)
        self.next_key = 0
        self.sizes: dict[int, tuple[int, int]] = {}
        self.queue: list[int] = []
        self.batch: list[int] = []
        self.computed: dict[int, int] = {}
        self.patience: dict[int, int] = {}

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

    @rule(cancel=st.booleans())
    def step(self, cancel: bool) -> None:
        admitted = self.scheduler.admit()
        # In the order of arrival, nobody overtaken.
        assert admitted == self.queue[: len(admitted)]
        self.queue, self.batch = self.queue[len(admitted) :], self.batch + admitted
        if self.queue and len(self.batch) < LIMITS.max_batch:
            assert self.kv() + self.sizes[self.queue[0]][1] > LIMITS.kv_bytes
        for key in admitted:
            self.patience[key] = 0
        chunk = self.scheduler.next_chunk()
        waiting = [k for k in self.batch if self.computed[k] < self.sizes[k][0]]
        assert (chunk is None) == (not waiting)
        if chunk is not None:
            prompt = self.sizes[chunk.key][0]
            assert chunk.start == self.computed[chunk.key]
            assert chunk.start % LIMITS.prefill_chunk == 0
            assert chunk.stop == min(chunk.start + LIMITS.prefill_chunk, prompt)
            assert chunk.last == (chunk.stop == prompt)
            for key in waiting:
                self.patience[key] += 1
                # Everyone's turn comes once in a round.
                assert self.patience[key] <= LIMITS.max_batch
            self.patience[chunk.key] = 0
            if cancel:
                self.scheduler.leave(chunk.key)
                self.forget(chunk.key)
            else:
                self.computed[chunk.key] = chunk.stop
            self.scheduler.prefilled(chunk)
        ready = {k for k in self.batch if self.computed[k] == self.sizes[k][0]}
        assert set(self.scheduler.decoding()) == ready

    def forget(self, key: int) -> None:
        del self.sizes[key]
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

    def teardown(self) -> None:
        for key in list(self.sizes):
            self.scheduler.leave(key)
        assert self.scheduler.kv_bytes_in_use == 0
        assert self.scheduler.sessions() == []


TestBatching = Batching.TestCase


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
