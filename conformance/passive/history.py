"""Interface 2.1 and 4.1: what the pages of transactions and proofs of a whole run say.

A check compares the pages that it asked for itself; this looks at all of them. A transfer is in
the history of its sender, and of nobody but its two accounts; an entry and a proof are of one time.
How an entry is shown while it is settled is not said, so it may change once.
"""

import threading
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace

from conformance.editions import SEVENTH
from conformance.findings import Findings
from conformance.httprequest import Credential
from conformance.httpwire import Answer
from conformance.journal import Exchange
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_int, is_number

OFFSET, LIMIT, LENGTH = "NA-QUERY-003", "NA-QUERY-010", "NA-QUERY-023"
LISTED, OF_OTHERS, ONE, FALLS = "NA-WALLET-053", "NA-QUERY-030", "NA-QUERY-031", "NA-QUERY-032"
BEHIND, REWARD, NAMED = "NA-QUERY-033", "NA-QUERY-034", "NA-QUERY-035"
RECEIVED, OUTGOING, CALLED = "NA-QUERY-036", "NA-QUERY-007", "NA-QUERY-037"
MOST = {"transactions": "NA-QUERY-002", "proofs": "NA-QUERY-005"}
PROOF, PROOF_NAMED = "NA-PROOFS-030", "NA-PROOFS-031"
COUNTED, COUNTS_FALL, PAID = "NA-PROOFS-033", "NA-PROOFS-034", "NA-PROOFS-035"
NONE = "NA-PROOFS-036"
HISTORY_IDS = frozenset(
    {OFFSET, LIMIT, LENGTH, LISTED, OF_OTHERS, ONE, FALLS, BEHIND, REWARD, NAMED, RECEIVED}
) | {OUTGOING, CALLED, MOST["transactions"]}
PROOF_IDS = frozenset({PROOF, PROOF_NAMED, COUNTED, COUNTS_FALL, PAID, NONE, MOST["proofs"]})
IDS = HISTORY_IDS | PROOF_IDS
# The largest limit is not specified, but each node with pages has some of this length.
SMALL = 10
# Amounts are shown with six decimals at least.
ROUNDING = 1e-6
# Once a list may have grown between its entries and its total.
TWICE = 2
# A reward that is so much above what is paid for all is more than one that is paid later.
HALF = 0.5
Row = dict[str, Json]


@dataclass(frozen=True)
class Sent:
    """A transfer that was made, and by whom."""

    sender: Credential
    source: Json
    to: str
    amount: float
    fee: float
    exchange: Exchange


@dataclass
class Seen:
    """The values that one thing has had, one after another, and the exchange of each."""

    values: list[tuple[Hashable, Exchange]] = field(default_factory=list)

    def changes(self, value: Hashable, answer: Answer) -> bool:
        """Add a value; return whether it is a third one, or one from which it has changed."""
        if self.values and self.values[-1][0] == value:
            return False
        self.values.append((value, answer.exchange))
        return len(self.values) > TWICE


