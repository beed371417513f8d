"""The rules by which a node accepts contacts (interface 2.3: DHTNodeInfo; decision 0050).

There are two presets. :data:`ANYWHERE` accepts loopback, private and public addresses, each from
sources that can know them, so that one machine, a laboratory and the internet need the same
settings. :data:`PUBLIC_ONLY` is for a node that must not call private networks.

Invariants of :data:`ANYWHERE`: no message from another machine makes this node call loopback, and
none from the internet makes it call a private network.
"""

from __future__ import annotations

from dataclasses import dataclass

from meshnode.domain.kademlia.address import Scope, canonical, locate
from meshnode.domain.kademlia.contact import HIGHEST_PORT, Contact, NodeInfo
from meshnode.domain.kademlia.node_id import NodeId, parse_id
from meshnode.domain.kademlia.refusals import BadPort, ForeignScope, InwardAddress, OwnId


@dataclass(frozen=True, slots=True)
class ContactPolicy:
    """Rules for contacts. The shares keep the owner of one subnet from surrounding a node."""

    scopes: frozenset[Scope] = frozenset(Scope)
    """Scopes of the addresses that are accepted at all."""
    diverse: frozenset[Scope] = frozenset({Scope.PUBLIC})
    """Scopes to which the shares below apply. A private network is often a single subnet."""
    share_of_bucket: int = 2
    """Contacts of one subnet in a bucket."""
    share_of_table: int = 10
    """Contacts of one subnet in the routing table."""
    share_of_lookup: int = 10
    """Addresses of one subnet that one lookup calls."""

    def admit(self, info: NodeInfo, own_id: NodeId, source_ip: str | None = None) -> Contact:
        """The contact that ``info`` claims, as given by the node at ``source_ip``.

        ``source_ip`` is None if the operator gave it, or this node remembered it. Raises
        :class:`~meshnode.domain.kademlia.refusals.DhtRefusal`.
        """
        node_id = parse_id(info.node_id)

        # A node does not call itself.
        if node_id == own_id:
            raise OwnId

        # The HTTP port is at least 1, and leaves room for the gRPC port above it (interface 1).
        if not 1 <= info.port <= HIGHEST_PORT:
            raise BadPort

        # An address has a scope that the operator allows.
        scope = locate(info.ip).scope
        if scope not in self.scopes:
            raise ForeignScope

        # A source can only know addresses of its own scope or a wider one.
        if source_ip is not None and not visible_from(source_ip, info.ip):
            raise InwardAddress

        # Contacts are immutable, so a well-formed one can be returned as it is.
        return info if isinstance(info, Contact) else Contact(node_id, info.ip, info.port)

    def admit_sender(self, info: NodeInfo, own_id: NodeId, observed_ip: str) -> Contact:
        """The contact of a request's sender, whose socket is at ``observed_ip``.

        The address that ``info`` claims is ignored: a sender must not speak for another address,
        and a node bound to all interfaces does not know its own. Raises as :meth:`admit`.
        """
        here = canonical(observed_ip)
        return self.admit(Contact(parse_id(info.node_id), here, info.port), own_id)

    def subnet_in_question(self, contact: Contact) -> str | None:
        """The subnet whose share counts for this contact, or None if it is exempt."""
        place = locate(contact.ip)
        return place.subnet if place.scope in self.diverse else None


def visible_from(viewer_ip: str, ip: str) -> bool:
    """Whether a node at ``viewer_ip`` can know ``ip``: an address of its own scope or a wider one.

    The rule applies to the contacts that this node accepts and to those that it passes on.
    """
    return locate(ip).scope >= locate(viewer_ip).scope


def quota_group(contact: Contact) -> str:
    """The group whose quota the contact's stores use up (decision 0053).

    Ids and ports cost nothing, so on the internet the group is the subnet, in a private network the
    address. Processes on one machine trust each other, so there it is address and port.
    """
    place = locate(contact.ip)
    match place.scope:
        case Scope.PUBLIC:
            return place.subnet
        case Scope.PRIVATE:
            return contact.ip
        case Scope.LOOPBACK:
            return contact.address


def client_group(sender: Contact) -> str | None:
    """The quota group of an unverified sender; None if it may not store.

    Clients on this machine, such as scripts and tools, may store. All of them are one group.
    """
    return sender.ip if locate(sender.ip).scope is Scope.LOOPBACK else None


ANYWHERE = ContactPolicy()
PUBLIC_ONLY = ContactPolicy(scopes=frozenset({Scope.PUBLIC}))
