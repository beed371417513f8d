"""A session of a peer, as its holder keeps it (decision 0033)."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import blake2b

import trio

from meshnode.domain.errors import InvalidRequest, MeshnodeError
from meshnode.services.executor import SessionEvicted, ShardSession
from meshnode.services.shards.messages import SessionBehind

REMEMBERED_REQUESTS = 1024
"""Ids of a session's latest messages, by which a repeated message is recognised."""


@dataclass(slots=True, eq=False)
class PeerSession:
    """A session of a peer."""

    session: ShardSession
    ip: str
    """The address that sends the messages, to whose share the session counts. An IPv6 address
    stands for its whole network."""
    touched: float
    turn: trio.Lock = field(default_factory=trio.Lock)
    requests: OrderedDict[bytes, None] = field(default_factory=OrderedDict, repr=False)

    @property
    def busy(self) -> bool:
        """Whether a message is being computed."""
        return self.turn.locked()

    def validate_new(self, request_id: str) -> None:
        """Raises InvalidRequest for a message that was answered before."""
        if request_id and _digest(request_id) in self.requests:
            raise InvalidRequest("request_id", "was used in this session before")

    def answered(self, request_id: str, now: float) -> None:
        """Note a message that has been answered."""
        self.touched = now
        if request_id:
            self.requests[_digest(request_id)] = None
            if len(self.requests) > REMEMBERED_REQUESTS:
                self.requests.popitem(last=False)


def lost(failure: MeshnodeError) -> MeshnodeError:
    """What a driver is told about the end of its session: it replays one that was evicted."""
    return SessionBehind(None) if isinstance(failure, SessionEvicted) else failure


def _digest(request_id: str) -> bytes:
    return blake2b(request_id.encode(), digest_size=16).digest()
