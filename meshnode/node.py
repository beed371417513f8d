"""The composition root: starts every service of the node, and fixes the order of shutdown.

The nesting is the shutdown order, innermost first. The channels and the ledger are outermost, so
that charges are still booked; the executor next, so that a stream in flight can finish while the
edges close; the edges are innermost and stop first (decision 0006). ``assembly`` puts the larger
branches together.
"""

from __future__ import annotations

import gc
import ipaddress
import logging
import os
import random
import signal
import ssl
from functools import partial
from pathlib import Path

import trio

from meshnode import __version__
from meshnode.assembly.chain import ChainDependencies, ChainSlot, serve_chain
from meshnode.assembly.dependencies import NetworkDependencies
from meshnode.assembly.edges import (
    NODE_ROUTES,
    OPENAI_ROUTES,
    EdgeDependencies,
    grpc_services,
    http_app,
    served_name,
)
from meshnode.assembly.events import LiveEvents, start_events
from meshnode.assembly.network import start_network
from meshnode.assembly.peers import bootstrap_urls
from meshnode.assembly.pipeline import own_draft
from meshnode.assembly.timings import NODE_TIMINGS, NodeTimings
from meshnode.assembly.tracing import start_tracing
from meshnode.assembly.versions import serve_setting, version_store
from meshnode.banner import BannerFacts, print_banner
from meshnode.config import Config, LimitsConfig
from meshnode.datadir import DataDirLock
from meshnode.descriptors import DescriptorBudget, raise_limit, share_out
from meshnode.domain.errors import StartupError
from meshnode.domain.forwarded import TrustedProxies
from meshnode.domain.kademlia.address import source_for
from meshnode.domain.metering import TrafficMeter
from meshnode.domain.ratelimit import Rate
from meshnode.domain.training.serving import OFF
from meshnode.edges.http_node import NodeFacts, node_rates
from meshnode.http.server import serve_http
from meshnode.memory import PROCESS_BYTES, reuse_blocks
from meshnode.model.accelerator.device import Accelerator, choose_device, find_accelerator
from meshnode.model.engine import Engine
from meshnode.model.files import ModelFiles
from meshnode.model.loading import expected_bytes, load_model
from meshnode.rpc.limits import RpcLimits
from meshnode.rpc.pool import ChannelPool, serve_pool
from meshnode.rpc.server import serve_grpc
from meshnode.services.chat import ChatPrompts, serve_chat
from meshnode.services.executor import (
    Executor,
    ServedVersion,
    engine_limits,
    provide_cache,
    serve_executor,
)
from meshnode.services.forwarding import Forwarding
from meshnode.services.health import Health, serve_storage_probe
from meshnode.services.inventory import require_whole, serve_inventory
from meshnode.services.keystore import (
    PASSPHRASE_VARIABLE,
    TOKEN_FILE,
    Keystore,
    load_or_create_token,
)
from meshnode.services.ledger.clock import NodeClock, serve_clock
from meshnode.services.model_source import ModelSource, find_model, show_loading, show_progress
from meshnode.services.pipeline import Pipeline
from meshnode.services.settings import Settings
from meshnode.services.tokens import TokenStore
from meshnode.services.versions.store import VersionFiles
from meshnode.supervise import Drain, Restarts, ServiceBoard, supervise, watch_signals
from meshnode.tls import ServerTls, peer_context
from meshnode.turns import Turns

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
    if config.free_inference == "all" and not is_local(config.host):
        log.warning("free_inference is 'all': whoever reaches %s can generate text", config.host)
    require_whole(data_dir)
    keys = Keystore(data_dir, os.environ.get(PASSPHRASE_VARIABLE, ""))
    key = keys.node_key
    token, token_is_new = ("", False) if config.token else load_or_create_token(data_dir)
    operator_file = None if config.token else data_dir / TOKEN_FILE
    tokens = TokenStore(data_dir, config.token or token, operator_file=operator_file)

    drain, board, traffic = Drain(), ServiceBoard(), TrafficMeter()
    descriptors = descriptor_budget()
    stop_edges, listening = trio.Event(), trio.Event()
    run = partial(supervise, board=board, random=random.random)
    run_edge = partial(run, restarts=Restarts(), may_end=stop_edges.is_set)

    tls = server_tls(config)
    found = await trio.to_thread.run_sync(find_accelerator, config.device)
    async with trio.open_nursery() as node:
        await node.start(watch_signals, drain)
        await node.start(watch_reload, tls)
        keep = partial(serve_inventory, data_dir)
        await node.start(partial(run, "inventory", keep, restarts=Restarts()))
        pool: ChannelPool = await node.start(
            run,
            "channels",
            partial(
                serve_pool,
                traffic,
                max_links=descriptors.peers,
                tls=peer_tls(config),
                source=partial(source_for, config.host),
            ),
        )
        source = await find_model(config, key, pool.stub, show_progress, found)
        # More threads than processors would only wait for one another.
        threads = min(config.resources.cpu_threads, os.cpu_count() or 1)
        store = version_store(data_dir, source)
        served: VersionFiles = store.origin
        if serve_setting(config) != OFF:
            served = await trio.to_thread.run_sync(store.chosen)
        place = partial(device_for, config, found, served.files, source)
        where = await trio.to_thread.run_sync(place)
        load = partial(
            load_model,
            served.files,
            source.held,
            threads=threads,
            dtype=config.dtype,
            where=where,
            progress=show_loading,
        )
        loaded = await trio.to_thread.run_sync(load)
        model, chat = loaded.facts, ChatPrompts.of(loaded)
        engine = await trio.to_thread.run_sync(Engine, loaded.decoder, config.limits.max_batch)
        # Only the engine keeps the weights, so that they can be freed when it has served its time.
        del loaded
        draft = await trio.to_thread.run_sync(own_draft, config, model, source.directory)
        cache_bytes = await trio.to_thread.run_sync(provide_cache, engine)
        taken = PROCESS_BYTES + (model.weight_bytes if where is None else 0)
        if draft is not None:
            taken += draft.weight_bytes
        settings = Settings(config, key.node_id, taken_bytes=taken)
        slot, clock = ChainSlot(), NodeClock(data_dir)
        await node.start(partial(run, "clock", partial(serve_clock, clock), restarts=Restarts()))
        chain_needs = ChainDependencies(
            config=config,
            keys=keys,
            served=source.directory,
            pool=pool,
            drain=drain,
            clock=clock,
        )
        await node.start(serve_chain, slot, run, chain_needs)
        limits = engine_limits(config, taken + slot.weight_bytes, cache_bytes)
        live = LiveEvents.of(key.node_id, source.held)
        tracing = await start_tracing(
            node,
            run,
            os.environ,
            live.hops,
            node_id=key.node_id,
            model=served_name(config, model.card),
            routes=(*NODE_ROUTES, *OPENAI_ROUTES),
        )
        version = ServedVersion(served.weights, served.model_hash, model, engine)
        serve = partial(serve_executor, version, limits, live.hops.observer)
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
                    draft=draft,
                    store=store,
                    served=served,
                    executor=executor,
                    pool=pool,
                    drain=drain,
                    listening=listening,
                    slot=slot,
                    hops=live.hops,
                    tracing=tracing,
                    timings=timings,
                ),
            )
            clock.peers = network.book.clocks_ns
            slot.bootstrap_peers = partial(bootstrap_urls, config, network.dht, network.book)
            health = Health(
                drain=drain,
                services=board,
                device=executor.device_check,
                peer_count=lambda: len(network.book),
                tracker_url=config.tracker_url,
                now=trio.current_time,
                clock=lambda: clock.word,
                uncovered=partial(uncovered_layers, network.generations),
            )
            probe = partial(serve_storage_probe, health, data_dir)
            await peers.start(partial(run, "storage probe", probe, restarts=Restarts()))
            await peers.start(partial(run, "chat", partial(serve_chat, chat), restarts=Restarts()))
            facts = NodeFacts(key.node_id, __version__, config.currency, begun)
            await start_events(
                peers,
                run,
                live,
                executor=executor,
                network=network,
                health=health,
                drain=drain,
                slot=slot,
                facts=facts,
            )
            edge_needs = EdgeDependencies(
                config=config,
                settings=settings,
                facts=facts,
                tokens=tokens,
                rates=node_rates(config.limits),
                source=source,
                executor=executor,
                chat=chat,
                network=network,
                slot=slot,
                health=health,
                traffic=traffic,
                drain=drain,
                live=live,
                tracing=tracing,
            )

            async with trio.open_nursery() as edges:
                turns = Turns()
                watch = partial(turns.watch, network.generations.requesters)
                # Not among the edges, whose nursery ends only when its services have ended.
                await peers.start(partial(run, "turns", watch, restarts=Restarts()))
                grpc = grpc_services(edge_needs)
                grpc_limits = RpcLimits(connections=descriptors.grpc)
                serve = partial(serve_grpc, grpc, config.host, config.grpc_port, traffic=traffic)
                serve = partial(serve, limits=grpc_limits, turns=turns, tls=tls)
                stoppable = partial(serve, shutdown=stop_edges, grace_s=LAST_BYTES_S)
                grpc_address = await edges.start(run_edge, "grpc", stoppable)
                bound = partial(serve_http, http_app(edge_needs), config.host, config.port)
                bound = partial(bound, max_connections=descriptors.http, turns=turns)
                bound = partial(bound, rate=flood_rate(config.limits), tls=tls)
                bound = partial(bound, proxies=TrustedProxies(config.trusted_proxies))
                stoppable = partial(bound, shutdown=stop_edges, grace_s=LAST_BYTES_S)
                http_address = await edges.start(run_edge, "http", stoppable)
                await trio.to_thread.run_sync(reuse_blocks)
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
                        secure=tls is not None,
                        seconds=trio.current_time() - begun,
                    )
                )
                # What there is now stays until the end, so the collector need not look at it.
                gc.freeze()
                await drain.wait_begun()
                await finish_streams(network.generations, executor, settings.current.drain_s)
                live.feed.close()
                stop_edges.set()
            peers.cancel_scope.cancel()
        node.cancel_scope.cancel()
    lock.release()
    log.info("stopped")


