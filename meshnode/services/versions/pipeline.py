"""The driver of a pipeline decides which version all of its holders serve (decisions 0246, 0247).

==========  ================================  ==========  =========================================
state       moved by                          next        other effect
==========  ================================  ==========  =========================================
settled     a version is worth serving        staging     all holders load it beside what they serve
staging     holders of all layers have it     switched    new generations begin with it
staging     some layer stays without it       settled     the holders let it go; tried again later
staging     some have no memory for two       pausing     the holders let it go
pausing     nothing is open here, and         switched    requests wait; holders load it in place of
            holders of all layers have it                 what they serve
pausing     some layer stays without it       settled     they load what they served; requests go on
switched    nothing needs the one before      settled     it is freed everywhere
==========  ================================  ==========  =========================================

In each state holders that lack what they should serve are told so again: one that was away, has
lost its disk, or is new. All are told now and then, because a claim ends.

Terms: *kin* are nodes with layers of the model that this node was started with. Those that hold
all layers decide for themselves (``service``); other drivers follow if what is served here is
newer than what they have.

Invariants: new generations begin with a version only while nodes that say that they have it hold
all layers; the version before stays at the holders as long as a generation of this node, or another
driver, needs it; while a holder is without the version that is served, because another one takes
its place, nothing is open here.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

import trio

from meshnode.domain.routing import spell_layers
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.training.position import PipelineVersion, version_in
from meshnode.domain.training.serving import OFF, Measured, is_worth_serving
from meshnode.model.documents import ModelUnreadable
from meshnode.model.manifest import Manifest
from meshnode.services.shards.exchange import facts_in, tensor_messages
from meshnode.services.versions.commands import HolderCommands, Newest, PipelineDependencies
from meshnode.services.versions.holder import LOADING, OWN, TIGHT
from meshnode.services.versions.layer_store import joined_facts
from meshnode.services.wakeup import wait_any
from meshnode.wire import node_pb2 as pb

if TYPE_CHECKING:
    from meshnode.model.anchor_pieces import Unit
    from meshnode.services.pipeline.routes import RemoteHop
    from meshnode.services.versions.layer_store import Facts, LayerFiles

log = logging.getLogger(__name__)

LOOK_EVERY_S = 5.0
"""How often holders are compared with what they should serve; reports are as old as this."""
POLL_S = 1.0
"""Pause before a holder that loads is asked again."""
ASK_S = 15.0
"""The most time that holders may take to answer while requests wait: they need not load first."""
STAGE_S = 600.0
"""The most time that all holders may take to load a version."""
PAUSED_S = 300.0
"""Pause after requests have waited in vain for a version that was to take another one's place."""
ANNOUNCED_S = 30.0
"""The most time until peers that have a version are known to have it."""
RETRY_S = 30.0
"""Pause before a version is tried again that could not be staged."""
UNCOVERED_S = 60.0
"""After this long without a path over the served version, the original weights are served."""


