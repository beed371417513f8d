"""Signing, submitting and following the transactions of this node's accounts (document, 2.1, 3).

Terms as in :mod:`meshnode.domain.spending`. A *plan* says what to sign, given what the account has;
it raises the refusal that a client is to see before anything is signed.

Invariants: transactions of one account are signed one after another, each with the next nonce; what
is signed is in the journal before it is submitted; only the stored bytes are ever submitted, and a
new transaction is signed in a flight's place only when its nonce was taken by something else, so
nothing is paid twice, whatever crashes when (decisions/0084).
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import trio

from meshnode.domain.chain.blocks import ACCEPTED, TransactionResult
from meshnode.domain.chain.canonical import Json, encode
from meshnode.domain.chain.envelope import application_id, sign_envelope, transaction_hash
from meshnode.domain.chain.errors import MempoolFull, TooManyOfSender, WrongNonce
from meshnode.domain.chain.genesis import Genesis
from meshnode.domain.chain.queries import QueryResult
from meshnode.domain.errors import (
    FundsLocked,
    InsufficientBalance,
    InvalidRequest,
    MeshnodeError,
    StartupError,
    Unavailable,
)
from meshnode.domain.identity import NodeKey
from meshnode.domain.spending import Flight, Landing, Outcome
from meshnode.services.wallet.journal import Journal

if TYPE_CHECKING:
    from meshnode.services.keystore import Keystore

log = logging.getLogger(__name__)

MOST_SIGNATURES = 8
"""Times that one plan is signed anew because others use the same key; then it is given up."""
ASK_AGAIN_S = 1.0
"""While the ledger cannot be asked."""
NOTED_WITHIN_S = 5.0
"""What is in a block is in the book a moment later, unless the disk refuses."""

_PASSING = frozenset(str(refusal()) for refusal in (WrongNonce, MempoolFull, TooManyOfSender))
"""Refusals that the next block may end; a nonce in use may be that of these very bytes."""


class Block(Protocol):
    """A committed block."""

    @property
    def time_ns(self) -> int:
        """Its time."""


class Readiness(Protocol):
    """Whether the ledger follows its chain."""

    @property
    def ready(self) -> bool:
        """Whether what it says is current."""

    @property
    def reason(self) -> str:
        """Why not, in a word or two."""


class Ledger(Protocol):
    """What is asked of the ledger's handle."""

    @property
    def genesis(self) -> Genesis:
        """The chain's beginning, with its profile."""

    @property
    def chain_id(self) -> str:
        """The chain's name."""

    @property
    def height(self) -> int:
        """Of the last committed block."""

    def readiness(self) -> Readiness:
        """Whether what it says is current."""

    async def submit(self, raw: bytes) -> TransactionResult:
        """Offer a transaction for a block to come."""

    async def query(self, path: str, options: Any = ...) -> QueryResult:
        """Ask the committed state."""

    async def transaction(self, hash: str) -> tuple[int, TransactionResult] | None:
        """Height and result of a transaction in a block."""

    async def block(self, height: int) -> Block | None:
        """A committed block."""

    async def wait_beyond(self, height: int) -> int:
        """Wait for a height above this one."""


@dataclass(frozen=True, slots=True)
class Facts:
    """An account on the ledger, at one height, with its stake."""

    height: int
    time_ns: int
    """Of the block at that height; 0 before the first."""
    nonce: int
    available: int
    locked: int
    staked: int
    cooling: int
    duration_days: int
    start_ns: int
    unlock_ns: int
    multiplier_millionths: int


@dataclass(frozen=True, slots=True)
class Draft:
    """What to sign: a kind and its fields. ``spends`` includes the fee; see :class:`Flight`."""

    kind: str
    fields: dict[str, Json]
    spends: int
    settles: int = 0


Plan = Callable[[Facts], Draft | None]
"""None when there is nothing to do."""


@dataclass
class Work:
    """One plan on its way to a block. Whoever asked waits here, and may go away."""

    account: str
    plan: Plan
    order: str = ""
    transaction_id: str = ""
    """Its application id, once it is signed; empty when there was nothing to sign."""
    withdrawn: bool = False
    ended: trio.Event = field(default_factory=trio.Event)
    failure: MeshnodeError | None = None
    time_ns: int = 0
    """Of the block that it is in."""

    async def wait(self) -> None:
        """Wait until it is in a block. Raises the refusal when it will not be."""
        await self.ended.wait()
        if self.failure is not None:
            raise self.failure

    def withdraw(self) -> bool:
        """Give it up unless it is signed already; whether nothing was, and will be, signed."""
        self.withdrawn = self.withdrawn or not self.transaction_id
        return self.withdrawn


