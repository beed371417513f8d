"""Depths and quotations (decision 0230)."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.speculation import (
    FORGOTTEN_AFTER,
    FORGOTTEN_LATEST,
    MAX_DEPTH,
    TRIED_DEPTH,
    WORTH,
    Acceptance,
    Forgetting,
    Lookup,
    PassCosts,
    best_depth,
    expected_tokens,
)


def costs(one_ms: float, extra_ms: float) -> PassCosts:
    found = PassCosts()
    found.measured(1, one_ms)
    found.measured(11, one_ms + 10 * extra_ms)
    return found


def test_nothing_is_guessed_before_a_pass_was_measured() -> None:
    assert best_depth(PassCosts(), 1.0) == 0


def test_a_slow_network_is_worth_many_guesses_and_a_busy_machine_none() -> None:
    assert best_depth(costs(200.0, 1.0), 0.9) > 10
    assert best_depth(costs(200.0, 1.0), 0.5) in range(2, 8)
    assert best_depth(costs(3.0, 3.0), 0.9) == 0
    assert best_depth(costs(200.0, 1.0), 0.0) == 0
    # A draft that takes as long as a pass gains nothing.
    assert best_depth(costs(10.0, 0.0), 0.9, proposal_ms=10.0) == 0


def test_little_is_risked_while_the_cost_is_not_known() -> None:
    known = costs(200.0, 1.0)
    known.forget()
    assert best_depth(known, 0.99) == TRIED_DEPTH
    # The next measurement is believed at once.
    known.measured(5, 1000.0)
    assert best_depth(known, 0.99) == 0


def passes_until_forgotten(forgetting: Forgetting) -> int:
    return next(count for count in itertools.count(1) if forgetting.unguessed())


def test_a_cost_that_nothing_measures_is_forgotten_and_then_believed_for_longer() -> None:
    forgetting = Forgetting()
    waits = [passes_until_forgotten(forgetting) for _ in range(6)]
    assert waits[:3] == [FORGOTTEN_AFTER, 2 * FORGOTTEN_AFTER, 4 * FORGOTTEN_AFTER]
    assert waits[-1] == FORGOTTEN_LATEST
    forgetting.guessed()
    assert passes_until_forgotten(forgetting) == FORGOTTEN_AFTER


@given(st.floats(0.1, 1e4), st.floats(0.0, 1e3), st.floats(0.0, 1.0), st.floats(0.0, 100.0))
def test_a_depth_is_worth_it_by_its_own_figures(
    one_ms: float, extra_ms: float, rate: float, proposal_ms: float
) -> None:
    known = costs(one_ms, extra_ms)
    depth = best_depth(known, rate, proposal_ms)
    assert 0 <= depth <= MAX_DEPTH
    if depth:
        took_ms = known.of(1 + depth) + depth * proposal_ms
        gain = expected_tokens(depth, rate) / took_ms * known.of(1)
        assert gain >= WORTH * 0.999


def test_expected_tokens_count_the_one_that_always_comes() -> None:
    assert expected_tokens(4, 0.0) == 1.0
    assert expected_tokens(4, 1.0) == 5.0
    assert expected_tokens(2, 0.5) == pytest.approx(1.75)


def test_acceptance_moves_from_its_prior_to_what_is_seen() -> None:
    seen = Acceptance(0.5)
    assert seen.rate == 0.5
    for _ in range(100):
        seen.seen(accepted=True)
    assert seen.rate > 0.9
    for _ in range(40):
        seen.seen(accepted=False)
    assert seen.rate < 0.3


def test_a_network_that_became_quicker_is_noticed() -> None:
    known = costs(200.0, 1.0)
    known.measured(5, 20.0)
    assert known.one_ms == 20.0


def test_a_quotation_is_continued_even_over_the_end_of_the_text() -> None:
    lookup = Lookup()
    for token in [1, 2, 3, 4, 5, 9, 1, 2, 3]:
        lookup.add(token)
    assert lookup.propose((), 3) == [4, 5, 9]
    assert lookup.propose([4, 5], 2) == [9, 1]
    # What follows a repetition that is still going on is the repetition.
    assert lookup.propose((), 8) == [4, 5, 9, 1, 2, 3, 4, 5]
    assert lookup.propose([7, 7], 3) == []


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(0, 10))
def test_a_quotation_follows_a_token_that_it_follows_in_the_text(
    tokens: list[int], count: int
) -> None:
    lookup = Lookup()
    for token in tokens:
        lookup.add(token)
    found = lookup.propose((), count)
    assert len(found) <= count
    text = [*tokens, *found]
    pairs = set(itertools.pairwise(tokens))
    assert all(pair in pairs for pair in itertools.pairwise(text[max(0, len(tokens) - 1) :]))
