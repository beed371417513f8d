"""The ABCI server: four connections of one engine over a socket in the data folder.

The engine opens a connection each for consensus, mempool, queries and snapshots. On each, requests
are answered strictly in order, one at a time; only the checks of transactions that have arrived
together are done together, and answered in one write. The connections are independent of one
another: a block goes before waiting checks.

From its first check on, the connection of the mempool is served by a thread of its own, so that no
transaction is handed from one thread to another (decision 0215).

The socket is a file that only this user can reach, in the engine's folder. Its path may be longer
than the 107 bytes that a socket's address can have, so it is bound through the folder's descriptor.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import trio
from google.protobuf.message import DecodeError

from meshnode.services.abci.frames import FrameReader, InvalidFrame, frame
from meshnode.wire import abci_pb2 as pb

log = logging.getLogger(__name__)

CHUNK = 256 * 1024
MAX_CONNECTIONS = 8
"""An engine opens four. A new engine may connect while those of its predecessor are still open."""


class Application(Protocol):
    """Carries out one call at a time for each connection."""

    async def run(self, request: pb.Request) -> pb.Response:
        """Answer one request that is no CheckTx. Raises LedgerBroken when the node must end."""

    def answer_checks(self, group: Sequence[pb.Request]) -> list[pb.Response]:
        """Answer checks and the flushes among them: at least one, in order, in this thread."""


async def serve_abci(
    calls: Application, path: Path, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Answer the engine on the socket ``path`` until cancelled.

    Raises LedgerBroken when the node must end.
    """
    listener = trio.SocketListener(trio.socket.from_stdlib_socket(bind_private(path)))
    connections = trio.CapacityLimiter(MAX_CONNECTIONS)

    async def serve(stream: trio.SocketStream) -> None:
        async with stream, connections:
            try:
                await serve_connection(calls, stream)
            except (trio.BrokenResourceError, ConnectionError):
                log.debug("abci: a connection broke")
            except (InvalidFrame, DecodeError) as error:
                log.error("abci: a connection is closed: %s", error)

    async with trio.open_nursery() as nursery:
        task_status.started()
        await trio.serve_listeners(serve, [listener], handler_nursery=nursery)


async def serve_connection(calls: Application, stream: trio.SocketStream) -> None:
    """Answer every request of one connection, in order, until its end. Raises InvalidFrame."""
    reader = FrameReader()
    while data := await stream.receive_some(CHUNK):
        requests = [pb.Request.FromString(one) for one in reader.feed(data)]
        if any(one.WhichOneof("value") == "check_tx" for one in requests):
            await _serve_in_thread(calls, stream, reader, requests)
            break
        for one in requests:
            answer = await calls.run(one)
            await stream.send_all(frame(answer.SerializeToString()))
    if not reader.is_empty:
        raise InvalidFrame("the last message is cut off")


async def _serve_in_thread(
    calls: Application, stream: trio.SocketStream, reader: FrameReader, requests: list[pb.Request]
) -> None:
    """Answer ``requests`` and all that follow, in a thread that waits for the socket itself."""
    broken: BaseException | None = None

    def serve() -> None:
        nonlocal broken
        try:
            _answer_in_thread(calls, own, reader, requests)
        except (InvalidFrame, DecodeError, ConnectionError) as error:
            broken = error

    with socket.socket(fileno=os.dup(stream.socket.fileno())) as own:
        own.setblocking(True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_shut_down_at_the_end, own)
            await trio.to_thread.run_sync(serve, limiter=trio.CapacityLimiter(1))
            nursery.cancel_scope.cancel()
    # Raised here, the caller gets it without a group.
    if broken is not None:
        raise broken


async def _shut_down_at_the_end(own: socket.socket) -> None:
    try:
        await trio.sleep_forever()
    finally:
        # The thread, if it still waits for the socket, finds the end of the connection.
        with suppress(OSError):
            own.shutdown(socket.SHUT_RDWR)


def _answer_in_thread(
    calls: Application, own: socket.socket, reader: FrameReader, requests: list[pb.Request]
) -> None:
    while True:
        done = 0
        while done < len(requests):
            if group := _checks(requests, done):
                answers = calls.answer_checks(group)
            else:
                answers = [trio.from_thread.run(calls.run, requests[done])]
            done += len(answers)
            own.sendall(b"".join([frame(one.SerializeToString()) for one in answers]))
        data = own.recv(CHUNK)
        if not data:
            return
        requests = [pb.Request.FromString(one) for one in reader.feed(data)]


def _checks(requests: list[pb.Request], first: int) -> list[pb.Request]:
    """The checks that follow one another from ``first`` on, and the flushes among them."""
    last = first
    while last < len(requests) and requests[last].WhichOneof("value") in ("check_tx", "flush"):
        last += 1
    return requests[first:last]


def bind_private(path: Path) -> socket.socket:
    """A listening socket in a file that only this user can reach. Raises OSError."""
    path.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
        path.chmod(0o600)
        listener.listen(MAX_CONNECTIONS)
    except OSError:
        listener.close()
        raise
    finally:
        os.close(folder)
    listener.setblocking(False)
    return listener
