"""A life of a node: the services that depend on the layers that it holds (decision 0250).

The nesting is the shutdown order, innermost first: the executor is outermost, so that a stream in
flight can finish while the edges close; the edges are innermost and stop first (decision 0006).
"""

from __future__ import annotations

import gc
import logging
import os
from functools import partial
from pathlib import Path

import trio

from meshnode import __version__
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
from meshnode.assembly.machine import Machine
from meshnode.assembly.moving import start_moving
from meshnode.assembly.network import start_network
from meshnode.assembly.peers import bootstrap_urls
from meshnode.assembly.pipeline import own_draft
from meshnode.assembly.tracing import start_tracing
from meshnode.assembly.versions import serve_setting, version_store
from meshnode.banner import BannerFacts, print_banner
from meshnode.config import Config, LimitsConfig
from meshnode.domain.forwarded import TrustedProxies
from meshnode.domain.ratelimit import Rate
from meshnode.domain.training.serving import OFF
from meshnode.edges.http_node import NodeFacts, node_rates
from meshnode.http.server import serve_http
from meshnode.memory import PROCESS_BYTES, map_large_blocks, reuse_blocks
from meshnode.model.accelerator.device import Accelerator, choose_device
from meshnode.model.engine import Engine
from meshnode.model.files import ModelFiles
from meshnode.model.loading import expected_bytes, load_model
from meshnode.rpc.limits import RpcLimits
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
from meshnode.services.model_source import (
    LayerRoom,
    ModelSource,
    find_model,
    show_loading,
    show_progress,
)
from meshnode.services.moving import MoveClaim
from meshnode.services.pipeline import Pipeline
from meshnode.services.versions.store import VersionFiles
from meshnode.supervise import Drain, Restarts
from meshnode.turns import Turns

log = logging.getLogger(__name__)

LAST_BYTES_S = 1.0
"""Time for complete answers to reach their clients after the last generation has ended."""


