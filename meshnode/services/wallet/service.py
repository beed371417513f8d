"""The node API's wallet: an account for each bearer token (interface 2.1 and 4.1; decision 0084).

Terms: a token's *account* is the public key of its key file in the keystore; the operator's token
uses the node's own account. *Available* is what the ledger lets the account spend less what is
claimed (:mod:`meshnode.domain.spending`); *pending* is money that is claimed, locked by native
requests, or cooling down. Amounts are atoms.

Invariants: available, staked and pending add up to the account's total in the ledger; a lack of
money is reported before anything is signed; a signed transaction is carried out even when the
client disconnects.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Protocol

import trio

from meshnode.domain.amounts import units
from meshnode.domain.errors import (
    FundsLocked,
    InsufficientBalance,
    InvalidRequest,
    StartupError,
    Unavailable,
)
from meshnode.domain.metering import ChargeMeter
from meshnode.domain.spending import Charge
from meshnode.domain.units import SECOND_NS
from meshnode.services.ledger.asking import ChainLedger
from meshnode.services.signer.accounts import AccountState
from meshnode.services.signer.journal import Journal, JournalEntry
from meshnode.services.signer.signer import Signer
from meshnode.services.signer.submission import Plan, Submission, TransactionRequest
from meshnode.services.tokens import OPERATOR

if TYPE_CHECKING:
    from meshnode.domain.tokens import TokenRecord
    from meshnode.services.index.entries import HistoryEntry
    from meshnode.services.keystore import Keystore

log = logging.getLogger(__name__)

INDEXED_WITHIN_S = 2.0
"""Time limit for the index to reach the ledger's height; it takes milliseconds, unless the index
has fallen behind."""


class HistoryIndex(Protocol):
    """The part of the explorer index that the wallet uses."""

    async def account_history(
        self, public_key: str, limit: int, offset: int
    ) -> tuple[list[HistoryEntry], int]:
        """A page of entries, newest first, and the total number of entries."""

    async def wait_indexed(self, height: int) -> None:
        """Wait until the entries of the block at this height are in the index."""


@dataclass(frozen=True, slots=True)
class Balance:
    """An account's money at one height."""

    account: str
    available: int
    pending: int
    state: AccountState
    """The account's state in the ledger."""

    @property
    def total(self) -> int:
        """All the money that the account has in the ledger."""
        return self.available + self.pending + self.state.staked


class Reservation:
    """Money set aside for a running generation until :meth:`charge` is called."""

    def __init__(
        self, journal: Journal, account: str, atoms: int, meter: ChargeMeter, *, free: bool
    ) -> None:
        self._meter = meter
        self._journal = journal
        self._account = account
        self._atoms = atoms
        self._free = free
        self._entry: JournalEntry | None = None
        self._ended = False
        if not free:
            journal.accounts.hold(account, atoms)

    def charge(self, atoms: int, reference: str) -> bool:
        """Charge ``atoms`` of it and release the rest, without waiting. A second call does nothing.

        Returns whether anything was charged.
        """
        if self._ended or self._free:
            return False
        self._ended = True
        accounts = self._journal.accounts
        atoms = min(atoms, self._atoms)
        if atoms < 1:
            accounts.release(self._account, self._atoms)
            return False
        # The rest is released at once; the charged amount is held until the journal records it as
        # owed.
        accounts.release(self._account, self._atoms - atoms)
        self._meter.add(atoms)
        charge = Charge(self._account, atoms, reference)
        self._entry = self._journal.post(charge, partial(accounts.release, self._account, atoms))
        return True

    async def wait_charged(self) -> None:
        """Wait until the charge is durable. Raises Unavailable if it cannot be made."""
        if self._entry is not None:
            await self._entry.wait()


