"""Decision 0246: the holders of a pipeline switch together, and keep what is needed."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import trio

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.training.position import PipelineVersion
from meshnode.model.anchor_pieces import Unit
from meshnode.model.documents import ModelUnreadable
from meshnode.model.manifest import TensorFacts
from meshnode.model.naming import EMBEDDING, HEAD, Part
from meshnode.services.shards.exchange_files import original_layers
from meshnode.services.versions import pipeline as versions_of_pipelines
from meshnode.services.versions.layer_store import joined_facts
from meshnode.wire import node_pb2 as pb
from spec_tests.services.versions.layer_pipelines import (
    FIRST,
    ONE,
    SECOND,
    TWO,
    Pipeline,
    serves_only,
    until,
)


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
