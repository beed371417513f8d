"""design: what holders did counts for later sessions, decays, and is bounded (decision 0134)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.reputation import (
    FAULT_S,
    FULL_S,
    HALF_LIFE_S,
    HEARSAY_S,
    MAX_FAULT_S,
    MAX_KNOWN,
    MAX_TRIALS,
    PROVEN_ANSWERS,
    TRIAL_SHARE,
    Conduct,
    Reputation,
    Standing,
    backoff_s,
    choose_trial,
    trial_shares,
)

NEW, PROVEN, DISTRUSTED = Standing.NEWCOMER, Standing.PROVEN, Standing.DISTRUSTED


def proven() -> Conduct:
    conduct = Conduct()
    for _ in range(PROVEN_ANSWERS):
        conduct.answered()
    return conduct


def test_answers_prove_a_holder() -> None:
    assert Conduct().standing(0.0) is NEW
    assert Conduct(answers=PROVEN_ANSWERS - 1).standing(0.0) is NEW
    assert proven().standing(0.0) is PROVEN


def test_a_fault_is_remembered_and_then_forgiven_in_part() -> None:
    conduct = proven()
    conduct.failed(now=100.0)
    assert conduct.standing(100.0 + FAULT_S - 1) is DISTRUSTED
    assert conduct.standing(100.0 + FAULT_S) is NEW


def test_backoffs_double_until_the_holder_is_proven_again() -> None:
    conduct, now, waits = Conduct(), 0.0, []
    for _ in range(12):
        conduct.failed(now)
        waits.append(conduct.distrusted_until - now)
        now = conduct.distrusted_until
    assert waits[:3] == [FAULT_S, 2 * FAULT_S, 4 * FAULT_S]
    assert waits[-1] == MAX_FAULT_S
    for _ in range(PROVEN_ANSWERS):
        conduct.answered()
    conduct.failed(now)
    assert conduct.distrusted_until == now + FAULT_S


def test_a_full_holder_stays_proven() -> None:
    conduct = proven()
    conduct.was_full(now=0.0)
    assert conduct.standing(FULL_S / 2) is DISTRUSTED
    assert conduct.standing(FULL_S) is PROVEN
    conduct.was_full(now=1.0)
    assert conduct.distrusted_until == 1.0 + 2 * FULL_S
    conduct.answered()
    conduct.was_full(now=9.0)
    assert conduct.distrusted_until == 9.0 + FULL_S


def test_hearsay_counts_when_it_is_repeated_soon() -> None:
    conduct = proven()
    conduct.rumoured(now=0.0)
    conduct.rumoured(now=HEARSAY_S)
    assert conduct.standing(HEARSAY_S) is PROVEN
    conduct.rumoured(now=HEARSAY_S + 1)
    assert conduct.standing(HEARSAY_S + 1) is DISTRUSTED


def test_measured_times_average_and_fade() -> None:
    conduct = Conduct()
    assert conduct.expected_ms(0.0) is None
    conduct.measured(400.0, now=0.0)
    assert conduct.expected_ms(0.0) == 400.0
    assert conduct.expected_ms(HALF_LIFE_S) == 200.0
    conduct.measured(0.0, now=0.0)
    assert conduct.expected_ms(0.0) == 300.0


def test_one_slow_holder_of_two_is_not_typical() -> None:
    known = Reputation()
    assert known.typical_layer_ms(["a"], 0.0) is None
    known.of_called("slow").measured(4000.0, 0.0)
    known.of_called("quick").measured(2.0, 0.0)
    assert known.typical_layer_ms(["slow", "quick", "unknown"], 0.0) == 2.0


def test_memory_is_bounded_and_reading_takes_none() -> None:
    known = Reputation()
    known.of_called("first").failed(0.0)
    for number in range(2 * MAX_KNOWN):
        known.of(f"never called {number}")
    assert known.of("first").faults == 1
    for number in range(2 * MAX_KNOWN):
        known.of_called(f"{number}")
    assert len(known) == MAX_KNOWN


def test_backoff_of_any_number_of_faults() -> None:
    assert backoff_s(10**9, 1.0, 60.0) == 60.0


@given(st.dictionaries(st.text(max_size=3), st.integers(0, PROVEN_ANSWERS - 1), max_size=40))
def test_newcomers_get_small_shares_that_grow(newcomers: dict[str, int]) -> None:
    shares = trial_shares(newcomers)
    assert shares.keys() == newcomers.keys()
    untried = [shares[node_id] for node_id, answers in newcomers.items() if not answers]
    tried = [shares[node_id] for node_id, answers in newcomers.items() if answers]
    assert sum(untried) == pytest.approx(TRIAL_SHARE if untried else 0.0)
    assert sum(tried) <= MAX_TRIALS + 1e-9
    # The draw picks each newcomer as often as its share says.
    at = 0.0
    for node_id, share in shares.items():
        assert choose_trial(newcomers, at + share / 2) == node_id
        at += share
    assert choose_trial(newcomers, at + 1e-9) is None


def test_a_single_newcomers_share_grows_with_its_answers() -> None:
    shares = [trial_shares({"a": answers})["a"] for answers in (0, 1, 32, 64, 127)]
    assert shares == [TRIAL_SHARE, TRIAL_SHARE, 0.25, 0.5, MAX_TRIALS]
