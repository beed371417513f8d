"""Interface 2.3, DHTNodeInfo: the address at which others see this node, and what it publishes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.holding import holder_in, holder_value, layer_key
from meshnode.domain.kademlia.own_address import MAX_VOTES, OwnAddress
from meshnode.domain.kademlia.policy import ANYWHERE
from spec_tests.domain.kademlia.network import contact_of, id_of

OWN = id_of(0)


def test_without_votes_it_is_the_address_listened_on() -> None:
    assert OwnAddress("10.1.2.3").best() == "10.1.2.3"
    for unknown in ("0.0.0.0", "::", "localhost", ""):  # noqa: S104 - what is not an address
        assert OwnAddress(unknown).best() is None


def test_the_address_farthest_out_is_published() -> None:
    own = OwnAddress("0.0.0.0")  # noqa: S104
    own.add_vote(contact_of(1, "127.0.0.1"), "127.0.0.1")
    assert own.best() == "127.0.0.1"
    own.add_vote(contact_of(2, "10.0.0.9"), "10.0.0.1")
    assert own.best() == "10.0.0.1"
    own.add_vote(contact_of(3, "9.9.9.9"), "8.8.8.8")
    assert own.best() == "8.8.8.8"


def test_a_majority_of_groups_decides() -> None:
    own = OwnAddress("")
    for host in range(1, 30):
        # All contacts of one subnet have one vote together.
        own.add_vote(contact_of(host, f"9.9.9.{host}"), "1.1.1.1")
    for subnet in range(1, 3):
        own.add_vote(contact_of(100 + subnet, f"9.9.{subnet}.1"), "8.8.8.8")
    assert own.best() == "8.8.8.8"


@pytest.mark.parametrize(
    ("voter", "said"),
    [
        ("127.0.0.1", "8.8.8.8"),
        ("10.0.0.1", "127.0.0.1"),
        ("9.9.9.9", "10.0.0.1"),
        ("9.9.9.9", "169.254.169.254"),
        ("9.9.9.9", "localhost"),
        ("9.9.9.9", ""),
    ],
)
def test_a_vote_for_what_the_voter_cannot_see_does_not_count(voter: str, said: str) -> None:
    own = OwnAddress("")
    own.add_vote(contact_of(1, voter), said)
    assert own.best() is None


@given(st.lists(st.tuples(st.integers(1, 250), st.integers(1, 250), st.text(max_size=12))))
def test_votes_are_bounded_and_never_fail(votes: list[tuple[int, int, str]]) -> None:
    own = OwnAddress("")
    for a, b, text in votes:
        own.add_vote(contact_of(1, f"9.{a}.{b}.1"), text)
        own.add_vote(contact_of(1, f"9.{a}.{b}.1"), f"8.8.{a}.{b}")
    assert len(own._votes) <= MAX_VOTES


def test_keys_of_layers_differ() -> None:
    keys = {layer_key(model, layer) for model in ("a", "b") for layer in range(50)}
    assert len(keys) == 100


@pytest.mark.parametrize("ip", ["127.0.0.1", "10.0.0.1", "8.8.8.8", "fd00::1"])
def test_a_published_holder_is_found(ip: str) -> None:
    holder = contact_of(7, ip)
    teller = contact_of(1, "127.0.0.1")
    assert holder_in(holder_value(holder), OWN, ANYWHERE, [teller]) == holder
    assert holder_value(holder).split()[0] == holder.address


def test_a_loopback_holder_is_believed_only_if_all_sources_are_on_this_machine() -> None:
    value = holder_value(contact_of(7, "127.0.0.1"))
    here, far = contact_of(1, "127.0.0.1"), contact_of(2, "8.8.8.8")
    assert holder_in(value, OWN, ANYWHERE, []) is None
    assert holder_in(value, OWN, ANYWHERE, [here, far]) is None
    assert holder_in(value, OWN, ANYWHERE, [here]) == contact_of(7, "127.0.0.1")


@given(st.text(max_size=80) | st.from_regex(r"\[?[0-9a-f.:]{0,20}\]?:[0-9]{0,9} [0-9a-f]{0,44}"))
def test_values_of_strangers_never_fail(value: str) -> None:
    found = holder_in(value, OWN, ANYWHERE, [contact_of(1, "127.0.0.1")])
    assert found is None or isinstance(found, Contact)


@pytest.mark.parametrize(
    "value",
    ["127.0.0.1:8000", f"127.0.0.1:8000 {OWN.hex()}", f"example.org:8000 {'1' * 40}",
     f"127.0.0.1:0 {'1' * 40}", f"127.0.0.1:99999 {'1' * 40}", f"[127.0.0.1:80 {'1' * 40}",
     f"127.0.0.1:8000 {'1' * 38}"],
)  # fmt: skip
def test_values_that_name_nobody(value: str) -> None:
    assert holder_in(value, OWN, ANYWHERE, [contact_of(1, "127.0.0.1")]) is None
