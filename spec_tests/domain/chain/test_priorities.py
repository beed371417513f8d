"""Proposer priorities: the properties of CometBFT's specification, and its published examples."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.chain.comet.priorities import WINDOW, RankedSet
from meshnode.domain.chain.comet.validators import CometValidator
from spec_tests.domain.chain.net import actor

KEYS = [actor(f"ranked {index}").consensus_key for index in range(6)]
POWERS = st.lists(st.integers(1, 10**12), min_size=1, max_size=6)


def ranked(powers: list[int]) -> RankedSet:
    pairs = zip(KEYS, powers, strict=False)
    return RankedSet.of_genesis([CometValidator(key, power) for key, power in pairs])


def test_one_validator_always_has_priority_zero() -> None:
    found = ranked([400_000])
    for _ in range(5):
        assert (found.proposer, found.priorities) == (KEYS[0], {KEYS[0]: 0})
        found = found.follow(found.powers)


def test_turns_are_in_proportion_to_power() -> None:
    found, turns = ranked([1, 2, 3]), Counter[str]()
    for _ in range(600):
        turns[found.proposer] += 1
        found = found.follow(found.powers)
    assert [turns[key] for key in KEYS[:3]] == [100, 200, 300]


@given(POWERS, st.lists(POWERS, max_size=5))
def test_priorities_stay_centred_and_within_the_window(
    powers: list[int], later: list[list[int]]
) -> None:
    found = ranked(powers)
    for change in [powers, *later]:
        found = found.follow(dict(zip(KEYS, change, strict=False)))
        total = sum(found.powers.values())
        values = found.priorities.values()
        assert max(values) - min(values) <= (WINDOW + 1) * total
        assert abs(sum(values)) <= len(values) * 2
        assert found.powers == dict(zip(KEYS, change, strict=False))
        assert found.proposer in found.powers


def test_who_joins_begins_behind_everybody() -> None:
    found = ranked([10, 10])
    joined = found.follow({**found.powers, KEYS[2]: 10})
    assert min(joined.priorities, key=lambda key: joined.priorities[key]) == KEYS[2]
    assert joined.proposer != KEYS[2]
