"""The ledger as an engine sees it: the calls of ABCI 2.0.

A consensus engine orders bytes; the application gives them a meaning, which is the same under every
engine. ``check`` validates a waiting transaction, ``propose`` picks transactions for a block,
``process`` validates a proposed block, ``finalize`` executes a decided one and ``commit`` makes its
result the state. The application is synchronous and has one owner, which calls one method at a
time; a call that regenerates an answer may take as long as the model does.

Between ``finalize`` and ``commit`` the state is unchanged: the owner first writes ``changes`` and
the block to disk, in one transaction. If it is interrupted, finalizing the same block again gives
the same :class:`Finalized`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from meshnode.domain.chain import queries
from meshnode.domain.chain.blocks import (
    ACCEPTED,
    Block,
    BlockFrame,
    TransactionResult,
    ValidatorUpdate,
    audit,
    begin_block,
    check_size,
    expire_on_time,
    run_transaction,
)
from meshnode.domain.chain.bonds import voting_powers
from meshnode.domain.chain.canonical import Json
from meshnode.domain.chain.comet.validators import CometValidator, validator_set
from meshnode.domain.chain.context import Context, ModelPort, TrainingReplay
from meshnode.domain.chain.errors import InvalidTransaction, LedgerBroken
from meshnode.domain.chain.genesis import Genesis, initial_state
from meshnode.domain.chain.records import Chain, Clock, Job, Lease
from meshnode.domain.chain.statetree import StateTree, Store
from meshnode.domain.chain.view import Committed, Effect, View

REMEMBERED = 64
"""Replays kept by id: enough for all pending jobs and the lease while a block is executed."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Finalized:
    """The outcome of executing a block. ``effects`` precede its transactions."""

    block: Block
    results: tuple[TransactionResult, ...]
    validator_updates: tuple[ValidatorUpdate, ...]
    effects: tuple[Effect, ...]
    app_hash: bytes
    changes: Mapping[str, bytes | None]
    nodes: Mapping[int, bytes]


@dataclass(slots=True)
class Candidate:
    """A block that was executed over the committed state, and its outcome once that was asked."""

    block: Block
    context: Context
    results: tuple[TransactionResult, ...]
    updates: tuple[ValidatorUpdate, ...]
    effects: tuple[Effect, ...]
    finalized: Finalized | None = None


