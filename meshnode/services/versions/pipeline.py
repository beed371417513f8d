"""The driver of a pipeline decides which version all of its holders serve (decision 0246).

==========  ================================  ==========  =========================================
state       moved by                          next        other effect
==========  ================================  ==========  =========================================
settled     a version is worth serving        staging     all holders load it beside what they serve
staging     holders of all layers have it     switched    new generations begin with it
staging     some layer stays without it       settled     the holders let it go; tried again later
switched    nothing needs the one before      settled     it is freed everywhere
==========  ================================  ==========  =========================================

In each state holders that serve something else than they should are told so again: one that was
away, has lost its disk, or is new.

Terms: *kin* are nodes with layers of the model that this node was started with. Those that hold
all layers decide for themselves (``service``).

Invariants: new generations begin with a version only while nodes that say that they have it hold
all layers; the version before stays at the holders as long as a generation of this node, or another
driver, needs it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from meshnode.domain.errors import MeshnodeError
from meshnode.domain.routing import longest_run, spell_layers
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.training.position import PipelineVersion
from meshnode.domain.training.serving import OFF, Measured, is_worth_serving
from meshnode.model.documents import ModelUnreadable
from meshnode.model.manifest import Manifest
from meshnode.services.pipeline.routes import RemoteHop
from meshnode.services.shards.exchange import facts_in, tensor_messages
from meshnode.services.versions.holder import LOADING, LayerServing
from meshnode.services.versions.layer_store import Facts, LayerFiles, joined_facts
from meshnode.services.wakeup import Wakeup, wait_any
from meshnode.wire import node_pb2 as pb

if TYPE_CHECKING:
    from meshnode.domain.peers import Peer
    from meshnode.model.anchor_pieces import Unit

log = logging.getLogger(__name__)

LOOK_EVERY_S = 5.0
"""How often holders are compared with what they should serve; reports are as old as this."""
POLL_S = 1.0
"""Pause before a holder that loads is asked again."""
STAGE_S = 600.0
"""The most time that all holders may take to load a version."""
ANNOUNCED_S = 30.0
"""The most time until peers that have a version are known to have it."""
RETRY_S = 30.0
"""Pause before a version is tried again that could not be staged."""
UNCOVERED_S = 60.0
"""After this long without a path over the served version, the original weights are served."""


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


class PipelineSwitch:
    """Handle of the service."""

    def __init__(self, needs: PipelineDependencies) -> None:
        self._needs = needs
        self._own = needs.own
        self._problem = ""
        self._retry_at = -math.inf
        self._refused: PipelineVersion | None = None
        """A version that could not be staged, and is tried again at ``_retry_at``."""
        self._covered_at = trio.current_time()
        self._told: dict[str, str] = {}
        """What each peer said last, so that it is logged once."""

    @property
    def setting(self) -> str:
        """``training.serve`` as it is in force here."""
        return self._own.setting

    @property
    def served(self) -> LayerFiles:
        """What new generations begin with."""
        return self._own.served

    @property
    def served_loss(self) -> float | None:
        """The held-out loss of what is served."""
        measured = self._needs.loss_of(self.served)
        return self.served.loss if measured is None else measured

    @property
    def waiting(self) -> str:
        """Why a newer version is not served yet."""
        return self._problem

    async def piece(self, unit: Unit) -> bytes | None:
        """A piece of trained layers that are served here; None if there is none."""
        return await self._own.piece(unit)

    async def run(self) -> None:
        """Decide what is served until cancelled."""
        while True:
            news, freed = self._needs.news.next, self._needs.freed.next
            if self.setting != OFF:
                try:
                    await self._look()
                except OSError as error:
                    self._wait(f"this node's disk: {error.strerror}")
            await wait_any(news, freed, deadline=trio.current_time() + LOOK_EVERY_S)

    async def _look(self) -> None:
        newest = self._needs.newest()
        if newest is not None and self._is_worth(newest):
            if len(self._own.hashes) > 1:
                number = newest.version.number
                self._wait(f"version {number} waits until the one before the present is freed")
            else:
                await self._take(newest)
        await self._settle()
        now = trio.current_time()
        if self._needs.covered(self.served.model_hash) or not self._deserted():
            self._covered_at = now
        elif now - self._covered_at >= UNCOVERED_S:
            log.warning("the nodes have lost version %d", self.served.weights.version)
            await self._take(Newest(PipelineVersion(), self._needs.loss_of(self._needs.origin)))
            self._covered_at = now

    def _is_worth(self, newest: Newest) -> bool:
        waits = newest.version == self._refused and trio.current_time() < self._retry_at
        served = Measured(_named(self.served.version), self.served_loss)
        found = Measured(_named(newest.version), newest.loss)
        return not waits and is_worth_serving(self.setting, served, found)

    def _deserted(self) -> bool:
        """Whether kin hold all layers, but not of what is served, and no other driver serves it."""
        others = (peer for peer in self._needs.kin(0) if self._is_part(peer))
        there = all(self._needs.kin(layer) for layer in self._needs.layers)
        loading = any(self._told.get(hop.node_id) == LOADING for hop in self._hops())
        return there and not any(others) and not loading

    async def _take(self, newest: Newest) -> None:
        """Stage a version at all holders and begin with it, or say why that is not possible."""
        version = newest.version
        self._refused, self._retry_at = version, trio.current_time() + RETRY_S
        hops = self._hops()
        facts = await self._facts(version, hops)
        if facts is None:
            return
        manifest = Manifest(facts, self._needs.origin.manifest.files)
        command = pb.LayerCommand(
            action="serve",
            version=str(version),
            model_hash=manifest.model_hash,
            tensors=tensor_messages(facts),
            nodes=self._sources(manifest.model_hash),
        )
        if newest.loss is not None:
            command.held_out_loss = newest.loss
        if not await self._stage(command, hops):
            return
        command.switched = True
        command.digests[:] = sorted(self._needed() | {self.served.model_hash})
        await self._own.answer(command)
        self._refused, self._problem = None, ""
        await self._all(hops, command)

    async def _facts(self, version: PipelineVersion, hops: list[RemoteHop]) -> Facts | None:
        """The tensors of the whole model in a version; None if some are nowhere."""
        command = pb.LayerCommand(action="facts", version=str(version))
        own = await self._own.answer(command)
        answers = await self._all(hops, command)
        found = [answers[hop.node_id] for hop in hops if hop.node_id in answers]
        parts = [facts_in(list(one.tensors)) for one in (own, *found) if not one.missing]
        try:
            facts = joined_facts(parts, tied=self._needs.tied)
        except ModelUnreadable as problem:
            self._wait(f"version {version.number} cannot be served: {problem}")
            return None
        lacking = self._needs.origin.manifest.tensors.keys() - facts.keys()
        if lacking:
            nobody = f"no node has kept {min(lacking)} of it"
            reason = next((one.waits for one in found if one.waits), nobody)
            self._wait(f"version {version.number} waits: {reason}")
            return None
        return facts

    async def _stage(self, command: pb.LayerCommand, hops: list[RemoteHop]) -> bool:
        """Have a version loaded by this node and by holders of all layers."""
        wanted, number = command.model_hash, command.version.partition("-")[0]
        waits: dict[str, str] = {}
        until = trio.current_time() + STAGE_S
        while trio.current_time() < until:
            command.digests[:] = sorted(self._needed() | {self.served.model_hash})
            own = await self._own.answer(command)
            answers = await self._all(hops, command)
            said = {self._needs.node_id: own, **answers}
            waits = {n: a.waits for n, a in said.items() if wanted not in a.model_hashes}
            if LOADING not in waits.values():
                break
            await trio.sleep(POLL_S)
        staged = [hop for hop in hops if hop.node_id not in waits and hop.node_id in answers]
        without = set(self._needs.layers)
        for hop in staged:
            without -= set(range(hop.first, hop.last + 1))
            self._needs.look_again(hop.node_id)
        reason = waits.get(self._needs.node_id) or next(iter(waits.values()), "no answer")
        if self._needs.node_id in waits:
            self._wait(f"version {number} waits: {reason}")
            return False
        with trio.move_on_after(0 if without else ANNOUNCED_S):
            # Whole nodes may have it too.
            while not self._needs.covered(wanted):  # noqa: ASYNC110 - peers are asked in between
                await trio.sleep(POLL_S / 10)
        if not self._needs.covered(wanted):
            layers = spell_layers(tuple(sorted(without)))
            self._wait(f"version {number} waits for layers {layers}: {reason}")
            return False
        return True

    async def _settle(self) -> None:
        """Tell the holders that serve something else than they should, and this node."""
        served, needed = self.served, self._needed()
        command = pb.LayerCommand(
            action="serve",
            version=str(served.version),
            model_hash=served.model_hash,
            digests=sorted(needed),
            switched=True,
            nodes=self._sources(served.model_hash),
        )
        if served.loss is not None:
            command.held_out_loss = served.loss
        wanted = {served.model_hash, *needed}
        if not wanted.issuperset(self._own.hashes) or self._own.named != needed:
            await self._own.answer(command)
        others = [hop for peer, hop in self._others() if not self._settled(peer, wanted)]
        if others:
            command.tensors.extend(tensor_messages(served.manifest.tensors))
            await self._all(others, command)
        await self._restore(needed)

    async def _restore(self, needed: set[str]) -> None:
        """Have holders load weights again that generations still need, and that were lost."""
        for files in [self._own.here[each] for each in sorted(needed) if each in self._own.here]:
            model_hash = files.model_hash
            if self._needs.covered(model_hash):
                continue
            command = pb.LayerCommand(
                action="serve",
                version=str(files.version),
                model_hash=model_hash,
                digests=sorted({self.served.model_hash, *needed} - {model_hash}),
                tensors=tensor_messages(files.manifest.tensors),
                nodes=self._sources(model_hash),
            )
            lacking = [hop for peer, hop in self._others() if not peer.computes(model_hash)]
            await self._all(lacking, command)

    def _settled(self, peer: Peer, wanted: set[str]) -> bool:
        """Whether a peer serves what it should, or follows somebody who is further."""
        if peer.model_hash == self.served.model_hash:
            return wanted.issuperset(peer.model_hashes)
        return peer.weights_version > self.served.weights.version and not peer.computes(
            self.served.model_hash
        )

    def _needed(self) -> set[str]:
        """Hashes of the weights that generations or other drivers still need, beside the served."""
        drivers = {peer.model_hash for peer in self._needs.kin(0) if self._is_part(peer)}
        return (self._own.in_use | drivers & set(self._own.hashes)) - {self.served.model_hash}

    def _sources(self, model_hash: str) -> list[str]:
        """The nodes that a holder may ask for weights that it lacks."""
        peers = {peer.node_id: peer for peer, _ in self._others()}
        return [self._needs.node_id, *(n for n, p in peers.items() if p.computes(model_hash))]

    def _is_part(self, peer: Peer) -> bool:
        return len(peer.layers) < peer.total_layers

    def _others(self) -> list[tuple[Peer, RemoteHop]]:
        """The kin that hold some of the layers, those with the first ones first."""
        found: dict[str, tuple[Peer, RemoteHop]] = {}
        for layer in range(self._needs.layers.stop):
            for peer in self._needs.kin(layer):
                run = longest_run(peer.layers)
                if self._is_part(peer) and run:
                    place = peer.host, peer.grpc_port, run.start, run.stop - 1
                    found[peer.node_id] = peer, RemoteHop(peer.node_id, *place)
        return sorted(found.values(), key=lambda one: one[1].first)

    def _hops(self) -> list[RemoteHop]:
        return [hop for _, hop in self._others()]

    async def _all(
        self, hops: list[RemoteHop], command: pb.LayerCommand
    ) -> dict[str, pb.LayerAnswer]:
        """What the holders answer, without those that fail."""
        answers: dict[str, pb.LayerAnswer] = {}

        async def ask(hop: RemoteHop) -> None:
            said = ""
            try:
                answers[hop.node_id] = answer = await self._needs.command(hop, command)
                said = answer.waits
            except MeshnodeError as error:
                said = str(error)
            if said not in ("", LOADING, self._told.get(hop.node_id)):
                log.info("serving: %s: %s", hop.node_id[:8], said)
            self._told[hop.node_id] = said
            self._needs.look_again(hop.node_id)

        async with trio.open_nursery() as nursery:
            for hop in hops:
                nursery.start_soon(ask, hop)
        return answers

    def _wait(self, problem: str) -> None:
        if problem != self._problem:
            log.info("%s", problem)
        self._problem = problem


def _named(version: PipelineVersion) -> WeightsVersion:
    return WeightsVersion(version.number, version.name)


async def serve_pipeline_versions(
    switch: PipelineSwitch, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Decide what the pipeline serves until cancelled."""
    task_status.started()
    await switch.run()
