"""The keeper: state machine, mempool and database together, synchronous.

Everything here runs in the ledger's one thread (see ``thread``), one call at a time. A block is
finalized, written, and only then becomes the state in memory. When the disk refuses, the keeper
stays where it was, and the same block can be tried again.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from meshnode.domain.chain.application import Application
from meshnode.domain.chain.blocks import ACCEPTED, REFUSED, Block, BlockFrame, TransactionResult
from meshnode.domain.chain.bonds import Misbehaviour
from meshnode.domain.chain.canonical import Json
from meshnode.domain.chain.comet.assembly import (
    Signers,
    Tip,
    check_block,
    next_header,
    sign_alone,
)
from meshnode.domain.chain.comet.commits import BlockId, Commit
from meshnode.domain.chain.comet.headers import (
    NOTHING_HASH,
    CometBlock,
    Header,
    consensus_hash,
)
from meshnode.domain.chain.comet.times import parse_time
from meshnode.domain.chain.context import ModelPort
from meshnode.domain.chain.envelope import Envelope, decode_transaction, transaction_hash
from meshnode.domain.chain.errors import (
    InvalidCommit,
    LedgerBroken,
    Rejected,
)
from meshnode.domain.chain.genesis import Genesis, parse_genesis
from meshnode.domain.chain.mempool import Mempool, MempoolLimits
from meshnode.domain.chain.queries import QueryResult
from meshnode.domain.chain.records import Members, Validator
from meshnode.domain.chain.view import Committed, View
from meshnode.domain.errors import StartupError
from meshnode.services.ledger.database import LEDGER_FILE, LedgerDatabase, create_ledger, damaged
from meshnode.services.ledger.records import StoredBlock
from meshnode.services.ledger.signed import LastSigned
from meshnode.services.ledger.tables import Base
from meshnode.services.ledger.validator_key import ValidatorKey


class WouldLoseQuorum(Rejected):
    """This network has one block maker, and it would be outvoted."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The state of the ledger at the start: the chain's identity, and its last block."""

    genesis: Genesis
    genesis_bytes: bytes
    genesis_sha256: str
    latest: StoredBlock | None
    base: Base
    """Where the ledger begins."""


