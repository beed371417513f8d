"""Interface 4.3 and 5: the caller's identity and the metadata that accompanies messages."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.errors import LayerNotHeld
from meshnode.domain.metering import TrafficMeter
from meshnode.rpc.caller import Caller, answer_metadata, caller
from meshnode.rpc.channel import open_channel
from meshnode.rpc.errors import CallFailed, Code
from meshnode.rpc.metadata import MAX_ENTRIES, received_metadata, sent_metadata
from meshnode.rpc.node_grpc import NodeServiceServicer, NodeServiceStub
from meshnode.wire import node_pb2 as pb
from spec_tests.rpc.scripted_service import (
    LONG_S,
    Peer,
    grpcio_peer,
    grpcio_server,
    in_thread,
    running,
)

pytestmark = pytest.mark.wire


class Meta(NodeServiceServicer):
    """Records the identity of each caller."""

    def __init__(self) -> None:
        self.callers: list[Caller] = []

    async def PipelineForward(self, input_message: Any) -> pb.PipelineForwardResponse:  # noqa: N802
        self.callers.append(caller())
        answer_metadata("observed-address", caller().ip)
        answer_metadata("session", input_message.session_id or "none")
        if input_message.session_id == "refuse":
            raise LayerNotHeld("layer 7 is not here")
        return pb.PipelineForwardResponse(success=True)


async def test_a_handler_learns_who_calls() -> None:
    meta = Meta()
    async with (
        running(meta) as port,
        open_channel("127.0.0.1", port, traffic=TrafficMeter()) as channel,
    ):
        stub = NodeServiceStub(channel)
        answer = await stub.PipelineForward.ask(
            pb.PipelineForwardRequest(session_id="s"), metadata={"decode-from": "17"}
        )
        await stub.PipelineForward(pb.PipelineForwardRequest())
    assert answer.message.success
    assert answer.metadata == {"observed-address": "127.0.0.1", "session": "s"}
    first, second = meta.callers
    assert (first.ip, first.here) == ("127.0.0.1", "127.0.0.1")
    assert first.port == second.port != port
    assert first.metadata == {"decode-from": "17"}
    assert second.metadata == {}


def test_outside_of_a_call_there_is_no_caller() -> None:
    with pytest.raises(RuntimeError):
        caller()
    with pytest.raises(RuntimeError):
        answer_metadata("key", "value")


async def test_metadata_with_grpcio_as_client() -> None:
    meta = Meta()

    def ask(peer: Peer, session: str) -> tuple[object, dict[str, Any]]:
        request = pb.PipelineForwardRequest(session_id=session)
        call = peer.unary("PipelineForward", request, pb.PipelineForwardResponse)
        try:
            _, state = call.with_call(
                request, timeout=LONG_S, metadata=[("dht-record-age", "60"), ("blob-bin", b"\0")]
            )
        except grpc.RpcError as error:
            return error.code(), dict(error.trailing_metadata())
        return state.code(), dict(state.trailing_metadata())

    async with running(meta) as port:
        with grpcio_peer(port) as peer:
            code, metadata = await in_thread(ask, peer, "s")
            assert code is grpc.StatusCode.OK
            assert metadata == {"observed-address": "127.0.0.1", "session": "s"}
            code, metadata = await in_thread(ask, peer, "refuse")
            assert code is grpc.StatusCode.NOT_FOUND
            assert metadata["session"] == "refuse"
    assert meta.callers[0].metadata == {"dht-record-age": "60"}


async def test_metadata_with_grpcio_as_server() -> None:
    seen = {}

    def answer(request: Any, context: grpc.ServicerContext) -> Any:
        seen.update(context.invocation_metadata())
        context.send_initial_metadata([("queue-ms", "1.5")])
        context.set_trailing_metadata([("compute-ms", "2.5"), ("blob-bin", b"\0")])
        return pb.PipelineForwardResponse(success=True)

    with grpcio_server(PipelineForward=answer) as port:
        async with open_channel("127.0.0.1", port, traffic=TrafficMeter()) as channel:
            reply = await NodeServiceStub(channel).PipelineForward.ask(
                pb.PipelineForwardRequest(), metadata={"session-positions": "9"}
            )
    assert seen["session-positions"] == "9"
    assert reply.metadata == {"queue-ms": "1.5", "compute-ms": "2.5"}


async def test_an_answer_above_the_callers_own_limit_is_not_taken() -> None:
    def answer(request: Any, context: grpc.ServicerContext) -> Any:
        return pb.PipelineForwardResponse(hidden_states=bytes(10_000))

    with grpcio_server(PipelineForward=answer) as port:
        async with open_channel("127.0.0.1", port, traffic=TrafficMeter()) as channel:
            stub = NodeServiceStub(channel)
            with pytest.raises(CallFailed) as failure:
                await stub.PipelineForward(pb.PipelineForwardRequest(), most_bytes=9_999)
            assert failure.value.code is Code.RESOURCE_EXHAUSTED
            allowed = await stub.PipelineForward(pb.PipelineForwardRequest(), most_bytes=10_100)
            assert isinstance(allowed, pb.PipelineForwardResponse)


@pytest.mark.parametrize(
    ("key", "value"),
    [("", "v"), ("Upper", "v"), ("grpc-x", "v"), ("a b", "v"), ("k", ""), ("k", "a\nb"),
     ("k", " v"), ("k", "é"), ("x-bin", "v"), ("te", "v"), (":path", "/"), ("k", "v" * 1025)],
)  # fmt: skip
def test_what_is_not_metadata_is_not_sent(key: str, value: str) -> None:
    with pytest.raises(ValueError, match="not metadata"):
        sent_metadata({key: value})


def test_too_much_metadata_is_not_sent() -> None:
    with pytest.raises(ValueError, match="more than"):
        sent_metadata({f"k{index}": "v" for index in range(MAX_ENTRIES + 1)})


@given(st.lists(st.tuples(st.text(max_size=8), st.text(max_size=8)), max_size=80))
def test_metadata_that_was_received_can_be_sent_on(headers: list[tuple[str, str]]) -> None:
    assert sent_metadata(received_metadata(headers)) is not None
