"""Interface 4.3, PipelineBackward: gradients across three real nodes are those of one process."""

import math
import struct
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trio

from meshnode.domain.addresses import GRPC_PORT_OFFSET
from meshnode.model.decoder import Decoder
from meshnode.model.loading import load_model
from meshnode.model.training import cross_entropy
from meshnode.rpc.errors import CallFailed, CallRefused, Code
from meshnode.wire import node_pb2 as pb
from spec_tests.model.small_models import random_tokens
from spec_tests.services.shards.holders import (
    LONG_S,
    TRAINING_LIMITS,
    HolderNode,
    shards,
    targets_of,
    training_call,
)

pytestmark = pytest.mark.wire

PARTS = ([0, 1], [2], [3])


async def pass_through(
    nodes: Sequence[HolderNode], tokens: torch.Tensor, *, request: str = "r", **last: Any
) -> pb.PipelineForwardResponse:
    """Send a training message to each holder in turn, with the address of the one before."""
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
        for i, (tokens, own) in enumerate(zip(batches, losses, strict=True)):
            answer = await pass_through(nodes, tokens, request=f"r{i}")
            assert answer.success, answer.error_message
            assert answer.is_final
            assert answer.loss == pytest.approx(own, abs=1e-5)
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
        fields: dict[str, Any] = {
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
    """Return a port that no node uses, whose listener fails the test when it is called."""
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


async def test_a_graph_is_used_once_and_only_by_its_own_session(directory: Path) -> None:
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
        # Messages that do not fit a waiting graph are refused, and leave it usable.
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


async def test_a_failed_backward_pass_is_reported_and_adds_no_gradients(directory: Path) -> None:
    tokens = random_tokens(1, 4)
    async with shards(directory, *PARTS) as nodes:
        await pass_through(nodes[:2], tokens, training_labels=b"")
        assert nodes[0].training.discard("s", "r")
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
        # PipelineBackward exists all the same, and reports the failure in its answer (7.3).
        answer = await stub.PipelineBackward(pb.PipelineBackwardRequest())
        assert not answer.success
        assert answer.error_message
        assert not node.training.loaded


async def test_a_node_without_memory_for_it_reads_no_weights(directory: Path) -> None:
    async with shards(directory, range(4), has_room=False) as (node,):
        with pytest.raises(CallFailed) as caught:
            await pass_through([node], random_tokens(1, 4))
        assert caught.value.code is Code.RESOURCE_EXHAUSTED
        assert not node.training.loaded
        assert node.training.bytes_in_use == 0


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
    """Repeated refusals have equally long tracebacks: they do not collect their callers' frames."""
    depths = []
    async with shards(directory, range(4), trains=False) as (node,):
        for _ in range(3):
            try:
                await node.training.forward(training_call(random_tokens(1, 4)))
            except CallRefused as refusal:
                depths.append(len(list(traceback.walk_tb(refusal.__traceback__))))
    assert len(depths) == 3
    assert len(set(depths)) == 1
