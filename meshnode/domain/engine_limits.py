"""What a batch may use (interface 1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """Limits on what the engine uses at one time."""

    max_batch: int = 16
    """Sessions that have a place."""
    max_queue: int = 64
    """Sessions that wait for a place. The next one is refused with a time to retry after."""
    kv_bytes: int = 1 << 30
    """Memory for keys and values of the sessions that have a place."""
    beside_bytes: int | None = None
    """Memory of the host that others may take, where the cache is on a device; None where they
    take it from the cache."""
    prefill_chunk: int = 128
    """Prompt positions computed in one step, which bounds how long other sessions wait for it."""
    max_wait_s: float = 30.0
    """Longest wait for a place. A client has better uses for its time, and may ask elsewhere."""
