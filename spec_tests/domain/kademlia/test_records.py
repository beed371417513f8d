"""The record store against a naive model, and its bounds against floods (decision 0053)."""

import math
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from meshnode.domain.errors import RateLimited
from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.local_node import LocalNode
from meshnode.domain.kademlia.node_id import NodeId, key_of
from meshnode.domain.kademlia.publications import PUBLISH_S, RETRY_S, Publications
from meshnode.domain.kademlia.records import (
    OVERHEAD_BYTES,
    RecordLimits,
    RecordStore,
)
from meshnode.domain.kademlia.refusals import (
    BadIdLength,
    BadValue,
    Flooded,
    KeyFull,
    NotResponsible,
    SenderFull,
    StoreFull,
    StoringTooFast,
    UnverifiedSender,
)
from meshnode.domain.kademlia.value import check_value, join_values, split_values
from meshnode.domain.ratelimit import Rate
from spec_tests.domain.kademlia.network import Info, contact_of, id_of

KEY = key_of("layer:0")
UNHURRIED = Rate(per_second=1e6, burst=1e6)
SMALL = RecordLimits(
    value_bytes=20,
    values_per_key=4,
    group_values_per_key=3,
    group_records=6,
    group_bytes=7 * OVERHEAD_BYTES,
    total_bytes=12 * OVERHEAD_BYTES,
    stores=UNHURRIED,
    expiry_s=100.0,
    hand_on_s=30.0,
)


@dataclass
class Held:
    group: str
    published_at: float
    stored_at: float


