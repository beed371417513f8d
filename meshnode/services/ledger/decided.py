"""A keeper whose blocks a consensus engine decides (decision 0176).

The engine has the blocks and their votes; the application has their outcome. ``decide`` executes a
block and writes nothing. ``commit`` writes the new state, the root, the height and the outcome in
one transaction of the database. The block itself is fetched from the engine afterwards, and
``complete`` stores it; until then the state is ahead of the blocks that are shown.

====================  =====================================  =====================================
killed                the ledger then has                    at the next start the engine
====================  =====================================  =====================================
before ``commit``     the block before                       asks to execute the block again
after ``commit``      the outcome, without the block         goes on; the block is fetched
after ``complete``    the whole block                        goes on
====================  =====================================  =====================================
"""

from __future__ import annotations

from collections import Counter, deque
from contextlib import suppress
from typing import TYPE_CHECKING

from meshnode.domain.chain.blocks import ACCEPTED, REFUSED, Block, BlockFrame, TransactionResult
from meshnode.domain.chain.envelope import transaction_hash
from meshnode.domain.chain.errors import (
    ForkedBlock,
    InvalidCommit,
    LedgerBroken,
    Rejected,
    TooManyOfSender,
)
from meshnode.services.ledger.keeper import Keeper
from meshnode.services.ledger.records import DecidedBlock, StoredBlock
from meshnode.services.ledger.restoring import put_in_place

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from meshnode.domain.chain.application import Finalized
    from meshnode.domain.chain.comet.commits import Commit
    from meshnode.domain.chain.comet.headers import CometBlock
    from meshnode.domain.chain.context import ModelPort


class DecidedKeeper(Keeper):
    """One chain, ordered by an engine. Not shared between threads."""

    def __init__(self, data_dir: Path, genesis: bytes, model: ModelPort) -> None:
        """As :class:`Keeper`, without a key: the engine signs."""
        self._decided: deque[DecidedBlock] = deque()
        self._data_dir, self._model = data_dir, model
        super().__init__(data_dir, genesis, model)
        self._finalized: tuple[bytes, Finalized] | None = None
        self._of_sender: Counter[str] = Counter()
        self.waiting: set[str] = set()
        """Hashes of the transactions that the engine keeps for a block."""

    def _outcomes_ahead(self) -> int:
        self._decided.extend(self._database.decided())
        heights = [one.height for one in self._decided]
        first = self._database.height + 1
        if heights != list(range(first, first + len(heights))):
            raise LedgerBroken("an outcome is missing")
        return len(heights)

    def _require_blocks_from_others(self, path: Path) -> None:
        """The engine has what the next block needs."""

    def adopt(self, staged: Path) -> None:
        """Go on with the ledger in ``staged``, which takes the place of the one here at once.

        Raises StartupError when it is not sound, and StorageRefused when the disk refuses.
        """
        self._database.close()
        try:
            put_in_place(staged, self._data_dir)
        finally:
            opened = self.opened
            self.opened = self._open_file(self._data_dir, opened.genesis_bytes, self._model)

    def tree_nodes(self) -> list[bytes]:
        """The nodes of the committed state's tree."""
        return self._app.tree_nodes()

    @property
    def state_height(self) -> int:
        """The height of the committed state, which may be above that of the last whole block."""
        return self._app.height

    @property
    def app_hash(self) -> bytes:
        """The root of the committed state."""
        return self._app.app_hash

    # Transactions.

    def verify(self, raw: bytes) -> None:
        """Verify a transaction's signature, which is kept if it is valid. Any thread may call."""
        with suppress(Rejected):
            self._envelope(raw)

    def check(self, raw: bytes, *, again: bool) -> TransactionResult:
        """Whether a transaction may wait; ``again`` for one that waits since before the last block.

        After each commit the engine checks all that wait again, so the counts begin anew there.
        """
        try:
            sender = self._envelope(raw).signer
            if not again and self._of_sender[sender] >= self.mempool.limits.per_sender:
                raise TooManyOfSender
        except Rejected as refusal:
            return TransactionResult(REFUSED, str(refusal), transaction_hash(raw))
        result = self._app.check(raw)
        if result.code == ACCEPTED:
            self._of_sender[sender] += 1
            self.waiting.add(result.hash)
        return result

    # Blocks.

    def propose(
        self, frame: BlockFrame, candidates: Sequence[bytes], max_bytes: int
    ) -> tuple[bytes, ...]:
        """The candidates for a block of this node. Raises Rejected if none can follow the state."""
        self._require_no_decided_block()
        return self._app.propose(frame, candidates, max_bytes)

    def process(self, block: Block) -> None:
        """Raises Rejected unless a proposed block is valid and all its transactions succeed."""
        self._require_no_decided_block()
        self._app.process(block)

    def _require_no_decided_block(self) -> None:
        # A proposal would take the place of the decided block.
        if self._finalized is not None:
            raise LedgerBroken("a proposal between a decided block and its commit")

    def decide(self, block: Block, block_hash: bytes) -> Finalized:
        """Execute a decided block; nothing is written before :meth:`commit`.

        Raises Rejected if the block cannot follow the state.
        """
        finalized = self._app.finalize(block)
        self._finalized = (block_hash, finalized)
        return finalized

    def commit(self) -> int:
        """Make the decided block's outcome the state, on the disk and here; returns its height.

        Raises StorageRefused when the disk refuses; the same call may be repeated.
        """
        if self._finalized is None:
            raise LedgerBroken("commit without a decided block")
        block_hash, finalized = self._finalized
        height = finalized.block.frame.height
        decided = DecidedBlock(height, block_hash, finalized.results, finalized.effects)
        sets = (self._app.validators(height), self._app.validators(height + 1))
        self._database.write_decided(decided, sets, finalized.changes, finalized.app_hash)
        self._app.commit()
        self._finalized = None
        self._decided.append(decided)
        self._of_sender.clear()
        self.waiting.clear()
        return height

    def complete(self, block: CometBlock, commit: Commit) -> StoredBlock:
        """Store the block of the oldest outcome. Raises Rejected if it is not that block."""
        if not self._decided:
            raise ForkedBlock
        decided = self._decided[0]
        if block.header.hash != decided.hash or len(block.transactions) != len(decided.results):
            raise ForkedBlock
        if commit.height != decided.height or commit.block_id != block.id:
            raise InvalidCommit
        stored = StoredBlock(block, commit, decided.results, decided.effects)
        self._database.write_whole(stored)
        self._decided.popleft()
        self._latest = stored
        return stored
