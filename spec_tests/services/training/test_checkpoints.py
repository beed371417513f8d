"""What a node says about its weights: GetCheckpointInfo, GetCheckpoint, reports (interface 2.3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import safetensors.torch
import trio

from meshnode.domain.metering import TrafficMeter
from meshnode.model.manifest import facts_of_tensors, hash_of_tensors
from meshnode.rpc.channel import open_channel
from meshnode.rpc.node_grpc import NodeServiceStub
from meshnode.services.training.disk import TrainingDisk
from meshnode.wire import node_pb2 as pb
from spec_tests.services.training.trainers import agreed, training_nodes, wait_for


async def test_a_checkpoint_matches_its_metadata(model: Path, tmp_path: Path) -> None:
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
                assert hash_of_tensors(facts_of_tensors(weights.items())) == info.model_hash
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


async def test_a_version_is_reported_with_its_own_loss(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: dict[int, set[float]] = {}
    save = TrainingDisk.save

    def watched(disk: TrainingDisk, *state: Any) -> None:
        # New weights have their loss by now, and are published only after this save.
        status = trio.from_thread.run_sync(node.training.status)
        if status is not None:
            said.setdefault(status.version, set()).add(status.figures.validation_loss)
        save(disk, *state)

    monkeypatch.setattr(TrainingDisk, "save", watched)
    async with training_nodes(model, tmp_path, 1) as ([node], nursery):
        await nursery.start(node.run)
        await wait_for(lambda: agreed([node], 3))
    assert said.keys() >= {0, 1, 2}
    assert all(len(losses) == 1 for losses in said.values())


async def test_trained_weights_are_served_after_a_restart_with_training_off(
    model: Path, tmp_path: Path
) -> None:
    async with training_nodes(model, tmp_path, 1) as ([node], nursery):
        await nursery.start(node.run)
        await wait_for(lambda: agreed([node], 2))
        node.enable(on=False)
        # The model is unloaded once nothing more happens.
        await wait_for(lambda: not node.training.loaded)
        version, model_hash = node.kept
        before = node.training.figures()
        assert node.scope
        node.scope.cancel()
        await wait_for(lambda: node.scope is None)
        await nursery.start(node.run)
        await wait_for(lambda: node.training.resting is not None)
        assert node.training.rounds is None
        async with open_channel("127.0.0.1", node.port, traffic=TrafficMeter()) as channel:
            stub = NodeServiceStub(channel)
            info = await stub.GetCheckpointInfo(pb.GetCheckpointInfoRequest())
            assert (info.version, info.model_hash) == (version, model_hash)
            answer = await stub.GetCheckpoint(pb.GetCheckpointRequest(min_version=version))
            tensors = safetensors.torch.load(lz4.frame.decompress(answer.checkpoint_data))
            weights = {n: t for n, t in tensors.items() if not n.startswith("velocity.")}
            assert hash_of_tensors(facts_of_tensors(weights.items())) == model_hash
        after = node.training.figures()
        # The steps of the round that was given up are not saved.
        assert after.epoch == version
        assert 0 < after.steps_total <= before.steps_total
        # The counts go on from there.
        node.enable(on=True)
        await wait_for(lambda: node.training.enabled and agreed([node], version + 1))
        assert node.training.figures().steps_total > after.steps_total
        assert node.training.figures_message().rounds > version
