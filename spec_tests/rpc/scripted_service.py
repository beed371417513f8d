"""A node service whose behaviour the request selects, with clients by grpcio and raw HTTP/2."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any

import grpc
import trio
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    DataReceived,
    ResponseReceived,
    StreamReset,
    TrailersReceived,
)

from meshnode.domain import errors
from meshnode.domain.metering import TrafficMeter
from meshnode.rpc._h2_compat import keep_streams_after_goaway
from meshnode.rpc.framing import prefix
from meshnode.rpc.limits import RpcLimits
from meshnode.rpc.node_grpc import NodeServiceServicer
from meshnode.rpc.server import serve_grpc
from meshnode.wire import node_pb2 as pb

SERVICE = "node.NodeService"
LONG_S = 120.0
"""Timeout in seconds that only a failing test reaches."""
NO_LIMITS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Probe(NodeServiceServicer):
    """PipelineForward does what ``session_id`` says; StreamInference answers each prompt."""

    def __init__(self) -> None:
        self.started = trio.Event()
        self.ended = trio.Event()
        self.stream_ended = trio.Event()
        self.release = trio.Event()
        self.running = 0
        self.most_running = 0
        self.outcome = ""

    async def PipelineForward(self, input_message: Any) -> pb.PipelineForwardResponse:  # noqa: N802
        self.started.set()
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await self._behave(input_message.session_id)
        except trio.Cancelled:
            self.outcome = "cancelled"
            raise
        finally:
            self.running -= 1
            self.ended.set()
        return pb.PipelineForwardResponse(hidden_states=input_message.hidden_states, success=True)

    async def _behave(self, wish: str) -> None:
        if wish == "wait":
            await self.release.wait()
        elif wish == "crash":
            raise RuntimeError("secret detail")
        elif wish == "crash in a nursery":
            async with trio.open_nursery():
                raise errors.LayerNotHeld("layer 7 is not here")
        elif wish:
            raise FAILURES[wish]()

    async def StreamInference(  # noqa: N802
        self, input_messages: AsyncIterator[pb.InferenceRequest]
    ) -> AsyncIterator[pb.InferenceResponse]:
        self.started.set()
        # The handler may be cancelled while it computes, or closed while it waits for the reader.
        self.outcome = "cancelled"
        try:
            async for request in input_messages:
                if request.prompt == "endless":
                    while True:
                        yield pb.InferenceResponse(text="x" * 1000)
                if request.prompt == "crash":
                    raise RuntimeError("secret detail")
                for index in range(request.max_tokens):
                    yield pb.InferenceResponse(request_id=request.request_id, index=index)
            self.outcome = "done"
        finally:
            self.stream_ended.set()


FAILURES: dict[str, Callable[[], Exception]] = {
    "invalid": lambda: errors.InvalidRequest("prompt", "is required"),
    "unauthorized": errors.Unauthorized,
    "limited": lambda: errors.RateLimited(3),
    "poor": lambda: errors.InsufficientBalance(2.0, 1.0),
    "unavailable": lambda: errors.Unavailable("the node is draining"),
    "layers": lambda: errors.LayersUnavailable("nobody holds layer 3"),
    "not held": lambda: errors.LayerNotHeld("layer 7 is not here"),
    "failed": errors.ComputationFailed,
    "not implemented by torch": NotImplementedError,
}


@asynccontextmanager
async def running(
    *services: Any,
    limits: RpcLimits | None = None,
    traffic: TrafficMeter | None = None,
    **options: Any,
) -> AsyncIterator[int]:
    """Serve on a free port during the context; yield the port."""
    async with trio.open_nursery() as nursery:
        serve = partial(
            serve_grpc,
            [each.service for each in services],
            "127.0.0.1",
            0,
            traffic=traffic or TrafficMeter(),
            limits=limits,
            **options,
        )
        _, port = await nursery.start(serve)
        nursery.start_soon(_watch)
        yield port
        nursery.cancel_scope.cancel()


async def _watch() -> None:
    # Not a timeout around the test: clients would send it to the server as their deadline.
    await trio.sleep(2 * LONG_S)
    raise TimeoutError("the test hangs")


class Peer:
    """A grpcio client. Its calls block: use them in threads."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel

    def unary(self, name: str, request: Any, response: Any) -> Any:
        """The grpcio callable of a unary operation."""
        return self.channel.unary_unary(
            f"/{SERVICE}/{name}", type(request).SerializeToString, response.FromString
        )

    def forward(self, wish: str = "", data: bytes = b"", timeout: float = LONG_S) -> Any:
        """Call PipelineForward and return its response."""
        return self.forward_future(wish, data, timeout).result()

    def forward_future(self, wish: str = "", data: bytes = b"", timeout: float = LONG_S) -> Any:
        """Start a call of PipelineForward and return its future."""
        request = pb.PipelineForwardRequest(session_id=wish, hidden_states=data)
        call = self.unary("PipelineForward", request, pb.PipelineForwardResponse)
        return call.future(request, timeout=timeout)

    def stream(self, requests: Iterator[pb.InferenceRequest], timeout: float = LONG_S) -> Any:
        """Call StreamInference; return the iterator of its responses."""
        call = self.channel.stream_stream(
            f"/{SERVICE}/StreamInference",
            pb.InferenceRequest.SerializeToString,
            pb.InferenceResponse.FromString,
        )
        return call(requests, timeout=timeout)

    def failure(self, *args: Any, **kwargs: Any) -> grpc.RpcError:
        """Call PipelineForward, which must fail, and return its error."""
        try:
            self.forward(*args, **kwargs)
        except grpc.RpcError as error:
            return error
        raise AssertionError("the call succeeded")


