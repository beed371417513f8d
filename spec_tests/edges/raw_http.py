"""Sends raw bytes to a node's HTTP port, and parses what it answers."""

from typing import Protocol

import trio

from spec_tests.edges.http_server import (
    Answer,
    Client,
    Served,
    wait_until,
)

HEALTH = "/api/v1/health"
INFERENCE = "/api/v1/inference"
HEALTH_REQUEST = b"GET /api/v1/health HTTP/1.1\r\nHost: node\r\n\r\n"


async def read_all(stream: trio.SocketStream) -> bytes:
    with trio.fail_after(120):
        return b"".join([chunk async for chunk in stream])


class Addressed(Protocol):
    """A server that a test may connect to."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        ...


async def raw(node: Addressed, data: bytes) -> bytes:
    """Send ``data``; return all that the server answers until it ends the connection."""
    stream = await trio.open_tcp_stream(*node.address)
    async with stream:
        await stream.send_all(data)
        return await read_all(stream)


def parse(response: bytes) -> Answer:
    """Parse one response of known length."""
    head, _, body = response.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    assert len(body) == int(headers["content-length"])
    return Answer(int(status.split()[1]), headers, body)


async def next_answer(stream: trio.SocketStream) -> Answer:
    """Read one response of known length; the connection stays open."""
    received = b""
    with trio.fail_after(60):
        while True:
            received += await stream.receive_some()
            head, blank, body = received.partition(b"\r\n\r\n")
            if blank and f"content-length: {len(body)}" in head.decode().lower().split("\r\n"):
                return parse(received)


async def stalled_stream(node: Served) -> trio.SocketStream:
    """Request an endless stream, never read it, and return once the server is blocked."""
    sock = trio.socket.socket()
    sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, 4096)
    await sock.connect(node.address)
    client = Client(trio.SocketStream(sock))
    body = {"prompt": "hi", "max_tokens": 10**9, "stream": True}
    await client.send("POST", INFERENCE, body)
    await wait_until(lambda: node.executor.generations)
    generation, made = node.executor.generations[-1], -1
    with trio.fail_after(120):
        while made != generation.made:
            made = generation.made
            await trio.sleep(0.05)  # a full pipe shows only in that no token is made any more
    return client.stream
