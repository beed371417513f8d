"""Interface 2.2, 3 and 4.2: what the native answers of a whole run say of one block or account.

A check compares the answers that it asked for itself; this compares all of them, whichever state
the node was in. What may change is left out: that something which was not there comes, that
something old is forgotten, and whatever is no hash, root, key or signature.
"""

import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from conformance.editions import SEVENTH
from conformance.findings import Findings
from conformance.httpwire import Answer
from conformance.journal import Exchange
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_int

SAME, OVER_STAYS, NONCE, TOTAL = "NT-RULE-100", "NT-RULE-101", "NT-RULE-102", "NT-RULE-103"
BEHIND, BELOW, SPELT = "NT-RULE-106", "NT-RULE-129", "NT-RULE-135"
NO_NONCE = "NT-RULE-079"
IDS = frozenset({NO_NONCE, SAME, OVER_STAYS, NONCE, TOTAL, BEHIND, BELOW, SPELT})
FieldMap = Mapping[str, tuple[str, ...]]
NONCES, MONEY = "/api/account nonce", "/api/account money"
# Pages of entries that have a number, by what that is called.
PAGES = {"/api/blocks": "height", "/api/training": "round"}
_BLOCK = re.compile(r"/api/block/\d+\Z", re.ASCII)
REQUEST, ACCOUNT, NETWORK = "/api/inference/request", "/api/account", "/api/network"
_HEX = re.compile(r"(0x)?[0-9a-f]{40,}\Z", re.ASCII | re.IGNORECASE)
# What is called so is of the time of the answer.
OF_NOW = re.compile(r"tip|latest|head|newest|current|next|now|last_", re.IGNORECASE)
STATES, OVER = {"pending", "completed", "expired"}, {"completed", "expired"}
_STATE = re.compile(r"(\A|\.)(status|state)\Z", re.IGNORECASE)
_LOCKED = re.compile(r"lock|reserve|escrow|held|hold", re.IGNORECASE)
_WHOLE = re.compile(r"total|liquid", re.IGNORECASE)
# No amount of atoms, and no nonce, has more digits.
DIGITS = 40


