"""Limits of the gRPC interface, and the count of the bytes that it holds (interface 8).

Invariant: the bytes of messages that wait here, in all calls together, never exceed
``RpcLimits.bytes_in_flight``; a call that would exceed them ends with RESOURCE_EXHAUSTED.
"""

from __future__ import annotations

from dataclasses import dataclass

from meshnode.domain.connections import share_of

MAX_MESSAGE_BYTES = 100 * 1024 * 1024
"""Largest message, both ways (interface 8)."""


@dataclass(frozen=True, slots=True)
class RpcLimits:
    """Bounds of one server or one channel. Times are in seconds, sizes in bytes."""

    message_bytes: int = MAX_MESSAGE_BYTES
    bytes_in_flight: int = 4 * MAX_MESSAGE_BYTES
    """The most bytes held: four of the largest messages, or some hundred hidden states."""
    calls_per_connection: int = 128
    """Advertised as MAX_CONCURRENT_STREAMS; more than the 100 that clients usually assume."""
    calls: int = 1024
    """The most calls on all connections together."""
    connections: int = 256
    """The most connections at a time; about three from each of eighty peers (interface 8)."""
    connects_per_s: float = 50.0
    connects_burst: int = 256
    """Connections that one address may open per second, after a burst; this machine may at any
    rate (decision 0127)."""
    share: float = 0.5
    """Share of calls and connections that one address may use; this machine's may use all."""
    share_of_bytes: float = 0.75
    """The same for bytes in flight: room for the largest message both ways in one call."""
    stream_window: int = 4 * 1024 * 1024
    """Bytes that a peer may send ahead of the reader on one stream: a few milliseconds' worth."""
    frame_bytes: int = 1024 * 1024
    """Largest frame accepted. The byte count does not cover h2's frame buffer, so it is small."""
    handshake_s: float = 10.0
    """Time for a new peer to prove that it speaks HTTP/2."""
    arrival_s: float = 60.0
    """Time for a message to arrive: from the start of a unary call, or from the first bytes of a
    message in a stream. 100 MiB in this time is 14 Mbit/s."""
    idle_s: float = 300.0
    """Pause that a caller may make between two messages of a stream. On a full server, a call that
    waits for its caller ends earlier (decision 0129)."""
    stall_s: float = 60.0
    """A peer that reads nothing for this long loses its connection; a caller that opens no window
    for this long loses its call."""
    keepalive_s: float = 30.0
    keepalive_timeout_s: float = 10.0
    """Time for a ping's answer. Interface 8 sets this value and the one above."""
    default_call_s: float = 5.0
    """Deadline of a unary call whose caller sets none, as interface 8 recommends."""
    default_stream_s: float = 600.0
    """Deadline of a streaming call whose caller sets none; enough for the slowest generation."""
    resets_burst: int = 512
    resets_per_s: float = 64.0
    """Calls per second that a peer may abandon, after a burst as large as a whole pool."""
    control_burst: int = 2000
    control_per_s: float = 500.0
    """Frames per second from one address that neither bytes nor messages account for: pings,
    settings, window updates, tiny pieces of messages (decision 0128)."""

    def of_one(self, whole: int, ip: str) -> int:
        """The part of ``whole`` that one address may use."""
        return share_of(whole, self.share, ip)

    def bytes_of_one(self, ip: str) -> int:
        """How many bytes of messages in flight one address may have."""
        return share_of(self.bytes_in_flight, self.share_of_bytes, ip)

    @property
    def pace(self) -> float:
        """Bytes per second at which the largest message arrives just in time."""
        return self.message_bytes / self.arrival_s


class ByteCount:
    """Counts the bytes held, up to a maximum."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.held = 0

    def take(self, size: int) -> bool:
        """Count ``size`` more bytes. Returns False and counts nothing when they do not fit."""
        if self.held + size > self.capacity:
            return False
        self.held += size
        return True

    def give(self, size: int) -> None:
        """Return ``size`` bytes to the count."""
        self.held -= size
