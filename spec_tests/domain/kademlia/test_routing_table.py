"""The routing table against a naive model: a list that is searched in full (decision 0052)."""

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from meshnode.domain.kademlia import bucket
from meshnode.domain.kademlia.bucket import FRESH_S, MAX_FAILED_PINGS, PING_S, K
from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.node_id import ID_BITS, NodeId, bucket_of, distance
from meshnode.domain.kademlia.policy import ContactPolicy
from meshnode.domain.kademlia.refusals import CrowdedSubnet, NotResponsible, OwnId
from meshnode.domain.kademlia.routing_table import REFRESH_S, RoutingTable
from meshnode.domain.transitions import IllegalTransition
from spec_tests.domain.kademlia.network import contact_of, id_of, node_ids
from spec_tests.domain.transition_tables import documented, draw, pairs, run_until_all_happened

OWN = id_of(0)
SMALL_K = 3
POLICY = ContactPolicy(share_of_bucket=2, share_of_table=4)

# Ids 1 to 63 fall into six buckets, the last three of which can overflow. Some are in one crowded
# public /24, some in a second, and the rest on this machine, where subnets do not count.
IPS = ("127.0.0.1", "8.8.8.8", "8.8.8.9", "9.9.9.9")
contacts = st.builds(contact_of, st.integers(1, 63), st.sampled_from(IPS), st.just(8000))


@dataclass
class Placed:
    contact: Contact
    heard_at: float
    failed_pings: int = 0


