"""The engine as a service: its folder, its process, its blocks and its transactions.

The nesting is the order of the end. The engine stops first, while its application still answers;
then the application stops.
"""

from __future__ import annotations

import base64
import logging
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from meshnode.domain.chain.blocks import ACCEPTED, REFUSED, TransactionResult
from meshnode.domain.chain.envelope import decode_transaction, transaction_hash
from meshnode.domain.chain.errors import LedgerBroken, Rejected
from meshnode.domain.errors import Unavailable
from meshnode.services.abci.calls import Calls
from meshnode.services.abci.server import serve_abci
from meshnode.services.engine.child import Engine, EngineEnded, StateDiffers
from meshnode.services.engine.following import follow_engine
from meshnode.services.engine.history import hand_over
from meshnode.services.engine.home import (
    ABCI_SOCKET,
    HOME,
    RPC_SOCKET,
    EngineSettings,
    write_home,
)
from meshnode.services.engine.light import LightServer, serve_light
from meshnode.services.engine.rpc import EngineRefused, EngineRpc
from meshnode.services.engine.standing import STILL_S, Standing
from meshnode.services.ledger.database import LedgerReader
from meshnode.services.ledger.decided import DecidedKeeper
from meshnode.services.ledger.ordered import OrderedLedger
from meshnode.services.ledger.restoring import forget_unfinished
from meshnode.services.ledger.service import CLOSE_S
from meshnode.supervise import Restarts

if TYPE_CHECKING:
    from collections.abc import Callable

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from meshnode.domain.chain.context import ModelPort
    from meshnode.services.ledger.validator_key import ValidatorKey

log = logging.getLogger(__name__)

WAITING_S = 30.0
"""How often a node says that it has no snapshot yet."""
PER_PAGE = 100
"""Validators that the engine lists in one answer."""
KNOWN = "tx already exists in cache"
"""CometBFT's words for a transaction that it has got before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSetup:
    """What the engine is started with."""

    program: str
    """The path of the program."""
    validator: ValidatorKey
    node_key: Ed25519PrivateKey
    settings: EngineSettings
    snapshot_every: int = 1000
    """Blocks from one snapshot to the next; 0 for none."""
    still_s: float = STILL_S
    """How long the chain may stand still before the engine is started again (decision 0241)."""
    authorities: str = ""
    """A PEM file of those who sign the gateways' certificates, unless the system knows them."""


