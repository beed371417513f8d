"""Queries, limits and results of lookups (interface 4.3: DHTFindNode, DHTFindValue).

``lookup`` uses them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum

from meshnode.domain.kademlia.bucket import K
from meshnode.domain.kademlia.contact import Contact

ALPHA = 3
MAX_CALLED = 8 * K
"""The most addresses that a lookup calls. Among honest nodes about 25 suffice; the rest allows for
liars, and for records most of whose holders are dead."""
VALUE_ANSWERS = 3
"""Holders that must answer before a value lookup is done: a single one could hide values."""


class Step(Enum):
    """The kind of message to send to a contact."""

    PING = "ping"
    """DHTPing: report ``on_pong`` or ``on_failure``."""
    ASK = "ask"
    """DHTFindNode or DHTFindValue for the target: report ``on_response`` or ``on_failure``."""


@dataclass(frozen=True, slots=True)
class Query:
    """One message to send. It is in flight until its outcome is reported."""

    contact: Contact
    step: Step


@dataclass(frozen=True, slots=True)
class LookupLimits:
    """The limits of a lookup."""

    k: int = K
    alpha: int = ALPHA
    called: int = MAX_CALLED
    value_answers: int = VALUE_ANSWERS


LOOKUP_LIMITS = LookupLimits()


@dataclass(frozen=True, slots=True)
class LookupResult:
    """The result of a lookup."""

    closest: tuple[Contact, ...]
    """Up to K nodes that answered, closest to the target first. For a value lookup that found
    values, the nodes that it met on the way."""
    values: tuple[str, ...]
    """The values of the key, sorted by how many holders gave them. Empty for FindNode."""
    complete: bool
    """False if the bound on calls ended the lookup before the frontier had answered."""
    hops: int
    """The length of the chain of queries that led to the closest node found, or to the first
    holder: 1 if this node knew it, 0 if none was found."""
    messages: int
    """Queries sent, pings included."""
    refused: Counter[str]
    """How often each rule was broken, by the name of its exception class."""
