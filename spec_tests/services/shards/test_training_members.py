"""Decision 0137: only members of the training change a holder's weights."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import trio

from meshnode.domain.identity import key_from_seed
from meshnode.domain.training.position import PLACE
from meshnode.domain.training.steps import Turn
from meshnode.rpc.errors import CallFailed, Code
from meshnode.services.shards.decoding import EXCHANGE
from meshnode.services.shards.exchange_messages import (
    PLACE_OF_COMMANDS,
    PLACE_OF_SERVING,
    answer_in,
)
from meshnode.services.shards.layer_versions import LayerVersions
from meshnode.services.shards.members import (
    MEMBER,
    NUMBER,
    ROUND,
    SIGNATURE,
    TrainingMembers,
    turn_in,
)
from meshnode.services.shards.trained_layers import TrainedLayers
from meshnode.wire import node_pb2 as pb
from spec_tests.services.shards.holders import (
    DRIVER,
    LONG_S,
    HolderNode,
    KnownPeers,
    shards,
    signed,
    signed_back,
)

pytestmark = pytest.mark.wire

LABELS = torch.tensor([[1, 2, 3, 4]]).numpy().tobytes()
STRANGER = key_from_seed("5" * 64)


def step_of(number: int = 0, scale: float = 1.0) -> pb.PipelineForwardRequest:
    """Return a step for the holder of the last two layers, which needs no other holder."""
    values = np.random.default_rng(number).normal(size=(1, 4, 64)) * scale
    return pb.PipelineForwardRequest(
        session_id=f"s{number}",
        request_id="r",
        hidden_states=values.astype("<f4").tobytes(),
        hidden_shape=[1, 4, 64],
        target_shard=2,
        training_labels=LABELS,
    )


async def send(
    node: HolderNode, message: pb.PipelineForwardRequest, metadata: Mapping[str, str]
) -> str:
    """Send a message; return the status, or the error message of an answer without success."""
    stub = await node.stub()
    try:
        # The first step of a process imports what an optimizer needs, which may take long.
        with trio.fail_after(LONG_S):
            answer = await stub.PipelineForward(message, metadata=metadata)
    except CallFailed as error:
        return error.code.name
    return "" if answer.success else answer.error_message


async def test_steps_of_strangers_are_refused_and_change_nothing(directory: Path) -> None:
    async with shards(directory, [2, 3]) as (node,):
        message = step_of()
        by_driver = signed(node, message)
        stranger = TrainingMembers(STRANGER, KnownPeers())
        turn = node.training.members.rounds.latest(STRANGER.node_id).next
        by_stranger = stranger.signed(message, node.key.node_id, turn, update=True)
        for metadata in (
            {"training": "step"},
            by_stranger,
            {**by_stranger, MEMBER: DRIVER.node_id},
            {**by_driver, MEMBER: STRANGER.node_id},
            {**by_driver, SIGNATURE: "00" * 65},
            {**by_driver, SIGNATURE: "x"},
            {**by_driver, NUMBER: "2"},
        ):
            assert await send(node, message, metadata) == "PERMISSION_DENIED", metadata
        # Neither does what a member has signed hold for another message or another holder.
        assert await send(node, step_of(1), by_driver) == "PERMISSION_DENIED"
        members = TrainingMembers(DRIVER, node.known)
        elsewhere = members.signed(message, STRANGER.node_id, turn_in(by_driver), update=True)
        assert await send(node, message, elsewhere) == "PERMISSION_DENIED"
        only_adds = members.signed(message, node.key.node_id, turn_in(by_driver), update=False)
        assert await send(node, message, {**only_adds, "training": "step"}) == "PERMISSION_DENIED"
        assert node.training.steps == 0
        assert not node.training.loaded
        assert await send(node, message, by_driver) == ""
        assert node.training.steps == 1


async def test_commands_come_from_the_driver_alone(directory: Path) -> None:
    async with shards(directory, [2, 3]) as (node,):
        command = pb.LayerCommand(action="restore", version="0")
        message = step_of()
        message.hidden_states = command.SerializeToString()
        members = TrainingMembers(DRIVER, node.known)
        stranger = TrainingMembers(STRANGER, KnownPeers())
        turn = node.training.members.rounds.latest(DRIVER.node_id).next
        commanded = partial(
            members.signed,
            message,
            node.key.node_id,
            update=False,
            place=PLACE_OF_COMMANDS,
            mode=EXCHANGE,
        )
        by_driver = commanded(turn=turn)
        by_stranger = stranger.signed(
            message,
            node.key.node_id,
            Turn(turn.round_id, 1),
            update=False,
            place=PLACE_OF_COMMANDS,
            mode=EXCHANGE,
        )
        only_adds = members.signed(message, node.key.node_id, turn, update=False)
        for metadata in (
            {"training": EXCHANGE},
            by_stranger,
            {**by_driver, SIGNATURE: "00" * 65},
            # What was signed for something else is no command, and a command is no step.
            {**only_adds, "training": EXCHANGE},
            {**only_adds, "training": EXCHANGE, PLACE: PLACE_OF_COMMANDS},
            {**signed(node, message), "training": EXCHANGE},
            {**by_driver, "training": "step"},
        ):
            assert await send(node, message, metadata) == "PERMISSION_DENIED", metadata
        assert not node.training.loaded
        stub = await node.stub()
        answer = await stub.PipelineForward.ask(message, metadata=by_driver)
        assert answer.message.success
        assert answer_in(answer.message.hidden_states) == pb.LayerAnswer()
        assert "was taken before" in await send(node, message, by_driver)
        for data in (b"\xff", b"x", pb.LayerCommand(action="jump").SerializeToString()):
            message.hidden_states = data
            number = node.training.members.rounds.latest(DRIVER.node_id).next
            assert await send(node, message, commanded(turn=number)) == "INVALID_ARGUMENT"


async def test_commands_about_serving_come_from_any_driver_and_leave_the_other_its_steps(
    directory: Path,
) -> None:
    async with shards(directory, [2, 3]) as (node,):
        node.known.members[STRANGER.node_id] = range(4)
        told: list[tuple[str, str]] = []

        async def serve(command: pb.LayerCommand, driver: str) -> pb.LayerAnswer:
            told.append((command.action, driver))
            return pb.LayerAnswer()

        node.exchange.serving = {"serve": serve, "facts": serve}
        assert await send(node, step_of(), signed(node, step_of())) == ""
        other, message = TrainingMembers(STRANGER, node.known), step_of()

        async def command(action: str, place: str) -> str:
            message.hidden_states = pb.LayerCommand(action=action, version="0").SerializeToString()
            turn = node.training.members.rounds.latest(STRANGER.node_id).next
            metadata = other.signed(
                message, node.key.node_id, turn, update=False, place=place, mode=EXCHANGE
            )
            return await send(node, message, metadata)

        assert await command("facts", PLACE_OF_SERVING) == ""
        assert await command("serve", PLACE_OF_SERVING) == ""
        assert told == [("facts", STRANGER.node_id), ("serve", STRANGER.node_id)]
        # What only the holder's driver may ask for does not pass under that name.
        assert await command("restore", PLACE_OF_SERVING) == "INVALID_ARGUMENT"
        assert await command("restore", PLACE_OF_COMMANDS) == "FAILED_PRECONDITION"
        assert await send(node, step_of(1), signed(node, step_of(1))) == ""
        assert node.training.steps == 2


async def test_a_step_that_is_sent_again_is_refused(directory: Path) -> None:
    async with shards(directory, [2, 3]) as (node,):
        message = step_of()
        metadata = signed(node, message)
        assert await send(node, message, metadata) == ""
        assert "was taken before" in await send(node, message, metadata)
        node.training.members.rounds.renew()
        assert "round unknown or over" in await send(node, message, metadata)
        assert node.training.steps == 1
        # The refusal tells the driver how to sign it.
        stub = await node.stub()
        answer = await stub.PipelineForward.ask(message, metadata=metadata)
        assert answer.message.error_message.startswith("FAILED_PRECONDITION: ")
        assert answer.metadata[ROUND] == node.training.members.rounds.round_id
        assert turn_in(answer.metadata).number == 0


async def test_one_member_drives_at_a_time(directory: Path) -> None:
    async with shards(directory, [2, 3]) as (node,):
        node.known.members[STRANGER.node_id] = range(4)
        assert await send(node, step_of(), signed(node, step_of())) == ""
        other = TrainingMembers(STRANGER, node.known)
        turn = node.training.members.rounds.latest(STRANGER.node_id).next
        metadata = other.signed(step_of(1), node.key.node_id, turn, update=True)
        assert await send(node, step_of(1), metadata) == "FAILED_PRECONDITION"
        assert node.training.steps == 1


async def test_gradients_of_an_absurd_size_are_refused(directory: Path) -> None:
    async with shards(directory, [0, 1], [2]) as (_, second):
        stub = await second.stub()
        message = pb.PipelineForwardRequest(
            session_id="s",
            request_id="r",
            hidden_states=np.ones((1, 4, 64), "<f4").tobytes(),
            hidden_shape=[1, 4, 64],
            target_shard=2,
        )
        assert await send(second, message, signed(second, message)) == ""
        back = pb.PipelineBackwardRequest(
            session_id="s",
            request_id="r",
            grad_output=np.full((1, 4, 64), 1e9, "<f4").tobytes(),
            grad_shape=[1, 4, 64],
            target_shard=2,
        )
        # Only the holder of the next layer may send gradients of a step.
        for metadata in ({}, TrainingMembers(STRANGER, KnownPeers()).signed_gradient(back, "")):
            with pytest.raises(CallFailed) as caught:
                await stub.PipelineBackward(back, metadata=metadata)
            assert caught.value.code is Code.PERMISSION_DENIED
        with pytest.raises(CallFailed) as caught:
            await stub.PipelineBackward(back, metadata=signed_back(back))
        assert caught.value.code is Code.INVALID_ARGUMENT
        assert "norm" in str(caught.value)
        assert second.training.steps == 0
        assert second.training.bytes_in_use == 0


async def test_graphs_of_strangers_give_way_to_members(directory: Path) -> None:
    async with shards(directory, [0, 1], [2]) as (_, second):
        states = np.ones((1, 4, 64), "<f4").tobytes()
        shape = [1, 4, 64]

        def message(name: str) -> pb.PipelineForwardRequest:
            return pb.PipelineForwardRequest(
                session_id=name,
                request_id="r",
                hidden_states=states,
                hidden_shape=shape,
                target_shard=2,
            )

        for number in range(16):
            assert await send(second, message(f"x{number}"), {"training": "1"}) == ""
        assert await send(second, message("x16"), {"training": "1"}) == "RESOURCE_EXHAUSTED"
        for number in range(16):
            mine = message(f"m{number}")
            assert await send(second, mine, signed(second, mine)) == ""
        last = message("m16")
        assert await send(second, last, signed(second, last)) == "RESOURCE_EXHAUSTED"


async def test_layers_are_freed_when_training_is_switched_off(
    directory: Path, tmp_path: Path
) -> None:
    """What was trained waits on the disk, and what was signed before counts no more."""
    async with shards(directory, [2, 3]) as (node,):
        training, enabled = node.training, True
        training._enabled = lambda: enabled
        training.versions = LayerVersions(TrainedLayers(tmp_path, "a" * 64, range(2, 4)))
        assert await send(node, step_of(), signed(node, step_of())) == ""
        answer = await (await node.stub()).PipelineForward(step_of(1))
        later = signed(node, step_of(1))
        assert not await training.unload()
        enabled = False
        assert await training.unload()
        assert not training.loaded
        assert training.steps == 1
        assert await send(node, step_of(1), later) == "UNIMPLEMENTED"
        enabled = True
        assert "round unknown or over" in await send(node, step_of(1), later)
        again = await (await node.stub()).PipelineForward(step_of(2))
        assert again.loss != answer.loss
        repeated = step_of(1)
        repeated.session_id = "s3"
        assert (await (await node.stub()).PipelineForward(repeated)).loss == answer.loss