class Sender:
    """The only one that signs for this node's accounts."""

    def __init__(self, ledger: Ledger, journal: Journal, keys: Keystore) -> None:
        self._ledger = ledger
        self._keys = keys
        self._journal = journal
        self._book = journal.book
        # As many as there are accounts, which are as many as tokens.
        self._turns: defaultdict[str, trio.Lock] = defaultdict(trio.Lock)
        self._landed: dict[str, trio.Event] = {}

    def require_ready(self) -> None:
        """Unavailable while the ledger is behind its chain: what it says would be old."""
        readiness = self._ledger.readiness()
        if not readiness.ready:
            raise Unavailable(f"the ledger is not ready: {readiness.reason.replace('_', ' ')}")

    async def look(self, account: str) -> Facts:
        """The account as the ledger has it, and no older than anything that the book knows.

        Unavailable while the book cannot be brought up to the ledger.
        """
        while True:
            facts = await self._ask(account)
            flight = self._book.flight(account)
            if flight is not None and facts.nonce > flight.nonce:
                # In a block already, and not yet in the book: the next moment both agree.
                with trio.move_on_after(NOTED_WITHIN_S) as waiting:
                    await self._landing_of(flight).wait()
                if waiting.cancelled_caught:
                    raise Unavailable("the wallet's journal cannot be written")
            elif not self._book.outdated(account, facts.nonce):
                return facts

    async def carry_out(self, work: Work) -> None:
        """Sign, submit and follow until it is in a block; the outcome is in ``work``."""
        # Whoever waits must not take the end of this service for the end of the transaction.
        work.failure = Unavailable("the node stops: look at the account before you try again")
        try:
            async with self._turns[work.account]:
                await self._resolve_flight(work.account)
                await self._sign_and_land(work)
            work.failure = None
        except (InvalidRequest, InsufficientBalance, FundsLocked, Unavailable) as failure:
            work.failure = failure
        finally:
            work.ended.set()

    async def resolve(self, account: str) -> None:
        """Follow the flight that an earlier run of the node left."""
        async with self._turns[account]:
            await self._resolve_flight(account)

    async def _sign_and_land(self, work: Work) -> None:
        key = await self._open_key(work.account)
        for _ in range(MOST_SIGNATURES):
            self.require_ready()
            facts = await self.look(work.account)
            # From here to the hold in `_store` nothing awaits: the money is not promised twice.
            draft = work.plan(facts)
            if draft is None or work.withdrawn:
                return
            flight = self._sign(work, key, draft, facts.nonce)
            work.transaction_id = flight.id
            await self._store(flight)
            outcome, reason, height = await self._land(flight)
            if outcome is Outcome.COMMITTED:
                work.time_ns = await self._time_landed(height)
                return
            if outcome is Outcome.REFUSED:
                raise InvalidRequest("request", f"the ledger refused it: {reason}")
        raise Unavailable("others use this account's key at the same time; try again")

    async def _open_key(self, account: str) -> NodeKey:
        try:
            return await trio.to_thread.run_sync(self._keys.signer, account)
        except StartupError as error:
            log.error("cannot sign for %s: %s", account, error)
            raise Unavailable("the account's key cannot be read") from None

    def _sign(self, work: Work, key: NodeKey, draft: Draft, nonce: int) -> Flight:
        body: dict[str, Json] = {
            "kind": draft.kind,
            "chain_id": self._ledger.chain_id,
            "nonce": nonce,
            **draft.fields,
        }
        raw = encode(sign_envelope(body, key.seed))
        account = key.public_key
        return Flight(
            account=account,
            nonce=nonce,
            raw=raw.decode("ascii"),
            hash=transaction_hash(raw),
            id=application_id(body, account),
            spends=draft.spends,
            settles=draft.settles,
            order=work.order,
        )

    async def _store(self, flight: Flight) -> None:
        """Nobody may spend the money again while its transaction is on the way to the disk."""
        account, atoms = flight.account, flight.spends - flight.settles
        self._book.hold(account, atoms)
        await self._journal.post(flight, lambda: self._book.release(account, atoms)).wait()

    async def _resolve_flight(self, account: str) -> None:
        flight = self._book.flight(account)
        if flight is not None:
            outcome, reason, _ = await self._land(flight)
            log.info("transaction %s of an earlier request: %s %s", flight.id, outcome, reason)

    async def _land(self, flight: Flight) -> tuple[Outcome, str, int]:
        """Follow a flight to its end: outcome, reason of a refusal, height of its block."""
        outcome, reason, height = await self._follow(flight)
        while True:
            try:
                await self._journal.append(Landing(flight.account, flight.hash, str(outcome)))
                break
            except Unavailable:
                # It has landed, whatever the disk says: going on without noting it would lie.
                await trio.sleep(ASK_AGAIN_S)
        # A transaction that its maker did not wait for is told to whoever looks at the log.
        log.debug("transaction %s: %s %s", flight.id, outcome, reason)
        event = self._landed.pop(flight.account, None)
        if event is not None:
            event.set()
        return outcome, reason, height

    async def _follow(self, flight: Flight) -> tuple[Outcome, str, int]:
        while True:
            height = self._ledger.height
            try:
                end = await self._find(flight) or await self._offer(flight)
                if end is not None:
                    return end
                # One that was dropped on the way to a block is offered again after the next.
                await self._ledger.wait_beyond(height)
            except Unavailable:
                await trio.sleep(ASK_AGAIN_S)

    async def _find(self, flight: Flight) -> tuple[Outcome, str, int] | None:
        """What the chain says about it; None while its nonce is not used."""
        # Asked in this order: a block between the two questions is not taken for another's.
        passed = await self._nonce(flight.account) > flight.nonce
        found = await self._ledger.transaction(flight.hash)
        if found is not None:
            height, result = found
            accepted = result.code == ACCEPTED
            return (Outcome.COMMITTED if accepted else Outcome.REFUSED), result.log, height
        return (Outcome.SUPERSEDED, "", 0) if passed else None

    async def _offer(self, flight: Flight) -> tuple[Outcome, str, int] | None:
        """Submit the stored bytes; None while the outcome is open."""
        result = await self._ledger.submit(flight.raw.encode("ascii"))
        if result.code == ACCEPTED or result.log in _PASSING:
            return None
        return Outcome.REFUSED, result.log, 0

    async def _ask(self, account: str) -> Facts:
        """Both halves of an account, of one height or as good as that."""
        options = {"public_key": account}
        money = await self._ledger.query("/account", options)
        while True:
            stake = await self._ledger.query("/stake", options)
            if stake.height != money.height:
                # Whatever changes a stake changes the balance too: if that is the same after, so
                # was the stake. Blocks can come faster than a busy machine answers.
                before, money = money, await self._ledger.query("/account", options)
                if money.value != before.value:
                    continue
            time_ns = await self._time_of(stake.height)
            return _facts(stake.height, time_ns, json.loads(money.value), json.loads(stake.value))

    async def _nonce(self, account: str) -> int:
        answer = await self._ledger.query("/account", {"public_key": account})
        return int(json.loads(answer.value)["nonce"])

    async def _time_of(self, height: int) -> int:
        block = await self._ledger.block(height)
        return block.time_ns if block is not None else 0

    async def _time_landed(self, height: int) -> int:
        """When a flight landed. It is paid: no trouble with the ledger may say otherwise."""
        while True:
            try:
                return await self._time_of(height)
            except Unavailable:
                await trio.sleep(ASK_AGAIN_S)

    def _landing_of(self, flight: Flight) -> trio.Event:
        return self._landed.setdefault(flight.account, trio.Event())


def _facts(height: int, time_ns: int, account: dict[str, int], stake: dict[str, Any]) -> Facts:
    cooling: Sequence[tuple[int, int]] = stake["cooling"]
    return Facts(
        height=height,
        time_ns=time_ns,
        nonce=account["nonce"],
        available=account["balance"],
        locked=account["locked"],
        staked=stake["amount"],
        cooling=sum(amount for amount, _ in cooling),
        duration_days=stake["duration_days"],
        start_ns=stake["start_ns"],
        unlock_ns=stake["unlock_ns"],
        multiplier_millionths=stake["multiplier_millionths"],
    )
