"""Interface 4.3, messages that update weights: in turns, completely, and within limits."""

import math
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio

from meshnode.rpc.errors import CallFailed, Code
from meshnode.wire import node_pb2 as pb
from spec_tests.model.small_models import random_tokens
from spec_tests.rpc.scripted_service import until
from spec_tests.services.shards.holders import (
    LONG_S,
    TRAINING_LIMITS,
    HolderNode,
    shards,
    signed,
    signed_back,
    targets_of,
)

pytestmark = pytest.mark.wire


GRADIENT = np.full((1, 4, 64), 1e-3, dtype="<f4").tobytes()


def backward_of(session: str) -> pb.PipelineBackwardRequest:
    """Return the message from the holder of layer 3 to that of layer 2, for four tokens."""
    return pb.PipelineBackwardRequest(
        session_id=session,
        request_id="r",
        grad_output=GRADIENT,
        grad_shape=[1, 4, 64],
        target_shard=2,
    )


async def keep_graphs(first: HolderNode, second: HolderNode, session: str) -> None:
    """Send a message that updates weights through two holders; both keep its graph."""
    tokens = random_tokens(1, 4)
    data, shape = tokens.numpy().astype("<i8").tobytes(), list(tokens.shape)
    for node, source, sender in ((first, -1, ""), (second, 0, f"127.0.0.1:{first.port}")):
        stub = await node.stub()
        message = pb.PipelineForwardRequest(
            session_id=session,
            request_id="r",
            hidden_states=data,
            hidden_shape=shape,
            target_shard=node.executor.card.layers[0],
            source_shard=source,
            sender_url=sender,
        )
        answer = await stub.PipelineForward(message, metadata=signed(node, message))
        assert answer.success, answer.error_message
        data, shape = answer.hidden_states, list(answer.hidden_shape)


class Delayed:
    """Holds back a node's backward pass until the test sets ``go_on``."""

    def __init__(self, node: HolderNode) -> None:
        self.entered, self.go_on = trio.Event(), trio.Event()
        self._original = node.training.backward
        node.training.backward = self._backward  # type: ignore[method-assign]

    async def _backward(self, message: pb.PipelineBackwardRequest, square: float = 0.0) -> float:
        self.entered.set()
        await self.go_on.wait()
        return await self._original(message, square)


