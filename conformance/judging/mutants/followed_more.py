"""Mutants of effects that a second stranger's node has shown; see `followed.py`."""

import time
from typing import Any

from conformance.judging.hooks import CONFIG, INFERENCE, Http, on, put
from conformance.judging.toy.answers import Asked, Response, day, error
from conformance.judging.toy.native import JOBS, TIP, job_of

WALLET, METRICS = "/api/v1/wallet", "/api/v1/metrics"


class ChangedFirst:
    """A node that changes its configuration before it looks at the token."""

    def __init__(self) -> None:
        self.changed: dict[str, Any] = {}

    def __call__(self, asked: Asked, response: Response) -> None:
        """Keep what a refused change says, and show it."""
        if asked.path != CONFIG:
            return
        if asked.method == "PATCH" and response.status == 401:
            self.changed = asked.body["training"]
        elif asked.method == "GET" and response.status == 200:
            response.json["training"].update(self.changed)


class OtherCharged:
    """A node that charges each generation of the second account to the first one too."""

    def __init__(self) -> None:
        self.first: str | None = None
        self.charged = 0.0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Add up the costs, and show so much less to the account that was seen first."""
        if asked.path.startswith(WALLET) and response.status == 200:
            self.first = self.first or asked.authorization
        if response.status != 200 or response.json is None:
            return
        if asked.path == INFERENCE and asked.authorization != self.first:
            self.charged += response.json["cost"]["amount"]
        if asked.path == f"{WALLET}/balance" and asked.authorization == self.first:
            response.json["balances"]["available"] -= self.charged


class CountedAsAsked:
    """A node that counts what was asked for instead of what was generated."""

    def __init__(self) -> None:
        self.more = 0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Add what was not generated to the metrics."""
        if response.status != 200 or response.json is None:
            return
        if asked.path == INFERENCE:
            body = asked.body
            self.more += body.get("max_tokens", 100) - response.json["tokens_generated"]
        if asked.path == METRICS:
            response.json["inference"]["tokens_generated"] += self.more


class PartAtOnce:
    """A node where a tenth of what is unstaked is available at once."""

    def __init__(self) -> None:
        self.early = 0.0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Add up the tenths, and show them."""
        if response.status == 200 and asked.path == f"{WALLET}/unstake":
            self.early += response.json["unstake"]["amount"] / 10
        if response.status == 200 and asked.path == f"{WALLET}/balance":
            response.json["balances"]["available"] += self.early


class LockedCounts:
    """A node that takes for a stake what is staked already."""

    def __init__(self) -> None:
        self.taken = self.staked = 0.0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Accept a stake of more than is available, as far as that goes, and show it."""
        if asked.path == f"{WALLET}/stake" and response.status == 402:
            details = response.json["error"]["details"]
            if details["required"] - details["available"] < max(1, self.staked):
                self.taken += details["required"]
                stake = {"amount": details["required"], "duration_days": 30, "multiplier": 1}
                stake |= {"start_date": day(0), "unlock_date": day(30)}
                done = {"success": True, "stake": stake}
                done["new_balance"] = {"available": 0, "staked": self.staked + self.taken}
                response.status, response.json = 200, done
        elif asked.path == f"{WALLET}/balance" and response.status == 200:
            balances = response.json["balances"]
            self.staked = balances["staked"]
            balances["available"] -= self.taken
            balances["staked"] += self.taken
            balances["total"] += self.taken


class OnlyWithMemo:
    """A node that does not list transfers without a memo."""

    def __init__(self) -> None:
        self.hidden: set[str] = set()

    def __call__(self, asked: Asked, response: Response) -> None:
        """Hide the transfers whose request had none."""
        if response.status != 200:
            return
        if asked.path == f"{WALLET}/send" and "memo" not in asked.body:
            self.hidden.add(response.json["transaction_id"])
        if asked.path == f"{WALLET}/transactions":
            found = response.json["transactions"]
            response.json["transactions"] = [one for one in found if one["id"] not in self.hidden]


class Drawn:
    """A node that lets a sender take from the receiver."""

    def __init__(self) -> None:
        self.sender: str | None = None
        self.drawn = 0.0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Book amounts below zero, which the toy leaves to its layer."""
        if asked.path == f"{WALLET}/send" and asked.body.get("amount", 0) < 0:
            self.sender, self.drawn = asked.authorization, self.drawn - asked.body["amount"]
        if asked.path == f"{WALLET}/balance" and response.status == 200 and self.sender:
            own = asked.authorization == self.sender
            response.json["balances"]["available"] += self.drawn if own else -self.drawn


class ProofsInTurn:
    """A list of proofs that begins with another one each time."""

    def __init__(self) -> None:
        self.reads = 0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Turn the list."""
        if asked.path == "/api/v1/proofs" and response.status == 200:
            self.reads += 1
            found = response.json["proofs"]
            at = self.reads % max(len(found), 1)
            response.json["proofs"] = found[at:] + found[:at]


