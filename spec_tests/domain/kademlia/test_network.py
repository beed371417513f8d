"""Many nodes in memory: records outlive their holders' deaths, losses and newcomers."""

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from meshnode.domain.kademlia.bucket import FRESH_S, K
from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.node_id import NodeId, distance, id_in_bucket, key_of
from meshnode.domain.kademlia.publications import PUBLISH_S
from meshnode.domain.kademlia.query import LookupLimits
from meshnode.domain.kademlia.records import RECORD_LIMITS
from spec_tests.domain.kademlia.network import Network

SMALL = LookupLimits(k=5)
SMALL_EXPIRY_S = RECORD_LIMITS.expiry_s


class NetworkMachine(RuleBasedStateMachine):
    """A record is found by anybody while one of its holders lives, until it expires.

    The network is one of K = 5, so that a record's holders are few among the nodes, and the deaths
    of all but one are a matter of some steps. Holders hand records on when their time has come.
    """

    @initialize(seed=st.integers(0, 2**32), size=st.integers(6, 14))
    def start(self, seed: int, size: int) -> None:
        self.network = Network(Random(seed), limits=SMALL)
        self.network.grow(size)
        self.holders: dict[tuple[NodeId, str], set[Contact]] = {}
        self.published_at: dict[tuple[NodeId, str], float] = {}

    def some_node(self) -> Contact:
        return self.network.random.choice(self.network.alive)

    @rule(name=st.sampled_from("abc"), value=st.sampled_from("xy"))
    def publish(self, name: str, value: str) -> None:
        key = key_of(name)
        publisher = self.some_node()
        holders = self.network.store(publisher, key, value)
        others = [c for c in self.network.alive if c != publisher]
        nearest = sorted(others, key=lambda c: distance(c.node_id, key))
        assert set(holders) == set(nearest[: SMALL.k]), "the closest that live hold it"
        self.holders.setdefault((key, value), set()).update(holders)
        self.published_at[key, value] = self.network.now

    @rule()
    def join(self) -> None:
        self.network.join(self.some_node())
        self.maintain()

    @precondition(lambda self: len(self.network.alive) > 2)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        # Prefer a holder, or it would take many steps until only one is left.
        holders = {h for held in self.holders.values() for h in held if h in self.network.alive}
        victims = sorted(holders or self.network.alive, key=lambda c: c.node_id)
        self.network.kill(data.draw(st.sampled_from(victims)))
        self.maintain()

    @rule(seconds=st.sampled_from([60.0, PUBLISH_S]))
    def time_passes(self, seconds: float) -> None:
        self.network.now += seconds
        self.maintain()

    def maintain(self) -> None:
        """Do on every node what its service does periodically; called by all rules but publish."""
        network = self.network
        # Time passes, so that contacts without a recent answer are no longer fresh.
        network.now += FRESH_S
        for contact in network.alive:
            node = network.nodes[contact]
            network.find(contact, node.own_id)
            for index in node.table.due_buckets(network.now):
                bits = network.random.getrandbits(160)
                network.find(contact, id_in_bucket(node.own_id, index, bits))
            for due in node.records.due(network.now):
                holders = network.store(contact, due.key, due.value, due.age_s)
                self.holders[due.key, due.value].update(holders)

    @invariant()
    def a_record_is_found_while_a_holder_lives(self) -> None:
        if not hasattr(self, "network"):
            return
        for (key, value), holders in self.holders.items():
            asker = self.some_node()
            found = self.network.find(asker, key, for_value=True).values
            if self.network.now - self.published_at[key, value] >= SMALL_EXPIRY_S:
                assert value not in found, "it has expired"
                continue
            others = [h for h in holders if h in self.network.alive and h != asker]
            if others and self.among_closest(others, asker, key):
                assert value in found

    def among_closest(self, holders: list[Contact], asker: Contact, key: NodeId) -> bool:
        """Whether a holder is still among the closest; newcomers may have displaced all of them."""
        others = [c for c in self.network.alive if c != asker]
        nearest = sorted(others, key=lambda c: distance(c.node_id, key))[: SMALL.k]
        return any(holder in nearest for holder in holders)


TestNetwork = NetworkMachine.TestCase
TestNetwork.settings = settings(max_examples=12, stateful_step_count=15)


def test_everybody_finds_the_same_closest_nodes() -> None:
    network = Network(Random(1))
    members = network.grow(150)
    for name in "abcdef":
        key = key_of(name)
        asker = network.random.choice(members)
        others = [c for c in members if c != asker]
        nearest = sorted(others, key=lambda c: distance(c.node_id, key))[:K]
        assert list(network.find(asker, key).closest) == nearest


def test_a_record_is_found_while_the_last_of_20_holders_lives() -> None:
    network = Network(Random(2))
    members = network.grow(120)
    key = key_of("layer:7")
    holders = network.store(members[0], key, "11.1.1.1:8000")
    assert len(holders) == K
    survivor = network.random.choice(holders)
    for holder in holders:
        if holder != survivor:
            network.kill(holder)
    for asker in network.random.sample([c for c in network.alive if c != survivor], 20):
        assert network.find(asker, key, for_value=True).values == ("11.1.1.1:8000",)
    network.kill(survivor)
    assert network.find(network.alive[0], key, for_value=True).values == ()


def test_records_survive_losses_deaths_and_newcomers_together() -> None:
    network = Network(Random(3), loss=0.05)
    network.grow(80)
    names = [f"layer:{n}" for n in range(8)]
    found = asked = 0
    for _ in range(12):
        publisher = network.random.choice(network.alive)
        for name in names:
            network.store(publisher, key_of(name), name)
        for _ in range(6):
            network.kill(network.random.choice(network.alive))
            network.join(network.random.choice(network.alive))
        network.now += PUBLISH_S
        for name in names:
            asker = network.random.choice(network.alive)
            asked += 1
            found += name in network.find(asker, key_of(name), for_value=True).values
    assert found == asked


def test_a_publisher_of_several_values_is_joined_by_others() -> None:
    network = Network(Random(4))
    members = network.grow(40)
    key = key_of("layer:0")
    for n in range(5):
        network.store(members[n], key, f"11.0.0.{n}:8000")
    found = network.find(members[20], key, for_value=True).values
    assert set(found) == {f"11.0.0.{n}:8000" for n in range(5)}


def test_halves_of_a_partition_find_each_other_again() -> None:
    network = Network(Random(5))
    members = network.grow(20)
    half = set(members[:10])
    # While the network is cut, each half sees the other fail.
    for contact in members:
        for other in list(network.nodes[contact].table):
            if (other in half) != (contact in half):
                network.nodes[contact].failed(other, network.now)
                network.nodes[contact].failed(other, network.now)
        assert all((other in half) == (contact in half) for other in network.nodes[contact].table)
    # When the network is joined again, lost contacts are pinged again.
    network.now += 120
    for contact in members:
        for other in network.nodes[contact].table.lost():
            network.ping(contact, other)
    for contact in members:
        assert set(network.nodes[contact].table) == set(members) - {contact}
