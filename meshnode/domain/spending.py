"""What a node knows of its accounts' money before the ledger does (document, 2.1 Balance; 4.1).

Terms: an account *owes* what it was charged for and has not yet paid on the chain. A *flight* is a
signed transaction whose outcome is unknown; it *lands* when it is in a block, or when it can never
be. Money is *held* for running generations, and for transactions about to be signed. An *order* is
an errand of the command line (decisions/0084).

Invariants: an account has at most one flight, so its nonces are used in turn; what is owed leaves
with the landing of the settlement that paid it, exactly once; the book is what its records say, in
their order, and a snapshot of it is a shorter list of records that says the same. Holds are not
recorded: what they are for does not outlive the process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TypeAlias


class Outcome(StrEnum):
    """How a flight landed."""

    COMMITTED = "committed"
    REFUSED = "refused"
    """A rule of the ledger refuses it; nothing has changed."""
    SUPERSEDED = "superseded"
    """Another transaction took its nonce: it can never be in a block."""


@dataclass(frozen=True, slots=True)
class Charge:
    """An account is to pay ``atoms``. ``reference`` names the generation, for whoever reads."""

    account: str
    atoms: int
    reference: str = ""


@dataclass(frozen=True, slots=True)
class Flight:
    """A signed transaction. ``raw`` is its text, ``hash`` that of these bytes, ``id`` of its body.

    ``spends`` atoms leave the balance when it lands, ``settles`` of them were owed.
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
class Landing:
    """The flight of an account ended."""

    account: str
    hash: str
    outcome: str


@dataclass(frozen=True, slots=True)
class OrderEnd:
    """An order is finished; empty ``outcome`` when nobody can ask for it again."""

    order: str
    outcome: str


Record: TypeAlias = Charge | Flight | Landing | OrderEnd

KINDS: dict[str, type[Record]] = {
    "charge": Charge,
    "flight": Flight,
    "landing": Landing,
    "order": OrderEnd,
}
_NAMES = {kind: name for name, kind in KINDS.items()}


def encode_record(record: Record) -> dict[str, object]:
    """A record as a JSON object."""
    return {"kind": _NAMES[type(record)], **asdict(record)}


def decode_record(value: dict[str, object]) -> Record:
    """The opposite; ValueError, TypeError or KeyError for anything else."""
    fields = dict(value)
    record = KINDS[str(fields.pop("kind"))](**fields)  # type: ignore[arg-type]  # checked below
    for name in record.__slots__:
        wanted = int if name in {"atoms", "nonce", "spends", "settles"} else str
        if type(getattr(record, name)) is not wanted:
            raise TypeError(name)
    return record


class Book:
    """All of it, for all accounts. Amounts are atoms, accounts public keys."""

    def __init__(self) -> None:
        """Begin with nothing owed."""
        self._owed: defaultdict[str, int] = defaultdict(int)
        self._flights: dict[str, Flight] = {}
        self._orders: dict[str, str] = {}
        self._held: defaultdict[str, int] = defaultdict(int)
        self._used: dict[str, int] = {}

    def apply(self, record: Record) -> None:
        """Take in a record. ValueError for one that cannot follow; nothing has changed then."""
        match record:
            case Charge():
                if record.atoms < 1:
                    raise ValueError("a charge is positive")
                self._owed[record.account] += record.atoms
            case Flight():
                if record.account in self._flights or record.settles > self.owed(record.account):
                    raise ValueError("a flight that cannot begin")
                self._flights[record.account] = record
            case Landing():
                self._land(record)
            case OrderEnd():
                if record.outcome:
                    self._orders[record.order] = record.outcome
                else:
                    self._orders.pop(record.order, None)

    def _land(self, landing: Landing) -> None:
        flight = self._flights.get(landing.account)
        if flight is None or flight.hash != landing.hash:
            raise ValueError("a landing without its flight")
        del self._flights[landing.account]
        if landing.outcome != Outcome.REFUSED:
            self._used[landing.account] = flight.nonce
        if landing.outcome == Outcome.COMMITTED:
            self._owed[landing.account] -= flight.settles
            if flight.order:
                self._orders[flight.order] = str(landing.outcome)

    def snapshot(self) -> Iterator[Record]:
        """Records that make an equal book."""
        # Flights last: one that settles needs what it settles to be owed.
        yield from (Charge(account, atoms) for account, atoms in self._owed.items() if atoms)
        yield from self._flights.values()
        yield from (OrderEnd(order, outcome) for order, outcome in self._orders.items())

    def owed(self, account: str) -> int:
        """Charged, and not yet paid on the chain."""
        return self._owed.get(account, 0)

    def debtors(self, least: int) -> list[str]:
        """Accounts that owe at least ``least``."""
        return [account for account, atoms in self._owed.items() if atoms >= least]

    def flight(self, account: str) -> Flight | None:
        """The account's transaction of unknown outcome."""
        return self._flights.get(account)

    def flights(self) -> list[Flight]:
        """All of them."""
        return list(self._flights.values())

    def order(self, order: str) -> str | None:
        """The outcome of a finished order."""
        return self._orders.get(order)

    def orders(self) -> list[str]:
        """Finished orders whose files may still be there."""
        return list(self._orders)

    def outdated(self, account: str, nonce: int) -> bool:
        """Whether a look at the ledger that saw ``nonce`` as next is older than a landing."""
        return nonce <= self._used.get(account, -1)

    def hold(self, account: str, atoms: int) -> None:
        """Set money aside."""
        self._held[account] += atoms

    def release(self, account: str, atoms: int) -> None:
        """Give back what :meth:`hold` took."""
        self._held[account] -= atoms
        if not self._held[account]:
            del self._held[account]

    def claimed(self, account: str) -> int:
        """Atoms of the account's balance on the chain that are not free to spend."""
        flight = self._flights.get(account)
        # A settlement spends what is owed, which counts by itself.
        spends = flight.spends - flight.settles if flight is not None else 0
        return self._held.get(account, 0) + self.owed(account) + spends
