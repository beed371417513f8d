"""Classes that generated service code uses in place of purerpc's own (interface 4.3).

purerpc's plugin generates, for each service of a ``.proto`` file, a *servicer* whose methods are
overridden and a *stub* whose attributes are called. Both use the names of this module. An operation
that a servicer does not override is UNIMPLEMENTED.

In a servicer, an operation with one answer is a coroutine function, and one with many answers is an
async generator; its argument is a message or an async iterator of messages. It refuses a call by
raising a domain error or ``meshnode.rpc.errors.CallRefused``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from meshnode.rpc._purerpc import Cardinality, Signature
from meshnode.rpc._purerpc import signature as RPCSignature  # noqa: N812 - a name of purerpc's
from meshnode.rpc.channel import Channel, ClientCall
from meshnode.rpc.metadata import NONE

__all__ = [
    "Answer",
    "Cardinality",
    "Client",
    "NotOffered",
    "RPCSignature",
    "Service",
    "Servicer",
    "StreamStream",
    "StreamUnary",
    "UnaryStream",
    "UnaryUnary",
]

Takes = TypeVar("Takes", bound=Message)
Gives = TypeVar("Gives", bound=Message)


class NotOffered(Exception):
    """Raised by the generated body of an operation."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a service, with what a server needs to run it."""

    name: str
    handler: Callable[..., Any]
    request_type: type[Message]
    response_type: type[Message]
    takes_stream: bool
    gives_stream: bool
    ends: bool = True
    """Whether a call ends by itself; a closing server waits only for such calls."""
    carries: bool = False
    """Whether its messages are calls and answers (``line_server``): its handler also takes the
    ``ServerCall``, by which it answers."""


class Service:
    """A named set of operations."""

    def __init__(self, name: str) -> None:
        """``name`` is the full name, package included."""
        self.name = name
        self.operations: dict[str, Operation] = {}

    def add_method(self, name: str, handler: Callable[[Any], Any], signature: Signature) -> None:
        """Called by the generated code."""
        takes_stream, gives_stream = _streams(signature.cardinality)
        self.operations[name] = Operation(
            name=name,
            handler=handler,
            request_type=signature.request_type,
            response_type=signature.response_type,
            takes_stream=takes_stream,
            gives_stream=gives_stream,
        )


class Servicer:
    """Base of the generated servicers."""

    @property
    def service(self) -> Service:
        """The operations of the service; the generated code overrides this."""
        raise NotOffered


class _Stub:
    def __init__(self, channel: Channel, service: str, name: str, signature: Signature) -> None:
        self._channel = channel
        self._service = service
        self._name = name
        self._signature = signature

    def _call(self) -> ClientCall[Any, Any]:
        _, gives_stream = _streams(self._signature.cardinality)
        return self._channel.call(
            self._service,
            self._name,
            request_type=self._signature.request_type,
            response_type=self._signature.response_type,
            default_s=self._channel.limits.default_stream_s
            if gives_stream or _streams(self._signature.cardinality)[0]
            else self._channel.limits.default_call_s,
        )


@dataclass(frozen=True, slots=True)
class Answer(Generic[Gives]):
    """The answer to a call, and its metadata."""

    message: Gives
    metadata: Mapping[str, str]
    """Lower-case keys, readable values."""


class UnaryUnary(_Stub, Generic[Takes, Gives]):
    """One message each way."""

    async def __call__(
        self,
        request: Takes,
        *,
        metadata: Mapping[str, str] = NONE,
        most_bytes: int | None = None,
        line: bool = False,
    ) -> Gives:
        """Make the call within the caller's deadline. Raises CallFailed.

        ``metadata`` is sent with the request; an answer above ``most_bytes`` is refused. With
        ``line`` a small call goes over the channel's line, once that is open.
        """
        answer = await self.ask(request, metadata=metadata, most_bytes=most_bytes, line=line)
        return answer.message

    async def ask(
        self,
        request: Takes,
        *,
        metadata: Mapping[str, str] = NONE,
        most_bytes: int | None = None,
        line: bool = False,
    ) -> Answer[Gives]:
        """Make the call, and return the answer's metadata too."""
        if line and most_bytes is not None:
            data = request.SerializeToString()
            if self._channel.line.takes(len(data), most_bytes):
                kind: type[Gives] = self._signature.response_type
                answer = await self._channel.line.ask(self._name, data, metadata, kind, most_bytes)
                return Answer(*answer)
        call: ClientCall[Takes, Gives] = self._call()
        call.first = request
        call.metadata = metadata
        call.most_bytes = most_bytes
        async with call:
            message = await call.receive_only()
            return Answer(message, call.answer_metadata)


class UnaryStream(_Stub, Generic[Takes, Gives]):
    """One request message, many response messages."""

    def __call__(
        self, request: Takes, *, metadata: Mapping[str, str] = NONE
    ) -> ClientCall[Takes, Gives]:
        """``async with stub.Operation(request) as call:``, then iterate."""
        call: ClientCall[Takes, Gives] = self._call()
        call.first = request
        call.metadata = metadata
        return call


class StreamUnary(_Stub, Generic[Takes, Gives]):
    """Many request messages, one response message."""

    def __call__(self) -> ClientCall[Takes, Gives]:
        """``async with stub.Operation() as call:``, then ``send``, ``end``, ``receive_only``."""
        return self._call()


class StreamStream(_Stub, Generic[Takes, Gives]):
    """Many messages each way."""

    def __call__(
        self, *, metadata: Mapping[str, str] = NONE, most_bytes: int | None = None
    ) -> ClientCall[Takes, Gives]:
        """``async with stub.Operation() as call:``, then ``send`` and iterate in any order.

        A response message above ``most_bytes`` is refused.
        """
        call: ClientCall[Takes, Gives] = self._call()
        call.metadata = metadata
        call.most_bytes = most_bytes
        return call


class Client:
    """Makes the attributes of the generated stubs."""

    def __init__(self, service: str, channel: Channel) -> None:
        """``service`` is the full name, package included."""
        self._service = service
        self._channel = channel

    def get_method_stub(self, name: str, signature: Signature) -> _Stub:
        """Called by the generated code."""
        kinds: dict[tuple[bool, bool], type[_Stub]] = {
            (False, False): UnaryUnary,
            (False, True): UnaryStream,
            (True, False): StreamUnary,
            (True, True): StreamStream,
        }
        kind = kinds[_streams(signature.cardinality)]
        return kind(self._channel, self._service, name, signature)


def _streams(cardinality: Any) -> tuple[bool, bool]:
    """Whether requests and responses are streams."""
    takes, gives = cardinality.name.split("_")
    return takes == "STREAM", gives == "STREAM"
