"""Two holders of a small model with all parts of serving, and a driver of both, in one process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import trio

from meshnode.domain.errors import Unavailable
from meshnode.domain.peers import Peer
from meshnode.domain.training.position import PipelineVersion, Place, Position
from meshnode.model.documents import ModelUnreadable
from meshnode.model.engine import Engine
from meshnode.model.files import open_files
from meshnode.model.loading import LoadedModel, load_model
from meshnode.model.manifest import manifest_of
from meshnode.services.executor import EngineLimits, Executor, ServedVersion, serve_executor
from meshnode.services.model_source import ModelSource
from meshnode.services.pipeline.routes import RemoteHop
from meshnode.services.shards.exchange_files import original_layers
from meshnode.services.shards.trained_layers import TrainedLayers
from meshnode.services.versions.commands import Newest, PipelineDependencies
from meshnode.services.versions.holder import HolderDependencies, LayerServing, serve_layers
from meshnode.services.versions.layer_store import LayerStore
from meshnode.services.versions.loading import VersionLoader
from meshnode.services.versions.pipeline import PipelineSwitch, serve_pipeline_versions
from meshnode.services.versions.store import VersionFiles
from meshnode.services.wakeup import Wakeup
from meshnode.wire import node_pb2 as pb
from spec_tests.services.executor.generations import LIMITS

FIRST, SECOND = range(1), range(1, 4)
ONE, TWO = PipelineVersion(1, "1a" * 8), PipelineVersion(2, "2b" * 8)
ALSO_ONE = PipelineVersion(1, "1c" * 8)
TIGHT = replace(LIMITS, kv_bytes=1 << 18)


class Holder:
    """A node with some of the layers, which can be restarted."""

    def __init__(self, directory: Path, folder: Path, held: range) -> None:
        files = open_files(directory)
        manifest = manifest_of(files, files.config(), folder.parent / "cache.json")
        self.name, self.held = folder.name, held
        self.source = ModelSource(files, files.config(), held, manifest)
        self.trained = TrainedLayers(folder / "training", manifest.model_hash, held)
        self.folder = folder
        self.serving: LayerServing
        self.executor: Executor
        self.reachable = False
        self.damaged = False
        self.loads = 0

    def learn(
        self, version: PipelineVersion, shift: float, after: PipelineVersion | None = None
    ) -> None:
        """Keep a version whose weights are all a little higher, and the one before it."""
        weights = original_layers(self.source.directory, self.held)
        place = Place(Position(version), Position(after or PipelineVersion()))
        self.trained.keep({name: tensor + shift for name, tensor in weights.items()}, place)

    @asynccontextmanager
    async def running(
        self, limits: EngineLimits = LIMITS, setting: str = "better"
    ) -> AsyncIterator[None]:
        store = LayerStore(self.folder, self.source)
        served = store.chosen()
        loaded = load_model(served.files, self.held)
        engine = Engine(loaded.decoder, limits.max_batch)
        version = ServedVersion(served.weights, served.model_hash, loaded.facts, engine)
        async with trio.open_nursery() as nursery:
            self.executor = await nursery.start(serve_executor, version, limits)
            needs = HolderDependencies(
                executor=self.executor,
                store=store,
                loader=VersionLoader(self.executor, self._load, "float32"),
                setting=setting,
                trained=self.trained.path_of,
            )
            self.serving = LayerServing(needs, served)
            await nursery.start(serve_layers, self.serving)
            self.reachable = True
            try:
                yield
            finally:
                self.reachable = False
                nursery.cancel_scope.cancel()

    def _load(self, version: VersionFiles) -> LoadedModel:
        self.loads += 1
        if self.damaged and version.weights.version:
            raise ModelUnreadable("the file is damaged")
        return load_model(version.files, self.held)

    @property
    def peer(self) -> Peer:
        return Peer(
            node_id=self.name,
            host="127.0.0.1",
            port=8000,
            role="worker",
            layers=tuple(self.held),
            total_layers=SECOND.stop,
            model_hash=self.executor.versions.current.model_hash,
            latency_ms=1.0,
            connected_since=0.0,
            origin_hash=self.source.manifest.model_hash,
            weights_version=self.executor.versions.current.weights.version,
            model_hashes=self.executor.versions.hashes,
        )


@dataclass
class Pipeline:
    """A driver with the first layer, and a holder of the others; ``rivals`` drive them too."""

    first: Holder
    second: Holder
    newest: Newest | None = None
    rivals: tuple[Holder, ...] = ()

    def __post_init__(self) -> None:
        self.news = Wakeup()
        self.switch: PipelineSwitch

    def offer(self, version: PipelineVersion, loss: float) -> None:
        self.newest = Newest(version, loss)
        self.news.set()

    async def command(self, hop: RemoteHop, command: pb.LayerCommand) -> pb.LayerAnswer:
        node = next(each for each in self.nodes if each.name == hop.node_id)
        if not node.reachable:
            raise Unavailable("gone")
        # As it arrives: the driver may use its own again.
        told = pb.LayerCommand.FromString(command.SerializeToString())
        return await node.serving.answer(told, self.first.name)

    @property
    def nodes(self) -> tuple[Holder, ...]:
        return (self.second, *self.rivals)

    def kin(self, layer: int) -> list[Peer]:
        return [node.peer for node in self.nodes if layer in node.held and node.reachable]

    @property
    def rival(self) -> Pipeline:
        """The same nodes, as another driver sees them."""
        return Pipeline(self.rivals[0], self.second, rivals=(self.first,))

    @asynccontextmanager
    async def driving(self, loss: float | None = 2.0) -> AsyncIterator[PipelineSwitch]:
        first, freed = self.first, Wakeup()
        first.executor.versions.changed.append(freed.set)
        self.switch = PipelineSwitch(
            PipelineDependencies(
                own=first.serving,
                origin=first.serving.origin,
                tied=first.source.config.tied_head,
                trains=lambda: True,
                node_id=first.name,
                layers=SECOND,
                kin=self.kin,
                look_again=lambda node_id: None,
                covered=lambda model_hash: any(p.computes(model_hash) for p in self.kin(1)),
                command=self.command,
                newest=lambda: self.newest,
                loss_of=lambda files: loss if not files.version.number else None,
                news=self.news,
                freed=freed,
            )
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_pipeline_versions, self.switch)
            # A busy machine lets a holder that is asked wait for its whole time, more than once.
            with trio.fail_after(180):
                yield self.switch
            nursery.cancel_scope.cancel()


def serves_only(node: Holder, model_hash: str) -> bool:
    return node.executor.versions.hashes == (model_hash,)


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - weights are loaded in a thread
        await trio.sleep(0.01)