class Forgetful:
    """A node that comes back to its old configuration with the second reading after a change."""

    def __init__(self) -> None:
        self.old: int | None = None
        self.reads = 0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Show what was there before the change."""
        if asked.path != CONFIG or response.status != 200:
            return
        if asked.method == "PATCH":
            self.reads = 0
            return
        self.reads += 1
        training = response.json["training"]
        self.old = training["batch_size"] if self.old is None else self.old
        if self.reads > 1:
            training["batch_size"] = self.old


def in_atoms(asked: Asked, response: Response) -> None:
    """Give the fee of a transfer in the smallest unit."""
    if asked.path == f"{WALLET}/send" and response.status == 200:
        response.json["fee"] = response.json["fee"] * 10**9 + 10**9


def in_fractions(asked: Asked, response: Response) -> None:
    """Refuse an amount without a decimal point."""
    if asked.path == f"{WALLET}/send" and isinstance(asked.body.get("amount"), int):
        refusal = error(400, "INVALID_REQUEST", "amount is no decimal number")
        response.__dict__.update(refusal.__dict__)


def no_budget(asked: Asked, response: Response) -> None:
    """Show an account without one of its amounts."""
    if asked.path == "/api/account" and response.status == 200:
        response.json = {"balance": response.json["balance"]}


def back_to_sender(asked: Asked, response: Response) -> None:
    """Name the sender as the receiver."""
    if asked.path == f"{WALLET}/send" and response.status == 200:
        response.json["to"] = response.json["from"]


def total_left(asked: Asked, response: Response) -> None:
    """Count only the entries from the offset on, but one at least."""
    if asked.path == f"{WALLET}/transactions" and response.status == 200:
        left = response.json["total"] - response.json["offset"]
        response.json["total"] = max(left, 1)


def twice_as_fast(response: Response) -> None:
    """Count two seconds for each."""
    response.json["uptime_seconds"] = int(2 * time.monotonic())


def in_ascii(response: Response) -> None:
    """Drop letters of a memo that are not ASCII."""
    response.json["memo"] = response.json["memo"].encode("ascii", "ignore").decode()


def of_the_next(asked: Asked, response: Response) -> None:
    """Show each block with the hash of the block behind it."""
    if asked.path.startswith("/api/block/") and response.status == 200:
        height = int(asked.path.rpartition("/")[2])
        response.json = {**response.json, "hash": f"hash{height + 1}"}


def unreadable(asked: Asked, response: Response) -> None:
    """Fail at blocks by their height."""
    if asked.path.startswith("/api/block/") and response.status == 200:
        response.__dict__.update(error(500, "INTERNAL", "no such key").__dict__)


def oldest(asked: Asked, response: Response) -> None:
    """List the oldest blocks where no bound is given."""
    if asked.path == "/api/blocks" and response.status == 200 and "before" not in asked.query:
        many = len(response.json["blocks"])
        response.json["blocks"] = [{"height": height} for height in range(many, 0, -1)]


def forgets_jobs(asked: Asked, response: Response) -> None:
    """Know only the requests of the four latest blocks."""
    if asked.path == "/api/inference/request" and response.status == 200:
        known = {job_of(TIP - back, at) for back in range(4) for at in range(JOBS)}
        if response.json["id"] not in known:
            response.__dict__.update(Response(404, {"error": "no such request"}).__dict__)


def fee_as_send(asked: Asked, response: Response) -> None:
    """List the fee of each send as another send."""
    if asked.path == f"{WALLET}/transactions" and response.status == 200:
        found = response.json["transactions"]
        more = [{**one, "id": f"{one['id']}-fee"} for one in found if one["type"] == "send"]
        response.json["transactions"] = found + more
        response.json["total"] += len(more)


class CreditedAnyway:
    """A node that gives a receiver one unit of a transfer that it refuses."""

    def __init__(self) -> None:
        self.sender: str | None = None
        self.given = 0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Count the refusals, and show more to the other account."""
        if asked.path == f"{WALLET}/send" and response.status == 402:
            self.sender = asked.authorization
            self.given += 1
        other = self.given and asked.authorization != self.sender
        if asked.path == f"{WALLET}/balance" and response.status == 200 and other:
            response.json["balances"]["available"] += self.given
            response.json["balances"]["total"] += self.given


