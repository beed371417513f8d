"""Paths over the peers that hold the layers that this node lacks (decisions 0036, 0134)."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import trio

from meshnode.domain.errors import LayersUnavailable
from meshnode.domain.reputation import Reputation, Standing, choose_trial
from meshnode.domain.routing import (
    SHORT_CUT_MS,
    Holder,
    choose_path,
    longest_run,
    missing_layers,
    saved_by_short_cut,
    spell_layers,
)

if TYPE_CHECKING:
    from meshnode.domain.peers import Peer

MAX_AHEAD = 8
"""Messages that a driver sends ahead at most, whatever a holder allows."""


@dataclass(frozen=True, slots=True)
class RemoteHop:
    """A hop of a path: layers ``first`` to ``last``, both included, at an address."""

    node_id: str
    host: str
    grpc_port: int
    first: int
    last: int
    mixed: bool = False
    """Whether the holder is of another numeric class than the driver."""
    messages: int = 0
    """Messages of a session that the holder lets a driver send ahead (decision 0230)."""

    @property
    def address(self) -> str:
        """``host:port`` of the gRPC interface, an IPv6 host in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.grpc_port}"

    @property
    def layers(self) -> int:
        """How many layers."""
        return self.last - self.first + 1


class LayerBook(Protocol):
    """Knows peers, and which layers they hold."""

    def holders(self, layer: int, model_hash: str = "") -> list[Peer]:
        """The peers that hold a layer of a model, the nearest first."""

    def get(self, node_id: str) -> Peer | None:
        """The peer with this id."""


