"""One HTTP/2 connection that carries calls: the part that server and client share.

The reader feeds received bytes to purerpc's connection and dispatches h2's events; all event
handlers are synchronous. It stops reading while the peer does not read the answers, and hangs up on
a peer that keeps sending frames without messages. A flood of pings, settings or frames of dead
streams therefore costs this node no memory and other peers no time.

Invariants: every stream of the connection is notified when the connection ends; a peer that
violates HTTP/2 gets a GOAWAY and loses only this connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import h2.events
import trio
from h2.exceptions import ProtocolError

from meshnode.rpc._h2_compat import awaits_overlong_frame, goaway_frame
from meshnode.rpc._purerpc import grpc_connection
from meshnode.rpc.errors import Code
from meshnode.rpc.limits import ByteCount, LeakyBucket, RpcLimits
from meshnode.rpc.peer_log import PeerLog
from meshnode.rpc.streams import UNSENT_BYTES, MessageStream
from meshnode.rpc.transport import LARGE_READ, SMALL_READ, Transport

log = logging.getLogger(__name__)

BACKLOG_BYTES = 2 * UNSENT_BYTES
"""Pending bytes at which the reader stops. Writers of messages stop at half of it, so that two
nodes that send much to each other never both wait for the other to read."""
BROKEN = (ProtocolError, ValueError, LookupError)
"""What h2 raises on bytes that are not HTTP/2; h2 3.2 stumbles over an empty header name."""
NO_ERROR = 0
ENHANCE_YOUR_CALM = 11
BYTES_AN_EVENT = 256
"""A smaller mean indicates small frames; small reads then keep the event loop responsive."""
FRAME_SIZE_ERROR = 6


def text_headers(headers: Any) -> list[tuple[str, str]]:
    """A header block as text. h2 is configured to decode it, which its types do not show."""
    return list(headers or ())


CARRIERS = (
    h2.events.RequestReceived,
    h2.events.ResponseReceived,
    h2.events.TrailersReceived,
    h2.events.StreamEnded,
    h2.events.StreamReset,
)
"""Events of calls. They do not count as a flood, because calls have limits of their own."""


def _carries_nothing(event: h2.events.Event) -> bool:
    if isinstance(event, h2.events.DataReceived):
        return not event.data
    return not isinstance(event, CARRIERS)


class Connection:
    """State of a connection, and the events that both sides have."""

    def __init__(
        self,
        transport: Transport,
        limits: RpcLimits,
        held: ByteCount,
        *,
        client_side: bool,
        peer_log: PeerLog | None = None,
    ) -> None:
        """``held`` and ``peer_log`` may be shared with other connections."""
        self.transport = transport
        self._peer_log = PeerLog(log) if peer_log is None else peer_log
        self.limits = limits
        self.held = held
        self.grpc = grpc_connection(client_side=client_side, limits=limits)
        self.h2 = self.grpc.h2_connection
        self._control = LeakyBucket(limits.control_burst, limits.control_per_s)
        self._moved = 0
        self.streams: dict[int, MessageStream] = {}
        self.peer_is_known = False
        """Whether the peer's first settings have arrived."""
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            h2.events.DataReceived: self._data_received,
            h2.events.StreamEnded: self._stream_ended,
            h2.events.StreamReset: self._stream_reset,
            h2.events.WindowUpdated: self._window_updated,
            h2.events.RemoteSettingsChanged: self._settings_changed,
            h2.events.PingAckReceived: self._ping_acknowledged,
            h2.events.ConnectionTerminated: self._goaway_received,
        }

    def __repr__(self) -> str:
        """The peer's address, whether it speaks HTTP/2, and the calls in flight."""
        ip, port = self.transport.peer
        known = "known" if self.peer_is_known else "new"
        return f"<{type(self).__name__} {ip}:{port} {known} calls={len(self.streams)}>"

    async def read(self) -> None:
        """Serve the connection until it ends, then end all its streams."""
        self.grpc.initiate_connection()
        self.transmit()
        size = SMALL_READ
        try:
            while data := await self.transport.receive(size):
                try:
                    events = self.h2.receive_data(data)
                except BROKEN as error:
                    self.complain(logging.INFO, f"does not speak valid HTTP/2: {error!r}")
                    self.transmit()
                    return
                for event in events:
                    handler = self._handlers.get(type(event))
                    if handler is not None:
                        handler(event)
                if awaits_overlong_frame(self.h2):
                    self.say_goodbye(FRAME_SIZE_ERROR)
                    return
                self.transmit()
                if self._floods(events):
                    self.complain(logging.WARNING, "sends too many frames without messages")
                    self.say_goodbye(ENHANCE_YOUR_CALM)
                    return
                size = LARGE_READ if len(events) * BYTES_AN_EVENT <= len(data) else SMALL_READ
                await self.transport.wait_room(BACKLOG_BYTES)
        finally:
            self.lost("connection lost")

    def complain(self, level: int, text: str) -> None:
        """Log the peer's fault with its address, at most once a minute for each address."""
        self._peer_log.write(level, self.transport.peer[0], text, trio.current_time())

    def _floods(self, events: list[h2.events.Event]) -> bool:
        """Whether the peer sends more frames without a message than its messages account for."""
        moved, self._moved = self.transport.moved - self._moved, self.transport.moved
        free = moved / self.limits.free_per_bytes
        count = sum(map(_carries_nothing, events)) - free
        return count > 0 and self._control.overflows(trio.current_time(), count)

    def lost(self, reason: str) -> None:
        """Fail with UNAVAILABLE the streams that the peer has not ended."""
        for stream in list(self.streams.values()):
            if not stream.remote_ended:
                stream.fail(Code.UNAVAILABLE, reason)

    # -- for the streams --------------------------------------------------------------------------

    def transmit(self) -> None:
        """Send what h2 has written."""
        self.transport.write(self.grpc.data_to_send())

    def acknowledge(self, stream_id: int, size: int) -> None:
        """Reopen the windows by ``size`` bytes for the peer, with the next transmission."""
        try:
            self.h2.acknowledge_received_data(size, stream_id)
        except ProtocolError:
            # The connection has ended.
            return

    def reset(self, stream_id: int, error_code: int) -> None:
        """End a stream on both sides."""
        try:
            self.h2.reset_stream(stream_id, error_code)
        except ProtocolError:
            # It has ended already, or the connection has.
            return
        self.transmit()

    def forget(self, stream_id: int) -> None:
        """Forget a call that is over."""
        self.streams.pop(stream_id, None)
        self.transmit()

    def say_goodbye(self, error_code: int = NO_ERROR) -> None:
        """Send a GOAWAY that lets calls in flight continue."""
        self.transport.write(goaway_frame(self.h2.highest_inbound_stream_id, error_code))

    # -- events -----------------------------------------------------------------------------------

    def _data_received(self, event: h2.events.DataReceived) -> None:
        stream = self.streams.get(event.stream_id)
        size = event.flow_controlled_length
        if stream is None:
            self.acknowledge(event.stream_id, size)
        else:
            stream.data_arrived(event.data, size)

    def _stream_ended(self, event: h2.events.StreamEnded) -> None:
        stream = self.streams.get(event.stream_id)
        if stream is not None:
            stream.ended()

    def _stream_reset(self, event: h2.events.StreamReset) -> None:
        stream = self.streams.get(event.stream_id)
        if stream is not None:
            stream.was_reset = stream.local_ended = stream.remote_ended = True
            stream.window_opened()

    def _window_updated(self, event: h2.events.WindowUpdated) -> None:
        if event.stream_id:
            stream = self.streams.get(event.stream_id)
            if stream is not None:
                stream.window_opened()
        else:
            self._all_windows_changed()

    def _settings_changed(self, event: h2.events.RemoteSettingsChanged) -> None:
        self.peer_is_known = True
        # A new initial window applies to the streams that are open.
        self._all_windows_changed()

    def _all_windows_changed(self) -> None:
        for stream in self.streams.values():
            stream.window_opened()

    def _ping_acknowledged(self, event: h2.events.PingAckReceived) -> None:
        """Do nothing; a side that sends pings overrides this."""

    def _goaway_received(self, event: h2.events.ConnectionTerminated) -> None:
        """Do nothing: a client that sends a GOAWAY ends its calls itself."""
