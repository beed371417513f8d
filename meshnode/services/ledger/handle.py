"""The ledger's handle, which ``serve_ledger`` gives: submit, query, read, wait.

Committed data is read through a separate connection, so that no reader waits for the model.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

import trio

from meshnode.domain.chain import queries
from meshnode.domain.chain.blocks import REFUSED, TransactionResult
from meshnode.domain.chain.canonical import Json, encode
from meshnode.domain.chain.context import Context, ModelPort
from meshnode.domain.chain.envelope import decode_transaction, transaction_hash
from meshnode.domain.chain.errors import LedgerBroken, Rejected
from meshnode.domain.chain.queries import QueryResult
from meshnode.domain.chain.view import Committed, View
from meshnode.domain.errors import Unavailable
from meshnode.domain.units import SECOND_NS
from meshnode.services.ledger.database import LedgerReader
from meshnode.services.ledger.keeper import Keeper
from meshnode.services.ledger.records import StoredBlock
from meshnode.services.ledger.thread import MAX_CHECKS, BoundedLock, LedgerThread

if TYPE_CHECKING:
    from meshnode.domain.chain.comet.commits import Commit
    from meshnode.domain.chain.comet.headers import CometBlock
    from meshnode.domain.chain.comet.validators import CometValidator

log = logging.getLogger(__name__)

T = TypeVar("T")
Reason = Literal["ok", "unavailable", "catching_up", "stalled"]

STALLED_S = 30.0
"""Without a block for this long, by either clock, the chain has stalled (native network 2)."""
MAX_BLOCKS = 100
"""Blocks in one answer of :meth:`Ledger.blocks`."""
MODEL_QUERIES = frozenset({"/task"})
"""Queries that need the model, which only the ledger's thread may use."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the chain can be relied upon now; ``reason`` says why not."""

    ready: bool
    reason: Reason
    catching_up: bool
    stalled: bool
    seconds_since_block: float


class Relay(Protocol):
    """Passes a transaction on to the block maker."""

    async def __call__(self, raw: bytes, kind: str, ttl: int) -> tuple[bool, str]:
        """Whether it was accepted, and why. Raises Unavailable when there is no answer."""


RELAY_S = 5.0
"""Deadline for passing a transaction on (interface 8: recommended call timeout)."""
MAX_HOPS = 8
"""Largest ttl: chains of followers are short, and relaying in a ring of them must end."""


