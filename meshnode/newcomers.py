"""Accepted connections whose clients have not said anything yet.

In every protocol that a node serves, the client speaks first. Until it does, a connection has its
place in the listener's table and a task that sleeps, and nothing else: a crowd of silent
connections, or of clients that connect and leave, costs no parser and no session. The first step of
serving it waits for the turn of its address, like every later one (decision 0255).
"""

from __future__ import annotations

from contextlib import suppress

import trio

from meshnode.accepting import has_left
from meshnode.turns import ClientTurns


class Newcomer:
    """A connection that is about to be served. It owns nothing; its socket is the caller's."""

    idle = True

    def __init__(self, sock: trio.socket.SocketType, ip: str, turns: ClientTurns) -> None:
        """``ip`` is the client's address; ``turns`` are those of the address."""
        self.ip = ip
        self.idle_since = trio.current_time()
        """When it was accepted."""
        self._sock = sock
        self.turns = turns
        self._waiting = trio.CancelScope()

    async def speaks(self, within_s: float) -> bool:
        """Wait until it is the turn of a client that has spoken, and read nothing.

        False if it has left, if it says nothing for ``within_s`` seconds, or if its place is given
        to another one.
        """
        self._waiting.deadline = self.idle_since + within_s
        with self._waiting, suppress(OSError, trio.ClosedResourceError):
            if not await self._sock.recv(1, trio.socket.MSG_PEEK):
                return False
            self._waiting.deadline = float("inf")
            return await self.turns.wait(lambda: has_left(self._sock.fileno()))
        return False

    def evict(self) -> None:
        """Give its place to another connection; :meth:`speaks` ends."""
        self._waiting.cancel()

    drain = evict
