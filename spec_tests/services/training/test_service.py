"""Nodes that train together end every round with identical weights (interface 2.1, 2.3, 4.3)."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import safetensors.torch
import torch
import trio

from meshnode.domain.metering import TrafficMeter
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.training.message import sign
from meshnode.domain.training.replica import Report
from meshnode.domain.training.states import State
from meshnode.edges.http_training import verdict
from meshnode.model.manifest import manifest_of_tensors
from meshnode.model.trained_model import TrainedModel
from meshnode.model.training import Batch, StepReport
from meshnode.rpc.channel import open_channel
from meshnode.rpc.node_grpc import NodeServiceStub
from meshnode.services.training import gossip
from meshnode.services.training.disk import TrainingDisk
from meshnode.services.training.messages import contribution_in
from meshnode.services.training.overview import compare, survey
from meshnode.wire import node_pb2 as pb
from spec_tests.model.small_models import make_model
from spec_tests.services.training.trainers import TrainingNode, agreed, training_nodes, wait_for


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


def first_loss(node: TrainingNode) -> float:
    assert node.training.rounds
    return node.training.rounds.record.losses[0]


async def test_two_nodes_end_each_round_with_the_same_weights(model: Path, tmp_path: Path) -> None:
    async with training_nodes(model, tmp_path, 2) as (nodes, nursery):
        for node in nodes:
            await nursery.start(node.run)
        await wait_for(lambda: agreed(nodes, 4))
        for node in nodes:
            found = survey(node.training)
            assert found.hash_agreement_rate == 1.0
            assert found.nodes == 2
            assert found.failed_syncs == 0
            assert found.successful_syncs >= 6
            assert found.shards == tuple(range(16))
            assert found.tokens == 16 * 8 * found.steps
            assert node.training.rounds
            assert node.training.rounds.record.losses[-1] < first_loss(node)
            figures = node.training.figures()
            assert figures.steps_total == node.training.rounds.learner.progress.steps > 12
        submitted = sum(node.training.figures().gradients_submitted for node in nodes)
        accepted = sum(node.training.figures().gradients_accepted for node in nodes)
        assert submitted == accepted > 0


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


async def test_a_checkpoint_is_what_its_metadata_say(model: Path, tmp_path: Path) -> None:
    async with training_nodes(model, tmp_path, 1) as ([node], nursery):
        node.enable(on=False)
        await nursery.start(node.run)
        async with open_channel("127.0.0.1", node.port, traffic=TrafficMeter()) as channel:
            stub = NodeServiceStub(channel)
            for version, phase in ((0, "bootstrap"), (2, "early")):
                if version:
                    node.enable(on=True)
                    await wait_for(lambda: agreed([node], 2))
                    node.enable(on=False)
                    await wait_for(lambda: not node.training.enabled)
                info = await stub.GetCheckpointInfo(pb.GetCheckpointInfoRequest())
                answer = await stub.GetCheckpoint(pb.GetCheckpointRequest())
                assert answer.success
                assert answer.version == info.version >= version
                assert answer.model_hash == info.model_hash
                assert answer.phase == info.phase == phase
                plain = lz4.frame.decompress(answer.checkpoint_data)
                assert len(plain) == answer.total_size
                tensors = safetensors.torch.load(plain)
                weights = {n: t for n, t in tensors.items() if not n.startswith("velocity.")}
                assert manifest_of_tensors(weights.items()).model_hash == info.model_hash
                untied = {n: t.numel() for n, t in weights.items()}
                assert sum(untied.values()) == info.params
            refused = await stub.GetCheckpoint(pb.GetCheckpointRequest(min_version=1000))
            assert not refused.success
            assert "version" in refused.error_message
            refused = await stub.GetCheckpoint(pb.GetCheckpointRequest(model_hash="ab" * 32))
            assert not refused.success
            assert refused.error_message
            same = await stub.GetCheckpoint(pb.GetCheckpointRequest(model_hash=info.model_hash))
            assert same.success


async def test_a_version_is_said_with_its_own_loss(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: dict[int, set[float]] = {}
    save = TrainingDisk.save

    def watched(disk: TrainingDisk, *state: Any) -> None:
        # New weights have their loss by now, and are published only after this save.
        status = node.training.status()
        if status is not None:
            said.setdefault(status.version, set()).add(status.figures.validation_loss)
        save(disk, *state)

    monkeypatch.setattr(TrainingDisk, "save", watched)
    async with training_nodes(model, tmp_path, 1) as ([node], nursery):
        await nursery.start(node.run)
        await wait_for(lambda: agreed([node], 3))
    assert said.keys() >= {0, 1, 2}
    assert all(len(losses) == 1 for losses in said.values())


async def test_forged_and_broken_contributions_are_refused_with_a_reason(
    model: Path, tmp_path: Path
) -> None:
    async with training_nodes(model, tmp_path, 2) as (nodes, nursery):
        honest = nodes[0]
        await nursery.start(honest.run)
        await wait_for(lambda: agreed([honest], 1))
        assert honest.training.rounds
        # Take a contribution of the second node, and break copies of it in one way each.
        await nursery.start(nodes[1].run)
        await wait_for(lambda: agreed(nodes, 2))
        seen: list[pb.GossipGradientRequest] = []
        taking = honest.training.rounds.take

        async def watch(message: pb.GossipGradientRequest) -> str | None:
            seen.append(message)
            return await taking(message)

        honest.training.rounds.take = watch  # type: ignore[method-assign]
        await wait_for(lambda: bool(seen))
        original = seen[0]
        async with open_channel("127.0.0.1", honest.port, traffic=TrafficMeter()) as channel:
            stub = NodeServiceStub(channel)
            for name, change in BROKEN.items():
                message = pb.GossipGradientRequest()
                message.CopyFrom(original)
                message.round_id = honest.training.rounds.replica.round_id + 1
                change(message)
                if name not in FORGED:
                    statement = contribution_in(message).statement()
                    message.signature = sign(nodes[1].key.seed, statement)
                answer = await stub.GossipGradient(message)
                assert not answer.accepted, name
                assert REASONS.get(name, "") in answer.reason, name
                assert answer.reason, name
                assert answer.current_round > 0
        await wait_for(lambda: agreed(nodes, 4))


def _nan(message: pb.GossipGradientRequest) -> None:
    name, data = next(iter(message.layer_gradients.items()))
    plain = lz4.frame.decompress(data)
    message.layer_gradients[name] = lz4.frame.compress(b"\x00\x00\xc0\x7f" * (len(plain) // 4))


def _bomb(message: pb.GossipGradientRequest) -> None:
    name = next(iter(message.layer_gradients))
    message.layer_gradients[name] = lz4.frame.compress(bytes(50_000_000))


FORGED = {"signature", "another node's", "changed loss"}
"""Cases that keep the original signature; the others are signed again after the change."""
BROKEN = {
    "signature": lambda m: setattr(m, "signature", "00" * 65),
    "another node's": lambda m: setattr(m, "node_id", "ab" * 20),
    "changed loss": lambda m: setattr(m, "loss", m.loss + 1),
    "not a number": lambda m: setattr(m, "loss", float("nan")),
    "old": lambda m: setattr(m, "timestamp", 1.0),
    "old round": lambda m: setattr(m, "round_id", 1),
    "no round": lambda m: setattr(m, "round_id", -5),
    "ttl": lambda m: setattr(m, "ttl", 1000),
    "missing layer": lambda m: m.layer_gradients.pop(next(iter(m.layer_gradients))),
    "strange layer": lambda m: m.layer_gradients.update({"x": b"y"}),
    "nan": _nan,
    "bomb": _bomb,
}


REASONS = {
    "signature": "signature",
    "another node's": "not a peer",
    "changed loss": "signature",
    "nan": "not finite",
    "bomb": "more than",
    "ttl": "ttl",
    "old": "timestamp",
    "old round": "over",
    "strange layer": "exactly",
}


def test_a_version_that_all_reached_is_what_is_compared() -> None:
    assert compare({}) == 1.0
    assert compare({"a": {1: "x", 2: "y"}, "b": {1: "x"}}) == 1.0
    assert compare({"a": {1: "x", 2: "y"}, "b": {1: "x", 2: "z"}}) == 0.5
    assert compare({"a": {7: "y"}, "b": {5: "z"}}) == 0.5


async def test_a_disagreement_is_said_with_what_to_do(model: Path, tmp_path: Path) -> None:
    async with training_nodes(model, tmp_path, 2) as (nodes, nursery):
        for node in nodes:
            await nursery.start(node.run)
        await wait_for(lambda: agreed(nodes, 2) and survey(nodes[0].training).nodes == 2)
        good = verdict(survey(nodes[0].training))
        assert good["is_working"] is True
        assert good["metrics"]["hash_agreement"] == "100%"
        other = nodes[0].training.gossip.history[nodes[1].key.node_id]
        for version in other:
            other[version] = "ff" * 32
        bad = verdict(survey(nodes[0].training))
        assert bad["is_working"] is False
        assert "50%" in str(bad["reason"])
        assert bad["action"]


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


async def test_what_is_about_to_begin_is_said(model: Path, tmp_path: Path) -> None:
    go_on = threading.Event()

    def slowly(directory: Path) -> TrainedModel:
        go_on.wait()
        return TrainedModel(directory)

    async with training_nodes(model, tmp_path, 1) as ([node], nursery):
        node.trained = slowly
        try:
            await nursery.start(node.run)
            await wait_for(lambda: node.training.beginning)
            waiting = verdict(survey(node.training))
        finally:
            go_on.set()
        assert waiting["is_working"] is False
        assert "about to begin" in str(waiting["reason"])
        assert "wait" in str(waiting["action"])
        await wait_for(lambda: bool(verdict(survey(node.training))["is_working"]))


async def test_nobody_trains(model: Path, tmp_path: Path) -> None:
    async with training_nodes(model, tmp_path, 1) as ([node], nursery):
        node.enable(on=False)
        await nursery.start(node.run)
        assert verdict(survey(node.training))["is_working"] is False
        assert survey(node.training).hash_agreement_rate == 1.0


def test_a_node_that_went_back_has_left_the_newer_versions() -> None:
    history: gossip.History = {}
    for version in range(1, 12):
        gossip.remember(history, WeightsVersion(version, f"h{version}"))
    assert len(history) == gossip.MAX_VERSIONS
    gossip.remember(history, WeightsVersion(6, "other"))
    assert max(history) == 6
    assert history[6] == "other"


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
        silent.training.rounds.replica.must_hurry = lambda now: False  # type: ignore[method-assign]
        await wait_for(lambda: rounds.replica.state is State.EXCHANGE)
        heard, hear = 0, rounds.replica.heard

        def counted(peer: str, report: Report, now: float) -> None:
            nonlocal heard
            heard += 1
            hear(peer, report, now)

        rounds.replica.heard = counted  # type: ignore[method-assign]
        acted = 0
        await wait_for(lambda: rounds.replica.state is not State.EXCHANGE)
        # It acts once for each report, each deadline and each search for new peers.
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