@dataclass
class Chain:
    """What a target has said of each thing so far, with the exchange that has it."""

    texts: dict[tuple[str, str], tuple[list[str], Exchange]] = field(default_factory=dict)
    """By what has them, and the member in it, with how many there are."""
    over: dict[str, tuple[str, Exchange]] = field(default_factory=dict)
    nonces: dict[str, tuple[int, Exchange]] = field(default_factory=dict)
    tip: tuple[int, Exchange] | None = None
    """The height of the highest block that was listed."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def judge(
        self,
        findings: Findings,
        field_map: FieldMap,
        path: str,
        query: Mapping[str, object],
        answer: Answer,
    ) -> None:
        """Rule on an answer to GET ``path``, given all answers before it."""
        document = answer.json_object() if answer.ok else None
        if document is None:
            return
        with self.lock:
            if path in PAGES:
                for number, entry in entries_of_page(field_map, path, document):
                    if PAGES[path] == "height" and (self.tip is None or number > self.tip[0]):
                        self.tip = number, answer.exchange
                    self._judge_same(findings, f"{PAGES[path]} {number} of {path}", entry, answer)
            elif _BLOCK.match(path):
                self._judge_same(findings, path, document, answer)
            elif path == REQUEST:
                ident = str(query.get("id"))
                self._judge_same(findings, f"the request {ident}", document, answer)
                self._judge_state(findings, ident, document, answer)
                _judge_spelling(findings, ident, document, answer)
            elif path == NETWORK:
                self._judge_height(findings, field_map, document, answer)
            elif path == ACCOUNT:
                _judge_total(findings, field_map, document, answer)
                _judge_sign(findings, field_map, document, answer)
                self._judge_nonce(findings, field_map, str(query.get("public_key")), answer)

    def _judge_same(self, findings: Findings, thing: str, document: Json, answer: Answer) -> None:
        found: dict[str, list[str]] = {}
        for member, text in _members(document):
            if _HEX.match(text) and not OF_NOW.search(member):
                found.setdefault(member, []).append(text.lower())
        for member, texts in found.items():
            # A list may be in another order, or grow.
            key = f"{member} {len(texts)}"
            known, first = self.texts.setdefault((thing, key), (sorted(texts), answer.exchange))
            if first is not answer.exchange:
                why = f"{thing}: {member} was {brief(known)}, and is {brief(sorted(texts))}"
                findings.judge(SAME, known == sorted(texts), why, first, answer)

    def _judge_state(self, findings: Findings, ident: str, record: Json, answer: Answer) -> None:
        """Rule on the state of a request, if the record names just one."""
        named = {text.lower() for _, text in _members(record)} & STATES
        state = named.pop() if len(named) == 1 else ""
        if ident in self.over and state:
            known, first = self.over[ident]
            if _follows(first, answer):
                why = f"the request {ident} was {known}, and is {state}"
                findings.judge(OVER_STAYS, state == known, why, first, answer)
        elif state in OVER:
            self.over[ident] = state, answer.exchange

    def _judge_height(
        self, findings: Findings, field_map: FieldMap, document: dict[str, Json], answer: Answer
    ) -> None:
        """Rule on the height of the network, which an index of its blocks may lag behind."""
        paths = field_map.get(f"{NETWORK} height", ("height",))
        height = _number([one for path in paths for one in lookup(document, path)])
        if height is not None and findings.edition >= SEVENTH:
            names = field_map.get(f"{NETWORK} hash", ("hash",))
            found = {name: value for name in names for value in lookup(document, name)[:1]}
            self._judge_same(findings, f"the network at {height}", found, answer)
        if height is not None and self.tip is not None and _follows(self.tip[1], answer):
            why = f"the network is at {height}, and a block {self.tip[0]} was listed before"
            findings.judge(BEHIND, height >= self.tip[0], why, self.tip[1], answer)

    def _judge_nonce(
        self, findings: Findings, field_map: FieldMap, key: str, answer: Answer
    ) -> None:
        document = answer.json_object() or {}
        named = tuple(name for name in document if "nonce" in name.lower())
        paths = field_map.get(NONCES, named)
        nonce = _number([one for path in paths for one in lookup(document, path)])
        if nonce is None:
            return
        if findings.edition >= SEVENTH:
            findings.judge(NO_NONCE, nonce >= 0, f"the next nonce is {nonce}", answer)
        known, first = self.nonces.get(key, (nonce, answer.exchange))
        if _follows(first, answer):
            why = f"the next nonce was {known}, and is {nonce}"
            findings.judge(NONCE, nonce >= known, why, first, answer)
        if nonce >= known:
            self.nonces[key] = nonce, answer.exchange


def _judge_total(
    findings: Findings, field_map: FieldMap, document: dict[str, Json], answer: Answer
) -> None:
    """Rule on the three amounts of an account, where their names tell them apart."""
    paths = field_map.get(MONEY, ())
    locked = [path for path in paths if _LOCKED.search(path)]
    whole = [path for path in paths if _WHOLE.search(path) and path not in locked]
    free = [path for path in paths if path not in (*locked, *whole)]
    if not len(locked) == len(whole) == len(free) == 1:
        return
    amounts = [_number(lookup(document, path)) for path in (*free, *locked, *whole)]
    if None not in amounts:
        first, second, total = (amount or 0 for amount in amounts)
        why = f"{free[0]} {first} and {locked[0]} {second} beside {whole[0]} {total}"
        findings.judge(TOTAL, first + second == total, why, answer)


def _judge_sign(
    findings: Findings, field_map: FieldMap, document: dict[str, Json], answer: Answer
) -> None:
    """Rule on the amounts of an account, of which none is below 0, whatever it has paid."""
    amounts = {path: lookup(document, path) for path in field_map.get(MONEY, ())}
    if amounts and findings.edition >= SEVENTH:
        below = {path: one for path, one in amounts.items() if any(map(_is_below, one))}
        findings.judge(BELOW, not below, f"an account has {brief(below)}", answer)


def _is_below(amount: Json) -> bool:
    return isinstance(amount, str) and amount.startswith("-") and amount.strip("-0") != ""


def _judge_spelling(findings: Findings, ident: str, record: Json, answer: Answer) -> None:
    """Rule on the letters of a state in the record of a request."""
    for member, text in _members(record):
        if _STATE.search(member) and text.lower() in STATES and findings.edition >= SEVENTH:
            why = f"the request {ident} has the {member} {brief(text)}"
            findings.judge(SPELT, text in STATES, why, answer)


def _number(found: list[Json]) -> int | None:
    """Return the one whole number, in digits or as a number, None if there is no such."""
    value = found[0] if len(found) == 1 else None
    if isinstance(value, str) and value.isdecimal() and len(value) <= DIGITS:
        return int(value)
    return int(value) if is_int(value) else None


def entries_of_page(
    field_map: FieldMap, path: str, document: dict[str, Json]
) -> Iterator[tuple[int, Json]]:
    """Yield the entries of a page with their numbers, where it has one list of as many."""
    key, declared = PAGES[path], field_map.get(f"{path} {PAGES[path]}")
    lists = [value for value in document.values() if isinstance(value, list) and value]
    if declared is not None:
        numbers = [value for each in declared for value in lookup(document, each)]
    else:
        entries = lists[0] if len(lists) == 1 else []
        numbers = [entry.get(key) for entry in entries if isinstance(entry, dict)]
    fitting = [some for some in lists if len(some) == len(numbers)]
    if len(fitting) == 1 and len(set(map(str, numbers))) == len(numbers):
        for number, entry in zip(numbers, fitting[0], strict=True):
            if is_int(number):
                yield int(number), entry


def _members(document: Json, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the texts in a document, with the paths to them, which are one for all of a list."""
    if isinstance(document, str):
        yield path, document
    elif isinstance(document, dict):
        for name, value in document.items():
            yield from _members(value, f"{path}.{name}" if path else name)
    elif isinstance(document, list):
        for value in document:
            yield from _members(value, f"{path}[]")


def _follows(earlier: Exchange, answer: Answer) -> bool:
    """Return whether a request was sent only after another one was answered."""
    return answer.exchange.at_s >= earlier.at_s + earlier.took_ms / 1000
