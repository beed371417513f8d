"""What the DHT refuses, one class a rule (document, 2.3, 4.3 and 7.3).

Two families, so that the edges' tables need no row for each: a :class:`Refused` message can never
succeed as it stands (INVALID_ARGUMENT), a :class:`Flooded` one may succeed later, or elsewhere
(RESOURCE_EXHAUSTED). Inside a lookup nothing is raised: a refused claim is left out and counted
under its class's name.
"""

from __future__ import annotations

from typing import ClassVar

from meshnode.domain.errors import InvalidRequest, RateLimited


class Refused(InvalidRequest):
    """Base of the refusals that name a field of the message and the rule that it breaks."""

    of_field: ClassVar[str]
    rule: ClassVar[str]

    def __init__(self) -> None:
        super().__init__(self.of_field, self.rule)


class BadIdLength(Refused):
    """A node id or key of another length than 20 bytes."""

    of_field = "node_id"
    rule = "an id has 20 bytes"


class OwnId(Refused):
    """Somebody else's message with this node's own id in it."""

    of_field = "node_id"
    rule = "this is the id of the node addressed"


class NotAnAddress(Refused):
    """Not an IP address in its one canonical spelling: a host name, ``127.1``, a zone."""

    of_field = "ip"
    rule = "an IPv4 or IPv6 address is needed, in its canonical form"


class UnusableAddress(Refused):
    """An address at which no single node can be: unspecified, multicast, link-local, embedded."""

    of_field = "ip"
    rule = "no node can be called at this address"


class ForeignScope(Refused):
    """An address of a scope that this node's policy leaves out."""

    of_field = "ip"
    rule = "addresses of this kind are not accepted here"


class InwardAddress(Refused):
    """A private or loopback address, told by somebody who is farther out than that."""

    of_field = "ip"
    rule = "the teller cannot know this address: it is inside another network"


class BadPort(Refused):
    """A port at which no node can listen."""

    of_field = "port"
    rule = "an HTTP port is 1 to 64535, for its gRPC port is 1000 higher"


class CrowdedSubnet(Refused):
    """One subnet has its full share of a bucket, of the table or of a lookup."""

    of_field = "ip"
    rule = "enough nodes of this subnet are known already"


class WrongResponder(Refused):
    """The node that answered is not the one that was called."""

    of_field = "responder"
    rule = "another node answers at this address"


class UnaskedAnswer(Refused):
    """An answer to a query that is not in flight: a second one, or one after the end."""

    of_field = "responder"
    rule = "nothing was asked"


class TooManyContacts(Refused):
    """More than K contacts in one answer; those beyond K are not looked at."""

    of_field = "nodes"
    rule = "an answer holds at most K contacts"


class BadValue(Refused):
    """A record's value that is empty, too long, or not one line of printable text."""

    of_field = "value"
    rule = "a value is one line of printable text within the size limit"


class NotResponsible(Refused):
    """A record whose key is none of this node's business: it knows many nodes nearer to it."""

    of_field = "key"
    rule = "many nodes are nearer to this key"


class UnverifiedSender(Refused):
    """A record from a sender that has not answered a ping at the address it speaks from."""

    of_field = "sender"
    rule = "the sender has not answered a ping yet"


class Flooded(RateLimited):
    """Base of the refusals of what is well-formed but too much."""

    rule: ClassVar[str]

    def __init__(self, retry_after: int) -> None:
        super().__init__(retry_after, self.rule)


class StoringTooFast(Flooded):
    """A sender stores more often than its allowance."""

    rule = "too many records from this sender in a short time"


class SenderFull(Flooded):
    """A sender has its full number of values or bytes here."""

    rule = "too many records from this sender"


class KeyFull(Flooded):
    """A key has its full number of values, and none of them has to give way."""

    rule = "too many values under this key"


class StoreFull(Flooded):
    """The store is full, and nothing in it has to give way."""

    rule = "the record store is full"
