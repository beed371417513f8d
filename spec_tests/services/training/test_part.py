"""Decision 0105: what a node does in a pipeline that trains, without the pipeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
import trio
from torch import Tensor

from meshnode.config import build_config
from meshnode.domain.errors import StartupError, Unavailable
from meshnode.domain.training.position import PipelineVersion, Position
from meshnode.domain.training.trend import IMPROVING
from meshnode.edges.http_training import verdict
from meshnode.model.data import TokenData
from meshnode.services.training.overview import survey_of_pipeline
from meshnode.services.training.part import PipelinePart
from meshnode.services.training.timings import TRAINING_TIMINGS
from meshnode.services.wakeup import Wakeup
from spec_tests.services.training.trainers import ChangingSettings, token_data, wait_for


@dataclass
class Steps:
    """Stands in for the driver: ``script(number)`` returns a step's loss, or raises."""

    script: Callable[[int], float]
    nodes: int = 3
    most: int = 20
    """Number of completed steps after which the next one hangs."""
    done: int = 0
    sessions: list[str] = field(default_factory=list)
    read: list[Tensor] = field(default_factory=list)

    async def step(
        self, session_id: str, tokens: Tensor, labels: Tensor, *, update: bool = False
    ) -> float:
        await trio.lowlevel.checkpoint()
        if self.done >= self.most:
            await trio.sleep_forever()
        assert update
        assert torch.equal(tokens[:, 1:], labels[:, :-1])
        self.sessions.append(session_id)
        self.read.append(tokens)
        loss = self.script(len(self.read) - 1)
        self.done += 1
        return loss

    async def loss(self, tokens: Tensor, labels: Tensor) -> float:
        await trio.lowlevel.checkpoint()
        return 10.0 - self.done


@dataclass
class Updates:
    """Stands in for this node's shard trainer: counts the updates of its layers."""

    script: Steps
    stepped: Wakeup = field(default_factory=Wakeup)

    @property
    def steps(self) -> int:
        return self.script.done

    @property
    def position(self) -> Position:
        number, steps = divmod(self.script.done, 2)
        return Position(PipelineVersion(number, "ab" * 8), steps)


class Node:
    """A ``PipelinePart`` with settings that a test changes."""

    def __init__(
        self,
        steps: Steps,
        *,
        drives: bool = True,
        load: Callable[[], TokenData] = token_data,
        measures: bool = False,
        updates: type[Updates] = Updates,
    ) -> None:
        config = build_config(
            {"data_dir": "none", "training.diloco_steps": 2, "training.batch_size": 4}
        )
        self.settings = ChangingSettings(config)
        self.updates = updates(steps)
        self.part = PipelinePart(
            settings=self.settings,
            updates=self.updates,
            driver=steps if drives else None,
            load=load,
            seed=7,
            timings=replace(TRAINING_TIMINGS, step_retry_s=0.01),
            measures=measures,
        )

    def said(self) -> dict[str, object]:
        return {**verdict(survey_of_pipeline(self.part))}


async def test_a_batch_is_used_until_a_step_with_it_succeeds(nursery: trio.Nursery) -> None:
    failing = True

    def script(number: int) -> float:
        if failing and number >= 2:
            raise Unavailable("no reachable node holds layers 3-4")
        return 4.0 / (number + 1)

    steps = Steps(script)
    node = Node(steps)
    nursery.start_soon(node.part.run)
    assert node.said()["is_working"] is False
    node.settings.change(enabled=True)
    await wait_for(lambda: len(steps.read) > 5)
    assert node.said()["reason"] == "no reachable node holds layers 3-4"
    assert node.part.nodes == 0
    stuck = steps.read[2]
    assert all(torch.equal(tokens, stuck) for tokens in steps.read[2:])
    assert len(set(steps.sessions)) == len(steps.sessions)
    # A smaller batch size also applies to the batch that is being retried.
    node.settings.change(batch_size=2)
    await wait_for(lambda: len(steps.read[-1]) == 2)
    failing = False
    await wait_for(lambda: steps.done == steps.most and node.part.progress.steps == steps.most)
    assert node.said()["is_working"] is True
    assert node.part.nodes == 3
    found = survey_of_pipeline(node.part)
    assert found.trend == IMPROVING
    assert node.part.figures().epoch == 10
    assert found.steps == 20
    node.settings.change(enabled=False)
    await wait_for(lambda: node.part.nodes == 0)


class Keeping(Updates):
    """Keeps a version with the step that follows two others, as the shard trainer does."""

    @property
    def position(self) -> Position:
        number = max(0, (self.script.done - 1) // 2)
        version = PipelineVersion(number, "ab" * 8) if number else PipelineVersion()
        return Position(version, self.script.done - 2 * number)


async def test_the_held_out_loss_of_each_version_is_that_of_its_weights(
    nursery: trio.Nursery,
) -> None:
    node = Node(Steps(lambda _: 1.0, most=7), measures=True, updates=Keeping)
    node.settings.change(enabled=True)
    nursery.start_soon(node.part.run)
    await wait_for(lambda: len(node.part.held_out) == 4)
    # Version n is what the weights were after 2 n steps.
    assert [(one.number, loss) for one, loss in node.part.held_out.items()] == [
        (0, 10.0),
        (1, 8.0),
        (2, 6.0),
        (3, 4.0),
    ]


async def test_unreadable_data_is_reported_and_read_again_later(nursery: trio.Nursery) -> None:
    there = False

    def load() -> TokenData:
        if not there:
            raise StartupError("training: no data")
        return token_data()

    node = Node(Steps(lambda _: 1.0), load=load)
    node.settings.change(enabled=True)
    nursery.start_soon(node.part.run)
    await wait_for(lambda: node.said()["reason"] == "no data")
    there = True
    await wait_for(lambda: bool(node.said()["is_working"]))


async def test_a_follower_knows_of_the_steps_that_come_by(nursery: trio.Nursery) -> None:
    steps = Steps(lambda _: 1.0)
    node = Node(steps, drives=False)
    node.settings.change(enabled=True)
    nursery.start_soon(node.part.run)
    await wait_for(lambda: "has come" in str(node.said()["reason"]))
    assert "first layers" in str(node.said()["action"])
    steps.done = 5
    node.updates.stepped.set()
    await wait_for(lambda: bool(node.said()["is_working"]))
    assert node.part.figures().steps_total == 5
    assert survey_of_pipeline(node.part).nodes == 1
