"""One HTTP/1.1 request at a time, for clients that measure and for attackers that send requests."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import trio


class BadAnswer(Exception):
    """The connection ended before a whole answer, or the answer is not HTTP."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, read whole."""

    status: int
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


def request(method: str, path: str, body: object = None, token: str = "") -> bytes:
    """The bytes of a request, whose body is JSON."""
    content = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: node", f"Content-Length: {len(content)}"]
    if body is not None:
        lines.append("Content-Type: application/json")
    if token:
        lines.append(f"Authorization: Bearer {token}")
    return "\r\n".join([*lines, "", ""]).encode() + content


async def ask(stream: trio.SocketStream, data: bytes) -> Answer:
    """Send a request and read its answer, which must have a length.

    Raises BadAnswer, and what trio raises for a broken connection.
    """
    await stream.send_all(data)
    received = bytearray()
    while b"\r\n\r\n" not in received:
        await _receive(stream, received)
    head, _, rest = bytes(received).partition(b"\r\n\r\n")
    status, *fields = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in fields)}
    try:
        code, length = int(status.split()[1]), int(headers["content-length"])
    except (IndexError, KeyError, ValueError):
        raise BadAnswer(status) from None
    body = bytearray(rest)
    while len(body) < length:
        await _receive(stream, body)
    return Answer(code, bytes(body))


async def _receive(stream: trio.SocketStream, into: bytearray) -> None:
    chunk = await stream.receive_some(65536)
    if not chunk:
        raise BadAnswer("the connection ended")
    into += chunk
