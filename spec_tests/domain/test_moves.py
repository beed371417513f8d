"""Whether a node should hold other layers (decision 0250)."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.moves import (
    Place,
    Placement,
    as_claimed,
    expected_ms,
    is_contested,
)
from meshnode.domain.placement import ModelSizes

EIGHT = ModelSizes(num_layers=8, layer_bytes=100, embedding_bytes=50, head_bytes=60)
HALF = 460
"""Memory for four layers, with embedding or head."""


def placement(own: Place, *others: Place, budget: int = HALF) -> Placement:
    return Placement(own, others, EIGHT, budget)


def test_layers_that_lost_their_holder_are_taken_over() -> None:
    plan = placement(Place("a", range(4)), Place("b", range(4))).best_move()
    assert plan is not None
    assert (plan.target, plan.relieves) == (range(4, 8), True)
    assert plan.now_ms == math.inf > plan.then_ms


def test_the_last_holder_of_a_layer_stays() -> None:
    assert placement(Place("a", range(4))).best_move() is None
    # It may still take what fits beside what only it has.
    plan = placement(Place("a", range(2, 4)), Place("b", range(3)), budget=460).best_move()
    assert plan is not None
    assert 3 in plan.target


def test_nobody_relies_on_a_node_that_leaves() -> None:
    own = Place("a", range(4))
    assert placement(own, Place("b", range(4), leaves=True)).best_move() is None
    assert placement(own, Place("b", range(4), target=range(4, 8), leaves=True)).best_move() is None


def test_what_another_one_will_hold_is_not_short() -> None:
    mover = Place("b", range(4), target=range(4, 8), leaves=True)
    assert placement(Place("a", range(4)), Place("c", range(4)), mover).best_move() is None


def test_a_claim_of_a_larger_id_gives_way() -> None:
    rival = Place("b", range(4), target=range(4, 8), leaves=True)
    own, others = Place("a", range(4)), [rival]
    assert placement(own, *others).judge(range(4, 8)) is None
    assert placement(own, *as_claimed("a", others)).judge(range(4, 8)) is not None
    assert as_claimed("c", others) == others
    assert not is_contested(own, range(4, 8), others)
    assert is_contested(Place("c", range(4)), range(4, 8), others)
    assert not is_contested(Place("c", range(4)), range(8), others)


def test_a_node_moves_to_where_the_pipeline_is_narrow() -> None:
    many = [Place(f"n{n}", range(4), layer_ms=2.0) for n in range(4)]
    plan = placement(Place("a", range(4), 2.0), *many, Place("z", range(4, 8), 2.0)).best_move()
    assert plan is not None
    assert (plan.target, plan.relieves) == (range(4, 8), False)
    assert plan.then_ms <= 5 / 6 * plan.now_ms
    even = [Place("b", range(4), 2.0), Place("c", range(4, 8), 2.0), Place("d", range(4, 8), 2.0)]
    assert placement(Place("a", range(4), 2.0), *even).best_move() is None


def test_no_node_is_believed_to_be_ever_so_quick() -> None:
    """A report costs nothing, so that one node's own speed counts for little."""
    honest = [Place("b", range(4), 2.0), Place("c", range(4, 8), 2.0), Place("d", range(4), 2.0)]
    told = [expected for ms in (1e-9, 2.0 / 16) if (expected := _expected(ms, *honest))]
    assert told[0] == told[1]


def _expected(layer_ms: float, *others: Place) -> float:
    return placement(
        Place("a", range(4, 8), 2.0), Place("x", range(8), layer_ms), *others
    ).expected_ms()


def test_a_token_takes_the_quickest_way_and_waits_where_it_is_narrow() -> None:
    both = [(range(4), 0.0, 1.0), (range(4, 8), 10.0, 1.0)]
    assert expected_ms(both, 8, load=1) == 1 + 4 + 1 + 10 + 4
    assert expected_ms(both, 8, load=3) == 20 + 2 * 4
    # A hop may begin within a holder's layers, but it ends with them.
    third = (range(2, 6), 0.0, 0.1)
    assert expected_ms([*both, third], 8, load=1) == pytest.approx(1 + 4 + 1 + 0.2 + 1 + 10 + 2)
    assert expected_ms([both[0], (range(2, 8), 0.0, 1.0)], 8, load=1) == 1 + 4 + 1 + 4
    assert expected_ms(both[1:], 8) == math.inf


@st.composite
def networks(draw: st.DrawFn) -> tuple[ModelSizes, int, list[Place]]:
    """Sizes of a model, this node's budget, and nodes, of which the first is this one."""
    number = draw(st.integers(2, 10))
    sizes = ModelSizes(number, 100, 30, 40)

    def window() -> range:
        start = draw(st.integers(0, number - 1))
        return range(start, draw(st.integers(start + 1, number)))

    places = []
    for n in range(draw(st.integers(1, 6))):
        moves = n > 0 and draw(st.booleans()) and draw(st.booleans())
        places.append(
            Place(
                f"n{n}",
                window(),
                draw(st.floats(0, 1e6)),
                draw(st.floats(0, 1e6)),
                window() if moves else None,
                moves or (n > 0 and draw(st.integers(0, 5)) == 0),
            )
        )
    own = places[0].held
    return sizes, sizes.of(own) + draw(st.integers(0, 400)), places


@given(networks())
def test_a_plan_keeps_what_nobody_else_holds(network: tuple[ModelSizes, int, list[Place]]) -> None:
    sizes, budget, (own, *others) = network
    placement = Placement(own, others, sizes, budget)
    plan = placement.best_move()
    if plan is None:
        return
    assert sizes.of(plan.target) <= budget
    stays = {layer for other in others if not other.leaves for layer in other.held}
    assert set(own.held) - set(plan.target) <= stays
    assert plan == placement.judge(plan.target)
    assert plan.relieves or plan.then_ms <= placement.gain * plan.now_ms < math.inf


@given(networks())
def test_after_the_best_move_another_one_pays_only_if_it_gains(
    network: tuple[ModelSizes, int, list[Place]],
) -> None:
    """A node never goes there and back: each move makes less short, or tokens quicker."""
    sizes, budget, (own, *others) = network
    first = Placement(own, others, sizes, budget)
    gain, seen = first.gain, [first.expected_ms()]
    for _ in range(12):
        plan = Placement(own, others, sizes, budget).best_move()
        if plan is None:
            break
        own = Place(own.node_id, plan.target, own.layer_ms)
        seen.append(plan.then_ms)
    else:
        finite = [each for each in seen if math.isfinite(each)]
        assert all(after <= gain * before for before, after in pairwise(finite))
