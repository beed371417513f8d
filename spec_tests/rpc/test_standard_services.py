"""The standard health and reflection services, called by the usual third-party clients."""

from functools import partial
from typing import Any

import grpc
import pytest
import trio
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from meshnode.domain.metering import TrafficMeter
from meshnode.edges.grpc_service import node_services
from meshnode.rpc.server import serve_grpc
from meshnode.supervise import Drain
from spec_tests.rpc.scripted_service import Peer, grpcio_peer, in_thread, raw_peer, running

pytestmark = pytest.mark.wire

SERVICES = [
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
    "node.NodeService",
]


class Served:
    """Wraps a service of ``node_services`` in the form that ``running`` expects."""

    def __init__(self, service: Any) -> None:
        self.service = service


def served(drain: Drain) -> list[Served]:
    # Health and reflection do not need the node's own services.
    return [Served(service) for service in node_services([], drain)]


def check(peer: Peer, service: str) -> str:
    stub = health_pb2_grpc.HealthStub(peer.channel)
    answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=120)
    found: str = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    return found


@pytest.mark.parametrize("name", ["", "node.NodeService"])
async def test_health_follows_the_drain(name: str) -> None:
    drain = Drain()
    async with running(*served(drain)) as port:
        with grpcio_peer(port) as peer:
            assert await in_thread(check, peer, name) == "SERVING"
            drain.begin()
            assert await in_thread(check, peer, name) == "NOT_SERVING"


async def test_the_health_of_an_unknown_service_is_not_found() -> None:
    async with running(*served(Drain())) as port:
        with grpcio_peer(port) as peer:

            def run() -> grpc.StatusCode:
                with pytest.raises(grpc.RpcError) as failure:
                    check(peer, "node.Other")
                return failure.value.code()

            assert await in_thread(run) is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [("", "SERVING", "NOT_SERVING"), ("node.Other", "SERVICE_UNKNOWN", None)],
)
async def test_a_watcher_is_notified_at_once(name: str, first: str, second: str | None) -> None:
    drain = Drain()
    async with running(*served(drain)) as port:
        with grpcio_peer(port) as peer:
            stub = health_pb2_grpc.HealthStub(peer.channel)
            call = stub.Watch(health_pb2.HealthCheckRequest(service=name), timeout=120)
            kinds = health_pb2.HealthCheckResponse.ServingStatus
            assert kinds.Name((await in_thread(next, call)).status) == first
            drain.begin()
            if second is not None:
                assert kinds.Name((await in_thread(next, call)).status) == second
            call.cancel()


async def test_a_watcher_does_not_hold_up_the_end() -> None:
    shutdown = trio.Event()
    services = [each.service for each in served(Drain())]
    serve = partial(
        serve_grpc, services, "127.0.0.1", 0, traffic=TrafficMeter(), shutdown=shutdown, grace_s=60
    )
    async with trio.open_nursery() as nursery:
        _, port = await nursery.start(serve)
        with grpcio_peer(port) as peer:
            stub = health_pb2_grpc.HealthStub(peer.channel)
            call = stub.Watch(health_pb2.HealthCheckRequest(), timeout=120)
            await in_thread(next, call)
            shutdown.set()
            error = await in_thread(call.exception)
            assert error.code() is grpc.StatusCode.UNAVAILABLE


async def test_reflection_lists_the_services_and_describes_them() -> None:
    async with running(*served(Drain())) as port:
        with grpcio_peer(port) as peer:

            def run() -> None:
                database = ProtoReflectionDescriptorDatabase(peer.channel)
                assert sorted(database.get_services()) == SERVICES
                pool = DescriptorPool(database)
                service = pool.FindServiceByName("node.NodeService")
                assert len(service.methods) == 21
                message = pool.FindMessageTypeByName("node.PipelineForwardRequest")
                assert message.fields_by_name["hidden_states"].number == 3
                assert (
                    pool.FindServiceByName("grpc.health.v1.Health").full_name
                    == "grpc.health.v1.Health"
                )
                assert pool.FindFileByName("node.proto").package == "node"

            await in_thread(run)


QUESTIONS: list[tuple[dict[str, Any], Any]] = [
    ({"list_services": ""}, None),
    ({"file_by_filename": "node.proto"}, "node.proto"),
    ({"file_by_filename": "grpc/health/v1/health.proto"}, "grpc/health/v1/health.proto"),
    ({"file_containing_symbol": "node.NodeService.DHTPing"}, "node.proto"),
    ({"file_containing_symbol": "node.DHTNodeInfo"}, "node.proto"),
    (
        {"file_containing_symbol": "grpc.health.v1.HealthCheckResponse.ServingStatus"},
        "grpc/health/v1/health.proto",
    ),
    ({"file_by_filename": "../../etc/passwd"}, "error"),
    ({"file_containing_symbol": "node.Nothing"}, "error"),
    ({"file_containing_extension": {"containing_type": "node.DHTNodeInfo"}}, "error"),
    ({"all_extension_numbers_of_type": "node.DHTNodeInfo"}, "error"),
    ({}, "error"),
]


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_every_kind_of_question_is_answered(version: str) -> None:
    def run(peer: Peer) -> list[Any]:
        if version == "v1":
            # The package used by the other tests lacks v1, whose messages are the same on the wire.
            method = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
            call = peer.channel.stream_stream(
                method,
                reflection_pb2.ServerReflectionRequest.SerializeToString,
                reflection_pb2.ServerReflectionResponse.FromString,
            )
        else:
            call = reflection_pb2_grpc.ServerReflectionStub(peer.channel).ServerReflectionInfo
        requests = [
            reflection_pb2.ServerReflectionRequest(host="h", **fields) for fields, _ in QUESTIONS
        ]
        return list(call(iter(requests), timeout=120))

    async with running(*served(Drain())) as port:
        with grpcio_peer(port) as peer:
            answers = await in_thread(run, peer)
    assert len(answers) == len(QUESTIONS)
    for answer, (fields, wanted) in zip(answers, QUESTIONS, strict=True):
        assert answer.valid_host == "h"
        assert answer.original_request == reflection_pb2.ServerReflectionRequest(host="h", **fields)
        if wanted is None:
            assert [each.name for each in answer.list_services_response.service] == SERVICES
        elif wanted == "error":
            assert answer.error_response.error_code in (3, 5)
            assert answer.error_response.error_message
        else:
            (data,) = answer.file_descriptor_response.file_descriptor_proto
            assert FileDescriptorProto.FromString(data).name == wanted


async def test_other_services_do_not_disturb_the_port() -> None:
    async with running(*served(Drain())) as port, raw_peer(port) as peer:
        # PipelineForward is not served here: the calls fail, and the connection stays open.
        assert not await peer.forward()
        assert not await peer.forward()


@pytest.mark.parametrize(
    "operation",
    [
        "grpc.health.v1.Health/Check",
        "grpc.health.v1.Health/Watch",
        "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    ],
)
async def test_a_question_is_short(operation: str) -> None:
    """A watch keeps its request in memory while it lasts, so the request must be short."""
    async with running(*served(Drain())) as port, raw_peer(port) as peer:
        body = b"\0\0\0\x27\x10" + bytes(10_000)
        path: dict[str, Any] = {":path": f"/{operation}"}
        stream_id = await peer.request(body=body, **path)
        assert await peer.status(stream_id) == "8"  # RESOURCE_EXHAUSTED
