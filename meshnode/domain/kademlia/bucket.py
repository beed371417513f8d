"""A k-bucket: the contacts in one range of distance, and those that wait (decisions/0052).

Terms: an *entry* is a contact in the bucket, in the order of hearing: the first is the least
recently heard. A contact *waits* when it was heard but there was no place. An entry is *under
check* while a ping decides whether it keeps its place. A *strike* is a call that it did not answer.

===========  =========================================  ===========  ===============================
state        event                                      next state   other effect
===========  =========================================  ===========  ===============================
unknown      heard, and there is room                   entry
unknown      heard, and the bucket is full              waiting      the first entry may go under
                                                                     check; the oldest waiting is
                                                                     forgotten when too many wait
entry        heard                                      entry, last  strikes forgotten, check ended
entry        its id heard at another address            entry        the other waits; this one may
                                                                     go under check
entry        strike, under check, somebody waits        gone         the newest waiting moves in
entry        strike number STRIKES                      gone         the newest waiting moves in
entry        any other strike                           entry
waiting      heard; strike                              waiting, last; unknown
===========  =========================================  ===========  ===============================

Invariants: at most K entries and WAITING_MAX waiting; no id is twice among the entries; an entry
that answers never loses its place, however many newcomers there are: nodes that have been up long
stay up longest, and a flood of new ids cannot drive them out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.node_id import NodeId

K = 20
"""Contacts in a bucket, in an answer, and holders of a record."""
WAITING_MAX = 8
STRIKES = 2
"""Two missed calls, as with heartbeats: one lost message costs nobody a place."""
FRESH_S = 60.0
"""An entry that was heard so recently is not doubted: newcomers cost a bucket one ping a minute."""
CHECK_S = 30.0
"""Longer than any deadline: only a check whose caller was cancelled lasts until then."""


@dataclass(slots=True)
class Entry:
    """A contact with a place in the bucket. Times are seconds, monotonic."""

    contact: Contact
    heard_at: float
    strikes: int = 0
    check_until: float = 0.0


class Bucket:
    """The entries of one range of distance. Says whom to ping, pings nobody."""

    __slots__ = ("_capacity", "entries", "waiting")

    def __init__(self, capacity: int = K) -> None:
        self._capacity = capacity
        self.entries: dict[NodeId, Entry] = {}
        """Least recently heard first."""
        self.waiting: dict[NodeId, Entry] = {}
        """Newest last."""

    @property
    def full(self) -> bool:
        """Whether a newcomer has to wait."""
        return len(self.entries) >= self._capacity

    def contacts(self) -> list[Contact]:
        """The contacts with a place, least recently heard first."""
        return [entry.contact for entry in self.entries.values()]

    def heard(self, contact: Contact, now: float) -> None:
        """Give a contact the last place, or move it there. The caller has seen to the room."""
        self.waiting.pop(contact.node_id, None)
        self.entries.pop(contact.node_id, None)
        self.entries[contact.node_id] = Entry(contact, now)

    def wait(self, contact: Contact, now: float) -> None:
        """Remember a contact for which there is no place now."""
        self.waiting.pop(contact.node_id, None)
        if len(self.waiting) >= WAITING_MAX:
            del self.waiting[next(iter(self.waiting))]
        self.waiting[contact.node_id] = Entry(contact, now)

    def doubtful(self, now: float, node_id: NodeId | None = None) -> Entry | None:
        """The entry that a newcomer would replace, if it is worth a ping.

        That is the one with the newcomer's ``node_id``, else the least recently heard one. None if
        it was heard within FRESH_S or is under check already.
        """
        entry = next(iter(self.entries.values())) if node_id is None else self.entries[node_id]
        if now - entry.heard_at < FRESH_S or now < entry.check_until:
            return None
        return entry

    def strike(
        self, contact: Contact, now: float, admissible: Callable[[Contact], bool]
    ) -> tuple[bool, Contact | None]:
        """Count a missed call. Says whether the contact lost its place, and to whom if to anybody.

        ``admissible`` says whether one that waits may have the place.
        """
        waiting = self.waiting.get(contact.node_id)
        if waiting is not None and waiting.contact == contact:
            del self.waiting[contact.node_id]
        entry = self.entries.get(contact.node_id)
        if entry is None or entry.contact != contact:
            return False, None
        entry.strikes += 1
        under_check = now < entry.check_until
        entry.check_until = 0.0
        if entry.strikes < STRIKES and not (under_check and self.waiting):
            return False, None
        del self.entries[contact.node_id]
        return True, self._promote(admissible)

    def _promote(self, admissible: Callable[[Contact], bool]) -> Contact | None:
        while self.waiting:
            node_id, entry = self.waiting.popitem()
            if node_id not in self.entries and admissible(entry.contact):
                self.entries[node_id] = entry
                # It may have waited for long, and then it is the next to be doubted.
                in_order = sorted(self.entries.items(), key=lambda item: item[1].heard_at)
                self.entries = dict(in_order)
                return entry.contact
        return None
