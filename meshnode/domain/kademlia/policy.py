"""Which contacts a node accepts, as a value (document, 2.3: DHTNodeInfo; decisions/0050).

Two presets: :data:`ANYWHERE` accepts loopback, private and public addresses, each from those who
can know them, so that one machine, a laboratory and the internet need no different settings;
:data:`PUBLIC_ONLY` is for a node that has no business in any private network.

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
    """Rules for contacts. The shares keep one subnet's owner from surrounding a node."""

    scopes: frozenset[Scope] = frozenset(Scope)
    """Kinds of addresses that are accepted at all."""
    diverse: frozenset[Scope] = frozenset({Scope.PUBLIC})
    """Kinds to which the shares below apply; a private network is often one subnet."""
    share_of_bucket: int = 2
    """Contacts of one subnet in a bucket."""
    share_of_table: int = 10
    """Contacts of one subnet in the routing table."""
    share_of_lookup: int = 10
    """Addresses of one subnet that one lookup calls."""

    def admit(self, info: NodeInfo, own_id: NodeId, teller_ip: str | None = None) -> Contact:
        """The contact that ``info`` claims, told by the node at ``teller_ip``.

        None is for what this node's own operator or memory says. Raises a
        :class:`~meshnode.domain.kademlia.refusals.Refused`.
        """
        node_id = parse_id(info.node_id)

        # A node does not call itself.
        if node_id == own_id:
            raise OwnId

        # The HTTP port is at least 1, and leaves room for the gRPC port above it (document, 1).
        if not 1 <= info.port <= HIGHEST_PORT:
            raise BadPort

        # An address is of a kind that the operator allows.
        scope = locate(info.ip).scope
        if scope not in self.scopes:
            raise ForeignScope

        # Nobody tells of an address farther in than their own.
        if teller_ip is not None and not visible_from(teller_ip, info.ip):
            raise InwardAddress

        # Contacts are values: one that is already well-formed serves as it is.
        return info if isinstance(info, Contact) else Contact(node_id, info.ip, info.port)

    def admit_sender(self, info: NodeInfo, own_id: NodeId, observed_ip: str) -> Contact:
        """The contact of a request's sender, whose socket is at ``observed_ip``.

        The address that ``info`` claims is not read: nobody speaks for another address, and a node
        bound to all interfaces does not know its own. Raises as :meth:`admit`.
        """
        here = canonical(observed_ip)
        return self.admit(Contact(parse_id(info.node_id), here, info.port), own_id)

    def subnet_in_question(self, contact: Contact) -> str | None:
        """The subnet whose share counts for this contact, or None if it is exempt."""
        place = locate(contact.ip)
        return place.subnet if place.scope in self.diverse else None


def visible_from(viewer_ip: str, ip: str) -> bool:
    """Whether one at ``viewer_ip`` can know and use ``ip``: it is not farther in than the viewer.

    The same rule holds for what is believed and for what is told.
    """
    return locate(ip).scope >= locate(viewer_ip).scope


def quota_group(contact: Contact) -> str:
    """In whose name the contact's stores are counted (decisions/0053).

    Ids and ports cost nothing, so on the internet it is the subnet, in a private network the
    address. Processes of one machine trust each other: there it is address and port.
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
    """The same for a sender that is no node, as nobody answers for it; None if it may not store.

    Clients of one machine, such as scripts and tools, may, and all of them together are one group.
    """
    return sender.ip if locate(sender.ip).scope is Scope.LOOPBACK else None


ANYWHERE = ContactPolicy()
PUBLIC_ONLY = ContactPolicy(scopes=frozenset({Scope.PUBLIC}))
