"""Interface 2.1: which nodes are peers, which have left, and which reports are accepted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.peers import (
    Capacity,
    ShardInfo,
    check_capacity,
    check_shard_info,
    parameters_text,
    role_of,
)
from meshnode.domain.roster import CLOCK_FRESH_S, MAX_MISSES, RETRY_BEATS, Roster

START = 1.8e9
OWN = "0" * 40
MAX_PEERS = 4
BEAT_S = 5.0


def info(number: int, layers: tuple[int, ...] = (0,), **changes: object) -> ShardInfo:
    fields = {
        "node_id": f"{number:040x}",
        "version": "1",
        "model_name": "m",
        "model_hash": "h",
        "total_layers": 4,
        "layers": layers,
        "hidden_dim": 8,
        "vocab_size": 8,
        "context_length": 8,
        **changes,
    }
    return ShardInfo(**fields)  # type: ignore[arg-type]


def roster() -> Roster:
    return Roster(OWN, most=MAX_PEERS, beat_s=BEAT_S)


def met(
    book: Roster, number: int, host: str = "10.0.0.1", port: int = 8000, now: float = 0.0
) -> Any:
    return book.answered(info(number), host, port, 1.0, now, START + now)


def test_a_peer_is_gone_after_two_missed_beats() -> None:
    book = roster()
    assert met(book, 1)
    assert book.due(BEAT_S / 2 - 0.01) == []
    first = 1.5 * BEAT_S
    assert [peer.node_id for peer in book.due(first)] == [info(1).node_id]
    assert not book.missed(info(1).node_id, "10.0.0.1", 8000, first)
    assert book.due(first + BEAT_S)
    assert book.missed(info(1).node_id, "10.0.0.1", 8000, first + BEAT_S)
    assert len(book) == 0


def test_an_answer_in_between_forgets_the_miss() -> None:
    book = roster()
    met(book, 1)
    for _ in range(5):
        assert not book.missed(info(1).node_id, "10.0.0.1", 8000, 0.0)
        met(book, 1)
    assert len(book) == 1


def test_a_suspect_is_due_at_once_and_gone_after_one_miss() -> None:
    book = roster()
    met(book, 1)
    met(book, 2, port=8001)
    book.suspect(info(1).node_id, 1.0)
    assert [peer.port for peer in book.due(1.0)] == [8000]
    # A suspect is the last to be chosen until it is checked.
    assert [peer.port for peer in book.holders(0, "h")] == [8001, 8000]
    assert book.missed(info(1).node_id, "10.0.0.1", 8000, 1.0)
    book.suspect(info(9).node_id, 1.0)


def test_a_suspect_that_answers_stays() -> None:
    book = roster()
    met(book, 1)
    book.suspect(info(1).node_id, 1.0)
    met(book, 1, now=1.0)
    assert not book.missed(info(1).node_id, "10.0.0.1", 8000, 6.0)
    assert len(book) == 1


def test_an_id_keeps_its_address_while_that_answers() -> None:
    book = roster()
    node_id = info(1).node_id
    met(book, 1)
    assert not book.worth_trying(node_id, "10.0.0.2", 8000, 2.0)
    # The report of another address makes the peer's heartbeat due.
    assert book.due(2.0)
    assert not met(book, 1, "10.0.0.2")
    assert book.peers()[0].host == "10.0.0.1"
    book.missed(node_id, "10.0.0.1", 8000, 2.0)
    book.missed(node_id, "10.0.0.1", 8000, 3.0)
    assert book.worth_trying(node_id, "10.0.0.2", 8000, 3.0)
    assert met(book, 1, "10.0.0.2", now=3.0)
    assert [peer.host for peer in book.peers()] == ["10.0.0.2"]
    assert book.peers()[0].connected_since == START + 3


def test_a_failed_contact_is_not_tried_again_soon_unless_it_calls() -> None:
    book = roster()
    node_id = info(1).node_id
    assert book.worth_trying(node_id, "h", 1, 0.0)
    book.missed(node_id, "h", 1, 0.0)
    assert not book.worth_trying(node_id, "h", 1, RETRY_BEATS * BEAT_S - 0.1)
    assert book.worth_trying(node_id, "h", 2, 0.0)
    book.heard_from(node_id, "h", 1, 1.0)
    assert book.worth_trying(node_id, "h", 1, 1.0)


def test_latency_is_averaged() -> None:
    book = roster()
    for latency in (4.0, 8.0):
        book.answered(info(1), "h", 1, latency, 0.0, START)
    assert book.peers()[0].latency_ms == pytest.approx(5.0)


def test_changes_are_those_of_layers_and_model() -> None:
    book = roster()
    assert met(book, 1)
    assert not met(book, 1)
    assert book.answered(info(1, (1, 2)), "10.0.0.1", 8000, 1.0, 0.0, START)
    assert book.answered(info(1, (1, 2), model_hash="i"), "10.0.0.1", 8000, 1.0, 0.0, START)
    assert book.holders(1, "h") == []


def test_a_report_counts_only_from_the_peers_address_and_if_newer() -> None:
    book, busy = roster(), Capacity(queue_depth=3)
    node_id = info(1).node_id
    assert book.reported(node_id, "10.0.0.1", 8000, busy, 1.0, 0.0) == "not a known peer"
    met(book, 1)
    assert "another address" in book.reported(node_id, "10.0.0.2", 8000, busy, 1.0, 0.0)
    assert "another address" in book.reported(node_id, "10.0.0.1", 8001, busy, 1.0, 0.0)
    assert book.reported(node_id, "10.0.0.1", 8000, busy, 2.0, 0.0) == ""
    assert book.peers()[0].capacity == busy
    assert "newer" in book.reported(node_id, "10.0.0.1", 8000, Capacity(), 2.0, 0.0)
    assert book.peers()[0].capacity == busy


def test_a_peer_whose_clock_was_set_back_is_heard_again_after_a_while() -> None:
    book, busy = roster(), Capacity(queue_depth=3)
    met(book, 1)
    node_id = info(1).node_id
    assert book.reported(node_id, "10.0.0.1", 8000, Capacity(), 1e9, 0.0) == ""
    assert "newer" in book.reported(node_id, "10.0.0.1", 8000, busy, 2.0, CLOCK_FRESH_S)
    assert book.reported(node_id, "10.0.0.1", 8000, busy, 2.0, CLOCK_FRESH_S + 1) == ""
    assert book.peers()[0].capacity == busy
    assert "newer" in book.reported(node_id, "10.0.0.1", 8000, busy, 2.0, CLOCK_FRESH_S + 2)


def test_a_newcomer_evicts_no_peer() -> None:
    book = roster()
    for number in range(1, MAX_PEERS + 3):
        met(book, number, port=8000 + number)
    assert [peer.port for peer in book.peers()] == [8001, 8002, 8003, 8004]
    assert not book.worth_trying(info(9).node_id, "h", 1, 0.0)


class RosterMachine(RuleBasedStateMachine):
    """The roster against a model that keeps the address and the misses of each id."""

    nodes = st.integers(0, 6)
    places = st.sampled_from([("10.0.0.1", 1), ("10.0.0.1", 2), ("10.0.0.2", 1)])

    def __init__(self) -> None:
        super().__init__()
        self.roster = roster()
        self.now = 0.0
        self.known: dict[str, tuple[tuple[str, int], int, bool]] = {}

    @rule(number=nodes, place=places)
    def answers(self, number: int, place: tuple[str, int]) -> None:
        self.roster.answered(info(number), *place, 1.0, self.now, START)
        node_id = info(number).node_id
        if node_id in self.known:
            if self.known[node_id][0] == place:
                self.known[node_id] = (place, 0, False)
        elif number != 0 and len(self.known) < MAX_PEERS:
            self.known[node_id] = (place, 0, False)

    @rule(number=nodes, place=places)
    def misses(self, number: int, place: tuple[str, int]) -> None:
        node_id = info(number).node_id
        gone = self.roster.missed(node_id, *place, self.now)
        expected = False
        if node_id in self.known and self.known[node_id][0] == place:
            _, misses, suspected = self.known[node_id]
            expected = suspected or misses + 1 >= MAX_MISSES
            if expected:
                del self.known[node_id]
            else:
                self.known[node_id] = (place, misses + 1, False)
        assert gone is expected

    @rule(number=nodes)
    def is_suspected(self, number: int) -> None:
        node_id = info(number).node_id
        self.roster.suspect(node_id, self.now)
        if node_id in self.known:
            place, misses, _ = self.known[node_id]
            self.known[node_id] = (place, misses, True)

    @rule(number=nodes, place=places)
    def is_rumoured(self, number: int, place: tuple[str, int]) -> None:
        worth = self.roster.worth_trying(info(number).node_id, *place, self.now)
        assert not (worth and (number == 0 or info(number).node_id in self.known))

    @rule(seconds=st.floats(0, 20))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        due = self.roster.due(self.now)
        assert len({peer.node_id for peer in due}) == len(due)
        assert self.roster.due(self.now) == []

    @invariant()
    def is_as_the_model_says(self) -> None:
        found = {peer.node_id: (peer.host, peer.port) for peer in self.roster.peers()}
        assert found == {node_id: place for node_id, (place, _, _) in self.known.items()}
        assert len(self.roster) <= MAX_PEERS


TestRoster = RosterMachine.TestCase


def test_valid_facts_about_a_node_are_accepted() -> None:
    check_shard_info(info(1, (0, 1, 2, 3)))
    check_shard_info(info(1, (), total_layers=0))


@pytest.mark.parametrize(
    "changes",
    [
        {"node_id": "x" * 40},
        {"node_id": "A" * 40},
        {"node_id": ""},
        {"model_hash": "h" * 257},
        {"model_name": "two\nlines"},
        {"total_layers": -1},
        {"total_layers": 1025},
        {"hidden_dim": -1},
        {"layers": (4,)},
        {"layers": (-1,)},
        {"layers": (1, 0)},
        {"layers": (1, 1)},
        {"layers": (0, 1, 2, 3, 3)},
        {"capacity": Capacity(memory_total=-1)},
    ],
)
def test_invalid_facts_about_a_node_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        check_shard_info(info(1, **changes))  # type: ignore[arg-type]


@given(st.floats())
def test_a_speed_is_a_finite_number(speed: float) -> None:
    capacity = Capacity(tokens_per_second=speed)
    if 0 <= speed <= 2**62:
        check_capacity(capacity)
    else:
        with pytest.raises(InvalidRequest):
            check_capacity(capacity)


@pytest.mark.parametrize(
    ("layers", "role"),
    [((0, 1, 2, 3), "driver"), ((0,), "driver"), ((1, 2), "worker"), ((3,), "validator"),
     ((), "worker")],
)  # fmt: skip
def test_roles_follow_from_layers(layers: tuple[int, ...], role: str) -> None:
    assert role_of(layers, 4) == role


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (999, "999"), (1000, "1.00K"), (1_960_000, "1.96M"), (999_999_999, "1.00B"),
     (7_241_732_096, "7.24B"), (1_500_000_000_000, "1.50T")],
)  # fmt: skip
def test_numbers_of_parameters(count: int, text: str) -> None:
    assert parameters_text(count) == text


def test_the_clocks_of_peers_go_on_until_their_reports_are_old() -> None:
    book = roster()
    met(book, 1)
    assert book.clocks(0.0) == []
    assert book.reported(info(1).node_id, "10.0.0.1", 8000, Capacity(), 7000.0, 5.0) == ""
    assert book.clocks(35.0) == [7030.0]
    assert book.clocks(66.0) == []
