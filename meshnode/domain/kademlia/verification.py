"""Which addresses have proved to be the node that they are said to be (decisions/0051).

Terms: a contact is *asked* while a ping to it is out, *verified* once its address has answered with
its id, and *shunned* for a while after it has not.

============  ==================================  ============
state         event                               next state
============  ==================================  ============
unknown       may_ping, and room among the asked  asked
asked         answered with its id                verified
asked         answered with another id, failed    shunned
asked         nothing for ASKED_S                 unknown
verified      answered with its id                verified
verified      answered with another id, failed    shunned
verified      VERIFIED_S since the last answer    unknown
shunned       answered with its id                verified
shunned       SHUNNED_S since the failure         unknown
============  ==================================  ============

Invariants: a contact is in one state at a time; each state holds at most its bound, and where one
is full the oldest goes back to unknown (asked: the newcomer has to wait). So a stranger can make
this node ping a claimed address once in SHUNNED_S, or its own once in CALLER_SHUNNED_S, and have
ASKED_MAX pings out at once.
"""

from __future__ import annotations

from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.refusals import WrongResponder

VERIFIED_MAX = 1024
"""A full routing table of a large network holds some 300 contacts; a lookup meets 50 more."""
SHUNNED_MAX = 1024
ASKED_MAX = 32
"""As many as ten lookups have in flight."""

VERIFIED_S = 1800.0
"""Half a bucket's refresh time: a contact in use is heard of more often than that."""
SHUNNED_S = 60.0
CALLER_SHUNNED_S = 10.0
"""The same for one that calls: somebody is there, and may only have been too busy to answer."""
ASKED_S = 30.0
"""Longer than any deadline: only a ping whose caller was cancelled lasts until then."""


class Verifications:
    """What pings have shown. Times are seconds of a monotonic clock."""

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
        """Whether to ping a contact that a stranger has brought up; then it counts as asked.

        ``calls`` says that it has brought itself up, from its own address.
        """
        _drop_older(self._asked, now - ASKED_S)
        if contact in self._asked or len(self._asked) >= ASKED_MAX:
            return False
        span_s = CALLER_SHUNNED_S if calls else SHUNNED_S
        if self.is_verified(contact, now) or self.is_shunned(contact, now, span_s):
            return False
        self._asked[contact] = now
        return True

    def answered(self, contact: Contact, responder_id: bytes, now: float) -> None:
        """Record an answer of any kind. Raises WrongResponder, and shuns such a contact."""
        # An address is verified by an answer with the matching id only.
        if responder_id != contact.node_id:
            self.failed(contact, now)
            raise WrongResponder
        self._asked.pop(contact, None)
        self._shunned.pop(contact, None)
        _append(self._verified, contact, now, VERIFIED_MAX)

    def failed(self, contact: Contact, now: float) -> None:
        """Record that the contact did not answer, or not as itself."""
        self._asked.pop(contact, None)
        self._verified.pop(contact, None)
        _append(self._shunned, contact, now, SHUNNED_MAX)

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
