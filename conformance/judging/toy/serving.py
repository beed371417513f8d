"""Serves a toy node: HTTP on the standard library, gRPC on grpcio, on two free loopback ports."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc

from conformance import messages
from conformance.catalogue import SERVED, Effect
from conformance.editions import DRAFT
from conformance.judging.toy.answers import Response, Sent, data_of
from conformance.judging.toy.node import EXPIRED, NATIVE_SETTINGS, SECOND, TOKEN, ToyNode
from conformance.target import GRPC_PORT_OFFSET, Target


def _handler(node: ToyNode) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

        def _serve(self) -> None:
            came = Sent(self.command, self.path, self._body(), dict(self.headers))
            asked, response = node.answered(node.rewrite(came))
            asked = replace(asked, connection=self.client_address[1])
            node.http_hook(asked, response)
            self._send(response)

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def _send(self, response: Response) -> None:
            time.sleep(response.delay_s)
            if response.reset:
                self.close_connection = True
                return
            kind = "application/json"
            if response.raw is not None:
                body = response.raw
            elif response.events is not None:
                kind = "text/event-stream"
                frames = (f"data: {data_of(event)}\n\n" for event in response.events)
                body = "".join(frames).encode()
            else:
                body = json.dumps(response.json).encode()
            self.send_response(response.status)
            if response.held_s:
                self.send_header("Connection", "close")
            else:
                self.send_header("Content-Length", str(len(body) + (9 if response.cut else 0)))
            for name, value in {"Content-Type": kind, **response.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(BrokenPipeError, ConnectionResetError):
                # A client that does not wait for a slow answer has closed the connection.
                if self.command != "HEAD" or response.with_head:
                    self.wfile.write(body)
                time.sleep(response.held_s)
            if response.cut:
                self.close_connection = True

        do_GET = do_HEAD = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815 - http.server names them so

    return Handler


class _Rpc(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """Serves operations by name. Unknown ones answer with an empty message, except
    ``NoSuchOperation``, which is not served."""

    def __init__(self, node: ToyNode) -> None:
        self._node = node

    def service(self, call: Any) -> Any:
        """Return the handler of one call."""
        operation = self._node.operation_of(call.method)
        if operation is None:
            return None
        if self._node.upstream_rpc is not None:
            return self._node.upstream_rpc(operation, self._node)
        if operation == "StreamInference":
            return grpc.stream_stream_rpc_method_handler(
                lambda requests, context: iter([self._finish(operation, None, {}, context)])
            )
        if operation == "NoSuchOperation":
            return None
        if operation not in messages.OPERATIONS:
            return grpc.unary_unary_rpc_method_handler(
                lambda request, context: self._finish(operation, None, {}, context)
            )
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self._unary(operation, request, context)
        )

    def _unary(self, operation: str, data: bytes, context: Any) -> bytes:
        data = self._node.rewrite_call(operation, data)
        try:
            request = messages.parse(messages.OPERATIONS[operation][0], data)
        except messages.BadMessage:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not a message")
        metadata = dict(context.invocation_metadata())
        answer = self._node.call(operation, request, metadata)
        return self._finish(operation, request, answer, context)

    def _finish(self, operation: str, request: Any, answer: Any, context: Any) -> bytes:
        answer = self._node.grpc_hook(operation, request, answer)
        if isinstance(answer, str):
            context.abort(grpc.StatusCode[answer], "by a hook")
        if isinstance(answer, bytes):
            return answer
        if operation not in messages.OPERATIONS:
            return b""
        data: bytes = messages.make(messages.OPERATIONS[operation][1], **answer).SerializeToString()
        return data


@dataclass(frozen=True)
class Serving:
    """A running toy."""

    node: ToyNode
    url: str
    grpc: str


def toy_target(served: Serving) -> Target:
    """Return the toy as a target that allows and declares everything."""
    return Target(
        served.url,
        profiles=SERVED,
        **NATIVE_SETTINGS,
        grpc=served.grpc,
        token=TOKEN,
        expired_token=EXPIRED,
        second_token=SECOND,
        allow=frozenset(Effect),
        budget=1000,
        edition=DRAFT,
    )


class Toy:
    """Serves a toy node on two free loopback ports, 1000 apart, as a context manager."""

    def __init__(self, node: ToyNode | None = None, port: int = 0) -> None:
        """Serve this node, or a new one, on this HTTP port, or on any."""
        self._node = node or ToyNode()
        self._port = port

    def __enter__(self) -> Serving:
        """Start both servers."""
        node = self._node
        self._pool = ThreadPoolExecutor(4)
        port = self._bind(node)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,))
        self._thread.start()
        self._grpc.start()
        return Serving(node, f"http://127.0.0.1:{port}", f"127.0.0.1:{port + GRPC_PORT_OFFSET}")

    def _bind(self, node: ToyNode) -> int:
        # A free port for which the port plus 1000 is free as well.
        for _ in range(20):
            self._http = ThreadingHTTPServer(("127.0.0.1", self._port), _handler(node))
            port = int(self._http.server_address[1])
            # Without this option two servers could share a port silently.
            options = [("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1)]
            self._grpc = grpc.server(self._pool, handlers=[_Rpc(node)], options=options)
            try:
                if self._grpc.add_insecure_port(f"127.0.0.1:{port + GRPC_PORT_OFFSET}"):
                    node.listen_at(port)
                    return port
            except RuntimeError:
                self._http.server_close()
        raise RuntimeError("no two free ports")

    def __exit__(self, *error_info: object) -> None:
        """Stop both servers and wait for their threads."""
        self._grpc.stop(0).wait()
        self._pool.shutdown()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
