"""Section 4.3, PipelineBackward: gradients across three real nodes are those of one process."""

import math
import struct
import threading
import traceback
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trio
from support_model import random_tokens
from support_rpc import until
from support_shards import LONG_S, TRAINING_LIMITS, HolderNode, holder_node

from meshnode.domain.addresses import GRPC_PORT_OFFSET
from meshnode.model.decoder import Decoder
from meshnode.model.loading import load_model
from meshnode.model.training import cross_entropy
from meshnode.rpc.errors import CallFailed, Code, Refused
from meshnode.services.shards.messages import ForwardCall
from meshnode.services.shards.training import TrainingLimits
from meshnode.services.shards.training_call import TrainingCall
from meshnode.wire import node_pb2 as pb

pytestmark = pytest.mark.wire

PARTS = ([0, 1], [2], [3])


@asynccontextmanager
async def shards(
    directory: Path,
    *parts: Sequence[int],
    limits: TrainingLimits = TRAINING_LIMITS,
    trains: bool = True,
) -> AsyncIterator[list[HolderNode]]:
    async with AsyncExitStack() as stack:
        nodes = []
        for part in parts:
            node = holder_node(directory, list(part), training_limits=limits, trains=trains)
            nodes.append(await stack.enter_async_context(node))
        for node in nodes:
            node.known.addresses |= {("127.0.0.1", other.port) for other in nodes}
        yield nodes


def targets_of(tokens: torch.Tensor) -> torch.Tensor:
    """The next token after each; none after the last, nor after the third."""
    targets = tokens.roll(-1, dims=1)
    targets[:, -1] = -100
    targets[:, 2] = -100
    return targets


async def pass_through(
    nodes: Sequence[HolderNode], tokens: torch.Tensor, *, request: str = "r", **last: Any
) -> pb.PipelineForwardResponse:
    """As a driver does: each holder in turn, each told where the states came from."""
    data, shape = tokens.numpy().astype("<i8").tobytes(), list(tokens.shape)
    labels = targets_of(tokens).numpy().astype("<i8").tobytes()
    for place, node in enumerate(nodes):
        is_last = place == len(nodes) - 1
        before = nodes[place - 1] if place else None
        fields: dict[str, Any] = {
            "session_id": "s",
            "request_id": request,
            "hidden_states": data,
            "hidden_shape": shape,
            "target_shard": node.executor.card.layers[0],
            "source_shard": before.executor.card.layers[0] if before else -1,
            "sender_url": f"127.0.0.1:{before.port}" if before else "",
            "training_labels": labels if is_last else b"",
        }
        fields |= last if is_last else {}
        stub = await node.stub()
        answer = await stub.PipelineForward(
            pb.PipelineForwardRequest(**fields), metadata={"training": "1"}
        )
        if not is_last:
            assert answer.success, answer.error_message
        data, shape = answer.hidden_states, list(answer.hidden_shape)
    return answer


def whole(directory: Path) -> Decoder:
    return load_model(directory, threads=1, trainable=True).decoder


async def test_gradients_over_three_nodes_are_those_of_one_process(directory: Path) -> None:
    decoder = whole(directory)
    batches = [random_tokens(2, 12, seed=seed) for seed in (1, 2)]
    losses = []
    for tokens in batches:
        loss = cross_entropy(decoder(tokens), targets_of(tokens))
        torch.autograd.backward([loss])
        losses.append(float(loss.detach()))
    async with shards(directory, *PARTS) as nodes:
        assert not any(node.training.loaded for node in nodes)
        for i, (tokens, loss) in enumerate(zip(batches, losses, strict=True)):
            answer = await pass_through(nodes, tokens, request=f"r{i}")
            assert answer.success, answer.error_message
            assert answer.is_final
            assert answer.loss == pytest.approx(loss, abs=1e-5)
        found: dict[str, torch.Tensor] = {}
        for node in nodes:
            assert node.training.loaded
            gradients = node.training.gradients("s")
            assert gradients is not None
            assert not found.keys() & gradients.keys()
            found |= gradients
            assert node.training.gradients("s") is None
            assert node.training.bytes_in_use == 0
    expected = {name: parameter.grad for name, parameter in decoder.named_parameters()}
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert gradient is not None
        assert (found[name] - gradient).abs().max() < 1e-5, name
    assert max(float(gradient.abs().max()) for gradient in found.values()) > 1e-3


