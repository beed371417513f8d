"""One call on a connection, as a sequence of messages each way (interface 4.3).

Terms: a stream has *failed* when no further message can arrive; messages that were complete before
are still delivered, then the failure is raised. *Held* bytes are those waiting to be read, those of
the messages that the reader uses, and those of a message that waits for the peer's window.

Flow control: bytes of an incomplete message are acknowledged at once, since the message size limit
and the count of held bytes bound them. While a complete message waits, nothing is acknowledged, so
a slow reader leaves at most one window of bytes waiting.

A stream *waits for its peer* while the call waits for a message, or for the peer to take one; how
far the peer is behind meanwhile is the stream's pace (decision 0129).

Invariants: no received bytes are held after :meth:`MessageStream.close`; nothing is written to a
stream after its local end or its reset.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

import trio
from h2.exceptions import ProtocolError

from meshnode.domain.held_bytes import Pace
from meshnode.rpc.errors import Code, RpcError
from meshnode.rpc.framing import PREFIX, MessageReader, prefix
from meshnode.rpc.message_limits import limits_of
from meshnode.wire.scan import is_excessive

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from h2.connection import H2Connection

    from meshnode.rpc.limits import RpcLimits
    from meshnode.rpc.transport import Transport

BATCH_BYTES = 256 * 1024
"""Bytes to write before other tasks get a turn."""
FITS_BYTES = 48 * 1024
"""Beside a message: its prefix, and metadata that may be inside it (``line``)."""
UNSENT_BYTES = 1024 * 1024
"""A writer waits while more bytes than this are pending for the kernel."""


class Carrier(Protocol):
    """What a stream needs from the connection that carries it."""

    @property
    def h2(self) -> H2Connection:
        """The HTTP/2 connection state."""

    @property
    def transport(self) -> Transport:
        """The socket."""

    @property
    def limits(self) -> RpcLimits:
        """The bounds of messages and times."""

    def hold(self, stream_id: int, size: int) -> bool:
        """Count ``size`` more bytes as held; False if there is no room for them."""

    def release(self, stream_id: int, size: int) -> None:
        """Count ``size`` bytes as held no longer."""

    def message_passed(self) -> None:
        """Note that a message was sent, or taken by its reader, or a status sent."""

    def transmit(self, *, together: bool = False) -> None:
        """Send what h2 has written; ``together`` with what other tasks write now."""

    def acknowledge(self, stream_id: int, size: int) -> None:
        """Reopen the windows by ``size`` bytes for the peer, with the next transmission."""

    def reset(self, stream_id: int, error_code: int) -> None:
        """End a stream on both sides."""

    def forget(self, stream_id: int) -> None:
        """Forget a call that is over."""


class MessageStream:
    """Both directions of one call. One task receives, one sends; the connection feeds it."""

    window_stall_s = math.inf
    """How long a message may wait for the peer's window, since its bytes count as held."""
    operation = ""
    """The operation that its messages are counted for; without one, they are not."""

    def __init__(
        self,
        connection: Carrier,
        stream_id: int,
        encoding: str,
        error: Callable[[Code, str], RpcError],
    ) -> None:
        """``error`` is the type to raise: CallRefused in a server, CallFailed in a client."""
        self.id = stream_id
        self.remote_ended = False
        self.local_ended = False
        self.was_reset = False
        self._deaf = False
        """Whether the peer has stopped listening."""
        self._connection = connection
        self._error = error
        self._failure: tuple[Code, str] | None = None
        self._reader = MessageReader(connection.limits.message_bytes, encoding)
        self.pace = Pace(connection.limits.pace)
        self._held = 0
        self._taken = 0
        """Held bytes of the messages that the reader uses."""
        self._unacknowledged = 0
        self._closed = False
        self._readable = trio.lowlevel.ParkingLot()
        self._writable = trio.lowlevel.ParkingLot()

    @property
    def failed(self) -> bool:
        """Whether the stream has failed."""
        return self._failure is not None

    @property
    def waiting(self) -> bool:
        """Whether a complete message waits to be taken."""
        return self._reader.waiting

    @property
    def all_arrived(self) -> bool:
        """Whether the peer has ended its side, and a complete message waits to be taken."""
        return self.remote_ended and self._reader.waiting

    # -- fed by the connection --------------------------------------------------------------------

    def expect(self, encoding: str, kind: type[Message], most_bytes: int | None = None) -> None:
        """Expect messages of a kind in this encoding, no longer than ``most_bytes`` if given."""
        limits = limits_of(kind)
        limit = min(limits.size, self._connection.limits.message_bytes)
        look = partial(is_excessive, kind=kind, limits=limits)
        self._reader = MessageReader(min(most_bytes or limit, limit), encoding, look)

    def data_arrived(self, data: bytes, flow_controlled: int) -> None:
        """Accept message bytes; ``flow_controlled`` is their count including padding."""
        if self._closed or self._reader.problem is not None or self.failed:
            self._connection.acknowledge(self.id, flow_controlled)
            return
        if not self._connection.hold(self.id, len(data)):
            self._connection.acknowledge(self.id, flow_controlled)
            self.fail(Code.RESOURCE_EXHAUSTED, "too many bytes in flight")
            return
        self._held += len(data)
        self.pace.move(len(data), trio.current_time())
        self._reader.feed(data)
        if self._reader.problem is not None:
            self._drop()
        self._unacknowledged += flow_controlled
        if not self._reader.waiting:
            self._acknowledge()
        self._readable.unpark_all()

    def ended(self) -> None:
        """Note that the peer sends nothing more."""
        self.remote_ended = True
        self._readable.unpark_all()

    def fail(self, code: Code, message: str) -> None:
        """Deliver the complete messages to the reader, then raise. The first failure counts."""
        if self._failure is None:
            self._failure = (code, message)
            if not self._reader.ready:
                self._drop()
        self._readable.unpark_all()

    def window_opened(self) -> None:
        """Wake the writer: the peer accepts more bytes."""
        # A connection tells all its streams, and few of them have a writer that waits.
        if self._writable:
            self._writable.unpark_all()

    def stop_listening(self) -> None:
        """Note that the peer reads nothing more while our side is open; wakes the writer."""
        self._deaf = True
        self._writable.unpark_all()

    # -- used by the call -------------------------------------------------------------------------

    async def wait_begun(self) -> None:
        """Wait for the first bytes of the next message, or for the end.

        The message before it no longer counts as held.
        """
        self._release_taken()
        while not (self._reader.ready or self._reader.partial or self.remote_ended or self.failed):
            await self._wait_for_peer(self._readable)
        # Time counts anew from the beginning of a message.
        self.pace.work()

    async def wait_ended(self) -> None:
        """Wait until the peer sends nothing more. Takes no message."""
        while not (self.remote_ended or self.failed):
            await self._readable.park()

    async def receive(self, *, keep: bool = False) -> bytearray | None:
        """The next message, or None when the peer has ended its side.

        The message before it no longer counts as held, unless ``keep`` says that it is still used.
        Raises the stream's error type when the messages cannot go on.
        """
        if not keep:
            self._release_taken()
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._reader.ready:
            if self._failure is not None:
                raise self._error(*self._failure)
            if self.remote_ended:
                if self._reader.partial:
                    raise self._error(Code.INTERNAL, "the last message is incomplete")
                return None
            await self._wait_for_peer(self._readable)
        self.pace.work()
        if self._reader.problem is not None:
            raise self._error(self._reader.problem.code, self._reader.problem.message)
        message = self._reader.take()
        self._count(len(message), sent=False)
        self._taken += len(message) + PREFIX.size
        if self._unacknowledged and not self._reader.waiting:
            self._acknowledge()
            self._connection.transmit()
        return message

    async def send(self, message: bytes, *, last: bool = False, more: bool = False) -> None:
        """Send one message, as the peer's windows allow.

        ``last`` ends our side with it. With ``more`` the caller writes again at once and takes care
        of the transmission. Returns early when the peer has stopped listening; :meth:`receive` then
        reports why.
        """
        if len(message) > self._connection.limits.message_bytes:
            text = f"message of {len(message)} bytes is larger than the limit"
            raise self._error(Code.RESOURCE_EXHAUSTED, text)
        if more:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            # Other tasks get a turn between messages, however fast the peer reads.
            await trio.lowlevel.checkpoint()
        self._count(len(message), sent=True)
        await self._wait_room()
        if len(message) + PREFIX.size <= min(self._window(), BATCH_BYTES):
            self.pace.work()
            self._write(prefix(message) + message, last=last)
            if not more:
                self._connection.transmit()
            return
        if not self._connection.hold(self.id, len(message)):
            raise self._error(Code.RESOURCE_EXHAUSTED, "too many bytes in flight")
        try:
            await self._send_in_pieces(prefix(message), message, last=last)
        finally:
            self._connection.release(self.id, len(message))

    def fits(self, size: int) -> bool:
        """Whether a message of about this size would be sent at once, as a whole."""
        room = min(self._window(), BATCH_BYTES) - size - FITS_BYTES
        return room >= 0 and self._connection.transport.pending <= UNSENT_BYTES

    def send_at_once(self, message: bytes, *, together: bool) -> None:
        """Send a message that fits; it is never cut off.

        ``together``: once the tasks that are ready now have run, with what they send.
        """
        self._count(len(message), sent=True)
        self.pace.work()
        self._write(prefix(message) + message, last=False)
        self._connection.transmit(together=together)

    async def send_body(self, body: bytes) -> None:
        """Send the body of an answer that is not gRPC, as the peer's windows allow; end our side.

        The body is not counted as held, so it must be small.
        """
        if body:
            await self._send_in_pieces(b"", body, last=True)
        else:
            self.end()

    def end(self) -> None:
        """End our side without a message."""
        self._write(b"", last=True)
        self._connection.transmit()

    def reset(self, error_code: int) -> None:
        """End both sides at once. Nothing happens when both have ended already."""
        over = self.was_reset or (self.local_ended and self.remote_ended)
        self.was_reset = True
        self.local_ended = True
        if not over:
            self._connection.reset(self.id, error_code)

    def close(self) -> None:
        """Discard unread messages and remove the call from the connection."""
        self._closed = True
        self._drop()
        self._acknowledge()
        self._connection.forget(self.id)

    # -- inside -----------------------------------------------------------------------------------

    def _count(self, size: int, *, sent: bool) -> None:
        self._connection.message_passed()
        if self.operation:
            self._connection.transport.traffic.message_bytes[self.operation, sent] += size

    async def _send_in_pieces(self, head: bytes, message: bytes, *, last: bool) -> None:
        rest = memoryview(message)
        while head or len(rest):
            await self._wait_room()
            batch = 0
            while (head or len(rest)) and batch < BATCH_BYTES:
                if self._mute:
                    return
                size = min(self._window(), BATCH_BYTES)
                if size == 0:
                    break
                # The prefix is sent with the first bytes; later bytes are not copied.
                first, head = head[:size], head[size:]
                body, rest = rest[: size - len(first)], rest[size - len(first) :]
                piece = first + bytes(body) if first else body
                self._write(piece, last=last and not head and not len(rest))
                batch += len(piece)
            if batch:
                self.pace.move(batch, trio.current_time())
                self._connection.transmit()
                await trio.lowlevel.checkpoint()
            else:
                with trio.move_on_after(self.window_stall_s) as stalled:
                    await self._wait_for_peer(self._writable)
                if stalled.cancelled_caught:
                    raise self._error(Code.DEADLINE_EXCEEDED, "the message was not taken in time")
        self.pace.work()

    async def _wait_room(self) -> None:
        """Wait while more than UNSENT_BYTES are pending for the kernel."""
        transport = self._connection.transport
        if transport.pending > UNSENT_BYTES:
            self.pace.wait(trio.current_time())
            await transport.wait_room(UNSENT_BYTES)

    async def _wait_for_peer(self, event: trio.lowlevel.ParkingLot) -> None:
        self.pace.wait(trio.current_time())
        await event.park()

    @property
    def _mute(self) -> bool:
        """Whether nothing more can be sent."""
        return self.local_ended or self._deaf

    def _window(self) -> int:
        """Bytes that may be sent now in one frame."""
        if self._mute:
            return 0
        h2_connection = self._connection.h2
        try:
            window = h2_connection.local_flow_control_window(self.id)
        except ProtocolError:
            return 0
        # Negative when the peer has shrunk its window below the bytes in flight.
        return max(0, min(window, h2_connection.max_outbound_frame_size))

    def _write(self, data: bytes | memoryview, *, last: bool) -> None:
        if self._mute:
            return
        self.local_ended = last
        try:
            self._connection.h2.send_data(self.id, data, end_stream=last)
        except ProtocolError:
            # The stream or the connection has just ended; the reader gets the reason.
            self.local_ended = True

    def _acknowledge(self) -> None:
        if self._unacknowledged:
            self._connection.acknowledge(self.id, self._unacknowledged)
            self._unacknowledged = 0

    def _release_taken(self) -> None:
        self._connection.release(self.id, self._taken)
        self._held -= self._taken
        self._taken = 0

    def _drop(self) -> None:
        self._reader.discard()
        self._connection.release(self.id, self._held)
        self._held = 0
        self._taken = 0
