"""The node API's wallet: an account for each bearer token (document, 2.1 and 4.1; decisions/0084).

Terms: a token's *account* is the public key whose key file the keystore has for it; the operator's
token has the node's own. *Available* is what the ledger lets the account spend less what is claimed
(:mod:`meshnode.domain.spending`); *pending* is what is on its way: claimed, locked by native
requests, or cooling down. Amounts are atoms.

Invariants: available, staked and pending add up to what the ledger says the account has; a refusal
for want of money comes before anything is signed; work goes on when whoever asked for it goes away.
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
    RateLimited,
    StartupError,
    Unavailable,
)
from meshnode.domain.spending import Charge
from meshnode.services.tokens import OPERATOR
from meshnode.services.wallet.journal import Entry, Journal
from meshnode.services.wallet.sending import Draft, Facts, Ledger, Sender, Work

if TYPE_CHECKING:
    from meshnode.domain.tokens import TokenRecord
    from meshnode.services.index.entries import HistoryEntry
    from meshnode.services.keystore import Keystore

log = logging.getLogger(__name__)

MOST_WORK = 256
"""Transactions asked for and not yet in a block: a few full blocks of them, and little memory."""
INDEXED_WITHIN_S = 2.0
"""For the index to reach the ledger's height: milliseconds, unless it has fallen behind."""
SECOND_NS = 1_000_000_000


class Index(Protocol):
    """What is asked of the explorer index."""

    async def account_history(
        self, public_key: str, limit: int, offset: int
    ) -> tuple[list[HistoryEntry], int]:
        """Entries, newest first, and how many there are in all."""

    async def wait_indexed(self, height: int) -> None:
        """Wait until that block's entries are there."""


@dataclass(frozen=True, slots=True)
class Balance:
    """An account's money at one height."""

    account: str
    available: int
    pending: int
    facts: Facts

    @property
    def total(self) -> int:
        """Everything that the ledger counts as the account's."""
        return self.available + self.pending + self.facts.staked


class Reservation:
    """Money set aside for work that is being done. Ends by :meth:`charge`, once."""

    def __init__(self, journal: Journal, account: str, atoms: int, *, free: bool) -> None:
        self._journal = journal
        self._account = account
        self._atoms = atoms
        self._free = free
        self._entry: Entry | None = None
        self._ended = False
        if not free:
            journal.book.hold(account, atoms)

    def charge(self, atoms: int, reference: str) -> None:
        """Turn ``atoms`` of it into a charge and release the rest, without waiting. Once only."""
        if self._ended or self._free:
            return
        self._ended = True
        book = self._journal.book
        atoms = min(atoms, self._atoms)
        if atoms < 1:
            book.release(self._account, self._atoms)
            return
        # The rest is free at once; what is charged stays held until it is owed.
        book.release(self._account, self._atoms - atoms)
        charge = Charge(self._account, atoms, reference)
        self._entry = self._journal.post(charge, partial(book.release, self._account, atoms))

    async def wait_charged(self) -> None:
        """Wait until the charge is durable; Unavailable when it cannot be, and then it is none."""
        if self._entry is not None:
            await self._entry.wait()


