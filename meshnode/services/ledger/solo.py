"""The solo engine: one validator in this process makes every block (decision 0072).

A transaction gets its block as soon as the last block is ``INTERVAL_S`` old. Without transactions
there is an empty block after ``EMPTY_S``, so that whatever has a deadline on the chain expires. As
in CometBFT, a header has the time of the votes for the block before it: the first block after a
standstill still has the time at which the standstill began, so a second one follows at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from meshnode.domain.chain.errors import InvalidCommit
from meshnode.domain.units import SECOND_NS
from meshnode.services.ledger.database import StorageRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshnode.services.ledger.handle import Ledger

INTERVAL_S = 0.1
"""Shortest time between blocks: half of the promised 200 ms, to leave time to execute one."""
EMPTY_S = 5.0
RETRY_S = 1.0
"""Pause before another attempt, after a block could not be written or signed."""


async def run_solo(
    ledger: Ledger, clock_ns: Callable[[], int], ready: Callable[[], None] | None = None
) -> None:
    """Make blocks until cancelled.

    ``ready`` is called once: when there is a current block, or when none can be made.
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
    """Make the next block. Returns why that failed, in words, or an empty text."""
    try:
        await ledger.make_block()
    except StorageRefused as refusal:
        # Try again: a full disk may get space. Nothing was committed, and nothing is lost.
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
    return left or now_ns - latest.time_ns > 2 * EMPTY_S * SECOND_NS
