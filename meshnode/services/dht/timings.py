"""The intervals and deadlines of the DHT service, which tests shorten (decision 0044)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DhtTimings:
    """Times in seconds. ``domain.kademlia`` has those of the DHT's core."""

    call_s: float = 2.0
    """Deadline of one operation, connecting included; the document's 5 s are for computations."""
    lookup_s: float = 30.0
    """Deadline of a whole lookup: enough for fifteen calls in a row that all fail."""
    resolve_s: float = 5.0
    """Deadline for resolving the name of a tracker."""
    tick_s: float = 1.0
    """Between two checks of what is due."""
    retry_first_s: float = 0.5
    retry_most_s: float = 30.0
    """The pause between attempts to join doubles each time, from ``retry_first_s`` up to this."""
    trackers_s: float = 60.0
    """Between calls to trackers that are not in the table, once joined."""
    own_lookup_s: float = 600.0
    lost_s: float = 15.0
    """Between pings of lost contacts: this much later the node notices that a partition healed."""
    returned_s: float = 2.0
    """The least time between two pings to a lost contact that calls this node."""
    republish_s: float = 5.0
    """The least time between two publications because a small network has grown."""
    hand_on_s: float = 15.0
    """Between two searches for records to hand on. Each search looks at all records."""
    remember_s: float = 60.0
    """Between two writes of the remembered peers, if they have changed."""


DHT_TIMINGS = DhtTimings()