async def test_two_drivers_step_a_holder_in_turns(directory: Path) -> None:
    async with shards(directory, [0, 1], [0, 1], [2]) as (one, other, shared):
        await keep_graphs(one, shared, "one")
        await keep_graphs(other, shared, "other")
        slow = Delayed(one)
        stub = await shared.stub()
        found: dict[str, pb.PipelineBackwardResponse] = {}

        async def back(session: str) -> None:
            message = backward_of(session)
            found[session] = await stub.PipelineBackward(message, metadata=signed_back(message))

        with trio.fail_after(LONG_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(back, "one")
                await slow.entered.wait()
                nursery.start_soon(back, "other")
                # Wait until the other message has its answer, or waits for its turn.
                await until(lambda: bool(found) or waits_for_its_turn(shared), "a second step")
                slow.go_on.set()
        assert found["one"].success, found["one"].error_message
        # The other graph was made from weights that have changed since; no holder steps by it.
        assert found["other"].error_message == "graph unknown or expired"
        assert [node.training.steps for node in (one, other, shared)] == [1, 0, 1]


def waits_for_its_turn(node: HolderNode) -> bool:
    return bool(node.training._turn.statistics().tasks_waiting)


async def test_two_drivers_of_one_last_holder_step_in_turns(directory: Path) -> None:
    """The second driver's step computes with the weights that the first step has updated."""
    labels = targets_of(random_tokens(1, 4)).numpy().tobytes()

    async def step(first: HolderNode, last: HolderNode, session: str) -> float:
        tokens = random_tokens(1, 4)
        call: dict[str, Any] = {
            "session_id": session,
            "request_id": "r",
            "hidden_states": tokens.numpy().tobytes(),
            "hidden_shape": [1, 4],
        }
        message = pb.PipelineForwardRequest(**call)
        stub = await first.stub()
        answer = await stub.PipelineForward(message, metadata=signed(first, message))
        stub = await last.stub()
        message = pb.PipelineForwardRequest(
            session_id=session,
            request_id="r",
            hidden_states=answer.hidden_states,
            hidden_shape=answer.hidden_shape,
            target_shard=2,
            training_labels=labels,
            sender_url=f"127.0.0.1:{first.port}",
        )
        answer = await stub.PipelineForward(message, metadata=signed(last, message))
        assert answer.success, answer.error_message
        return answer.loss

    async with shards(directory, [0, 1], [0, 1], [2, 3]) as (one, other, last):
        wanted = [await step(one, last, "one"), await step(other, last, "other")]
    assert wanted[0] != wanted[1]
    async with shards(directory, [0, 1], [0, 1], [2, 3]) as (one, other, last):
        slow = Delayed(one)
        found: dict[str, float] = {}

        async def both(first: HolderNode, session: str) -> None:
            found[session] = await step(first, last, session)

        with trio.fail_after(LONG_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(both, one, "one")
                await slow.entered.wait()
                nursery.start_soon(both, other, "other")
                await until(lambda: bool(found) or waits_for_its_turn(last), "a second step")
                slow.go_on.set()
        assert [found["one"], found["other"]] == pytest.approx(wanted, abs=1e-6)
        assert last.training.steps == 2


async def test_a_holder_that_is_cancelled_after_earlier_ones_have_stepped_steps_too(
    directory: Path,
) -> None:
    async with shards(directory, [0, 1], [2]) as (first, second):
        await keep_graphs(first, second, "s")
        go_on = threading.Event()
        original = first.training.backward
        async with trio.open_nursery() as outer:

            async def backward(message: pb.PipelineBackwardRequest, square: float = 0.0) -> float:
                total = await original(message, square)
                # From now on the second holder's thread is busy.
                outer.start_soon(second.executor.compute, go_on.wait)
                return total

            first.training.backward = backward  # type: ignore[method-assign]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(second.training.backward, backward_of("s"))
                limiter = second.executor.thread._limiter
                try:
                    await until(lambda: bool(limiter.statistics().tasks_waiting), "an update")
                    nursery.cancel_scope.cancel()
                finally:
                    go_on.set()
        assert first.training.steps == second.training.steps == 1


async def test_a_graph_on_its_way_back_still_counts(directory: Path) -> None:
    """A graph counts until its backward pass ends, since it may hold gradients while it waits."""
    limits = replace(TRAINING_LIMITS, graphs=1)
    async with shards(directory, [0, 1], [2], limits=limits) as (first, second):
        await keep_graphs(first, second, "s")
        slow = Delayed(first)
        with trio.fail_after(LONG_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(second.training.backward, backward_of("s"))
                await slow.entered.wait()
                assert second.training.bytes_in_use > 0
                stub = await second.stub()
                with pytest.raises(CallFailed) as caught:
                    await stub.PipelineForward(
                        pb.PipelineForwardRequest(
                            session_id="other",
                            request_id="r",
                            hidden_states=GRADIENT,
                            hidden_shape=[1, 4, 64],
                            target_shard=2,
                        ),
                        metadata={"training": "1"},
                    )
                assert caught.value.code is Code.RESOURCE_EXHAUSTED
                slow.go_on.set()
        assert second.training.bytes_in_use == 0
        assert second.training.steps == 1


@pytest.mark.parametrize("told", [math.nan, 1e40])
async def test_an_invalid_total_counts_as_missing(directory: Path, told: float) -> None:
    """An invalid total is ignored, because the holder that answers it has stepped already."""
    async with shards(directory, [0, 1], [2]) as (first, second):
        await keep_graphs(first, second, "s")
        original = first.training.backward

        async def backward(message: pb.PipelineBackwardRequest, square: float = 0.0) -> float:
            await original(message, square)
            return told

        first.training.backward = backward  # type: ignore[method-assign]
        stub = await second.stub()
        message = backward_of("s")
        answer = await stub.PipelineBackward(message, metadata=signed_back(message))
        assert answer.success, answer.error_message
        assert first.training.steps == second.training.steps == 1


async def test_an_oversized_answer_of_a_sender_is_not_read_to_its_end(directory: Path) -> None:
    async with shards(directory, [0, 1], [2]) as (first, second):
        await keep_graphs(first, second, "s")

        async def backward(message: pb.PipelineBackwardRequest, square: float = 0.0) -> float:
            await trio.lowlevel.checkpoint()
            raise CallFailed(Code.INTERNAL, "x" * (1 << 20))

        first.training.backward = backward  # type: ignore[method-assign]
        stub = await second.stub()
        message = backward_of("s")
        answer = await stub.PipelineBackward(message, metadata=signed_back(message))
        assert not answer.success
        assert "is larger than the limit" in answer.error_message
