"""Interface 2.1 and 4.1: what an operation says that it takes is taken, each time in a run.

A check that compares one operation with the balances around it asks again where they differ, since
others use the account, too. So it sees nothing of what goes wrong now and then. Here each operation
is counted that stands alone between two balances, of which the second one was read twice. A target
may settle late, in the blocks of a chain: then a balance falls by itself, and nothing is concluded.
"""

import threading
from dataclasses import dataclass, field

from conformance.findings import Findings
from conformance.httprequest import Credential
from conformance.httpwire import Answer
from conformance.passive.balances import BALANCE, INFERENCE, SEND, STAKE
from conformance.shapes import lookup
from conformance.strictjson import Json, is_number

CHARGED, TRANSFERRED = "NA-WALLET-091", "NA-WALLET-092"
IDS = frozenset({CHARGED, TRANSFERRED})
EXACT = 1e-6
# So often an operation takes nothing, or twice as much, before it is no slip.
ENOUGH = {CHARGED: 2, TRANSFERRED: 3}
# So many others are taken at once behind these, and so long after them, before it is concluded.
PROMPT, SETTLED_AFTER_S = 5, 10.0


@dataclass
class Book:
    """What one account has had in balances, and what was done since."""

    operator: bool
    shown: Answer | None = None
    available: float = 0.0
    done: list[tuple[str, float | None, Answer]] = field(default_factory=list)
    """What was done since the last balance: how, how much it says that it takes, and its answer."""
    beside: bool = False
    """Whether others have done anything since."""
    before: tuple[str, float, float, Answer] | None = None
    """The operation between the two last balances, with what it says and what it took."""
    late: bool = False
    """Whether more was taken than what had been done says, or something although nothing had."""
    odd: dict[str, list[tuple[str, Answer]]] = field(default_factory=dict)
    """What took nothing, or twice as much."""
    settled_s: list[float] = field(default_factory=list)
    """When the operations were made that took what they say, at once."""


@dataclass
class Taken:
    """The books of all accounts."""

    books: dict[Credential, Book] = field(default_factory=dict)
    addresses: set[Json] = field(default_factory=set)
    """Those that balances have named. What goes elsewhere may come back."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def judge(
        self,
        findings: Findings,
        operation: tuple[str, str],
        credential: Credential,
        body: Json,
        answer: Answer,
        *,
        operator: bool,
    ) -> None:
        """Rule on what an operation has taken, at the second balance behind it.

        An `operator` may get back what he has paid for a generation.
        """
        method, path = operation
        with self.lock:
            book = self.books.setdefault(credential, Book(operator))
            if operation == ("GET", BALANCE):
                found = lookup(answer.json_object(), "balances.available") if answer.ok else []
                if found and is_number(found[0]):
                    self.addresses |= _texts(lookup(answer.json_object(), "address"))
                    _read(findings, book, float(found[0]), answer)
            elif method != "GET":
                self._note(credential, path, body, answer)

    def _note(self, credential: Credential, path: str, body: Json, answer: Answer) -> None:
        """Note an operation, which may have moved money of any account."""
        for one, book in self.books.items():
            if one == credential:
                book.done.append((path, self._says(path, body, answer), answer))
            else:
                book.beside = True
            book.before = None

    def _says(self, path: str, body: Json, answer: Answer) -> float | None:
        """Return how much an operation takes by its result, None if it does not say it."""
        result = answer.json_object() if answer.ok else None
        if result is None or result.get("success") is False:
            return None
        if path == INFERENCE:
            found = lookup(result, "cost.amount")
            return float(found[0]) if found and is_number(found[0]) else None
        asked = body if isinstance(body, dict) else {}
        amount, to = asked.get("amount"), asked.get("to")
        fee, sender = result.get("fee", 0) if path == SEND else 0, result.get("from")
        # To itself an account may send for nothing.
        other = isinstance(to, str) and isinstance(sender, str) and to != sender
        if path != STAKE and not (path == SEND and other and to in self.addresses):
            return None
        return float(amount) + float(fee) if is_number(amount) and is_number(fee) else None


def _texts(values: list[Json]) -> set[Json]:
    return {value for value in values if isinstance(value, str)}


def _read(findings: Findings, book: Book, available: float, answer: Answer) -> None:
    """Rule on the operation before the last balance, if this one is the same."""
    last, done, before = book.shown, book.done, book.before
    moved, says = book.available - available, [one for _, one, _ in done]
    known = [one for one in says if one is not None]
    book.before = None
    if last is not None and len(known) == len(says) and moved > sum(known) + EXACT:
        # What is taken twice is not taken late.
        book.late = book.late or len(known) != 1 or abs(moved - 2 * sum(known)) > EXACT
    if last is not None and not done and not book.beside:
        if abs(moved) <= EXACT and before is not None:
            _conclude(findings, book, before, answer)
    elif last is not None and len(done) == len(known) == 1 and not book.beside:
        path, _, made = done[0]
        if _ended_s(last) <= made.exchange.at_s and _ended_s(made) <= answer.exchange.at_s:
            book.before = (path, known[0], moved, made)
    book.beside = False
    book.shown, book.available, book.done = answer, available, []


def _ended_s(answer: Answer) -> float:
    """Return when an answer was complete, in seconds of the run."""
    return answer.exchange.at_s + answer.exchange.took_ms / 1000


def _conclude(
    findings: Findings, book: Book, before: tuple[str, float, float, Answer], answer: Answer
) -> None:
    path, says, moved, made = before
    ident = CHARGED if path == INFERENCE else TRANSFERRED
    if says <= EXACT or (book.operator and ident == CHARGED):
        return
    if abs(moved - says) <= EXACT:
        findings.holds(ident, made, answer)
        book.settled_s.append(made.exchange.at_s)
    elif any(abs(moved - times * says) <= EXACT for times in (0, 2)):
        why = f"a POST {path} says that it takes {says:g}, and took {abs(round(moved, 6)):g}"
        book.odd.setdefault(ident, []).append((why, made))
    for each, odd in book.odd.items():
        if len(odd) >= ENOUGH[each] and _is_final(book, odd[ENOUGH[each] - 1][1], answer):
            why = f"{odd[-1][0]}, and {len(odd) - 1} others so"
            findings.fails(each, why, *(one for _, one in odd[: ENOUGH[each]]))


def _is_final(book: Book, last: Answer, now: Answer) -> bool:
    """Return whether what was not taken then would have been by now: others are, and at once."""
    since = [at_s for at_s in book.settled_s if at_s > last.exchange.at_s]
    waited_s = now.exchange.at_s - last.exchange.at_s
    return not book.late and len(since) >= PROMPT and waited_s >= SETTLED_AFTER_S
