"""A k-bucket: the contacts in one range of distance, and their replacements (decision 0052).

The paper is P. Maymounkov and D. Mazières, "Kademlia: A Peer-to-peer Information System Based on
the XOR Metric" (2002). Terms, as there: an *entry* has one of the K places (paper 2.2); entries
are in the order in which they were last heard, the least recently heard first. A *replacement* was
heard while there was no place, and waits in the replacement cache (paper 4.1). An *eviction
candidate* is an entry that is being pinged, and loses its place if it does not answer (paper 2.2).
A *failed ping* is a ping, or any other call, that an entry did not answer.

===========  ==============================================  ===========  =========================
state        event                                           next         other effect
===========  ==============================================  ===========  =========================
UNKNOWN      heard, and there is room                        ENTRY
UNKNOWN      heard, and the bucket is full, or has an entry  REPLACEMENT  that entry, or the first,
             with this id at another address                              may become the candidate
ENTRY        heard                                           ENTRY        moves to the last place;
                                                                          failed pings forgotten
ENTRY        a newcomer needs its place                      CANDIDATE    the caller pings it
ENTRY        a failed ping                                   ENTRY
ENTRY        failed ping number ``MAX_FAILED_PINGS``         UNKNOWN      the newest replacement
                                                                          gets the place
CANDIDATE    heard; ``PING_S`` passed; a first failed ping   ENTRY
             while there is no replacement
CANDIDATE    any other failed ping                           UNKNOWN      the newest replacement
                                                                          gets the place
REPLACEMENT  heard                                           REPLACEMENT  becomes the newest
REPLACEMENT  an entry lost its place                         ENTRY        in the order of hearing
REPLACEMENT  a failed ping; too many replacements; its       UNKNOWN
             subnet or id already has its share
===========  ==============================================  ===========  =========================

Invariants: at most K entries and ``MAX_REPLACEMENTS`` replacements; no id is twice among the
entries; an entry that answers never loses its place, however many newcomers there are. Nodes that
have been up long tend to stay up, and a flood of new ids cannot drive them out (paper 2.2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.node_id import NodeId
from meshnode.domain.transitions import checked

K = 20
"""Contacts in a bucket, in an answer, and holders of a record."""
MAX_REPLACEMENTS = 8
MAX_FAILED_PINGS = 2
"""More than one, because a single lost message must not cost an entry its place."""
FRESH_S = 60.0
"""An entry heard this recently does not become a candidate, so an entry that answers is pinged for
newcomers at most once a minute."""
PING_S = 30.0
"""How long an entry stays a candidate if its ping has no outcome. Longer than any deadline, so this
happens only when the caller was cancelled."""


class Standing(Enum):
    """The role of a contact in a bucket."""

    UNKNOWN = "unknown"
    ENTRY = "entry"
    CANDIDATE = "candidate"
    REPLACEMENT = "replacement"


TRANSITIONS: Mapping[Standing, frozenset[Standing]] = {
    Standing.UNKNOWN: frozenset({Standing.ENTRY, Standing.REPLACEMENT}),
    Standing.ENTRY: frozenset({Standing.ENTRY, Standing.CANDIDATE, Standing.UNKNOWN}),
    Standing.CANDIDATE: frozenset({Standing.ENTRY, Standing.UNKNOWN}),
    Standing.REPLACEMENT: frozenset({Standing.REPLACEMENT, Standing.ENTRY, Standing.UNKNOWN}),
}
"""The table above, without events: which standing may follow each one."""


@dataclass(slots=True)
class Entry:
    """A contact that a bucket knows. Times are seconds, monotonic."""

    contact: Contact
    heard_at: float
    standing: Standing = Standing.UNKNOWN
    failed_pings: int = 0
    candidate_until: float = 0.0

    def _enter(self, standing: Standing) -> None:
        self.standing = checked(TRANSITIONS, self.standing, standing)

    def place(self, now: float) -> None:
        """Make it an entry that was heard now."""
        self._enter(Standing.ENTRY)
        self.heard_at, self.failed_pings = now, 0

    def wait(self, now: float) -> None:
        """Make it a replacement that was heard now."""
        self._enter(Standing.REPLACEMENT)
        self.heard_at = now

    def promote(self) -> None:
        """Give a replacement the place of an entry that is gone."""
        self._enter(Standing.ENTRY)

    def nominate(self, until: float) -> None:
        """Make it the eviction candidate."""
        self._enter(Standing.CANDIDATE)
        self.candidate_until = until

    def acquit(self) -> None:
        """Make it an ordinary entry again, although it was not heard."""
        self._enter(Standing.ENTRY)

    def forget(self) -> None:
        """Make it unknown."""
        self._enter(Standing.UNKNOWN)


class Bucket:
    """The entries of one range of distance. It returns contacts to ping, but pings none."""

    __slots__ = ("_capacity", "entries", "replacements")

    def __init__(self, capacity: int = K) -> None:
        self._capacity = capacity
        self.entries: dict[NodeId, Entry] = {}
        """Least recently heard first."""
        self.replacements: dict[NodeId, Entry] = {}
        """Newest last."""

    @property
    def full(self) -> bool:
        """Whether a newcomer has to wait."""
        return len(self.entries) >= self._capacity

    def contacts(self) -> list[Contact]:
        """The contacts with a place, least recently heard first."""
        return [entry.contact for entry in self.entries.values()]

    def place(self, contact: Contact, now: float) -> None:
        """Give a contact the last place, or move it there. The caller ensures enough room."""
        self._forget_replacement(contact.node_id)
        entry = self.entries.pop(contact.node_id, None) or Entry(contact, now)
        entry.place(now)
        self.entries[contact.node_id] = entry

    def add_replacement(self, contact: Contact, now: float) -> None:
        """Remember a contact for which there is no place now."""
        entry = self.replacements.get(contact.node_id)
        if entry is None or entry.contact != contact:
            self._forget_replacement(contact.node_id)
            entry = Entry(contact, now)
        self.replacements.pop(contact.node_id, None)
        if len(self.replacements) >= MAX_REPLACEMENTS:
            self._forget_replacement(next(iter(self.replacements)))
        entry.wait(now)
        self.replacements[contact.node_id] = entry

    def candidate(self, now: float, node_id: NodeId | None = None) -> Entry | None:
        """The entry that a newcomer could replace, if it is worth a ping.

        That is the entry with the newcomer's ``node_id``, or else the least recently heard one.
        None if it was heard within FRESH_S, or is the eviction candidate already.
        """
        entry = next(iter(self.entries.values())) if node_id is None else self.entries[node_id]
        if entry.standing is Standing.CANDIDATE and now >= entry.candidate_until:
            entry.acquit()
        if now - entry.heard_at < FRESH_S or entry.standing is Standing.CANDIDATE:
            return None
        return entry

    def failed(
        self, contact: Contact, now: float, admissible: Callable[[Contact], bool]
    ) -> tuple[bool, Contact | None]:
        """Count a failed ping.

        Returns whether the contact lost its place, and the replacement that got it, if any.
        ``admissible`` decides whether a replacement may have the place.
        """
        replacement = self.replacements.get(contact.node_id)
        if replacement is not None and replacement.contact == contact:
            self._forget_replacement(contact.node_id)
        entry = self.entries.get(contact.node_id)
        if entry is None or entry.contact != contact:
            return False, None
        entry.failed_pings += 1
        is_candidate = entry.standing is Standing.CANDIDATE and now < entry.candidate_until
        if entry.failed_pings < MAX_FAILED_PINGS and not (is_candidate and self.replacements):
            entry.acquit()
            return False, None
        entry.forget()
        del self.entries[contact.node_id]
        return True, self._promote(admissible)

    def _forget_replacement(self, node_id: NodeId) -> None:
        entry = self.replacements.pop(node_id, None)
        if entry is not None:
            entry.forget()

    def _promote(self, admissible: Callable[[Contact], bool]) -> Contact | None:
        while self.replacements:
            node_id, entry = self.replacements.popitem()
            if node_id not in self.entries and admissible(entry.contact):
                entry.promote()
                self.entries[node_id] = entry
                # It may have waited long; then it is the next eviction candidate.
                in_order = sorted(self.entries.items(), key=lambda item: item[1].heard_at)
                self.entries = dict(in_order)
                return entry.contact
            entry.forget()
        return None
