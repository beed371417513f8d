"""Interface 4.1, 4.3 and 6: clients of both interfaces, with the layers on other nodes."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from meshnode.domain.metering import TrafficMeter
from meshnode.edges.grpc_inference import InferenceServicer
from meshnode.edges.grpc_service import node_services
from meshnode.rpc.errors import CallFailed, CallRefused, Code
from meshnode.rpc.server import serve_grpc
from meshnode.supervise import Drain
from meshnode.wire import node_pb2 as pb
from spec_tests.edges.grpc_node import caller_access
from spec_tests.edges.http_server import start_node
from spec_tests.services.pipeline.pipelines import (
    GREEDY,
    Cluster,
    alone,
    cluster,
    small_model,
    spans,
)

NONE: dict[str, Any] = {"eos_token_ids": frozenset()}
BODY: dict[str, Any] = {"prompt": GREEDY.prompt, "max_tokens": GREEDY.max_tokens, "temperature": 0}
TRACED = {"X-Meshnode-Trace": "1"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("pipeline") / "model")


def events_of(body: bytes) -> list[dict[str, Any]]:
    lines = body.decode().split("\n\n")
    return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]


def comments_of(body: bytes) -> list[str]:
    return [line[2:] for line in body.decode().split("\n\n") if line.startswith(": ")]


def breaks_at(nodes: Cluster, number: int, code: Code) -> None:
    async def script(current: int) -> None:
        if current >= number:
            raise CallRefused(code, "for a test")

    nodes.holders[0].gate.script = script


async def read_into(received: list[int], call: Any) -> None:
    """Append each message's index to ``received``, so that it is kept if the call fails."""
    async for message in call:
        received.append(message.index)  # noqa: PERF401 - a failing comprehension would lose them


async def test_http(directory: Path, tmp_path: Path) -> None:
    own, *rest = spans(3)
    text = await alone(directory, GREEDY, **NONE)
    async with cluster(directory, own, rest, **NONE) as nodes:
        node = await start_node(
            nodes.nursery, tmp_path, generations=nodes.pipeline, hops=nodes.hops
        )
        answer = await node.ask("POST", "/api/v1/inference", BODY)
        assert answer.json["text"] == text
        assert "x-meshnode-trace" not in answer.headers
        answer = await node.ask("POST", "/api/v1/inference", BODY, headers=TRACED)
        trace = json.loads(answer.headers["x-meshnode-trace"])
        assert trace["id"] == answer.json["id"]
        assert [hop["layers"] for hop in trace["hops"]] == ["0-2", "3-5"]

        streamed = {**BODY, "stream": True}
        answer = await node.ask("POST", "/api/v1/inference", streamed, headers=TRACED)
        *tokens, final = events_of(answer.body)
        assert "".join(event["token"] for event in tokens) == text
        assert final["token"] == "[DONE]"
        (comment,) = comments_of(answer.body)
        assert json.loads(comment.removeprefix("trace "))["paths"] == 1
        # The trace comes just before the final event.
        assert answer.body.decode().split("\n\n")[-3].startswith(": trace ")

        # A hop fails for good: the events so far are followed by the documented error body.
        breaks_at(nodes, nodes.holders[0].gate.forwards + 12, Code.UNAVAILABLE)
        answer = await node.ask("POST", "/api/v1/inference", streamed)
        *tokens, failed = events_of(answer.body)
        assert [event["index"] for event in tokens] == list(range(len(tokens)))
        assert 0 < len(tokens) < GREEDY.max_tokens
        assert failed["error"]["code"] == "UNAVAILABLE"
        answer = await node.ask("POST", "/api/v1/inference", BODY)
        assert (answer.status, answer.json["error"]["code"]) == (503, "UNAVAILABLE")

        nodes.book.peers.clear()
        answer = await node.ask("POST", "/api/v1/inference", streamed)
        assert (answer.status, answer.json["error"]["code"]) == (503, "UNAVAILABLE")
        assert "layers 3-5" in answer.json["error"]["message"]
        await nodes.settled()


async def test_grpc(directory: Path) -> None:
    own, *rest = spans(3)
    text = await alone(directory, GREEDY, **NONE)
    request = pb.InferenceRequest(**BODY)
    async with cluster(directory, own, rest, **NONE) as nodes:
        drain = Drain()
        access = caller_access(nodes.pipeline)
        service = InferenceServicer(access=access, drain=drain, hops=nodes.hops)
        _, port = await nodes.nursery.start(
            partial(
                serve_grpc,
                node_services([service], drain),
                "127.0.0.1",
                0,
                traffic=TrafficMeter(),
            )
        )
        stub = await nodes.pool.stub("127.0.0.1", port)
        assert (await stub.UnaryInference(request)).text == text
        answer = await stub.UnaryInference.ask(request, metadata={"meshnode-trace": "1"})
        assert len(json.loads(answer.metadata["meshnode-trace"])["hops"]) == 2

        async with stub.StreamInference() as call:
            await call.send(request, last=True)
            answers = [message async for message in call]
        assert "".join(message.text for message in answers) == text
        assert answers[-1].is_final

        # Cancelling the stream frees the sessions on the hops.
        async with stub.StreamInference() as call:
            await call.send(pb.InferenceRequest(prompt="x", max_tokens=150), last=True)
            assert await call.receive() is not None
            assert nodes.holders[0].executor.kv_bytes_in_use
        await nodes.settled()

        breaks_at(nodes, nodes.holders[0].gate.forwards + 12, Code.UNAVAILABLE)
        received: list[int] = []
        async with stub.StreamInference() as call:
            await call.send(request, last=True)
            with pytest.raises(CallFailed) as caught:
                await read_into(received, call)
        assert caught.value.code is Code.UNAVAILABLE
        assert received == list(range(len(received)))
        assert received
        await nodes.settled()
