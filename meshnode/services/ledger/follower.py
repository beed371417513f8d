"""The follower: fetch, check and execute every block of another node (decision 0074).

Nothing that the block maker says is trusted. A block is accepted when it continues this chain and
more than two thirds of the known power have signed it. Its results are accepted when the next
header has the same hash for them as this node computed. A source whose blocks were refused is asked
again at growing intervals, since its operator may repair it. A source that has no new transactions
is asked more and more seldom, unless one that went through this node waits for its block.

==============  =========================================  ==================================
what happens    reported as                                next try
==============  =========================================  ==================================
no answer       trouble; stalled after 30 s                0.2 s, doubling up to 10 s
rate limited    nothing                                    when it says, after 30 s at most
invalid block   trouble, and not ready at once             1 s, doubling up to 60 s
a full disk     trouble; stalled after 30 s                1 s
==============  =========================================  ==================================
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import trio

from meshnode.domain.chain.errors import ForkedBlock, MalformedBlock, Rejected, WrongChain
from meshnode.domain.errors import RateLimited, Unavailable
from meshnode.services.ledger.database import StorageRefused

if TYPE_CHECKING:
    from meshnode.domain.chain.comet.commits import Commit
    from meshnode.domain.chain.comet.headers import CometBlock, Header
    from meshnode.domain.chain.comet.jsonform import SyncInfo
    from meshnode.services.ledger.handle import Ledger

T = TypeVar("T")

POLL_S = 1.0
"""Pause between polls while there are transactions: well below the rate that gateways allow."""
SLOWER_AFTER = 10
"""Polls without a transaction after which the pause is twice as long; after twenty, three times."""
LONGEST_PAUSE = 4.0
"""The longest pause, in ``POLL_S``: how much later the first one after a silence may be seen. A
solo node makes an empty block every five seconds, so each question finds one at most."""
ANSWER_S = 10.0
"""Deadline for one answer of a few megabytes at most."""
NEAR = 2
"""A follower that is at most this many blocks behind still counts as up to date."""
MAX_WAIT_S = 30.0


class BlockSource(Protocol):
    """Another node that has the blocks. Its answers are decoded, but not trusted.

    Each call raises Unavailable when there is no answer, RateLimited when the node asks us to wait,
    and MalformedBlock for an answer that cannot be decoded.
    """

    @property
    def name(self) -> str:
        """The source's name in the log."""

    async def genesis(self) -> bytes:
        """The genesis document, byte for byte."""

    async def status(self) -> SyncInfo:
        """The height and hashes at which its chain ends."""

    async def block(self, height: int) -> CometBlock:
        """The block at a height."""

    async def commit(self, height: int) -> tuple[Header, Commit]:
        """The header at a height, and the commit that decided it."""

    async def relay(self, raw: bytes, kind: str, ttl: int) -> tuple[bool, str]:
        """Pass a transaction on. Returns whether it was accepted, and why."""

    def try_next(self) -> None:
        """Switch to another node from now on, if there is one."""


class Backoff:
    """Pauses that double."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s

    def reset(self) -> None:
        """Start again from the shortest pause, after a success."""
        self._next_s = self._first_s

    def pause_s(self) -> float:
        """The next pause, in seconds."""
        pause, self._next_s = self._next_s, min(2 * self._next_s, self._longest_s)
        return pause


async def run_follower(ledger: Ledger, source: BlockSource, poll_s: float = POLL_S) -> None:
    """Follow until cancelled."""
    silence, lies = Backoff(0.2, 10.0), Backoff(1.0, 60.0)
    quiet = 0
    while True:
        longer = 0.0
        try:
            busy = await advance(ledger, source)
        except StorageRefused as refusal:
            ledger.report(str(refusal))
            pause = 1.0
        except RateLimited as told:
            pause = min(float(told.retry_after), MAX_WAIT_S)
        except Unavailable as failure:
            ledger.report(f"no blocks from {source.name}: {failure}")
            source.try_next()
            pause = silence.pause_s()
        except Rejected as lie:
            ledger.report(f"blocks of {source.name} are refused: {lie}", refusing=True)
            source.try_next()
            pause = lies.pause_s()
        else:
            ledger.report("")
            silence.reset()
            lies.reset()
            quiet = 0 if busy or ledger.waiting else quiet + 1
            pause, longer = poll_s, poll_s * min(quiet / SLOWER_AFTER, LONGEST_PAUSE - 1)
        await trio.sleep(pause)
        with trio.move_on_after(longer):
            await ledger.arrived.wait()
        ledger.arrived = trio.Event()


async def advance(ledger: Ledger, source: BlockSource) -> bool:
    """Take every block up to the source's current tip.

    Returns whether there was a transaction in them, or more than one: a follower that asked a chain
    of many empty blocks seldom would be behind each time.
    """
    info = await in_time(source.status)
    if info.chain_id != ledger.chain_id:
        raise WrongChain
    # A source that is behind may catch up; one with another block at its tip is on a fork.
    known = await ledger.block(min(info.height, ledger.height))
    if info.height <= ledger.height and known is not None and info.hash != known.hash:
        raise ForkedBlock
    coming: CometBlock | None = None
    busy = info.height > ledger.height + 1
    while ledger.height < info.height:
        ledger.catching_up = info.height - ledger.height > NEAR
        height = ledger.height + 1
        block = await in_time(partial(source.block, height)) if coming is None else coming
        # The next block holds the commit of this one, so only the last commit is asked for.
        if height < info.height:
            coming = await in_time(partial(source.block, height + 1))
            commit = coming.last_commit
        else:
            coming = None
            header, commit = await in_time(partial(source.commit, height))
            if header != block.header:
                raise MalformedBlock
        await ledger.take_block(block, commit)
        busy = busy or bool(block.transactions)
        ledger.report("")
    ledger.catching_up = info.catching_up
    return busy


async def in_time(ask: Callable[[], Awaitable[T]]) -> T:
    """One answer within ANSWER_S; Unavailable when it takes longer."""
    with trio.move_on_after(ANSWER_S):
        return await ask()
    raise Unavailable("the answer takes too long")
