"""Interface 2.1: what the answers of a whole run say of one thing, whichever checks asked for them.

A name stays what it is, and an id is used once. A check compares the answers that it asked for
itself; this compares all of them.
"""

import threading
from dataclasses import dataclass, field
from http import HTTPStatus

from conformance.findings import Findings
from conformance.httprequest import Credential
from conformance.httpwire import Answer
from conformance.journal import Exchange
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_number

SENT = "NA-SANE-046"
SERVED = "NA-ROUTE-018"
LASTS = "NA-ROUTE-020"
IDS = frozenset({"NA-SANE-040", "NA-SANE-041", "NA-SANE-027", SENT, SERVED, LASTS})
# What says that there is no such route.
ABSENT = (404, 405, 501)
# So often, and for so long, a route fails that was served before, and others are served.
FAILURES, FAILING_S = 3, 5.0
# Two readings so far apart are of two times, in whichever unit these are written.
APART_S = 2.5
COUNTED, TAKEN = "inference.requests_total", "timestamp"
MADE_TOKENS = "inference.tokens_generated"
# Names of the node, of the account that asks, and of what is paid in, by their resource.
NAMES = {"status": "node_id", "balance": "address", "inference": "cost.currency"}
OF_AN_ACCOUNT = "balance"
# What is made anew with each request.
MADE = {"inference": "id", "transfer": "transaction_id"}


