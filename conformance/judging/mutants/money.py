"""Mutants of what all answers of a run say of money, and of amounts in unusual forms."""

import json
from dataclasses import replace
from typing import Any

from conformance.judging.hooks import INFERENCE, Http, on, put
from conformance.judging.mutants.mixed_native import API, SEND, become, query_of
from conformance.judging.toy.answers import Asked, Response, Sent, day, error, now
from conformance.judging.toy.node import SECOND

WALLET = f"{API}/wallet"
BALANCE, HISTORY, STAKE = (f"{WALLET}/{name}" for name in ("balance", "transactions", "stake"))
PROOFS = f"{API}/proofs"
OF_SECOND = f"Bearer {SECOND}"
SMALL, ODD, ATOMS, VAST = 0.01, 0.0103, 10**6, 1e12


class Lending:
    """An account that has nothing sends all the same."""

    def __init__(self) -> None:
        self.poor = False

    def __call__(self, asked: Asked, response: Response) -> None:
        """Look what the second account has, and make a transfer of it that it cannot pay."""
        if asked.path == BALANCE and asked.authorization == OF_SECOND:
            self.poor = response.json["balances"]["available"] == 0
        if asked.path == SEND and response.status == 402 and self.poor:
            made = {"transaction_id": "lent", "from": "second", "fee": 0.0005,
                    "status": "confirmed", "timestamp": now()}  # fmt: skip
            become(response, Response(json={**made, **asked.body}))


