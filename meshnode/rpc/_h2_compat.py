"""What purerpc and h2 need before they work together; import purerpc only after this module.

Four changes, each held by a test on both h2 lines:

1. purerpc 0.8.0 names ``h2.events.PingAcknowledged``, which h2 4.4 calls ``PingAckReceived``. That
   is its only import error there (decisions/0019).
2. h2 treats a received GOAWAY as the end of everything: it forgets what it had to send and refuses
   later frames. In HTTP/2 the streams up to the last one named go on to their end (RFC 9113, 6.8),
   and gRPC servers that shut down gracefully rely on it.
3. h2 gathers a frame before it looks at its length: 16 MiB for each connection that nobody counts.
4. h2 writes every frame that arrives out in full for a log that nobody reads: a quarter of the time
   that a large message takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h2.events
from hyperframe.frame import DataFrame, GoAwayFrame

if TYPE_CHECKING:
    from h2.connection import H2Connection

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


def awaits_overlong_frame(connection: H2Connection) -> bool:
    """Whether the frame whose begin has arrived is longer than the settings allow."""
    buffer: Any = connection.incoming_buffer
    # Named "data" before h2 4.
    begin = bytes((buffer._data if hasattr(buffer, "_data") else buffer.data)[:3])
    return len(begin) == 3 and int.from_bytes(begin, "big") > connection.max_inbound_frame_size


def goaway_frame(last_stream_id: int, error_code: int) -> bytes:
    """A GOAWAY frame that h2 does not know of: its own way would end the connection at once."""
    frame = GoAwayFrame(0)
    frame.last_stream_id = last_stream_id
    frame.error_code = error_code
    return frame.serialize()
