"""The one signer of this node's accounts: every transaction is signed here (interface 2.1, 3).

The wallet, the provider, the sponsor and the proofs submit their transactions here; no other code
signs one. A transaction is *pending* from its signature until it lands (:mod:`..domain.landing`).

Invariants:

- An account has at most one pending transaction, so its nonces are used one after another.
- What is signed is in the journal before it is offered, and only the stored bytes are ever offered.
  A plan is signed anew only when another transaction took the nonce. So no crash at any point
  makes the node pay twice (decisions 0084, 0125). After a start, the transactions that an earlier
  run left pending come first.
- A waiting caller may be cancelled at any moment: a transaction that was not signed by then never
will be, and a signed one is followed to its end.

A pending transaction that does not land holds up everything else of its account, and it has to: no
block takes a later nonce before the pending one, and a second transaction with the same nonce would
leave open which of the two lands. What can be avoided is waiting behind transactions that are not
signed yet. Answers to jobs and results of leased tasks lapse after a few blocks, so these go before
all transfers that wait; they wait for one pending transaction at most. Transfers do not starve
behind them, because the services that send them have one transaction in flight at a time, and
compute before the next one. Accounts do not wait for one another.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Protocol

import trio

from meshnode.domain.chain.canonical import Json, encode
from meshnode.domain.chain.envelope import (
    ApplicationId,
    application_id,
    sign_envelope,
    transaction_hash,
)
from meshnode.domain.chain.transactions import KINDS
from meshnode.domain.errors import (
    FundsLocked,
    InsufficientBalance,
    InvalidRequest,
    RateLimited,
    StartupError,
    Unavailable,
)
from meshnode.domain.identity import NodeKey
from meshnode.domain.landing import Landed, Landing, LandingState
from meshnode.domain.spending import Outcome, PendingTransaction, TransactionOutcome
from meshnode.services.ledger.asking import ChainLedger
from meshnode.services.signer.accounts import (
    AccountState,
    read_account,
    read_block_time,
    read_next_nonce,
)
from meshnode.services.signer.journal import Journal
from meshnode.services.signer.submission import (
    MAX_OF_CLIENTS,
    MAX_OWN,
    Submission,
    SubmissionQueue,
    TransactionRefused,
    TransactionRequest,
)

log = logging.getLogger(__name__)

MAX_SIGNATURES = 8
"""How often one plan is signed: again whenever another program, which uses the same key, took its
nonce. After that the caller gets 503, and nothing of the plan is in a block."""
ASK_AGAIN_S = 1.0
"""How long to wait before a retry when the ledger or the journal is unavailable."""
NOTED_WITHIN_S = 5.0
"""Seconds that the journal may take to record a transaction that is in a block."""
URGENT = frozenset({"respond", "submit"})
"""Kinds that lapse after a few blocks. A computed answer or a bond is lost when one lapses."""
UNHINDERED = frozenset({"ok", "stalled"})
"""Readiness at which the node's own services still sign. A stalled chain takes their transactions
when it makes blocks again; a ledger that is behind would have them signed with an old nonce."""
UNSEEN = "a block that is not here may hold this transaction: look at the account"
STOPPING = "the node stops: look at the account before you try again"


class AccountKeys(Protocol):
    """The keys of the node's accounts (:class:`~meshnode.services.keystore.Keystore`)."""

    node_key: NodeKey

    def signer(self, public_key: str) -> NodeKey:
        """The key that signs for an account. Raises StartupError when it cannot be read."""


