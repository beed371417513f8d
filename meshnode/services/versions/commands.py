"""What a driver asks of the holders of its pipeline about serving (decisions 0246, 0247).

Terms: *kin* are nodes with layers of the model that this node was started with; a *hop* is one of
them that holds some of the layers, other drivers included.

Invariant: a holder is told to keep what any driver computes with that this node knows of, since
another driver may not have said so itself yet. Drivers are not: two would have one another keep
weights that neither needs.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from meshnode.domain.errors import MeshnodeError
from meshnode.domain.routing import longest_run
from meshnode.domain.training.claims import LEASE_S
from meshnode.domain.training.position import PipelineVersion
from meshnode.services.pipeline.routes import RemoteHop
from meshnode.services.versions.holder import LOADING, MAX_NAMED, LayerServing
from meshnode.services.versions.layer_store import LayerFiles
from meshnode.services.wakeup import Wakeup
from meshnode.wire import node_pb2 as pb

if TYPE_CHECKING:
    from meshnode.domain.peers import Peer

log = logging.getLogger(__name__)

CLAIM_S = LEASE_S / 4
"""How often a holder is told what it knows, so that this driver's claim does not end there."""


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest version that the pipeline has kept."""

    version: PipelineVersion
    loss: float | None
    """Its held-out loss; None if it was not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineDependencies:
    """What the driver depends on."""

    own: LayerServing
    origin: LayerFiles
    tied: bool
    """Whether the model's head is tied to its embedding."""
    node_id: str
    trains: Callable[[], bool]
    """Whether training is enabled here."""
    layers: range
    """Those that other nodes hold."""
    kin: Callable[[int], Collection[Peer]]
    """The peers with a layer, whatever weights of this model they serve."""
    look_again: Callable[[str], None]
    """Asks a peer what it serves now."""
    covered: Callable[[str], bool]
    """Whether there is a path over the holders of weights, by their model hash."""
    command: Callable[[RemoteHop, pb.LayerCommand], Awaitable[pb.LayerAnswer]]
    newest: Callable[[], Newest | None]
    loss_of: Callable[[LayerFiles], float | None]
    """A held-out loss that was measured since the start."""
    news: Wakeup
    """Set when ``newest`` may give something else."""
    freed: Wakeup
    """Set when weights were freed here."""


class HolderCommands:
    """The holders, and what they have said."""

    def __init__(self, needs: PipelineDependencies) -> None:
        """Nobody was told anything."""
        self._needs = needs
        self._said: dict[str, str] = {}
        """What each peer said last, so that it is logged once."""
        self._claimed: dict[str, tuple[float, set[str]]] = {}
        """When each peer was told last what to serve, and the hashes that were named."""

    @property
    def others(self) -> list[tuple[Peer, RemoteHop]]:
        """The kin that hold some of the layers, those with the first ones first."""
        found: dict[str, tuple[Peer, RemoteHop]] = {}
        for layer in range(self._needs.layers.stop):
            for peer in self._needs.kin(layer):
                run = longest_run(peer.layers)
                if is_part(peer) and run:
                    place = peer.host, peer.grpc_port, run.start, run.stop - 1
                    found[peer.node_id] = peer, RemoteHop(peer.node_id, *place)
        return sorted(found.values(), key=lambda one: one[1].first)

    @property
    def hops(self) -> list[RemoteHop]:
        """The way to each of them."""
        return [hop for _, hop in self.others]

    @property
    def drivers(self) -> list[Peer]:
        """Those that drive."""
        return [peer for peer in self._needs.kin(0) if is_part(peer)]

    @property
    def loading(self) -> bool:
        """Whether some of them load weights."""
        return any(self._said.get(hop.node_id) == LOADING for hop in self.hops)

    def sources(self, model_hash: str) -> list[str]:
        """The nodes that a holder may ask for weights that it lacks."""
        peers = {peer.node_id: peer for peer, _ in self.others}
        return [self._needs.node_id, *(n for n, p in peers.items() if p.computes(model_hash))]

    def settled(self, peer: Peer, served: LayerFiles, needed: set[str]) -> bool:
        """Whether a peer serves what it should, and knows so; a driver may be further.

        ``needed`` are the hashes of what this driver's generations need beside ``served``.
        """
        claimed_at, claim = self._claimed.get(peer.node_id, (-math.inf, set()))
        claimed = claim == {served.model_hash, *needed}
        # Nobody obeys a node that does not train, so it asks for what a holder lacks alone.
        if self._needs.trains() and not (claimed and trio.current_time() - claimed_at < CLAIM_S):
            return False
        if 0 in peer.layers and peer.weights_version >= served.weights.version:
            return True
        wanted = {served.model_hash, *needed, *self._others_need(peer)}
        return peer.computes(served.model_hash) and wanted.issuperset(peer.model_hashes)

    async def all(
        self, hops: list[RemoteHop], command: pb.LayerCommand
    ) -> dict[str, pb.LayerAnswer]:
        """What the holders answer, without those that fail."""
        answers: dict[str, pb.LayerAnswer] = {}
        peers = {peer.node_id: peer for peer, _ in self.others}

        async def ask(hop: RemoteHop) -> None:
            if command.action == "serve":
                claim = {command.model_hash, *command.digests}
                self._claimed[hop.node_id] = trio.current_time(), claim
            try:
                answer = await self._needs.command(hop, self._for(peers.get(hop.node_id), command))
                answers[hop.node_id], said = answer, answer.waits
            except MeshnodeError as error:
                said = str(error)
            if said not in ("", LOADING, self._said.get(hop.node_id)):
                log.info("serving: %s: %s", hop.node_id[:8], said)
            self._said[hop.node_id] = said
            self._needs.look_again(hop.node_id)

        async with trio.open_nursery() as nursery:
            for hop in hops:
                nursery.start_soon(ask, hop)
        return answers

    def _for(self, peer: Peer | None, command: pb.LayerCommand) -> pb.LayerCommand:
        """A command as one holder gets it."""
        if command.action != "serve":
            return command
        told = pb.LayerCommand()
        told.CopyFrom(command)
        if peer is not None and max(peer.layers) < self._needs.layers.start:
            # It has no layers that this driver's generations compute elsewhere.
            del told.digests[:]
        beside = self._others_need(peer) - {command.model_hash, *command.digests}
        told.digests.extend(sorted(beside)[: MAX_NAMED - 1 - len(command.digests)])
        return told

    def _others_need(self, holder: Peer | None) -> set[str]:
        """Hashes of the weights that other drivers compute with, and so need at a holder."""
        if holder is None or 0 in holder.layers:
            return set()
        return {each for peer in self.drivers for each in (peer.model_hash, *peer.model_hashes)}


def is_part(peer: Peer) -> bool:
    """Whether a peer holds only some of the layers."""
    return len(peer.layers) < peer.total_layers
