"""What goes into a lookup and what comes out of it (document, 4.3: DHTFindNode, DHTFindValue).

See ``lookup`` for how they are used.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum

from meshnode.domain.kademlia.bucket import K
from meshnode.domain.kademlia.contact import Contact

ALPHA = 3
CALLED_MAX = 8 * K
"""Some 25 calls suffice among honest nodes. The rest is for liars, and for records most of whose
holders have died."""
VALUE_ANSWERS = 3
"""Holders to hear before a value lookup is done: one alone could hide what the others hold."""


class Step(Enum):
    """What to send to a contact."""

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
    """The numbers of a lookup, as a value."""

    k: int = K
    alpha: int = ALPHA
    called: int = CALLED_MAX
    value_answers: int = VALUE_ANSWERS


LOOKUP_LIMITS = LookupLimits()


@dataclass(frozen=True, slots=True)
class LookupResult:
    """What a lookup found."""

    closest: tuple[Contact, ...]
    """Up to K nodes that answered, closest to the target first. For a value lookup that found
    values, those that it met on the way."""
    values: tuple[str, ...]
    """Values of the key, those that most holders gave first. Empty for FindNode."""
    complete: bool
    """False if the bound on calls ended the lookup before the frontier had answered."""
    hops: int
    """Nodes in a row that had to be asked to learn of the closest one found, or of the first
    holder: 1 if this node knew it, 0 if nobody was found."""
    messages: int
    """Queries sent, pings included."""
    refused: Counter[str]
    """How often each rule was broken, by the name of its class."""
