"""JSON-RPC to the engine over its socket: a few connections that are kept, one call at a time each.

The socket is a file in the engine's folder; it is reached through the folder's descriptor, because
its path may be longer than a socket's address can be.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import h11
import trio

from meshnode.domain.errors import Unavailable

MAX_CONNECTIONS = 32
"""Calls at one time; more wait. The engine accepts 64 connections."""
MAX_ANSWER = 64 * 1024 * 1024
CHUNK = 256 * 1024
CALL_S = 15.0


class EngineRefused(Exception):
    """The engine answered a call with an error; ``data`` is its explanation."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("data") or error.get("message") or error))
        self.error = error

    @property
    def data(self) -> str:
        """The explanation."""
        return str(self.error.get("data", ""))


async def connect(path: Path) -> trio.SocketStream:
    """A connection to the socket ``path``. Raises OSError."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        client = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            await client.connect(f"/proc/self/fd/{folder}/{path.name}")
        except BaseException:
            client.close()
            raise
    finally:
        os.close(folder)
    return trio.SocketStream(client)


class EngineRpc:
    """Calls of the engine's JSON-RPC interface."""

    def __init__(self, path: Path) -> None:
        """``path`` is the engine's socket."""
        self.path = path
        self._idle: list[_Connection] = []
        self._busy = trio.CapacityLimiter(MAX_CONNECTIONS)

    async def call(self, method: str, **params: object) -> Any:
        """The result of a call. Raises EngineRefused, or Unavailable without an answer."""
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        with trio.move_on_after(CALL_S):
            try:
                answer = json.loads(await self._exchange(body))
            except (OSError, trio.BrokenResourceError, h11.RemoteProtocolError, ValueError) as bad:
                reason = f"the consensus engine does not answer ({type(bad).__name__})"
                raise Unavailable(reason) from None
            if not isinstance(answer, dict):
                raise Unavailable("the consensus engine's answer is not an object")
            if answer.get("error"):
                raise EngineRefused(answer["error"])
            return answer["result"]
        raise Unavailable("the consensus engine takes too long")

    async def close(self) -> None:
        """Close the connections that are kept."""
        while self._idle:
            await trio.aclose_forcefully(self._idle.pop().stream)

    async def _exchange(self, body: bytes) -> bytes:
        async with self._busy:
            # The engine closes a connection that was idle for some seconds, perhaps just now. All
            # calls may be repeated: it knows a transaction that it has got already.
            while self._idle:
                try:
                    return await self._use(self._idle.pop(), body)
                except (OSError, trio.BrokenResourceError, h11.RemoteProtocolError):
                    continue
            return await self._use(_Connection(await connect(self.path)), body)

    async def _use(self, connection: _Connection, body: bytes) -> bytes:
        answered = False
        try:
            content = await connection.exchange(body)
            answered = True
        finally:
            if answered and connection.reusable:
                self._idle.append(connection)
            else:
                await trio.aclose_forcefully(connection.stream)
        return content


class _Connection:
    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._http = h11.Connection(h11.CLIENT)
        self.reusable = False

    async def exchange(self, body: bytes) -> bytes:
        self.reusable = False
        headers = [
            ("Host", "engine"),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
        ]
        request = h11.Request(method="POST", target="/", headers=headers)
        out = (self._http.send(request) or b"") + (self._http.send(h11.Data(data=body)) or b"")
        await self.stream.send_all(out + (self._http.send(h11.EndOfMessage()) or b""))
        content = bytearray()
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(bytes(await self.stream.receive_some(CHUNK)))
            elif isinstance(event, h11.Data):
                content += event.data
                if len(content) > MAX_ANSWER:
                    raise h11.RemoteProtocolError("the answer is too large")
            elif isinstance(event, h11.EndOfMessage):
                break
            elif isinstance(event, h11.ConnectionClosed):
                raise h11.RemoteProtocolError("the connection was closed")
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            self.reusable = True
        return bytes(content)
