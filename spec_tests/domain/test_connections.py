"""Which connections a listener keeps: each address has a share, and idle ones are replaced."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from meshnode.domain.connections import ConnectionTable, share_of

LIMIT = 6
HERE, ONE, TWO = "127.0.0.1", "192.0.2.1", "192.0.2.2"


@dataclass(eq=False)
class Client:
    ip: str
    idle: bool = True
    idle_since: float = 0.0


def table() -> ConnectionTable[Client]:
    return ConnectionTable(LIMIT, lambda ip: share_of(LIMIT, 0.5, ip))


def test_an_address_with_its_share_replaces_its_own_longest_idle() -> None:
    kept = table()
    mine = [Client(ONE, idle_since=at) for at in (2.0, 1.0, 3.0)]
    other = Client(TWO, idle_since=0.0)
    for client in (*mine, other):
        assert kept.admit(client) == (True, None)
    assert kept.admit(Client(ONE)) == (True, mine[1])
    assert other in kept
    assert len(kept) == 4


def test_a_newcomer_replaces_one_of_the_address_that_has_most() -> None:
    kept = table()
    idle = [Client(ONE, idle_since=5.0), Client(ONE, idle_since=4.0), Client(ONE, idle_since=6.0)]
    for client in (*idle, *(Client(TWO, idle=False) for _ in range(2)), Client(HERE)):
        assert kept.admit(client) == (True, None)
    assert kept.admit(Client("198.51.100.7")) == (True, idle[1])


def test_one_that_works_is_never_replaced() -> None:
    kept = table()
    for ip in (ONE, TWO):
        for _ in range(3):
            assert kept.admit(Client(ip, idle=False)) == (True, None)
    assert kept.admit(Client(ONE)) == (False, None)
    assert kept.admit(Client(HERE)) == (False, None)


def test_addresses_of_this_machine_may_have_all_and_a_network_of_ipv6_counts_as_one() -> None:
    assert share_of(LIMIT, 0.5, HERE) == share_of(LIMIT, 0.5, "::1") == LIMIT
    assert share_of(LIMIT, 0.5, ONE) == share_of(LIMIT, 0.5, "") == 3
    assert share_of(1, 0.5, ONE) == 1
    kept = table()
    for host in range(3):
        assert kept.admit(Client(f"2001:db8::{host}", idle=False)) == (True, None)
    assert kept.admit(Client("2001:db8::9")) == (False, None)
    assert len(kept.of("2001:db8::77")) == 3


class AnyOrder(RuleBasedStateMachine):
    """Clients connect, become busy or idle, and leave in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = table()
        self.known: list[Client] = []
        self.now = 0.0

    @rule(ip=st.sampled_from([HERE, ONE, TWO, "2001:db8::1"]), idle=st.booleans())
    def come(self, ip: str, idle: bool) -> None:
        self.now += 1
        client = Client(ip, idle, self.now)
        before = list(self.kept)
        admitted, replaced = self.kept.admit(client)
        assert (client in self.kept) == admitted
        assert replaced is None or (admitted and replaced.idle and replaced in before)
        assert set(self.kept) == {*before, *([client] if admitted else [])} - {replaced}
        if not admitted:
            # A client is refused only if all connections, or all of its address, are busy.
            rivals = (
                self.kept.of(ip) if len(self.kept.of(ip)) >= share_of(LIMIT, 0.5, ip) else before
            )
            assert not any(rival.idle for rival in rivals)

    @precondition(lambda self: len(self.kept) > 0)
    @rule(data=st.data(), idle=st.booleans())
    def change(self, data: st.DataObject, idle: bool) -> None:
        data.draw(st.sampled_from(list(self.kept))).idle = idle

    @precondition(lambda self: len(self.kept) > 0)
    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(list(self.kept)))
        self.kept.discard(client)
        self.kept.discard(client)
        assert client not in self.kept

    @invariant()
    def bounded(self) -> None:
        assert len(self.kept) <= LIMIT
        for ip in (ONE, TWO, "2001:db8::1"):
            assert len(self.kept.of(ip)) <= 3


TestAnyOrder = AnyOrder.TestCase