class Wallet:
    """Handle of the service."""

    def __init__(
        self, ledger: Ledger, index: Index, keys: Keystore, journal: Journal, sender: Sender
    ) -> None:
        self._ledger = ledger
        self._index = index
        self._keys = keys
        self._journal = journal
        self._sender = sender
        self._works, self._waiting = trio.open_memory_channel[Work](MOST_WORK)
        self._open = 0

    @property
    def fee(self) -> int:
        """What a transaction costs."""
        return self._ledger.genesis.profile.params.fee

    @property
    def cooldown_days(self) -> int:
        """How long unstaked money cools down."""
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
        """What the account has. Unavailable while the ledger is behind its chain."""
        self._sender.require_ready()
        account = self.account(record)
        facts = await self._sender.look(account)
        # What is claimed can be more than what is there only if the key is used elsewhere too.
        claimed = min(self._journal.book.claimed(account), facts.available)
        return Balance(
            account=account,
            available=facts.available - claimed,
            pending=claimed + facts.locked + facts.cooling,
            facts=facts,
        )

    async def transactions(
        self, record: TokenRecord, limit: int, offset: int
    ) -> tuple[list[HistoryEntry], int]:
        """A page of the account's history, newest first, and how long all of it is."""
        self._sender.require_ready()
        # Who was just told of a transfer expects to find it here.
        with trio.move_on_after(INDEXED_WITHIN_S):
            await self._index.wait_indexed(self._ledger.height)
        return await self._index.account_history(self.account(record), limit, offset)

    def send(self, record: TokenRecord, to: str, atoms: int) -> Work:
        """Begin to pay ``atoms`` to the account ``to``. RateLimited when there is a lot to do.

        Its ``wait`` raises InsufficientBalance before anything is signed. What is signed is carried
        out, whether or not anybody waits for it.
        """
        account = self.account(record)
        return self.begin(Work(account, partial(self._transfer, account, to, atoms)))

    def stake(self, record: TokenRecord, atoms: int, days: int) -> Work:
        """Begin to stake for a number of days, as :meth:`send`."""
        account = self.account(record)
        return self.begin(Work(account, partial(self._stake, account, atoms, days)))

    def unstake(self, record: TokenRecord, atoms: int) -> Work:
        """Begin the cooldown of staked money, as :meth:`send`. FundsLocked before its date."""
        account = self.account(record)
        return self.begin(Work(account, partial(self._unstake, account, atoms)))

    async def reserve(self, record: TokenRecord, atoms: int) -> Reservation:
        """Set money aside for work; InsufficientBalance when it is not there.

        The operator's account would pay itself: nothing is set aside and nothing is charged.
        """
        free = record.id == OPERATOR or atoms == 0
        account = "" if free else self.account(record)
        if not free:
            if self._journal.broken:
                raise Unavailable("the wallet's journal cannot be written")
            self._sender.require_ready()
            facts = await self._sender.look(account)
            self._require(account, facts, atoms)
        return Reservation(self._journal, account, atoms, free=free)

    def _transfer(self, account: str, to: str, atoms: int, facts: Facts) -> Draft:
        self._require(account, facts, atoms + self.fee)
        return Draft("transfer", {"to": to, "amount": atoms}, spends=atoms + self.fee)

    def _stake(self, account: str, atoms: int, days: int, facts: Facts) -> Draft:
        terms = self._ledger.genesis.profile.staking
        if not terms.shortest_days <= days <= terms.longest_days:
            reason = f"must be from {terms.shortest_days} to {terms.longest_days}"
            raise InvalidRequest("duration_days", reason)
        if facts.staked + atoms < terms.minimum:
            reason = f"must make a stake of {units(terms.minimum):g} or more"
            raise InvalidRequest("amount", reason)
        self._require(account, facts, atoms + self.fee)
        return Draft("stake", {"amount": atoms, "duration_days": days}, spends=atoms + self.fee)

    def _unstake(self, account: str, atoms: int, facts: Facts) -> Draft:
        terms, now_ns = self._ledger.genesis.profile.staking, facts.time_ns
        if atoms > facts.staked:
            raise InsufficientBalance(units(atoms), units(facts.staked))
        if now_ns < facts.unlock_ns:
            raise FundsLocked(date_of(facts.unlock_ns))
        if 0 < facts.staked - atoms < terms.minimum:
            reason = f"must leave nothing, or a stake of {units(terms.minimum):g} or more"
            raise InvalidRequest("amount", reason)
        self._require(account, facts, self.fee)
        return Draft("unstake", {"amount": atoms}, spends=self.fee)

    def _require(self, account: str, facts: Facts, atoms: int) -> None:
        available = max(0, facts.available - self._journal.book.claimed(account))
        if available < atoms:
            raise InsufficientBalance(units(atoms), units(available))

    def begin(self, work: Work) -> Work:
        """Have ``work`` carried out. RateLimited when there is a lot to do."""
        # Not async: from here on a caller that goes away stops nothing by itself.
        if self._open >= MOST_WORK:
            raise RateLimited(1, "too many transactions are waiting for a block")
        self._open += 1
        self._works.send_nowait(work)
        return work

    async def serve_works(self) -> None:
        """Carry out what is handed over, until cancelled."""
        async with trio.open_nursery() as nursery:
            async for work in self._waiting:
                nursery.start_soon(self._carry_out, work)

    async def _carry_out(self, work: Work) -> None:
        try:
            await self._sender.carry_out(work)
        finally:
            self._open -= 1


def date_of(time_ns: int) -> str:
    """The UTC date of a block's time."""
    return datetime.fromtimestamp(time_ns // SECOND_NS, UTC).strftime("%Y-%m-%d")
