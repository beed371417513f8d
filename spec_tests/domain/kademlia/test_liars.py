"""The iterative lookup still succeeds among liars, within its bounds (interface 4.3)."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.node_id import NodeId, distance
from meshnode.domain.kademlia.query import MAX_CALLED
from spec_tests.domain.kademlia.network import Answer, Info, Liar, Network, contact_of

# Liars in a network. They answer every ping as themselves, so they count as verified.


def fakes_near(target: NodeId, random: Random, count: int = 20) -> list[Contact]:
    """Contacts with ids nearer than any node's, at addresses without a node."""
    base = int.from_bytes(target)
    return [
        contact_of(base ^ random.randrange(1, 1 << 120), f"11.{random.randrange(255)}.{n}.1")
        for n in range(count)
    ]


def liars(random: Random, network: Network) -> dict[str, Liar]:
    me = network.fresh_contact()
    return {
        "loops": lambda target: Answer(me.node_id, network.alive[:1] * 20),
        "far nodes": lambda target: Answer(
            me.node_id, [contact_of(random.getrandbits(160), "12.1.1.1") for _ in range(20)]
        ),
        "fakes": lambda target: Answer(me.node_id, fakes_near(target, random)),
        "a thousand": lambda target: Answer(me.node_id, fakes_near(target, random, 1000)),
        "own id": lambda target: Answer(me.node_id, [Info(target)] * 20),
        "wrong responder": lambda target: Answer(random.randbytes(20), network.alive[:20]),
        "private": lambda target: Answer(
            me.node_id, [Info(random.randbytes(20), "10.0.0.1") for _ in range(20)]
        ),
    }


@pytest.mark.parametrize(
    "kind",
    ["loops", "far nodes", "fakes", "a thousand", "own id", "wrong responder", "private"],
)
def test_liars_do_no_harm(kind: str) -> None:
    random = Random(kind)
    network = Network(random)
    honest = network.grow(60)
    for _ in range(6):
        lie = liars(random, network)[kind]
        liar = network.add_liar(lambda target: Answer(b"", []))
        honest_id = liar.node_id

        def answer(target: NodeId, lie: Liar = lie, own: NodeId = honest_id) -> Answer:
            told = lie(target)
            responder = told.responder_id if kind == "wrong responder" else own
            return Answer(responder, told.nodes)

        network.liars[liar] = answer
        for contact in honest:
            network.ping(contact, liar)
    for _ in range(10):
        target = NodeId(random.randbytes(20))
        asker = random.choice(honest)
        network.called.clear()
        result = network.find(asker, target)
        others = [c for c in honest if c != asker]
        nearest = sorted(others, key=lambda c: distance(c.node_id, target))[:10]
        found = set(result.closest)
        assert set(nearest[:5]) <= found, result.refused
        assert len(set(network.called)) <= MAX_CALLED
        assert not any(contact.ip == "10.0.0.1" for contact in network.called)
        assert set(result.closest) <= set(honest) | set(network.liars)


@settings(max_examples=15)
@given(st.integers(0, 2**32), st.integers(1, 25), st.floats(0, 0.3))
def test_every_lookup_ends_within_its_bounds(seed: int, size: int, loss: float) -> None:
    random = Random(seed)
    network = Network(random, loss=loss)
    members = network.grow(size)
    for contact in random.sample(members, size // 3):
        network.kill(contact)
    if not network.alive:
        return
    network.called.clear()
    result = network.find(random.choice(network.alive), NodeId(random.randbytes(20)))
    assert result.messages <= 2 * MAX_CALLED
    assert set(result.closest) <= set(network.alive)