class PipelineSwitch:
    """Handle of the service."""

    def __init__(self, needs: PipelineDependencies) -> None:
        self._needs = needs
        self._own = needs.own
        self._problem = ""
        self._retry_at = -math.inf
        self._refused: PipelineVersion | None = None
        """A version that could not be staged, and is tried again at ``_retry_at``."""
        self._tight: PipelineVersion | None = None
        """A version for which some holder has no memory beside the present one."""
        self._covered_at = trio.current_time()
        self._holders = HolderCommands(needs)
        self._own.decided = self._decided

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
        # Never back to what is older, nor to this driver's version of what another one has chosen.
        least = self.served.version.number + (self._own.chosen_by != OWN)
        served = Measured(_named(self.served.version), self.served_loss)
        found = Measured(_named(newest.version), newest.loss)
        forward = newest.version.number >= least
        return forward and not waits and is_worth_serving(self.setting, served, found)

    def _decided(self) -> int:
        newest = self._needs.newest()
        return -1 if newest is None else newest.version.number

    def _deserted(self) -> bool:
        """Whether kin hold all layers, but not of what is served, and no other driver serves it."""
        there = all(self._needs.kin(layer) for layer in self._needs.layers)
        return there and not self._holders.drivers and not self._holders.loading

    async def _take(self, newest: Newest) -> None:
        """Stage a version at all holders and begin with it, or say why that is not possible."""
        version = newest.version
        if self._tight == version and not await self._idle():
            return
        self._refused, self._retry_at = version, trio.current_time() + RETRY_S
        hops = self._holders.hops
        facts = await self._facts(version, hops)
        if facts is None:
            return
        manifest = Manifest(facts, self._needs.origin.manifest.files)
        command = pb.LayerCommand(
            action="serve",
            version=str(version),
            model_hash=manifest.model_hash,
            tensors=tensor_messages(facts),
            nodes=self._holders.sources(manifest.model_hash),
        )
        if newest.loss is not None:
            command.held_out_loss = newest.loss
        if self._tight == version:
            await self._take_in_place(command, hops)
        elif await self._stage(command, hops):
            await self._begin_with(command, hops)
        if self._tight == version:
            # It waits for a moment, and not for a while.
            self._retry_at = -math.inf

    async def _begin_with(self, command: pb.LayerCommand, hops: list[RemoteHop]) -> None:
        """Begin with a version that is at all holders."""
        command.switched = True
        await self._own.answer(command)
        self._refused, self._tight, self._problem = None, None, ""
        await self._holders.all(hops, command)

    async def _idle(self) -> bool:
        """Wait for a moment in which nothing is open here; False if there is none soon."""
        with trio.move_on_after(LOOK_EVERY_S):
            while not self._own.untouched:  # noqa: ASYNC110 - generations end all the time
                await trio.sleep(POLL_S / 10)
        return self._own.untouched

    async def _take_in_place(self, command: pb.LayerCommand, hops: list[RemoteHop]) -> None:
        """Have holders load a version in place of the present one, while requests wait."""
        with self._own.gate.closing():
            # Somebody may have begun while the holders were asked.
            if not self._own.untouched:
                return
            if await self._stage(command, hops, beside=False):
                await self._begin_with(command, hops)
                return
            self._tight, self._retry_at = None, trio.current_time() + PAUSED_S
            with trio.move_on_after(STAGE_S):
                # Some may have let go of what is served.
                while not self._is_back():
                    with trio.move_on_after(ASK_S):
                        await self._settle()
                    await trio.sleep(POLL_S)

    def _is_back(self) -> bool:
        """Whether what is served can be computed with, here and elsewhere."""
        served = self.served.model_hash
        return served in self._own.hashes and self._needs.covered(served)

    async def _facts(self, version: PipelineVersion, hops: list[RemoteHop]) -> Facts | None:
        """The tensors of the whole model in a version; None if some are nowhere."""
        command = pb.LayerCommand(action="facts", version=str(version))
        own = await self._own.answer(command)
        answers = await self._holders.all(hops, command)
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

    async def _stage(
        self, command: pb.LayerCommand, hops: list[RemoteHop], *, beside: bool = True
    ) -> bool:
        """Have a version loaded by this node and by holders of all layers.

        Without ``beside`` what is served may make room for it.
        """
        wanted, number = command.model_hash, command.version.partition("-")[0]
        waits: dict[str, str] = {}
        tight: set[str] = set()
        until = trio.current_time() + STAGE_S
        while trio.current_time() < until:
            command.digests[:] = sorted(self._in_use() | {self.served.model_hash}) if beside else []
            own = await self._own.answer(command)
            answers: dict[str, pb.LayerAnswer] = {}
            with trio.move_on_after(math.inf if beside else ASK_S):
                answers = await self._holders.all(hops, command)
            said = {self._needs.node_id: own, **answers}
            waits = {n: a.waits for n, a in said.items() if wanted not in a.model_hashes}
            tight = {n for n in waits if said[n].tight}
            # Requests must not wait for what waits itself.
            if LOADING not in waits.values() or (tight and not beside):
                break
            await trio.sleep(POLL_S)
        # Once it is served, what was served is needed no more by what begins.
        command.digests[:] = sorted(self._in_use() | {self.served.model_hash}) if beside else []
        staged = [hop for hop in hops if hop.node_id not in waits and hop.node_id in answers]
        without = set(self._needs.layers)
        for hop in staged:
            without -= set(range(hop.first, hop.last + 1))
            self._needs.look_again(hop.node_id)
        blocked = self._needs.node_id in tight or (without and not self._needs.covered(wanted))
        if beside and blocked and self._would_do(tight, waits.keys() - tight, hops):
            self._tight = version_in(command.version)
            self._wait(f"version {number} waits for an idle moment: {TIGHT}")
            return False
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

    def _would_do(self, tight: set[str], without: set[str], hops: list[RemoteHop]) -> bool:
        """Whether a version lacks no more than a moment in which others make room for it."""
        if not tight or self._needs.node_id in without:
            return False
        open_layers = set(self._needs.layers)
        for hop in hops:
            if hop.node_id not in without:
                open_layers -= set(range(hop.first, hop.last + 1))
        return not open_layers

    async def _settle(self) -> None:
        """Tell the holders that lack what they should serve, and this node."""
        served, needed = self.served, self._in_use()
        command = pb.LayerCommand(
            action="serve",
            version=str(served.version),
            model_hash=served.model_hash,
            digests=sorted(needed),
            switched=True,
            nodes=self._holders.sources(served.model_hash),
        )
        if served.loss is not None:
            command.held_out_loss = served.loss
        await self._own.answer(command)
        others = [
            hop
            for peer, hop in self._holders.others
            if not self._holders.settled(peer, served, needed)
        ]
        if others:
            command.tensors.extend(tensor_messages(served.manifest.tensors))
            await self._holders.all(others, command)
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
                nodes=self._holders.sources(model_hash),
            )
            lacking = [hop for peer, hop in self._holders.others if not peer.computes(model_hash)]
            await self._holders.all(lacking, command)

    def _in_use(self) -> set[str]:
        """Hashes of the weights that generations here still need, beside the served ones."""
        return self._own.in_use - {self.served.model_hash}

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
