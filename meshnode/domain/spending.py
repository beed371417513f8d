"""Money that a node's accounts owe or have pending, not yet on the chain (interface 2.1, 4.1).

Terms: an account *owes* what it was charged for and has not yet paid on the chain. A transaction is
*pending* from its signature until it lands (:mod:`meshnode.domain.landing`). Money is *held* for
running generations, and for transactions about to be signed. An *order* is a transaction that the
command line asks the node for (decision 0084).

Invariants: an account has at most one pending transaction, so its nonces are used in turn; what is
owed is paid off when the settlement that pays it is committed, exactly once; the records, applied
in order, give the book, and a snapshot is a shorter list of records that gives the same amounts,
pending transactions and orders. Holds are not recorded, because their purposes do not outlive the
process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TypeAlias


class Outcome(StrEnum):
    """How a pending transaction landed."""

    COMMITTED = "committed"
    REFUSED = "refused"
    """A rule of the ledger refuses it; nothing has changed."""
    SUPERSEDED = "superseded"
    """Another transaction took its nonce: it can never be in a block."""
    UNSEEN = "unseen"
    """Its nonce was used in a block that is not here, by it or by another. It counts as paid."""


@dataclass(frozen=True, slots=True)
class Charge:
    """An amount that an account has to pay. ``reference`` names the generation."""

    account: str
    atoms: int
    reference: str = ""


@dataclass(frozen=True, slots=True)
class PendingTransaction:
    """A signed transaction: its text, the hash of the text's bytes, its application id.

    ``spends`` atoms leave the balance when it is committed; ``settles`` of them were owed.
    """

    account: str
    nonce: int
    raw: str
    hash: str
    id: str
    spends: int
    settles: int = 0
    order: str = ""


@dataclass(frozen=True, slots=True)
class TransactionOutcome:
    """The pending transaction of an account has landed."""

    account: str
    hash: str
    outcome: str


@dataclass(frozen=True, slots=True)
class OrderEnd:
    """An order is finished. An empty ``outcome`` removes an order whose file is gone."""

    order: str
    outcome: str


Record: TypeAlias = Charge | PendingTransaction | TransactionOutcome | OrderEnd

# "flight" and "landing" are names on the disk, where journals of earlier releases have them.
KINDS: dict[str, type[Record]] = {
    "charge": Charge,
    "flight": PendingTransaction,
    "landing": TransactionOutcome,
    "order": OrderEnd,
}
_NAMES = {kind: name for name, kind in KINDS.items()}


def encode_record(record: Record) -> dict[str, object]:
    """A record as a JSON object."""
    return {"kind": _NAMES[type(record)], **asdict(record)}


def decode_record(value: dict[str, object]) -> Record:
    """The record of a JSON object. Raises ValueError, TypeError or KeyError for anything else."""
    fields = dict(value)
    record = KINDS[str(fields.pop("kind"))](**fields)  # type: ignore[arg-type]  # checked below
    for name in record.__slots__:
        wanted = int if name in {"atoms", "nonce", "spends", "settles"} else str
        if type(getattr(record, name)) is not wanted:
            raise TypeError(name)
    return record


class AccountBook:
    """What accounts owe, hold and have pending. Amounts are atoms; public keys name accounts."""

    def __init__(self) -> None:
        """Begin with nothing owed."""
        self._owed: defaultdict[str, int] = defaultdict(int)
        self._pending: dict[str, PendingTransaction] = {}
        self._orders: dict[str, str] = {}
        self._held: defaultdict[str, int] = defaultdict(int)
        self._used: dict[str, int] = {}

    def apply(self, record: Record) -> None:
        """Apply a record. For one that cannot follow, raises ValueError and changes nothing."""
        match record:
            case Charge():
                if record.atoms < 1:
                    raise ValueError("a charge is positive")
                self._owed[record.account] += record.atoms
            case PendingTransaction():
                if record.account in self._pending or record.settles > self.owed(record.account):
                    raise ValueError("a transaction that cannot be pending")
                self._pending[record.account] = record
            case TransactionOutcome():
                self._apply_outcome(record)
            case OrderEnd():
                if record.outcome:
                    self._orders[record.order] = record.outcome
                else:
                    self._orders.pop(record.order, None)

    def _apply_outcome(self, outcome: TransactionOutcome) -> None:
        pending = self._pending.get(outcome.account)
        if pending is None or pending.hash != outcome.hash:
            raise ValueError("the outcome of a transaction that is not pending")
        del self._pending[outcome.account]
        if outcome.outcome != Outcome.REFUSED:
            self._used[outcome.account] = pending.nonce
        # What may have been paid is not paid again, and not charged again.
        if outcome.outcome in (Outcome.COMMITTED, Outcome.UNSEEN):
            self._owed[outcome.account] -= pending.settles
            if pending.order:
                self._orders[pending.order] = str(outcome.outcome)

    def snapshot(self) -> Iterator[Record]:
        """Records that make an equal book, except for what :meth:`outdated` knows and for holds."""
        # Charges come first: a settlement can be pending only when its amount is owed.
        yield from (Charge(account, atoms) for account, atoms in self._owed.items() if atoms)
        yield from self._pending.values()
        yield from (OrderEnd(order, outcome) for order, outcome in self._orders.items())

    def owed(self, account: str) -> int:
        """Atoms charged to the account and not yet paid on the chain."""
        return self._owed.get(account, 0)

    def debtors(self, least: int) -> list[str]:
        """Accounts that owe at least ``least``."""
        return [account for account, atoms in self._owed.items() if atoms >= least]

    def pending(self, account: str) -> PendingTransaction | None:
        """The account's transaction whose outcome is unknown."""
        return self._pending.get(account)

    def all_pending(self) -> list[PendingTransaction]:
        """The pending transactions of all accounts."""
        return list(self._pending.values())

    def order(self, order: str) -> str | None:
        """The outcome of a finished order."""
        return self._orders.get(order)

    def orders(self) -> list[str]:
        """Finished orders whose files may still be there."""
        return list(self._orders)

    def outdated(self, account: str, nonce: int) -> bool:
        """Whether an answer of the ledger with ``nonce`` as the next is older than an outcome."""
        return nonce <= self._used.get(account, -1)

    def hold(self, account: str, atoms: int) -> None:
        """Set money aside, so that :meth:`claimed` counts it until :meth:`release`."""
        self._held[account] += atoms

    def release(self, account: str, atoms: int) -> None:
        """Release money that :meth:`hold` set aside."""
        self._held[account] -= atoms
        if not self._held[account]:
            del self._held[account]

    def claimed(self, account: str) -> int:
        """Atoms of the account's balance on the chain that are not free to spend."""
        pending = self._pending.get(account)
        # A settlement spends what is owed, and that is counted separately.
        spends = pending.spends - pending.settles if pending is not None else 0
        return self._held.get(account, 0) + self.owed(account) + spends
