"""The composition root: starts every service of the node, and fixes the order of shutdown.

The nesting is the shutdown order, innermost first. The channels and the ledger are outermost, so
that charges are still booked; the executor next, so that a stream in flight can finish while the
edges close; the edges are innermost and stop first (decision 0006). ``assembly`` puts the larger
branches together.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import random
from functools import partial
from pathlib import Path

import trio

from meshnode import __version__
from meshnode.assembly.chain import ChainDependencies, ChainSlot, serve_chain
from meshnode.assembly.dependencies import NetworkDependencies
from meshnode.assembly.edges import EdgeDependencies, grpc_services, http_app
from meshnode.assembly.network import start_network
from meshnode.assembly.timings import NODE_TIMINGS, NodeTimings
from meshnode.banner import BannerFacts, print_banner
from meshnode.config import Config, LimitsConfig
from meshnode.datadir import DataDirLock
from meshnode.descriptors import DescriptorBudget, raise_limit, share_out
from meshnode.domain.errors import StartupError
from meshnode.domain.metering import TrafficMeter
from meshnode.domain.ratelimit import Rate
from meshnode.edges.http_node import NodeFacts, node_rates
from meshnode.http.server import serve_http
from meshnode.model.loading import load_model
from meshnode.rpc.limits import RpcLimits
from meshnode.rpc.pool import ChannelPool, serve_pool
from meshnode.rpc.server import serve_grpc
from meshnode.services.executor import Executor, engine_limits, serve_executor
from meshnode.services.health import Health, serve_storage_probe
from meshnode.services.inventory import require_whole, serve_inventory
from meshnode.services.keystore import (
    PASSPHRASE_VARIABLE,
    TOKEN_FILE,
    Keystore,
    load_or_create_token,
)
from meshnode.services.ledger.clock import NodeClock, serve_clock
from meshnode.services.model_source import find_model, show_progress
from meshnode.services.pipeline import Pipeline
from meshnode.services.settings import Settings
from meshnode.services.tokens import TokenStore
from meshnode.supervise import Drain, Restarts, ServiceBoard, supervise, watch_signals

log = logging.getLogger(__name__)

LAST_BYTES_S = 1.0
"""Time for complete answers to reach their clients after the last generation has ended."""


async def run_node(config: Config, timings: NodeTimings = NODE_TIMINGS) -> None:
    """Run a node until it has drained.

    Raises StartupError, in one line, for an error that the operator can fix, and ServiceFailed when
    a service has failed for good; both may be wrapped in exception groups.
    """
    begun = trio.current_time()
    data_dir = Path(config.data_dir)
    lock = DataDirLock(data_dir)
    if not is_local(config.host):
        log.warning("gRPC carries no credentials: whoever reaches %s can use it", config.host)
    require_whole(data_dir)
    keys = Keystore(data_dir, os.environ.get(PASSPHRASE_VARIABLE, ""))
    key = keys.node_key
    token, token_is_new = ("", False) if config.token else load_or_create_token(data_dir)
    tokens = TokenStore(data_dir, config.token or token)

    drain, board, traffic = Drain(), ServiceBoard(), TrafficMeter()
    descriptors = descriptor_budget()
    stop_edges, listening = trio.Event(), trio.Event()
    run = partial(supervise, board=board, random=random.random)
    run_edge = partial(run, restarts=Restarts(), may_end=stop_edges.is_set)

    async with trio.open_nursery() as node:
        await node.start(watch_signals, drain)
        keep = partial(serve_inventory, data_dir)
        await node.start(partial(run, "inventory", keep, restarts=Restarts()))
        pool: ChannelPool = await node.start(
            run, "channels", partial(serve_pool, traffic, max_links=descriptors.peers)
        )
        source = await find_model(config, key, pool.stub, show_progress)
        # More threads than processors would only wait for one another.
        threads = min(config.resources.cpu_threads, os.cpu_count() or 1)
        load = partial(load_model, source.directory, source.held, threads=threads)
        model = await trio.to_thread.run_sync(load)
        settings = Settings(config, key.node_id, weight_bytes=model.weight_bytes)
        slot, clock = ChainSlot(), NodeClock(data_dir)
        await node.start(partial(run, "clock", partial(serve_clock, clock), restarts=Restarts()))
        chain_needs = ChainDependencies(
            config=config,
            keys=keys,
            model_directory=source.directory,
            pool=pool,
            drain=drain,
            clock=clock,
        )
        await node.start(serve_chain, slot, run, chain_needs)
        limits = engine_limits(config, model.weight_bytes + slot.weight_bytes)
        serve = partial(serve_executor, model, limits)
        executor: Executor = await node.start(run, "executor", serve)

        async with trio.open_nursery() as peers:
            network = await start_network(
                peers,
                run,
                NetworkDependencies(
                    config=config,
                    settings=settings,
                    key=key,
                    source=source,
                    model=model,
                    executor=executor,
                    pool=pool,
                    drain=drain,
                    listening=listening,
                    slot=slot,
                    timings=timings,
                ),
            )
            clock.peers = network.book.clocks_ns
            health = Health(
                drain=drain,
                services=board,
                device=executor.device_check,
                peer_count=lambda: len(network.book),
                tracker_url=config.tracker_url,
                now=trio.current_time,
                clock=lambda: clock.word,
            )
            probe = partial(serve_storage_probe, health, data_dir)
            await peers.start(partial(run, "storage probe", probe, restarts=Restarts()))
            edge_needs = EdgeDependencies(
                config=config,
                settings=settings,
                facts=NodeFacts(key.node_id, __version__, config.currency, begun),
                tokens=tokens,
                rates=node_rates(config.limits),
                source=source,
                executor=executor,
                network=network,
                slot=slot,
                health=health,
                traffic=traffic,
                drain=drain,
            )

            async with trio.open_nursery() as edges:
                grpc = grpc_services(edge_needs)
                grpc_limits = RpcLimits(connections=descriptors.grpc)
                serve = partial(serve_grpc, grpc, config.host, config.grpc_port, traffic=traffic)
                serve = partial(serve, limits=grpc_limits)
                stoppable = partial(serve, shutdown=stop_edges, grace_s=LAST_BYTES_S)
                grpc_address = await edges.start(run_edge, "grpc", stoppable)
                bound = partial(serve_http, http_app(edge_needs), config.host, config.port)
                bound = partial(bound, max_connections=descriptors.http)
                bound = partial(bound, rate=flood_rate(config.limits))
                stoppable = partial(bound, shutdown=stop_edges, grace_s=LAST_BYTES_S)
                http_address = await edges.start(run_edge, "http", stoppable)
                listening.set()
                print_banner(
                    BannerFacts(
                        node_id=key.node_id,
                        model=executor.card.name,
                        layers=f"{source.held.start}-{source.held.stop - 1}",
                        drives=0 in executor.card.layers,
                        http=http_address,
                        grpc=grpc_address,
                        data_dir=data_dir,
                        token=token,
                        token_file=data_dir / TOKEN_FILE,
                        token_is_new=token_is_new,
                        seconds=trio.current_time() - begun,
                    )
                )
                await drain.wait_begun()
                await finish_streams(network.generations, executor, settings.current.drain_s)
                stop_edges.set()
            peers.cancel_scope.cancel()
        node.cancel_scope.cancel()
    lock.release()
    log.info("stopped")


def descriptor_budget() -> DescriptorBudget:
    """Raise the limit of open files, and share it out. Raises StartupError if it is too low."""
    limit = raise_limit()
    try:
        return share_out(limit)
    except ValueError as error:
        raise StartupError(f"this process may open {limit} files: {error}") from None


def flood_rate(limits: LimitsConfig) -> Rate:
    """The rate above which an address is cut off (decision 0127).

    The burst is larger than that of the rate limit, so that a client that is too fast is told so
    before.
    """
    return Rate(limits.requests_per_second_per_address, 2 * limits.burst_per_address)


def is_local(host: str) -> bool:
    """Whether only this machine can reach ``host``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def finish_streams(
    generations: Executor | Pipeline, executor: Executor, deadline_s: float
) -> None:
    """Wait until every generation in flight has ended, for ``deadline_s`` seconds at most.

    These are the generations that this node serves, and those of other nodes that run through its
    layers.
    """
    with trio.move_on_after(deadline_s) as waiting:
        await generations.wait_idle()
        await executor.wait_idle()
    if waiting.cancelled_caught:
        left = sum(each.active for each in {generations, executor})
        log.warning("deadline passed: cancelling what is left", extra={"fields": {"left": left}})