@dataclass
class Lists:
    """What a target has listed so far, and the transfers that it should list."""

    sent: dict[str, Sent] = field(default_factory=dict)
    """By transaction_id."""
    entries: dict[tuple[Hashable, ...], Seen] = field(default_factory=dict)
    proofs: dict[str, Seen] = field(default_factory=dict)
    repeated: bool = False
    """Whether proofs share their ids."""
    totals: dict[Credential, tuple[int, Exchange]] = field(default_factory=dict)
    counts: dict[tuple[Credential, str], tuple[float, Exchange]] = field(default_factory=dict)
    unlike: Counter[tuple[Hashable, ...]] = field(default_factory=Counter)
    """How often a page was not as long as it says."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def judge(
        self,
        findings: Findings,
        resource: str,
        account: tuple[Credential, Json],
        asked: Json | Mapping[str, object],
        answer: Answer,
    ) -> None:
        """Rule on an answer to an account, given with its address, and all answers before it.

        ``asked`` is the body of a transfer, and the query of a page.
        """
        document = answer.json_object() if answer.ok else None
        if document is None:
            return
        with self.lock:
            if resource == "transfer":
                self._keep(account, asked, document, answer)
            elif resource == "transactions":
                self._judge_page(findings, account[0], asked, document, answer)
                self._judge_entries(findings, account, document, answer)
            elif resource == "proofs":
                self._judge_proofs(findings, account[0], asked, document, answer)

    def _keep(
        self, account: tuple[Credential, Json], body: object, result: Row, answer: Answer
    ) -> None:
        ident, fee = result.get("transaction_id"), result.get("fee")
        found = body if isinstance(body, dict) else {}
        to, amount, memo = found.get("to"), found.get("amount"), found.get("memo", "")
        if not (isinstance(to, str) and is_number(amount) and amount > 0 and isinstance(memo, str)):
            # What becomes of a body that the document does not show is open.
            return
        if isinstance(ident, str) and result.get("success") is not False:
            cost = float(fee) if is_number(fee) else 0.0
            self.sent[ident] = Sent(*account, to, float(amount), cost, answer.exchange)

    def _judge_page(
        self, findings: Findings, account: Credential, query: object, document: Row, answer: Answer
    ) -> None:
        rows, total = document.get("transactions"), document.get("total")
        if not isinstance(rows, list) or not is_int(total):
            return
        start, limit = _asked(query, "offset") or 0, _asked(query, "limit")
        told, most = document.get("offset"), document.get("limit")
        if limit:
            _judge_most(findings, "transactions", limit, rows, answer)
        if is_int(told):
            why = f"offset is {told} on the page from {start} on, of {total} entries"
            findings.judge(OFFSET if start <= total else BEHIND, told == start, why, answer)
        if limit and limit <= SMALL and is_number(most):
            findings.judge(LIMIT, most == limit, f"limit is {most} for {limit}", answer)
        if is_int(most) and most > 0:
            wanted = max(0, min(int(most), int(total) - start))
            why = f"a page of {len(rows)} entries from {start} on tells a limit of {most}"
            self._judge_often(findings, LENGTH, (account, start, limit), len(rows) == wanted,
                              f"{why} and a total of {total}", answer)  # fmt: skip
        before, first = self.totals.get(account, (0, answer.exchange))
        if _follows(first, answer):
            why = f"total was {before}, and is {total}"
            findings.judge(FALLS, total >= before, why, first, answer)
        if total >= before:
            self.totals[account] = int(total), answer.exchange

    def _judge_often(
        self, findings: Findings, ident: str, key: tuple[Hashable, ...], held: bool, why: str,
        answer: Answer,
    ) -> None:  # fmt: skip
        """Rule on what a list that grows at this moment may show once."""
        self.unlike[ident, *key] += not held
        self.unlike[ident,] += not held
        if held:
            findings.holds(ident, answer)
        elif self.unlike[ident, *key] >= TWICE or self.unlike[ident,] > TWICE:
            findings.fails(ident, why, answer)

    def _judge_entries(
        self, findings: Findings, account: tuple[Credential, Json], document: Row, answer: Answer
    ) -> None:
        listed = document.get("transactions")
        rows = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
        for row in rows:
            sent = self.sent.get(str(row.get("id")))
            if sent is not None and _follows(sent.exchange, answer):
                _judge_transfer(findings, sent, account, row, answer)
            if row.get("type") == "send" and isinstance(row.get("id"), str):
                self._judge_entry(findings, account[0], row, answer)
        paid = [row["amount"] for row in rows if row.get("type") == "reward" and "amount" in row]
        if paid:
            below = [amount for amount in paid if is_number(amount) and amount < 0]
            findings.judge(REWARD, not below, f"rewards are {brief(below)}", answer)
        _judge_named(findings, NAMED, rows, answer)

    def _judge_entry(
        self, findings: Findings, account: Credential, row: Row, answer: Answer
    ) -> None:
        amount = row.get("amount")
        size = round(abs(amount), 6) if is_number(amount) else None
        shown = self.entries.setdefault((account, str(row.get("id")), str(row.get("to"))), Seen())
        value = str(row.get("timestamp")), size
        changed = shown.changes(value, answer)
        if changed or len(self.entries) > 1:
            why = f"the entry {brief(row.get('id'))} had {brief([*map(_first, shown.values)], 160)}"
            findings.judge(ONE, not changed, why, *(one for _, one in shown.values[-3:]), answer)

    def _judge_proofs(
        self, findings: Findings, account: Credential, query: object, document: Row, answer: Answer
    ) -> None:
        listed, limit = document.get("proofs"), _asked(query, "limit")
        if not isinstance(listed, list):
            return
        if limit is not None:
            if limit:
                _judge_most(findings, "proofs", limit, listed, answer)
            else:
                findings.judge(NONE, not listed, f"limit=0 has {len(listed)} proofs", answer)
        rows = [row for row in listed if isinstance(row, dict)]
        self.repeated |= not _judge_named(findings, PROOF_NAMED, rows, answer)
        for row in rows if not self.repeated else ():
            shown = self.proofs.setdefault(str(row.get("id")), Seen())
            changed = shown.changes((str(row.get("timestamp")), str(row.get("layer"))), answer)
            why = f"the proof {brief(row.get('id'))} had {brief([*map(_first, shown.values)], 160)}"
            findings.judge(PROOF, not changed, why, *(one for _, one in shown.values[-3:]), answer)
        self._judge_counts(findings, account, rows, document, answer)

    def _judge_counts(
        self, findings: Findings, account: Credential, rows: list[Row], document: Row,
        answer: Answer,
    ) -> None:  # fmt: skip
        """Rule on the statistics, which are of all proofs, those of this page among them."""
        good = [row for row in rows if row.get("verified") is True]
        for name, least in (("total_submitted", len(rows)), ("total_verified", len(good))):
            for count in lookup(document, f"stats.{name}"):
                if rows and is_number(count):
                    why = f"{name} is {count}, and {least} such proofs are on the page"
                    # Statistics may be counted a moment after a proof is listed.
                    self._judge_often(findings, COUNTED, (name, least), count >= least, why, answer)
        rewards = sum(float(one) for row in good if is_number(one := row.get("reward")))
        for paid in lookup(document, "stats.total_reward"):
            if rewards > ROUNDING and is_number(paid):
                why = f"total_reward is {paid}, and verified proofs of {rewards:g} are on the page"
                findings.judge(PAID, paid >= HALF * rewards, why, answer)
        for name in ("total_submitted", "total_verified", "total_reward"):
            for count in lookup(document, f"stats.{name}"):
                if not is_number(count):
                    continue
                before, first = self.counts.get((account, name), (0.0, answer.exchange))
                if _follows(first, answer):
                    held = count >= before - ROUNDING
                    why = f"{name} was {before:g}, and is {count:g}"
                    findings.judge(COUNTS_FALL, held, why, first, answer)
                self.counts[account, name] = float(count), answer.exchange


def _first(pair: tuple[Hashable, Exchange]) -> str:
    return str(pair[0])


def _asked(query: object, name: str) -> int | None:
    """Return a number of a query, None where it names none."""
    value = query.get(name) if isinstance(query, Mapping) else None
    return int(value) if isinstance(value, int) else None


def _judge_most(
    findings: Findings, name: str, limit: int, rows: list[Json], answer: Answer
) -> None:
    why = f"{len(rows)} entries for limit={limit}"
    findings.judge(MOST[name], len(rows) <= limit, why, answer)


def _judge_named(findings: Findings, ident: str, rows: list[Row], answer: Answer) -> bool:
    """Rule on the ids of the entries of a page, of which none is that of another one.

    What is one transaction may be several entries, of other types or signs.
    """
    named = Counter((str(row.get("id")), str(row.get("type")), _is_below(row)) for row in rows)
    twice = [name for (name, _, _), many in named.items() if many > 1]
    if len(rows) > 1:
        findings.judge(ident, not twice, f"entries of one page are named {brief(twice)}", answer)
    return not twice


def _is_below(row: Row) -> bool:
    amount = row.get("amount")
    return is_number(amount) and amount < 0


def _judge_transfer(
    findings: Findings, sent: Sent, account: tuple[Credential, Json], row: Row, answer: Answer
) -> None:
    """Rule on the entry of a transfer in the history of an account."""
    reader, own = account
    if own == sent.source or reader == sent.sender:
        amount, to = row.get("amount"), row.get("to")
        if row.get("type") != "send" or sent.to == own or not is_number(amount):
            # What goes to the account itself may be listed as it comes and as it goes.
            return
        held = _is_amount(sent, amount)
        same = not isinstance(to, str) or to.casefold() == sent.to.casefold()
        why = f"a transfer of {sent.amount:g} to {brief(sent.to)} is listed as {brief(row, 160)}"
        findings.judge(LISTED, held and same, why, sent.exchange, answer)
        if findings.edition >= SEVENTH:
            # Whether it has lost its last digits is another question.
            findings.judge(OUTGOING, amount <= 0, why, sent.exchange, answer)
    elif isinstance(own, str) and isinstance(sent.source, str):
        why = f"a transfer to {brief(sent.to)} of {brief(sent.source)} is listed for {brief(own)}"
        held = sent.to.casefold() == own.casefold()
        findings.judge(OF_OTHERS, held, why, sent.exchange, answer)
        if held and is_number(amount := row.get("amount")) and row.get("type") != "fee":
            why = f"{sent.amount:g} were received, and are listed as {brief(row, 160)}"
            # He has the amount, and not the fee.
            whole = _is_amount(replace(sent, fee=0.0), amount)
            findings.judge(RECEIVED, whole, why, sent.exchange, answer)
        if held and isinstance(row.get("type"), str) and findings.edition >= SEVENTH:
            why = f"what was received is listed as {brief(row, 160)}"
            findings.judge(CALLED, row["type"] != "send", why, sent.exchange, answer)


def _is_amount(sent: Sent, amount: float) -> bool:
    """Whether an entry has the amount of a transfer; whether it includes the fee is not said."""
    slack = ROUNDING * max(1.0, sent.amount)
    costs = sent.amount, sent.amount + sent.fee
    return any(abs(abs(amount) - cost) <= slack for cost in costs)


def _follows(earlier: Exchange, answer: Answer) -> bool:
    """Return whether a request was sent only after another one was answered."""
    return answer.exchange.at_s >= earlier.at_s + earlier.took_ms / 1000
