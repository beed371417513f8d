"""The drivers that a forwarding node knows, and what it has seen of each (decision 0218)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio

from meshnode.domain.drivers import KnownDriver, choose_driver
from meshnode.domain.reputation import Reputation

if TYPE_CHECKING:
    from meshnode.services.peers import PeerBook


class Drivers:
    """Chooses drivers by what this node has seen itself, as paths are chosen (decision 0134)."""

    def __init__(self, book: PeerBook) -> None:
        self._book = book
        self._reputation = Reputation()
        self._load: Counter[str] = Counter()

    def choose(self, excluded: Collection[str] = ()) -> KnownDriver | None:
        """The best driver without the ``excluded`` ids; None if there is no other."""
        return choose_driver(self._known(), excluded)

    @contextmanager
    def asked(self, driver: KnownDriver) -> Iterator[None]:
        """A request is there for the time of this block."""
        self._load[driver.node_id] += 1
        try:
            yield
        finally:
            self._load[driver.node_id] -= 1
            self._load += Counter()

    def answered(self, node_id: str) -> None:
        """It has answered a request to the end."""
        self._reputation.of_called(node_id).answered()

    def failed(self, node_id: str, *, suspect: bool) -> None:
        """It broke off, or answered what it may not; ``suspect`` if it may be gone."""
        self._reputation.of_called(node_id).failed(trio.current_time())
        if suspect:
            self._book.suspect(node_id)

    def was_full(self, node_id: str) -> None:
        """It could not take a request."""
        self._reputation.of_called(node_id).was_full(trio.current_time())

    def _known(self) -> Iterator[KnownDriver]:
        own, now = self._book.own, trio.current_time()
        for peer in self._book.peers():
            # One whose weights are another version of the same model drives too: the answer names
            # the weights that it was computed with.
            if peer.total_layers != own.total_layers or peer.lineage != own.lineage:
                continue
            if 0 in peer.layers:
                yield KnownDriver(
                    peer.node_id,
                    peer.host,
                    peer.grpc_port,
                    peer.layers,
                    peer.latency_ms,
                    self._load[peer.node_id],
                    self._reputation.of(peer.node_id).standing(now),
                    peer.computes(own.model_hash),
                )