@contextmanager
def grpcio_peer(port: int, *options: tuple[str, Any]) -> Iterator[Peer]:
    """A client on a new grpcio channel to a local port, which shares no connection with others."""
    own = ("grpc.use_local_subchannel_pool", 1)
    with grpc.insecure_channel(f"127.0.0.1:{port}", [*NO_LIMITS, own, *options]) as channel:
        yield Peer(channel)


async def in_thread(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a blocking grpcio call in a thread. It has a timeout, so it need not be cancellable."""
    return await trio.to_thread.run_sync(partial(call, *args, **kwargs))


async def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until ``holds()`` is true; fail with ``what`` after ``LONG_S`` seconds."""
    with trio.move_on_after(LONG_S):
        while not holds():  # noqa: ASYNC110 - there is no event to wait for
            await trio.sleep(0.005)
        return
    raise AssertionError(f"never happened: {what}")


class RawPeer:
    """A client built from h2 only, which can do what no gRPC library does."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        keep_streams_after_goaway(self.h2)
        self.events: list[Any] = []
        self._sending = trio.Lock()
        self.closed = False

    async def flush(self) -> None:
        """Send the bytes that h2 has queued."""
        async with self._sending:
            await self.stream.send_all(self.h2.data_to_send())

    async def send(self, data: bytes) -> None:
        """Send bytes that h2 knows nothing of."""
        async with self._sending:
            await self.stream.send_all(data)

    async def request(self, *, body: bytes | None = None, end: bool = True, **headers: str) -> int:
        """Start a PipelineForward with other headers (``_`` for ``-``); return its stream id."""
        stream_id = self.begin(body=body, end=end, **headers)
        await self.flush()
        return stream_id

    def begin(self, *, body: bytes | None = None, end: bool = True, **headers: str) -> int:
        """Queue the same call for the next flush, without sending it."""
        fields = {
            ":method": "POST",
            ":scheme": "http",
            ":path": f"/{SERVICE}/PipelineForward",
            ":authority": "test",
            "te": "trailers",
            "content-type": "application/grpc",
        }
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        stream_id: int = self.h2.get_next_available_stream_id()
        pairs = [(name, value) for name, value in fields.items() if value]
        self.h2.send_headers(stream_id, pairs, end_stream=end and body is None)
        if body is not None:
            self.h2.send_data(stream_id, body, end_stream=end)
        return stream_id

    async def run(self) -> None:
        """Record events and return flow control credit until the connection ends."""
        while True:
            try:
                data = await self.stream.receive_some(65536)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                data = b""
            if not data:
                self.closed = True
                return
            for event in self.h2.receive_data(data):
                self.events.append(event)
                if isinstance(event, DataReceived):
                    size = event.flow_controlled_length
                    self.h2.acknowledge_received_data(size, event.stream_id)
            with suppress(trio.BrokenResourceError):
                await self.flush()

    def fields(self, stream_id: int) -> dict[str, str]:
        """All headers and trailers of an answer."""
        blocks: list[Any] = [
            event.headers
            for event in self.events
            if isinstance(event, ResponseReceived | TrailersReceived)
            and event.stream_id == stream_id
        ]
        return dict(pair for block in blocks for pair in block)

    def body(self, stream_id: int) -> bytes:
        """The data of an answer."""
        return b"".join(
            bytes(event.data)
            for event in self.events
            if isinstance(event, DataReceived) and event.stream_id == stream_id
        )

    def resets(self) -> dict[int, int]:
        """The error codes of the streams that the node has reset."""
        return {
            event.stream_id: int(event.error_code)
            for event in self.events
            if isinstance(event, StreamReset)
        }

    async def status(self, stream_id: int) -> str:
        """Wait for the gRPC status of an answer and return it."""
        await until(lambda: "grpc-status" in self.fields(stream_id), "a status")
        return self.fields(stream_id)["grpc-status"]

    async def forward(self, data: bytes = b"") -> bool:
        """Make a valid call and return whether it succeeded, which shows that the server works."""
        request = pb.PipelineForwardRequest(hidden_states=data).SerializeToString()
        return await self.status(await self.request(body=prefix(request) + request)) == "0"


@asynccontextmanager
async def raw_peer(port: int, ip: str | None = None) -> AsyncIterator[RawPeer]:
    """A raw peer that has connected from ``ip`` and sent its preface."""
    async with await trio.open_tcp_stream("127.0.0.1", port, local_address=ip) as stream:
        peer = RawPeer(stream)
        peer.h2.initiate_connection()
        await peer.flush()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.run)
            yield peer
            nursery.cancel_scope.cancel()


@contextmanager
def grpcio_server(*options: tuple[str, Any], **handlers: Callable[..., Any]) -> Iterator[int]:
    """Run a grpcio server with one handler for each named operation; yield its port."""
    described = pb.DESCRIPTOR.services_by_name["NodeService"].methods_by_name
    kinds = {}
    for name, handler in handlers.items():
        request, response = (
            getattr(pb, described[name].input_type.name),
            getattr(pb, described[name].output_type.name),
        )
        make = grpc.unary_unary_rpc_method_handler
        if described[name].client_streaming:
            make = grpc.stream_stream_rpc_method_handler
        kinds[name] = make(handler, request.FromString, response.SerializeToString)
    pool = ThreadPoolExecutor(max_workers=8)
    server = grpc.server(pool, options=[*NO_LIMITS, ("grpc.so_reuseport", 0), *options])
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, kinds)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(grace=0).wait()
        pool.shutdown()


def wide_open() -> bytes:
    """The settings and window update of a server that lets its clients send without limit."""
    server = H2Connection(H2Configuration(client_side=False))
    server.initiate_connection()
    server.update_settings({4: 2**31 - 1})  # INITIAL_WINDOW_SIZE
    server.increment_flow_control_window(2**31 - 2**16)
    return server.data_to_send()


WIDE_OPEN = wide_open()
LARGE = pb.PipelineForwardRequest(hidden_states=bytes(32 << 20))
"""A message larger than what the kernel buffers for a peer that does not read."""