async def serve_ordered_ledger(
    data_dir: Path,
    genesis: bytes,
    model: ModelPort,
    setup: EngineSetup,
    *,
    clock_ns: Callable[[], int] = time.time_ns,
    task_status: trio.TaskStatus[OrderedLedger] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Keep the chain of ``genesis`` in ``data_dir`` under an engine; gives an OrderedLedger.

    Raises StartupError for a ledger that cannot be trusted, and what :func:`serve_engine` raises.
    """
    begun = partial(forget_unfinished, data_dir, genesis, data_dir / HOME / "data")
    if await trio.to_thread.run_sync(begun):
        log.warning("engine: a snapshot was restored, and no block since: it is begun again")
    keeper = await trio.to_thread.run_sync(DecidedKeeper, data_dir, genesis, model)
    moved = await trio.to_thread.run_sync(hand_over, data_dir, keeper.genesis)
    if moved:
        log.info("engine: the chain goes on under CometBFT after block %d", moved)
    every = setup.snapshot_every
    ledger = OrderedLedger(keeper, LedgerReader(data_dir), model, clock_ns, data_dir, every)
    settings = setup.settings
    if ledger.state_height:
        # It has a state already, from which its engine goes on.
        settings = replace(settings, state_sync=None)
    try:
        write = partial(write_home, data_dir, genesis, setup.validator, setup.node_key, settings)
        home = await trio.to_thread.run_sync(write)
        async with trio.open_nursery() as nursery:
            if settings.state_sync is not None:
                urls = settings.state_sync.servers
                servers = [LightServer(url, genesis, setup.authorities) for url in urls]
                await nursery.start(serve_light, servers, home)
                nursery.start_soon(_say_why_nothing_comes, ledger)
            nursery.start_soon(ledger.take_snapshots)
            standing = Standing(ledger, setup.validator.address, still_s=setup.still_s)
            await nursery.start(serve_engine, ledger, setup.program, home, standing)
            task_status.started(ledger)
    finally:
        with trio.move_on_after(CLOSE_S, shield=True):
            await ledger.close()


async def _say_why_nothing_comes(ledger: OrderedLedger) -> None:
    """Log, from time to time, that the engine has not found a snapshot yet."""
    while True:
        await trio.sleep(WAITING_S)
        if ledger.state_height:
            return
        log.info("engine: no snapshot yet; unset chain.state_sync to fetch all blocks instead")


async def serve_engine(
    ledger: OrderedLedger,
    program: str,
    home: Path,
    standing: Standing,
    *,
    restarts: Restarts | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Keep the engine running on ``ledger`` until cancelled; started once it has been started.

    Raises EngineEnded when it has ended too often, and LedgerBroken when this node must end.
    """
    rpc = EngineRpc(home / RPC_SOCKET)
    ledger.broadcast = partial(broadcast, ledger, rpc)
    ledger.ask_priorities = partial(priorities, rpc)
    answering = trio.CancelScope(shield=True)

    async def answer(*, task_status: trio.TaskStatus[None]) -> None:
        with answering:
            await serve_abci(Calls(ledger), home / ABCI_SOCKET, task_status=task_status)

    async with trio.open_nursery() as application:
        await application.start(answer)
        try:
            async with trio.open_nursery() as engine:
                keep = partial(_keep_running, ledger, program, home, standing)
                engine.start_soon(keep, restarts or Restarts())
                task_status.started()
                await follow_engine(ledger, rpc)
        finally:
            answering.cancel()
            with trio.CancelScope(shield=True):
                await rpc.close()


async def _keep_running(
    ledger: OrderedLedger, program: str, home: Path, standing: Standing, restarts: Restarts
) -> None:
    failures: list[float] = []
    while True:
        engine = Engine(program, home)
        log.info("engine: started, process %d", engine.pid)
        try:
            reason = await _run_watched(engine, standing)
            log.warning("engine: started again: %s", reason)
            pause = 0.0
        except EngineEnded as ended:
            if engine.lacks_space:
                # It passes, as other shortages do: a full disk may get room (decision 0126).
                ledger.report("the disk is full, and the consensus engine cannot run")
                pause = restarts.longest_pause_s
            else:
                now = trio.current_time()
                failures = [*(at for at in failures if now - at < restarts.window_s), now]
                ledger.report(f"the consensus engine {ended}")
                if len(failures) > restarts.budget:
                    raise
                pause = restarts.pause(len(failures), 1.0)
        except StateDiffers as difference:
            height = ledger.state_height
            log.critical("engine: after block %d %s; this node stops", height, difference)
            raise LedgerBroken(f"after block {height} {difference}") from None
        finally:
            await engine.stop()
        await trio.sleep(pause)


async def _run_watched(engine: Engine, standing: Standing) -> str:
    """Until it must be started again; says why. Raises EngineEnded and StateDiffers before."""
    reason, ended = "", None
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            nonlocal reason
            reason = await standing.wait_lost()
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch)
        try:
            await engine.run()
        except (EngineEnded, StateDiffers) as error:
            ended = error
            nursery.cancel_scope.cancel()
    if ended is not None:
        raise ended
    return reason


async def broadcast(ledger: OrderedLedger, rpc: EngineRpc, raw: bytes) -> TransactionResult:
    """Give a transaction to the engine. One that it has got before is accepted again.

    Raises Unavailable when the engine does not answer; the same bytes may be sent again.
    """
    name = transaction_hash(raw)
    profile = ledger.genesis.profile
    try:
        envelope = decode_transaction(
            raw, profile.params.max_tx_bytes, profile.limits.transaction_depth
        )
        answer = await rpc.call("broadcast_tx_sync", tx=_base64(raw))
    except Rejected as refusal:
        return TransactionResult(REFUSED, str(refusal), name)
    except EngineRefused as refusal:
        if refusal.data != KNOWN:
            raise Unavailable(f"the consensus engine: {refusal}") from None
        answer = {"code": ACCEPTED, "log": ""}
    if answer["code"] != ACCEPTED:
        return TransactionResult(REFUSED, str(answer["log"]), name)
    kind = str(envelope.body.get("kind"))
    return TransactionResult(ACCEPTED, "", name, envelope.id, kind, envelope.signer)


async def priorities(rpc: EngineRpc, height: int) -> dict[str, int]:
    """The engine's proposer priorities at a height, by consensus key. Raises Unavailable."""
    found: dict[str, int] = {}
    page, total = 1, 1
    while len(found) < total:
        try:
            answer = await rpc.call(
                "validators", height=str(height), page=str(page), per_page=str(PER_PAGE)
            )
        except EngineRefused as refusal:
            raise Unavailable(f"the consensus engine: {refusal}") from None
        for one in answer["validators"]:
            key = base64.b64decode(one["pub_key"]["value"]).hex()
            found[key] = int(one["proposer_priority"])
        page, total = page + 1, int(answer["total"])
    return found


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
