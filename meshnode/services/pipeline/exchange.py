"""The layers of a pipeline, as its driver commands them in the rounds (decision 0222).

``services.shards.exchange`` has the commands. Here each goes to all holders of the path, this node
included, and what they answer becomes that of one model.

Invariants: a round's commands go to one path; if any holder fails or lacks something, nothing is
taken for done, and the whole round is resumed from what is on the disks (``LayersFailed``).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from meshnode.domain.errors import LayersUnavailable, MeshnodeError, StartupError
from meshnode.domain.training.position import NAME_CHARS, PipelineVersion
from meshnode.model.manifest import TensorFacts
from meshnode.services.shards.exchange import facts_in
from meshnode.wire import node_pb2 as pb
from meshnode.wire.gradients import Packing

if TYPE_CHECKING:
    from meshnode.domain.training.agreement import WeightsVersion
    from meshnode.model.training import Batch
    from meshnode.services.pipeline.routes import RemoteHop
    from meshnode.services.pipeline.training import TrainingDriver
    from meshnode.services.shards.exchange import LayerExchange

log = logging.getLogger(__name__)

SESSION_BYTES = 16
PIECE_S = 0.04
"""Pause before a holder is asked for a piece: half of the messages that it takes in a second from
its driver are left for steps (decision 0137)."""


class LayersFailed(StartupError):
    """A holder did not do what the round needs. The round is resumed from the disks."""


class _Missing(Exception):
    """Some holders lack what a command is about."""

    def __init__(self, lacking: Mapping[str, str]) -> None:
        super().__init__(", ".join(f"{node[:8]}: {what}" for node, what in lacking.items()))
        self.lacking = lacking


class PipelineLayers:
    """All layers of the model, those of this node first."""

    def __init__(
        self,
        driver: TrainingDriver,
        own: LayerExchange,
        shapes: Mapping[str, tuple[int, ...]],
        *,
        names: Callable[[range], Collection[str]],
        held_by: Callable[[str], range],
        overlapping: Callable[[], set[str]],
    ) -> None:
        """``shapes`` are those of all tensors of the model.

        ``names`` gives the tensors of a range of layers, ``held_by`` the layers of a node,
        ``overlapping`` the nodes that hold some of this node's layers.
        """
        self.shapes = shapes
        self._names = names
        self._held_by = held_by
        self._overlapping = overlapping
        self._driver = driver
        self._own = own
        self._path: tuple[RemoteHop, ...] = ()
        self._pieces = trio.Lock()

    async def gather(self, version: PipelineVersion, fetch: Callable[[], pb.LayerCommand]) -> None:
        """Bring the holders of all layers to a version. Raises LayersFailed.

        A holder that lacks it gets it from other nodes, by the command that ``fetch`` gives.
        """
        restore = pb.LayerCommand(action="restore", version=str(version))
        if self._path and not await self._lacking(restore):
            return

        async def bring(hop: RemoteHop | None) -> str:
            lacking = (await self._one(hop, restore)).missing
            wanted = fetch() if lacking else pb.LayerCommand()
            if not wanted.nodes:
                return lacking
            keep = pb.LayerCommand(action="keep", version=wanted.version, name=wanted.name)
            for command in (wanted, keep, restore):
                if lacking := (await self._one(hop, command)).missing:
                    break
            return lacking

        await self._assemble(bring)

    async def have(self, version: PipelineVersion) -> bool:
        """Whether all holders have a version; they go back to it then."""
        command = pb.LayerCommand(action="restore", version=str(version))
        return bool(self._path) and not await self._lacking(command)

    async def fetch(self, command: pb.LayerCommand) -> dict[str, TensorFacts]:
        """Let the holders of all layers fetch weights from other nodes. Raises LayersFailed."""
        answers: dict[str, pb.LayerAnswer] = {}

        async def bring(hop: RemoteHop | None) -> str:
            answer = await self._one(hop, command)
            answers[hop.node_id if hop else ""] = answer
            return answer.missing

        await self._assemble(bring)
        return _joined([answers[node] for node in ("", *(hop.node_id for hop in self._path))])

    async def _assemble(self, bring: Callable[[RemoteHop | None], Awaitable[str]]) -> None:
        """Find a path all of whose holders can do what the round needs. Raises LayersFailed.

        ``bring`` says what a holder lacks, or raises MeshnodeError.
        """
        self._path = ()
        excluded: set[str] = set()
        while True:
            path = self._choose(excluded)
            failed: dict[str, str] = {}

            async def try_one(hop: RemoteHop | None, failed: dict[str, str] = failed) -> None:
                try:
                    lacking = await bring(hop)
                except MeshnodeError as error:
                    lacking = str(error)
                if lacking:
                    failed[hop.node_id if hop else ""] = lacking

            async with trio.open_nursery() as nursery:
                for hop in (None, *path):
                    nursery.start_soon(try_one, hop)
            if not failed:
                self._path = path
                return
            for node_id, lacking in failed.items():
                log.info("training: %s: %s", node_id[:8] or "this node", lacking)
            if "" in failed:
                raise LayersFailed(f"training: this node lacks {failed['']}")
            excluded |= failed.keys()

    def _choose(self, excluded: set[str]) -> tuple[RemoteHop, ...]:
        try:
            # Holders of layers that are here too are more use to another pipeline.
            with suppress(LayersUnavailable):
                return self._driver.choose(excluded | self._overlapping())
            return self._driver.choose(excluded)
        except MeshnodeError as error:
            raise LayersFailed(f"training: {error}") from None

    async def _lacking(self, command: pb.LayerCommand) -> bool:
        try:
            await self._all(lambda _: command)
        except (LayersFailed, _Missing):
            return True
        return False

    async def step(self, batch: Batch) -> float:
        """One step of all holders. Returns its loss. Raises LayersFailed."""
        session = secrets.token_hex(SESSION_BYTES)
        try:
            return await self._driver.step(session, batch.inputs, batch.targets, update=True)
        except MeshnodeError as error:
            self._path = ()
            raise LayersFailed(f"training: {error}") from None

    async def loss(self, batch: Batch) -> float:
        """The loss of the present weights. Raises LayersFailed."""
        try:
            return await self._driver.loss(batch.inputs, batch.targets)
        except MeshnodeError as error:
            raise LayersFailed(f"training: {error}") from None

    async def parts(
        self,
        version: PipelineVersion,
        packing: Packing,
        parameters: int,
        feedback: str,
        name: str,
    ) -> dict[str, bytes]:
        """What all layers have learned since a version, by tensor. Raises LayersFailed.

        What the contribution leaves unsent is filed as ``name``; ``feedback`` names that of the
        contribution before, or is empty.
        """
        command = pb.LayerCommand(
            action="part",
            version=str(version),
            name=name,
            feedback=feedback,
            format=packing.kind,
            kept=packing.kept,
            parameters=parameters,
        )
        frames: dict[str, bytes] = {}
        answers = await self._done(lambda _: command, own=False)
        for hop, answer in zip(self._path, answers, strict=True):
            # It may hold layers that others train in this pipeline.
            for tensor in self._names(range(hop.first, hop.last + 1)):
                if tensor in answer.layer_gradients:
                    frames[tensor] = answer.layer_gradients[tensor]
        own = pb.LayerCommand()
        own.CopyFrom(command)
        tied = self._own.tied
        if tied in frames:
            # Both holders of this tensor have learned; this node sends the sum.
            own.layer_gradients[tied] = frames.pop(tied)
        frames.update((await self._own_done(own)).layer_gradients)
        if frames.keys() != self.shapes.keys():
            raise LayersFailed("training: a holder gave other tensors than it holds")
        return {tensor: frames[tensor] for tensor in self.shapes}

    async def name_rest(self, name: str, digest: str) -> None:
        """File what the parts have left under the digest of their contribution."""
        await self._done(
            lambda _: pb.LayerCommand(action="name", name=name, feedback=digest), own=True
        )

    async def apply(
        self,
        version: PipelineVersion,
        sets: Mapping[str, Mapping[str, bytes]],
        scales: Iterable[float],
        weights: Iterable[float],
        name: str,
        *,
        step: int,
    ) -> dict[str, TensorFacts]:
        """Make new weights from a version and contributions by digest. Raises LayersFailed.

        ``step`` is the place of the outer step in ``STEPS``.
        Returns the facts of all tensors, those of the outer momentum behind ``velocity.``.
        """
        for digest, frames in sets.items():
            await self._offer(digest, frames)
        command = pb.LayerCommand(
            action="apply",
            version=str(version),
            name=name,
            digests=list(sets),
            scales=list(scales),
            weights=list(weights),
            step=step,
        )
        return _joined(await self._done(lambda _: command, own=True))

    async def keep(self, weights: WeightsVersion, source: PipelineVersion, name: str) -> None:
        """Make a candidate, or an earlier version, the new one. Raises LayersFailed."""
        command = pb.LayerCommand(
            action="keep", version=str(version_of(weights)), source=str(source), name=name
        )
        await self._done(lambda _: command, own=True)

    async def piece(
        self, version: PipelineVersion, name: str, rows: tuple[int, int] | None
    ) -> bytes:
        """Rows of a tensor as safetensors, from whoever holds it. Raises LayersFailed."""
        first, stop = rows or (0, 0)
        command = pb.LayerCommand(
            action="piece", version=str(version), name=name, first_row=first, stop_row=stop
        )
        for hop in (None, *self._path):
            try:
                if hop is not None:
                    async with self._pieces:
                        await trio.sleep(PIECE_S)
                answer = await self._one(hop, command)
            except MeshnodeError as error:
                raise LayersFailed(f"training: {error}") from None
            if not answer.missing:
                return answer.piece
        raise LayersFailed(f"training: no holder has {name} of version {version.number}")

    async def _offer(self, digest: str, frames: Mapping[str, bytes]) -> None:
        others = [self._names(self._held_by(hop.node_id)) for hop in self._path]
        held = [self._own.shapes.keys(), *others]

        def part(place: int) -> pb.LayerCommand:
            gradients = {name: frames[name] for name in held[place]}
            return pb.LayerCommand(action="offer", name=digest, layer_gradients=gradients)

        await self._done(part, own=True)

    async def _own_done(self, command: pb.LayerCommand) -> pb.LayerAnswer:
        answer = await self._one(None, command)
        if answer.missing:
            raise LayersFailed(f"training: this node lacks {answer.missing}")
        return answer

    async def _done(
        self, command: Callable[[int], pb.LayerCommand], *, own: bool
    ) -> list[pb.LayerAnswer]:
        try:
            return await self._all(command, own=own)
        except _Missing as lacking:
            raise LayersFailed(
                f"training: a holder lacks what the round needs: {lacking}"
            ) from None

    async def _all(
        self, command: Callable[[int], pb.LayerCommand], *, own: bool = True
    ) -> list[pb.LayerAnswer]:
        """The answers of this node, if wanted, and of all holders in the order of their layers.

        ``command`` gets their places, 0 for this node.
        """
        places: list[RemoteHop | None] = [None, *self._path]
        answers: dict[int, pb.LayerAnswer] = {}
        problems: list[str] = []

        async def ask(place: int) -> None:
            try:
                answers[place] = await self._one(places[place], command(place))
            except MeshnodeError as error:
                problems.append(str(error))

        async with trio.open_nursery() as nursery:
            for place in range(0 if own else 1, len(places)):
                nursery.start_soon(ask, place)
        if problems:
            # A holder may have come back at another address.
            self._path = ()
            raise LayersFailed(f"training: {problems[0]}")
        lacking = {
            hop.node_id if hop else "this node": answers[place].missing
            for place, hop in enumerate(places)
            if place in answers and answers[place].missing
        }
        if lacking:
            raise _Missing(lacking)
        return [answers[place] for place in sorted(answers)]

    async def _one(self, hop: RemoteHop | None, command: pb.LayerCommand) -> pb.LayerAnswer:
        if hop is None:
            return await self._own.answer(command)
        return await self._driver.command(hop, command)


def version_of(weights: WeightsVersion) -> PipelineVersion:
    """The name under which all pipelines keep weights that the nodes have agreed on."""
    if not weights.version:
        return PipelineVersion()
    return PipelineVersion(weights.version, weights.model_hash[:NAME_CHARS])


def _joined(answers: Sequence[pb.LayerAnswer]) -> dict[str, TensorFacts]:
    facts: dict[str, TensorFacts] = {}
    for answer in answers:
        for name, one in facts_in(list(answer.tensors)).items():
            if facts.setdefault(name, one) != one:
                raise LayersFailed(f"training: two holders have different weights of {name}")
    return facts
