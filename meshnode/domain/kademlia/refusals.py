"""The rules of the DHT, one exception class each (interface 2.3, 4.3 and 7.3).

There are two families, so that the edges' tables need one row each: a message refused with
:class:`DhtRefusal` can never succeed as it is (INVALID_ARGUMENT); one refused with :class:`Flooded`
may succeed later, or at another node (RESOURCE_EXHAUSTED). A lookup raises none of them: it leaves
a refused claim out and counts it under the name of its class.
"""

from __future__ import annotations

from typing import ClassVar

from meshnode.domain.errors import InvalidRequest, RateLimited


class DhtRefusal(InvalidRequest):
    """Base class of refusals that name a field of the message and the rule that it breaks."""

    of_field: ClassVar[str]
    rule: ClassVar[str]

    def __init__(self) -> None:
        super().__init__(self.of_field, self.rule)


class BadIdLength(DhtRefusal):
    """A node id or key that is not 20 bytes long."""

    of_field = "node_id"
    rule = "an id has 20 bytes"


class OwnId(DhtRefusal):
    """A message of another node that claims this node's id."""

    of_field = "node_id"
    rule = "this is the id of the receiving node"


class NotAnAddress(DhtRefusal):
    """Not an IP address in canonical spelling: a host name, ``127.1``, an address with a zone."""

    of_field = "ip"
    rule = "must be an IPv4 or IPv6 address in its canonical form"


class UnusableAddress(DhtRefusal):
    """An address that no single node can have: unspecified, multicast, link-local, embedded."""

    of_field = "ip"
    rule = "no node can be called at this address"


class ForeignScope(DhtRefusal):
    """An address with a scope that this node's policy excludes."""

    of_field = "ip"
    rule = "addresses of this kind are not accepted here"


class InwardAddress(DhtRefusal):
    """A private or loopback address from a source that is farther out."""

    of_field = "ip"
    rule = "the sender cannot know this address: it is inside another network"


class BadPort(DhtRefusal):
    """A port at which no node can listen."""

    of_field = "port"
    rule = "an HTTP port is 1 to 64535, because its gRPC port is 1000 higher"


class CrowdedSubnet(DhtRefusal):
    """One subnet has its full share of a bucket, of the table or of a lookup."""

    of_field = "ip"
    rule = "enough nodes of this subnet are known already"


class WrongResponder(DhtRefusal):
    """The node that answered is not the one that was called."""

    of_field = "responder"
    rule = "another node answers at this address"


class UnaskedAnswer(DhtRefusal):
    """An answer to a query that is not in flight: a second answer, or a late one."""

    of_field = "responder"
    rule = "nothing was asked"


class TooManyContacts(DhtRefusal):
    """More than K contacts in one answer; those beyond K are ignored."""

    of_field = "nodes"
    rule = "an answer holds at most K contacts"


class BadValue(DhtRefusal):
    """A record's value that is empty, too long, or not one line of printable text."""

    of_field = "value"
    rule = "a value is one line of printable text within the size limit"


class NotResponsible(DhtRefusal):
    """A record whose key is too far from this node: it knows many nodes nearer to the key."""

    of_field = "key"
    rule = "many nodes are nearer to this key"


class UnverifiedSender(DhtRefusal):
    """A record from a sender that has not answered a ping at the address the request came from."""

    of_field = "sender"
    rule = "the sender has not answered a ping yet"


class Flooded(RateLimited):
    """Base class of refusals of well-formed messages that exceed a quota."""

    rule: ClassVar[str]

    def __init__(self, retry_after: int) -> None:
        super().__init__(retry_after, self.rule)


class StoringTooFast(Flooded):
    """A sender stores more often than its rate allows."""

    rule = "too many records from this sender in a short time"


class SenderFull(Flooded):
    """A sender has used up its quota of values or bytes."""

    rule = "too many records from this sender"


class KeyFull(Flooded):
    """A key has the maximal number of values, and none of them has to give way."""

    rule = "too many values under this key"


class StoreFull(Flooded):
    """The store is full, and nothing in it has to give way."""

    rule = "the record store is full"