@dataclass
class Memory:
    """The names and ids that a target has given so far, each with the exchange that has it."""

    names: dict[tuple[str, Credential | None], tuple[Json, Exchange]] = field(default_factory=dict)
    made: dict[str, dict[str, Exchange]] = field(default_factory=dict)
    counted: dict[str, tuple[Json, Exchange]] = field(default_factory=dict)
    sent: dict[str, Exchange] = field(default_factory=dict)
    """The first transfer of each time."""
    generations: int = 0
    """How many generations were served."""
    begun: tuple[float, int, Exchange] | None = None
    """How many requests the first metrics had, and how many generations were served by then."""
    tokens: float = 0
    """How many tokens the results have had, without those of streams."""
    made_before: tuple[float, float] | None = None
    """How many tokens the first metrics had, and the results by then."""
    uncounted: int = 0
    """How many waits for the metrics to count something have run out since one did not."""
    proofs: dict[Credential, int] = field(default_factory=dict)
    """How many proofs the longest page of an account had that was asked for with a limit."""
    served: dict[str, Exchange] = field(default_factory=dict)
    """The first answer of each route that is read."""
    lost: dict[str, Exchange] = field(default_factory=dict)
    """And the first that says that there is no such route, since then."""
    failed: dict[str, list[Exchange]] = field(default_factory=dict)
    """The answers of each such route that have failed, since it was served."""
    last_ok_s: float = 0.0
    """When a route was served last."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def judge_served(self, findings: Findings, path: str, answer: Answer) -> None:
        """Rule on a route that is read as before, and was served then; once may be a slip."""
        with self.lock:
            if answer.ok:
                if self.served.setdefault(path, answer.exchange) is not answer.exchange:
                    findings.holds(LASTS, answer)
                self.lost.pop(path, None)
                self.failed.pop(path, None)
                self.last_ok_s = answer.exchange.at_s
            elif answer.status in ABSENT and path in self.served:
                first = self.lost.setdefault(path, answer.exchange)
                if first is not answer.exchange:
                    why = f"GET {path} was served, and has status {answer.status} now, twice"
                    findings.fails(SERVED, why, self.served[path], first, answer)
            elif answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR and path in self.served:
                self._judge_failed(findings, path, answer)

    def _judge_failed(self, findings: Findings, path: str, answer: Answer) -> None:
        failed = self.failed.setdefault(path, [])
        failed.append(answer.exchange)
        for_s = failed[-1].at_s - failed[0].at_s
        if len(failed) >= FAILURES and for_s >= FAILING_S and self.last_ok_s > failed[0].at_s:
            why = f"GET {path} was served, and fails since, {len(failed)} times in {for_s:.0f} s"
            findings.fails(LASTS, why, self.served[path], *failed[:2], answer)

    def judge(
        self, findings: Findings, resource: str, credential: Credential, answer: Answer
    ) -> None:
        """Rule on the names and ids of a resource in an answer, given all answers before it."""
        document = answer.json_object() if answer.ok else None
        if document is None:
            return
        with self.lock:
            for path in lookup(document, NAMES.get(resource, "")):
                self._judge_name(findings, resource, credential, path, answer)
            # Without a limit a page may be longer than the largest limit allows.
            limited = "limit=" in answer.exchange.request["url"]
            listed = document.get("proofs") if resource == "proofs" and limited else None
            if isinstance(listed, list):
                self.proofs[credential] = max(len(listed), self.proofs.get(credential, 0))
            self.generations += resource == "inference"
            if resource == "inference" and is_number(made := document.get("tokens_generated")):
                self.tokens += made
            if resource == "metrics":
                self._begin_counting(document, answer)
                self._judge_counted(findings, document, answer)
            if resource == "transfer":
                self._judge_sent(findings, document.get(TAKEN), answer)
            for ident in lookup(document, MADE.get(resource, "")):
                self._judge_made(findings, resource, ident, answer)

    def _judge_name(
        self, findings: Findings, resource: str, credential: Credential, name: Json, answer: Answer
    ) -> None:
        key = (resource, credential if resource == OF_AN_ACCOUNT else None)
        known, first = self.names.setdefault(key, (name, answer.exchange))
        if isinstance(name, str) and first is not answer.exchange:
            why = f"{NAMES[resource]} was {brief(known)}, and is {brief(name)}"
            findings.judge("NA-SANE-040", name == known, why, first, answer)

    def _begin_counting(self, document: dict[str, Json], answer: Answer) -> None:
        total = lookup(document, COUNTED)
        if self.begun is None and total and is_number(total[0]):
            self.begun = float(total[0]), self.generations, answer.exchange
            if (made := lookup(document, MADE_TOKENS)) and is_number(made[0]):
                self.made_before = float(made[0]), self.tokens

    def _judge_counted(self, findings: Findings, document: dict[str, Json], answer: Answer) -> None:
        """Rule on metrics with other figures than before: they are of another time."""
        taken, now = document.get(TAKEN), lookup(document, COUNTED)
        if not isinstance(taken, str) or not now:
            return
        known, first = self.counted.setdefault(taken, (now[0], answer.exchange))
        if known != now[0] and answer.exchange.at_s - first.at_s > APART_S:
            why = f"timestamp is still {brief(taken)}, {COUNTED} went from {known} to {now[0]}"
            findings.fails("NA-SANE-027", why, first, answer)

    def _judge_sent(self, findings: Findings, taken: Json, answer: Answer) -> None:
        """Rule on the time of a transfer: it is not that of one before."""
        if not isinstance(taken, str):
            return
        first = self.sent.setdefault(taken, answer.exchange)
        apart_s = answer.exchange.at_s - first.at_s
        if apart_s > APART_S:
            why = f"timestamp is {brief(taken)}, as that of a transfer {apart_s:.1f} s before"
            findings.fails(SENT, why, first, answer)
        elif len(self.sent) > 1:
            findings.holds(SENT, answer)

    def _judge_made(self, findings: Findings, resource: str, ident: Json, answer: Answer) -> None:
        if not isinstance(ident, str):
            return
        made = self.made.setdefault(resource, {})
        first = made.setdefault(ident, answer.exchange)
        again = first is not answer.exchange
        if again or len(made) > 1:
            why = f"{MADE[resource]} {brief(ident)} is that of an answer before, too"
            findings.judge("NA-SANE-041", not again, why, first, answer)
