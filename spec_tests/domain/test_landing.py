"""One signer of an account, following its rules, with a crash between any two steps.

The machine imitates :mod:`meshnode.services.signer.signer`, with the same rules of
:mod:`meshnode.domain.landing` and :mod:`meshnode.domain.spending`: sign, note, ask, search, offer,
record the outcome. The ledger may drop waiting transactions or give no answer, and other signers
may use the same key.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import count, pairwise

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from meshnode.domain import landing as landing_module
from meshnode.domain.chain.blocks import ACCEPTED, REFUSED, TransactionResult
from meshnode.domain.chain.envelope import TransactionHash
from meshnode.domain.chain.errors import MempoolFull, WrongNonce
from meshnode.domain.landing import TRANSITIONS, Landing, LandingState
from meshnode.domain.spending import (
    AccountBook,
    Outcome,
    PendingTransaction,
    Record,
    TransactionOutcome,
    decode_record,
    encode_record,
)
from meshnode.domain.transitions import IllegalTransition

ACCOUNT = "alice"
RULE = "A rule refuses this"


def result(name: str, log: str = "") -> TransactionResult:
    return TransactionResult(REFUSED if log else ACCEPTED, log, TransactionHash(name))


@dataclass
class Chain:
    """A ledger with one account. ``forbidden`` are the transactions that a rule refuses."""

    nonce: int = 0
    height: int = 0
    waiting: list[tuple[int, str]] = field(default_factory=list)
    blocks: dict[str, int] = field(default_factory=dict)
    forbidden: set[str] = field(default_factory=set)
    full: bool = False

    def offer(self, nonce: int, name: str) -> TransactionResult:
        if (nonce, name) in self.waiting:
            return result(name)
        if nonce != self.nonce + len(self.waiting):
            return result(name, str(WrongNonce()))
        if name in self.forbidden:
            return result(name, RULE)
        if self.full:
            return result(name, str(MempoolFull()))
        self.waiting.append((nonce, name))
        return result(name)

    def find(self, name: str) -> tuple[int, TransactionResult] | None:
        return (self.blocks[name], result(name)) if name in self.blocks else None

    def make_block(self) -> None:
        self.height += 1
        for nonce, name in self.waiting:
            assert nonce == self.nonce
            self.nonce += 1
            self.blocks[name] = self.height
        self.waiting.clear()


class SigningMachine(RuleBasedStateMachine):
    """The payments of one account. Each has a number; a transaction names its payment and nonce."""

    def __init__(self) -> None:
        super().__init__()
        self.chain = Chain()
        self.disk: list[Record] = []
        self.numbers = count()
        self.refusable: set[int] = set()
        self.told: dict[int, str] = {}
        """The outcome that each payer was given, by payment number."""
        self.begin()

    def begin(self) -> None:
        """Start the process, which rebuilds its state from the disk."""
        self.book = AccountBook()
        for record in self.disk:
            self.book.apply(decode_record(encode_record(record)))
        pending = self.book.pending(ACCOUNT)
        self.landing = Landing(pending.nonce) if pending else None
        self.queue: list[int] = []
        self.current: int | None = None
        """The payment in progress whose payer is waiting in this process."""
        self.seen_at = 0

    def keep(self, record: Record) -> None:
        self.disk.append(record)
        self.book.apply(record)

    # Actions of payers.

    @rule(refused=st.booleans())
    def ask(self, refused: bool) -> None:
        number = next(self.numbers)
        self.queue.append(number)
        if refused:
            self.refusable.add(number)

    # Actions of the signer, one step at a time.

    @precondition(lambda self: self.landing is None and self.queue)
    @rule()
    def sign(self) -> None:
        # Here the nonce is read in the step that signs. The real signer reads it before, and reads
        # it again if the journal shows that it is outdated.
        nonce = self.chain.nonce
        assert not self.book.outdated(ACCOUNT, nonce)
        self.current = self.queue.pop(0)
        name = f"payment {self.current} with nonce {nonce}"
        if self.current in self.refusable:
            self.chain.forbidden.add(name)
        order = str(self.current)
        self.keep(PendingTransaction(ACCOUNT, nonce, "{}", name, name, 1, 0, order))
        self.landing = Landing(nonce)

    @precondition(lambda self: self.landing is not None and self.landing.landed is None)
    @rule(lost=st.integers(0, 3))
    def follow(self, lost: int) -> None:
        pending, landing = self.book.pending(ACCOUNT), self.landing
        assert pending is not None
        assert landing is not None
        state = landing.state
        answer = self.chain.offer(pending.nonce, pending.hash) if state == "unused" else None
        if lost == 0:
            # The answer is lost; an offered transaction may have arrived all the same.
            landing.ask_again()
        elif state is LandingState.OFFERED:
            if self.chain.height > self.seen_at:
                landing.ask_again()
        elif state is LandingState.UNKNOWN:
            self.seen_at = self.chain.height
            landing.note_nonce(self.chain.nonce)
        elif state is LandingState.SOUGHT:
            landing.note_search(self.chain.find(pending.hash))
        elif answer is not None:
            landing.note_answer(answer)

    @precondition(lambda self: self.landing is not None and self.landing.landed is not None)
    @rule()
    def note(self) -> None:
        pending = self.book.pending(ACCOUNT)
        assert pending is not None
        assert self.landing is not None
        assert self.landing.landed is not None
        outcome = self.landing.landed.outcome
        self.keep(TransactionOutcome(ACCOUNT, pending.hash, str(outcome)))
        self.landing = None
        number, waited = int(pending.order), self.current is not None
        self.current = None
        if outcome is Outcome.SUPERSEDED:
            # Sign it again if its payer is still waiting.
            self.queue[:0] = [number] if waited else []
        else:
            self.told[number] = str(outcome)

    # Faults.

    @rule()
    def crash(self) -> None:
        self.begin()

    @rule()
    def make_block(self) -> None:
        self.chain.make_block()

    @rule()
    def drop_what_waits(self) -> None:
        self.chain.waiting.clear()

    @rule(full=st.booleans())
    def fill(self, full: bool) -> None:
        self.chain.full = full

    @rule()
    def use_the_key_elsewhere(self) -> None:
        nonce = self.chain.nonce + len(self.chain.waiting)
        self.chain.offer(nonce, f"foreign with nonce {nonce}")

    # Invariants.

    @invariant()
    def no_payment_is_made_twice(self) -> None:
        made = Counter(name.split(" with ")[0] for name in self.chain.blocks if "pay" in name)
        assert all(times == 1 for times in made.values())

    @invariant()
    def answers_are_true(self) -> None:
        made = {int(name.split()[1]) for name in self.chain.blocks if "pay" in name}
        for number, outcome in self.told.items():
            assert (number in made) == (outcome == Outcome.COMMITTED)

    @invariant()
    def a_nonce_is_signed_again_only_when_its_transaction_is_out(self) -> None:
        outcomes = {
            one.hash: one.outcome for one in self.disk if isinstance(one, TransactionOutcome)
        }
        signed = [one for one in self.disk if isinstance(one, PendingTransaction)]
        assert sum(one.hash not in outcomes for one in signed) <= 1
        for before, after in pairwise(signed):
            committed = outcomes[before.hash] == Outcome.COMMITTED
            assert after.nonce > before.nonce or (after.nonce == before.nonce and not committed)

    def teardown(self) -> None:
        """Once there are no more faults, every signed payment gets its outcome."""
        self.chain.full = False
        for _ in range(2000):
            if self.landing is None and self.queue:
                self.sign()
            elif self.landing is None:
                break
            elif self.landing.landed is not None:
                self.note()
            else:
                self.follow(lost=1)
                self.chain.make_block()
            self.no_payment_is_made_twice()
            self.answers_are_true()
        assert self.book.all_pending() == []


TestSigning = SigningMachine.TestCase


REPORTS = {
    "nonce": lambda landing: landing.note_nonce(0),
    "search": lambda landing: landing.note_search(None),
    "answer": lambda landing: landing.note_answer(result("x")),
    "again": lambda landing: landing.ask_again(),
}
BELONGS = {
    LandingState.UNKNOWN: {"nonce", "again"},
    LandingState.SOUGHT: {"search", "again"},
    LandingState.UNUSED: {"answer", "again"},
    LandingState.OFFERED: {"again"},
    LandingState.LANDED: set[str](),
}


@pytest.mark.parametrize("state", LandingState)
@pytest.mark.parametrize("report", REPORTS)
def test_a_report_that_does_not_belong_to_the_state_is_refused(
    state: LandingState, report: str
) -> None:
    landing = Landing(0)
    landing.state = state
    if report in BELONGS[state]:
        REPORTS[report](landing)
        assert landing.state in TRANSITIONS[state]
    else:
        with pytest.raises(IllegalTransition, match="never followed"):
            REPORTS[report](landing)


def test_the_documented_table_is_the_one_in_use() -> None:
    rows: dict[str, str] = {}
    name = ""
    for line in (landing_module.__doc__ or "").splitlines():
        name = line[:9].strip() or name
        if name in LandingState.__members__:
            rows[name] = rows.get(name, "") + line[41:]
    for state in LandingState:
        named = {other for other in LandingState if other.name in rows[state.name]}
        # From the sentence below the table: a ledger that cannot answer leads back to UNKNOWN.
        always = set() if state is LandingState.LANDED else {LandingState.UNKNOWN}
        assert named | always == TRANSITIONS[state], state
