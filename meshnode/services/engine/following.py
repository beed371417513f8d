"""The blocks of the engine: each is fetched once its outcome is in the ledger (decision 0176).

States of a ledger under an engine, as ``/healthz`` shows them::

    catching up  --the engine says that it is level-->  ready
    ready        --no block for 30 s-->                 stalled
    any          --the engine does not answer-->        trouble, and stalled after 30 s
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from meshnode.domain.chain.comet.jsonform import read_block, read_commit, read_status
from meshnode.domain.chain.errors import MalformedBlock, Rejected
from meshnode.domain.errors import Unavailable
from meshnode.services.engine.events import watch_blocks
from meshnode.services.engine.rpc import EngineRefused, EngineRpc
from meshnode.services.ledger.database import StorageRefused

if TYPE_CHECKING:
    from meshnode.services.ledger.ordered import OrderedLedger

log = logging.getLogger(__name__)

RETRY_S = 0.5
LOOK_S = 5.0
"""How often the engine is asked how far it is, also without a new block."""


async def follow_engine(ledger: OrderedLedger, rpc: EngineRpc) -> None:
    """Fetch and announce blocks until cancelled."""
    news = News()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_follow_commits, ledger, rpc)
        nursery.start_soon(_watch, ledger, rpc, news)
        await _look_often(ledger, rpc, news)


class News:
    """Whether the engine had an event since it was last asked how far it is."""

    def __init__(self) -> None:
        """Begin without one."""
        self._event = trio.Event()

    def note(self) -> None:
        """There was one."""
        self._event.set()

    async def wait(self) -> None:
        """Wait for one."""
        await self._event.wait()
        self._event = trio.Event()


async def _follow_commits(ledger: OrderedLedger, rpc: EngineRpc) -> None:
    """Fetch a block as soon as its outcome is committed."""
    while True:
        await ledger.wait_committed(ledger.height)
        try:
            await _fetch_missing(ledger, rpc)
        except Unavailable:
            # Whoever watches the events reports it.
            await trio.sleep(RETRY_S)


async def _fetch_missing(ledger: OrderedLedger, rpc: EngineRpc) -> None:
    while ledger.height < ledger.state_height:
        await complete_next(ledger, rpc)


async def complete_next(ledger: OrderedLedger, rpc: EngineRpc) -> None:
    """Fetch the next block and its commit. Raises Unavailable when that must be tried again."""
    height = str(ledger.height + 1)
    try:
        found = await rpc.call("block", height=height)
        decided = await rpc.call("commit", height=height)
        block = await trio.to_thread.run_sync(read_block, found)
        header, commit = read_commit(decided)
        if header != block.header:
            raise MalformedBlock
        await ledger.complete(block, commit)
    except EngineRefused as refusal:
        raise Unavailable(f"the engine has no block {height}: {refusal}") from None
    except StorageRefused as refusal:
        ledger.report(str(refusal))
        raise
    except Rejected as reason:
        raise Unavailable(f"the engine's block {height} is not the decided one: {reason}") from None


async def _watch(ledger: OrderedLedger, rpc: EngineRpc, news: News) -> None:
    """Keep a connection for the engine's events."""
    while True:
        try:
            await watch_blocks(rpc.path, news.note)
        except Unavailable as failure:
            ledger.report(str(failure))
        await trio.sleep(RETRY_S)


async def _look_often(ledger: OrderedLedger, rpc: EngineRpc, news: News) -> None:
    """Ask the engine how far it is, at each event and every LOOK_S seconds."""
    while True:
        with trio.move_on_after(LOOK_S):
            await news.wait()
        try:
            await look(ledger, rpc)
        except Unavailable as failure:
            ledger.report(str(failure))


async def look(ledger: OrderedLedger, rpc: EngineRpc) -> None:
    """Ask the engine how far it is. Raises Unavailable."""
    try:
        info = read_status(await rpc.call("status"))
    except (EngineRefused, MalformedBlock) as error:
        raise Unavailable(f"the engine's status: {error}") from None
    except Unavailable:
        ledger.silent = True
        raise
    ledger.silent = False
    ledger.catching_up = info.catching_up
    ledger.report("")