async def test_a_whole_model_trains_alone_and_tells_the_loss_alone(directory: Path) -> None:
    tokens = random_tokens(2, 12)
    loss = float(cross_entropy(whole(directory)(tokens), targets_of(tokens)).detach())
    async with shards(directory, range(4)) as (node,):
        answer = await pass_through([node], tokens)
        assert answer.loss == pytest.approx(loss, abs=1e-5)
        assert node.training.gradients("s") is not None
        stub = await node.stub()
        fields = {
            "session_id": "loss",
            "request_id": "r",
            "hidden_states": tokens.numpy().tobytes(),
            "hidden_shape": list(tokens.shape),
            "training_labels": targets_of(tokens).numpy().tobytes(),
        }
        answer = await stub.PipelineForward(pb.PipelineForwardRequest(**fields))
        assert answer.loss == pytest.approx(loss, abs=1e-5)
        assert node.training.gradients("loss") is None


async def a_strangers_port(nursery: trio.Nursery, nodes: Sequence[HolderNode]) -> int:
    """Somebody listens there who must not be called; as an HTTP port it is no node's either."""
    taken = {node.port for node in nodes}
    while True:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port: int = listener.socket.getsockname()[1]
        if not taken & {port, port + GRPC_PORT_OFFSET}:
            break
        await listener.aclose()

    async def stranger(stream: trio.SocketStream) -> None:
        raise AssertionError("a stranger was called")

    nursery.start_soon(trio.serve_listeners, stranger, [listener])
    return port


async def test_a_sender_that_is_not_a_peer_is_refused(directory: Path) -> None:
    async with shards(directory, *PARTS) as nodes, trio.open_nursery() as nursery:
        port = await a_strangers_port(nursery, nodes)
        for url in (
            f"127.0.0.1:{port}",
            f"http://127.0.0.1:{port}",
            f"localhost:{nodes[1].port}",
            "no address",
            "file:///etc/passwd",
            "127.0.0.1:0",
            "127.0.0.1:99999",
        ):
            with pytest.raises(CallFailed) as caught:
                await pass_through(nodes, random_tokens(1, 4), request=url, sender_url=url)
            assert caught.value.code is Code.INVALID_ARGUMENT
            assert "sender_url" in caught.value.message
        nursery.cancel_scope.cancel()


async def test_no_graph_is_used_twice_and_none_of_another(directory: Path) -> None:
    tokens = random_tokens(1, 4)
    async with shards(directory, *PARTS) as nodes:
        assert (await pass_through(nodes, tokens)).success
        stub = await nodes[1].stub()
        gradient = np.ones((1, 4, 64), dtype="<f4").tobytes()

        def request(**fields: Any) -> pb.PipelineBackwardRequest:
            fields = {
                "session_id": "s",
                "request_id": "r",
                "grad_output": gradient,
                "grad_shape": [1, 4, 64],
                "target_shard": 2,
                **fields,
            }
            return pb.PipelineBackwardRequest(**fields)

        answer = await stub.PipelineBackward(request())
        assert not answer.success
        assert answer.error_message == "graph unknown or expired"
        # A graph that waits is not used up by messages that do not fit it.
        await pass_through(nodes[:2], tokens, request="again", training_labels=b"")
        again = {"request_id": "again"}
        for wrong, code in (
            ({"grad_shape": [1, 4, 63]}, Code.INVALID_ARGUMENT),
            ({"grad_shape": [4, 64]}, Code.INVALID_ARGUMENT),
            ({"grad_output": gradient[:-1]}, Code.INVALID_ARGUMENT),
            ({"grad_output": struct.pack("<f", math.nan) * 256}, Code.INVALID_ARGUMENT),
            ({"target_shard": 3}, Code.NOT_FOUND),
        ):
            with pytest.raises(CallFailed) as caught:
                await stub.PipelineBackward(request(**again, **wrong))
            assert caught.value.code is code
        assert (await stub.PipelineBackward(request(**again))).success


async def test_a_way_back_that_breaks_is_said_and_adds_nothing_here(directory: Path) -> None:
    tokens = random_tokens(1, 4)
    async with shards(directory, *PARTS) as nodes:
        original = nodes[0].training._graphs
        await pass_through(nodes[:2], tokens, training_labels=b"")
        original.clear()
        stub = await nodes[1].stub()
        answer = await stub.PipelineBackward(
            pb.PipelineBackwardRequest(
                session_id="s",
                request_id="r",
                grad_output=np.ones((1, 4, 64), dtype="<f4").tobytes(),
                grad_shape=[1, 4, 64],
                target_shard=2,
            )
        )
        assert not answer.success
        assert "graph unknown" in answer.error_message
        assert nodes[1].training.gradients("s") is None
        assert nodes[1].training.bytes_in_use == 0


