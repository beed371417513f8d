"""A candidate of a lookup: one id, and the addresses that other nodes gave for it.

Terms: a *source* is a node whose answer held the id with that address. ``lookup`` has the table of
states.

Invariants: an address is tried once; at most MAX_ADDRESSES are kept for an id. Verified addresses
are tried first, the others in the order in which they were heard. So a liar who gives a wrong
address for an honest node delays a lookup by one call. Hiding the node takes MAX_ADDRESSES liars
whose answers all come before that of any honest node.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.node_id import NodeId

MAX_ADDRESSES = 4


class State(Enum):
    """The progress of a lookup with a candidate."""

    HEARD = "heard"
    PINGING = "pinging"
    KNOWN = "known"
    ASKING = "asking"
    ANSWERED = "answered"
    DROPPED = "dropped"


class Candidate:
    """One id in a lookup. It is DROPPED until it has an address to try."""

    __slots__ = ("_sources", "_tried", "contact", "depth", "distance", "state")

    contact: Contact
    """The address being tried; none before the first ``next_address``."""

    def __init__(self, distance: int, depth: int) -> None:
        self.distance = distance
        """Distance to the lookup's target."""
        self.depth = depth
        """The length of the chain of queries that led to it; 1 if this node knew it."""
        self.state = State.DROPPED
        self._sources: dict[Contact, list[NodeId]] = {}
        self._tried: set[Contact] = set()

    @property
    def sources(self) -> list[NodeId]:
        """The nodes that gave the address being tried; empty if only this node knew it."""
        return self._sources[self.contact]

    def add_address(self, contact: Contact, source: NodeId | None) -> None:
        """Note an address of this id; ``source`` is None if this node knew it."""
        if contact not in self._sources:
            if len(self._sources) >= MAX_ADDRESSES:
                return
            self._sources[contact] = []
        if source is not None:
            self._sources[contact].append(source)

    def next_address(self, is_verified: Callable[[Contact], bool]) -> bool:
        """Start over with another address: KNOWN if it was verified before, else HEARD.

        Returns False if no address is left.
        """
        untried = [contact for contact in self._sources if contact not in self._tried]
        if not untried:
            return False
        verified = [contact for contact in untried if is_verified(contact)]
        self.contact = (verified or untried)[0]
        self.state = State.KNOWN if verified else State.HEARD
        self._tried.add(self.contact)
        return True
