"""The composition root: starts what a node keeps for all its time, and one life after another.

A life is the time during which the node holds the same layers; most nodes have one (decision 0250).
The nesting is the shutdown order, innermost first. The channels and the ledger are outermost, so
that charges are still booked; then come the services of a life (``assembly.life``), of which the
edges stop first (decision 0006).
"""

from __future__ import annotations

import ipaddress
import logging
import os
import random
import signal
import ssl
from functools import partial
from pathlib import Path

import trio

from meshnode.assembly.life import end_life, live
from meshnode.assembly.machine import Machine, OperatorToken
from meshnode.assembly.timings import NODE_TIMINGS, NodeTimings
from meshnode.config import Config
from meshnode.datadir import DataDirLock
from meshnode.descriptors import DescriptorBudget, raise_limit, share_out
from meshnode.domain.errors import StartupError
from meshnode.domain.kademlia.address import source_for
from meshnode.domain.metering import TrafficMeter
from meshnode.model.accelerator.device import find_accelerator
from meshnode.rpc.pool import ChannelPool, serve_pool
from meshnode.services.inventory import require_whole, serve_inventory
from meshnode.services.keystore import (
    PASSPHRASE_VARIABLE,
    TOKEN_FILE,
    Keystore,
    load_or_create_token,
)
from meshnode.services.ledger.clock import NodeClock
from meshnode.services.settings import Settings
from meshnode.services.tokens import TokenStore
from meshnode.supervise import Drain, Restarts, ServiceBoard, supervise, watch_signals
from meshnode.tls import ServerTls, peer_context

log = logging.getLogger(__name__)


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
    token, token_is_new = ("", False) if config.token else load_or_create_token(data_dir)
    operator_file = None if config.token else data_dir / TOKEN_FILE
    tokens = TokenStore(data_dir, config.token or token, operator_file=operator_file)

    drain, board, traffic = Drain(), ServiceBoard(), TrafficMeter()
    descriptors = descriptor_budget()
    run = partial(supervise, board=board, random=random.random)

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
        machine = Machine(
            config=config,
            timings=timings,
            keys=keys,
            settings=Settings(config, keys.node_key.node_id),
            token=OperatorToken(token, data_dir / TOKEN_FILE, token_is_new),
            tokens=tokens,
            descriptors=descriptors,
            tls=tls,
            found=found,
            traffic=traffic,
            board=board,
            drain=drain,
            run=run,
            nursery=node,
            pool=pool,
            begun=begun,
            clock=NodeClock(data_dir),
        )
        await live_on(machine)
        node.cancel_scope.cancel()
    lock.release()
    log.info("stopped")


async def live_on(machine: Machine) -> None:
    """One life after another, until the node stops.

    If the weights of the next one cannot be used, the node goes back to the layers that it had.
    """
    wanted = await live(machine)
    while wanted is not None and not machine.drain.draining:
        end_life(machine)
        lives, target = machine.lives, wanted
        try:
            wanted = await live(machine, target)
        except* StartupError as failure:
            if machine.lives > lives or machine.held in (None, target):
                raise
            log.error("cannot hold layers %d-%d: %s", target.start, target.stop - 1, failure)
            wanted, machine.may_move = machine.held, False


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


def is_local(host: str) -> bool:
    """Whether only this machine can reach ``host``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
