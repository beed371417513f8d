"""A client's HTTP/2 pings, which detect a peer that has stopped answering (interface 8).

A ping is sent every 30 s, with or without calls. If the peer does not answer within 10 s, the
connection is lost and its calls end with UNAVAILABLE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from h2.exceptions import ProtocolError

if TYPE_CHECKING:
    from meshnode.rpc.connection import Connection

PING_DATA = b"meshnode"
"""Eight bytes, as HTTP/2 requires. Pings never overlap, so they need no numbers."""


class Keepalive:
    """Sends the pings of one connection."""

    def __init__(self) -> None:
        """Send nothing before :meth:`run`."""
        self._answered = trio.Event()

    def answered(self) -> None:
        """Note that the peer has answered."""
        self._answered.set()

    async def run(self, connection: Connection) -> None:
        """Ping until the peer stops answering, then end the connection."""
        limits = connection.limits
        while True:
            await trio.sleep(limits.keepalive_s)
            self._answered = trio.Event()
            try:
                connection.h2.ping(PING_DATA)
            except ProtocolError:
                # The connection has ended.
                return
            connection.transmit()
            with trio.move_on_after(limits.keepalive_timeout_s) as silent:
                await self._answered.wait()
            if silent.cancelled_caught:
                connection.lost("the peer does not answer pings")
                connection.transport.abort()
                return
