"""Interface 2.2: what is committed stays as it is, wherever and whenever it is shown.

A block, an accepted update and a request that is over do not change any more, nor do the genesis,
the data set and the chain itself. So what an answer says of one of them is what each answer before
has said, in lists and by itself, and blocks that follow one another fit together. What is of the
time of the answer is left out, as far as its name says so.
"""

import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

from conformance.findings import Findings
from conformance.httpwire import Answer
from conformance.journal import Exchange
from conformance.passive.chain import ACCOUNT, OF_NOW, OVER, PAGES, REQUEST, entries_of_page
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_int, is_number
from conformance.times import parse_timestamp

FIXED, IDENTITY, LOSS, FIGURES = "NT-RULE-120", "NT-RULE-121", "NT-RULE-122", "NT-RULE-123"
PARENT, ORDER, OWN_KEY, SECRET = "NT-RULE-124", "NT-RULE-125", "NT-RULE-126", "NT-RULE-127"
COUNTED = "NT-RULE-128"
IDS = frozenset({FIXED, IDENTITY, LOSS, FIGURES, PARENT, ORDER, OWN_KEY, SECRET, COUNTED})
FieldMap = Mapping[str, tuple[str, ...]]
DOCUMENTS = ("/network/genesis.json", "/network/dataset.json")
MODEL = "/api/model"
# Documents are compared up to this length.
LONGEST = 1_000_000
_BLOCK = re.compile(r"/api/block/(\d{1,18})\Z", re.ASCII)
_HEX = re.compile(r"(0x)?[0-9a-f]{40,}\Z", re.ASCII | re.IGNORECASE)
_KEY = re.compile(r"0[23][0-9a-f]{64}\Z", re.ASCII | re.IGNORECASE)
# What a resource may call the identity of the chain, or of its genesis.
_NAMED = re.compile(
    r"(chain_?(id|identity)|genesis_?(id|hash|identity|sha256|digest))\Z", re.ASCII | re.IGNORECASE
)
# Beside what OF_NOW has: what tells how long ago something was, what a page may have in short, and
# what is of the page.
_OTHERWISE = re.compile(
    r"age|ago|confirm|depth|since|elapsed|update|seen|served|generated|status|state|final|index"
    r"|cursor|url|href|link|size|bytes|remain|log|prompt|memo|text|info|data|summary|note",
    re.IGNORECASE,
)
# What is of the entry before, and what that one calls its own.
_BEFORE = re.compile(
    r"(prev|previous|parent)(_block|_training)?(_(hash|root|id))?\Z|(training_)?root_before\Z",
    re.ASCII | re.IGNORECASE,
)
_OWN = {
    "/api/blocks": re.compile(r"(block_?)?(hash|id)\Z", re.ASCII | re.IGNORECASE),
    "/api/training": re.compile(r"((training|new)_)?root(_after)?\Z", re.ASCII | re.IGNORECASE),
}
_RESULTS = re.compile(r"(\w*_)?results\Z", re.ASCII | re.IGNORECASE)
_SIGNED = re.compile(r"(signed_)?(transactions|txs)\Z", re.ASCII | re.IGNORECASE)
_MANY = re.compile(
    r"(num|number_of)_(txs|transactions)\Z|(tx|txs|transactions?)_count\Z",
    re.ASCII | re.IGNORECASE,
)
_TIME = re.compile(r"(block_?)?(time|timestamp)\Z", re.ASCII | re.IGNORECASE)
_LOSS = re.compile(r"(training_)?loss\Z", re.ASCII | re.IGNORECASE)
_PRIVATE = re.compile(
    rb'"\w*priv(ate)?_?(validator_?)?key"\s*:\s*("|\{[^{}]*")[^"\s]{32,}"', re.IGNORECASE
)
# Lists in a block whose entries have an order of their own.
_INNER = re.compile(r"(results?|transactions?|txs)\Z", re.ASCII | re.IGNORECASE)
Links = dict[int, tuple[set[str], dict[str, str], dict[str, float], Exchange]]