class RecordMachine(RuleBasedStateMachine):
    """The model keeps every record; one is removed only if the rules let the store drop it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.store = RecordStore(SMALL)
        self.model: dict[tuple[NodeId, str], Held] = {}

    def held(self) -> dict[tuple[NodeId, str], Held]:
        return {
            record: held
            for record, held in self.model.items()
            if held.published_at > self.now - SMALL.expiry_s
        }

    def in_store(self) -> set[tuple[NodeId, str]]:
        return {(r.key, r.value) for r in self.store if r.published_at > self.now - SMALL.expiry_s}

    @rule(seconds=st.sampled_from([1.0, 10.0, 31.0, 99.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(
        key=st.integers(0, 4).map(id_of),
        value=st.sampled_from("abcdefgh"),
        group=st.sampled_from(["flood", "flood", "one", "two", "three"]),
        age_s=st.sampled_from([0.0, 0.0, 50.0, 99.0, 100.0, -5.0, math.inf, math.nan]),
    )
    def put(self, key: NodeId, value: str, group: str, age_s: float) -> None:
        age = age_s if age_s > 0 else 0.0
        before = self.in_store()
        shares = Counter(r.group for r in self.store if (r.key, r.value) in before)
        try:
            self.store.store(key, value, group, self.now, age_s)
        except Flooded:
            assert (key, value) not in before, "what is held is always renewed"
            self.forget_dropped(before, shares, group)
            return
        if age >= SMALL.expiry_s:
            assert self.in_store() == before
            return
        held = self.model.get((key, value))
        if held is None or (key, value) not in before:
            self.model[key, value] = Held(group, self.now - age, self.now)
        else:
            held.published_at = max(held.published_at, self.now - age)
            held.stored_at = self.now
        assert (key, value) in self.in_store()
        self.forget_dropped(before, shares, group)

    def forget_dropped(
        self, before: set[tuple[NodeId, str]], shares: Counter[str], newcomer: str
    ) -> None:
        for record in before - self.in_store():
            # A group loses a record only if it has several, or if the new record is of that group.
            loser = self.model.pop(record).group
            assert shares[loser] > 1 or loser == newcomer

    @rule()
    def hand_on(self) -> None:
        due = self.store.due(self.now)
        late = {r: h for r, h in self.held().items() if h.stored_at <= self.now - SMALL.hand_on_s}
        assert {(d.key, d.value) for d in due} == set(late)
        for d in due:
            held = late[d.key, d.value]
            assert d.age_s == self.now - held.published_at
            held.stored_at = self.now

    @rule()
    def expire(self) -> None:
        self.store.expire(self.now)
        assert len(self.store) == len(self.held())

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        assert self.in_store() == set(self.held())
        for key in {key for key, _ in self.model}:
            expected = {value for k, value in self.held() if k == key}
            assert set(self.store.values(key, self.now)) == expected
        for record in self.store:
            if (record.key, record.value) in self.held():
                # The group that a record counts for may change; its expiry may not.
                model = self.model[record.key, record.value]
                assert record.published_at == model.published_at
                model.group = record.group

    @invariant()
    def bounds_hold(self) -> None:
        records = list(self.store)
        assert self.store.size == sum(record.cost for record in records) <= SMALL.total_bytes
        by_key = Counter(record.key for record in records)
        by_group = Counter(record.group for record in records)
        by_both = Counter((record.key, record.group) for record in records)
        assert all(count <= SMALL.values_per_key for count in by_key.values())
        assert all(count <= SMALL.group_records for count in by_group.values())
        assert all(count <= SMALL.group_values_per_key for count in by_both.values())


TestRecords = RecordMachine.TestCase


def test_several_holders_of_one_key_are_all_found() -> None:
    store = RecordStore()
    for n in range(5):
        store.store(KEY, f"10.0.0.{n}:8000", f"group {n}", now=n)
    assert store.values(KEY, 5) == tuple(f"10.0.0.{n}:8000" for n in range(5))
    assert store.values(key_of("layer:1"), 5) == ()


def test_a_record_expires_after_its_publication_not_after_the_last_hand() -> None:
    store = RecordStore(SMALL)
    store.store(KEY, "a", "one", now=0)
    store.store(KEY, "a", "two", now=90, age_s=90)
    assert store.values(KEY, 99) == ("a",)
    assert store.values(KEY, 100) == ()
    store.store(KEY, "a", "one", now=150)
    assert store.values(KEY, 249) == ("a",)


@pytest.mark.parametrize(
    "value", ["", "a\nb", "a\0", "\x1b[2J", "\ud800", "x" * 513, "é" * 257, "\u2028", "\u202e"]
)
def test_values_are_one_line_of_bounded_printable_text(value: str) -> None:
    with pytest.raises(BadValue):
        RecordStore().store(KEY, value, "one", now=0)


def test_one_sender_fills_neither_a_key_nor_the_store() -> None:
    store = RecordStore(SMALL)
    for n in range(3):
        store.store(KEY, f"flood {n}", "flood", now=0)
    with pytest.raises(SenderFull):
        store.store(KEY, "flood 3", "flood", now=0)
    store.store(KEY, "honest", "one", now=0)
    for n in range(3):
        store.store(id_of(n), "flood", "flood", now=0)
    with pytest.raises(SenderFull) as refusal:
        store.store(id_of(9), "flood", "flood", now=0)
    assert isinstance(refusal.value, RateLimited)
    assert refusal.value.retry_after >= 1


def test_a_full_key_takes_from_the_fullest() -> None:
    store = RecordStore(SMALL)
    for n in range(3):
        store.store(KEY, f"flood {n}", "flood", now=0)
    store.store(KEY, "one", "one", now=0)
    store.store(KEY, "two", "two", now=0)
    assert store.values(KEY, 0) == ("flood 1", "flood 2", "one", "two")
    with pytest.raises(KeyFull):
        store.store(KEY, "one again", "one", now=0)


def test_a_full_store_takes_from_the_fullest() -> None:
    limits = RecordLimits(total_bytes=5 * (OVERHEAD_BYTES + 1), stores=UNHURRIED)
    store = RecordStore(limits)
    store.store(id_of(0), "h", "honest", now=0)
    for n in range(1, 5):
        store.store(id_of(n), "f", "flood", now=n)
    with pytest.raises(StoreFull):
        store.store(id_of(9), "f", "flood", now=5)
    store.store(id_of(8), "h", "second", now=6)
    assert store.values(id_of(0), 6) == ("h",)
    assert store.values(id_of(1), 6) == ()
    assert store.values(id_of(8), 6) == ("h",)


def test_stores_of_one_sender_are_slowed_down() -> None:
    store = RecordStore(RecordLimits(stores=Rate(per_second=1, burst=10)))
    for _ in range(10):
        store.store(KEY, "a", "flood", now=0)
    with pytest.raises(StoringTooFast):
        store.store(KEY, "a", "flood", now=0)
    store.store(KEY, "b", "honest", now=0)
    store.store(KEY, "a", "flood", now=1)


def test_a_record_cannot_be_drawn_into_a_flood_by_storing_it_first() -> None:
    store = RecordStore(SMALL)
    store.store(KEY, "honest", "flood", now=0)
    for n in range(5):
        store.store(id_of(n), "flood", "flood", now=0)
    store.store(KEY, "honest", "honest", now=1)
    assert {record.group for record in store if record.value == "honest"} == {"honest"}


def test_renewing_does_not_charge_a_group_beyond_its_share() -> None:
    store = RecordStore(SMALL)
    store.store(KEY, "contested", "large", now=0)
    for n in range(5):
        store.store(id_of(n), "other", "large", now=0)
    for n in range(3):
        store.store(KEY, f"small {n}", "small", now=0)
    store.store(KEY, "contested", "small", now=1)
    assert {record.group for record in store if record.value == "contested"} == {"large"}
    assert store.values(KEY, 100) == ("contested",), "but it is renewed"


def test_expired_records_no_longer_count() -> None:
    store = RecordStore(SMALL)
    for hour in range(3):
        now = hour * SMALL.expiry_s
        for n in range(SMALL.group_records - 1):
            store.store(id_of(n), "a" * 20, "one", now)
        store.store(KEY, "stays", "one", now + 1)
        assert len(store) == SMALL.group_records
        store.expire(now + SMALL.expiry_s)
        assert [record.value for record in store] == ["stays"]
        assert store.size == OVERHEAD_BYTES + len("stays")


def test_holders_hand_a_record_on_at_different_times() -> None:
    first, last = RecordStore(SMALL, spread=0.0), RecordStore(SMALL, spread=1.0)
    for store in (first, last):
        store.store(KEY, "a", "one", now=0)
    assert [due.age_s for due in first.due(30)] == [30]
    assert last.due(30) == []
    last.store(KEY, "a", "first", now=30, age_s=30)
    assert last.due(45) == []


values = st.text(min_size=1, max_size=20).filter(str.isprintable)


@given(st.lists(values, max_size=64, unique=True))
def test_the_values_of_an_answer_can_be_read_back(several: list[str]) -> None:
    assert split_values(join_values(several)) == tuple(several)


def test_a_single_value_is_itself() -> None:
    assert join_values(["10.0.0.1:8000"]) == "10.0.0.1:8000"


@given(st.text(max_size=300))
def test_hostile_values_are_left_out(text: str) -> None:
    several = split_values(text, SMALL.value_bytes, SMALL.values_per_key)
    assert len(several) <= SMALL.values_per_key
    for value in several:
        check_value(value, SMALL.value_bytes)


def test_a_huge_answer_costs_no_more_than_its_bound() -> None:
    assert len(split_values("a\n" * 1_000_000)) == 1
    assert len(split_values("\n".join(map(str, range(1_000_000))))) == 64


def test_a_node_stores_only_for_the_verified_and_only_what_is_near() -> None:
    node = LocalNode(id_of(0), now=0)
    sender = node.sender_of(Info(id_of(1)), "10.0.0.1")
    with pytest.raises(UnverifiedSender):
        node.store(sender, KEY, "a", now=0)
    node.answered(sender, sender.node_id, 0)
    node.store(sender, KEY, "a", now=0)
    assert node.find_value(sender, KEY, now=0) == (("a",), [])
    with pytest.raises(BadIdLength):
        node.store(sender, b"short", "a", now=0)
    far = id_of(2**160 - 1)
    for n in range(20):
        node.answered(contact_of(2**160 - 2 - n), id_of(2**160 - 2 - n), 0)
        node.answered(contact_of(2**158 + n), id_of(2**158 + n), 0)
    with pytest.raises(NotResponsible):
        node.store(sender, far, "a", now=0)


def test_clients_of_this_machine_store_within_one_quota() -> None:
    node = LocalNode(id_of(0), now=0, record_limits=SMALL)

    def store(n: int) -> None:
        client = node.sender_of(Info(id_of(n), port=8000 + n), "127.0.0.1")
        node.store(client, id_of(n), "v", now=0)

    for n in range(1, SMALL.group_records + 1):
        store(n)
    with pytest.raises(Flooded):
        store(99)
    assert len(node.records) == SMALL.group_records


def test_a_client_that_stores_again_replaces_its_own_value_and_no_other() -> None:
    node = LocalNode(id_of(0), now=0)
    holder = node.sender_of(Info(id_of(1)), "127.0.0.1")
    node.answered(holder, holder.node_id, 0)
    node.store(holder, KEY, "of a node", now=0)
    client = node.sender_of(Info(id_of(2), port=9), "127.0.0.1")
    for value in ("a", "b", "b"):
        node.store(client, KEY, value, now=0)
    assert node.records.values(KEY, 0) == ("of a node", "b")


def test_an_unverified_sender_of_a_store_is_worth_a_ping_even_to_a_full_table() -> None:
    node = LocalNode(id_of(0), now=0)
    for n in range(20):
        other = contact_of(2**159 + n)
        node.answered(other, other.node_id, 0)
    sender = Contact(id_of(2**159 + 99), "127.0.0.1", 1)
    assert not node.worth_pinging(sender, 1)
    assert node.worth_pinging(sender, 1, storing=True)


def test_publications_are_due_at_once_then_in_time_or_after_a_failure() -> None:
    own = Publications()
    own.announce(KEY, "a", now=0)
    assert own.due(0) == [(KEY, "a")]
    own.tried(KEY, "a", stored=0, now=5)
    own.announce(KEY, "a", now=6)
    assert own.due(RETRY_S + 4) == []
    assert own.due(RETRY_S + 5) == [(KEY, "a")]
    own.tried(KEY, "a", stored=20, now=100)
    assert own.due(100 + PUBLISH_S - 1) == []
    assert own.due(100 + PUBLISH_S) == [(KEY, "a")]
    own.withdraw(KEY, "a")
    own.tried(KEY, "a", stored=20, now=200)
    assert own.due(10_000) == []
