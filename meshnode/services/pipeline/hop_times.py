"""What the hops of one message took, from their reports and the driver's own clock (decision 0039).

A report is not believed beyond what the driver measured: it only divides that time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from meshnode.services.pipeline.records import HopTime
from meshnode.services.shards.decoding import COMPUTE_MS, QUEUE_MS

if TYPE_CHECKING:
    from meshnode.services.pipeline.routes import RemoteHop
    from meshnode.wire import node_pb2 as pb

MAX_MS = 1e9


def relay_times(
    hops: Sequence[RemoteHop],
    reports: Sequence[pb.SwarmHopReport],
    elapsed_ms: float,
    *,
    short_cut: bool = False,
) -> list[HopTime]:
    """Each hop's times. A report's network time is to the next hop; a HopTime's, to its own.

    With a ``short_cut`` nobody knows how long the ways between hops took: each has an equal part.
    """
    if len(reports) != len(hops):
        return []
    reported = [(usable(h.queue_ms), usable(h.compute_ms), usable(h.network_ms)) for h in reports]
    between = max(0.0, elapsed_ms - sum(sum(figures) for figures in reported))
    network = [between, *(onward for _, _, onward in reported)]
    if short_cut:
        network = [between / len(hops)] * len(hops)
    return [
        HopTime(hop.node_id, hop.first, hop.last, queue_ms, compute_ms, network_ms)
        for hop, (queue_ms, compute_ms, _), network_ms in zip(hops, reported, network, strict=False)
    ]


def shares_of(elapsed_ms: float, reported_ms: Sequence[float], hops: int) -> tuple[float, ...]:
    """The elapsed time, divided over the hops as they reported, or evenly if that is no help."""
    total = sum(reported_ms)
    if len(reported_ms) != hops or total <= 0.0:
        return (elapsed_ms / hops,) * hops
    return tuple(elapsed_ms * each / total for each in reported_ms)


def direct_time(hop: RemoteHop, received: Mapping[str, str], elapsed_ms: float) -> HopTime:
    """The times of a hop that the driver called itself; ``received`` is the answer's metadata."""
    queue_ms, compute_ms = (
        _milliseconds(received, QUEUE_MS),
        _milliseconds(received, COMPUTE_MS),
    )
    network_ms = max(0.0, elapsed_ms - queue_ms - compute_ms)
    return HopTime(hop.node_id, hop.first, hop.last, queue_ms, compute_ms, network_ms)


def _milliseconds(received: Mapping[str, str], key: str) -> float:
    """A duration from the metadata of a peer's answer; 0.0 if missing or malformed."""
    try:
        value = float(received.get(key, "0"))
    except ValueError:
        return 0.0
    return usable(value)


def usable(milliseconds: float) -> float:
    """The figure that a peer reported if it can be a duration, else 0.0."""
    return milliseconds if 0.0 <= milliseconds < MAX_MS else 0.0
