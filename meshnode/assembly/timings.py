"""How long the services between nodes wait for one another.

The defaults are those of each service. Tests use shorter or longer ones; no setting changes them.
"""

from __future__ import annotations

from dataclasses import dataclass

from meshnode.domain.moving import MOVE_TIMINGS, MoveTimings
from meshnode.services.dht.timings import DHT_TIMINGS, DhtTimings
from meshnode.services.peers import PEER_TIMINGS, PeerTimings
from meshnode.services.training.timings import TRAINING_TIMINGS, TrainingTimings


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTimings:
    """The timings of one node."""

    dht: DhtTimings = DHT_TIMINGS
    peers: PeerTimings = PEER_TIMINGS
    moving: MoveTimings = MOVE_TIMINGS
    training: TrainingTimings = TRAINING_TIMINGS


NODE_TIMINGS = NodeTimings()
