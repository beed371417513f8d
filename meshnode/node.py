"""The composition root: every service of the node, and who outlives whom, on one screen.

Nesting is shutdown order. The executor is outermost, so that a stream in flight can finish while
the edges close; the edges are innermost and stop first (decisions/0006).
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
from meshnode.banner import BannerFacts, print_banner
from meshnode.config import Config, held_layers
from meshnode.datadir import DataDirLock
from meshnode.domain.metering import TrafficMeter
from meshnode.edges.grpc_service import node_services
from meshnode.edges.http_node import NodeFacts, node_app
from meshnode.http.server import serve_http
from meshnode.model.loading import DEFAULT_MODEL, load_model
from meshnode.rpc.server import serve_grpc
from meshnode.services.executor import Executor, engine_limits, serve_executor
from meshnode.services.health import Health, serve_storage_probe
from meshnode.services.keystore import TOKEN_FILE, load_or_create_key, load_or_create_token
from meshnode.services.settings import Settings
from meshnode.services.tokens import TokenStore
from meshnode.supervise import Drain, Restarts, ServiceBoard, supervise, watch_signals

log = logging.getLogger(__name__)

LAST_BYTES_S = 1.0
"""For answers that are complete to reach their clients, once the last generation has ended."""


async def run_node(config: Config) -> None:
    """Run a node until it has drained.

    Raises StartupError, in one line, for what the operator can mend, and ServiceFailed when a
    service has failed for good; both may be wrapped in exception groups.
    """
    begun = trio.current_time()
    data_dir = Path(config.data_dir)
    lock = DataDirLock(data_dir)
    if not is_local(config.host):
        log.warning("gRPC carries no credentials: whoever reaches %s can use it", config.host)
    key = load_or_create_key(data_dir)
    token, token_is_new = ("", False) if config.token else load_or_create_token(data_dir)
    tokens = TokenStore(data_dir, config.token or token)
    model = await trio.to_thread.run_sync(
        partial(
            load_model,
            Path(config.model) if config.model else DEFAULT_MODEL,
            held_layers(config),
            # More threads than processors would only wait for one another.
            threads=min(config.resources.cpu_threads, os.cpu_count() or 1),
        )
    )
    settings = Settings(config, key.node_id, weight_bytes=model.weight_bytes)

    drain, board, traffic, stop_edges = Drain(), ServiceBoard(), TrafficMeter(), trio.Event()
    run = partial(supervise, board=board, random=random.random)
    run_edge = partial(run, restarts=Restarts(), may_end=stop_edges.is_set)

    async with trio.open_nursery() as node:
        await node.start(watch_signals, drain)
        limits = engine_limits(config, model)
        executor: Executor = await node.start(
            run, "executor", partial(serve_executor, model, limits)
        )
        health = Health(
            drain=drain,
            services=board,
            device=executor.device_check,
            peer_count=lambda: 0,
            tracker_url=config.tracker_url,
            now=trio.current_time,
        )
        probe = partial(serve_storage_probe, health, data_dir)
        await node.start(partial(run, "storage probe", probe, restarts=Restarts()))

        async with trio.open_nursery() as edges:
            grpc = node_services(executor=executor, drain=drain)
            serve = partial(serve_grpc, grpc, config.host, config.grpc_port, traffic=traffic)
            stoppable = partial(serve, shutdown=stop_edges, grace_s=LAST_BYTES_S)
            grpc_address = await edges.start(run_edge, "grpc", stoppable)
            app = node_app(
                facts=NodeFacts(key.node_id, __version__, config.currency, begun),
                settings=settings,
                executor=executor,
                tokens=tokens,
                health=health,
                traffic=traffic,
                drain=drain,
            )
            bound = partial(serve_http, app, config.host, config.port)
            stoppable = partial(bound, shutdown=stop_edges, grace_s=LAST_BYTES_S)
            http_address = await edges.start(run_edge, "http", stoppable)
            print_banner(
                BannerFacts(
                    node_id=key.node_id,
                    model=executor.card.name,
                    layers=f"{executor.card.layers[0]}-{executor.card.layers[-1]}",
                    complete=executor.card.complete,
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
            await finish_streams(executor, settings.current.drain_s)
            stop_edges.set()
        node.cancel_scope.cancel()
    lock.release()
    log.info("stopped")


def is_local(host: str) -> bool:
    """Whether only this machine can reach ``host``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def finish_streams(executor: Executor, deadline_s: float) -> None:
    """Wait until every generation in flight has ended, for ``deadline_s`` seconds at most."""
    with trio.move_on_after(deadline_s) as waiting:
        await executor.wait_idle()
    if waiting.cancelled_caught:
        log.warning(
            "deadline passed: cancelling what is left", extra={"fields": {"left": executor.active}}
        )
