"""When the DHT service does what, as a value: tests shorten it (decisions/0044)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DhtTimings:
    """In seconds. What the core itself times is in ``domain.kademlia``."""

    call_s: float = 2.0
    """For one operation, connecting included; the document's 5 s are for calls that compute."""
    lookup_s: float = 30.0
    """For a whole lookup: fifteen calls in a row that all fail."""
    resolve_s: float = 5.0
    """For the name of a tracker."""
    tick_s: float = 1.0
    """Between two looks at what is due."""
    retry_first_s: float = 0.5
    retry_most_s: float = 30.0
    """Between attempts to join: doubled each time, up to this."""
    trackers_s: float = 60.0
    """Between calls to trackers that are not in the table, once joined."""
    own_lookup_s: float = 600.0
    lost_s: float = 15.0
    """Between pings of contacts that were lost: a partition is over for us so much later."""
    returned_s: float = 2.0
    """A lost contact that calls us is pinged back no sooner after the last time."""
    republish_s: float = 5.0
    """At the earliest, when a small network has grown."""
    hand_on_s: float = 15.0
    """Between two looks for records to hand on: each is at all that are held."""
    remember_s: float = 60.0
    """Between writings of the remembered peers, where they have changed."""


DHT_TIMINGS = DhtTimings()
