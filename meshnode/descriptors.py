"""The limit of open files and sockets, and its division among the listeners (decision 0124).

The system limits the open descriptors of each process. A listener that accepts connections up to
that limit leaves none for the ledger, the wallet and the connections to peers, which then fail with
EMFILE. So the node raises its soft limit to the hard one, and divides the result.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass

RESERVE = 128
"""For files of the ledger, the wallet, the model and the log; a node with one tracker uses 25."""
MIN_DESCRIPTORS = 256
"""With fewer, the node refuses to start, because nothing would be left for clients."""
MAX_HTTP, MAX_GRPC, MAX_PEERS = 900, 256, 512
"""HTTP: bodies of 1 MiB on all connections still fit in memory. gRPC: three connections from each
of eighty peers. Peers: a full roster, and as many addresses being tried."""
SHARE_HTTP, SHARE_GRPC = 0.5, 0.2
"""Shares of the descriptors beyond the reserve; the rest is for connections to peers."""


@dataclass(frozen=True, slots=True)
class DescriptorBudget:
    """The most connections at one time, by kind."""

    http: int
    """Accepted by the HTTP listener."""
    grpc: int
    """Accepted by the gRPC listener."""
    peers: int
    """Opened to peers."""


def share_out(limit: int) -> DescriptorBudget:
    """Divide ``limit`` descriptors among the kinds of connections. ValueError if it is too low."""
    if limit < MIN_DESCRIPTORS:
        raise ValueError(f"at least {MIN_DESCRIPTORS} are needed")
    left = limit - RESERVE
    http, grpc = int(left * SHARE_HTTP), int(left * SHARE_GRPC)
    return DescriptorBudget(
        http=min(http, MAX_HTTP), grpc=min(grpc, MAX_GRPC), peers=min(left - http - grpc, MAX_PEERS)
    )


def raise_limit() -> int:
    """Raise this process's soft limit to the hard one; returns the limit that now holds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            # Some systems report an unlimited hard limit, but refuse it as a soft limit.
            return finite(soft)
    return finite(hard)


def finite(limit: int) -> int:
    """``limit``, or a number above all maxima if there is no limit."""
    return 1 << 20 if limit == resource.RLIM_INFINITY else limit
