"""Transactions that wait for their turn to be signed (decision 0084).

Terms: a *submission* asks for one transaction. Its *plan* is a function that returns what to sign,
given the account's state; before anything is signed it may raise an error, which the client gets.

Invariants: the queue is bounded, for clients and for the node's own services separately, so that
neither can fill it for the other; within an account, urgent submissions come first, and otherwise
the order of arrival counts.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

import trio

from meshnode.domain.chain.canonical import Json
from meshnode.domain.chain.errors import Rejected
from meshnode.domain.errors import RateLimited
from meshnode.services.signer.accounts import AccountState

MAX_OF_CLIENTS = 256
"""The most submissions of clients that are not yet in a block: a few full blocks, which take little
memory."""
MAX_OWN = 16
"""The most submissions of the node's own services: one each of provider, sponsor and prover, four
of the validator, and some for services that are restarted."""


class TransactionRefused(Rejected):
    """The chain refused a transaction; the message is the chain's."""

    def __init__(self, log: str) -> None:
        Exception.__init__(self, log)


@dataclass(frozen=True, slots=True)
class TransactionRequest:
    """What to sign: a kind and its fields. ``spends`` includes the fee."""

    kind: str
    fields: dict[str, Json]
    spends: int
    settles: int = 0


Plan = Callable[[AccountState], TransactionRequest | None]
"""Returns None when there is nothing to do."""


@dataclass(eq=False)
class Submission:
    """One plan on its way to a block. Its caller waits with :meth:`wait`, and may be cancelled."""

    account: str
    plan: Plan
    order: str = ""
    own: bool = False
    """Whether a service of the node made it, not a client."""
    urgent: bool = False
    """Whether it is signed before submissions that are not urgent."""
    refused_as: Callable[[str], Exception] = TransactionRefused
    """Makes the exception from the reason that the chain gives."""
    transaction_id: str = ""
    """Its application id, once it is signed; empty when there was nothing to sign."""
    withdrawn: bool = False
    ended: trio.Event = field(default_factory=trio.Event)
    failure: Exception | None = None
    time_ns: int = 0
    """Time of the block that it is in."""

    async def wait(self) -> None:
        """Wait until the transaction is in a block. Raises the failure if it will never be."""
        await self.ended.wait()
        if self.failure is not None:
            raise self.failure

    def withdraw(self) -> bool:
        """Withdraw it unless it is signed. Returns whether nothing was or will be signed."""
        self.withdrawn = self.withdrawn or not self.transaction_id
        return self.withdrawn


class SubmissionQueue:
    """Submissions that wait or are being carried out, until :meth:`end`."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[bool, int, Submission]]] = {}
        self._arrivals = count()
        self._open: dict[bool, set[Submission]] = {False: set(), True: set()}

    def __len__(self) -> int:
        """The number of submissions that wait or are being carried out."""
        return sum(map(len, self._open.values()))

    def add(self, submission: Submission) -> None:
        """Queue a submission. Raises RateLimited when the queue is full."""
        group = self._open[submission.own]
        if len(group) >= (MAX_OWN if submission.own else MAX_OF_CLIENTS):
            self._drop_withdrawn(group)
        if len(group) >= (MAX_OWN if submission.own else MAX_OF_CLIENTS):
            raise RateLimited(1, "too many transactions are waiting for a block")
        group.add(submission)
        # False sorts before True. Arrivals differ, so submissions are never compared.
        place = (not submission.urgent, next(self._arrivals), submission)
        insort(self._waiting.setdefault(submission.account, []), place)

    def take(self, account: str) -> Submission | None:
        """The account's next submission; None when none waits."""
        waiting = self._waiting.get(account, [])
        while waiting:
            *_, submission = waiting.pop(0)
            if not submission.withdrawn:
                return submission
            self.end(submission)
        self._waiting.pop(account, None)
        return None

    def end(self, submission: Submission) -> None:
        """Note that a submission is no longer being carried out."""
        self._open[submission.own].discard(submission)
        submission.ended.set()

    def close(self, failure: Exception) -> None:
        """Fail all waiting submissions with ``failure``."""
        for waiting in self._waiting.values():
            for *_, submission in waiting:
                submission.failure = failure
                self.end(submission)
        self._waiting.clear()

    def _drop_withdrawn(self, group: set[Submission]) -> None:
        """Remove withdrawn submissions, which would take up room in the queue."""
        for waiting in self._waiting.values():
            for place in [place for place in waiting if place[2].withdrawn]:
                waiting.remove(place)
                self.end(place[2])
