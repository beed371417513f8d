"""Listeners go on through shortages (decision 0126).

They close what one address opens too fast (decision 0127).
"""

from __future__ import annotations

import errno
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import trio

from meshnode.accepting import AddressRate, accept_connections, has_left
from meshnode.domain.ratelimit import Rate

HERE, STRANGER, OTHER = "127.0.0.1", "192.0.2.1", "192.0.2.2"


class Listener(socket.socket):
    """A listening socket whose next accepts fail, or come from addresses that a test chooses."""

    failures: list[int]
    seen_as: str

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        if self.failures:
            number = self.failures.pop()
            raise OSError(number, os.strerror(number))
        accepted, address = super().accept()
        return accepted, (self.seen_as, address[1])


@contextmanager
def listening() -> Iterator[Listener]:
    with Listener() as listener:
        listener.failures, listener.seen_as = [], STRANGER
        listener.bind((HERE, 0))
        listener.listen()
        listener.setblocking(False)
        yield listener


async def greet(stream: trio.SocketStream) -> None:
    async with stream:
        await stream.send_all(b"welcome")


async def says(listener: Listener) -> bytes:
    """What a new client reads until the end."""
    with trio.fail_after(60):
        async with await trio.open_tcp_stream(*listener.getsockname()) as client:
            return b"".join([chunk async for chunk in client])


def accepting(listener: Listener, nursery: trio.Nursery, burst: int = 100) -> None:
    rate = AddressRate(Rate(per_second=1e-9, burst=burst))
    nursery.start_soon(partial(accept_connections, [listener], greet, rate, handlers=nursery))


@pytest.mark.parametrize(
    "shortage", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED]
)
async def test_a_listener_goes_on_when_it_cannot_accept(
    nursery: trio.Nursery, shortage: int, caplog: pytest.LogCaptureFixture
) -> None:
    with listening() as listener:
        listener.failures = [shortage] * 2
        accepting(listener, nursery)
        assert await says(listener) == b"welcome"
        nursery.cancel_scope.cancel()
    said = [record for record in caplog.records if "cannot serve all connections" in record.message]
    # Once for both tries; a client that went away is nothing to talk about.
    assert len(said) == (shortage != errno.ECONNABORTED)
    assert all(record.exc_info is None for record in said)


async def test_an_error_of_the_listener_itself_ends_it() -> None:
    with listening() as listener, pytest.RaisesGroup(OSError, flatten_subgroups=True):
        listener.failures = [errno.EBADF]
        async with trio.open_nursery() as nursery:
            accepting(listener, nursery)
            nursery.start_soon(says, listener)


async def test_who_connects_too_fast_is_closed_and_others_are_served(
    nursery: trio.Nursery,
) -> None:
    with listening() as listener:
        accepting(listener, nursery, burst=2)
        assert [await says(listener) for _ in range(4)] == [b"welcome", b"welcome", b"", b""]
        listener.seen_as = OTHER
        assert await says(listener) == b"welcome"
        listener.seen_as = HERE
        assert [await says(listener) for _ in range(4)] == [b"welcome"] * 4
        nursery.cancel_scope.cancel()


async def test_the_last_descriptors_are_for_files(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening() as listener:
        accepting(listener, nursery)
        limit = listener.fileno() + 10
        monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
        assert await says(listener) == b""
        monkeypatch.undo()
        assert await says(listener) == b"welcome"
        nursery.cancel_scope.cancel()


async def test_who_has_left_is_seen_behind_unread_bytes() -> None:
    here, there = socket.socketpair()
    with here:
        with there:
            assert not has_left(here.fileno())
            there.send(b"unread")
            assert not has_left(here.fileno())
        assert has_left(here.fileno())
    assert has_left(here.fileno())