class Application:
    """A chain's state machine over a store. Raises LedgerBroken for another chain's store."""

    def __init__(self, genesis: Genesis, store: Store, model: ModelPort) -> None:
        self.genesis = genesis
        self._manifest = genesis.manifest
        self._store = store
        self._model = RememberedModel(model)
        self._tree = StateTree()
        first = initial_state(genesis)
        if store.get(Clock.table) is None:
            store.write(first)
        # This record includes the manifest's hash: a network with other values is another chain.
        if store.get(Chain.table) != first[Chain.table]:
            raise LedgerBroken("the stored state belongs to another chain")
        self._tree.rebuild(store)
        self._committed = Committed(store)
        self._candidate: Candidate | None = None
        self._start_checks()

    @property
    def height(self) -> int:
        """Height of the last committed block; 0 before the first."""
        return self._read_only().view.get(Clock).height

    @property
    def time_ns(self) -> int:
        """Time of the last committed block in nanoseconds since 1970; 0 before the first."""
        return self._read_only().view.get(Clock).time_ns

    @property
    def app_hash(self) -> bytes:
        """The root of the committed state: 32 bytes."""
        return self._tree.root

    def tree_nodes(self) -> list[bytes]:
        """The hashes of the committed state's tree (:class:`StateTree`)."""
        return self._tree.copy_nodes()

    def validators(self, height: int) -> tuple[CometValidator, ...]:
        """The validators that sign ``height``, in order; known up to two blocks ahead."""
        return validator_set(voting_powers(self._read_only().view, height))

    def check(self, raw: bytes) -> TransactionResult:
        """Whether the next block would accept this transaction after those checked before it.

        The result is preliminary: the transaction may still fail in a block. After each ``commit``
        the checks restart from the committed state, and the engine rechecks what is still waiting.
        """
        return run_transaction(self._waiting, raw)

    def restart_checks(self) -> None:
        """Forget the transactions checked since the last block, as ``commit`` does."""
        self._start_checks()

    def propose(
        self, frame: BlockFrame, candidates: Iterable[bytes], max_bytes: int
    ) -> tuple[bytes, ...]:
        """Pick, in order, the ``candidates`` that succeed one after another and fit the block.

        What was executed for that is kept, for the case that the block is decided as proposed.
        """
        context = self._next_block()
        updates = begin_block(context, frame)
        effects = context.view.effects
        limits = self.genesis.profile.limits
        room, chosen = min(max_bytes, limits.block_bytes), dict[bytes, TransactionResult]()
        for raw in candidates:
            if len(chosen) == limits.block_transactions:
                break
            if len(raw) > room:
                continue
            # A refused transaction changes nothing, so the block is as if it had not been tried.
            result = run_transaction(context, raw)
            if result.code == ACCEPTED:
                chosen[raw] = result
                room -= len(raw)
        block = Block(frame, tuple(chosen))
        self._candidate = Candidate(block, context, tuple(chosen.values()), updates, effects)
        return block.transactions

    def process(self, block: Block) -> None:
        """Validate a proposed block. Raises InvalidBlock unless all its transactions succeed."""
        finalized = self.finalize(block)
        if any(result.code != ACCEPTED for result in finalized.results):
            raise InvalidTransaction

    def finalize(self, block: Block) -> Finalized:
        """Execute a decided block; a transaction that fails has a result but changes nothing.

        Raises InvalidBlock if the block cannot follow the committed state, and LedgerBroken if it
        would create or lose money; in both cases nothing has changed.
        """
        if self._candidate is None or self._candidate.block != block:
            self._candidate = self._execute(block)
        candidate = self._candidate
        if candidate.finalized is None:
            candidate.finalized = self._finish(candidate)
        return candidate.finalized

    def _execute(self, block: Block) -> Candidate:
        context = self._next_block()
        check_size(context, block.transactions)
        updates = begin_block(context, block.frame)
        effects = context.view.effects
        results = tuple(run_transaction(context, raw) for raw in block.transactions)
        return Candidate(block, context, results, updates, effects)

    def _finish(self, candidate: Candidate) -> Finalized:
        audit(candidate.context)
        changes = candidate.context.view.changes()
        nodes = self._tree.fresh(self._store, changes)
        app_hash = self._tree.root_with(nodes)
        outcome = candidate.results, candidate.updates, candidate.effects
        return Finalized(candidate.block, *outcome, app_hash, changes, nodes)

    def commit(self) -> None:
        """Make the result of the last finalized block the committed state."""
        candidate = self._candidate
        if candidate is None or candidate.finalized is None:
            raise LedgerBroken("commit without a finalized block")
        self._store.write(candidate.finalized.changes)
        self._tree.adopt(candidate.finalized.nodes)
        self._committed.adopt(candidate.context.view)
        self._candidate = None
        self._start_checks()

    def query(self, path: str, data: bytes = b"") -> queries.QueryResult:
        """Answer a native query about the committed state; ``data`` is JSON."""
        return queries.answer(self._read_only(), self._manifest, self.app_hash, path, data)

    def _read_only(self) -> Context:
        # A separate cache of records, so that queries do not fill the one for the next block.
        return Context(self.genesis.profile, View(Committed(self._store)), self._model)

    def _next_block(self) -> Context:
        return Context(self.genesis.profile, View(self._committed), self._model)

    def _start_checks(self) -> None:
        self._waiting = self._next_block()
        clock = self._waiting.view.get(Clock)
        self._waiting.view.put(replace(clock, height=clock.height + 1))
        expire_on_time(self._waiting)


class RememberedModel:
    """A cache in front of the model, so that each job and task is computed once."""

    def __init__(self, model: ModelPort) -> None:
        self._model = model
        self._answers: OrderedDict[str, dict[str, Json]] = OrderedDict()
        self._replays: OrderedDict[str, TrainingReplay] = OrderedDict()

    def check_request(self, prompt: str, max_tokens: int) -> None:
        """See :class:`ModelPort`."""
        self._model.check_request(prompt, max_tokens)

    def answer(self, job_id: str, job: Job) -> dict[str, Json]:
        """See :class:`ModelPort`."""
        if job_id not in self._answers:
            _keep(self._answers, job_id, self._model.answer(job_id, job))
        return self._answers[job_id]

    def train(self, lease: Lease) -> TrainingReplay:
        """See :class:`ModelPort`."""
        if lease.task_id not in self._replays:
            _keep(self._replays, lease.task_id, self._model.train(lease))
        return self._replays[lease.task_id]

    def describe_task(self, round_number: int, model_root: str) -> dict[str, Json]:
        """See :class:`ModelPort`."""
        return self._model.describe_task(round_number, model_root)


def _keep(known: OrderedDict[str, T], name: str, value: T) -> None:
    known[name] = value
    while len(known) > REMEMBERED:
        known.popitem(last=False)
