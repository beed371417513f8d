"""Whose request it is that a proxy passed on (decision 0171).

Terms: a proxy is *trusted* if its address is in the setting ``trusted_proxies``. Each proxy appends
the address that it was called from to ``X-Forwarded-For`` or ``Forwarded`` (RFC 7239), so only what
trusted ones have appended is believed: the last address that is not theirs is the client's.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

MAX_HOPS = 32
"""Proxies that are looked through."""
_FOR = re.compile(r'(?:^|;)\s*for\s*=\s*("[^"]*"|[^;,\s]+)', re.IGNORECASE)


class TrustedProxies:
    """The addresses whose word about a client's address is believed."""

    def __init__(self, text: str) -> None:
        """``text`` has addresses and networks, with commas in between. Raises ValueError."""
        parts = (part.strip() for part in text.split(","))
        self._networks: tuple[Network, ...] = tuple(
            ipaddress.ip_network(part) for part in parts if part
        )
        self.includes = lru_cache(4096)(self._includes)
        """Whether an address is a trusted proxy's."""

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._networks)

    def _includes(self, ip: str) -> bool:
        address = _address(ip)
        return address is not None and any(address in network for network in self._networks)

    def client(self, ip: str, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """The address of the client of a request that came from ``ip``.

        A proxy that says nothing, or nothing that can be read, is the client itself.
        """
        if not self._networks or not self.includes(ip):
            return ip
        hops = _hops(headers)
        for hop in reversed(hops[-MAX_HOPS:]):
            address = _address(hop)
            if address is None:
                # Such as "unknown", or a name that hides the client.
                return ip
            ip = str(address)
            if not self.includes(ip):
                return ip
        return ip


def _hops(headers: Iterable[tuple[bytes, bytes]]) -> Sequence[str]:
    """The addresses that a request's headers name, the client's first."""
    standard: list[str] = []
    usual: list[str] = []
    for name, value in headers:
        lowered = name.lower()
        text = value.decode("latin-1")
        if lowered == b"forwarded":
            elements = [_FOR.search(element) for element in text.split(",")]
            standard += [found[1].strip('"') if found else "" for found in elements]
        elif lowered == b"x-forwarded-for":
            usual += [part.strip() for part in text.split(",")]
    return standard or usual


def _address(text: str) -> Address | None:
    """An address, perhaps with brackets and a port. An IPv4 address in IPv6 is the former."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


@dataclass(frozen=True, slots=True)
class Networks:
    """Accepts addresses and networks with commas in between, as a setting."""

    def __call__(self, value: Any) -> str | None:
        """Why the value is refused; None if it is not."""
        try:
            TrustedProxies(value)
        except ValueError as error:
            return f"must be addresses and networks with commas in between: {error}"
        return None

    def keywords(self) -> dict[str, Any]:
        """The rule in JSON Schema, which cannot state it."""
        return {}
