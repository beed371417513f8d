"""The solo engine: one validator in this process makes every block (decision 0072).

A block follows a transaction as soon as the last block is ``INTERVAL_S`` old, and comes empty
after ``EMPTY_S``, so that what expires does. A header's time is that of the votes for the block
before, as CometBFT has it: after a standstill a first block is still dated to its begin, and a
second follows at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from meshnode.domain.chain.errors import InvalidCommit
from meshnode.services.ledger.database import StorageRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshnode.services.ledger.handle import Ledger

INTERVAL_S = 0.1
"""Least time between blocks: half of the promised 200 ms; the rest is for executing one."""
EMPTY_S = 5.0
RETRY_S = 1.0
"""Pause before a block is tried again that could not be written or signed."""
NANOSECONDS = 1_000_000_000


async def run_solo(
    ledger: Ledger, clock_ns: Callable[[], int], ready: Callable[[], None] | None = None
) -> None:
    """Make blocks until cancelled.

    ``ready`` is called once: when there is a block of now, or when it turns out that none comes.
    """
    while True:
        begun = trio.current_time()
        ledger.arrived = trio.Event()
        trouble = await _make_block(ledger)
        ledger.report(trouble)
        hurry = not trouble and _is_behind(ledger, clock_ns())
        if ready is not None and not hurry:
            ready()
            ready = None
        if trouble:
            await trio.sleep(RETRY_S)
        elif not hurry:
            with trio.move_on_after(EMPTY_S):
                await ledger.arrived.wait()
        await trio.sleep_until(begun + INTERVAL_S)


async def _make_block(ledger: Ledger) -> str:
    """Make the next block; what kept it from coming, in words, if something did."""
    try:
        await ledger.make_block()
    except StorageRefused as refusal:
        # A full disk may become free: nothing was committed, and nothing is lost.
        return str(refusal)
    except InvalidCommit:
        return "this node's validator key has not two thirds of the power"
    return ""


def _is_behind(ledger: Ledger, now_ns: int) -> bool:
    """Whether the next block is due at once: the last one was full, or its time is far behind."""
    latest = ledger.latest
    if latest is None:
        return True
    left = bool(latest.transactions) and ledger.waiting > 0
    return left or now_ns - latest.time_ns > 2 * EMPTY_S * NANOSECONDS
