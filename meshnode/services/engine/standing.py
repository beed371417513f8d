"""Whether the chain goes on with this engine, and when it is started again (decision 0241).

The states of an engine that is level with the others::

    heard    --a block of now has no vote of this validator-->  missed
    missed   --a block has one, or it is no validator-->        heard
    missed   --20 blocks in a row-->                            started again
    any      --no block for 90 s-->                             started again

Each start for one of these reasons doubles both limits, up to 64 times; a block with a vote of this
validator, or any block where it is none, sets them back. Nothing is concluded while the engine
says that it fetches old blocks, or while this node executes one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from meshnode.domain.chain.comet.commits import ABSENT

if TYPE_CHECKING:
    from meshnode.domain.chain.comet.commits import Commit
    from meshnode.services.ledger.ordered import OrderedLedger

MISSED_BLOCKS = 20
STILL_S = 90.0
RECENT_S = 10.0
"""A block is one of now if its time is no longer ago. Others are fetched from those who have them,
and were decided while this engine did not run."""
LONGEST = 64


class Standing:
    """What is known of the present engine's place among the others."""

    def __init__(
        self,
        ledger: OrderedLedger,
        address: str,
        spread: Callable[[], float] = random.random,
        still_s: float = STILL_S,
    ) -> None:
        """``address`` is this validator's, 40 uppercase hex characters. ``spread``: 0 to 1.

        ``still_s`` is how long a chain may stand still for the first time.
        """
        self._ledger, self._address, self._spread = ledger, address, spread
        self._shortest_s = still_s
        self._missed, self._patience = 0, 1

    async def wait_lost(self) -> str:
        """Wait until the engine, which was just started, must be started again; says why."""
        self._missed = 0
        while True:
            height, still_s = self._ledger.height, self._still_s()
            with trio.move_on_after(still_s):
                await self._ledger.wait_beyond(height)
            reason = ""
            if self._ledger.height > height:
                reason = await self._look_at_block()
            elif not (self._fetching or self._ledger.executing):
                reason = f"no block for {still_s:.0f} s"
            if reason:
                self._patience = min(2 * self._patience, LONGEST)
                return reason

    @property
    def _fetching(self) -> bool:
        # What an engine said before it fell silent says nothing about now.
        return self._ledger.catching_up and not self._ledger.silent

    def _still_s(self) -> float:
        # Validators that all stand still shall not all start again at the same time.
        return self._shortest_s * self._patience * (0.75 + 0.5 * self._spread())

    async def _look_at_block(self) -> str:
        """Why the newest block shows that the engine must be started again; "" if it does not."""
        latest, now = self._ledger.latest, self._ledger.readiness()
        if latest is None or now.catching_up or now.seconds_since_block > RECENT_S:
            return ""
        if not await self._misses(latest.block.last_commit):
            self._missed, self._patience = 0, 1
            return ""
        self._missed += 1
        if self._missed < MISSED_BLOCKS * self._patience:
            return ""
        return f"{self._missed} blocks without this validator's vote"

    async def _misses(self, commit: Commit) -> bool:
        """Whether this node was to sign, and its vote is not there."""
        if any(one.address == self._address for one in commit.entries if one.flag != ABSENT):
            return False
        validators = await self._ledger.validators(commit.height)
        return any(one.address == self._address for one in validators)
