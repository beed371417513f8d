"""When nodes move: no layer loses its last holder by it, whatever they do at once (0250)."""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from meshnode.domain import moving
from meshnode.domain.moves import Place, Placement, Plan, as_claimed, is_contested
from meshnode.domain.moving import TRANSITIONS, MoveTimings, Moving, State, Step
from meshnode.domain.placement import ModelSizes
from spec_tests.domain.transition_tables import (
    documented,
    draw,
    pairs,
    run_until_all_happened,
)

NODES = 3
NUMBERS = st.integers(0, NODES - 1)
SIZES = ModelSizes(num_layers=4, layer_bytes=100, embedding_bytes=0, head_bytes=0)
BUDGET = 200
TIMINGS = MoveTimings()
RELIEF = Plan(range(2, 4), True, float("inf"), 10.0)
SPEED = Plan(range(2, 4), False, 20.0, 10.0)
SEEN: set[tuple[str, str]] = set()


def test_the_table_is_the_one_in_the_docstring() -> None:
    assert draw(documented(moving)) == draw(pairs(TRANSITIONS))


def look(machine: Moving, plan: Plan | None, now: float, *, quiet: bool = True) -> Step:
    return machine.look(plan, quiet=quiet, contested=False, now=now)


def test_a_node_waits_announces_and_checks() -> None:
    machine = Moving(TIMINGS, lambda: 0.5)
    assert look(machine, None, 0) is Step.NOTHING
    assert look(machine, RELIEF, 1) is Step.NOTHING
    assert look(machine, RELIEF, 45.9) is Step.NOTHING
    assert look(machine, RELIEF, 46) is Step.CLAIM
    assert machine.target == range(2, 4)
    assert look(machine, RELIEF, 57.9) is Step.NOTHING
    assert look(machine, RELIEF, 58, quiet=False) is Step.NOTHING
    assert look(machine, RELIEF, 59) is Step.CHECK
    assert look(machine, RELIEF, 60) is Step.CHECK
    machine.leave()
    assert machine.state is State.LEAVING


def test_a_claim_that_comes_to_nothing_is_withdrawn() -> None:
    for plan, at, contested in ((None, 50, False), (RELIEF, 50, True), (RELIEF, 166, False)):
        machine = Moving(TIMINGS, lambda: 0.5)
        look(machine, RELIEF, 1)
        assert look(machine, RELIEF, 46) is Step.CLAIM
        step = machine.look(plan, quiet=True, contested=contested, now=at)
        assert (step, machine.target) == (Step.WITHDRAW, None)
        # It rests before it waits again.
        assert look(machine, RELIEF, at + 89.9) is Step.NOTHING
        states = [machine.state]
        look(machine, RELIEF, at + 90)
        assert [*states, machine.state] == [State.SETTLED, State.WAITING]


def test_a_move_for_speed_waits_longer_than_one_to_the_relief() -> None:
    machine = Moving(TIMINGS, lambda: 0.0)
    look(machine, SPEED, 0)
    assert look(machine, SPEED, 599) is Step.NOTHING
    assert look(machine, SPEED, 600, quiet=False) is Step.NOTHING
    assert look(machine, RELIEF, 601) is Step.NOTHING
    assert look(machine, RELIEF, 631) is Step.CLAIM


def test_a_node_that_has_moved_does_not_move_for_speed_soon() -> None:
    machine = Moving(TIMINGS, lambda: 0.0, moved_at=0.0)
    look(machine, SPEED, 10)
    assert machine.state is State.SETTLED
    look(machine, RELIEF, 10)
    assert look(machine, RELIEF, 40) is Step.CLAIM
    machine = Moving(TIMINGS, lambda: 0.0, moved_at=0.0)
    look(machine, SPEED, 1800)
    assert look(machine, SPEED, 2400) is Step.CLAIM


class Recorded(Moving):
    def _enter(self, state: State) -> None:
        SEEN.add((self.state.name, state.name))
        super()._enter(state)


class Node:
    """A node that holds layers, and whatever it knows of others, which may be long out of date."""

    def __init__(self, name: str, held: range, now: float, *, moved: bool) -> None:
        self.name, self.held = name, held
        moved_at = now if moved else float("-inf")
        self.machine = Recorded(TIMINGS, random.Random(name).random, moved_at=moved_at)
        self.known: dict[str, Place] = {}
        self.answers: set[int] = set()
        """Layers that others have said to hold since its claim."""

    @property
    def place(self) -> Place:
        """What it says of itself."""
        target = self.machine.target
        return Place(self.name, self.held, 1.0, 0.0, target, target is not None)


