"""Slow nodes, and contributions that come too late for their round (decisions 0190 and 0245)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from meshnode.domain.training.message import digest_of
from meshnode.domain.training.states import State
from meshnode.model.diloco import Contribution, Rule
from meshnode.model.trained_model import Anchor, TrainedModel
from meshnode.model.training import Batch, StepReport
from meshnode.services.training.messages import contribution_in
from meshnode.services.training.rounds import Rounds
from meshnode.wire import node_pb2 as pb
from spec_tests.services.training.trainers import (
    PATIENT,
    TrainingNode,
    agreed,
    training_nodes,
    wait_for,
)

ENDLESS = 1_000_000
SLOW_S = 0.5


def stepping(seconds: float, weighed: list[tuple[float, ...]]) -> type[TrainedModel]:
    """A model whose steps take at least so long, and that notes the weights of each set."""

    class Stepping(TrainedModel):
        def inner_step(self, batch: Batch, learning_rate: float) -> StepReport:
            time.sleep(seconds)
            return super().inner_step(batch, learning_rate)

        def applied(
            self,
            contributions: Sequence[Contribution],
            rule: Rule,
            weights: Sequence[float] | None = None,
        ) -> Anchor:
            weighed.append(tuple(weights or ()))
            return super().applied(contributions, rule, weights)

    return Stepping


async def test_a_slow_node_takes_fewer_steps_and_counts_by_them(
    model: Path, tmp_path: Path
) -> None:
    weighed: dict[str, list[tuple[float, ...]]] = {}
    steps = {"training.diloco_steps": 30}
    async with training_nodes(model, tmp_path, 3, **steps) as (nodes, nursery):
        for node in nodes:
            noted = weighed.setdefault(node.key.node_id, [])
            slow_s = SLOW_S if node is nodes[-1] else 0.0
            node.timings, node.trained = PATIENT, stepping(slow_s, noted)
            await nursery.start(node.run)
        await wait_for(lambda: agreed(nodes, 4))
        for node in nodes:
            assert node.training.rounds
            assert node.training.rounds.replica.tally.successful_syncs
    common = min(map(len, weighed.values()))
    sets = {tuple(noted[:common]) for noted in weighed.values()}
    assert len(sets) == 1
    order = sorted(node.key.node_id for node in nodes)
    of_slow = [weights[order.index(nodes[-1].key.node_id)] for weights in sets.pop()]
    # In the first round a node may not know yet how long its steps take.
    assert all(weight < 0.9 for weight in of_slow[1:]), of_slow


def move_on(rounds: Rounds) -> None:
    """Let the round move on, by contributions of a node that equivocates and so counts nowhere."""
    replica, round_id = rounds.replica, rounds.replica.round_id + 1
    for digest in ("1" * 64, "2" * 64):
        assert not replica.contributed("e" * 40, round_id, replica.kept.model_hash, digest)


def moved_on_during(owner: Any, name: str, rounds: Rounds) -> None:
    """Let the round move on during the next call of a method, and change no later one."""
    undisturbed = getattr(owner, name)

    async def disturbed(*arguments: Any) -> Any:
        setattr(owner, name, undisturbed)
        found = await undisturbed(*arguments)
        move_on(rounds)
        return found

    setattr(owner, name, disturbed)


def filed(node: TrainingNode) -> pb.GossipGradientRequest:
    return pb.GossipGradientRequest.FromString((node.folder / "contribution.bin").read_bytes())


@pytest.mark.parametrize(
    ("owner", "name"),
    [("learner", "contribution"), ("record", "feedback"), ("record", "save_contribution")],
)
async def test_a_round_that_moves_on_gets_one_contribution_and_feedback_counts_once(
    model: Path, tmp_path: Path, owner: str, name: str
) -> None:
    settings = {"training.diloco_steps": ENDLESS, "training.gradients": "sparse"}
    async with training_nodes(model, tmp_path, 1, **settings) as ([node], nursery):
        await nursery.start(node.run)
        await wait_for(lambda: (r := node.training.rounds) is not None and inner(r))
        rounds = node.training.rounds
        assert rounds
        moved_on_during(getattr(rounds, owner), name, rounds)
        before = rounds.replica.round_id
        sent: list[str] = []
        done = rounds.replica.inner_done

        def noted(digest: str, now: float) -> None:
            sent.append(digest)
            done(digest, now)

        rounds.replica.inner_done = noted  # type: ignore[method-assign]
        node.settings.change(diloco_steps=1)
        await wait_for(lambda: bool(sent))
        node.settings.change(diloco_steps=ENDLESS)
        await wait_for(lambda: node.kept[0] == before + 1)
        # The one for the round that has moved on was seen by nobody, and is gone.
        assert len(sent) == 1
        message = filed(node)
        assert digest_of(contribution_in(message).statement()) == sent[0]
        assert message.round_id == before + 1
        await wait_for(lambda: rests(node) == [f"feedback-{sent[0][:16]}.safetensors"])
        assert rounds.replica.persisted().feedback == sent[0]


def inner(rounds: Rounds) -> bool:
    return rounds.replica.state is State.INNER and rounds.learner.progress.inner_step > 0


def rests(node: TrainingNode) -> list[str]:
    return sorted(path.name for path in node.folder.glob("feedback-*"))
