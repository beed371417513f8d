"""One HTTP/2 connection that carries calls: the part that server and client share.

The reader feeds received bytes to purerpc's connection and dispatches h2's events; all event
handlers are synchronous. It stops reading while the peer does not read the answers, and hangs up on
a peer whose frames bring too little (``domain/frames.py``). A flood of pings, settings, frames of
dead streams or tiny pieces of messages therefore costs this node no memory and other peers little
time.

Invariants: when the connection ends, every stream that the peer has not ended fails; a peer that
violates HTTP/2 gets a GOAWAY and loses only this connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import h2.events
import trio
from h2.exceptions import ProtocolError

from meshnode.domain.frames import AddressFrames, FrameMeter, Passed
from meshnode.rpc._h2_compat import (
    awaits_overlong_frame,
    count_frames,
    goaway_frame,
    missing_bytes,
)
from meshnode.rpc._purerpc import grpc_connection
from meshnode.rpc.errors import Code
from meshnode.rpc.limits import RpcLimits
from meshnode.rpc.peer_log import PeerLog
from meshnode.rpc.streams import UNSENT_BYTES, MessageStream
from meshnode.rpc.transport import LARGE_READ, SMALL_READ, Transport
from meshnode.turns import ClientTurns

log = logging.getLogger(__name__)

BACKLOG_BYTES = 2 * UNSENT_BYTES
"""Pending bytes at which the reader stops. Writers of messages stop at half of it, so that two
nodes that send much to each other never both wait for the other to read."""
BROKEN = (ProtocolError, ValueError, LookupError)
"""What h2 raises on bytes that are not HTTP/2; h2 3.2 stumbles over an empty header name."""
NO_ERROR = 0
ENHANCE_YOUR_CALM = 11
FRAME_SIZE_ERROR = 6


class Connection:
    """State of a connection, and the events that both sides have."""

    def __init__(
        self,
        transport: Transport,
        limits: RpcLimits,
        *,
        client_side: bool,
        frames: FrameMeter | None = None,
        peer_log: PeerLog | None = None,
        turns: ClientTurns | None = None,
    ) -> None:
        """``frames``, ``peer_log`` and ``turns`` may know of other connections."""
        self.transport = transport
        self._peer_log = PeerLog(log) if peer_log is None else peer_log
        self.limits = limits
        self.grpc = grpc_connection(client_side=client_side, limits=limits)
        self.h2 = self.grpc.h2_connection
        alone = AddressFrames(limits.control_burst, limits.control_per_s)
        self._frames = frames or alone.meter("")
        self._turns = turns
        self._passed = Passed()
        self._moved = 0
        count_frames(self.h2, self._count_frame)
        self.streams: dict[int, MessageStream] = {}
        self.peer_is_known = False
        """Whether the peer's first settings have arrived."""
        self.violated = False
        """Whether the peer has violated HTTP/2, so that :meth:`read` has ended."""
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

    @property
    def scheme(self) -> str:
        """What requests on this connection name as their scheme."""
        return "https" if self.transport.secure else "http"

    async def read(self) -> None:
        """Serve the connection until it ends, then fail the streams that the peer has not ended."""
        self.grpc.initiate_connection()
        self.flush()
        size = SMALL_READ
        try:
            while data := await self.transport.receive(size):
                if self._turns is not None and not await self._turns.wait(self._left):
                    return
                try:
                    events = self.h2.receive_data(data)
                except BROKEN as error:
                    self.complain(logging.INFO, f"does not speak valid HTTP/2: {error!r}")
                    self.violated = True
                    self.flush()
                    return
                for event in events:
                    handler = self._handlers.get(type(event))
                    if handler is not None:
                        handler(event)
                if awaits_overlong_frame(self.h2):
                    self.violated = True
                    self.say_goodbye(FRAME_SIZE_ERROR)
                    return
                self.flush()
                verdict = self._frames.judge(self._take_passed(), trio.current_time())
                if verdict.flood:
                    self.complain(logging.WARNING, "sends too many frames that bring too little")
                    self.say_goodbye(ENHANCE_YOUR_CALM)
                    return
                if verdict.pause_s:
                    await trio.sleep(verdict.pause_s)
                # Only the rest of one frame is read at once, so that it is never many small ones.
                size = max(SMALL_READ, min(LARGE_READ, missing_bytes(self.h2)))
                await self.transport.wait_room(BACKLOG_BYTES)
        finally:
            self.lost("connection lost")

    def _left(self) -> bool:
        return self.transport.left

    def complain(self, level: int, text: str) -> None:
        """Log the peer's fault with its address, at most once a minute for each address."""
        self._peer_log.write(level, self.transport.peer[0], text, trio.current_time())

    def _count_frame(self) -> None:
        self._passed.frames += 1

    def _take_passed(self) -> Passed:
        """What has passed since the last time."""
        passed, self._passed = self._passed, Passed()
        passed.bytes, self._moved = self.transport.moved - self._moved, self.transport.moved
        return passed

    def lost(self, reason: str) -> None:
        """Fail with UNAVAILABLE the streams that the peer has not ended."""
        for stream in list(self.streams.values()):
            if not stream.remote_ended:
                stream.fail(Code.UNAVAILABLE, reason)

    # -- for the streams --------------------------------------------------------------------------

    def hold(self, stream_id: int, size: int) -> bool:
        """Count ``size`` more bytes as held; False if there is no room for them."""
        raise NotImplementedError

    def release(self, stream_id: int, size: int) -> None:
        """Count ``size`` bytes as held no longer."""
        raise NotImplementedError

    def message_passed(self) -> None:
        """Note that a message was sent, or taken by its reader, or a status sent."""
        self._passed.messages += 1

    def transmit(self, *, together: bool = False) -> None:
        """Send what h2 has written: with what other tasks write now, if there are other calls.

        So it does with one call, too, if its messages are to leave ``together``.
        """
        if together or len(self.streams) > 1:
            self.transport.write_soon(self.grpc.data_to_send)
        else:
            self.flush()

    def flush(self) -> None:
        """Send what h2 has written at once."""
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
        self.flush()
        self.transport.write(goaway_frame(self.h2.highest_inbound_stream_id, error_code))

    # -- events -----------------------------------------------------------------------------------

    def _data_received(self, event: h2.events.DataReceived) -> None:
        stream = self.streams.get(event.stream_id)
        size = event.flow_controlled_length
        if stream is None:
            self.acknowledge(event.stream_id, size)
        else:
            if stream.waiting:
                self._frame_ahead()
                stream.data_arrived(event.data, size)
                return
            stream.data_arrived(event.data, size)
            if stream.waiting:
                self._passed.frames -= 1

    def _frame_ahead(self) -> None:
        """Note a frame of data that came while the message before it had not been taken."""
        self._passed.frames -= 1
        self._passed.ahead += 1

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
