"""A pipeline keeps each round at all of its holders, and goes on from there (decision 0201)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from meshnode.domain.training.position import PipelineVersion, Position
from meshnode.services.pipeline.training import TrainingDriver
from meshnode.services.shards.layer_versions import LayerVersions
from meshnode.services.shards.trained_layers import TrainedLayers
from spec_tests.services.pipeline.pipelines import Holder, cluster, small_model, spans
from spec_tests.services.pipeline.test_training import LABELS, TOKENS, driver_of

ROUND = 3


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("pipeline") / "model")


@dataclass
class TrainingPipeline:
    """A driver and two holders, each with a disk."""

    driver: TrainingDriver
    nodes: list[Holder]
    folder: Path
    taken: int = 0

    async def step(self, count: int = 1) -> list[float]:
        """Take steps with one batch, so that equal weights give equal losses."""
        losses = []
        for _ in range(count):
            self.taken += 1
            session = f"{self.taken:032x}"
            losses.append(await self.driver.step(session, TOKENS, LABELS, update=True))
        return losses

    def start(self, number: int, folder: str = "") -> None:
        """Start a node's training, as a restarted process would; with another folder, anew."""
        node = self.nodes[number]
        disk = TrainedLayers(self.folder / (folder or str(number)), "a" * 64, node.layers)
        training = node.training
        training.versions = LayerVersions(disk)
        training._decoder = None
        training._stepper.forget()

    @property
    def positions(self) -> list[Position]:
        return [node.training.position for node in self.nodes]

    @property
    def kept(self) -> list[tuple[PipelineVersion, ...]]:
        return [node.training.versions.versions for node in self.nodes]


@asynccontextmanager
async def pipeline(directory: Path, folder: Path) -> AsyncIterator[TrainingPipeline]:
    own, *rest = spans(2, 4)
    async with cluster(directory, own, rest) as nodes:
        driver, mine = await driver_of(nodes, own, ROUND)
        found = TrainingPipeline(driver, [mine, *nodes.holders], folder)
        for number in range(3):
            found.start(number)
        yield found


async def test_a_round_is_kept_by_all_under_one_name(directory: Path, tmp_path: Path) -> None:
    async with pipeline(directory, tmp_path) as line:
        await line.step(ROUND)
        assert line.kept == [(), (), ()]
        await line.step(2 * ROUND)
        first, second, third = line.positions
        assert first == second == third
        assert (first.version.number, first.steps) == (2, ROUND)
        # The one before stays, because a node may have failed before it kept the latest.
        assert line.kept[0] == line.kept[1] == line.kept[2]
        assert [one.number for one in line.kept[0]] == [2, 1]
        await line.step()
        assert [one.number for one in line.kept[0]] == [3, 2]


@pytest.mark.parametrize("number", [0, 1, 2])
async def test_all_go_back_to_what_a_restarted_node_has(
    directory: Path, tmp_path: Path, number: int
) -> None:
    async with pipeline(directory, tmp_path) as line:
        await line.step(ROUND)
        begun, *rest = await line.step(ROUND)
        assert rest[-1] < begun
        line.start(number)
        # The restarted node is three steps behind, so all take the first step of the round again.
        assert (await line.step())[0] == pytest.approx(begun, abs=1e-6)
        assert {str(position) for position in line.positions} == {f"{line.kept[0][0]}:1"}
        # Moments of the optimizer begin anew, as after any restart.
        assert (await line.step(ROUND - 1))[-1] < begun


async def test_a_restart_of_all_goes_on_from_the_last_round(
    directory: Path, tmp_path: Path
) -> None:
    async with pipeline(directory, tmp_path) as line:
        await line.step(ROUND)
        begun, *_ = await line.step(ROUND)
        version = line.kept[0][0]
    async with pipeline(directory, tmp_path) as line:
        assert [str(position) for position in line.positions] == [f"{version}:0"] * 3
        assert (await line.step())[0] == pytest.approx(begun, abs=1e-6)


async def test_a_node_that_missed_the_end_of_a_round_keeps_it_later(
    directory: Path, tmp_path: Path
) -> None:
    """Its message was lost after the others had kept the version; nobody goes back for that."""
    async with pipeline(directory, tmp_path) as line:
        await line.step(ROUND)
        last = line.nodes[2].training
        at_the_end = last.versions._place
        await line.step()
        newest = line.kept[0][0]
        # As if the last node had neither kept the version nor taken the step after it.
        last.versions._place, last.versions.versions = at_the_end, ()
        await line.step()
        assert line.kept[2] == (newest,)
        assert {str(position) for position in line.positions} == {f"{newest}:2"}


async def test_a_new_node_joins_with_what_it_has(
    directory: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody has a version of these layers any more; the others keep theirs."""
    async with pipeline(directory, tmp_path) as line:
        await line.step(2 * ROUND)
        weights = [
            p.detach().clone() for p in (await line.nodes[0].training._trainable()).parameters()
        ]
        line.start(1, "new")
        await line.step()
        assert "no version in common" in caplog.text
        assert len({str(position) for position in line.positions}) == 1
        after = (await line.nodes[0].training._trainable()).parameters()
        moved = max(
            float((a - b).detach().abs().max()) for a, b in zip(weights, after, strict=True)
        )
        assert 0 < moved < 0.01
        # From now on it takes part in what is kept.
        await line.step(ROUND)
        assert line.kept[1][0] == line.kept[0][0]


async def test_a_new_driver_keeps_what_the_others_have_learned(
    directory: Path, tmp_path: Path
) -> None:
    async with pipeline(directory, tmp_path) as line:
        await line.step(2 * ROUND)
        weights = [
            p.detach().clone() for p in (await line.nodes[2].training._trainable()).parameters()
        ]
        line.start(0, "new")
        await line.step()
        after = (await line.nodes[2].training._trainable()).parameters()
        moved = max(
            float((a - b).detach().abs().max()) for a, b in zip(weights, after, strict=True)
        )
        assert 0 < moved < 0.01
        assert line.kept[0][0] == line.kept[1][0] == line.kept[2][0]
        assert line.kept[0][0].number == 2


async def test_a_full_disk_stops_no_training(
    directory: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with pipeline(directory, tmp_path) as line:
        (tmp_path / "1").write_text("no folder")
        await line.step(ROUND + 1)
        assert "this version is not kept" in caplog.text
        assert line.kept[1] == ()
        assert len(line.kept[0]) == 1
        assert torch.isfinite(torch.tensor(await line.step())).all()
