"""The standard reflection service, v1 and v1alpha: ``grpcurl`` lists and calls what is served.

Both versions have the same messages under two packages. A request for something that does not exist
is answered with the protocol's error message, and the stream stays open.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto

from meshnode.rpc.errors import Code
from meshnode.rpc.reflection_grpc import ServerReflectionServicer as ServicerV1
from meshnode.rpc.reflection_v1alpha_grpc import ServerReflectionServicer as ServicerV1Alpha
from meshnode.rpc.stubs import Service
from meshnode.wire import reflection_pb2, reflection_v1alpha_pb2


def reflection_services(served: Iterable[Service]) -> list[Service]:
    """Both reflection services over ``served`` and themselves."""
    index = Index()
    v1, v1alpha = ReflectionV1(index).service, ReflectionV1Alpha(index).service
    for service in (*served, v1, v1alpha):
        index.add(service)
    return [v1, v1alpha]


class Index:
    """The descriptor files of the services, by name and by the symbols that they define."""

    def __init__(self) -> None:
        """Start without services."""
        self._services: set[str] = set()
        self._files: dict[str, Any] = {}
        self._symbols: dict[str, Any] = {}

    def add(self, service: Service) -> None:
        """Index a service and the files of its messages."""
        self._services.add(service.name)
        for operation in service.operations.values():
            for message in (operation.request_type, operation.response_type):
                self._add_file(message.DESCRIPTOR.file)

    def answer(self, request: Any, pb: Any) -> Any:
        """The response to one request, in the messages of the module ``pb``."""
        response = pb.ServerReflectionResponse(valid_host=request.host, original_request=request)
        kind = request.WhichOneof("message_request")
        if kind == "list_services":
            names = sorted(self._services)
            response.list_services_response.service.extend(
                pb.ServiceResponse(name=name) for name in names
            )
        elif kind == "file_by_filename":
            self._answer_file(response, self._files.get(request.file_by_filename))
        elif kind == "file_containing_symbol":
            self._answer_file(response, self._symbols.get(request.file_containing_symbol))
        elif kind is None:
            _answer_error(response, Code.INVALID_ARGUMENT, "empty request")
        else:
            # All messages here are proto3, which has no extensions.
            _answer_error(response, Code.NOT_FOUND, "no extensions")
        return response

    def _answer_file(self, response: Any, file: Any) -> None:
        if file is None:
            _answer_error(response, Code.NOT_FOUND, "not found")
            return
        copy = FileDescriptorProto()
        file.CopyToProto(copy)
        # No file imports another, so the caller needs only this one.
        response.file_descriptor_response.file_descriptor_proto.append(copy.SerializeToString())

    def _add_file(self, file: Any) -> None:
        if file.name in self._files:
            return
        self._files[file.name] = file
        for service in file.services_by_name.values():
            self._symbols[service.full_name] = file
            for method in service.methods:
                self._symbols[method.full_name] = file
        for message in file.message_types_by_name.values():
            self._add_message(message, file)

    def _add_message(self, message: Any, file: Any) -> None:
        self._symbols[message.full_name] = file
        for entry in (*message.fields, *message.enum_types):
            self._symbols[entry.full_name] = file
        for nested in message.nested_types:
            self._add_message(nested, file)


def _answer_error(response: Any, code: Code, message: str) -> None:
    response.error_response.error_code = int(code)
    response.error_response.error_message = message


class ReflectionV1(ServicerV1):
    """``grpc.reflection.v1.ServerReflection``."""

    def __init__(self, index: Index) -> None:
        """Answer from ``index``."""
        self._index = index

    async def ServerReflectionInfo(  # noqa: N802 - the protocol's name
        self, input_messages: AsyncIterator[reflection_pb2.ServerReflectionRequest]
    ) -> AsyncIterator[reflection_pb2.ServerReflectionResponse]:
        """Answer each request in turn."""
        async for request in input_messages:
            yield self._index.answer(request, reflection_pb2)


class ReflectionV1Alpha(ServicerV1Alpha):
    """``grpc.reflection.v1alpha.ServerReflection``, which older clients ask for."""

    def __init__(self, index: Index) -> None:
        """Answer from ``index``."""
        self._index = index

    async def ServerReflectionInfo(  # noqa: N802 - the protocol's name
        self, input_messages: AsyncIterator[reflection_v1alpha_pb2.ServerReflectionRequest]
    ) -> AsyncIterator[reflection_v1alpha_pb2.ServerReflectionResponse]:
        """Answer each request in turn."""
        async for request in input_messages:
            yield self._index.answer(request, reflection_v1alpha_pb2)
