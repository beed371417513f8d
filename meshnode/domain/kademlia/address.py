"""Where an IP address leads, and whose neighbours share it (decisions/0050).

Terms: the *scope* of an address says from where it can be reached: LOOPBACK from one machine,
PRIVATE from one network, PUBLIC from everywhere; the order counts outwards. The *subnet* is what
one party is taken to hold at little cost: a /24 of IPv4, a /64 of IPv6.

Invariant: a node has one spelling. What is not the canonical text of an address is not an address,
and an IPv4 address wrapped in an IPv6 one (mapped, 6to4, Teredo, NAT64) is unusable rather than
judged by its wrapping, behind which a private address would pass for a public one.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

from meshnode.domain.kademlia.refusals import NotAnAddress, UnusableAddress

LONGEST_TEXT = len("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
PLACES_REMEMBERED = 16_384
"""The answers of a large network repeat the same few thousand addresses; an entry is ~300 bytes."""

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
    """What matters about an address."""

    scope: Scope
    subnet: str
    """Compared for equality only."""


@lru_cache(maxsize=PLACES_REMEMBERED)
def locate(ip: str) -> Place:
    """Scope and subnet of ``ip``. Raises NotAnAddress or UnusableAddress."""
    # An address is a number; names are never resolved.
    if len(ip) > LONGEST_TEXT:
        raise NotAnAddress
    try:
        address = ip_address(ip)
    except ValueError:
        raise NotAnAddress from None

    # An IPv4 address is not hidden inside an IPv6 one.
    if isinstance(address, IPv6Address) and _wraps_ipv4(address):
        raise UnusableAddress

    # An address has one spelling, and no zone, which means nothing on another machine.
    if str(address) != ip or "%" in ip:
        raise NotAnAddress

    return Place(_scope(address), _subnet(address))


def canonical(ip: str) -> str:
    """The one spelling of an address that the operating system reported, such as a socket's peer.

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
    # A contact is one node that can be called: not unspecified, multicast, broadcast, link-local
    # (where the clouds keep their metadata service), reserved or set aside for documentation.
    if not address.is_global or address.is_multicast or address.is_reserved:
        raise UnusableAddress
    return Scope.PUBLIC


def _subnet(address: IPv4Address | IPv6Address) -> str:
    if isinstance(address, IPv4Address):
        return address.exploded.rpartition(".")[0]
    return address.exploded[: len("ffff:ffff:ffff:ffff")]
