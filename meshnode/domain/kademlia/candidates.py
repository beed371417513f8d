"""A candidate of a lookup: one id, and the addresses at which it is said to be.

Terms: a *teller* is a node whose answer held the id with that address. The table in ``lookup`` says
how the states follow each other.

Invariants: an address is tried once; at most ADDRESSES_MAX are kept for an id, verified ones tried
first and then the first told. So a liar who tells a wrong address of an honest node delays a lookup
by a call; to hide the node takes ADDRESSES_MAX liars who are all heard before anybody honest.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.node_id import NodeId

ADDRESSES_MAX = 4


class State(Enum):
    """How far a lookup got with a candidate."""

    HEARD = "heard"
    PINGING = "pinging"
    KNOWN = "known"
    ASKING = "asking"
    ANSWERED = "answered"
    DROPPED = "dropped"


class Candidate:
    """One id in a lookup. It begins DROPPED, until it is told and has an address to try."""

    __slots__ = ("_tellers", "_tried", "contact", "depth", "distance", "state")

    contact: Contact
    """The address being tried; none before the first ``next_address``."""

    def __init__(self, distance: int, depth: int) -> None:
        self.distance = distance
        """To the lookup's target."""
        self.depth = depth
        """How many nodes in a row had to be asked to hear of it; 1 if this node knew it."""
        self.state = State.DROPPED
        self._tellers: dict[Contact, list[NodeId]] = {}
        self._tried: set[Contact] = set()

    @property
    def tellers(self) -> list[NodeId]:
        """Who told the address being tried; empty if this node knew it."""
        return self._tellers[self.contact]

    def told(self, contact: Contact, teller: NodeId | None) -> None:
        """Keep an address of this id; ``teller`` is None if this node knew it."""
        if contact not in self._tellers:
            if len(self._tellers) >= ADDRESSES_MAX:
                return
            self._tellers[contact] = []
        if teller is not None:
            self._tellers[contact].append(teller)

    def next_address(self, is_verified: Callable[[Contact], bool]) -> bool:
        """Start over with another address: KNOWN if it was verified before, else HEARD.

        False if none is left.
        """
        untried = [contact for contact in self._tellers if contact not in self._tried]
        if not untried:
            return False
        verified = [contact for contact in untried if is_verified(contact)]
        self.contact = (verified or untried)[0]
        self.state = State.KNOWN if verified else State.HEARD
        self._tried.add(self.contact)
        return True
