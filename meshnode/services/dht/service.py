"""The DHT service: its tasks on one screen (interface 2.3 and 4.3; decision 0044)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import trio

from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.local_node import LocalNode
from meshnode.domain.kademlia.node_id import NodeId
from meshnode.domain.kademlia.own_address import OwnAddress
from meshnode.domain.kademlia.policy import ANYWHERE, ContactPolicy
from meshnode.domain.kademlia.records import RECORD_LIMITS, RecordLimits
from meshnode.rpc.pool import ChannelPool
from meshnode.services.dht.handle import TO_PING, Dht
from meshnode.services.dht.joining import Joining, Tracker
from meshnode.services.dht.memory import read_peers
from meshnode.services.dht.timings import DHT_TIMINGS, DhtTimings
from meshnode.services.dht.upkeep import hand_on, ping_queued, publish, refresh, remember, try_lost


def _random() -> float:
    return secrets.randbits(53) / 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class DhtSettings:
    """Settings and dependencies of the service."""

    own_id: NodeId
    bound: str
    """The address on which this node listens."""
    port: int
    """The HTTP port; the gRPC port is 1000 higher."""
    data_dir: Path
    trackers: Sequence[Tracker] = ()
    """Hosts and gRPC ports."""
    timings: DhtTimings = DHT_TIMINGS
    policy: ContactPolicy = ANYWHERE
    record_limits: RecordLimits = RECORD_LIMITS
    random: Callable[[], float] = _random
    """Returns a number from 0 up to 1."""
    random_bits: Callable[[int], int] = field(default=secrets.randbits)


async def serve_dht(
    settings: DhtSettings,
    pool: ChannelPool,
    listening: trio.Event,
    *,
    task_status: trio.TaskStatus[Dht] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Take part in the DHT until cancelled; starts with the :class:`Dht`.

    It answers requests at once, but calls nobody before ``listening`` is set: nodes that are called
    ping back, and shun for a while a node that does not answer.
    """
    local = LocalNode(
        settings.own_id,
        trio.current_time(),
        policy=settings.policy,
        record_limits=settings.record_limits,
    )
    to_ping, pings = trio.open_memory_channel[Contact](TO_PING)
    own_address = OwnAddress(settings.bound)
    dht = Dht(local, pool, own_address, settings.port, settings.timings, to_ping)
    remembered = await trio.to_thread.run_sync(
        read_peers, settings.data_dir, settings.own_id, settings.policy
    )
    joining = Joining(dht, settings.trackers, remembered, settings.random)
    task_status.started(dht)
    await listening.wait()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ping_queued, dht, pings)
        nursery.start_soon(joining.run)
        nursery.start_soon(publish, dht)
        nursery.start_soon(hand_on, dht)
        nursery.start_soon(refresh, dht, settings.random_bits)
        nursery.start_soon(try_lost, dht)
        nursery.start_soon(remember, dht, settings.data_dir)
