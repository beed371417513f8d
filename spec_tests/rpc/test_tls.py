"""TLS on the gRPC port and on connections to peers (decision 0171)."""

import shutil
from functools import partial
from pathlib import Path

import grpc
import pytest
import trio

from meshnode.domain.metering import TrafficMeter
from meshnode.rpc.channel import open_channel
from meshnode.rpc.errors import CallFailed, Code
from meshnode.rpc.limits import RpcLimits
from meshnode.rpc.node_grpc import NodeServiceStub
from meshnode.rpc.server import serve_grpc
from meshnode.tls import ServerTls, peer_context
from meshnode.wire import node_pb2 as pb
from spec_tests.certificates import Certificate, make_certificate
from spec_tests.rpc.scripted_service import SERVICE, Probe, in_thread

pytestmark = pytest.mark.wire
LARGE = bytes(3 << 20)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"))


async def serve(
    nursery: trio.Nursery, certificate: Certificate, limits: RpcLimits | None = None
) -> tuple[int, TrafficMeter]:
    traffic = TrafficMeter()
    tls = ServerTls(certificate.certificate, certificate.key)
    start = partial(serve_grpc, [Probe().service], "127.0.0.1", 0, traffic=traffic)
    address = await nursery.start(partial(start, limits=limits, tls=tls))
    return address[1], traffic


async def test_a_peer_with_the_authority_calls_and_sends_much(
    nursery: trio.Nursery, certificate: Certificate
) -> None:
    port, _ = await serve(nursery, certificate)
    tls = peer_context(certificate.authority)
    request = pb.PipelineForwardRequest(hidden_states=LARGE)
    with trio.fail_after(120):
        async with open_channel("127.0.0.1", port, traffic=TrafficMeter(), tls=tls) as channel:
            stub = NodeServiceStub(channel)
            for _ in range(3):
                answer = await stub.PipelineForward(request)
                assert answer.hidden_states == LARGE
    nursery.cancel_scope.cancel()


async def test_h2spec_finds_no_fault_over_tls(
    nursery: trio.Nursery, certificate: Certificate
) -> None:
    """A frame is a record here, so what it breaks is often read after the frame before it."""
    program = shutil.which("h2spec")
    if program is None:
        pytest.skip("h2spec is not on the PATH")
    port, _ = await serve(nursery, certificate)
    command = [program, "-t", "-k", "-p", str(port), "-o", "5"]
    done = await trio.run_process(command, capture_stdout=True, check=False)
    assert "145 tests, 145 passed, 0 skipped, 0 failed" in done.stdout.decode()
    nursery.cancel_scope.cancel()


async def test_grpcio_calls_over_tls(nursery: trio.Nursery, certificate: Certificate) -> None:
    port, _ = await serve(nursery, certificate)
    credentials = grpc.ssl_channel_credentials(certificate.authority.read_bytes())

    def call() -> bytes:
        with grpc.secure_channel(f"localhost:{port}", credentials) as channel:
            forward = channel.unary_unary(
                f"/{SERVICE}/PipelineForward",
                request_serializer=pb.PipelineForwardRequest.SerializeToString,
                response_deserializer=pb.PipelineForwardResponse.FromString,
            )
            request = pb.PipelineForwardRequest(hidden_states=LARGE)
            return bytes(forward(request, timeout=120).hidden_states)

    assert await in_thread(call) == LARGE
    nursery.cancel_scope.cancel()


async def test_peers_without_a_known_authority_are_not_called(
    nursery: trio.Nursery, certificate: Certificate, tmp_path: Path
) -> None:
    port, _ = await serve(nursery, certificate)
    stranger = peer_context(make_certificate(tmp_path).authority)
    for tls, reason in ((stranger, "cannot trust"), (None, ".")):
        with trio.fail_after(120), pytest.raises(CallFailed, match=reason) as failed:
            async with open_channel("127.0.0.1", port, traffic=TrafficMeter(), tls=tls):
                pass
        assert failed.value.code is Code.UNAVAILABLE
    nursery.cancel_scope.cancel()


async def test_a_node_without_tls_is_not_called_by_one_that_wants_it(
    nursery: trio.Nursery, certificate: Certificate
) -> None:
    address = await nursery.start(
        partial(serve_grpc, [Probe().service], "127.0.0.1", 0, traffic=TrafficMeter())
    )
    tls = peer_context(certificate.authority)
    with trio.fail_after(120), pytest.raises(CallFailed, match="cannot trust"):
        async with open_channel(*address, traffic=TrafficMeter(), tls=tls):
            pass
    nursery.cancel_scope.cancel()


async def test_a_handshake_that_hangs_counts_as_a_connection_and_ends(
    nursery: trio.Nursery, certificate: Certificate
) -> None:
    port, traffic = await serve(nursery, certificate, RpcLimits(handshake_s=0.05))
    with trio.fail_after(120):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        async with stream:
            # The beginning of a ClientHello that never comes to its end.
            await stream.send_all(b"\x16\x03\x01\x02\x00\x01")
            assert await stream.receive_some() == b""
        while traffic.active_connections:
            await trio.lowlevel.checkpoint()
    nursery.cancel_scope.cancel()
