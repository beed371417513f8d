"""Limits of the gRPC interface, and the count of the bytes it holds (document, section 8).

Invariant: the bytes of messages that wait here, in all calls together, never exceed
``RpcLimits.bytes_in_flight``; a call that would exceed them ends with RESOURCE_EXHAUSTED.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

MAX_MESSAGE_BYTES = 100 * 1024 * 1024
"""Largest message, both ways (section 8)."""


@dataclass(frozen=True, slots=True)
class RpcLimits:
    """Bounds of one server or one channel. Times are in seconds, sizes in bytes."""

    message_bytes: int = MAX_MESSAGE_BYTES
    bytes_in_flight: int = 4 * MAX_MESSAGE_BYTES
    """Four of the largest messages, or some hundred hidden states."""
    calls_per_connection: int = 128
    """Advertised as MAX_CONCURRENT_STREAMS. Above the 100 that clients assume by custom."""
    calls: int = 1024
    """Of all connections together."""
    connections: int = 256
    """Accepted at one time; about three from each of eighty peers (section 8)."""
    share: float = 0.5
    """Of calls and of connections, for one address; those of this machine may have all."""
    stream_window: int = 4 * 1024 * 1024
    """Bytes that a peer may send ahead of the reader on one stream: a few milliseconds' worth."""
    frame_bytes: int = 1024 * 1024
    """Largest frame taken. h2 gathers a frame outside of the count, so it stays small."""
    handshake_s: float = 10.0
    """For a new peer to prove that it speaks HTTP/2."""
    arrival_s: float = 60.0
    """For a message to arrive, counted from the call where there is one only, and else from its
    first bytes; 100 MiB in it is 14 Mbit/s."""
    stall_s: float = 60.0
    """A peer that takes no byte for this long is gone; a caller that opens no window, its call."""
    keepalive_s: float = 30.0
    keepalive_timeout_s: float = 10.0
    """Both from section 8."""
    default_call_s: float = 5.0
    """For a unary call whose caller set no deadline: section 8 recommends it."""
    default_stream_s: float = 600.0
    """The same for a streaming call: long enough for the slowest generation."""
    resets_burst: int = 512
    resets_per_s: float = 64.0
    """Calls that a peer may abandon: a whole pool at once, and then a steady trickle."""
    control_burst: int = 2000
    control_per_s: float = 500.0
    """Frames that carry no message: pings, settings, priorities, windows."""
    free_per_bytes: int = 1024
    """Bytes moved, either way, that allow one more such frame: windows open as messages pass."""

    def of_one(self, whole: int, ip: str) -> int:
        """How many out of ``whole`` an address may have."""
        here = ipaddress.ip_address(ip.partition("%")[0]).is_loopback
        return whole if here else max(1, int(whole * self.share))


class ByteCount:
    """Bytes held, and the most that may be."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.held = 0

    def take(self, size: int) -> bool:
        """Count ``size`` more bytes; false, and nothing counted, when they do not fit."""
        if self.held + size > self.capacity:
            return False
        self.held += size
        return True

    def give(self, size: int) -> None:
        """Bytes are gone again."""
        self.held -= size


class LeakyBucket:
    """Counts what a peer may do in bursts, but not for long. ``now`` is monotonic seconds."""

    def __init__(self, burst: int, per_s: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._level = 0.0
        self._at = 0.0

    def overflows(self, now: float, count: float = 1.0) -> bool:
        """Count ``count`` more; true when the peer does it faster than it may."""
        self._level = max(0.0, self._level - (now - self._at) * self._per_s) + count
        self._at = now
        return self._level > self._burst