async def live(machine: Machine, wanted: range | None = None) -> range | None:
    """Hold the ``wanted`` layers, or those that the settings name, until the node stops or moves.

    Returns the layers to move to; None if the node stops. Raises StartupError, in one line, for an
    error that the operator can fix, and ServiceFailed when a service has failed for good; both may
    be wrapped in exception groups.
    """
    config, run, key, pool = machine.config, machine.run, machine.keys.node_key, machine.pool
    data_dir = Path(config.data_dir)
    stop_edges, listening = trio.Event(), trio.Event()
    run_edge = partial(run, restarts=Restarts(), may_end=stop_edges.is_set)
    drain, claim = Drain(), MoveClaim()
    async with trio.open_nursery() as life:
        life.start_soon(drain_with, machine.drain, drain)
        source = await find_model(config, key, pool.stub, show_progress, machine.found, wanted)
        # More threads than processors would only wait for one another.
        threads = min(config.resources.cpu_threads, os.cpu_count() or 1)
        store = version_store(data_dir, source)
        served: VersionFiles = store.origin
        if serve_setting(config) != OFF:
            served = await trio.to_thread.run_sync(store.chosen)
        place = partial(device_for, config, machine.found, served.files, source)
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
            taken += draft.weight_bytes + draft.caches_bytes
        settings = machine.settings
        settings.require_memory(taken)
        await machine.begin_chain(source.directory, model.weight_bytes)
        slot, clock = machine.slot, machine.clock
        limits = engine_limits(config, taken + machine.chain_bytes, cache_bytes)
        live_events = LiveEvents.of(key.node_id, source.held)
        tracing = await start_tracing(
            life,
            run,
            os.environ,
            live_events.hops,
            node_id=key.node_id,
            model=served_name(config, model.card),
            routes=(*NODE_ROUTES, *OPENAI_ROUTES),
        )
        version = ServedVersion(served.weights, served.model_hash, model, engine)
        serve = partial(serve_executor, version, limits, live_events.hops.observer)
        executor: Executor = await life.start(run, "executor", serve)

        async with trio.open_nursery() as peers:
            needs = NetworkDependencies(
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
                hops=live_events.hops,
                tracing=tracing,
                timings=machine.timings,
                claim=claim,
                may_move=machine.may_move,
                moved=machine.lives > 0,
                room=LayerRoom.of(config, source.config, machine.found),
            )
            network = await start_network(peers, run, needs)
            clock.peers = network.book.clocks_ns
            slot.bootstrap_peers = partial(bootstrap_urls, config, network.dht, network.book)
            health = Health(
                drain=drain,
                services=machine.board,
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
            facts = NodeFacts(key.node_id, __version__, config.currency, machine.begun)
            await start_events(
                peers,
                run,
                live_events,
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
                tokens=machine.tokens,
                rates=node_rates(config.limits),
                source=source,
                executor=executor,
                chat=chat,
                network=network,
                slot=slot,
                health=health,
                traffic=machine.traffic,
                drain=drain,
                live=live_events,
                tracing=tracing,
            )

            async with trio.open_nursery() as edges:
                turns = Turns()
                watch = partial(turns.watch, network.generations.requesters)
                # Not among the edges, whose nursery ends only when its services have ended.
                await peers.start(partial(run, "turns", watch, restarts=Restarts()))
                grpc = grpc_services(edge_needs)
                grpc_limits = RpcLimits(connections=machine.descriptors.grpc)
                serve = partial(serve_grpc, grpc, config.host, config.grpc_port)
                serve = partial(serve, traffic=machine.traffic, limits=grpc_limits)
                serve = partial(serve, turns=turns, tls=machine.tls)
                stoppable = partial(serve, shutdown=stop_edges, grace_s=LAST_BYTES_S)
                grpc_address = await edges.start(run_edge, "grpc", stoppable)
                bound = partial(serve_http, http_app(edge_needs), config.host, config.port)
                bound = partial(bound, max_connections=machine.descriptors.http, turns=turns)
                bound = partial(bound, rate=flood_rate(config.limits), tls=machine.tls)
                bound = partial(bound, proxies=TrustedProxies(config.trusted_proxies))
                stoppable = partial(bound, shutdown=stop_edges, grace_s=LAST_BYTES_S)
                http_address = await edges.start(run_edge, "http", stoppable)
                await start_moving(peers, run, needs, network)
                await trio.to_thread.run_sync(reuse_blocks)
                listening.set()
                if machine.lives:
                    log.info("holding layers %d-%d now", source.held.start, source.held.stop - 1)
                else:
                    print_banner(
                        BannerFacts(
                            node_id=key.node_id,
                            model=executor.card.name,
                            layers=f"{source.held.start}-{source.held.stop - 1}",
                            drives=0 in executor.card.layers,
                            http=http_address,
                            grpc=grpc_address,
                            data_dir=data_dir,
                            token=machine.token.text,
                            token_file=machine.token.file,
                            token_is_new=machine.token.is_new,
                            secure=machine.tls is not None,
                            seconds=trio.current_time() - machine.begun,
                        )
                    )
                machine.lives, machine.held = machine.lives + 1, source.held
                # What there is now stays until the end, so the collector need not look at it.
                gc.freeze()
                await drain.wait_begun()
                await finish_streams(network.generations, executor, settings.current.drain_s)
                live_events.feed.close()
                stop_edges.set()
            peers.cancel_scope.cancel()
        life.cancel_scope.cancel()
    for each in executor.versions.all:
        each.engine.unload()
    return claim.left_for


def end_life(machine: Machine) -> None:
    """Free what a life that has ended has left, before the next one takes its memory."""
    machine.forget_life()
    gc.unfreeze()
    gc.collect()
    map_large_blocks()


async def drain_with(node: Drain, life: Drain) -> None:
    """Let a life drain when its node does."""
    await node.wait_begun()
    life.begin()


def device_for(
    config: Config, found: Accelerator | None, files: ModelFiles, source: ModelSource
) -> Accelerator | None:
    """The device that computes this node's layers; None for the CPU. Raises StartupError."""
    if found is None:
        return choose_device(config.device, None, 0)
    weight_bytes = expected_bytes(files, source.held, config.dtype)
    return choose_device(config.device, found, weight_bytes)


def flood_rate(limits: LimitsConfig) -> Rate:
    """The rate above which an address is cut off (decision 0127).

    The burst is larger than that of the rate limit, so that a client that is too fast is told so
    before.
    """
    return Rate(limits.requests_per_second_per_address, 2 * limits.burst_per_address)


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