class Ledger:
    """Handle of the service. Made by :func:`~meshnode.services.ledger.service.serve_ledger`."""

    def __init__(
        self,
        keeper: Keeper,
        reader: LedgerReader,
        model: ModelPort,
        clock_ns: Callable[[], int],
        relay: Relay | None = None,
    ) -> None:
        opened = keeper.opened
        self.genesis = opened.genesis
        self.genesis_bytes = opened.genesis_bytes
        self.genesis_sha256 = opened.genesis_sha256
        self.latest = opened.latest
        self.base = opened.base
        """Where the ledger begins; blocks up to there are not here."""
        self.following = relay is not None
        self.catching_up = self.following
        self.trouble = ""
        """Why no blocks come, in words; empty while they do."""
        self.refusing = False
        """Whether the trouble is that the block maker's blocks were found invalid."""
        self.arrived = trio.Event()
        """Set when a transaction waits for a block. Who makes or follows blocks replaces it."""
        self.engine: Literal["solo", "follower", "cometbft"] = "follower" if relay else "solo"
        """Who makes the blocks: this node, the one that it follows, or CometBFT."""
        self._keeper = keeper
        self._reader = reader
        self._model = model
        self._clock_ns = clock_ns
        self._relay = relay
        self._relaying = BoundedLock(MAX_CHECKS)
        self._on_its_way = set[str]()
        self._changed = trio.Event()
        self._block_at = trio.current_time()
        self.thread = LedgerThread()

    @property
    def chain_id(self) -> str:
        """The chain's name."""
        return self.genesis.chain_id

    @property
    def height(self) -> int:
        """The height of the last committed block; that of the snapshot, or 0, before the first."""
        return self.base.height if self.latest is None else self.latest.height

    @property
    def earliest_height(self) -> int:
        """The first height whose block is here, or comes next."""
        return self.base.height + 1

    @property
    def time_ns(self) -> int:
        """The time of the last committed block; 0 before the first."""
        return 0 if self.latest is None else self.latest.time_ns

    # Transactions.

    async def submit(self, raw: bytes, ttl: int = MAX_HOPS) -> TransactionResult:
        """Check a transaction and queue it for a block; code 1 and a log when it is refused.

        A follower also passes it on, over at most ``ttl`` hops. Raises Unavailable when that fails;
        the transaction may have arrived all the same, and the same bytes may be submitted again.
        """
        if self.following and (self.catching_up or self.latest is None):
            raise Unavailable("the ledger is catching up")
        submit = partial(self._keeper.submit, raw)
        result = await self.thread.check(submit, brief=self._is_transfer(raw))
        if result.code == REFUSED:
            return result
        if self._relay is not None:
            return await self._pass_on(raw, result, ttl)
        self.arrived.set()
        return result

    def _is_transfer(self, raw: bytes) -> bool:
        """Whether these bytes are a transfer, whose check takes next to no time."""
        profile = self.genesis.profile
        try:
            # Usually known already: whoever submits has it decoded first.
            envelope = decode_transaction(
                raw, profile.params.max_tx_bytes, profile.limits.transaction_depth
            )
        except Rejected:
            return False
        return envelope.body["kind"] == "transfer"

    async def _pass_on(self, raw: bytes, result: TransactionResult, ttl: int) -> TransactionResult:
        if ttl < 1:
            raise Unavailable("the transaction may not travel any further")
        # This also ends a ring of followers: a transaction that returns here is still in flight.
        if result.hash in self._on_its_way:
            raise Unavailable("the transaction is on its way")
        self._on_its_way.add(result.hash)
        try:
            accepted, reason = await self._relay_in_time(raw, str(result.kind), ttl)
        finally:
            self._on_its_way.discard(result.hash)
        if accepted:
            self.arrived.set()
            return result
        await self.thread.check(partial(self._keeper.drop, raw))
        return TransactionResult(REFUSED, reason, transaction_hash(raw))

    async def _relay_in_time(self, raw: bytes, kind: str, ttl: int) -> tuple[bool, str]:
        assert self._relay is not None  # noqa: S101 - the caller has looked
        with trio.move_on_after(RELAY_S):
            # One at a time, because the transactions of an account must arrive in order.
            async with self._relaying:
                return await self._relay(raw, kind, ttl)
        raise Unavailable("the block maker does not answer; ask for the same id before you pay")

    def is_waiting(self, name: str) -> bool:
        """Whether the transaction with this hash was accepted here and waits for its block."""
        return name in self._keeper.mempool

    async def transaction(self, name: str) -> tuple[int, TransactionResult] | None:
        """Height and result of a committed transaction, by its hash in hex."""
        try:
            wanted = bytes.fromhex(name)
        except ValueError:
            return None
        found = await self._read(lambda reader: find_transaction(reader, wanted))
        if found is not None:
            # A block is on the disk a moment before it is announced.
            await self.wait_beyond(found[0] - 1)
        return found

    async def wait_transaction(self, name: str) -> tuple[int, TransactionResult]:
        """Wait until a transaction is committed. The caller sets a deadline."""
        while True:
            height = self.height
            found = await self.transaction(name)
            if found is not None:
                return found
            await self.wait_beyond(height)

    # Blocks.

    async def block(self, height: int) -> StoredBlock | None:
        """The block of that height; None above the tip and below :attr:`earliest_height`."""
        latest = self.latest
        if latest is not None and latest.height == height:
            return latest
        if not self.earliest_height <= height <= self.height:
            return None
        return await self._read(lambda reader: reader.block(height))

    async def blocks(self, before: int | None, limit: int) -> list[StoredBlock]:
        """Blocks below ``before``, newest first, MAX_BLOCKS at most."""
        below = self.height + 1 if before is None else min(before, self.height + 1)
        count = max(0, min(limit, MAX_BLOCKS))
        return await self._read(lambda reader: reader.blocks(below, count))

    async def validators(self, height: int) -> tuple[CometValidator, ...]:
        """The set that signs ``height``, from 1 to one above the tip; empty for others."""
        stored = await self.block(min(height, self.height))
        if stored is None or not 1 <= height <= self.height + 1:
            return ()
        header = stored.header
        wanted = header.validators_hash if height == stored.height else header.next_validators_hash
        return await self._read(lambda reader: reader.validators(wanted))

    async def priorities(self, height: int) -> Mapping[str, int]:
        """Whose turn it is to propose, as CometBFT counts it, by consensus key.

        Known under CometBFT only; elsewhere empty.
        """
        return {}

    async def wait_beyond(self, height: int) -> int:
        """Wait until the chain is higher than ``height``; returns its height then."""
        while self.height <= height:
            await self._changed.wait()
        return self.height

    # State.

    async def query(self, path: str, options: Mapping[str, Json] | bytes = b"") -> QueryResult:
        """Answer a native query about the committed state (``domain.chain.queries``)."""
        data = options if isinstance(options, bytes) else encode(dict(options))
        if path in MODEL_QUERIES:
            return await self.thread.check(partial(self._keeper.query, path, data))
        result = await self._read(lambda reader: self._answer(reader, path, data))
        await self.wait_beyond(result.height - 1)
        return result

    def _answer(self, reader: LedgerReader, path: str, data: bytes) -> QueryResult:
        with reader.snapshot() as state:
            context = Context(self.genesis.profile, View(Committed(state)), self._model)
            root = state.fact("app_hash")
            return queries.answer(context, self.genesis.manifest, root, path, data)

    def readiness(self) -> Readiness:
        """Whether blocks still come, judged by the blocks' times and by this node's own clock."""
        if self.latest is None:
            return Readiness(False, "unavailable", self.catching_up, False, 0.0)
        by_wall = max(0.0, (self._clock_ns() - self.latest.time_ns) / SECOND_NS)
        seconds = max(by_wall, trio.current_time() - self._block_at)
        stalled = seconds > STALLED_S
        reason: Reason = "ok"
        if self.refusing:
            reason = "unavailable"
        elif self.catching_up:
            reason = "catching_up"
        elif stalled:
            reason = "stalled"
        return Readiness(reason == "ok", reason, self.catching_up, stalled, round(seconds, 1))

    # For the engines.

    def announce(self, stored: StoredBlock) -> None:
        """Note a committed block and wake all tasks that wait for one."""
        self.latest = stored
        self._block_at = trio.current_time()
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    def report(self, trouble: str, *, refusing: bool = False) -> None:
        """Note why no blocks come, or with "" that they do; logged once for each change."""
        self.refusing = refusing
        if trouble and trouble != self.trouble:
            log.warning("ledger: %s", trouble)
        elif self.trouble and not trouble:
            log.info("ledger: blocks are coming again")
        self.trouble = trouble

    @property
    def waiting(self) -> int:
        """Transactions that wait for a block."""
        return len(self._keeper.mempool)

    async def make_block(self) -> None:
        """Make the solo engine's next block.

        Raises StorageRefused, or InvalidCommit when this validator lacks two thirds of the power.
        """
        self.announce(await self.thread.block(lambda: self._keeper.make_block(self._clock_ns())))

    async def take_block(self, block: CometBlock, commit: Commit) -> None:
        """Take a block that was fetched. Raises Rejected with the reason when it is refused."""
        self.announce(await self.thread.block(partial(self._keeper.take_block, block, commit)))

    async def close(self) -> None:
        """Refuse new calls, let running ones finish, and close both connections."""
        await self.thread.close(self._keeper.close, self._reader.close)

    async def _read(self, call: Callable[[LedgerReader], T]) -> T:
        try:
            # Looked up in its turn, because a restored ledger has a new one.
            return await self.thread.read(lambda: call(self._reader))
        except (LedgerBroken, sqlite3.DatabaseError) as broken:
            log.exception("the ledger cannot be read")
            raise Unavailable("the ledger cannot be read") from broken


def find_transaction(reader: LedgerReader, wanted: bytes) -> tuple[int, TransactionResult] | None:
    """Height and result of a transaction by its hash.

    Raises LedgerBroken when the transaction is not at its recorded place.
    """
    place = reader.place(wanted)
    if place is None:
        return None
    height, position = place
    stored = reader.block(height)
    results = () if stored is None else stored.results[position : position + 1]
    if not results or results[0].hash != wanted.hex().upper():
        raise LedgerBroken(f"a transaction is not in the block {height}")
    return height, results[0]