class Network(RuleBasedStateMachine):
    """Nodes that look, call each other one by one, move, die, and come back in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.nodes: dict[str, Node] = {}
        self.dead: dict[str, Node] = {}
        for n in range(NODES):
            self.nodes[f"n{n}"] = Node(f"n{n}", range(2), 0.0, moved=False)
        self.covered = {0, 1}
        for n in range(NODES):
            self.beats_all(n)

    @rule(seconds=st.sampled_from([12.0, 2000.0]))
    def passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(who=NUMBERS, whom=NUMBERS)
    def beats(self, who: int, whom: int) -> None:
        node, other = self.nodes.get(f"n{who}"), self.nodes.get(f"n{whom}")
        if node is None or who == whom:
            return
        node.known.pop(f"n{whom}", None)
        if other is not None:
            node.known[other.name] = other.place

    @rule(who=NUMBERS)
    def beats_all(self, who: int) -> None:
        for whom in range(NODES):
            self.beats(who, whom)

    @rule(who=NUMBERS, quiet=st.integers(0, 4).map(bool))
    def looks(self, who: int, quiet: bool) -> None:
        node = self.nodes.get(f"n{who}")
        if node is not None and node.machine.state is not State.LEAVING:
            self._look(node, quiet=quiet)

    def _look(self, node: Node, *, quiet: bool) -> None:
        self.now += 61.0 if node.machine.state is State.WAITING else 0.0
        others, target = list(node.known.values()), node.machine.target
        seen = others if target is None else as_claimed(node.name, others)
        placement = Placement(node.place, seen, SIZES, BUDGET)
        plan = placement.best_move() if target is None else placement.judge(target)
        contested = target is not None and is_contested(node.place, target, others)
        step = node.machine.look(plan, quiet=quiet, contested=contested, now=self.now)
        if step in (Step.CLAIM, Step.WITHDRAW):
            node.answers = set()

    @precondition(lambda self: self._in(State.SETTLED, State.WAITING))
    @rule(who=NUMBERS)
    def claims(self, who: int) -> None:
        """Looks as often as it takes, while it hears of nobody."""
        node = self._pick(who, State.SETTLED, State.WAITING)
        for _ in range(2):
            self._look(node, quiet=True)

    @precondition(lambda self: self._in(State.ANNOUNCED))
    @rule(who=NUMBERS, whom=NUMBERS)
    def asks(self, who: int, whom: int) -> None:
        """One of the calls of a check; they may be long apart."""
        node, other = self._pick(who, State.ANNOUNCED), self.nodes.get(f"n{whom}")
        if other is not None and other is not node and not other.place.leaves:
            node.answers |= set(other.held)

    @precondition(lambda self: self._in(State.ANNOUNCED))
    @rule(who=NUMBERS, order=st.permutations(range(NODES)))
    def asks_all(self, who: int, order: list[int]) -> None:
        for whom in order:
            self.asks(who, whom)

    @precondition(lambda self: self._in(State.ANNOUNCED))
    @rule(who=NUMBERS, fails=st.integers(0, 3).map(lambda n: not n))
    def leaves(self, who: int, fails: bool) -> None:
        node = self._pick(who, State.ANNOUNCED)
        target = node.machine.target
        assert target is not None
        if set(node.held) - set(target) <= node.answers:
            node.machine.leave()
            if fails:
                node.machine.withdraw(self.now)
                node.answers = set()

    @precondition(lambda self: self._in(State.LEAVING))
    @rule(who=NUMBERS)
    def lives_again(self, who: int) -> None:
        """The node has its new layers; until then it held none of its old ones, or all."""
        node = self._pick(who, State.LEAVING)
        assert node.machine.target is not None
        self.nodes[node.name] = Node(node.name, node.machine.target, self.now, moved=True)

    @precondition(lambda self: len(self.nodes) > 2)
    @rule(who=NUMBERS)
    def dies(self, who: int) -> None:
        node = self.nodes.pop(f"n{who}")
        self.dead[node.name] = node
        # What only those hold that may have asked this very node is lost by its death.
        self.covered &= self._kept()

    @precondition(lambda self: self.dead)
    @rule()
    def comes_back(self) -> None:
        """A node that was killed goes on with what its disk says."""
        _, node = self.dead.popitem()
        left = node.machine.state is State.LEAVING
        held = node.machine.target if left else node.held
        assert held is not None
        self.nodes[node.name] = Node(node.name, held, self.now, moved=False)

    @invariant()
    def no_layer_is_let_go(self) -> None:
        assert self.covered <= self._held()
        self.covered |= self._kept()

    def _in(self, *states: State) -> list[Node]:
        return [node for node in self.nodes.values() if node.machine.state in states]

    def _pick(self, who: int, *states: State) -> Node:
        nodes = self._in(*states)
        return nodes[who % len(nodes)]

    def _held(self) -> set[int]:
        """The layers held for sure: those of nodes that leave are gone already."""
        stays = (n for n in self.nodes.values() if n.machine.state is not State.LEAVING)
        return {layer for node in stays for layer in node.held}

    def _kept(self) -> set[int]:
        """The layers held by nodes that were not told, since a claim, that others hold them."""
        stays = [n for n in self.nodes.values() if n.machine.state is not State.LEAVING]
        return {
            layer
            for node in stays
            for layer in node.held
            if layer in (node.machine.target or node.held) or layer not in node.answers
        }


def test_no_layer_loses_its_last_holder_by_a_move() -> None:
    run_until_all_happened(Network, TRANSITIONS, SEEN, steps=60)


TestNetwork = Network.TestCase
TestNetwork.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
