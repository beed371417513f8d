"""Nodes that train together end every round with identical weights (interface 2.1, 2.3, 4.3)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import trio

from meshnode.domain.training.replica import Report
from meshnode.domain.training.states import State
from meshnode.model.trained_model import TrainedModel
from meshnode.model.training import Batch, StepReport
from meshnode.services.training.overview import survey
from spec_tests.services.training.trainers import (
    PATIENT,
    TrainingNode,
    agreed,
    training_nodes,
    wait_for,
)


def first_loss(node: TrainingNode) -> float:
    assert node.training.rounds
    return node.training.rounds.record.losses[0]


async def test_two_nodes_end_each_round_with_the_same_weights(model: Path, tmp_path: Path) -> None:
    async with training_nodes(model, tmp_path, 2) as (nodes, nursery):
        for node in nodes:
            node.timings = PATIENT
            await nursery.start(node.run)
        await wait_for(lambda: agreed(nodes, 4))
        for node in nodes:
            found = survey(node.training)
            assert found.hash_agreement_rate == 1.0
            assert found.nodes == 2
            # Training takes what the machine has left, so rounds may fail where it is busy.
            assert found.successful_syncs >= 2
            assert found.shards == tuple(range(16))
            assert found.tokens == 16 * 8 * found.steps
            assert node.training.rounds
            assert node.training.rounds.record.losses[-1] < first_loss(node)
            figures = node.training.figures()
            assert figures.steps_total == node.training.rounds.learner.progress.steps > 12

        def all_counted() -> bool:
            """Both count each contribution; who receives it does so a moment earlier."""
            figures = [node.training.figures() for node in nodes]
            accepted = sum(each.gradients_accepted for each in figures)
            return sum(each.gradients_submitted for each in figures) == accepted > 0

        await wait_for(all_counted)


async def test_a_late_joiner_and_a_leaver(model: Path, tmp_path: Path) -> None:
    async with training_nodes(model, tmp_path, 3) as (nodes, nursery):
        for node in nodes[:2]:
            await nursery.start(node.run)
        await wait_for(lambda: agreed(nodes[:2], 2))
        await nursery.start(nodes[2].run)
        await wait_for(lambda: agreed(nodes, 3))
        assert nodes[2].training.rounds
        # It adopts twice if the round in progress at its start ended without it.
        assert nodes[2].training.rounds.replica.tally.adopted in (1, 2)
        version = nodes[0].kept[0]
        nodes[2].enable(on=False)
        await wait_for(lambda: agreed(nodes[:2], version + 2))
        await wait_for(lambda: survey(nodes[0].training).nodes == 2)


async def test_a_node_that_dies_and_comes_back_goes_on(model: Path, tmp_path: Path) -> None:
    async with training_nodes(model, tmp_path, 3) as (nodes, nursery):
        for node in nodes:
            await nursery.start(node.run)
        await wait_for(lambda: agreed(nodes, 2))
        version, _ = nodes[2].kept
        assert nodes[2].scope
        nodes[2].scope.cancel()
        await wait_for(lambda: agreed(nodes[:2], version + 2))
        nodes[2].enable(on=False)
        await nursery.start(nodes[2].run)
        nodes[2].enable(on=True)
        await wait_for(lambda: nodes[2].training.rounds is not None)
        assert nodes[2].kept[0] >= version
        await wait_for(lambda: agreed(nodes, version + 3))


@pytest.mark.slow
async def test_a_partition_that_heals(model: Path, tmp_path: Path) -> None:
    async with training_nodes(model, tmp_path, 4) as (nodes, nursery):
        for node in nodes:
            await nursery.start(node.run)
        await wait_for(lambda: agreed(nodes, 1))
        halves = nodes[:2], nodes[2:]
        for half in halves:
            for node in half:
                node.peers = [other for other in half if other is not node]
        version = nodes[0].kept[0]
        await wait_for(lambda: agreed(nodes[:2], version + 2) and agreed(nodes[2:], version + 2))
        for node in nodes:
            node.peers = [other for other in nodes if other is not node]
        await wait_for(lambda: agreed(nodes, version + 3))


async def test_settings_change_in_the_middle_of_a_round(model: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, float]] = []

    class Watched(TrainedModel):
        def inner_step(self, batch: Batch, learning_rate: float) -> StepReport:
            seen.append((len(batch.inputs), learning_rate))
            return super().inner_step(batch, learning_rate)

    endless = {"training.diloco_steps": 1_000_000}
    async with training_nodes(model, tmp_path, 1, **endless) as ([node], nursery):
        node.trained = Watched
        await nursery.start(node.run)
        await wait_for(lambda: len(seen) > 1)
        assert set(seen) == {(8, 1e-3)}
        node.settings.change(batch_size=2, learning_rate=5e-4)
        await wait_for(lambda: (2, 5e-4) in seen)
        assert node.kept[0] == 0
        node.settings.change(diloco_steps=2)
        await wait_for(lambda: agreed([node], 1))
        assert set(seen) == {(8, 1e-3), (2, 5e-4)}


async def test_rounds_read_everything_once_before_anything_again(
    model: Path, tmp_path: Path
) -> None:
    seen: list[tuple[int, ...]] = []

    class Watched(TrainedModel):
        def inner_step(self, batch: Batch, learning_rate: float) -> StepReport:
            seen.extend(tuple(row) for row in batch.inputs.tolist())
            return super().inner_step(batch, learning_rate)

    async with training_nodes(model, tmp_path, 1) as ([node], nursery):
        node.trained = Watched
        await nursery.start(node.run)
        rows = sorted(tuple(row[:-1]) for row in node.data.train.tolist())
        await wait_for(lambda: len(seen) >= len(rows))
        assert node.kept[0] >= 1
        assert sorted(seen[: len(rows)]) == rows


async def test_a_round_that_waits_runs_only_when_there_is_news(model: Path, tmp_path: Path) -> None:
    async with training_nodes(model, tmp_path, 2) as (nodes, nursery):
        node, silent = nodes
        await nursery.start(node.run)
        await nursery.start(silent.run)
        await wait_for(lambda: agreed(nodes, 1))
        rounds = node.training.rounds
        assert rounds
        acted = 0
        act = rounds._act

        async def counting(now: float) -> bool:
            nonlocal acted
            acted += 1
            return await act(now)

        rounds._act = counting  # type: ignore[method-assign]
        # The other node keeps computing and answering, but never contributes.
        silent.settings.change(diloco_steps=1_000_000)
        assert silent.training.rounds
        silent.training.rounds.replica.must_hurry = lambda *_: False  # type: ignore[method-assign]
        await wait_for(lambda: rounds.replica.state is State.EXCHANGE)
        heard, hear = 0, rounds.replica.heard

        def counted(peer: str, report: Report, now: float) -> None:
            nonlocal heard
            heard += 1
            hear(peer, report, now)

        rounds.replica.heard = counted  # type: ignore[method-assign]
        acted = 0
        await wait_for(lambda: rounds.replica.state is not State.EXCHANGE)
        # It acts about once for each report, each deadline and each search for new peers. The
        # bound leaves room for more.
        assert acted <= 2 * heard + 10
        # The node waits again; cancelling ends the wait at once.
        assert node.scope
        node.scope.cancel()
        with trio.fail_after(5):
            await wait_for(lambda: node.scope is None)


async def test_cancelling_leaves_no_thread_behind(model: Path, tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    async with training_nodes(model, tmp_path, 1) as ([node], nursery):
        await nursery.start(node.run)
        await wait_for(lambda: agreed([node], 1))
        assert node.scope
        node.scope.cancel()
        await wait_for(lambda: node.scope is None)
    assert torch.get_num_threads() == threads
    await trio.lowlevel.checkpoint()
