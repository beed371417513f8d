"""The scope and the subnet of an IP address (decision 0050).

Terms: the *scope* of an address is the set of places that can reach it: LOOPBACK one machine,
PRIVATE one network, PUBLIC the internet. A greater scope is *farther out*, a smaller one *farther
in*. The *subnet* is a range of addresses that one party can own at little cost: a /24 of IPv4, a
/64 of IPv6.

Invariant: every address has one spelling. Text that is not canonical is refused. An IPv4 address
embedded in an IPv6 one (mapped, 6to4, Teredo, NAT64) is unusable: otherwise a private address could
pass for a public one.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

from meshnode.domain.kademlia.refusals import DhtRefusal, NotAnAddress, UnusableAddress

MAX_TEXT_CHARS = len("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
MAX_CACHED = 16_384
"""The answers of a large network repeat a few thousand addresses. An entry takes about 300
bytes."""

_PRIVATE = tuple(
    ip_network(text)
    for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
)
_NAT64 = IPv6Network("64:ff9b::/96")


class Scope(IntEnum):
    """From where an address can be reached; greater is farther out."""

    LOOPBACK = 0
    PRIVATE = 1
    PUBLIC = 2


class Place(NamedTuple):
    """Scope and subnet of an address."""

    scope: Scope
    subnet: str
    """Compared for equality only."""


@lru_cache(maxsize=MAX_CACHED)
def locate(ip: str) -> Place:
    """Scope and subnet of ``ip``. Raises NotAnAddress or UnusableAddress."""
    # Only numeric addresses are accepted; names are never resolved.
    if len(ip) > MAX_TEXT_CHARS:
        raise NotAnAddress
    try:
        address = ip_address(ip)
    except ValueError:
        raise NotAnAddress from None

    # No IPv4 address is embedded in an IPv6 one.
    if isinstance(address, IPv6Address) and _wraps_ipv4(address):
        raise UnusableAddress

    # An address has its canonical spelling, and no zone, which is meaningless to other machines.
    if str(address) != ip or "%" in ip:
        raise NotAnAddress

    return Place(_scope(address), _subnet(address))


def source_for(bound: str, peer: str) -> str | None:
    """From which own address to call ``peer``, so that it sees the one where this node listens.

    None leaves it to the operating system: where the node is ``bound`` to all addresses or a name,
    and where the peer is of another scope, which the bound address may not reach.
    """
    try:
        scope = locate(bound).scope
        same = scope is locate(peer).scope and (":" in bound) is (":" in peer)
    except DhtRefusal:
        return None
    return bound if same else None


def canonical(ip: str) -> str:
    """The canonical spelling of an address from the operating system, such as a socket's peer.

    A dual-stack socket reports IPv4 peers as mapped IPv6 addresses. Raises NotAnAddress.
    """
    try:
        address = ip_address(ip.partition("%")[0])
    except ValueError:
        raise NotAnAddress from None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def _wraps_ipv4(address: IPv6Address) -> bool:
    return (
        address.ipv4_mapped is not None
        or address.sixtofour is not None
        or address.teredo is not None
        or address in _NAT64
    )


def _scope(address: IPv4Address | IPv6Address) -> Scope:
    if address.is_loopback:
        return Scope.LOOPBACK
    if any(address in network for network in _PRIVATE):
        return Scope.PRIVATE
    # A contact is a single node that can be called, so its address is not unspecified, multicast,
    # broadcast, reserved, set aside for documentation, or link-local, where cloud providers keep
    # their metadata service.
    if not address.is_global or address.is_multicast or address.is_reserved:
        raise UnusableAddress
    return Scope.PUBLIC


def _subnet(address: IPv4Address | IPv6Address) -> str:
    if isinstance(address, IPv4Address):
        return address.exploded.rpartition(".")[0]
    return address.exploded[: len("ffff:ffff:ffff:ffff")]
