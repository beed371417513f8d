"""Interface 7.3: a grpcio caller gets the status of an error, and no internal details."""

import logging
from typing import Any, NoReturn

import grpc
import pytest

from meshnode.rpc.errors import CallRefused, Code
from meshnode.rpc.node_grpc import NodeServiceServicer
from meshnode.wire import node_pb2 as pb
from spec_tests.rpc.scripted_service import LONG_S, SERVICE, Probe, grpcio_peer, in_thread, running

pytestmark = pytest.mark.wire


@pytest.mark.parametrize(
    ("wish", "code", "details"),
    [
        ("invalid", "INVALID_ARGUMENT", "prompt: is required"),
        ("unauthorized", "UNAUTHENTICATED", "invalid or expired token"),
        ("limited", "RESOURCE_EXHAUSTED", "too many requests"),
        ("poor", "FAILED_PRECONDITION", "balance too low for the operation"),
        ("unavailable", "UNAVAILABLE", "the node is draining"),
        ("layers", "UNAVAILABLE", "nobody holds layer 3"),
        ("not held", "NOT_FOUND", "layer 7 is not here"),
        ("crash in a nursery", "NOT_FOUND", "layer 7 is not here"),
        ("failed", "INTERNAL", "internal error"),
        ("crash", "INTERNAL", "internal error"),
        # torch raises NotImplementedError for a missing operator; the gRPC operation does exist.
        ("not implemented by torch", "INTERNAL", "internal error"),
    ],
)
async def test_an_error_becomes_its_status(
    wish: str, code: str, details: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(Probe()) as port:
        with grpcio_peer(port) as peer:
            error = await in_thread(peer.failure, wish)
            assert (error.code().name, error.details()) == (code, details)
            # The connection and the server still work.
            assert (await in_thread(peer.forward, data=b"next")).hidden_states == b"next"
    crashed = wish in {"crash", "not implemented by torch"}
    logged = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(logged) == (1 if crashed else 0)


async def test_the_cause_of_a_crash_is_in_the_log_only(caplog: pytest.LogCaptureFixture) -> None:
    async with running(Probe()) as port:
        with grpcio_peer(port) as peer:
            error = await in_thread(peer.failure, "crash")
    assert "secret detail" in caplog.text
    assert "secret" not in str(error)
    assert "Traceback" not in str(error)


async def test_a_crash_in_a_stream_is_internal_after_what_was_sent() -> None:
    async with running(Probe()) as port:
        with grpcio_peer(port) as peer:
            requests = [pb.InferenceRequest(max_tokens=2), pb.InferenceRequest(prompt="crash")]

            def run() -> tuple[int, grpc.RpcError]:
                count = 0
                call = peer.stream(iter(requests))
                try:
                    for _ in call:
                        count += 1
                except grpc.RpcError as error:
                    return count, error
                raise AssertionError("the call succeeded")

            count, error = await in_thread(run)
            assert count == 2
            assert (error.code().name, error.details()) == ("INTERNAL", "internal error")


@pytest.mark.parametrize(
    "path",
    [
        f"/{SERVICE}/DHTPing",
        f"/{SERVICE}/StreamInferences",
        f"/{SERVICE}/_secret",
        "/other.S/DHTPing",
    ],
)
async def test_what_is_not_offered_is_unimplemented(path: str) -> None:
    async with running(Probe()) as port:
        with grpcio_peer(port) as peer:
            call = peer.channel.unary_unary(path)

            def run() -> grpc.StatusCode:
                with pytest.raises(grpc.RpcError) as failure:
                    call(b"", timeout=LONG_S)
                return failure.value.code()

            assert await in_thread(run) is grpc.StatusCode.UNIMPLEMENTED


async def test_a_message_of_a_status_may_be_any_text() -> None:
    text = "50% \N{EM DASH} läyer\n7 \N{GRINNING FACE}"

    class Mine(NodeServiceServicer):
        async def PipelineForward(self, input_message: Any) -> NoReturn:  # noqa: N802 - the document's name
            raise CallRefused(Code.NOT_FOUND, text)

    async with running(Mine()) as port:
        with grpcio_peer(port) as peer:
            assert (await in_thread(peer.failure)).details() == text
