"""One liar among five, over real gRPC: the honest agree and learn, unless they trust everybody."""

from __future__ import annotations

import math
from pathlib import Path

import lz4.frame
import pytest
import torch
import trio

from meshnode.domain.metering import TrafficMeter
from meshnode.domain.training.message import sign
from meshnode.model.diloco import Rule, aggregate
from meshnode.model.trained_model import Tensors, TrainedModel
from meshnode.rpc.channel import open_channel
from meshnode.rpc.node_grpc import NodeServiceStub
from meshnode.services.training.messages import contribution_in
from meshnode.wire import node_pb2 as pb
from spec_tests.services.training.trainers import (
    PATIENT,
    WITHIN_S,
    TrainingNode,
    agreed,
    training_nodes,
    wait_for,
)

pytestmark = pytest.mark.usefixtures("one_thread")

NODES, VERSION = 5, 3


class Liar(TrainedModel):
    """Trains like the other nodes, but contributes a false gradient, another kind each round."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.first: Tensors | None = None
        self.said = 0

    def pseudo_gradient(self) -> Tensors:
        own = super().pseudo_gradient()
        self.first = self.first or own
        lies = (
            {name: -20 * tensor for name, tensor in own.items()},
            {name: 100 * tensor for name, tensor in own.items()},
            {name: -30 * tensor for name, tensor in self.first.items()},
        )
        self.said += 1
        return lies[self.said % len(lies)]


async def losses_with_a_liar(model: Path, folder: Path, rule: Rule) -> list[float]:
    """Return an honest node's held-out losses, once all honest nodes have the same weights."""
    async with training_nodes(model, folder, NODES) as (nodes, nursery):
        for node in nodes:
            node.rule = rule
        nodes[-1].trained = Liar
        for node in nodes:
            await nursery.start(node.run)
        honest = nodes[:-1]
        # The liar must have contributed too: otherwise the test would prove nothing.
        await wait_for(lambda: agreed(honest, VERSION), 90)
        assert nodes[-1].training.figures().gradients_submitted > 0
        assert honest[0].training.rounds
        return list(honest[0].training.rounds.record.losses)


@pytest.mark.slow
async def test_robust_rules_learn_where_the_mean_does_not(model: Path, tmp_path: Path) -> None:
    found = {}
    for rule in (Rule.TRIMMED_MEAN, Rule.MEAN):
        (tmp_path / rule).mkdir()
        found[rule] = await losses_with_a_liar(model, tmp_path / rule, rule)
    robust, trusting = found[Rule.TRIMMED_MEAN], found[Rule.MEAN]
    assert robust[-1] < robust[0]
    assert max(trusting) > robust[-1] + 0.5


async def spam(node: TrainingNode, liar: TrainingNode, template: pb.GossipGradientRequest) -> int:
    """Send four invalid contributions, and return how many were accepted.

    They have NaN values, an old round, another model hash, or an unknown node's id.
    """
    taken = 0
    async with open_channel("127.0.0.1", node.port, traffic=TrafficMeter()) as channel:
        stub = NodeServiceStub(channel)
        rounds_of = node.training.rounds
        assert rounds_of
        for lie in ("nan", "old", "copy", "stranger"):
            message = pb.GossipGradientRequest()
            message.CopyFrom(template)
            message.node_id = liar.key.node_id
            message.round_id = rounds_of.replica.round_id
            if lie == "nan":
                for name, shape in rounds_of.learner.model.shapes.items():
                    raw = b"\0\0\xc0\x7f" * math.prod(shape)
                    message.layer_gradients[name] = lz4.frame.compress(raw)
            elif lie == "old":
                message.round_id = 1
            elif lie == "copy":
                message.model_hash = "ab" * 32
            else:
                message.node_id = "cd" * 20
            message.signature = sign(liar.key.seed, contribution_in(message).statement())
            answer = await stub.GossipGradient(message)
            assert answer.reason or answer.accepted
            taken += answer.accepted
    return taken


async def test_malformed_contributions_are_refused_and_disturb_no_round(
    model: Path, tmp_path: Path
) -> None:
    async with training_nodes(model, tmp_path, 3) as (nodes, nursery):
        *honest, liar = nodes
        liar.enable(on=False)
        for node in nodes:
            node.timings = PATIENT
            await nursery.start(node.run)
        await wait_for(lambda: agreed(honest, 1))
        first = honest[0].training.rounds
        assert first
        await wait_for(lambda: bool(first.contributions.messages))
        template = next(iter(first.contributions.messages.values()))
        version = honest[0].kept[0]
        tallies = [node.training.rounds.replica.tally for node in honest if node.training.rounds]
        before = [tally.successful_syncs for tally in tallies]
        with trio.fail_after(WITHIN_S):
            for node in honest:
                for _ in range(3):
                    assert await spam(node, liar, template) == 0
        await wait_for(lambda: agreed(honest, version + 2))
        # Training takes what the rest of the machine leaves, so rounds may fail where it is busy.
        assert any(t.successful_syncs > had for t, had in zip(tallies, before, strict=True))


def test_the_sum_does_not_depend_on_how_zeros_are_sorted() -> None:
    signed = [{"w": torch.tensor([zero])} for zero in (0.0, -0.0, 0.0, -0.0)]
    results = {float(aggregate(Rule.TRIMMED_MEAN, signed)["w"]).hex() for _ in range(3)}
    assert len(results) == 1
