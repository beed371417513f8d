"""The answer to a request that is not gRPC: an HTTP status with a line of text (decision 0128).

gRPC over HTTP/2 asks for a plain HTTP status where the peer does not speak gRPC. The text follows
HTTP/2's flow control, so an answer that its peer does not take stays a call in flight, which counts
like any other and gives way first.

The answer waits for the rest of the request, for ``ARRIVES_S`` at most. So a peer whose later
frames are malformed gets the error of HTTP/2, however its frames are cut into packets.

Invariant: an answer that is not taken within ``stall_s`` is reset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from h2.exceptions import ProtocolError

from meshnode.rpc.errors import RpcError

if TYPE_CHECKING:
    from meshnode.rpc.connection import Connection
    from meshnode.rpc.headers import BadHead
    from meshnode.rpc.streams import MessageStream

NO_ERROR = 0
ARRIVES_S = 1.0
"""Time for the rest of the request. One that takes longer is answered before its end."""


class HttpRefusal:
    """An answer that is being sent."""

    idle = True
    """It waits for nothing but its peer."""

    def __init__(
        self, connection: Connection, stream: MessageStream, head: BadHead, ip: str
    ) -> None:
        """Send nothing before :meth:`run`."""
        self.stream = stream
        stream.window_stall_s = connection.limits.stall_s
        self.ip = ip
        self.idle_since = trio.current_time()
        self._connection = connection
        self._head = head
        self._scope = trio.CancelScope()

    def cancel(self) -> None:
        """Send no more of it: the peer does not want it, or the call gives way."""
        self._scope.cancel()

    drop = stop = cancel

    async def run(self) -> None:
        """Send the status and the text."""
        body = f"{self._head.message}\n".encode() if self._head.message else b""
        headers = [
            (":status", str(self._head.http_status)),
            ("content-type", "text/plain; charset=utf-8"),
            ("content-length", str(len(body))),
            *self._head.headers,
        ]
        try:
            with self._scope:
                with trio.move_on_after(ARRIVES_S):
                    await self.stream.wait_ended()
                self._connection.h2.send_headers(self.stream.id, headers)
                await self.stream.send_body(body)
                self._connection.message_passed()
        except (ProtocolError, RpcError):
            # The stream has ended already, or its peer does not read.
            pass
        finally:
            # The reset keeps the peer from sending the rest of its request.
            self.stream.reset(NO_ERROR)
            self.stream.close()