class Wallet:
    """Handle of the service."""

    def __init__(
        self, ledger: ChainLedger, index: HistoryIndex, keys: Keystore, signer: Signer
    ) -> None:
        self._ledger = ledger
        self._index = index
        self._keys = keys
        self._signer = signer
        self._journal = signer.journal
        self.meter = ChargeMeter()

    @property
    def fee(self) -> int:
        """The fee of a transaction, in atoms."""
        return self._ledger.genesis.profile.params.fee

    @property
    def cooldown_days(self) -> int:
        """Days for which unstaked money cools down."""
        return self._ledger.genesis.profile.staking.cooldown_days

    def account(self, record: TokenRecord) -> str:
        """The public key of a token's account."""
        if record.id == OPERATOR:
            return self._keys.node_key.public_key
        try:
            return self._keys.account(record.id).public_key
        except StartupError as error:
            log.error("no account for the token %s: %s", record.name, error)
            raise Unavailable("the account's key cannot be read") from None

    async def balance(self, record: TokenRecord) -> Balance:
        """The account's money. Raises Unavailable while the ledger is behind its chain."""
        self._signer.require_ready()
        account = self.account(record)
        state = await self._signer.read_account(account)
        # Claims can exceed what is available only when another program uses the key too.
        claimed = min(self._journal.accounts.claimed(account), state.available)
        return Balance(
            account=account,
            available=state.available - claimed,
            pending=claimed + state.locked + state.cooling,
            state=state,
        )

    async def transactions(
        self, record: TokenRecord, limit: int, offset: int
    ) -> tuple[list[HistoryEntry], int]:
        """A page of the account's history, newest first, and the total number of entries."""
        self._signer.require_ready()
        # A client whose transfer was just confirmed expects to find it here.
        with trio.move_on_after(INDEXED_WITHIN_S):
            await self._index.wait_indexed(self._ledger.height)
        return await self._index.account_history(self.account(record), limit, offset)

    def send(self, record: TokenRecord, to: str, atoms: int) -> Submission:
        """Begin to pay ``atoms`` to the account ``to``. Raises RateLimited when the queue is full.

        The submission's ``wait`` raises InsufficientBalance before anything is signed. A signed
        transaction is carried out, whether or not anybody waits for it.
        """
        account = self.account(record)
        return self.begin(account, partial(self._transfer, account, to, atoms))

    def stake(self, record: TokenRecord, atoms: int, days: int) -> Submission:
        """Begin to stake ``atoms`` for ``days``, in the same way as :meth:`send`."""
        account = self.account(record)
        return self.begin(account, partial(self._stake, account, atoms, days))

    def unstake(self, record: TokenRecord, atoms: int) -> Submission:
        """Begin a cooldown, like :meth:`send`; ``wait`` raises FundsLocked if it is too early."""
        account = self.account(record)
        return self.begin(account, partial(self._unstake, account, atoms))

    async def reserve(self, record: TokenRecord, atoms: int) -> Reservation:
        """Set money aside for a generation. Raises InsufficientBalance and Unavailable.

        The operator's account would pay itself, so nothing is set aside and nothing is charged.
        """
        free = record.id == OPERATOR or atoms == 0
        account = "" if free else self.account(record)
        if not free:
            if self._journal.broken:
                raise Unavailable("the wallet's journal cannot be written")
            self._signer.require_ready()
            state = await self._signer.read_account(account)
            self._require(account, state, atoms)
        return Reservation(self._journal, account, atoms, self.meter, free=free)

    def _transfer(
        self, account: str, to: str, atoms: int, state: AccountState
    ) -> TransactionRequest:
        self._require(account, state, atoms + self.fee)
        return TransactionRequest("transfer", {"to": to, "amount": atoms}, spends=atoms + self.fee)

    def _stake(
        self, account: str, atoms: int, days: int, state: AccountState
    ) -> TransactionRequest:
        terms = self._ledger.genesis.profile.staking
        if not terms.shortest_days <= days <= terms.longest_days:
            reason = f"must be from {terms.shortest_days} to {terms.longest_days}"
            raise InvalidRequest("duration_days", reason)
        if state.staked + atoms < terms.minimum:
            reason = f"must make a stake of {units(terms.minimum):g} or more"
            raise InvalidRequest("amount", reason)
        self._require(account, state, atoms + self.fee)
        return TransactionRequest(
            "stake", {"amount": atoms, "duration_days": days}, spends=atoms + self.fee
        )

    def _unstake(self, account: str, atoms: int, state: AccountState) -> TransactionRequest:
        terms, now_ns = self._ledger.genesis.profile.staking, state.time_ns
        if atoms > state.staked:
            raise InsufficientBalance(units(atoms), units(state.staked))
        if now_ns < state.unlock_ns:
            raise FundsLocked(date_of(state.unlock_ns))
        if 0 < state.staked - atoms < terms.minimum:
            reason = f"must leave nothing, or a stake of {units(terms.minimum):g} or more"
            raise InvalidRequest("amount", reason)
        self._require(account, state, self.fee)
        return TransactionRequest("unstake", {"amount": atoms}, spends=self.fee)

    def _require(self, account: str, state: AccountState, atoms: int) -> None:
        available = max(0, state.available - self._journal.accounts.claimed(account))
        if available < atoms:
            raise InsufficientBalance(units(atoms), units(available))

    def begin(self, account: str, plan: Plan, order: str = "") -> Submission:
        """Submit a plan for an account. Raises RateLimited when the queue is full."""
        return self._signer.submit(Submission(account, plan, order, refused_as=_refused))


def _refused(reason: str) -> InvalidRequest:
    return InvalidRequest("request", f"the ledger refused it: {reason}")


def date_of(time_ns: int) -> str:
    """The UTC date of a block's time."""
    return datetime.fromtimestamp(time_ns // SECOND_NS, UTC).strftime("%Y-%m-%d")
