"""The suite's gRPC client: grpcio over an unencrypted channel with the options of interface 8.

Operations are called by name with bytes on both sides, so that nothing between the wire and the
checks can repair an answer. A call that exceeds its own deadline, or reaches no server, raises
`Unanswered`.
"""

import json
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message

from conformance.compiled import grpc
from conformance.httpwire import Unanswered
from conformance.journal import Exchange, Journal
from conformance.messagefile import MAX_MESSAGE_BYTES, MessageFile
from conformance.messages import OPERATIONS, SERVICE, BadMessage, parse

CHANNEL_OPTIONS = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Two runs in one process must not share a connection that one of them has broken.
    ("grpc.use_local_subchannel_pool", 1),
    # Automatic retries would hide failures.
    ("grpc.enable_retries", 0),
)
# Names and values. The document names none of them, so they come from the target's declaration.
Metadata = tuple[tuple[str, str], ...]
# How many answers are read where one is documented.
MOST_ANSWERS = 3
# How much of a body the record holds, as hexadecimal digits.
SHOWN_BYTES = 512


@dataclass(frozen=True)
class Reply:
    """How a call ended: the name of its status code, and the answer as bytes if it is OK."""

    operation: str
    code: str
    details: str
    body: bytes
    exchange: Exchange
    # How many messages followed the first one, as far as anybody counted them.
    more: int = 0

    @property
    def ok(self) -> bool:
        """Return whether the status is OK."""
        return self.code == "OK"

    @property
    def message(self) -> Any | None:
        """Return the answer, or None if there is none; bytes that are no message others judge."""
        try:
            return parse(OPERATIONS[self.operation][1], self.body) if self.ok else None
        except BadMessage:
            return None


# So long one more connection may take.
CONNECTED_S = 2.0
# The details of a unary call that ends with OK and has no answer.
NO_MESSAGE = "the call ended with OK and without a message"


class GrpcClient:
    """Calls the operations of one target and records every exchange."""

    def __init__(self, address: str, journal: Journal, *, timeout_s: float) -> None:
        """`address` is host:port. The client connects with the first call."""
        self.address = address
        self._journal = journal
        self._timeout_s = timeout_s
        self._channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._others: Iterator[Any] | None = None
        self.check = ""
        # Is called with each reply.
        self.on_reply: Callable[[Reply], None] = lambda reply: None

    @contextmanager
    def watching(self) -> Iterator[list[str]]:
        """Collect the states of the connection meanwhile, by their names; READY is in use."""
        seen = list[str]()

        def note(state: Any) -> None:
            seen.append(str(state.name))

        self._channel.subscribe(note)
        try:
            yield seen
        finally:
            self._channel.unsubscribe(note)

    @contextmanager
    def apart(self) -> Iterator["GrpcClient"]:
        """Return a client of the same target that has a connection of its own."""
        other = GrpcClient(self.address, self._journal, timeout_s=self._timeout_s)
        other.check, other.on_reply = self.check, self.on_reply
        try:
            yield other
        finally:
            other.close()

    @contextmanager
    def spread(self, many: int) -> Iterator[None]:
        """Make the calls meanwhile by turns on so many more connections, if it takes these."""
        channels = [
            grpc.insecure_channel(self.address, options=CHANNEL_OPTIONS) for _ in range(many)
        ]
        try:
            with suppress(grpc.FutureTimeoutError):
                for channel in channels:
                    grpc.channel_ready_future(channel).result(CONNECTED_S)
                self._others = cycle(channels) if channels else None
            yield
        finally:
            self._others = None
            for channel in channels:
                channel.close()

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def call(
        self,
        operation: str,
        request: Message | MessageFile | bytes,
        *,
        timeout_s: float | None = None,
        metadata: Metadata = (),
    ) -> Reply:
        """Make one unary call with a message, a message from a file, or arbitrary bytes."""
        seconds = timeout_s or self._timeout_s
        if isinstance(request, MessageFile):
            return self._run(operation, request.content, None, seconds, file=request)
        body = request if isinstance(request, bytes) else request.SerializeToString()
        shown = None if isinstance(request, bytes) else _as_json(request)
        return self._run(operation, body, shown, seconds, metadata=metadata)

    def call_stream(self, operation: str, body: bytes, *more: bytes) -> Reply:
        """Send messages on a bidirectional stream.

        With one message, stop at the first answer or the status; with several, read to the end.
        """
        return self._run(operation, body, None, self._timeout_s, stream=(body, *more))

    def call_answers(self, operation: str, request: Message) -> Reply:
        """Make a unary call as a client of a stream of answers does, and count the answers."""
        body, shown = request.SerializeToString(), _as_json(request)
        return self._run(operation, body, shown, self._timeout_s, answers=True)

    def _run(
        self,
        operation: str,
        body: bytes,
        shown: str | None,
        timeout_s: float,
        *,
        stream: tuple[bytes, ...] = (),
        answers: bool = False,
        metadata: Metadata = (),
        file: MessageFile | None = None,
    ) -> Reply:
        began = time.monotonic()
        channel = next(self._others) if self._others else self._channel
        path = operation if operation.startswith("/") else f"/{SERVICE}/{operation}"
        code, details, more = "OK", "", 0
        answer: bytes | None = b""
        try:
            if stream:
                call = channel.stream_stream(path)(iter(stream), timeout=timeout_s)
                answer = next(call, b"")
                for _ in call if len(stream) > 1 else ():
                    pass
                call.cancel()
            elif answers:
                call = channel.unary_stream(path)(body, timeout=timeout_s)
                answer = next(call, None)
                more = sum(1 for _ in islice(call, MOST_ANSWERS))
                call.cancel()
            else:
                answer = channel.unary_unary(path)(body, timeout=timeout_s, metadata=metadata)
        except grpc.RpcError as error:
            code, details = error.code().name, error.details() or ""
        if answer is None:
            # Clients of other libraries make this status of it.
            code, details, answer = "INTERNAL", NO_MESSAGE, b""
        fault = _fault(code, details, time.monotonic() - began, timeout_s)
        exchange = self._journal.write(
            check=self.check,
            kind="grpc",
            began=began,
            request={
                "target": self.address,
                "operation": operation,
                "message": shown,
                **({"metadata": dict(metadata)} if metadata else {}),
                **(_hex(body) if file is None else _named(file)),
            },
            response=None if fault else {"code": code, "details": details, **_hex(answer)},
            fault=fault,
            reproduce=(
                command(self.address, operation, body, shown, metadata)
                if file is None
                else file_command(self.address, operation, file)
            ),
        )
        if fault:
            raise Unanswered(fault, exchange)
        reply = Reply(operation, code, details, answer, exchange, more)
        self.on_reply(reply)
        return reply