class Keeper:
    """One chain. Not shared between threads."""

    def __init__(
        self,
        data_dir: Path,
        genesis: bytes,
        model: ModelPort,
        key: ValidatorKey | None = None,
        limits: MempoolLimits | None = None,
    ) -> None:
        """Open the ledger in ``data_dir``, or make it. Raises StartupError if it cannot be trusted.

        ``key`` is the block maker's key, if this node makes the blocks.
        """
        self._key = key
        self._signed = LastSigned(data_dir) if key else None
        if not (data_dir / LEDGER_FILE).exists():
            create_ledger(data_dir, genesis)
        self.opened = self._open_file(data_dir, genesis, model)
        self._unnoted: StoredBlock | None = None
        """A block that is in the ledger, but not yet in the file of the last signed block."""
        self.mempool = Mempool(limits)

    def _open_file(self, data_dir: Path, genesis: bytes, model: ModelPort) -> Opened:
        self._database = LedgerDatabase(data_dir)
        try:
            opened = self._open(genesis, model)
            # A file that is refused stays unchanged, and so does its log.
            self._database.begin_writing()
        except StartupError:
            self._database.close()
            raise
        except (LedgerBroken, Rejected, sqlite3.DatabaseError):
            self._database.close()
            raise damaged(self._database.path) from None
        return opened

    def _open(self, genesis: bytes, model: ModelPort) -> Opened:
        database = self._database
        start = parse_genesis(database.fact("genesis"))
        if database.fact("genesis") != genesis:
            raise StartupError(f"{database.path} holds another chain, {start.chain_id}")
        self.genesis = start
        self._app = app = Application(start, database, model)
        self._latest = latest = database.block(database.height)
        base = database.base
        ahead = self._outcomes_ahead()
        # The tables must agree with the state, whose root was just computed from its entries.
        if app.app_hash != database.fact("app_hash") or app.height != database.height + ahead:
            raise LedgerBroken("the state is not that of the last block")
        if latest is None and base.height:
            self._require_blocks_from_others(database.path)
        if latest is not None:
            before = database.block(latest.height - 1)
            if not ahead and latest.time_ns != app.time_ns:
                raise LedgerBroken("the last block is not that of the state")
            if latest.header.chain_id != start.chain_id:
                raise LedgerBroken("the last block is not that of the chain")
            if (before is None) != (latest.height == base.height + 1) or (
                before is not None and latest.header.last_block_id != before.block_id
            ):
                raise LedgerBroken("the last block does not follow the one before")
        if self._signed is not None:
            self._signed.require(start.chain_id, database.height, database.block)
            if latest is not None:
                self._signed.note_at_start(start.chain_id, latest)
        pinned = database.fact("genesis_sha256").decode("ascii", "replace")
        return Opened(start, genesis, pinned, latest, base)

    def _outcomes_ahead(self) -> int:
        """How many outcomes follow the last block; a consensus engine still has those blocks."""
        return 0

    def _require_blocks_from_others(self, path: Path) -> None:
        # The next block cannot be made or checked without the one before, which is nowhere here.
        raise StartupError(
            f"{path} was made from a snapshot, and has no block yet: start once with "
            'chain.engine = "cometbft"'
        )

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    # Transactions.

    def submit(self, raw: bytes) -> TransactionResult:
        """Check a transaction and keep it for a block. One that waits already is accepted again."""
        name = transaction_hash(raw)
        if name in self.mempool:
            return self._known(raw)
        try:
            envelope = self._envelope(raw)
            self.mempool.require_room(raw, envelope.signer)
            if self._key is not None and self._stops_chain(envelope.body, self._key):
                raise WouldLoseQuorum
        except Rejected as refusal:
            return TransactionResult(REFUSED, str(refusal), name)
        result = self._app.check(raw)
        if result.code == ACCEPTED:
            self.mempool.add(raw, envelope.signer, self._app.height)
        return result

    def drop(self, raw: bytes) -> None:
        """Forget a transaction that the block maker refused."""
        self.mempool.remove([transaction_hash(raw)])
        self._app.restart_checks()
        self._check_again()

    def _known(self, raw: bytes) -> TransactionResult:
        envelope = self._envelope(raw)
        kind = str(envelope.body["kind"])
        return TransactionResult(
            ACCEPTED, "", transaction_hash(raw), envelope.id, kind, envelope.signer
        )

    # Blocks.

    def make_block(self, now_ns: int) -> StoredBlock:
        """Make, sign and commit the next block of the waiting transactions.

        ``now_ns`` is the vote's time. Raises InvalidCommit when the key has no more than two thirds
        of the power, and StorageRefused when the disk refuses a write. A block that was committed
        before the disk refused is returned by the next call.
        """
        if (key := self._key) is None or self._signed is None:
            raise InvalidCommit
        if (stored := self._unnoted) is None:
            stored = self._unnoted = self._make_next(now_ns, key)
        # The caller announces the block. Until then no signature has left this node, so a crash may
        # lose the block.
        self._signed.note(self.genesis.chain_id, stored)
        self._unnoted = None
        return stored

    def _make_next(self, now_ns: int, key: ValidatorKey) -> StoredBlock:
        tip, signers, last_commit = self._tip(), self._signers(), self._last_commit()
        empty = next_header(tip, signers, last_commit, (), key.address)
        frame = _frame(empty, last_commit)
        room = self.genesis.profile.limits.block_bytes
        chosen = self._app.propose(frame, self.mempool, room)
        header = next_header(tip, signers, last_commit, chosen, key.address)
        block = CometBlock(header, chosen, last_commit)
        commit = sign_alone(tip.chain_id, block, signers.own, now_ns, key.seed)
        return self._execute(block, commit, signers)

    def take_block(self, block: CometBlock, commit: Commit) -> StoredBlock:
        """Check another node's block and commit it. Raises Rejected with the reason."""
        signers = self._signers()
        check_block(self._tip(), signers, block, commit)
        return self._execute(block, commit, signers)

    def _execute(self, block: CometBlock, commit: Commit, signers: Signers) -> StoredBlock:
        offences = tuple(one.offence for one in block.evidence)
        frame = _frame(block.header, block.last_commit, offences)
        finalized = self._app.finalize(Block(frame, block.transactions))
        stored = StoredBlock(block, commit, finalized.results, finalized.effects)
        sets = (signers.own, signers.following)
        self._database.write_block(stored, sets, finalized.changes, finalized.app_hash)
        self._app.commit()
        self._latest = stored
        self.mempool.remove(transaction_hash(raw) for raw in block.transactions)
        self.mempool.remove_old(stored.height)
        self._check_again()
        return stored

    def _check_again(self) -> None:
        refused = [raw for raw in self.mempool if self._app.check(raw).code != ACCEPTED]
        self.mempool.remove(map(transaction_hash, refused))

    # The block before the next one.

    def _tip(self) -> Tip:
        limits, latest = self.genesis.profile.limits, self._latest
        return Tip(
            chain_id=self.genesis.chain_id,
            height=0 if latest is None else latest.height,
            time_ns=parse_time(self.genesis.genesis_time) if latest is None else latest.time_ns,
            block_id=BlockId() if latest is None else latest.block_id,
            app_hash=self._app.app_hash,
            results_hash=NOTHING_HASH if latest is None else latest.results_hash,
            consensus_hash=consensus_hash(limits.block_bytes, -1),
        )

    def _signers(self) -> Signers:
        # The set of the last block is found by its hash: members may have left the state since.
        height, latest = self._app.height, self._latest
        return Signers(
            () if latest is None else self._database.validators(latest.header.validators_hash),
            self._app.validators(height + 1),
            self._app.validators(height + 2),
        )

    def _last_commit(self) -> Commit:
        return Commit() if self._latest is None else self._latest.commit

    # Queries that need the model, and the engine's own policy.

    def query(self, path: str, data: bytes) -> QueryResult:
        """Answer from the committed state."""
        return self._app.query(path, data)

    def _stops_chain(self, body: dict[str, Json], key: ValidatorKey) -> bool:
        """Whether a chain that one key signs would be without two thirds (decision 0072)."""
        if body.get("kind") == "unbond":
            return body.get("consensus_key") == key.public_key
        if body.get("kind") != "bond":
            return False
        view = View(Committed(self._database))
        bonds = {name: view.get(Validator, name).amount for name in view.get(Members).keys}
        mine = bonds.pop(key.public_key, 0)
        waiting = [self._envelope(raw).body for raw in self.mempool]
        asked = [*(one for one in waiting if one["kind"] == "bond"), body]
        amounts = [one["amount"] for one in asked if type(one.get("amount")) is int]
        return 2 * (sum(bonds.values()) + sum(map(int, map(str, amounts)))) >= mine

    def _envelope(self, raw: bytes) -> Envelope:
        profile = self.genesis.profile
        depth = profile.limits.transaction_depth
        return decode_transaction(raw, profile.params.max_tx_bytes, depth)


def _frame(
    header: Header, last_commit: Commit, offences: tuple[Misbehaviour, ...] = ()
) -> BlockFrame:
    return BlockFrame(header.height, header.time_ns, last_commit.committers, offences)