class OtherTotals:
    """A total that lacks a unit in every second balance that is another one."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __call__(self, asked: Asked, response: Response) -> None:
        """Look which balance it is."""
        if asked.path != BALANCE or response.status != 200:
            return
        figures = response.json["balances"]
        key = {**figures}
        if key not in self.seen:
            self.seen.append(key)
        if self.seen.index(key) % 2:
            figures["total"] += 1


class Moving:
    """A figure of the second account's balance that moves with each such answer."""

    def __init__(self, path: str, status: int, name: str, step: float, free: int = 0) -> None:
        self.path, self.status, self.name, self.step, self.free = path, status, name, step, free
        self.many = 0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Count, and move what is shown."""
        if (asked.method, asked.path, response.status) == ("POST", self.path, self.status):
            self.many += 1
        if asked.path == BALANCE and asked.authorization == OF_SECOND:
            response.json["balances"][self.name] += max(0, self.many - self.free) * self.step


class Rewritten:
    """Requests that are read as if they were others."""

    def __init__(self, path: str, old: bytes, new: bytes) -> None:
        self.path, self.old, self.new = path, old, new

    def __call__(self, asked: Asked, response: Response) -> None:
        """Leave the answer as it is."""

    def rewrite(self, sent: Sent) -> Sent:
        """Change the bytes of the body."""
        if sent.method != "POST" or sent.target.partition("?")[0] != self.path:
            return sent
        return replace(sent, body=sent.body.replace(self.old, self.new))


class Cut:
    """Amounts of as many atoms as 32 bits hold."""

    def __call__(self, asked: Asked, response: Response) -> None:
        """Leave the answer as it is."""

    def rewrite(self, sent: Sent) -> Sent:
        """Cut the amount of a transfer."""
        body = json.loads(sent.body) if (sent.method, sent.target) == ("POST", SEND) else {}
        if isinstance(body.get("amount"), float):
            atoms = int(body["amount"] * ATOMS) % 2**32
            return replace(sent, body=json.dumps({**body, "amount": atoms / ATOMS}).encode())
        return sent


class Listed:
    """Entries at the beginning of a history, of requests that it should not list."""

    def __init__(self, reader: str | None, status: int) -> None:
        self.reader, self.status = reader, status
        self.entries: list[Any] = []

    def __call__(self, asked: Asked, response: Response) -> None:
        """Keep what is sent, and list it for another account."""
        body = asked.body if isinstance(asked.body, dict) else {}
        if (asked.path, response.status) == (SEND, self.status) and asked.authorized:
            odd = body.get("amount") == ODD and "to" in body
            mine = body.get("to") == "second" if self.reader else odd
            if mine and asked.authorization == OF_SECOND:
                ident = (response.json or {}).get("transaction_id", f"r{len(self.entries)}")
                self.entries.insert(0, {"id": ident, "type": "send", "amount": -body["amount"],
                                        "timestamp": now(), "to": "second"})  # fmt: skip
        if asked.path == HISTORY and response.status == 200 and asked.authorization != self.reader:
            response.json["transactions"] = self.entries + response.json["transactions"]
            response.json["total"] += len(self.entries)


def named_account(asked: Asked, response: Response) -> None:
    """Show the balance of the account that a query names."""
    if asked.path == BALANCE and "second" in query_of(asked).values():
        response.json["address"] = "second"


def too_large(asked: Asked, response: Response) -> None:
    """Fail for amounts that a number of 64 bits does not hold."""
    body = asked.body if isinstance(asked.body, dict) else {}
    amount = body.get("amount")
    if asked.path in (SEND, STAKE) and isinstance(amount, float) and amount > VAST:
        become(response, error(500, "INTERNAL", "an overflow"))


def of_now(key: str) -> Any:
    """Give each entry of a list the time of its reading."""

    def change(response: Response) -> None:
        for entry in response.json[key]:
            entry["timestamp"] = now()

    return change


class Falling:
    """A number that is lower each time."""

    def __init__(self, path: str, key: str) -> None:
        self.path, self.key, self.left = path, key, 10_000

    def __call__(self, asked: Asked, response: Response) -> None:
        """Count down."""
        if asked.path == self.path and response.status == 200:
            self.left -= 1
            put(self.key, self.left)(response)


def end_told(response: Response) -> None:
    """Tell the end of the list as the offset of a page behind it."""
    response.json["offset"] = min(response.json["offset"], response.json["total"])


def taken_back(response: Response) -> None:
    """List rewards below zero."""
    for entry in response.json["transactions"]:
        if entry["type"] == "reward":
            entry["amount"] = -entry["amount"]


def alike(response: Response) -> None:
    """Name a fee as the reward before it."""
    for entry in response.json["transactions"]:
        if entry["id"] == "t3":
            entry.update(id="t1", type="reward", amount=0.1,
                         details={"proof_id": "p1", "role": "worker"})  # fmt: skip


def a_unit_more(response: Response) -> None:
    """List what is received with a unit more."""
    for entry in response.json["transactions"]:
        entry["amount"] += entry["type"] == "receive"


def called_a_send(response: Response) -> None:
    """List what is received as what is sent."""
    for entry in response.json["transactions"]:
        entry["type"] = "send" if entry["type"] == "receive" else entry["type"]


def of_one_name(response: Response) -> None:
    """Name all proofs alike."""
    for proof in response.json["proofs"]:
        proof["id"] = "p1"


def all_for_none(asked: Asked, response: Response) -> None:
    """List proofs where none is asked for."""
    if asked.path == PROOFS and query_of(asked).get("limit") == "0" and response.status == 200:
        proof = {"id": "p0", "type": "forward", "layer": 1, "timestamp": "2026-01-01T00:00:00Z",
                 "verified": True, "reward": 0.1}  # fmt: skip
        response.json["proofs"] = [proof]


def required_by_far(response: Response) -> None:
    """Require the amount of thousands of generations."""
    response.json["error"]["details"]["required"] = 1000.0


def submitted_one(response: Response) -> None:
    """Count one proof of two."""
    response.json["stats"].update(total_submitted=1, total_verified=1, total_reward=0.1)


HTTP: list[tuple[str, Http]] = [
    ("NA-WALLET-080", OtherTotals()),
    ("NA-WALLET-081", on(STAKE, put("stake.unlock_date", day(31)), "POST")),
    ("NA-WALLET-082", Rewritten(STAKE, b'{"duration_days"', b'{"amount": 0.01, "duration_days"')),
    ("NA-WALLET-083", Moving(SEND, 200, "pending", SMALL)),
    ("NA-WALLET-084", Moving(INFERENCE, 400, "available", -SMALL)),
    ("NA-WALLET-085", Moving(SEND, 200, "available", -SMALL, free=1)),
    ("NA-WALLET-086", Listed(None, 400)),
    ("NA-WALLET-087", named_account),
    ("NA-WALLET-088", Rewritten(SEND, b"10.0E-1", b'"10.0E-1"')),
    ("NA-WALLET-089", Rewritten(SEND, b'"memo": "Conformance"', b'"memo": "Conformance"}')),
    ("NA-WALLET-090", Rewritten(SEND, b'"secpoe"', b'"second"')),
    ("NA-ERR-040", Cut()),
    ("NA-ERR-041", too_large),
    ("NA-ERR-042", on(INFERENCE, required_by_far, "POST", 402)),
    ("NA-ERR-043", Lending()),
    ("NA-QUERY-030", Listed(OF_SECOND, 200)),
    ("NA-QUERY-031", on(HISTORY, of_now("transactions"))),
    ("NA-QUERY-032", Falling(HISTORY, "total")),
    ("NA-QUERY-033", on(HISTORY, end_told)),
    ("NA-QUERY-034", on(HISTORY, taken_back)),
    ("NA-QUERY-035", on(HISTORY, alike)),
    ("NA-QUERY-036", on(HISTORY, a_unit_more)),
    ("NA-QUERY-037", on(HISTORY, called_a_send)),
    ("NA-PROOFS-030", on(PROOFS, of_now("proofs"))),
    ("NA-PROOFS-031", on(PROOFS, of_one_name)),
    ("NA-PROOFS-033", on(PROOFS, submitted_one)),
    ("NA-PROOFS-034", Falling(PROOFS, "stats.total_submitted")),
    ("NA-PROOFS-035", on(PROOFS, put("stats.total_reward", 0))),
    ("NA-PROOFS-036", all_for_none),
]