class FreedByParts:
    """A node that frees all that is staked when a part of it is unstaked."""

    def __init__(self) -> None:
        self.freed: set[str | None] = set()

    def __call__(self, asked: Asked, response: Response) -> None:
        """Show that the rest is free today."""
        if response.status != 200:
            return
        if asked.path == f"{WALLET}/unstake":
            self.freed.add(asked.authorization)
        if asked.path == f"{WALLET}/balance" and asked.authorization in self.freed:
            response.json["staking"]["unlock_date"] = day(0)


def on_credit(asked: Asked, response: Response) -> None:
    """Serve a generation that the account cannot pay for."""
    if asked.path == INFERENCE and response.status == 402:
        cost = response.json["error"]["details"]["required"]
        served = {"id": str(time.monotonic()), "text": "a", "tokens_generated": 1}
        served |= {"finish_reason": "stop", "cost": {"amount": cost, "currency": "TOY"}}
        served["usage"] = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        served["timing"] = {"queue_ms": 0, "inference_ms": 0.1, "total_ms": 0.1}
        response.__dict__.update(Response(200, served).__dict__)


class LastTaken:
    """A node that takes what an account has for a generation that it refuses."""

    def __init__(self) -> None:
        self.taken: dict[str | None, float] = {}

    def __call__(self, asked: Asked, response: Response) -> None:
        """Add up what there was at each refusal, and show so much less."""
        account = asked.authorization
        if asked.path == INFERENCE and response.status == 402:
            had = response.json["error"]["details"]["available"]
            self.taken[account] = self.taken.get(account, 0.0) + had
        if asked.path == f"{WALLET}/balance" and response.status == 200:
            left = response.json["balances"]["available"] - self.taken.get(account, 0.0)
            response.json["balances"]["available"] = max(left, 0.0)


def without_the_last(asked: Asked, response: Response) -> None:
    """Leave out the last entry of a full page."""
    if asked.path == f"{WALLET}/transactions" and response.status == 200:
        found, limit = response.json["transactions"], response.json["limit"]
        if 1 < len(found) == limit:
            response.json["transactions"] = found[:-1]


def fails_at_words(asked: Asked, response: Response) -> None:
    """Fail where a limit is a word."""
    if asked.path == "/api/v1/proofs" and "limit=many" in asked.query:
        response.__dict__.update(error(500, "INTERNAL", "invalid literal").__dict__)


def proofs_from_the_second(asked: Asked, response: Response) -> None:
    """Begin with the second proof where there is a limit."""
    if asked.path == "/api/v1/proofs" and response.status == 200 and "limit" in asked.query:
        response.json["proofs"] = response.json["proofs"][1:]


HTTP: list[tuple[str, Http]] = [
    ("NA-ERR-021", CreditedAnyway()),
    ("NA-ERR-025", on_credit),
    ("NA-ERR-025", LastTaken()),
    ("NA-QUERY-008", without_the_last),
    ("NA-QUERY-009", proofs_from_the_second),
    ("NA-QUERY-016", fails_at_words),
    ("NA-AUTH-024", ChangedFirst()),
    ("NA-WALLET-032", on(f"{WALLET}/send", in_ascii, "POST")),
    ("NA-WALLET-033", OtherCharged()),
    ("NA-COUNT-007", CountedAsAsked()),
    ("NT-RULE-035", of_the_next),
    ("NT-RULE-036", unreadable),
    ("NT-PAGE-007", oldest),
    ("NT-RULE-037", on("/api/network", put("height", 6))),
    ("NA-WALLET-001", back_to_sender),
    ("NA-WALLET-019", PartAtOnce()),
    ("NA-WALLET-035", OnlyWithMemo()),
    ("NA-WALLET-036", in_atoms),
    ("NA-WALLET-037", Drawn()),
    ("NA-WALLET-038", in_fractions),
    ("NT-RULE-026", no_budget),
    ("NA-QUERY-015", ProofsInTurn()),
    ("NA-PATCH-117", Forgetful()),
    ("NA-QUERY-011", total_left),
    ("NA-SANE-016", on("/api/v1/status", twice_as_fast)),
    ("NA-ERR-022", LockedCounts()),
    ("NA-WALLET-034", fee_as_send),
]
# Of many requests, which a new chain does not have, and of stakes that end before their date.
OF_TOY: list[tuple[str, Http]] = [("LIM-008", forgets_jobs), ("NA-WALLET-028", FreedByParts())]
