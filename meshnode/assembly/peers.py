"""The branch that finds other nodes: DHT and peer book (interface 4.3)."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import trio

from meshnode import __version__
from meshnode.assembly.dependencies import NetworkDependencies
from meshnode.config import Config
from meshnode.domain.addresses import grpc_addresses
from meshnode.domain.kademlia.node_id import parse_id
from meshnode.domain.peer_session import CallerCheck
from meshnode.domain.peers import MAX_VERSIONS, Capacity, ShardInfo
from meshnode.domain.units import GIBIBYTE
from meshnode.services.dht.handle import Dht
from meshnode.services.dht.service import DhtSettings, serve_dht
from meshnode.services.peers import PeerBook, serve_peers
from meshnode.services.process import ProcessGauge
from meshnode.services.shards.flights import SESSION_MESSAGES
from meshnode.supervise import Supervisor

MAX_BOOTSTRAP = 16
"""Enough for a node to join through, and a small part of an answer."""


async def start_dht(nursery: trio.Nursery, run: Supervisor, needs: NetworkDependencies) -> Dht:
    """Start the DHT."""
    config = needs.config
    settings = DhtSettings(
        own_id=parse_id(bytes.fromhex(needs.key.node_id)),
        bound=config.host,
        port=config.port,
        data_dir=Path(config.data_dir),
        trackers=grpc_addresses(config.tracker_url),
        timings=needs.timings.dht,
    )
    serve = partial(serve_dht, settings, needs.pool, needs.listening)
    dht: Dht = await nursery.start(run, "dht", serve)
    return dht


async def start_peers(
    nursery: trio.Nursery, run: Supervisor, needs: NetworkDependencies, *, dht: Dht
) -> PeerBook:
    """Start the peer book."""
    info = own_shards(needs)
    serve = partial(serve_peers, dht, needs.pool, info, timings=needs.timings.peers)
    book: PeerBook = await nursery.start(run, "peers", serve)
    return book


def peers_check(node_id: str, book: PeerBook) -> CallerCheck:
    """Tells calls of peers from those of strangers (decision 0164). ``node_id`` is this node's."""

    def is_peer(other: str) -> bool:
        return any(peer.node_id == other for peer in book.peers())

    return CallerCheck(node_id, is_peer, time.time)


def bootstrap_urls(config: Config, dht: Dht, book: PeerBook) -> list[str]:
    """What another node may name as its tracker: this node, its own trackers, and its peers.

    A node that does not know its own address yet leaves itself out (decision 0156).
    """
    own = dht.own_address.best()
    at = [] if own is None else [f"[{own}]" if ":" in own else own]
    urls = [f"http://{host}:{config.port}" for host in at]
    urls += [url for url in config.tracker_url.split(",") if url]
    urls += [f"http://{peer.address}" for peer in book.peers()]
    return list(dict.fromkeys(urls))[:MAX_BOOTSTRAP]


def own_shards(needs: NetworkDependencies) -> Callable[[], ShardInfo]:
    """A function that returns what this node reports about itself now."""
    source, executor, config = needs.source, needs.executor, needs.config
    gauge, node_id, served = ProcessGauge(), needs.key.node_id, executor.versions
    claim, drain = needs.claim, needs.drain
    memory_total = int(config.resources.max_memory_gb * GIBIBYTE)

    def info() -> ShardInfo:
        capacity = Capacity(
            memory_total=memory_total,
            memory_used=gauge.private_used(),
            kv_total=executor.kv_bytes_limit,
            kv_used=executor.kv_bytes_in_use,
            queue_depth=executor.queued,
            active_sessions=executor.active,
            max_batch=config.limits.max_batch,
            tokens_per_second=round(executor.speed.per_second, 2),
            session_messages=SESSION_MESSAGES,
        )
        return ShardInfo(
            node_id=node_id,
            version=__version__,
            model_name=executor.card.name,
            model_hash=served.current.model_hash,
            origin_hash=source.manifest.model_hash,
            weights_version=served.current.weights.version,
            model_hashes=served.hashes[:MAX_VERSIONS],
            total_layers=source.config.num_layers,
            layers=tuple(source.held),
            hidden_dim=source.config.hidden_size,
            vocab_size=source.config.vocab_size,
            context_length=executor.card.context_length,
            capacity=capacity,
            numeric_class=executor.numeric_class,
            layer_ms=round(1e3 * executor.speed.turn_s / len(source.held), 4),
            move=claim.target,
            leaving=claim.target is not None or drain.draining,
        )

    return info
