"""The ledger as a service: open, check, and keep the chain going."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import trio

from meshnode.services.ledger.database import LedgerReader
from meshnode.services.ledger.follower import run_follower
from meshnode.services.ledger.handle import Ledger
from meshnode.services.ledger.keeper import Keeper
from meshnode.services.ledger.solo import run_solo

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from meshnode.domain.chain.context import ModelPort
    from meshnode.domain.chain.mempool import MempoolLimits
    from meshnode.services.ledger.clock import NodeClock
    from meshnode.services.ledger.follower import BlockSource
    from meshnode.services.ledger.validator_key import ValidatorKey

CLOSE_S = 10.0
"""How long the end waits for a running call. A file that is not closed loses nothing."""


async def serve_ledger(
    data_dir: Path,
    genesis: bytes,
    model: ModelPort,
    validator: ValidatorKey | None,
    source: BlockSource | None,
    *,
    limits: MempoolLimits | None = None,
    clock_ns: Callable[[], int] = time.time_ns,
    clock: NodeClock | None = None,
    task_status: trio.TaskStatus[Ledger] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Keep the chain of ``genesis`` in ``data_dir``; gives a :class:`Ledger`.

    Blocks are dated by ``clock``, or by ``clock_ns`` as it is.

    With a ``source``, its blocks are checked and executed. Otherwise ``validator`` makes blocks,
    and the service has started when there is a current block, or when none can be made.
    Raises StartupError for a ledger that cannot be trusted. LedgerBroken, or an exception of the
    model, ends the service: if it went on, this node's state would differ from the others'.
    """
    key = validator if source is None else None
    keeper = await trio.to_thread.run_sync(Keeper, data_dir, genesis, model, key, limits)
    relay = None if source is None else source.relay
    clock_ns = clock_ns if clock is None else clock.date_ns
    ledger = Ledger(keeper, LedgerReader(data_dir), model, clock_ns, relay)
    if clock is not None:
        clock.begin(lambda: ledger.time_ns)
    try:
        if source is None:
            await run_solo(ledger, clock_ns, ready=lambda: task_status.started(ledger))
        else:
            task_status.started(ledger)
            await run_follower(ledger, source)
    finally:
        with trio.move_on_after(CLOSE_S, shield=True):
            await ledger.close()
