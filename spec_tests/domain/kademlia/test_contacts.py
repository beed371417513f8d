"""Which addresses reported by other nodes are accepted (decisions 0050 and 0051)."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from meshnode.domain.kademlia import verification
from meshnode.domain.kademlia.address import Scope, canonical, locate, source_for
from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.local_node import LocalNode
from meshnode.domain.kademlia.policy import (
    ANYWHERE,
    PUBLIC_ONLY,
    ContactPolicy,
    quota_group,
    visible_from,
)
from meshnode.domain.kademlia.refusals import (
    BadIdLength,
    BadPort,
    DhtRefusal,
    ForeignScope,
    InwardAddress,
    NotAnAddress,
    OwnId,
    UnusableAddress,
    WrongResponder,
)
from meshnode.domain.kademlia.verification import Verifications
from spec_tests.domain.kademlia.network import Info, contact_of, id_of

OWN = id_of(1)
OTHER = id_of(2)


@pytest.mark.parametrize(
    ("ip", "refusal"),
    [
        ("", NotAnAddress),
        ("localhost", NotAnAddress),
        ("node.example", NotAnAddress),
        ("127.1", NotAnAddress),
        ("0127.0.0.1", NotAnAddress),
        ("2130706433", NotAnAddress),
        ("0x7f000001", NotAnAddress),
        (" 127.0.0.1", NotAnAddress),
        ("127.0.0.1\n", NotAnAddress),
        ("127.0.0.1:8000", NotAnAddress),
        ("::0001", NotAnAddress),
        ("2A00::1", NotAnAddress),
        ("[::1]", NotAnAddress),
        ("fe80::1%eth0", NotAnAddress),
        ("٣.1.1.1", NotAnAddress),
        ("1" * 10_000, NotAnAddress),
        ("0.0.0.0", UnusableAddress),  # noqa: S104 - to be refused
        ("0.1.2.3", UnusableAddress),
        ("::", UnusableAddress),
        ("224.0.0.1", UnusableAddress),
        ("ff02::1", UnusableAddress),
        ("255.255.255.255", UnusableAddress),
        ("240.0.0.1", UnusableAddress),
        ("169.254.169.254", UnusableAddress),
        ("fe80::1", UnusableAddress),
        ("192.0.2.1", UnusableAddress),
        ("198.18.0.1", UnusableAddress),
        ("2001:db8::1", UnusableAddress),
        ("::ffff:10.0.0.1", UnusableAddress),
        ("::ffff:a00:1", UnusableAddress),
        ("::ffff:127.0.0.1", UnusableAddress),
        ("64:ff9b::a00:1", UnusableAddress),
        ("2002:a00:1::", UnusableAddress),
        ("2001:0:a00:1::1", UnusableAddress),
        ("2001:0:a00:1:0:1:2:3", UnusableAddress),
    ],
)
def test_addresses_that_no_node_can_have_are_refused(ip: str, refusal: type[DhtRefusal]) -> None:
    with pytest.raises(refusal) as refused:
        ANYWHERE.admit(Info(OTHER, ip), OWN)
    assert refused.value.field == "ip"


@pytest.mark.parametrize(
    ("ip", "scope", "subnet_of_neighbour"),
    [
        ("127.0.0.1", Scope.LOOPBACK, "127.0.0.9"),
        ("::1", Scope.LOOPBACK, "::2"),
        ("10.1.2.3", Scope.PRIVATE, "10.1.2.200"),
        ("100.64.0.1", Scope.PRIVATE, "100.64.0.2"),
        ("192.168.7.7", Scope.PRIVATE, "192.168.7.8"),
        ("fd00::1", Scope.PRIVATE, "fd00::ffff:0:0:1"),
        ("8.8.8.8", Scope.PUBLIC, "8.8.8.9"),
        ("2a00:1450::5", Scope.PUBLIC, "2a00:1450::1:2:3:4"),
    ],
)
def test_scope_and_subnet(ip: str, scope: Scope, subnet_of_neighbour: str) -> None:
    place = locate(ip)
    assert place.scope is scope
    if scope is not Scope.LOOPBACK:
        assert locate(subnet_of_neighbour).subnet == place.subnet
    assert locate("9.9.9.9").subnet != place.subnet


@given(st.ip_addresses())
def test_every_address_is_located_or_refused(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    try:
        place = locate(str(address))
    except DhtRefusal:
        return
    assert not address.is_multicast
    assert not address.is_unspecified
    assert not address.is_link_local
    if place.scope is Scope.PUBLIC:
        assert address.is_global


def test_a_reported_address_is_brought_into_its_canonical_form() -> None:
    assert canonical("::ffff:127.0.0.1") == "127.0.0.1"
    assert canonical("fe80::1%eth0") == "fe80::1"
    with pytest.raises(NotAnAddress):
        canonical("unix:")


@pytest.mark.parametrize(("teller", "ip"), [("10.0.0.1", "127.0.0.1"), ("8.8.8.8", "10.0.0.1")])
def test_an_address_of_a_nearer_scope_than_the_tellers_is_refused(teller: str, ip: str) -> None:
    with pytest.raises(InwardAddress):
        ANYWHERE.admit(Info(OTHER, ip), OWN, teller)
    assert not visible_from(teller, ip)
    assert ANYWHERE.admit(Info(OTHER, teller), OWN, ip).ip == teller
    assert ANYWHERE.admit(Info(OTHER, ip), OWN, ip).ip == ip


@pytest.mark.parametrize("port", [-1, 0, 64536, 65535, 2**31 - 1])
def test_a_port_leaves_room_for_the_grpc_port(port: int) -> None:
    with pytest.raises(BadPort):
        ANYWHERE.admit(Info(OTHER, port=port), OWN)
    assert ANYWHERE.admit(Info(OTHER, port=64535), OWN).grpc_port == 65535


def test_ids_and_scopes_are_checked() -> None:
    with pytest.raises(BadIdLength):
        ANYWHERE.admit(Info(b"x" * 19), OWN)
    with pytest.raises(OwnId):
        ANYWHERE.admit(Info(OWN), OWN)
    for ip in ("127.0.0.1", "10.0.0.1"):
        with pytest.raises(ForeignScope):
            PUBLIC_ONLY.admit(Info(OTHER, ip), OWN)
    loopback_only = ContactPolicy(scopes=frozenset({Scope.LOOPBACK}))
    with pytest.raises(ForeignScope):
        loopback_only.admit(Info(OTHER, "8.8.8.8"), OWN)


def test_a_sender_has_the_address_of_its_socket() -> None:
    claimed = Info(OTHER, "8.8.8.8", 8001)
    assert ANYWHERE.admit_sender(claimed, OWN, "::ffff:10.0.0.7") == Contact(
        OTHER, "10.0.0.7", 8001
    )


def test_quotas_count_what_an_attacker_has_to_pay_for() -> None:
    assert quota_group(contact_of(1, "8.8.8.8", 1)) == quota_group(contact_of(2, "8.8.8.9", 2))
    assert quota_group(contact_of(1, "10.0.0.1", 1)) == quota_group(contact_of(2, "10.0.0.1", 2))
    assert quota_group(contact_of(1, "10.0.0.1")) != quota_group(contact_of(1, "10.0.0.2"))
    assert quota_group(contact_of(1, port=1)) != quota_group(contact_of(1, port=2))


def test_addresses_are_written_as_host_and_port() -> None:
    assert contact_of(1, "8.8.8.8", 80).address == "8.8.8.8:80"
    assert contact_of(1, "::1", 80).address == "[::1]:80"


def test_only_verified_senders_are_named_to_others() -> None:
    node = LocalNode(OWN, now=0)
    stranger = node.sender_of(Info(OTHER), "127.0.0.1")
    asker = contact_of(3)
    assert node.worth_pinging(stranger, 0)
    assert not node.worth_pinging(stranger, 1), "one ping at a time"
    assert node.find_node(asker, OTHER) == []
    assert node.answered(stranger, OTHER, 2) is None
    assert node.find_node(asker, OTHER) == [stranger]
    assert node.find_node(stranger, OTHER) == [], "nobody is told of itself"
    assert not node.worth_pinging(stranger, 3)


def test_another_node_at_the_address_is_not_verified() -> None:
    node = LocalNode(OWN, now=0)
    stranger = contact_of(2)
    assert node.worth_pinging(stranger, 0)
    with pytest.raises(WrongResponder):
        node.answered(stranger, id_of(3), 1)
    assert not node.is_verified(stranger, 1)
    assert not node.worth_pinging(stranger, 2), "shunned for a while"
    assert node.worth_pinging(stranger, 2 + verification.CALLER_SHUNNED_S), "it calls itself"


def test_a_node_known_by_hearsay_is_shunned_for_longer() -> None:
    book, contact = Verifications(), contact_of(2)
    book.failed(contact, 0)
    assert not book.may_ping(contact, verification.SHUNNED_S - 1)
    assert book.may_ping(contact, verification.CALLER_SHUNNED_S, calls=True)
    book.failed(contact, 20)
    assert book.may_ping(contact, 20 + verification.SHUNNED_S)


def test_loopback_addresses_are_not_given_to_other_machines() -> None:
    node = LocalNode(OWN, now=0)
    node.answered(contact_of(2, "127.0.0.1"), OTHER, 0)
    assert node.find_node(contact_of(3, "10.0.0.3"), OTHER) == []


class VerificationMachine(RuleBasedStateMachine):
    """Verifications against a model that keeps the last event of each contact."""

    contacts = st.integers(1, 60).map(contact_of)

    def __init__(self) -> None:
        super().__init__()
        self.book = Verifications()
        self.now = 0.0
        self.last: dict[Contact, tuple[str, float]] = {}

    def state(self, contact: Contact) -> str:
        event, at = self.last.get(contact, ("unknown", 0.0))
        spans = {
            "asked": verification.ASKED_S,
            "verified": verification.VERIFIED_S,
            "shunned": verification.SHUNNED_S,
        }
        return event if event != "unknown" and self.now - at < spans[event] else "unknown"

    @rule(seconds=st.sampled_from([1.0, 29.0, 61.0, 1801.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(contact=contacts)
    def ask(self, contact: Contact) -> None:
        asked = sum(self.state(other) == "asked" for other in self.last)
        may = self.state(contact) == "unknown" and asked < verification.MAX_ASKED
        assert self.book.may_ping(contact, self.now) == may
        if may:
            self.last[contact] = ("asked", self.now)

    @rule(contact=contacts, honest=st.booleans())
    def answer(self, contact: Contact, honest: bool) -> None:
        if honest:
            self.book.answered(contact, contact.node_id, self.now)
        else:
            with pytest.raises(WrongResponder):
                self.book.answered(contact, id_of(99), self.now)
        self.last[contact] = ("verified" if honest else "shunned", self.now)

    @rule(contact=contacts)
    def fail(self, contact: Contact) -> None:
        self.book.failed(contact, self.now)
        self.last[contact] = ("shunned", self.now)

    @invariant()
    def states_agree(self) -> None:
        for contact in self.last:
            assert self.book.is_verified(contact, self.now) == (self.state(contact) == "verified")
            assert self.book.is_shunned(contact, self.now) == (self.state(contact) == "shunned")


TestVerification = VerificationMachine.TestCase


def test_memory_of_pings_is_bounded() -> None:
    book = Verifications()
    for number in range(5000):
        book.answered(contact_of(number), id_of(number), number)
        book.failed(contact_of(10_000 + number), number)
        book.may_ping(contact_of(20_000 + number), number)
    most = verification.MAX_VERIFIED + verification.MAX_SHUNNED + verification.MAX_ASKED
    assert len(book) <= most


@pytest.mark.parametrize(
    ("bound", "peer", "source"),
    [
        ("10.1.0.2", "10.9.0.1", "10.1.0.2"),
        ("127.0.2.1", "127.0.0.1", "127.0.2.1"),
        ("10.1.0.2", "9.9.9.9", None),
        ("127.0.0.1", "10.9.0.1", None),
        ("0.0.0.0", "10.9.0.1", None),  # noqa: S104 - nothing is bound
        ("::", "10.9.0.1", None),
        ("::1", "127.0.0.1", None),
        ("localhost", "127.0.0.1", None),
        ("10.1.0.2", "tracker.example", None),
    ],
)
def test_peers_of_one_scope_are_called_from_the_bound_address(
    bound: str, peer: str, source: str | None
) -> None:
    assert source_for(bound, peer) == source
