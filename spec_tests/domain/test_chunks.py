"""Which positions share a step."""

from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.batching import EngineLimits, Scheduler
from meshnode.domain.chunks import FEWEST, MOST, STREAMING, Pace, shared


def test_a_lone_prompt_gets_the_whole_budget() -> None:
    assert shared([("a", 1000)], 128) == [("a", 128)]
    assert shared([("a", 5)], 128) == [("a", 5)]
    assert shared([], 128) == []


def test_short_prompts_share_a_chunk() -> None:
    assert shared([("a", 20), ("b", 30), ("c", 40)], 128) == [("a", 20), ("b", 30), ("c", 40)]


def test_a_short_prompt_does_not_wait_for_all_of_a_long_one() -> None:
    assert shared([("long", 5000), ("short", 10)], 128) == [("long", 118), ("short", 10)]


def test_equal_prompts_end_in_the_order_of_arrival() -> None:
    left = dict.fromkeys(range(8), 1000)
    ended = []
    steps = 0
    while left:
        steps += 1
        for key, count in shared(list(left.items()), 128):
            left[key] -= count
            if not left[key]:
                del left[key]
                ended.append(key)
        if len(ended) == 1 and ended != [0]:
            break
    assert ended == list(range(8))
    assert steps == -(-8000 // 128)


@given(st.lists(st.integers(1, 600), max_size=12), st.integers(16, 512))
def test_a_budget_is_used_and_not_exceeded(remaining: list[int], budget: int) -> None:
    given_out = shared(list(enumerate(remaining)), budget)
    assert all(0 < count <= remaining[key] for key, count in given_out)
    assert sum(count for _, count in given_out) == min(budget, sum(remaining))
    if remaining:
        assert given_out[0][0] == 0
        assert given_out[0][1] >= min(remaining[0], budget - budget // 4)


def test_a_budget_follows_the_pace() -> None:
    pace = Pace()
    assert pace.budget(streaming=True) == STREAMING
    pace.measured(128, 0.128)
    assert (pace.budget(streaming=True), pace.budget(streaming=False)) == (200, MOST)
    for _ in range(20):
        pace.measured(100, 10.0)
    assert pace.budget(streaming=True) == FEWEST
    for _ in range(40):
        pace.measured(100, 0.001)
    assert pace.budget(streaming=True) == MOST


def scheduler() -> Scheduler[str]:
    return Scheduler(EngineLimits(max_batch=8, kv_bytes=100), seamless=True)


def test_prompts_share_steps_and_pipelines_do_not() -> None:
    queue = scheduler()
    queue.submit("a", 100, 1)
    queue.submit("b", 20, 1)
    queue.submit_resting("peer", 1)
    queue.admit()
    queue.begin("peer", 0, 300)
    assert [(c.key, c.start, c.stop) for c in queue.next_chunks()] == [("a", 0, 100), ("b", 0, 20)]
    for chunk in queue.next_chunks():
        assert chunk.last
        queue.prefilled(chunk)
    assert queue.decoding() == ["a", "b"]
    assert [(c.key, c.start, c.stop) for c in queue.next_chunks()] == [("peer", 0, 128)]


def test_a_prompt_keeps_its_place_in_the_line() -> None:
    queue = scheduler()
    queue.submit("a", 300, 1)
    queue.submit("b", 300, 1)
    queue.admit()
    first = []
    while chunks := queue.next_chunks():
        for chunk in chunks:
            queue.prefilled(chunk)
            if chunk.last:
                first.append(chunk.key)
    assert first == ["a", "b"]


def test_a_suspended_generation_goes_on_over_its_break() -> None:
    queue = scheduler()
    queue.submit("a", 50, 1)
    queue.admit()
    for chunk in queue.next_chunks():
        queue.prefilled(chunk)
    queue.suspend("a", 70, 50)
    queue.admit()
    assert [(c.start, c.stop, c.last) for c in queue.next_chunks()] == [(0, 70, True)]
