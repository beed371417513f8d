"""The steps of executing one block, and their order (native network 5, "Order").

The order is verifier pay, evidence, membership, lease expiry, job expiry, proof expiry, and then
the transactions. Whatever is due has expired before the first transaction runs, so that no
transaction races with an expiry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from meshnode.domain.chain.bonds import Misbehaviour, apply_due, punish, require_power
from meshnode.domain.chain.context import Context, Transaction
from meshnode.domain.chain.envelope import ApplicationId, TransactionHash, transaction_hash
from meshnode.domain.chain.errors import LedgerBroken, Rejected, TooManyTransactions, WrongHeight
from meshnode.domain.chain.jobs import expire_jobs
from meshnode.domain.chain.proofs import expire_proofs
from meshnode.domain.chain.records import Clock
from meshnode.domain.chain.rewards import pay_verifiers
from meshnode.domain.chain.tasks import expire_lease
from meshnode.domain.chain.transactions import apply_transaction
from meshnode.domain.chain.view import Effect

ACCEPTED, REFUSED = 0, 1


@dataclass(frozen=True, slots=True)
class BlockFrame:
    """A block without its transactions, as the consensus engine gives it.

    ``committers`` are the validator addresses whose precommits are in the last commit.
    """

    height: int
    time_ns: int
    committers: frozenset[str] = frozenset()
    misbehaviour: tuple[Misbehaviour, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """A decided or proposed block."""

    frame: BlockFrame
    transactions: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """The result of one transaction. ``id``, ``kind`` and ``sender`` are None if it was refused."""

    code: int
    log: str
    hash: TransactionHash
    id: ApplicationId | None = None
    kind: str | None = None
    sender: str | None = None
    effects: tuple[Effect, ...] = ()


@dataclass(frozen=True, slots=True)
class ValidatorUpdate:
    """A change of voting power, effective two blocks later. Power 0 removes the validator."""

    consensus_key: str
    power: int


def begin_block(context: Context, frame: BlockFrame) -> tuple[ValidatorUpdate, ...]:
    """Run all steps before the transactions. InvalidBlock if the frame cannot follow the state."""
    view, clock = context.view, context.view.get(Clock)
    if frame.height != clock.height + 1 or frame.time_ns < clock.time_ns:
        raise WrongHeight
    view.put(replace(clock, height=frame.height, time_ns=frame.time_ns))
    pay_verifiers(context, frame.committers)
    updates = punish(context, frame.misbehaviour) | apply_due(context)
    if updates:
        require_power(context)
    expire_on_time(context)
    return tuple(ValidatorUpdate(key, power) for key, power in sorted(updates.items()))


def expire_on_time(context: Context) -> None:
    """Expire the lease, the jobs and the proofs that are due at this height."""
    expire_lease(context)
    expire_jobs(context)
    expire_proofs(context)


def check_size(context: Context, transactions: Sequence[bytes]) -> None:
    """Raise TooManyTransactions if a block exceeds its limits on transactions or bytes."""
    limits = context.profile.limits
    size = sum(map(len, transactions))
    if len(transactions) > limits.block_transactions or size > limits.block_bytes:
        raise TooManyTransactions


def run_transaction(context: Context, raw: bytes) -> TransactionResult:
    """Apply a transaction and return its result; code REFUSED means that nothing has changed."""
    noted = len(context.view.effects)
    try:
        transaction = apply_transaction(context, raw)
    except Rejected as refusal:
        return TransactionResult(REFUSED, str(refusal), transaction_hash(raw))
    return _accepted(transaction, raw, context.view.effects[noted:])


def audit(context: Context) -> None:
    """Raise LedgerBroken if money was created or lost other than by issuing and burning."""
    if context.view.imbalance() != 0:
        raise LedgerBroken("a block does not conserve money")


def _accepted(
    transaction: Transaction, raw: bytes, effects: tuple[Effect, ...]
) -> TransactionResult:
    return TransactionResult(
        code=ACCEPTED,
        log="",
        hash=transaction_hash(raw),
        id=transaction.id,
        kind=transaction.kind,
        sender=transaction.sender,
        effects=effects,
    )