def device_for(
    config: Config, found: Accelerator | None, files: ModelFiles, source: ModelSource
) -> Accelerator | None:
    """The device that computes this node's layers; None for the CPU. Raises StartupError."""
    if found is None:
        return choose_device(config.device, None, 0)
    weight_bytes = expected_bytes(files, source.held, config.dtype)
    return choose_device(config.device, found, weight_bytes)


def descriptor_budget() -> DescriptorBudget:
    """Raise the limit of open files, and share it out. Raises StartupError if it is too low."""
    limit = raise_limit()
    try:
        return share_out(limit)
    except ValueError as error:
        raise StartupError(f"this process may open {limit} files: {error}") from None


def server_tls(config: Config) -> ServerTls | None:
    """The certificate of both ports, if there is one. Raises StartupError."""
    if not config.tls_cert and not config.tls_key:
        return None
    if not config.tls_cert or not config.tls_key:
        raise StartupError("tls_cert and tls_key are needed together")
    return ServerTls(Path(config.tls_cert), Path(config.tls_key))


def peer_tls(config: Config) -> ssl.SSLContext | None:
    """The authorities that sign peers' certificates, if there are any. Raises StartupError."""
    return peer_context(Path(config.tls_ca)) if config.tls_ca else None


async def watch_reload(
    tls: ServerTls | None, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Read the certificate again at each SIGHUP; one that cannot be used changes nothing."""
    with trio.open_signal_receiver(signal.SIGHUP) as signals:
        task_status.started()
        async for _ in signals:
            if tls is None:
                log.info("SIGHUP: there is no certificate to read again")
                continue
            try:
                tls.reload()
            except StartupError as error:
                log.error("SIGHUP: the certificate stays as it was: %s", error)
            else:
                log.info("SIGHUP: new connections get the certificate that was read again")


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


def uncovered_layers(generations: Executor | Pipeline | Forwarding) -> str:
    """Why this node could not answer now, if it drives; empty if it could, or never does."""
    return generations.uncovered if isinstance(generations, Pipeline) else ""


async def finish_streams(
    generations: Executor | Pipeline | Forwarding, executor: Executor, deadline_s: float
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
