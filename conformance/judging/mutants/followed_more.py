"""Mutants of effects that a second stranger's node has shown; see `followed.py`."""

from typing import Any

from conformance.judging.hooks import CONFIG, INFERENCE, Http, on
from conformance.judging.toy.answers import Asked, Response, error

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
        response.json["blocks"] = [
            {"height": height, "hash": f"hash{height}"} for height in range(many, 0, -1)
        ]


def fee_as_send(asked: Asked, response: Response) -> None:
    """List the fee of each send as another send."""
    if asked.path == f"{WALLET}/transactions" and response.status == 200:
        found = response.json["transactions"]
        more = [{**one, "id": f"{one['id']}-fee"} for one in found if one["type"] == "send"]
        response.json["transactions"] = found + more
        response.json["total"] += len(more)


HTTP: list[tuple[str, Http]] = [
    ("NA-AUTH-024", ChangedFirst()),
    ("NA-WALLET-032", on(f"{WALLET}/send", in_ascii, "POST")),
    ("NA-WALLET-033", OtherCharged()),
    ("NA-COUNT-007", CountedAsAsked()),
    ("NT-RULE-035", of_the_next),
    ("NT-RULE-036", unreadable),
    ("NT-PAGE-007", oldest),
    ("NA-WALLET-034", fee_as_send),
]
