"""Decision 0132: who has a place, who gives one up, and who waits in the queue."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from meshnode.domain.batching import EngineLimits, Scheduler
from meshnode.domain.places import RESTS_S
from meshnode.domain.shares import (
    RECENT_S,
    Requester,
    Standing,
    kept,
    largest_above,
)
from spec_tests.domain.batches import (
    ALICE,
    ANY,
    BOB,
    FAR,
    FREE,
    NEAR,
    PAYING,
    PEER,
    Batch,
    waiting_state,
)


def test_what_is_kept_adds_up() -> None:
    for total in range(1, 70):
        parts = [kept(standing, total) for standing in Standing]
        assert sum(parts) == total
        assert parts[0] >= 1
        assert total < 3 or min(parts) >= 1
    assert [kept(standing, 32) for standing in Standing] == [20, 8, 4]


def test_creeping_sessions_of_one_peer_keep_no_paying_request_waiting() -> None:
    """The siege: all places taken by sessions that are used now and then."""
    batch = Batch()
    assert len(batch.submit(NEAR, 16)) == 16
    batch.admit()
    assert batch.places(NEAR) == 16
    batch.submit(ALICE, 12)
    assert len(batch.admit()) == 12
    assert (batch.places(ALICE), batch.places(NEAR)) == (12, kept(PEER, 16))


def test_the_session_that_has_rested_longest_goes_first() -> None:
    batch = Batch()
    sessions = batch.submit(NEAR, 16)
    batch.admit()
    for name in reversed(sessions):
        batch.scheduler.begin(name, 0, 1)
        batch.scheduler.rest(name, batch.now)
    batch.submit(ALICE, 3)
    batch.admit()
    assert batch.lost == sessions[:-4:-1]


def test_what_is_kept_for_peers_is_theirs_only_while_they_use_it() -> None:
    batch = Batch()
    batch.submit(NEAR, 16)
    batch.admit()
    batch.submit(ALICE, 16)
    batch.admit()
    assert batch.places(NEAR) == 4
    batch.now = RESTS_S
    batch.admit()
    assert batch.places(ALICE) == 16


def test_a_peer_with_fewer_sessions_gets_the_place_of_one_with_more() -> None:
    batch = Batch()
    batch.submit(NEAR, 16)
    batch.admit()
    batch.submit(FAR, 1)
    assert len(batch.admit()) == 1
    assert (batch.places(NEAR), batch.places(FAR)) == (15, 1)


def test_free_calls_make_no_paying_request_wait_but_are_not_starved() -> None:
    batch = Batch()
    free = batch.submit(ANY, 16)
    batch.admit()
    batch.step()
    paying = batch.submit(ALICE, 16)
    batch.admit()
    assert (batch.places(ALICE), batch.places(ANY)) == (14, kept(FREE, 16))
    # A place that becomes free goes to the one of them that has less than is kept for it.
    batch.scheduler.leave(next(name for name in free if name not in batch.lost))
    batch.admit()
    assert (batch.places(ALICE), batch.places(ANY)) == (14, 2)
    batch.scheduler.leave(paying[0])
    batch.admit()
    assert (batch.places(ALICE), batch.places(ANY)) == (14, 2)


def test_accounts_share_the_places() -> None:
    batch = Batch()
    batch.submit(ALICE, 30)
    batch.admit()
    assert batch.places(ALICE) == 16
    batch.submit(BOB, 1)
    assert len(batch.admit()) == 1
    assert (batch.places(ALICE), batch.places(BOB)) == (15, 1)
    batch.submit(BOB, 15)
    batch.admit()
    assert (batch.places(ALICE), batch.places(BOB)) == (8, 8)


def test_a_place_is_left_to_whoever_is_expected_back() -> None:
    """A client in a closed loop would otherwise displace a generation with each request."""
    batch = Batch()
    batch.submit(ALICE, 20)
    (first,) = batch.submit(BOB)
    batch.admit()
    batch.end(first)
    batch.now = RECENT_S / 2
    assert batch.admit() == []
    (second,) = batch.submit(BOB)
    assert batch.admit() == [second]
    assert batch.lost == []
    batch.end(second)
    assert batch.admit() == []
    batch.now += RECENT_S
    assert len(batch.admit()) == 1
    assert batch.places(ALICE) == 16


def test_no_more_places_are_left_than_were_used_at_once() -> None:
    """Clients that take turns need one place together, however many they are."""
    batch = Batch()
    batch.submit(ALICE, 20)
    batch.admit()
    for number in range(8):
        (name,) = batch.submit(Requester(PAYING, f"client-{number}"))
        batch.admit()
        batch.end(name)
        batch.now += RECENT_S / 20
    assert batch.admit() == []
    batch.end(next(one for one in batch.scheduler.sessions() if one.startswith("alice")))
    assert len(batch.admit()) == 1
    assert batch.places(ALICE) == 15


def test_nobody_without_a_place_waits_for_those_expected_back() -> None:
    batch = Batch()
    batch.submit(ALICE, 15)
    (only,) = batch.submit(BOB)
    batch.admit()
    batch.end(only)
    (newcomer,) = batch.submit(Requester(PAYING, "carol"))
    assert batch.admit() == [newcomer]
    (free,) = batch.submit(ANY)
    batch.scheduler.leave(newcomer)
    assert batch.admit() == [free]


def test_free_calls_leave_a_place_to_paying_requests_expected_back() -> None:
    batch = Batch()
    batch.submit(ANY, 16)
    (only,) = batch.submit(ALICE)
    batch.admit()
    batch.end(only)
    assert batch.admit() == []
    again = batch.submit(ALICE)
    assert batch.admit() == again
    assert batch.lost == []


def test_a_suspended_generation_is_the_next_of_its_requester() -> None:
    batch = Batch()
    batch.submit(ALICE, 20)
    batch.admit()
    (bob,) = batch.submit(BOB)
    batch.admit()
    (suspended,) = batch.lost
    batch.scheduler.leave(bob)
    assert batch.admit() == [suspended]


def test_a_full_queue_refuses_those_who_have_the_most() -> None:
    batch = Batch()
    taken = batch.submit(ALICE, 40)
    assert len(taken) == 32
    assert batch.scheduler.takes(BOB)
    assert not batch.scheduler.takes(ALICE)
    batch.submit(BOB, 3)
    assert [name for name in taken if batch.requesters[name] != ALICE] == taken[:-4:-1][::-1]
    assert len(batch.submit(BOB, 40)) == 13


def test_paying_requests_enter_a_queue_that_is_full_of_free_ones() -> None:
    batch = Batch()
    batch.submit(ANY, 40)
    batch.admit()
    assert len(batch.submit(ALICE, 40)) == 16 - kept(FREE, 16)
    assert not batch.scheduler.takes(ANY)
    # What is kept for free callers is beyond what paying ones can fill.
    other = Requester(FREE, "10.0.0.9")
    full = Batch()
    full.submit(ALICE, 40)
    full.admit()
    assert len(full.submit(other, 40)) == kept(FREE, 16)
    assert full.scheduler.queued == 16 + kept(FREE, 16)


def test_a_request_that_needs_more_memory_than_its_part_gets_it_from_lower_standings() -> None:
    batch = Batch()
    batch.submit(NEAR, 4, 100)
    batch.admit()
    (large,) = batch.submit(ALICE, 1, 1600)
    assert batch.admit() == [large]
    assert batch.places(NEAR) == 0


def test_nobody_gives_way_in_vain() -> None:
    batch = Batch()
    batch.submit(ALICE, 1, 1200)
    batch.admit()
    batch.submit(NEAR, 4, 100)
    batch.admit()
    batch.submit(BOB, 1, 600)
    assert batch.admit() == []
    assert batch.lost == []


def test_sessions_of_own_generations_are_never_moved() -> None:
    """The layers that a driver holds itself: its generation could not go on without them."""
    batch = Batch()
    for index in range(16):
        batch.scheduler.submit_resting(f"own-{index}", 10, ANY, bound=True)
        batch.requesters[f"own-{index}"] = ANY
    batch.admit()
    batch.now = 100.0
    batch.submit(ALICE, 1)
    assert batch.admit() == []


def test_sessions_of_strangers_give_way_to_everybody() -> None:
    """They count as free (decision 0164); in the siege they kept what paying clients had left."""
    batch = Batch()
    for index in range(16):
        batch.scheduler.submit_resting(f"strange-{index}", 10, ANY, batch.now)
        batch.requesters[f"strange-{index}"] = Requester(PEER, "a stranger's")
    batch.admit()
    batch.submit(ALICE, 16)
    assert len(batch.admit()) == 16 - kept(FREE, 16)
    batch.now = RESTS_S
    batch.submit(Requester(FREE, "10.0.0.9"))
    batch.admit()
    assert len(batch.lost) == 16


def test_who_waits_too_long_is_named() -> None:
    batch = Batch()
    batch.submit(ALICE, 16)
    batch.admit()
    batch.now = 1.0
    (late,) = batch.submit(ALICE)
    assert batch.scheduler.overdue(30.9) == []
    assert batch.scheduler.overdue(31.0) == [late]


def test_the_largest_above() -> None:
    assert largest_above([], 0) is None
    assert largest_above("aab", 0) == "a"
    assert largest_above("aab", 1) is None


class Contested(RuleBasedStateMachine):
    """Requesters of all standings come and go; afterwards nobody has a reason to complain."""

    def __init__(self) -> None:
        super().__init__()
        limits = EngineLimits(max_batch=8, max_queue=4, kv_bytes=80, prefill_chunk=4)
        self.batch = Batch(limits)

    @rule(
        requester=st.sampled_from([ALICE, BOB, NEAR, FAR, ANY]),
        count=st.integers(1, 6),
        kv_bytes=st.integers(1, 20),
    )
    def submit(self, requester: Requester, count: int, kv_bytes: int) -> None:
        self.batch.submit(requester, count, kv_bytes)

    @precondition(lambda self: self.batch.scheduler.sessions())
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.batch.scheduler.leave(data.draw(st.sampled_from(self.batch.scheduler.sessions())))

    @rule(seconds=st.sampled_from([0.1, 1.0, 3.0]))
    def wait(self, seconds: float) -> None:
        self.batch.now += seconds

    @rule()
    def step(self) -> None:
        lost = len(self.batch.lost)
        self.batch.admit()
        # Who lost a place in a step does not get it back in the same one.
        assert len(set(self.batch.lost[lost:])) == len(self.batch.lost) - lost
        assert self.batch.admit() == []
        self.batch.step()
        scheduler = self.batch.scheduler
        waiting = {self.batch.requesters[key].standing for key in scheduler._in[waiting_state()]}
        if PAYING in waiting and scheduler.computing == 8:
            free = sum(self.batch.places(r) for r in (ANY,))
            peers = sum(self.batch.places(r) for r in (NEAR, FAR))
            assert free <= kept(FREE, 8) or self.short_of_memory()
            assert peers <= kept(PEER, 8) or self.short_of_memory()

    def short_of_memory(self) -> bool:
        """Whether some session that waits might be too large for what others may give."""
        waiting = self.batch.scheduler._in[waiting_state()].values()
        return max(claim.kv_bytes for claim in waiting) + kept(PAYING, 80) > 80

    @invariant()
    def bounds(self) -> None:
        scheduler = self.batch.scheduler
        assert scheduler.computing <= 8
        assert scheduler.kv_bytes_in_use <= 80
        assert scheduler.queued <= 4 + 8 + kept(PEER, 4) + kept(FREE, 4)


TestContested = Contested.TestCase


TestContested.settings = settings(max_examples=25, stateful_step_count=30)


def test_what_a_suspended_generation_computes_again_comes_in_small_pieces() -> None:
    scheduler: Scheduler[str] = Scheduler(EngineLimits(max_batch=1))
    scheduler.submit("a", 130, 10)
    scheduler.admit()
    scheduler.suspend("a", 180, 130)
    scheduler.admit()
    stops = []
    while (chunk := scheduler.next_chunk()) is not None:
        stops.append(chunk.stop)
        scheduler.prefilled(chunk)
    assert stops == [128, 130, 144, 160, 176, 180]
