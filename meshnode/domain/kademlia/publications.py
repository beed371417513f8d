"""The records that a node publishes itself, and when they are due (interface 2.3: DHTStore).

Terms: to *publish* is to store a record, with age 0, at the K nodes closest to its key. A record
expires EXPIRY_S after it was last published.

Invariant: a record is due at once when it is announced, PUBLISH_S after each success and RETRY_S
after each failure, until it is withdrawn.
"""

from __future__ import annotations

from meshnode.domain.kademlia.node_id import NodeId

PUBLISH_S = 1200.0
"""A third of a record's life, which leaves time to retry after failures. Also short enough that
newcomers nearer to the key soon hold the record."""
RETRY_S = 60.0


class Publications:
    """This node's own records. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._due_at: dict[tuple[NodeId, str], float] = {}

    def announce(self, key: NodeId, value: str, now: float) -> None:
        """Publish a record from now on."""
        self._due_at.setdefault((key, value), now)

    def withdraw(self, key: NodeId, value: str) -> None:
        """Stop publishing a record. Its holders drop it when it expires."""
        self._due_at.pop((key, value), None)

    def due(self, now: float) -> list[tuple[NodeId, str]]:
        """Records to publish now, the longest due first. Report each attempt to :meth:`tried`."""
        due = [record for record, at in self._due_at.items() if at <= now]
        return sorted(due, key=self._due_at.__getitem__)

    def tried(self, key: NodeId, value: str, stored: int, now: float) -> None:
        """Note an attempt; ``stored`` is the number of nodes that hold the record now."""
        if (key, value) in self._due_at:
            self._due_at[key, value] = now + (PUBLISH_S if stored else RETRY_S)
