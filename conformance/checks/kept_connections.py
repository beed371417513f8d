"""Interface 7.3 and 8: a connection of gRPC behind a bad request, and one without any call."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

from conformance import messages
from conformance.context import Context
from conformance.editions import FIFTH, SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.grpcwire import Reply
from conformance.httpwire import Unanswered
from conformance.registry import requirement

KEPT, PINGED = "GR-CODE-016", "LIM-041"
TRIES, NOTICED_S = 3, 0.3
# So many bad requests one after another.
SEVERAL = 4
# A field that has more bytes than there are.
BAD = b"\x0a\x05ab"
READY = "READY"
# Messages whose values are too short.
UNFIT = (
    ("DHTFindNode", messages.make("DHTFindNodeRequest", target_id=b"abc")),
    (
        "PipelineForward",
        messages.make("PipelineForwardRequest", hidden_states=b"abc", hidden_shape=[1, 1, 16]),
    ),
)
# Operations, each with its message.
Calls = list[tuple[str, bytes]]
# For so long clients wait for the answer to a ping.
ANSWERED_S = 10.0
# What HTTP/2 begins with, and the types of its frames; the flag says that a frame is an answer.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, PING, ANSWER = 4, 6, 1


@requirement(KEPT)
def grpc_kept(context: Context) -> None:
    """Send a good request, then one that is no message, and watch the connection."""
    if context.edition < FIFTH:
        raise Skipped("later editions ask for it")
    many = SEVERAL if context.edition >= SIXTH else 1
    kinds: list[Calls] = [[("DHTFindNode", BAD)] * many]
    if context.edition >= SEVENTH:
        # Messages that lack what they need, and an operation that is not there.
        kinds.append([("PipelineForward", b""), ("GetWeights", b""), ("NoSuchOperation", b"")])
        kinds.append([(name, message.SerializeToString()) for name, message in UNFIT])
    for wrong in kinds:
        _judge_kept(context, wrong)


def _judge_kept(context: Context, wrong: Calls) -> None:
    """Rule on the connection behind wrong calls, each time it is tried."""
    ended = list[Reply]()
    for _ in range(TRIES):
        good = context.grpc.call("GetCheckpointInfo", messages.make("GetCheckpointInfoRequest"))
        with context.grpc.watching() as seen:
            time.sleep(NOTICED_S)
            before, known = seen[-1:], len(seen)
            bad = list[Reply]()
            try:
                for operation, message in wrong:
                    bad.append(context.grpc.call(operation, message))
            except Unanswered:
                # Others judge a request that ends without an answer.
                if not bad:
                    continue
            time.sleep(NOTICED_S)
            # Another one may have been opened for the last of them.
            after = [*before, *seen[known:]] if context.edition >= SIXTH else seen[-1:]
        if before != [READY]:
            raise Skipped("the connection is ended after a good request, too")
        if set(after) == {READY}:
            context.holds(KEPT, good, *bad)
            return
        ended.append(bad[-1])
    if len(ended) == TRIES:
        context.fails(KEPT, f"{TRIES} times a connection is ended behind a bad request", *ended)


@requirement(PINGED)
def grpc_pinged(context: Context) -> None:
    """Open a connection, and ping on it without any call."""
    if context.edition < SIXTH:
        raise Skipped("later editions ask for it")
    host, _, port = context.grpc.address.rpartition(":")
    for _ in range(2):
        try:
            with socket.create_connection((host.strip("[]"), int(port)), ANSWERED_S) as opened:
                answered = _is_answered(opened, os.urandom(8))
        except (OSError, EOFError) as error:
            raise Skipped(f"a connection without a call is not kept: {error}") from None
        if answered:
            context.holds(PINGED)
            return
    context.fails(PINGED, f"two pings, each on a connection of its own, for {ANSWERED_S:g} s")


def _is_answered(opened: socket.socket, name: bytes) -> bool:
    """Ping on a connection that has just been opened. Raises EOFError or OSError if it ends."""
    opened.sendall(PREFACE + _frame(SETTINGS, 0) + _frame(PING, 0, name))
    ends = time.monotonic() + ANSWERED_S
    with suppress(TimeoutError):
        for kind, flags, content in _frames(opened, ends):
            if kind == SETTINGS and not flags & ANSWER:
                opened.sendall(_frame(SETTINGS, ANSWER))
            if kind == PING and flags & ANSWER and content == name:
                return True
    return False


def _frame(kind: int, flags: int, content: bytes = b"") -> bytes:
    """Return a frame of the connection itself, which is that of stream 0."""
    return len(content).to_bytes(3, "big") + bytes([kind, flags]) + bytes(4) + content


def _frames(opened: socket.socket, ends: float) -> Iterator[tuple[int, int, bytes]]:
    """Yield the type, the flags and the content of each frame. Raises TimeoutError at the end."""
    while True:
        head = _read(opened, 9, ends)
        yield head[3], head[4], _read(opened, int.from_bytes(head[:3], "big"), ends)


def _read(opened: socket.socket, count: int, ends: float) -> bytes:
    found = b""
    while len(found) < count:
        left_s = ends - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        opened.settimeout(left_s)
        part = opened.recv(count - len(found))
        if not part:
            raise EOFError("it ended")
        found += part
    return found
