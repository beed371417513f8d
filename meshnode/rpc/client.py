"""The client's side of a connection: its calls, and how the peer ended them (interface 4.3, 7.3).

Invariant: when the peer disconnects or stops answering pings, every call in flight ends with
UNAVAILABLE; after a GOAWAY, calls that the peer had begun run to their end and the others end with
UNAVAILABLE.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import h2.events
import trio

from meshnode.rpc._header_memory import parsed_once
from meshnode.rpc.connection import Connection
from meshnode.rpc.errors import RESET_CODES, CallFailed, Code
from meshnode.rpc.headers import ResponseEnd, parse_response, parse_response_end, parse_trailers
from meshnode.rpc.keepalive import Keepalive
from meshnode.rpc.limits import ByteCount, RpcLimits
from meshnode.rpc.metadata import NONE
from meshnode.rpc.peer_log import PeerLog
from meshnode.rpc.streams import MessageStream
from meshnode.rpc.transport import Transport

if TYPE_CHECKING:
    from google.protobuf.message import Message

CANCEL = 8
"""HTTP/2 error code of a call that its caller abandons."""


class ClientStream(MessageStream):
    """A call's messages, and how the peer ended it."""

    outcome: ResponseEnd | None = None
    metadata: Mapping[str, str] = NONE
    """The metadata that the peer has sent so far."""
    most_bytes: int | None = None
    """The largest message to accept, if less than the limits allow."""
    response_type: type[Message]
    """Set before the peer can answer."""

    def set_encoding(self, encoding: str) -> None:
        """The message encoding, known only when the response begins."""
        self.expect(encoding, self.response_type, self.most_bytes)


class ClientConnection(Connection):
    """The client's side of a connection."""

    streams: dict[int, ClientStream]  # type: ignore[assignment]

    def __init__(
        self,
        transport: Transport,
        limits: RpcLimits,
        held: ByteCount,
        peer_log: PeerLog | None = None,
    ) -> None:
        """Await :meth:`wait_known` before the first call, as the peer's settings limit calls."""
        super().__init__(transport, limits, client_side=True, peer_log=peer_log)
        self._held = held
        self.gone: str | None = None
        """Why no further call can be made; None while calls can be made."""
        self.ended = trio.Event()
        """Set when no call is left and none can be made."""
        self.room = trio.lowlevel.ParkingLot()
        self.keepalive = Keepalive()
        self._changed = trio.lowlevel.ParkingLot()
        self._handlers |= {
            h2.events.ResponseReceived: self._response_received,
            h2.events.TrailersReceived: self._trailers_received,
        }

    def hold(self, stream_id: int, size: int) -> bool:
        """Count ``size`` more bytes as held; False if there is no room for them."""
        return self._held.take(size)

    def release(self, stream_id: int, size: int) -> None:
        """Count ``size`` bytes as held no longer."""
        self._held.give(size)

    async def wait_known(self) -> None:
        """Wait for the peer's settings. Raises CallFailed when it does not speak HTTP/2."""
        while not self.peer_is_known:
            if self.gone is not None:
                raise CallFailed(Code.UNAVAILABLE, self.gone)
            await self._changed.park()

    def has_room(self) -> bool:
        """Whether one more call may begin."""
        most = min(self.limits.calls_per_connection, self.h2.remote_settings.max_concurrent_streams)
        # h2's own count matters too: there a stream stays open until its last frame has arrived.
        return len(self.streams) < most and self.h2.open_outbound_streams < most

    def lost(self, reason: str) -> None:
        """End all calls, and let no other begin."""
        self.gone = self.gone or reason
        super().lost(reason)
        for stream in self.streams.values():
            stream.stop_listening()
        self._changed.unpark_all()
        self.room.unpark_all()
        self.ended.set()

    def forget(self, stream_id: int) -> None:
        """Forget a call that is over, so that another may begin."""
        super().forget(stream_id)
        self.room.unpark()
        self._end_when_idle()

    def _frame_ahead(self) -> None:
        """Answers may come ahead as far as the window allows: a pause would delay pings too."""
        self._passed.frames -= 1

    def _response_received(self, event: h2.events.ResponseReceived) -> None:
        stream = self.streams.get(event.stream_id)
        if stream is None:
            return
        parse = parse_response_end if event.stream_ended is not None else parse_response
        head = parsed_once(event.headers, parse)
        if isinstance(head, ResponseEnd):
            if event.stream_ended is None:
                # The body of an answer that is not gRPC may be endless.
                stream.reset(CANCEL)
            self._outcome(stream, head)
        else:
            stream.metadata = head.metadata
            stream.set_encoding(head.encoding)

    def _trailers_received(self, event: h2.events.TrailersReceived) -> None:
        stream = self.streams.get(event.stream_id)
        if stream is not None:
            self._outcome(stream, parsed_once(event.headers, parse_trailers))

    def _stream_ended(self, event: h2.events.StreamEnded) -> None:
        stream = self.streams.get(event.stream_id)
        if stream is not None and stream.outcome is None:
            self._outcome(stream, ResponseEnd(Code.INTERNAL, "the answer ended without a status"))

    def _stream_reset(self, event: h2.events.StreamReset) -> None:
        stream = self.streams.get(event.stream_id)
        if stream is None:
            return
        stream.was_reset = True
        if stream.outcome is None:
            code = RESET_CODES.get(int(event.error_code or 0), Code.INTERNAL)
            self._outcome(stream, ResponseEnd(code, "the peer reset the call"))

    def _outcome(self, stream: ClientStream, outcome: ResponseEnd) -> None:
        if stream.outcome is not None:
            return
        stream.outcome = outcome
        stream.metadata = {**stream.metadata, **outcome.metadata}
        if outcome.code is not Code.OK:
            stream.fail(outcome.code, outcome.message)
        stream.ended()
        stream.stop_listening()

    def _settings_changed(self, event: h2.events.RemoteSettingsChanged) -> None:
        super()._settings_changed(event)
        self._changed.unpark_all()
        self.room.unpark_all()

    def _ping_acknowledged(self, event: h2.events.PingAckReceived) -> None:
        self.keepalive.answered()

    def _goaway_received(self, event: h2.events.ConnectionTerminated) -> None:
        self.gone = "the peer is going away"
        last = event.last_stream_id or 0
        for stream in list(self.streams.values()):
            if stream.id > last:
                # The peer has not processed these calls, so they can be retried elsewhere.
                stream.fail(Code.UNAVAILABLE, self.gone)
                stream.stop_listening()
        self.room.unpark_all()
        self._end_when_idle()

    def _end_when_idle(self) -> None:
        if self.gone is not None and not self.streams:
            self.ended.set()