async def test_graphs_are_bounded(directory: Path) -> None:
    tokens = random_tokens(1, 4)
    limits = replace(TRAINING_LIMITS, graphs=2)
    async with shards(directory, [0, 1], limits=limits) as (node,):

        async def keep(name: str) -> Code:
            try:
                answer = await pass_through([node], tokens, request=name, training_labels=b"")
            except CallFailed as error:
                return error.code
            assert answer.success
            return Code.OK

        codes = [await keep(name) for name in "aabc"]
        assert codes == [Code.OK, Code.INVALID_ARGUMENT, Code.OK, Code.RESOURCE_EXHAUSTED]
    small = replace(TRAINING_LIMITS, graph_bytes=1000)
    async with shards(directory, [0, 1], limits=small) as (node,):
        with pytest.raises(CallFailed) as caught:
            await pass_through([node], tokens, training_labels=b"")
        assert caught.value.code is Code.INVALID_ARGUMENT


async def test_graphs_expire(directory: Path) -> None:
    tokens = random_tokens(1, 4)
    limits = replace(TRAINING_LIMITS, graphs=1, idle_s=0.2)
    async with shards(directory, [0, 1], limits=limits) as (node,):
        for name in "ab":
            answer = await pass_through([node], tokens, request=name, training_labels=b"")
            assert answer.success
            with trio.fail_after(LONG_S):
                while node.training.bytes_in_use:  # noqa: ASYNC110 - it tells no event
                    await trio.sleep(0.02)


async def test_sessions_whose_gradients_are_kept_are_bounded(directory: Path) -> None:
    limits = replace(TRAINING_LIMITS, gradient_sets=1)
    async with shards(directory, range(4), limits=limits) as (node,):
        assert (await pass_through([node], random_tokens(1, 4))).success
        with pytest.raises(CallFailed) as caught:
            await pass_through([node], random_tokens(1, 4), session_id="other")
        assert caught.value.code is Code.RESOURCE_EXHAUSTED
        assert (await pass_through([node], random_tokens(1, 4), request="next")).success


async def test_a_node_that_does_not_train_reads_no_weights(directory: Path) -> None:
    async with shards(directory, range(4), trains=False) as (node,):
        with pytest.raises(CallFailed) as caught:
            await pass_through([node], random_tokens(1, 4))
        assert caught.value.code is Code.UNIMPLEMENTED
        stub = await node.stub()
        # The operation is there all the same: a failure inside a normal answer (7.3).
        answer = await stub.PipelineBackward(pb.PipelineBackwardRequest())
        assert not answer.success
        assert answer.error_message
        assert not node.training.loaded


@pytest.mark.parametrize(
    "fields",
    [
        {"training_labels": b"\0" * 31},
        {"training_labels": struct.pack("<4q", *[-100] * 4)},
        {"training_labels": struct.pack("<4q", 1, 2, 3, 320)},
        {"training_labels": struct.pack("<4q", 1, 2, 3, -1)},
        {"training_labels": b""},
        {"use_cache": True},
        {"past_key_values": [b"\0" * 4] * 4},
        {"request_id": ""},
        {"session_id": ""},
        {"session_id": "x" * 200},
        {"position_ids": struct.pack("<4q", 1, 2, 3, 4)},
        {"attention_mask": b"\x01\x01\0\x01"},
        {"hidden_shape": [5, 1]},
    ],
)
async def test_messages_that_do_not_fit_are_refused(
    directory: Path, fields: dict[str, Any]
) -> None:
    async with shards(directory, range(4)) as (node,):
        with pytest.raises(CallFailed) as caught:
            await pass_through([node], random_tokens(1, 4), **fields)
        assert caught.value.code is Code.INVALID_ARGUMENT
        assert node.training.bytes_in_use == 0


async def test_a_refusal_keeps_nothing_of_the_message(directory: Path) -> None:
    """An exception that is raised again and again gathers the frames of all its callers."""
    depths = []
    async with shards(directory, range(4), trains=False) as (node,):
        for _ in range(3):
            try:
                await node.training.forward(training_call(random_tokens(1, 4)))
            except Refused as refusal:
                depths.append(len(list(traceback.walk_tb(refusal.__traceback__))))
    assert len(depths) == 3
    assert len(set(depths)) == 1


def training_call(tokens: torch.Tensor, request: str = "r") -> TrainingCall:
    """A message for a holder of all layers."""
    return TrainingCall(
        call=ForwardCall(
            caller_ip="127.0.0.1",
            session_id="s",
            request_id=request,
            layers=range(4),
            data=tokens.numpy().tobytes(),
            shape=tuple(tokens.shape),
        ),
        labels=targets_of(tokens).numpy().tobytes(),
        sender_url="",
        source_shard=-1,
        backward=True,
    )


GRADIENT = np.full((1, 4, 64), 1e-3, dtype="<f4").tobytes()


