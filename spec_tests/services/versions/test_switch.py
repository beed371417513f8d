"""Switching while the node serves: beside the present version, or in its place (decision 0225)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import trio
import trio.testing

from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.training.serving import Measured
from meshnode.model.documents import ModelUnreadable
from meshnode.model.engine import Engine
from meshnode.model.loading import LoadedModel, load_model
from meshnode.services.executor import EngineLimits, Executor, ServedVersion, serve_executor
from meshnode.services.versions.service import (
    Candidate,
    VersionDependencies,
    VersionSwitch,
    serve_versions,
)
from meshnode.services.versions.store import VersionFiles, VersionStore
from meshnode.services.wakeup import Wakeup
from spec_tests.services.executor.generations import GREEDY, LIMITS, complete, read
from spec_tests.services.versions.test_store import source_of, trained

LONG = replace(GREEDY, max_tokens=60)


@dataclass
class Trainer:
    """Stands in for training: says what is newest, and what was measured."""

    newest: Candidate | None = None
    losses: dict[str, float] = field(default_factory=dict)
    news: Wakeup = field(default_factory=Wakeup)
    dependent: str = ""
    damaged: bool = False
    loads: int = 0

    def load(self, version: VersionFiles) -> LoadedModel:
        self.loads += 1
        if self.damaged and version.weights.version:
            raise ModelUnreadable("the file is damaged")
        return load_model(version.files)

    def offer(self, path: Path, weights: WeightsVersion, loss: float) -> None:
        self.losses[weights.model_hash] = loss
        self.newest = Candidate(Measured(weights, loss), path)
        self.news.set()


@asynccontextmanager
async def switching(
    directory: Path, folder: Path, limits: EngineLimits = LIMITS, setting: str = "better"
) -> AsyncIterator[tuple[Executor, VersionSwitch, Trainer]]:
    store, trainer = VersionStore(folder, source_of(directory, folder)), Trainer()
    first = store.chosen()
    trainer.losses[first.weights.model_hash] = 2.0
    loaded = load_model(first.files)
    engine = Engine(loaded.decoder, limits.max_batch)
    version = ServedVersion(first.weights, first.model_hash, loaded.facts, engine)
    async with trio.open_nursery() as nursery:
        executor: Executor = await nursery.start(serve_executor, version, limits)
        needs = VersionDependencies(
            executor=executor,
            store=store,
            setting=setting,
            dtype="float32",
            load=trainer.load,
            newest=lambda: trainer.newest,
            loss_of=lambda weights: trainer.losses.get(weights.model_hash),
            dependent=lambda: trainer.dependent,
            news=trainer.news,
        )
        switch = VersionSwitch(needs, first)
        await nursery.start(serve_versions, switch)
        with trio.fail_after(300):
            yield executor, switch, trainer
        nursery.cancel_scope.cancel()


async def until_served(switch: VersionSwitch, version: int) -> None:
    while switch.served.weights.version != version:  # noqa: ASYNC110 - a thread loads it
        await trio.sleep(0.01)


async def test_only_better_weights_are_served_and_streams_go_on(
    directory: Path, tmp_path: Path
) -> None:
    worse, w1 = trained(directory, tmp_path, 1, 0.01)
    better, w2 = trained(directory, tmp_path, 2, 0.02)
    async with switching(directory, tmp_path) as (executor, switch, trainer):
        trainer.offer(worse, WeightsVersion(1, w1.model_hash), 2.1)
        async with await executor.open(LONG) as generation:
            await generation.__anext__()
            trainer.offer(better, WeightsVersion(2, w2.model_hash), 1.5)
            await until_served(switch, 2)
            await read(generation)
            assert generation.model_hash != switch.served.model_hash
        assert trainer.loads == 1
        assert (switch.served_loss, executor.versions.switches) == (1.5, 1)
        assert executor.versions.hashes == (switch.served.model_hash,)
    # What is served is served again.
    async with switching(directory, tmp_path) as (executor, switch, _):
        assert switch.served.weights.version == 2
        assert executor.versions.current.weights.version == 2


async def test_without_memory_for_two_it_waits_for_an_idle_moment(
    directory: Path, tmp_path: Path
) -> None:
    path, anchor = trained(directory, tmp_path, 1, 0.01)
    tight = replace(LIMITS, kv_bytes=1 << 18)
    async with switching(directory, tmp_path, tight) as (executor, switch, trainer):
        assert executor.versions.weight_bytes > executor.spare_bytes
        async with await executor.open(LONG) as generation:
            await generation.__anext__()
            trainer.offer(path, WeightsVersion(1, anchor.model_hash), 1.5)
            while not switch.waiting:  # noqa: ASYNC110 - weights are read in a thread
                await trio.sleep(0.01)
            assert "waits for an idle moment: resources.max_memory_gb" in switch.waiting
            await read(generation)
            assert switch.served.weights.version == 0
        # A request that comes while it loads waits, and gets the new version.
        while not executor.gate.closed:  # noqa: ASYNC110 - set by another task
            await trio.sleep(0.001)
        async with await executor.open(GREEDY) as generation:
            await read(generation)
            assert generation.model_hash == switch.served.model_hash
        assert (switch.served.weights.version, switch.waiting) == (1, "")


@pytest.mark.parametrize("kv_bytes", [LIMITS.kv_bytes, 1 << 18])
async def test_a_version_that_cannot_be_loaded_changes_nothing(
    directory: Path, tmp_path: Path, kv_bytes: int
) -> None:
    """Neither where both fit into memory, nor where the present one had to be freed first."""
    path, anchor = trained(directory, tmp_path, 1, 0.01)
    limits = replace(LIMITS, kv_bytes=kv_bytes)
    async with switching(directory, tmp_path, limits) as (executor, switch, trainer):
        text, _ = await complete(executor, GREEDY)
        trainer.damaged = True
        trainer.offer(path, WeightsVersion(1, anchor.model_hash), 1.5)
        while "cannot be served" not in switch.waiting:  # noqa: ASYNC110 - a thread loads it
            await trio.sleep(0.01)
        assert (await complete(executor, GREEDY))[0] == text
        assert switch.served.weights.version == 0
        assert executor.versions.current.weights.version == 0


async def test_it_does_not_leave_peers_without_holders(directory: Path, tmp_path: Path) -> None:
    path, anchor = trained(directory, tmp_path, 1, 0.01)
    async with switching(directory, tmp_path, setting="latest") as (_, switch, trainer):
        trainer.dependent = "10.0.0.7:8080"
        trainer.offer(path, WeightsVersion(1, anchor.model_hash), 9.0)
        while "10.0.0.7:8080 holds only some layers" not in switch.waiting:  # noqa: ASYNC110
            await trio.sleep(0.01)
        trainer.dependent = ""
        trainer.news.set()
        await until_served(switch, 1)


async def test_off_serves_what_the_node_was_started_with(directory: Path, tmp_path: Path) -> None:
    path, anchor = trained(directory, tmp_path, 1, 0.01)
    async with switching(directory, tmp_path, setting="off") as (executor, switch, trainer):
        trainer.offer(path, WeightsVersion(1, anchor.model_hash), 0.1)
        await trio.testing.wait_all_tasks_blocked()
        await complete(executor, GREEDY)
        assert (trainer.loads, switch.served.weights.version) == (0, 0)
