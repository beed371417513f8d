"""A connection's socket waits before it reads, and sends before it waits."""

import socket
from collections.abc import Iterator

import pytest
import trio
import trio.testing

from meshnode.http.sockets import PlainSocket


@pytest.fixture
def ends() -> Iterator[tuple[PlainSocket, socket.socket]]:
    """A connection's socket, and its client's."""
    one, other = socket.socketpair()
    with one, other:
        yield PlainSocket(one), other


async def test_what_was_sent_is_received(ends: tuple[PlainSocket, socket.socket]) -> None:
    served, client = ends
    client.send(b"abc")
    assert await served.recv(2) == b"ab"
    assert await served.recv(2) == b"c"
    client.close()
    assert await served.recv(2) == b""


async def test_a_full_kernel_takes_nothing_now_and_the_rest_later(
    ends: tuple[PlainSocket, socket.socket],
) -> None:
    served, client = ends
    data = b"x" * 4_000_000
    sent = served.send_now(data)
    assert 0 < sent < len(data)
    while more := served.send_now(data[sent:]):
        sent += more
    client.setblocking(False)

    async def read() -> int:
        count = 0
        while count < len(data):
            await trio.lowlevel.wait_readable(client)
            count += len(client.recv(1_000_000))
        return count

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        while sent < len(data):
            sent += await served.send(memoryview(data)[sent:])


@pytest.mark.parametrize("sending", [False, True])
async def test_closing_wakes_who_waits(
    sending: bool, ends: tuple[PlainSocket, socket.socket]
) -> None:
    served, _ = ends
    while sending and served.send_now(b"x" * 100_000):
        pass

    async def wait() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await (served.send(memoryview(b"x")) if sending else served.recv(1))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        served.close()
    # Again, once it is closed.
    await wait()
    served.close()


async def test_a_cancelled_read_loses_nothing(ends: tuple[PlainSocket, socket.socket]) -> None:
    served, client = ends
    with trio.move_on_after(0):
        await served.recv(1)
    client.send(b"a")
    assert await served.recv(1) == b"a"
