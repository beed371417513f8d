"""Decision 0246: the holders of a pipeline switch together, and keep what is needed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
import torch
import trio

from meshnode.domain.errors import InvalidRequest, Unavailable
from meshnode.domain.peers import Peer
from meshnode.domain.training.position import PipelineVersion, Place, Position
from meshnode.model.anchor_pieces import Unit
from meshnode.model.documents import ModelUnreadable
from meshnode.model.engine import Engine
from meshnode.model.files import open_files
from meshnode.model.loading import LoadedModel, load_model
from meshnode.model.manifest import TensorFacts, manifest_of
from meshnode.model.naming import EMBEDDING, HEAD, Part
from meshnode.services.executor import EngineLimits, Executor, ServedVersion, serve_executor
from meshnode.services.model_source import ModelSource
from meshnode.services.pipeline.routes import RemoteHop
from meshnode.services.shards.exchange_files import original_layers
from meshnode.services.shards.trained_layers import TrainedLayers
from meshnode.services.versions import pipeline as versions_of_pipelines
from meshnode.services.versions.commands import Newest, PipelineDependencies
from meshnode.services.versions.holder import HolderDependencies, LayerServing, serve_layers
from meshnode.services.versions.layer_store import LayerStore, joined_facts
from meshnode.services.versions.loading import VersionLoader
from meshnode.services.versions.pipeline import PipelineSwitch, serve_pipeline_versions
from meshnode.services.versions.store import VersionFiles
from meshnode.services.wakeup import Wakeup
from meshnode.wire import node_pb2 as pb
from spec_tests.model.small_models import make_model
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
            with trio.fail_after(60):
                yield self.switch
            nursery.cancel_scope.cancel()


@pytest.fixture(params=[False, True], ids=["own-head", "tied"])
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> Pipeline:
    directory = make_model(tmp_path / "model", tied_head=request.param)
    return Pipeline(
        Holder(directory, tmp_path / "first", FIRST), Holder(directory, tmp_path / "second", SECOND)
    )


@pytest.fixture(autouse=True)
def _briskly(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOK_EVERY_S", "POLL_S", "RETRY_S"):
        monkeypatch.setattr(versions_of_pipelines, name, 0.02)
    monkeypatch.setattr(versions_of_pipelines, "ANNOUNCED_S", 0.2)


def serves_only(node: Holder, model_hash: str) -> bool:
    return node.executor.versions.hashes == (model_hash,)


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - weights are loaded in a thread
        await trio.sleep(0.01)


async def test_holders_switch_together_and_sessions_end_with_what_they_began_with(
    nodes: Pipeline,
) -> None:
    first, second = nodes.first, nodes.second
    # What two nodes have of a tied head may differ; the model has two matrices then.
    first.learn(ONE, 0.01)
    second.learn(ONE, 0.02)
    async with first.running(), second.running():
        origin = first.serving.served.model_hash
        # A generation of the driver's, with its session at the holder.
        mine = await first.executor.open_session(FIRST, 8)
        theirs = await second.executor.open_session(SECOND, 8, model_hash=origin)
        async with nodes.driving() as switch:
            nodes.offer(ONE, 1.5)
            await until(lambda: second.serving.served.version == ONE)
            assert switch.served.version == ONE
            learned = switch.served.model_hash
            assert second.serving.served.model_hash == learned != origin
            for node in (first, second):
                assert node.executor.versions.hashes == (learned, origin)
            await trio.sleep(0.2)
            # The holder's session has ended, but the generation may need another one there.
            theirs.close()
            await trio.sleep(0.2)
            assert second.executor.versions.hashes == (learned, origin)
            mine.close()
            await until(lambda: second.executor.versions.hashes == (learned,))
            await until(lambda: first.executor.versions.hashes == (learned,))
            assert (switch.served_loss, second.serving.served_loss, switch.waiting) == (
                1.5,
                1.5,
                "",
            )
            # What is worse is not served.
            for node in (first, second):
                node.learn(TWO, 0.03)
            nodes.offer(TWO, 1.6)
            await trio.sleep(0.1)
            assert switch.served.version == ONE
    # A restart serves the same, and the holder gives it to others.
    async with first.running(), second.running():
        for node, shift in ((first, 0.01), (second, 0.02)):
            assert node.serving.served.model_hash == learned
            assert node.executor.versions.current.model_hash == learned
            name, tensor = next(iter(original_layers(node.source.directory, node.held).items()))
            read = node.serving.served.files.checkpoint()
            part = Part(name, tuple(tensor.shape))
            assert torch.equal(read.parameter([part]), tensor + shift)
        name = "model.layers.1.input_layernorm.weight"
        piece = await second.serving.piece(Unit(second.serving.served.weights, name))
        assert piece is not None
        assert await first.serving.piece(Unit(second.serving.served.weights, name)) is None


async def test_without_a_version_at_every_layer_nothing_changes(nodes: Pipeline) -> None:
    nodes.first.learn(ONE, 0.01)
    async with nodes.first.running(), nodes.second.running(), nodes.driving() as switch:
        origin = switch.served.model_hash
        nodes.offer(ONE, 1.0)
        await until(lambda: "no node has kept" in switch.waiting)
        nodes.second.learn(ONE, 0.01)
        await until(lambda: switch.served.version == ONE)
        await until(lambda: nodes.second.executor.versions.hashes == (switch.served.model_hash,))
        assert origin not in nodes.first.executor.versions.hashes


@pytest.mark.parametrize("tight", ["first", "second", "both"])
async def test_without_memory_for_two_a_switch_waits_for_an_idle_moment(
    nodes: Pipeline, tight: str
) -> None:
    first, second = nodes.first, nodes.second
    for node in (first, second):
        node.learn(ONE, 0.01)
    limits = {name: TIGHT if tight in (name, "both") else LIMITS for name in ("first", "second")}
    async with (
        first.running(limits["first"]),
        second.running(limits["second"]),
        nodes.driving() as switch,
    ):
        origin = switch.served.model_hash
        # A generation is open, whatever it does just now.
        generation = await first.executor.open_session(FIRST, 8)
        nodes.offer(ONE, 1.0)
        await until(lambda: "waits for an idle moment: resources.max_m" in switch.waiting)
        await trio.sleep(0.3)
        # Its weights stay, and whoever has memory does not load the others again and again.
        for node in (first, second):
            assert node.executor.versions.current.model_hash == origin
            assert node.loads <= 2
            assert not node.executor.gate.closed
        generation.close()
        await until(lambda: first.executor.gate.closed)
        # What comes meanwhile waits, and begins with the new weights.
        generation = await first.executor.open_session(FIRST, 8)
        learned = generation.model_hash
        assert switch.served.version == second.serving.served.version == ONE
        assert (switch.served.model_hash, switch.waiting) == (learned, "")
        generation.close()
        for node in (first, second):
            await until(partial(serves_only, node, learned))
            assert not node.executor.gate.closed
    # It is on the disks.
    async with first.running(), second.running():
        assert first.serving.served.model_hash == second.serving.served.model_hash == learned


async def test_what_cannot_take_the_place_of_the_present_leaves_it_in_service(
    nodes: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions_of_pipelines, "PAUSED_S", 0.05)
    first, second = nodes.first, nodes.second
    for node in (first, second):
        node.learn(ONE, 0.01)
    second.damaged = True
    async with first.running(TIGHT), second.running(TIGHT), nodes.driving() as switch:
        origin = switch.served.model_hash
        nodes.offer(ONE, 1.0)
        await until(lambda: "cannot be loaded there" in switch.waiting)
        await until(lambda: not first.executor.gate.closed)
        for node in (first, second):
            assert node.executor.versions.hashes == (origin,)
            session = await node.executor.open_session(node.held, 8, model_hash=origin)
            session.close()
        second.damaged = False
        await until(lambda: switch.served.version == ONE)
        for node in (first, second):
            await until(partial(serves_only, node, switch.served.model_hash))


async def test_a_stream_of_another_node_keeps_its_weights_where_memory_is_tight(
    nodes: Pipeline,
) -> None:
    first, second = nodes.first, nodes.second
    for node in (first, second):
        node.learn(ONE, 0.01)
    async with first.running(), second.running(TIGHT), nodes.driving() as switch:
        origin = switch.served.model_hash
        # The driver does not know of it.
        stream = await second.executor.open_session(SECOND, 8, model_hash=origin)
        nodes.offer(ONE, 1.0)
        await until(lambda: "which waits for an idle moment" in switch.waiting)
        assert second.executor.versions.hashes == (origin,)
        assert not first.executor.gate.closed or switch.served.model_hash == origin
        stream.close()

        def served() -> bool:
            # An attempt that was under way may end, and put off the next one, after the stream.
            nodes.switch._retry_at = -1.0
            return second.serving.served.version == ONE

        await until(served)


async def test_another_driver_follows_to_newer_weights_and_its_streams_keep_theirs(
    nodes: Pipeline, tmp_path: Path
) -> None:
    first, second = nodes.first, nodes.second
    rival = Holder(first.source.directory, tmp_path / "rival", FIRST)
    nodes.rivals = (rival,)
    for node in (first, second, rival):
        # The third has them from the first, for instance.
        node.learn(ONE, 0.01)
        node.learn(TWO, 0.02, after=ONE)
    theirs = nodes.rival
    async with (
        first.running(),
        second.running(),
        rival.running(),
        nodes.driving() as switch,
        theirs.driving() as other,
    ):
        origin = other.served.model_hash
        stream = await rival.executor.open_session(FIRST, 8)
        nodes.offer(ONE, 1.0)
        await until(lambda: other.served.version == ONE)
        # The first driver needs the old weights no more; the other's stream does.
        await until(lambda: first.executor.versions.hashes == (switch.served.model_hash,))
        await trio.sleep(0.2)
        assert second.executor.versions.hashes == (switch.served.model_hash, origin)
        stream.close()
        for node in (second, rival):
            await until(partial(serves_only, node, switch.served.model_hash))
        # And so on: nothing holds the next version up.
        nodes.offer(TWO, 0.5)
        await until(lambda: other.served.version == TWO)
        for node in (first, second, rival):
            await until(partial(serves_only, node, switch.served.model_hash))


async def test_two_drivers_with_versions_of_their_own_undo_nothing(
    nodes: Pipeline, tmp_path: Path
) -> None:
    first, second = nodes.first, nodes.second
    rival = Holder(first.source.directory, tmp_path / "rival", FIRST)
    nodes.rivals = (rival,)
    first.learn(ONE, 0.01)
    rival.learn(ALSO_ONE, 0.03)
    second.learn(ONE, 0.01)
    second.learn(ALSO_ONE, 0.03, after=ONE)
    theirs = nodes.rival
    async with (
        first.running(),
        second.running(),
        rival.running(),
        nodes.driving() as switch,
        theirs.driving() as other,
    ):
        nodes.offer(ONE, 1.0)
        theirs.offer(ALSO_ONE, 1.0)
        await until(lambda: switch.served.version == ONE)
        await until(lambda: other.served.version == ALSO_ONE)
        both = {switch.served.model_hash, other.served.model_hash}
        await until(lambda: {*second.executor.versions.hashes} == both)
        before = [node.executor.versions.switches for node in (first, second, rival)]
        loads = second.loads
        await trio.sleep(0.5)
        # Each serves its own, and the holder has both all the time.
        assert (switch.served.version, other.served.version) == (ONE, ALSO_ONE)
        assert {*second.executor.versions.hashes} == both
        assert [n.executor.versions.switches for n in (first, second, rival)] == before
        assert second.loads == loads
        # Whoever learns more leads.
        for node in (first, second, rival):
            node.learn(TWO, 0.04)
        nodes.offer(TWO, 0.5)
        await until(lambda: other.served.version == TWO)
        for node in (first, second, rival):
            await until(partial(serves_only, node, switch.served.model_hash))


async def test_a_holder_whose_setting_is_off_serves_what_it_was_started_with(
    nodes: Pipeline,
) -> None:
    for node in (nodes.first, nodes.second):
        node.learn(ONE, 0.01)
    second = nodes.second.running(setting="off")
    async with nodes.first.running(), second, nodes.driving() as switch:
        nodes.offer(ONE, 1.0)
        await until(lambda: "training.serve is off there" in switch.waiting)
        assert switch.served.version == PipelineVersion()


async def test_a_holder_that_has_lost_its_choice_is_told_again(nodes: Pipeline) -> None:
    for node in (nodes.first, nodes.second):
        node.learn(ONE, 0.01)
    async with nodes.first.running(), nodes.driving() as switch:
        async with nodes.second.running():
            nodes.offer(ONE, 1.0)
            await until(lambda: nodes.second.serving.served.version == ONE)
        (nodes.second.folder / "served" / "layers.json").unlink()
        async with nodes.second.running():
            assert nodes.second.serving.served.version == PipelineVersion()
            await until(lambda: nodes.second.serving.served.version == ONE)
            assert nodes.second.peer.model_hash == switch.served.model_hash


async def test_what_holders_have_lost_for_good_is_served_no_more(
    nodes: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions_of_pipelines, "UNCOVERED_S", 0.3)
    for node in (nodes.first, nodes.second):
        node.learn(ONE, 0.01)
    async with nodes.first.running(), nodes.driving() as switch:
        async with nodes.second.running():
            nodes.offer(ONE, 1.0)
            await until(lambda: nodes.second.serving.served.version == ONE)
        for path in (
            *(nodes.second.folder / "served").iterdir(),
            nodes.second.trained.path_of(ONE),
        ):
            path.unlink()
        async with nodes.second.running():
            await until(lambda: switch.served.version == PipelineVersion())
            await until(lambda: "no node has kept" in switch.waiting)
            for node in (nodes.first, nodes.second):
                await until(partial(serves_only, node, switch.served.model_hash))


async def test_what_a_command_claims_is_checked(nodes: Pipeline) -> None:
    second = nodes.second
    second.learn(ONE, 0.01)
    async with second.running():
        serving = second.serving
        with pytest.raises(InvalidRequest):
            await serving.answer(pb.LayerCommand(action="serve", version=str(ONE), model_hash="x"))
        command = pb.LayerCommand(action="serve", version=str(ONE), model_hash="ab" * 32)
        with trio.fail_after(60):
            while "cannot be loaded" not in serving.waiting:
                await serving.answer(command)
                await trio.sleep(0.01)
        assert len(serving.hashes) == 1


def test_a_tied_head_that_was_trained_apart_is_a_tensor_of_its_own() -> None:
    one, two = (TensorFacts(EMBEDDING, (2, 2), letter * 64) for letter in "ab")
    assert joined_facts([{EMBEDDING: one}, {EMBEDDING: one}], tied=True) == {EMBEDDING: one}
    head = TensorFacts(HEAD, (2, 2), "b" * 64)
    both = joined_facts([{EMBEDDING: one}, {EMBEDDING: two}], tied=True)
    assert both == {EMBEDDING: one, HEAD: head}
    with pytest.raises(ModelUnreadable):
        joined_facts([{EMBEDDING: one}, {EMBEDDING: two}], tied=False)