class Signer:
    """Handle of the service; owner of each account's next nonce."""

    def __init__(self, ledger: ChainLedger, journal: Journal, keys: AccountKeys) -> None:
        self.journal = journal
        self._ledger = ledger
        self._keys = keys
        self._accounts = journal.accounts
        self._queue = SubmissionQueue()
        self._busy: set[str] = set()
        """Accounts that have a task, or a message that starts one."""
        # One message per account that is waiting for a task: at most as many as submissions.
        self._wake, self._woken = trio.open_memory_channel[str](MAX_OF_CLIENTS + MAX_OWN)
        self._landed: dict[str, trio.Event] = {}
        self._stopped = False

    @property
    def public_key(self) -> str:
        """The node's own account."""
        return self._keys.node_key.public_key

    def require_ready(self) -> None:
        """Raise Unavailable unless the ledger is ready: reachable, caught up and not stalled."""
        readiness = self._ledger.readiness()
        if not readiness.ready:
            raise Unavailable(f"the ledger is not ready: {readiness.reason.replace('_', ' ')}")

    async def read_account(self, account: str) -> AccountState:
        """The account's state in the ledger, at least as new as the journal's record of it.

        Raises Unavailable when the journal does not catch up with the ledger in time.
        """
        while True:
            state = await read_account(self._ledger, account)
            pending = self._accounts.pending(account)
            if pending is not None and state.nonce > pending.nonce:
                # A block has used the nonce, but the journal does not say so yet. It soon will.
                with trio.move_on_after(NOTED_WITHIN_S) as waiting:
                    await self._landing_of(pending).wait()
                if waiting.cancelled_caught:
                    raise Unavailable("the wallet's journal cannot be written")
            elif self._accounts.outdated(account, state.nonce):
                # The journal knows that this nonce is used. The ledger is still catching up.
                await self._ledger.wait_beyond(state.height)
            else:
                return state

    def submit(self, submission: Submission) -> Submission:
        """Queue a submission without waiting. Raises RateLimited when too many are in the queue."""
        # Not async: cancelling the caller does not by itself withdraw the submission.
        if self._stopped:
            raise Unavailable(STOPPING)
        self._queue.add(submission)
        if submission.account not in self._busy:
            self._busy.add(submission.account)
            self._wake.send_nowait(submission.account)
        return submission

    async def send(self, kind: str, fields: dict[str, Json]) -> ApplicationId:
        """Commit a transaction of the node's own account. Returns its application id.

        For the node's own services. Raises TransactionRefused when the chain rejects it; otherwise
        waits without a time limit, so the caller sets the deadline.
        """
        while True:
            plan = partial(self._plan_own, kind, fields)
            submission = Submission(self.public_key, plan, own=True, urgent=kind in URGENT)
            try:
                self.submit(submission)
                await submission.wait()
                return ApplicationId(submission.transaction_id)
            except (Unavailable, RateLimited) as error:
                # Trying again cannot pay twice: either this submission can no longer land, or the
                # signer has ended and refuses every further submission.
                log.info("the ledger cannot take a transaction now: %s", error)
                await trio.sleep(ASK_AGAIN_S)
            finally:
                submission.withdraw()

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow what an earlier run left pending, and carry out submissions, until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                for pending in self._accounts.all_pending():
                    self._busy.add(pending.account)
                    nursery.start_soon(self._serve_account, pending.account)
                task_status.started()
                async for account in self._woken:
                    nursery.start_soon(self._serve_account, account)
        finally:
            self._stopped = True
            self._queue.close(Unavailable(STOPPING))

    async def _serve_account(self, account: str) -> None:
        """Carry out the account's submissions one after another, until the queue is empty."""
        await self._resolve_pending(account)
        while (submission := self._queue.take(account)) is not None:
            await self._carry_out(submission)
        # There is no await between the check for an empty queue and this line.
        self._busy.discard(account)

    async def _carry_out(self, submission: Submission) -> None:
        # If this service is cancelled, waiting callers must not conclude that it was committed.
        submission.failure = Unavailable(STOPPING)
        try:
            await self._sign_and_land(submission)
            submission.failure = None
        except (
            InvalidRequest,
            InsufficientBalance,
            FundsLocked,
            Unavailable,
            TransactionRefused,
        ) as failure:
            submission.failure = failure
        finally:
            self._queue.end(submission)

    async def _sign_and_land(self, submission: Submission) -> None:
        key = await self._open_key(submission.account)
        for _ in range(MAX_SIGNATURES):
            self._require_usable(submission)
            state = await self.read_account(submission.account)
            # No await from here to the hold in `_store`, so that the same money is not used twice.
            request = submission.plan(state)
            if request is None or submission.withdrawn:
                return
            pending = self._sign(submission, key, request, state.nonce)
            submission.transaction_id = pending.id
            await self._store(pending)
            landed = await self._land(pending, state.height)
            if landed.outcome is Outcome.COMMITTED:
                submission.time_ns = await self._time_landed(landed.height)
                return
            if landed.outcome is Outcome.REFUSED:
                raise submission.refused_as(landed.reason)
            if landed.outcome is Outcome.UNSEEN:
                raise Unavailable(UNSEEN)
        raise Unavailable("others use this account's key at the same time; try again")

    def _require_usable(self, submission: Submission) -> None:
        if not submission.own or self._ledger.readiness().reason not in UNHINDERED:
            self.require_ready()

    def _plan_own(
        self, kind: str, fields: dict[str, Json], state: AccountState
    ) -> TransactionRequest:
        fee = self._ledger.genesis.profile.params.fee if KINDS[kind].costs_fee else 0
        return TransactionRequest(kind, fields, spends=fee)

    async def _open_key(self, account: str) -> NodeKey:
        try:
            return await trio.to_thread.run_sync(self._keys.signer, account)
        except StartupError as error:
            log.error("cannot sign for %s: %s", account, error)
            raise Unavailable("the account's key cannot be read") from None

    def _sign(
        self, submission: Submission, key: NodeKey, request: TransactionRequest, nonce: int
    ) -> PendingTransaction:
        body: dict[str, Json] = {
            "kind": request.kind,
            "chain_id": self._ledger.chain_id,
            "nonce": nonce,
            **request.fields,
        }
        raw = encode(sign_envelope(body, key.seed))
        account = key.public_key
        return PendingTransaction(
            account=account,
            nonce=nonce,
            raw=raw.decode("ascii"),
            hash=transaction_hash(raw),
            id=application_id(body, account),
            spends=request.spends,
            settles=request.settles,
            order=submission.order,
        )

    async def _store(self, pending: PendingTransaction) -> None:
        """Write a transaction to the journal, and hold its money until the write has ended.

        The account book subtracts what a pending transaction spends only once the write is
        durable. Until then the hold keeps others from spending the same money.
        """
        account, atoms = pending.account, pending.spends - pending.settles
        self._accounts.hold(account, atoms)
        release = partial(self._accounts.release, account, atoms)
        await self.journal.post(pending, release).wait()

    async def _resolve_pending(self, account: str) -> None:
        """Follow the transaction that an earlier run of the node left pending."""
        pending = self._accounts.pending(account)
        if pending is not None:
            landed = await self._land(pending, signed_after=0)
            log.info(
                "transaction %s of an earlier run: %s %s",
                pending.id,
                landed.outcome,
                landed.reason,
            )

    async def _land(self, pending: PendingTransaction, signed_after: int) -> Landed:
        """Follow a pending transaction until its outcome is final, and record the outcome.

        Only blocks above the height ``signed_after`` can hold it.
        """
        landed = await self._follow(pending, signed_after)
        record = TransactionOutcome(pending.account, pending.hash, str(landed.outcome))
        while True:
            try:
                await self.journal.append(record)
                break
            except Unavailable:
                # The outcome is final even if the disk fails, so retry until it is recorded.
                await trio.sleep(ASK_AGAIN_S)
        # Log the outcome, since nobody may be waiting for it.
        log.debug("transaction %s: %s %s", pending.id, landed.outcome, landed.reason)
        event = self._landed.pop(pending.account, None)
        if event is not None:
            event.set()
        return landed

    async def _follow(self, pending: PendingTransaction, signed_after: int) -> Landed:
        landing, height = Landing(pending.nonce), 0
        while landing.landed is None:
            try:
                match landing.state:
                    case LandingState.UNKNOWN:
                        height = self._ledger.height
                        landing.note_nonce(await read_next_nonce(self._ledger, pending.account))
                    case LandingState.SOUGHT:
                        found = await self._ledger.transaction(pending.hash)
                        missing = self._ledger.earliest_height > signed_after + 1
                        landing.note_search(found, missing=missing)
                    case LandingState.UNUSED:
                        landing.note_answer(await self._ledger.submit(pending.raw.encode("ascii")))
                    case _:
                        await self._ledger.wait_beyond(height)
                        landing.ask_again()
            except Unavailable:
                landing.ask_again()
                await trio.sleep(ASK_AGAIN_S)
        return landing.landed

    async def _time_landed(self, height: int) -> int:
        """The time of a committed transaction's block, in nanoseconds.

        Waits while the ledger is unavailable. An error here would tell the caller that the payment
        failed, although it is in a block, and the caller might pay again.
        """
        while True:
            try:
                return await read_block_time(self._ledger, height)
            except Unavailable:
                await trio.sleep(ASK_AGAIN_S)

    def _landing_of(self, pending: PendingTransaction) -> trio.Event:
        return self._landed.setdefault(pending.account, trio.Event())


async def serve_signer(
    ledger: ChainLedger,
    keys: AccountKeys,
    data_dir: Path,
    *,
    task_status: trio.TaskStatus[Signer],
) -> None:
    """Sign for the node's accounts until cancelled; starts with the :class:`Signer`.

    First follows what an earlier run left pending. Raises StartupError when the journal is damaged.
    """
    journal = Journal(data_dir, ledger.chain_id)
    signer = Signer(ledger, journal, keys)
    async with trio.open_nursery() as nursery:
        await nursery.start(journal.serve)
        await nursery.start(signer.serve)
        task_status.started(signer)
