"""Patches that let purerpc and h2 work together; import purerpc only after this module.

The patches, each covered by a test on both h2 release lines, and their reasons:

1. purerpc 0.8.0 names ``h2.events.PingAcknowledged``, which h2 4.4 calls ``PingAckReceived``. That
   is its only import error there (decision 0019).
2. h2 treats a received GOAWAY as the end of the connection: it drops its unsent data and refuses
   later frames. In HTTP/2 the streams up to the last one named run to their end (RFC 9113, 6.8),
   and gRPC servers that shut down gracefully rely on it.
3. h2 buffers a whole frame before it checks the length, up to 16 MiB a connection that no limit
   counts. It buffers up to 65 frames of a header block. No header block needs more than HTTP/2's
   smallest maximum of a frame, however large the frames of data may be.
4. h2 formats every received frame in full for a debug log that nobody reads, which takes a quarter
   of the time that a large message needs.
5. h2 keeps unknown settings and goes through all of them whenever a SETTINGS frame arrives: a frame
   with 65536 settings costs 50 MB, and every empty one after it costs 4 ms.
6. The peer chooses the size of the table that remembers our headers, and hpack searches the whole
   table for each header that is sent.
7. h2 makes no event of some frames, those of streams that have ended for instance, so a flood of
   them would not be seen.
8. hpack words a debug log for each header, some thirty of them for a small call.
9. h2 ends the connection for a stream above the advertised number, which a peer may open before it
   has read the settings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import h2.events
import hpack.hpack
import hpack.table
from h2.exceptions import FrameTooLargeError
from h2.settings import SettingCodes
from hpack import Encoder
from hyperframe.frame import (
    ContinuationFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PushPromiseFrame,
    SettingsFrame,
)

if TYPE_CHECKING:
    from h2.connection import H2Connection

KNOWN_SETTINGS = frozenset(map(int, SettingCodes))
MAX_TABLE_BYTES = 4096
"""Largest table of remembered headers: HTTP/2's initial size, about a hundred entries."""
MAX_HEADER_BLOCK = 16_384
"""Largest header block, compressed: twice the size of uncompressed headers that is advertised."""
FRAME_HEAD = 9
"""Bytes of a frame's length, type, flags and stream."""
_WITH_HEADERS = frozenset(kind.type for kind in (HeadersFrame, PushPromiseFrame, ContinuationFrame))

vars(h2.events).setdefault("PingAcknowledged", h2.events.PingAckReceived)


def _describe(frame: Frame) -> str:
    return f"{type(frame).__name__}({frame.stream_id})"


# Patched on the class itself, since hyperframe creates the frames.
Frame.__repr__ = _describe  # type: ignore[method-assign]


class _Silent:
    """Stands for hpack's logger."""

    def debug(self, *_: object) -> None:
        """Say nothing."""


hpack.hpack.log = hpack.table.log = _Silent()  # type: ignore[assignment]


def keep_streams_after_goaway(connection: H2Connection) -> None:
    """Make a received GOAWAY emit its event and have no other effect."""

    def receive_goaway(frame: GoAwayFrame) -> tuple[list[Any], list[h2.events.Event]]:
        event = h2.events.ConnectionTerminated()
        event.error_code = frame.error_code
        event.last_stream_id = frame.last_stream_id
        event.additional_data = frame.additional_data or None
        return [], [event]

    # Private in both lines of h2, under the same name; there is no public hook.
    connection._frame_dispatch_table[GoAwayFrame] = receive_goaway


def ignore_unknown_settings(connection: H2Connection) -> None:
    """Remove settings that h2 does not know before it handles a SETTINGS frame."""
    receive: Any = connection._frame_dispatch_table[SettingsFrame]

    def receive_settings(frame: SettingsFrame) -> Any:
        known = frame.settings.keys() & KNOWN_SETTINGS
        frame.settings = {code: frame.settings[code] for code in sorted(known)}
        return receive(frame)

    connection._frame_dispatch_table[SettingsFrame] = receive_settings


class SmallTableEncoder(Encoder):
    """An encoder whose table never exceeds its initial size, even if the peer allows more."""

    @property
    def header_table_size(self) -> int:
        """The largest size of the table, in bytes."""
        return self.header_table.maxsize

    @header_table_size.setter
    def header_table_size(self, value: int) -> None:
        size = min(value, MAX_TABLE_BYTES)
        # Setting the same size again would clear hpack's note that the peer must still be informed.
        if size != self.header_table.maxsize:
            self.header_table.maxsize = size
            self.table_size_changes.append(size)


def count_frames(connection: H2Connection, count: Callable[[], None]) -> None:
    """Call ``count`` for each frame received, except those with headers."""

    def counted(receive: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def receive_frame(frame: Frame) -> Any:
            count()
            return receive(frame)

        return receive_frame

    table = connection._frame_dispatch_table
    for kind in table.keys() - {HeadersFrame}:
        table[kind] = counted(table[kind])


def bound_header_blocks(connection: H2Connection) -> None:
    """Refuse header blocks above ``MAX_HEADER_BLOCK``, in one frame or several."""
    receive: Any = connection._frame_dispatch_table[HeadersFrame]

    def receive_headers(frame: HeadersFrame) -> Any:
        if len(frame.data) > MAX_HEADER_BLOCK:
            raise FrameTooLargeError(f"header block of {len(frame.data)} bytes")
        return receive(frame)

    connection._frame_dispatch_table[HeadersFrame] = receive_headers


def allow_streams(connection: H2Connection, count: int) -> None:
    """Have h2 accept ``count`` streams at a time from the peer, whatever was advertised before."""
    connection.local_settings[SettingCodes.MAX_CONCURRENT_STREAMS] = count
    connection.local_settings.acknowledge()


def awaits_overlong_frame(connection: H2Connection) -> bool:
    """Whether the buffered part of a frame or header block is of one that is too long."""
    gathered = sum(len(frame.data) for frame in _headers_buffer(connection))
    if gathered > MAX_HEADER_BLOCK:
        return True
    begin = _buffered(connection)[:FRAME_HEAD]
    length = int.from_bytes(begin[:3], "big") if len(begin) >= 3 else 0
    has_headers = len(begin) > 3 and begin[3] in _WITH_HEADERS
    return length > (MAX_HEADER_BLOCK if has_headers else connection.max_inbound_frame_size)


def missing_bytes(connection: H2Connection) -> int:
    """How many bytes of the frame that has begun have not been received; 0 if that is unknown."""
    buffered = _buffered(connection)
    if len(buffered) < FRAME_HEAD:
        return 0
    return FRAME_HEAD + int.from_bytes(buffered[:3], "big") - len(buffered)


def _headers_buffer(connection: H2Connection) -> list[Any]:
    buffer: Any = connection.incoming_buffer
    found: list[Any] = buffer._headers_buffer
    return found


def _buffered(connection: H2Connection) -> bytes | bytearray:
    """Received bytes of frames that are not complete."""
    buffer: Any = connection.incoming_buffer
    # The attribute was called "data" before h2 4.
    found: bytes | bytearray = buffer._data if hasattr(buffer, "_data") else buffer.data
    return found


def goaway_frame(last_stream_id: int, error_code: int) -> bytes:
    """Build a GOAWAY frame without h2, which would end the connection at once on sending one."""
    frame = GoAwayFrame(0)
    frame.last_stream_id = last_stream_id
    frame.error_code = error_code
    return frame.serialize()
