"""The committed code is generated from proto/, and the adapter is bound to its names."""

import inspect
from collections.abc import AsyncIterator
from typing import Any

import pytest

from meshnode.rpc import health_grpc, node_grpc, reflection_grpc, reflection_v1alpha_grpc
from meshnode.rpc.node_grpc import NodeServiceServicer
from meshnode.wire import health_pb2, node_pb2, reflection_pb2, reflection_v1alpha_pb2


def test_the_committed_code_is_up_to_date() -> None:
    pytest.importorskip("grpc_tools", reason="the codegen extra is not installed")
    from tools.codegen import ROOT, generate

    for path, text in generate().items():
        assert (ROOT / path).read_text() == text, f"{path}: run python -m tools.codegen"


@pytest.mark.parametrize(
    ("messages", "services", "name"),
    [
        (node_pb2, node_grpc, "NodeService"),
        (health_pb2, health_grpc, "Health"),
        (reflection_pb2, reflection_grpc, "ServerReflection"),
        (reflection_v1alpha_pb2, reflection_v1alpha_grpc, "ServerReflection"),
    ],
)
def test_servicers_and_descriptors_agree(messages: Any, services: Any, name: str) -> None:
    described = messages.DESCRIPTOR.services_by_name[name]
    service = getattr(services, f"{name}Servicer")().service
    assert service.name == described.full_name
    assert set(service.operations) == set(described.methods_by_name)
    for method in described.methods:
        operation = service.operations[method.name]
        assert operation.request_type.DESCRIPTOR is method.input_type
        assert operation.response_type.DESCRIPTOR is method.output_type
        assert operation.takes_stream == method.client_streaming
        assert operation.gives_stream == method.server_streaming


def test_the_messages_stay_out_of_the_shared_pool() -> None:
    # Other packages register the same names; both must be usable in one process.
    from grpc_health.v1 import health_pb2 as other

    assert other.HealthCheckRequest.DESCRIPTOR.full_name == "grpc.health.v1.HealthCheckRequest"
    assert health_pb2.HealthCheckRequest.DESCRIPTOR.full_name == "grpc.health.v1.HealthCheckRequest"


def test_an_override_may_be_an_async_generator() -> None:
    class Mine(NodeServiceServicer):
        async def StreamInference(  # noqa: N802 - the document's name
            self, input_messages: AsyncIterator[node_pb2.InferenceRequest]
        ) -> AsyncIterator[node_pb2.InferenceResponse]:
            async for _ in input_messages:
                yield node_pb2.InferenceResponse()

    handler = Mine().service.operations["StreamInference"].handler
    assert inspect.isasyncgenfunction(handler)
