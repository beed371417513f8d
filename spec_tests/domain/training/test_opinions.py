"""Who is condemned: the same for all, and not by a few liars (decision 0209)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.training.opinions import (
    MAX_OPINIONS,
    Opinion,
    Opinions,
    check_opinions,
    condemned,
)

GOOD, BAD = Opinion(0.9, 0.5), Opinion(-0.5, -0.4)


def test_most_of_the_others_condemn_a_node() -> None:
    views = {"l": BAD, "a": GOOD, "b": GOOD, "c": GOOD}
    statements = dict.fromkeys("abc", views) | {"l": {}}
    assert condemned(statements, 1) == {"l"}
    assert condemned(statements, 0) == frozenset()
    # Two of three others are most, one is not.
    assert condemned(statements | {"c": {}}, 1) == {"l"}
    assert condemned(statements | {"b": {}, "c": {}}, 1) == frozenset()


def test_a_contribution_that_helps_where_it_was_trained_is_not_harmful() -> None:
    assert not Opinion(0.3, -0.9).harmful
    assert not Opinion(-0.9, 0.3).harmful
    assert not Opinion(-0.001, -0.001).harmful
    assert BAD.harmful


def test_nobody_is_condemned_if_too_many_would_be() -> None:
    statements = {judge: dict.fromkeys("abcde", BAD) for judge in "abcde"}
    assert condemned(statements, 1) == frozenset()


opinions = st.builds(Opinion, st.floats(-1, 1), st.floats(-1, 1))


@given(st.integers(2, 9), st.data())
def test_a_minority_condemns_nobody_whom_the_others_find_good(
    honest: int, data: st.DataObject
) -> None:
    names = [f"h{n}" for n in range(honest)]
    liars = [f"l{n}" for n in range(data.draw(st.integers(0, (honest - 1) // 2)))]
    statements = {judge: dict.fromkeys(names, GOOD) for judge in names}
    for liar in liars:
        statements[liar] = data.draw(
            st.dictionaries(st.sampled_from([*names, *liars]), opinions, max_size=4)
        )
    assert not condemned(statements, len(statements)) & {*names}


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.dictionaries(st.sampled_from("abcdef"), opinions))
)
def test_the_order_of_the_statements_does_not_matter(
    statements: dict[str, dict[str, Opinion]],
) -> None:
    turned = dict(reversed(statements.items()))
    assert condemned(turned, 2) == condemned(statements, 2)


def test_effects_are_compared_within_a_round_and_what_is_older_counts_less() -> None:
    own = Opinions()
    own.measured({"a": (0.02, 0.01), "b": (-0.01, math.nan)})
    assert own.current() == {"a": Opinion(1.0, 0.5), "b": Opinion(-0.5, -1.0)}
    own.measured({"b": (0.004, 0.004)})
    assert own.current()["b"] == Opinion(0.25, 0.0)
    assert own.current()["a"] == Opinion(1.0, 0.5)
    # Nothing had any effect.
    own.measured({"c": (0.0, 0.0)})
    assert own.current()["c"] == Opinion(0.0, 0.0)


def test_those_measured_longest_ago_are_next_and_few_are_remembered() -> None:
    own = Opinions()
    own.measured({"a": (1.0, 1.0), "b": (1.0, 1.0)})
    own.measured({"a": (1.0, 1.0)})
    assert own.longest_unmeasured("abc", 2) == ["c", "b"]
    own.measured({f"{n}": (1.0, 1.0) for n in range(MAX_OPINIONS)})
    assert len(own.current()) == MAX_OPINIONS
    assert "a" not in own.current()


@pytest.mark.parametrize(
    "found",
    [
        {"a" * 40: Opinion(1.5, 0.0)},
        {"a" * 40: Opinion(0.0, math.nan)},
        {"a": GOOD},
        {f"{n:040}": GOOD for n in range(MAX_OPINIONS + 1)},
    ],
)
def test_opinions_out_of_bounds_are_refused(found: dict[str, Opinion]) -> None:
    with pytest.raises(InvalidRequest, match="opinions"):
        check_opinions(found)
    check_opinions({"a" * 40: GOOD})