@dataclass
class Committed:
    """What a target has said of each committed thing so far, with the exchange that has it."""

    documents: dict[str, tuple[Answer, Json]] = field(default_factory=dict)
    identities: dict[str, tuple[str, str, Exchange]] = field(default_factory=dict)
    figures: dict[tuple[str, str], tuple[list[str], Exchange]] = field(default_factory=dict)
    links: dict[str, Links] = field(default_factory=dict)
    """By the list: the hashes or roots of an entry, those that are said to be of the one before,
    its times, and the exchange that has it."""
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
        if document is None or path.startswith("/reference/"):
            return
        if len(answer.body) <= LONGEST:
            found = _PRIVATE.search(answer.body)
            name = found[0].partition(b":")[0].decode() if found else ""
            why = f"{path} has a key under {name}"
            findings.judge(SECRET, found is None, why, answer)
        with self.lock:
            self._judge_identity(findings, field_map, path, document, answer)
            block = _BLOCK.match(path)
            if path in DOCUMENTS:
                self._judge_document(findings, path, document, answer)
            elif path in PAGES:
                for number, entry in entries_of_page(field_map, path, document):
                    self._judge_entry(findings, field_map, path, number, entry, answer)
            elif block:
                self._judge_entry(
                    findings, field_map, "/api/blocks", int(block[1]), document, answer
                )
            elif path == MODEL:
                paths = field_map.get(f"{MODEL} parameters", ())
                parts: Json = {at: lookup(document, at)[0] for at in paths if lookup(document, at)}
                self._judge_figures(findings, "the model", parts, answer)
            elif path == REQUEST and _is_over(document):
                self._judge_figures(findings, f"the request {query.get('id')}", document, answer)
            elif path == ACCOUNT:
                _judge_key(findings, str(query.get("public_key")), document, answer)

    def _judge_document(
        self, findings: Findings, path: str, document: Json, answer: Answer
    ) -> None:
        first, known = self.documents.setdefault(path, (answer, document))
        if first is not answer and len(answer.body) <= LONGEST:
            same = answer.body == first.body or known == document
            why = f"{path} has other contents than in an answer before"
            findings.judge(FIXED, same, why, first, answer)

    def _judge_identity(
        self, findings: Findings, field_map: FieldMap, path: str, document: Json, answer: Answer
    ) -> None:
        """Rule on the identities of chain and genesis, where they are declared or called so."""
        found = [
            (kind, value)
            for kind in ("chain", "genesis")
            for each in field_map.get(f"{path} {kind}", ())
            for value in lookup(document, each)
        ]
        if isinstance(document, dict):
            found += [(name, value) for name, value in document.items() if _NAMED.match(name)]
        for name, value in found:
            if not isinstance(value, str):
                continue
            known, there, first = self.identities.setdefault(name, (value, path, answer.exchange))
            # The genesis may be named in several ways.
            if first is not answer.exchange and (name != "genesis" or len(known) == len(value)):
                why = f"the {name} of {path} is {brief(value)}, that of {there} {brief(known)}"
                findings.judge(IDENTITY, value == known, why, first, answer)

    def _judge_entry(
        self, findings: Findings, field_map: FieldMap, path: str, number: int, entry: Json,
        answer: Answer,
    ) -> None:  # fmt: skip
        thing = f"{PAGES[path]} {number}"
        self._judge_figures(findings, thing, entry, answer)
        if not isinstance(entry, dict):
            return
        if path == "/api/blocks":
            _judge_counts(findings, thing, entry, answer)
        links = self.links.setdefault(path, {})
        texts = {
            name: value.lower().removeprefix("0x")
            for name, value in entry.items()
            if isinstance(value, str) and _HEX.match(value)
        }
        before = {name: text for name, text in texts.items() if _BEFORE.match(name)}
        own = {text for name, text in texts.items() if _OWN[path].match(name)}
        times = {n: moment for n, v in entry.items() if _TIME.match(n) and (moment := _moment(v))}
        if number not in links:
            links[number] = own, before, times, answer.exchange
            for lower in (number - 1, number):
                if lower in links and lower + 1 in links:
                    _judge_pair(findings, path, (lower, links[lower]), links[lower + 1])

    def _judge_figures(
        self, findings: Findings, thing: str, document: Json, answer: Answer
    ) -> None:
        """Rule on what is committed of one thing, as far as it was shown before."""
        found: dict[str, list[str]] = {}
        for name, text in _figures(document):
            found.setdefault(name, []).append(text)
        compared = dict[str, list[str]]()
        for name, texts in found.items():
            # A list may be in another order, or shown in part.
            key = thing, f"{name} {len(texts)}"
            known, first = self.figures.setdefault(key, (sorted(texts), answer.exchange))
            if first is answer.exchange:
                continue
            ident = LOSS if _LOSS.match(name) and thing.startswith("round ") else FIGURES
            compared.setdefault(ident, [])
            if known != sorted(texts):
                now = brief(sorted(texts))
                compared[ident].append(f"{thing}: {name} was {brief(known)}, and is {now}")
                shown = first
        for ident, wrong in compared.items():
            if wrong:
                findings.fails(ident, wrong[0], shown, answer)
            else:
                findings.holds(ident, answer)