class TableMachine(RuleBasedStateMachine):
    """The table must hold the same contacts as a plain list to which the same rules are applied."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.table = RoutingTable(OWN, self.now, POLICY, SMALL_K)
        self.placed: dict[NodeId, Placed] = {}
        self.turned_away: dict[Contact, float] = {}
        self.candidates: dict[Contact, float] = {}

    def in_bucket(self, contact: Contact) -> list[Placed]:
        bucket = bucket_of(OWN, contact.node_id)
        inside = [p for i, p in self.placed.items() if bucket_of(OWN, i) == bucket]
        return sorted(inside, key=lambda p: p.heard_at)

    def crowded(self, contact: Contact, without: Contact | None = None) -> bool:
        subnet = POLICY.subnet_in_question(contact)
        if subnet is None:
            return False
        everyone = [p.contact for p in self.placed.values() if p.contact != without]
        bucket = [p.contact for p in self.in_bucket(contact) if p.contact != without]
        in_table = sum(POLICY.subnet_in_question(c) == subnet for c in everyone)
        in_bucket = sum(POLICY.subnet_in_question(c) == subnet for c in bucket)
        return in_table >= POLICY.share_of_table or in_bucket >= POLICY.share_of_bucket

    @rule(seconds=st.sampled_from([0.5, PING_S, FRESH_S, REFRESH_S]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(contact=contacts)
    def hear(self, contact: Contact) -> None:
        self.now += 0.001  # so that no two are heard at once, and the order is certain
        wanted = self.table.wants(contact, self.now)
        holder = self.placed.get(contact.node_id)
        if holder is None and self.crowded(contact):
            with pytest.raises(CrowdedSubnet):
                self.table.heard(contact, self.now)
            return
        to_ping = self.table.heard(contact, self.now)
        if holder is not None and holder.contact == contact:
            assert wanted == (self.now - holder.heard_at >= FRESH_S)
            assert to_ping is None
            self.placed[contact.node_id] = Placed(contact, self.now)
            self.candidates.pop(contact, None)
        elif holder is None and len(self.in_bucket(contact)) < SMALL_K:
            assert wanted
            assert to_ping is None
            self.placed[contact.node_id] = Placed(contact, self.now)
        else:
            candidate = holder or self.in_bucket(contact)[0]
            stale = self.now - candidate.heard_at >= FRESH_S
            pinged = self.now < self.candidates.get(candidate.contact, 0)
            assert to_ping == (candidate.contact if stale and not pinged else None)
            if holder is None:
                assert wanted == (to_ping is not None)
            if to_ping is not None:
                self.candidates[to_ping] = self.now + PING_S
            self.turned_away[contact] = self.now

    @precondition(lambda self: self.placed)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        self.miss(data.draw(st.sampled_from([p.contact for p in self.placed.values()])))

    @precondition(lambda self: self.candidates)
    @rule(data=st.data())
    def fail_candidate(self, data: st.DataObject) -> None:
        self.miss(data.draw(st.sampled_from(list(self.candidates))))

    def miss(self, contact: Contact) -> None:
        before = set(self.table)
        self.table.failed(contact, self.now)
        candidate = self.now < self.candidates.pop(contact, 0)
        entry = self.placed[contact.node_id]
        entry.failed_pings += 1
        if contact in self.table:
            assert entry.failed_pings < MAX_FAILED_PINGS
            assert set(self.table) == before
            return
        assert entry.failed_pings >= MAX_FAILED_PINGS or candidate
        del self.placed[contact.node_id]
        assert contact in self.table.lost()
        newcomers = set(self.table) - before
        assert len(newcomers) <= 1
        for newcomer in newcomers:
            assert newcomer in self.turned_away
            assert not self.crowded(newcomer, without=contact)
            self.placed[newcomer.node_id] = Placed(newcomer, self.turned_away[newcomer])

    @rule(contact=contacts)
    def fail_unknown(self, contact: Contact) -> None:
        if contact not in self.table:
            before = set(self.table)
            self.table.failed(contact, self.now)
            assert set(self.table) == before

    @rule(aim=st.integers(0, 127).map(id_of))
    def look_closest(self, aim: NodeId) -> None:
        everyone = [p.contact for p in self.placed.values()]
        nearest = sorted(everyone, key=lambda c: distance(c.node_id, aim))
        assert self.table.closest(aim) == nearest[:SMALL_K]
        on_this_machine = [c for c in nearest if c.ip == "127.0.0.1"]
        assert self.table.closest(aim, lambda c: c.ip == "127.0.0.1") == on_this_machine[:SMALL_K]

    @rule(key=st.integers(0, 127).map(id_of))
    def judge_responsibility(self, key: NodeId) -> None:
        nearer = sum(distance(i, key) < distance(OWN, key) for i in self.placed)
        if nearer >= 2 * SMALL_K:
            with pytest.raises(NotResponsible):
                self.table.check_responsible(key)
        else:
            self.table.check_responsible(key)

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        assert set(self.table) == {p.contact for p in self.placed.values()}
        assert len(self.table) == len(self.placed)
        for placed in self.placed.values():
            assert self.table.find(placed.contact.node_id) == placed.contact

    @invariant()
    def bounds_hold(self) -> None:
        buckets = Counter(bucket_of(OWN, contact.node_id) for contact in self.table)
        assert all(count <= SMALL_K for count in buckets.values())
        subnets = Counter(POLICY.subnet_in_question(contact) for contact in self.table)
        assert all(n <= POLICY.share_of_table for s, n in subnets.items() if s is not None)
        assert self.table.find(OWN) is None


TestRoutingTable = TableMachine.TestCase


def test_the_documented_table_of_a_bucket_is_the_one_in_use() -> None:
    assert draw(pairs(bucket.TRANSITIONS)) == draw(documented(bucket))


@pytest.mark.slow
def test_a_bucket_moves_as_its_table_says(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: set[tuple[str, str]] = set()
    enter = bucket.Entry._enter

    def watched(entry: bucket.Entry, standing: bucket.Standing) -> None:
        before = entry.standing
        enter(entry, standing)
        taken.add((before.name, standing.name))

    monkeypatch.setattr(bucket.Entry, "_enter", watched)
    run_until_all_happened(TableMachine, bucket.TRANSITIONS, taken)


def test_transitions_outside_the_table_of_a_bucket_are_refused() -> None:
    for standing in bucket.Standing:
        for other in set(bucket.Standing) - bucket.TRANSITIONS[standing]:
            entry = bucket.Entry(contact_of(1), 0.0, standing)
            with pytest.raises(IllegalTransition, match=f"{standing.name} .* {other.name}"):
                entry._enter(other)
            assert entry.standing is standing


@given(st.sets(node_ids, max_size=400), node_ids, node_ids)
def test_the_closest_are_the_closest_at_full_size(
    ids: set[NodeId], own: NodeId, target: NodeId
) -> None:
    table = RoutingTable(own, 0)
    for node_id in ids - {own}:
        table.heard(Contact(node_id, "127.0.0.1", 1), 0)
    kept = sorted(table, key=lambda c: distance(c.node_id, target))
    assert table.closest(target) == kept[:K]


def test_the_table_does_not_hold_its_own_id() -> None:
    table = RoutingTable(OWN, 0)
    with pytest.raises(OwnId):
        table.heard(contact_of(0), 0)
    with pytest.raises(OwnId):
        table.wants(contact_of(0), 0)


def test_a_flood_of_new_ids_evicts_no_contact_that_answers() -> None:
    table = RoutingTable(OWN, 0)
    old = [contact_of((1 << 159) + n) for n in range(K)]
    for contact in old:
        table.heard(contact, 0)
    pings = 0
    for n in range(10_000):
        now = 100 + n / 100
        to_ping = table.heard(contact_of((1 << 159) + 1000 + n), now)
        if to_ping is not None:
            pings += 1
            assert table.heard(to_ping, now) is None
    assert set(table) == set(old)
    assert pings <= K + 100 / FRESH_S * K


def test_an_eviction_candidate_is_pinged_once() -> None:
    table = RoutingTable(OWN, 0, k=2)
    first, second, *newcomers = (contact_of(n) for n in range(32, 37))
    table.heard(first, 0)
    table.heard(second, 1)
    assert table.heard(newcomers[0], 100) == first
    assert table.heard(newcomers[1], 101) is None
    assert table.heard(newcomers[2], 100 + PING_S) == first, "nobody said what came of the first"


def test_an_id_keeps_its_address_while_that_answers() -> None:
    table = RoutingTable(OWN, 0)
    old, new = contact_of(5, port=1), contact_of(5, port=2)
    table.heard(old, 0)
    assert table.heard(new, 1) is None, "the old address has just answered"
    assert table.heard(new, 100) == old
    table.heard(old, 101)
    assert list(table) == [old]
    assert table.heard(new, 200) == old
    table.failed(old, 201)
    assert list(table) == [new]


def test_a_subnet_that_has_its_share_can_replace_its_own() -> None:
    policy = ContactPolicy(share_of_bucket=2, share_of_table=2)
    table = RoutingTable(OWN, 0, policy, k=2)
    first, second = contact_of(32, "8.8.8.1"), contact_of(33, "8.8.8.2")
    moved = contact_of(32, "8.8.8.3")
    table.heard(first, 0)
    table.heard(second, 1)
    assert table.heard(moved, 100) == first
    table.failed(first, 101)
    assert set(table) == {second, moved}


def test_buckets_are_due_an_hour_after_their_last_lookup() -> None:
    table = RoutingTable(OWN, 0)
    assert table.due_buckets(REFRESH_S) == [], "nobody to ask"
    table.heard(contact_of(1 << 150), 0)
    assert table.due_buckets(REFRESH_S - 1) == []
    table.looked_up(id_of(1 << 155), 10)
    table.looked_up(OWN, 10)
    due = [index for index in range(150, ID_BITS) if index != 155]
    assert table.due_buckets(REFRESH_S) == due
    assert table.due_buckets(REFRESH_S + 10) == list(range(150, ID_BITS))


def test_the_lost_are_remembered_until_they_are_back() -> None:
    table = RoutingTable(OWN, 0)
    for n in range(1, 200):
        contact = contact_of(n << 100)
        if table.heard(contact, 0) is None and contact in table:
            table.failed(contact, 1)
            table.failed(contact, 2)
    assert len(table) == 0
    lost = table.lost()
    assert len(lost) == 64
    table.heard(lost[0], 3)
    assert lost[0] not in table.lost()
    assert list(table) == [lost[0]]
