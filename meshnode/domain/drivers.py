"""Which driver a request is passed on to (interface 1 and 4.1; decision 0218).

Terms: a *forwarding node* does not hold the first layer; it passes requests for text on to a
*driver*, a peer that does. The *load* of a driver is the number of requests that this node has
there.

Invariants: the choice depends on what this node has seen itself, and not on the order of the
arguments; a standing only orders drivers, so that a distrusted one still serves when there is no
other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from meshnode.domain.reputation import Standing


@dataclass(frozen=True, slots=True)
class KnownDriver:
    """A peer that holds the first layer of this node's model."""

    node_id: str
    host: str
    grpc_port: int
    layers: tuple[int, ...]
    """Those that it holds itself."""
    latency_ms: float = 0.0
    load: int = 0
    standing: Standing = Standing.PROVEN
    current: bool = True
    """Whether it computes with the weights that this node serves."""

    @property
    def rank(self) -> tuple[bool, bool, int, float, str]:
        """Sort key, the best first.

        Load comes before latency, since a stream pays the latency once and the load with each
        token.
        """
        distrusted = self.standing is Standing.DISTRUSTED
        return distrusted, not self.current, self.load, self.latency_ms, self.node_id


def choose_driver(
    drivers: Iterable[KnownDriver], excluded: Collection[str] = ()
) -> KnownDriver | None:
    """The best driver without the ``excluded`` ids; None if there is no other."""
    usable = (driver for driver in drivers if driver.node_id not in excluded)
    return min(usable, key=lambda driver: driver.rank, default=None)