_BROKEN = ("rst_stream", "stream removed", "connection reset", "socket closed", "goaway")


def _fault(code: str, details: str, took_s: float, timeout_s: float) -> str | None:
    # A server may answer DEADLINE_EXCEEDED itself, but then earlier than our own deadline.
    if code == "DEADLINE_EXCEEDED" and took_s >= timeout_s * 0.95:
        return f"timeout: nothing for {timeout_s:g} s"
    text = details.lower()
    if code == "UNAVAILABLE" and any(word in text for word in ("connect", "socket", "goaway")):
        return f"unreachable: {details}"
    # grpcio's own words for a stream or a connection that breaks in the middle of a call.
    if code in ("INTERNAL", "UNKNOWN", "CANCELLED") and any(word in text for word in _BROKEN):
        return f"reset: {details}"
    return None


def _hex(body: bytes) -> dict[str, Any]:
    return {
        "hex": body[:SHOWN_BYTES].hex(),
        "bytes": len(body),
        "cut": len(body) > SHOWN_BYTES,
    }


def _named(file: MessageFile) -> dict[str, Any]:
    """Describe a message from a file without any byte of it."""
    size = len(file.content)
    return {"hex": "", "bytes": size, "cut": True, "file": file.path, "sha256": file.sha256}


def _as_json(message: Message) -> str:
    return json.dumps(
        json_format.MessageToDict(message, preserving_proto_field_name=True), ensure_ascii=False
    )


def command(
    address: str, operation: str, body: bytes, shown: str | None, metadata: Metadata = ()
) -> str:
    """Return a command that repeats the call: grpcurl for a message, curl for other bytes."""
    if shown is not None and operation in OPERATIONS:
        headers = [word for name, value in metadata for word in ("-H", f"{name}: {value}")]
        words = [*headers, "-proto", "node.proto", "-d", shown, address, f"{SERVICE}/{operation}"]
        folder = '"$(python -m conformance proto)"'
        quoted = " ".join(shlex.quote(word) for word in words)
        return f"grpcurl -plaintext -import-path {folder} {quoted}"
    if len(body) > SHOWN_BYTES:
        return (
            f"# {len(body)} bytes to {operation}: too long for a command line; run the check again"
        )
    return f"printf '{_octal(_head(body) + body)}' | {_curl(address, operation)}"


def file_command(address: str, operation: str, file: MessageFile) -> str:
    """Return a command that sends the message of a file again."""
    head = _octal(_head(file.content))
    # The -- is for a file whose name begins with a dash.
    return f"{{ printf '{head}'; cat -- {shlex.quote(file.path)}; }} | {_curl(address, operation)}"


def _head(body: bytes) -> bytes:
    """Return the prefix of a message on the wire: not compressed, and its length."""
    return b"\0" + len(body).to_bytes(4, "big")


def _octal(data: bytes) -> str:
    return "".join(f"\\{byte:03o}" for byte in data)


def _curl(address: str, operation: str) -> str:
    path = operation if operation.startswith("/") else f"/{SERVICE}/{operation}"
    url = shlex.quote(f"http://{address}{path}")
    return (
        "curl -sS -v --http2-prior-knowledge -H 'TE: trailers'"
        f" -H 'Content-Type: application/grpc' --data-binary @- {url}"
    )