def _judge_pair(
    findings: Findings,
    path: str,
    lower: tuple[int, tuple[set[str], dict[str, str], dict[str, float], Exchange]],
    higher: tuple[set[str], dict[str, str], dict[str, float], Exchange],
) -> None:
    """Rule on two entries that follow one another."""
    number, (own, _, times, first) = lower
    _, before, later, second = higher
    key = PAGES[path]
    if own and before:
        wrong = {name: text for name, text in before.items() if text not in own}
        why = f"{key} {number + 1} has {brief(wrong)}, and {key} {number} {brief(sorted(own))}"
        findings.judge(PARENT, not wrong, why, first, second)
    both = [name for name in times if name in later]
    if key == "height" and both:
        back = [name for name in both if later[name] < times[name]]
        why = f"the {brief(back)} of {key} {number + 1} is before that of {key} {number}"
        findings.judge(ORDER, not back, why, first, second)


def _judge_counts(findings: Findings, thing: str, entry: dict[str, Json], answer: Answer) -> None:
    """Rule on how many transactions a block has, and on their results."""
    many = {n: len(v) for n, v in entry.items() if isinstance(v, list) and _RESULTS.match(n)}
    many |= {n: len(v) for n, v in entry.items() if isinstance(v, list) and _SIGNED.match(n)}
    many |= {n: int(str(v)) for n, v in entry.items() if is_int(v) and _MANY.match(n)}
    if len(many) > 1:
        why = f"{thing} has {brief(many)}"
        findings.judge(COUNTED, len(set(many.values())) == 1, why, answer)


def _judge_key(findings: Findings, asked: str, document: dict[str, Json], answer: Answer) -> None:
    """Rule on the key that an account names."""
    named = document.get("public_key")
    if isinstance(named, str) and _KEY.match(named) and _KEY.match(asked):
        why = f"the account of {asked} names {named}"
        findings.judge(OWN_KEY, named.lower() == asked.lower(), why, answer)


def _is_over(record: dict[str, Json]) -> bool:
    words = {value.lower() for value in record.values() if isinstance(value, str)}
    return len(words & OVER) == 1


def _figures(document: Json) -> Iterator[tuple[str, str]]:
    """Yield what is committed of a thing, with the names of it, each written in one way."""
    for name, value in document.items() if isinstance(document, dict) else ():
        if OF_NOW.search(name) or _OTHERWISE.search(name):
            continue
        if isinstance(value, list) and _INNER.match(name):
            for one in value:
                for inner, held in one.items() if isinstance(one, dict) else ():
                    text = _written(held)
                    if text and not (OF_NOW.search(inner) or _OTHERWISE.search(inner)):
                        yield f"{name}[].{inner}", text
        elif text := _written(value):
            yield name, text


def _written(value: Json) -> str:
    """Return a figure, a time or a text in one form, and nothing for what is none of these."""
    if isinstance(value, bool) or is_number(value):
        return _plain(str(value))
    if not isinstance(value, str):
        return ""
    moment = parse_timestamp(value)
    return moment.replace(microsecond=0).isoformat() if moment else _plain(value.lower())


def _plain(text: str) -> str:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return text
    return str(number.normalize()) if number.is_finite() else text


def _moment(value: Json) -> float | None:
    """Return a time as a number that orders it among others of the same form."""
    if is_int(value):
        return float(str(value))
    moment = parse_timestamp(value) if isinstance(value, str) else None
    return moment.timestamp() if moment and moment.tzinfo else None
