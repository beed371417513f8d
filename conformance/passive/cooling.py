"""Interface 3: what was unstaked waits for its date, in all balances of a run.

A check that unstakes looks at the balance for a moment. Here all balances of an account are
compared with what it has unstaked in the run, if the target has shown each time that this is
pending then. Nothing else takes from it: a stake is taken from what is available.
"""

import threading
from dataclasses import dataclass, field

from conformance.findings import Findings
from conformance.httprequest import Credential
from conformance.httpwire import Answer
from conformance.passive.balances import BALANCE
from conformance.shapes import lookup
from conformance.strictjson import Json, is_number

EARLY, UNSTAKE = "NA-WALLET-019", "/api/v1/wallet/unstake"
IDS = frozenset({EARLY})
EXACT = 1e-6
# So many unstakes have been shown as pending before anything is concluded, and so far apart are two
# balances that show less.
SHOWN, APART_S = 2, 0.3


@dataclass
class Waits:
    """What one account has unstaked, and what its balances say of it."""

    unstaked: float = 0.0
    pending: float | None = None
    """What the last balance says, with what was unstaked since, if nothing else was done."""
    expected: float | None = None
    """What the next balance says if the last unstake is pending."""
    shown: int = 0
    elsewhere: bool = False
    """Whether an unstake was not shown so."""
    first_less: Answer | None = None
    made: list[Answer] = field(default_factory=list)

    def note(self, amount: float, answer: Answer) -> None:
        """Note an unstake whose date is another day."""
        self.unstaked += amount
        self.made.append(answer)
        if self.pending is not None:
            # Several may be unstaked before the next balance is read.
            self.pending += amount
            self.expected = self.pending

    def read(self, findings: Findings, pending: float, answer: Answer) -> None:
        """Rule on a balance."""
        if self.expected is not None:
            fits = abs(pending - self.expected) <= EXACT
            self.shown, self.elsewhere = self.shown + fits, self.elsewhere or not fits
        self.pending, self.expected = pending, None
        if self.elsewhere or self.shown < SHOWN:
            return
        if pending >= self.unstaked - EXACT:
            self.first_less = None
            findings.holds(EARLY, answer)
        elif self.first_less is None:
            self.first_less = answer
        elif answer.exchange.at_s >= self.first_less.exchange.at_s + APART_S:
            why = f"{self.unstaked:g} were unstaked, each until another day, and {pending:g} wait"
            findings.fails(EARLY, why, *self.made[:2], self.first_less, answer)


@dataclass
class Cooling:
    """What all accounts have unstaked."""

    waiting: dict[Credential, Waits] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def judge(
        self, findings: Findings, operation: tuple[str, str], credential: Credential, answer: Answer
    ) -> None:
        """Note an unstake, or rule on a balance."""
        with self.lock:
            own = self.waiting.setdefault(credential, Waits())
            document = answer.json_object() if answer.ok else None
            if operation == ("GET", BALANCE):
                for pending in _numbers(document, "balances.pending"):
                    own.read(findings, pending, answer)
            elif operation == ("POST", UNSTAKE) and (document or {}).get("success") is True:
                days = _numbers(document, "unstake.cooldown_days")
                for amount in _numbers(document, "unstake.amount"):
                    if days and days[0] > 0:
                        own.note(amount, answer)
            elif operation[0] != "GET":
                for each in self.waiting.values():
                    each.pending = None


def _numbers(document: Json, path: str) -> list[float]:
    """Return the number at a path, if there is one."""
    return [float(value) for value in lookup(document, path)[:1] if is_number(value)]