class Routes:
    """Chooses paths by what this node itself has seen of each peer.

    Neither the load nor the speed that peers report is used: a report costs nothing, and is seconds
    old. What counts are this node's own sessions at a peer, and the times that its calls took.
    """

    def __init__(
        self,
        book: LayerBook,
        first: int,
        total: int,
        *,
        numeric_class: str | None = None,
        mixed: bool = True,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """Paths over layers ``first`` to ``total - 1``. ``draw`` gives numbers from 0 to 1.

        Holders of the driver's ``numeric_class`` come first (decision 0152); others are used if
        ``mixed`` allows it and those do not hold all layers. Without a class all are alike.
        """
        self.model_hash = ""
        """Of the model whose layers the paths lead over; empty for what this node serves."""
        self._numeric_class = numeric_class
        self._mixed = mixed
        self.first = first
        self.total = total
        self.reputation = Reputation()
        self._book = book
        self._draw = draw
        self._own: Counter[str] = Counter()

    def over(self, model_hash: str) -> Routes:
        """Paths over the holders of one model's weights, with what these routes know of nodes."""
        routes = copy.copy(self)
        routes.model_hash = model_hash
        return routes

    def choose(self, excluded: Collection[str] = ()) -> tuple[RemoteHop, ...] | None:
        """The best path without the ``excluded`` nodes; None if there is no path."""
        peers = self._peers()
        holders = self._holders(peers, trial=self._trial(peers))
        return self._path(peers, holders, excluded)

    def missing(self) -> tuple[int, ...]:
        """The layers that no peer holds which may be used."""
        peers = self._peers()
        holders = [
            holder
            for holder in self._holders(peers)
            if self._mixed or self._is_alike(peers[holder.node_id])
        ]
        return missing_layers(holders, self.first, self.total)

    def unavailable(self, excluded: Collection[str] = ()) -> LayersUnavailable:
        """The error that names the layers without a holder."""
        holders = self._holders(self._peers())
        missing = missing_layers(holders, self.first, self.total, excluded)
        if not missing and not self._mixed:
            return LayersUnavailable(
                "the layers' holders compute in other formats or on other devices than this node, "
                "and pipeline.mixed is false"
            )
        return LayersUnavailable(
            f"no reachable node holds layers {spell_layers(missing)}"
            if missing
            else "no path through the layers' holders"
        )

    def enter(self, path: Sequence[RemoteHop]) -> None:
        """A session begins on ``path``."""
        self._own.update(hop.node_id for hop in path)

    def leave(self, path: Sequence[RemoteHop]) -> None:
        """A session on ``path`` has ended."""
        self._own.subtract(hop.node_id for hop in path)
        self._own += Counter()

    def answered(self, path: Sequence[RemoteHop], took_ms: Sequence[float]) -> None:
        """All hops answered. ``took_ms`` has the time of each for one position, or nothing."""
        now = trio.current_time()
        for hop in path:
            self.reputation.of_called(hop.node_id).answered()
        for hop, hop_ms in zip(path, took_ms, strict=False):
            peer = self._book.get(hop.node_id)
            latency_ms = peer.latency_ms if peer is not None else 0.0
            layer_ms = max(0.0, hop_ms - latency_ms) / hop.layers
            self.reputation.of_called(hop.node_id).measured(layer_ms, now)

    def failed(self, path: Sequence[RemoteHop], place: int, *, full: bool = False) -> None:
        """The hop at ``place`` failed, or was ``full``.

        The hops before it reported the failure, which may be their own, so they are doubted.
        """
        now = trio.current_time()
        conduct = self.reputation.of_called(path[place].node_id)
        if full:
            conduct.was_full(now)
            return
        conduct.failed(now)
        self.doubt(path[:place])

    def doubt(self, hops: Sequence[RemoteHop]) -> None:
        """These hops reported a fault of a later one, which may be their own."""
        now = trio.current_time()
        for hop in hops:
            self.reputation.of_called(hop.node_id).rumoured(now)

    def refused(self, node_id: str) -> None:
        """A holder refused as invalid what another one accepted."""
        self.reputation.of_called(node_id).failed(trio.current_time())

    def worst_standing(self, hops: Sequence[RemoteHop]) -> Standing:
        """The standing of the holder among these that is trusted least."""
        now = trio.current_time()
        standings = (self.reputation.of(hop.node_id).standing(now) for hop in hops)
        return max(standings, default=Standing.PROVEN)

    def lied(self, node_ids: Sequence[str]) -> None:
        """A result is false that one of these gave. One alone has the longest backoff."""
        now = trio.current_time()
        for node_id in node_ids:
            conduct = self.reputation.of_called(node_id)
            if len(node_ids) == 1:
                conduct.lied(now)
            else:
                conduct.failed(now)

    def short_cut_pays(self, path: Sequence[RemoteHop]) -> bool:
        """Whether the last holder's answer had better come straight than along the calls."""
        peers = self._peers()
        return (
            saved_by_short_cut(
                [peers[hop.node_id].latency_ms for hop in path if hop.node_id in peers]
            )
            >= SHORT_CUT_MS
        )

    def expected_ms(self, path: Sequence[RemoteHop]) -> float | None:
        """The time that one more session's position is expected to take on ``path``, load included.

        That is what paths are chosen by. None unless every holder has been measured.
        """
        peers, now = self._peers(), trio.current_time()
        found = {holder.node_id: holder for holder in self._holders(peers)}
        if any(self.reputation.of(hop.node_id).expected_ms(now) is None for hop in path):
            return None
        return sum(found[hop.node_id].loaded_ms(hop.layers) for hop in path if hop.node_id in found)

    def usual_ms(self, path: Sequence[RemoteHop]) -> float | None:
        """What a position would take on ``path`` if each holder were as quick as is typical.

        None if no holder has been measured yet.
        """
        peers = self._peers()
        typical = self.reputation.typical_layer_ms(peers, trio.current_time())
        if typical is None:
            return None
        found = {holder.node_id: holder for holder in self._holders(peers)}
        return sum(
            Holder("", 0, 0, found[hop.node_id].latency_ms, 0, typical).expected_ms(hop.layers)
            for hop in path
            if hop.node_id in found
        )

    def alternative_ms(self, excluded: Collection[str], unknown_ms: float) -> float | None:
        """The expected time of a position on the best path without these nodes.

        A holder that was never measured counts with ``unknown_ms``. Own sessions on that path count
        as if they took turns with this one. None if there is no path, or only one over distrusted
        holders.
        """
        peers = self._peers()
        holders = self._holders(peers)
        path = self._path(peers, holders, excluded)
        if path is None:
            return None
        found = {holder.node_id: holder for holder in holders}
        hops = [(hop, found[hop.node_id]) for hop in path]
        if any(holder.standing is Standing.DISTRUSTED for _, holder in hops):
            return None
        return sum(
            (1 + holder.load)
            * (
                unknown_ms
                if self.reputation.of(hop.node_id).layer_ms is None
                else holder.expected_ms(hop.layers)
            )
            for hop, holder in hops
        )

    def _path(
        self, peers: dict[str, Peer], holders: list[Holder], excluded: Collection[str]
    ) -> tuple[RemoteHop, ...] | None:
        alike = [holder for holder in holders if self._is_alike(peers[holder.node_id])]
        path = choose_path(alike, self.first, self.total, excluded)
        if path is None and self._mixed:
            path = choose_path(holders, self.first, self.total, excluded)
        if path is None:
            return None
        return tuple(
            RemoteHop(
                hop.node_id,
                peers[hop.node_id].host,
                peers[hop.node_id].grpc_port,
                hop.first,
                hop.last,
                mixed=not self._is_alike(peers[hop.node_id]),
                messages=_messages(peers[hop.node_id]),
            )
            for hop in path
        )

    def _is_alike(self, peer: Peer) -> bool:
        return self._numeric_class in (None, peer.numeric_class)

    def _peers(self) -> dict[str, Peer]:
        layers = range(self.first, self.total)
        holders = (self._book.holders(layer, self.model_hash) for layer in layers)
        return {peer.node_id: peer for some in holders for peer in some}

    def _trial(self, peers: dict[str, Peer]) -> str | None:
        """The newcomer that may take this session before proven holders, if there are any."""
        now = trio.current_time()
        conducts = {node_id: self.reputation.of(node_id) for node_id in peers}
        standings = {node_id: conduct.standing(now) for node_id, conduct in conducts.items()}
        if Standing.PROVEN not in standings.values():
            return None
        newcomers = [each for each, standing in standings.items() if standing is Standing.NEWCOMER]
        return choose_trial({each: conducts[each].answers for each in newcomers}, self._draw())

    def _holders(self, peers: dict[str, Peer], trial: str | None = None) -> list[Holder]:
        now = trio.current_time()
        typical = self.reputation.typical_layer_ms(peers, now) or 0.0
        holders = []
        for peer in peers.values():
            run = longest_run(peer.layers)
            if not run:
                continue
            conduct = self.reputation.of(peer.node_id)
            expected = conduct.expected_ms(now)
            tried = peer.node_id == trial
            holders.append(
                Holder(
                    peer.node_id,
                    run.start,
                    run.stop - 1,
                    peer.latency_ms,
                    self._own[peer.node_id],
                    # A trial is given to whoever may be the quickest, as far as is known.
                    expected if expected is not None else 0.0 if tried else typical,
                    Standing.PROVEN if tried else conduct.standing(now),
                )
            )
        return holders


def _messages(peer: Peer) -> int:
    """The messages that a peer lets a driver send ahead; 0 if it has not said so."""
    return 0 if peer.capacity is None else min(peer.capacity.session_messages, MAX_AHEAD)
