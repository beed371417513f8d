"""One address of the peer: an HTTP port, and gRPC at that port plus 1000 (interface 1)."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from conformance.compiled import AVAILABLE, grpc
from conformance.messagefile import MAX_MESSAGE_BYTES
from conformance.messages import SERVICE
from conformance.peer.answers import Answer, Refusal, Reply
from conformance.peer.tap import Link, Tap
from conformance.peer.watch import Call, Watch
from conformance.target import GRPC_PORT_OFFSET

# Calls at a time. A node that makes more waits, which it would at any node.
CALLS = 16
_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # The library would end connections with more pings than it likes, before they can be judged.
    ("grpc.http2.min_ping_interval_without_data_ms", 1),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.keepalive_time_ms", 2**31 - 1),
)


class PortsTaken(OSError):
    """The address is not free."""


_Handler: Any = grpc.GenericRpcHandler if AVAILABLE else object


class _Rpc(_Handler):  # type: ignore[misc]  # grpc has no types
    """Serves every operation of the service; its messages stay bytes."""

    def __init__(self, post: "Post") -> None:
        self._post = post

    def service(self, call: Any) -> Any:
        """Return the handler of one call."""
        service, _, operation = str(call.method).lstrip("/").partition("/")
        if service != SERVICE:
            return None
        if operation == "StreamInference":
            return grpc.stream_stream_rpc_method_handler(
                lambda requests, context: iter(
                    [self._post.take(operation, next(requests, b""), context)]
                )
            )
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self._post.take(operation, request, context)
        )


class _Nothing(BaseHTTPRequestHandler):
    """What the peer serves over HTTP when no node is behind it."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        """Answer that nothing is here."""
        body = b'{"error": {"code": "NOT_FOUND", "message": "a conformance peer"}}'
        self.send_response(404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_PATCH = do_GET  # noqa: N815 - http.server names them so


class Post:
    """A name, two ports, and a conduct."""

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        watch: Watch,
        answer: Callable[[Call], Answer],
        http: tuple[str, int] | None = None,
        *,
        everywhere: bool = False,
    ) -> None:
        """`http` is the HTTP server behind it, if any. Raises `PortsTaken`.

        With ``everywhere`` gRPC is served at the HTTP port, too, for whoever takes a port that a
        DHT names for that of gRPC.
        """
        self.name = name
        self._watch = watch
        self._answer = answer

        def behind(link: Link) -> tuple[str, int]:
            return self._grpc_at if everywhere and link.http2 else http or self._nothing_at

        self.http = Tap(host, port, behind, watch.clock, watch.noticed)
        self.port = self.http.port
        try:
            self.rpc = Tap(
                host, self.port + GRPC_PORT_OFFSET, lambda link: self._grpc_at,
                watch.clock, watch.noticed,
            )  # fmt: skip
        except (OSError, OverflowError) as error:
            self.http.stop()
            raise PortsTaken(f"port {self.port + GRPC_PORT_OFFSET}: {error}") from None
        self._pool = ThreadPoolExecutor(CALLS)
        self._grpc = grpc.server(self._pool, handlers=[_Rpc(self)], options=_OPTIONS)
        self._grpc_at = ("127.0.0.1", self._grpc.add_insecure_port("127.0.0.1:0"))
        self._nothing = ThreadingHTTPServer(("127.0.0.1", 0), _Nothing)
        self._nothing.daemon_threads = True
        self._nothing_at = ("127.0.0.1", int(self._nothing.server_address[1]))
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Serve."""
        self._thread = threading.Thread(target=self._nothing.serve_forever, args=(0.05,))
        self._thread.start()
        self._grpc.start()
        self.http.start()
        self.rpc.start()

    def stop(self) -> None:
        """Stop, and wait for the threads."""
        self.http.stop()
        self.rpc.stop()
        self._grpc.stop(0).wait()
        self._pool.shutdown()
        if self._thread is not None:
            self._nothing.shutdown()
            self._thread.join()
        self._nothing.server_close()

    def take(self, operation: str, body: bytes, context: Any) -> bytes:
        """Record a call, and answer it."""
        link = self.rpc.of(context.peer()) or self.http.of(context.peer())
        call = Call(
            post=self.name,
            operation=operation,
            body=body,
            at=self._watch.clock(),
            caller=link.caller[0] if link else "",
            # grpcio gives a number beyond all times for a call without a deadline.
            deadline_s=_bounded(context.time_remaining()),
            metadata=tuple((key, value) for key, value in context.invocation_metadata()),
            link=link,
        )
        self._watch.begin(call)
        answer = self._answer(call)
        if isinstance(answer, Refusal):
            self._watch.end(call, answer.code, answer.details)
            context.abort(grpc.StatusCode[answer.code], answer.details)
        return self._finish(call, answer, context)

    def _finish(self, call: Call, answer: Answer, context: Any) -> bytes:
        if not isinstance(answer, Reply):
            raise TypeError(answer)
        call.answer = answer.body
        self._watch.end(call, "OK")
        if answer.metadata:
            context.set_trailing_metadata(answer.metadata)
        return answer.body


MAX_DEADLINE_S = 10 * 365 * 86400


def _bounded(seconds: float | None) -> float | None:
    return None if seconds is None or seconds > MAX_DEADLINE_S else seconds
