"""What purerpc and h2 need before they work together; import purerpc only after this module.

What is changed, each held by a test on both h2 lines:

1. purerpc 0.8.0 names ``h2.events.PingAcknowledged``, which h2 4.4 calls ``PingAckReceived``. That
   is its only import error there (decisions/0019).
2. h2 treats a received GOAWAY as the end of everything: it forgets what it had to send and refuses
   later frames. In HTTP/2 the streams up to the last one named go on to their end (RFC 9113, 6.8),
   and gRPC servers that shut down gracefully rely on it.
3. h2 gathers a frame before it looks at its length: 16 MiB for each connection that nobody counts.
   Of a header block it gathers 65 frames.
4. h2 writes every frame that arrives out in full for a log that nobody reads: a quarter of the time
   that a large message takes.
5. h2 keeps settings that it does not know, and goes through all of them whenever others arrive: one
   frame of 65536 costs 50 MB, and each empty one after it 4 ms.
6. The peer chooses how many of our headers are remembered, and hpack looks through all of them for
   each header that is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h2.events
from h2.settings import SettingCodes
from hpack import Encoder
from hyperframe.frame import DataFrame, GoAwayFrame, SettingsFrame

if TYPE_CHECKING:
    from h2.connection import H2Connection

KNOWN_SETTINGS = frozenset(map(int, SettingCodes))
MOST_TABLE_BYTES = 4096
"""Remembered of our headers: what HTTP/2 begins with, some hundred entries."""

vars(h2.events).setdefault("PingAcknowledged", h2.events.PingAckReceived)


def _describe(frame: DataFrame) -> str:
    return f"DataFrame(stream_id={frame.stream_id}, bytes={len(frame.data)})"


# In the class itself, since hyperframe makes the frames.
DataFrame.__repr__ = _describe  # type: ignore[method-assign,assignment]


def keep_streams_after_goaway(connection: H2Connection) -> None:
    """Make a received GOAWAY an event and nothing more."""

    def receive_goaway(frame: GoAwayFrame) -> tuple[list[Any], list[h2.events.Event]]:
        event = h2.events.ConnectionTerminated()
        event.error_code = frame.error_code
        event.last_stream_id = frame.last_stream_id
        event.additional_data = frame.additional_data or None
        return [], [event]

    # Private in both lines of h2, under the same name; there is no public hook.
    connection._frame_dispatch_table[GoAwayFrame] = receive_goaway


def ignore_unknown_settings(connection: H2Connection) -> None:
    """Let h2 see the settings that it knows."""
    receive: Any = connection._frame_dispatch_table[SettingsFrame]

    def receive_settings(frame: SettingsFrame) -> Any:
        known = frame.settings.keys() & KNOWN_SETTINGS
        frame.settings = {code: frame.settings[code] for code in sorted(known)}
        return receive(frame)

    connection._frame_dispatch_table[SettingsFrame] = receive_settings


class SmallTableEncoder(Encoder):
    """An encoder that takes no larger table than it began with, whatever the peer would hold."""

    @property
    def header_table_size(self) -> int:
        """Bytes."""
        return self.header_table.maxsize

    @header_table_size.setter
    def header_table_size(self, value: int) -> None:
        size = min(value, MOST_TABLE_BYTES)
        # A size that is set again would hide from hpack that the peer was not told yet.
        if size != self.header_table.maxsize:
            self.header_table.maxsize = size
            self.table_size_changes.append(size)


def awaits_overlong_frame(connection: H2Connection) -> bool:
    """Whether what is gathered of a frame, or of a header block, is longer than a frame may be."""
    buffer: Any = connection.incoming_buffer
    gathered = sum(len(frame.data) for frame in buffer._headers_buffer)
    if gathered > connection.max_inbound_frame_size:
        return True
    # Named "data" before h2 4.
    begin = bytes((buffer._data if hasattr(buffer, "_data") else buffer.data)[:3])
    return len(begin) == 3 and int.from_bytes(begin, "big") > connection.max_inbound_frame_size


def goaway_frame(last_stream_id: int, error_code: int) -> bytes:
    """A GOAWAY frame that h2 does not know of: its own way would end the connection at once."""
    frame = GoAwayFrame(0)
    frame.last_stream_id = last_stream_id
    frame.error_code = error_code
    return frame.serialize()
