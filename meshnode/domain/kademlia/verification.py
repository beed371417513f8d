"""The contacts that have proved that their id belongs to their address (decision 0051).

Terms: a contact is *asked* while a ping to it is in flight, *verified* once its address has
answered with its id, and *shunned* for a while after it has failed to.

============  ==================================  ============
state         event                               next state
============  ==================================  ============
unknown       may_ping, and room among the asked  asked
asked         nothing for ASKED_S                 unknown
verified      VERIFIED_S since the last answer    unknown
shunned       SHUNNED_S since the failure         unknown
any           answered with its id                verified
any           answered with another id, failed    shunned
============  ==================================  ============

Invariants: a contact is in one state at a time, but one that is shunned and calls this node may be
asked CALLER_SHUNNED_S after the failure. Each state has a bound; when it is full the oldest contact
becomes unknown, except that a full *asked* refuses newcomers. So strangers can make this node ping
a claimed address once in SHUNNED_S, or their own once in CALLER_SHUNNED_S, with at most MAX_ASKED
pings in flight.
"""

from __future__ import annotations

from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.refusals import WrongResponder

MAX_VERIFIED = 1024
"""A full routing table of a large network holds some 300 contacts; a lookup meets 50 more."""
MAX_SHUNNED = 1024
MAX_ASKED = 32
"""About as many as ten lookups have in flight."""

VERIFIED_S = 1800.0
"""Half a bucket's refresh time: a contact in use is heard more often than that."""
SHUNNED_S = 60.0
CALLER_SHUNNED_S = 10.0
"""As SHUNNED_S, for a contact that calls this node: it may only have been too busy to answer."""
ASKED_S = 30.0
"""Longer than any deadline: only a ping whose caller was cancelled stays without outcome."""


class Verifications:
    """The results of pings. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        # Each maps to the time of the event, oldest first.
        self._asked: dict[Contact, float] = {}
        self._verified: dict[Contact, float] = {}
        self._shunned: dict[Contact, float] = {}

    def is_verified(self, contact: Contact, now: float) -> bool:
        """Whether this address has answered with this id within VERIFIED_S."""
        return _within(self._verified, contact, now, VERIFIED_S)

    def is_shunned(self, contact: Contact, now: float, span_s: float = SHUNNED_S) -> bool:
        """Whether this address has failed within ``span_s``."""
        return _within(self._shunned, contact, now, span_s)

    def may_ping(self, contact: Contact, now: float, *, calls: bool = False) -> bool:
        """Whether to ping a contact that another node named. True marks it as asked.

        ``calls`` means that the contact itself called this node, from that address.
        """
        _drop_older(self._asked, now - ASKED_S)
        if contact in self._asked or len(self._asked) >= MAX_ASKED:
            return False
        span_s = CALLER_SHUNNED_S if calls else SHUNNED_S
        if self.is_verified(contact, now) or self.is_shunned(contact, now, span_s):
            return False
        self._asked[contact] = now
        return True

    def answered(self, contact: Contact, responder_id: bytes, now: float) -> None:
        """Note an answer to any call. If its id is wrong, shun the contact; raises
        WrongResponder."""
        # An address is verified by an answer with the matching id only.
        if responder_id != contact.node_id:
            self.failed(contact, now)
            raise WrongResponder
        self._asked.pop(contact, None)
        self._shunned.pop(contact, None)
        _append(self._verified, contact, now, MAX_VERIFIED)

    def failed(self, contact: Contact, now: float) -> None:
        """Note that the contact did not answer, or answered with another id."""
        self._asked.pop(contact, None)
        self._verified.pop(contact, None)
        _append(self._shunned, contact, now, MAX_SHUNNED)

    def __len__(self) -> int:
        """How many contacts are remembered, in any state."""
        return len(self._asked) + len(self._verified) + len(self._shunned)


def _within(times: dict[Contact, float], contact: Contact, now: float, span: float) -> bool:
    at = times.get(contact)
    return at is not None and now - at < span


def _append(times: dict[Contact, float], contact: Contact, now: float, most: int) -> None:
    times.pop(contact, None)
    if len(times) >= most:
        del times[next(iter(times))]
    times[contact] = now


def _drop_older(times: dict[Contact, float], since: float) -> None:
    for contact in [contact for contact, at in times.items() if at <= since]:
        del times[contact]