def backward_of(session: str) -> pb.PipelineBackwardRequest:
    """What the holder of layer 3 sends to that of layer 2, for four tokens."""
    return pb.PipelineBackwardRequest(
        session_id=session,
        request_id="r",
        grad_output=GRADIENT,
        grad_shape=[1, 4, 64],
        target_shard=2,
    )


async def keep_graphs(first: HolderNode, second: HolderNode, session: str) -> None:
    """A message that steps goes through two holders, and waits at both for its way back."""
    tokens = random_tokens(1, 4)
    data, shape = tokens.numpy().astype("<i8").tobytes(), list(tokens.shape)
    for node, source, sender in ((first, -1, ""), (second, 0, f"127.0.0.1:{first.port}")):
        stub = await node.stub()
        answer = await stub.PipelineForward(
            pb.PipelineForwardRequest(
                session_id=session,
                request_id="r",
                hidden_states=data,
                hidden_shape=shape,
                target_shard=node.executor.card.layers[0],
                source_shard=source,
                sender_url=sender,
            ),
            metadata={"training": "step"},
        )
        assert answer.success, answer.error_message
        data, shape = answer.hidden_states, list(answer.hidden_shape)


class Delayed:
    """In front of a holder's way back: it begins when the test lets it."""

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
            found[session] = await stub.PipelineBackward(backward_of(session))

        with trio.fail_after(LONG_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(back, "one")
                await slow.entered.wait()
                nursery.start_soon(back, "other")
                # The other one has its answer, or waits for its turn.
                await until(lambda: bool(found) or waits_for_its_turn(shared), "a second step")
                slow.go_on.set()
        assert found["one"].success, found["one"].error_message
        # Its graph was made from weights that are no more, and nobody has stepped by it.
        assert found["other"].error_message == "graph unknown or expired"
        assert [node.training.steps for node in (one, other, shared)] == [1, 0, 1]


def waits_for_its_turn(node: HolderNode) -> bool:
    return bool(node.training._turn.statistics().tasks_waiting)


async def test_two_drivers_of_one_last_holder_step_in_turns(directory: Path) -> None:
    """The second one computes with the weights that the first has left."""
    labels = targets_of(random_tokens(1, 4)).numpy().tobytes()

    async def step(first: HolderNode, last: HolderNode, session: str) -> float:
        tokens = random_tokens(1, 4)
        call = {
            "session_id": session,
            "request_id": "r",
            "hidden_states": tokens.numpy().tobytes(),
            "hidden_shape": [1, 4],
        }
        metadata = {"training": "step"}
        stub = await first.stub()
        answer = await stub.PipelineForward(pb.PipelineForwardRequest(**call), metadata=metadata)
        stub = await last.stub()
        answer = await stub.PipelineForward(
            pb.PipelineForwardRequest(
                session_id=session,
                request_id="r",
                hidden_states=answer.hidden_states,
                hidden_shape=answer.hidden_shape,
                target_shard=2,
                training_labels=labels,
                sender_url=f"127.0.0.1:{first.port}",
            ),
            metadata=metadata,
        )
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


async def test_who_is_cancelled_after_the_holders_before_have_stepped_steps_too(
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
                limiter = second.executor._thread._limiter
                try:
                    await until(lambda: bool(limiter.statistics().tasks_waiting), "an update")
                    nursery.cancel_scope.cancel()
                finally:
                    go_on.set()
        assert first.training.steps == second.training.steps == 1


async def test_a_graph_on_its_way_back_still_counts(directory: Path) -> None:
    """Each holds gradients as large as the weights while a holder before it takes its time."""
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
async def test_a_total_that_is_none_is_as_good_as_untold(directory: Path, told: float) -> None:
    """The holder that answers so has stepped already."""
    async with shards(directory, [0, 1], [2]) as (first, second):
        await keep_graphs(first, second, "s")
        original = first.training.backward

        async def backward(message: pb.PipelineBackwardRequest, square: float = 0.0) -> float:
            await original(message, square)
            return told

        first.training.backward = backward  # type: ignore[method-assign]
        stub = await second.stub()
        answer = await stub.PipelineBackward(backward_of("s"))
        assert answer.success, answer.error_message
        assert first.training.steps == second.training.steps == 1


async def test_a_sender_that_answers_too_much_is_not_heard_out(directory: Path) -> None:
    async with shards(directory, [0, 1], [2]) as (first, second):
        await keep_graphs(first, second, "s")

        async def backward(message: pb.PipelineBackwardRequest, square: float = 0.0) -> float:
            await trio.lowlevel.checkpoint()
            raise CallFailed(Code.INTERNAL, "x" * (1 << 20))

        first.training.backward = backward  # type: ignore[method-assign]
        stub = await second.stub()
        answer = await stub.PipelineBackward(backward_of("s"))
        assert not answer.success
        assert "is larger than the limit" in answer.error_message
