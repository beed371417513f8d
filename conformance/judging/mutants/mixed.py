"""Mutants that show only where requests, parameters or accounts meet; see `followed.py`."""

from typing import Any

from conformance.judging.hooks import CONFIG, INFERENCE, Http, events, inference
from conformance.judging.toy.answers import Asked, Response, error

API = "/api/v1"
WALLET, LAYERS, METRICS = f"{API}/wallet", f"{API}/layers", f"{API}/metrics"
# Less than what other checks send.
TINY = 0.002
# More than anybody has.
MUCH = 1e6
LONG_PAGE = 100


def turned(values: list[Any]) -> list[Any]:
    """Exchange the second token and the fourth."""
    if len(values) > 4:
        second, fourth = values[1]["token"], values[3]["token"]
        values[1]["token"], values[3]["token"] = fourth, second
    return values


def unlike_alone(body: Any, response: Response) -> None:
    """Leave the first word away of a text with a maximum and several stop sequences."""
    if "stop" in body and "max_tokens" in body and len(body["stop"]) > 1:
        response.json["text"] = response.json["text"].partition(" ")[2]


class TinyLost:
    """A node that takes tiny transfers from their senders and gives them to nobody."""

    def __init__(self) -> None:
        self.owner: dict[str, str | None] = {}
        self.lost: dict[str | None, float] = {}

    def __call__(self, asked: Asked, response: Response) -> None:
        """Learn who is who, add up what is lost, and show so much less."""
        account = asked.authorization
        if response.status != 200 or not asked.path.startswith(WALLET):
            return
        if asked.path == f"{WALLET}/send" and asked.body["amount"] < TINY:
            to = self.owner.get(asked.body["to"])
            if to != account:
                self.lost[to] = self.lost.get(to, 0.0) + asked.body["amount"]
        if asked.path == f"{WALLET}/balance":
            self.owner[response.json["address"]] = account
            for key in ("available", "total"):
                response.json["balances"][key] -= self.lost.get(account, 0.0)


class StakedByNobody:
    """A node that refuses a stake without a token, and locks the money of the first account."""

    def __init__(self) -> None:
        self.first: str | None = None
        self.locked = 0.0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Add up what is locked, and show it."""
        if asked.path == f"{WALLET}/balance" and response.status == 200:
            self.first = self.first or asked.authorization
            if asked.authorization == self.first:
                response.json["balances"]["available"] -= self.locked
                response.json["balances"]["staked"] += self.locked
        if asked.path == f"{WALLET}/stake" and response.status == 401:
            amount = (asked.body or {}).get("amount")
            self.locked += amount if isinstance(amount, float) else 0.0


def tiny_listed_whole(asked: Asked, response: Response) -> None:
    """List tiny transfers without what is behind the third decimal."""
    if asked.path == f"{WALLET}/transactions" and response.status == 200:
        for row in response.json["transactions"]:
            row["amount"] = round(row["amount"], 3)


class FromTheFirst:
    """A node that names the first account as the sender of every transfer."""

    def __init__(self) -> None:
        self.first: str | None = None

    def __call__(self, asked: Asked, response: Response) -> None:
        """Remember the first address that was read, and write it."""
        if response.status == 200 and asked.path == f"{WALLET}/balance":
            self.first = self.first or response.json["address"]
        if response.status == 200 and asked.path == f"{WALLET}/send":
            response.json["from"] = self.first


def offset_alone(asked: Asked, response: Response) -> None:
    """Show nothing where an offset comes without a limit."""
    alone = "offset" in asked.query and "limit" not in asked.query
    if asked.path == f"{WALLET}/transactions" and response.status == 200 and alone:
        response.json["transactions"] = []


class Open:
    """A node that does not look at the token of a request that follows a served one."""

    def __init__(self) -> None:
        self.served = 0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Serve the layers once, after somebody has been served."""
        if asked.path == LAYERS and response.status == 401 and self.served:
            response.__dict__.update(Response(200, {"layers": []}).__dict__)
        self.served = self.served + 1 if response.status == 200 else 0


class OneOfMany:
    """A node that counts one of the generations that end between two looks at its metrics."""

    def __init__(self) -> None:
        self.since = self.less = 0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Count them, and show so many less."""
        if asked.path == INFERENCE and response.status == 200:
            self.since += 1
        if asked.path == METRICS and response.status == 200:
            # Other checks look after two at most.
            self.less += max(self.since - 1, 0) if self.since > 2 else 0
            self.since = 0
            response.json["inference"]["requests_total"] -= self.less


class SeenByItsMaker:
    """A node that shows a change of the configuration to whoever has made it."""

    def __init__(self) -> None:
        self.made: str | None = None
        self.before: Any = None

    def __call__(self, asked: Asked, response: Response) -> None:
        """Keep what was there first, and show it to others."""
        if asked.path != CONFIG or response.status != 200:
            return
        if asked.method == "PATCH":
            self.made = asked.authorization
        elif self.before is None:
            self.before = response.json
        elif self.made not in (None, asked.authorization):
            response.json = self.before


class RefusedAtOnce:
    """A node that refuses every third request with a token that it has just let in."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Count readings of one route, with a page."""
        if asked.path == f"{WALLET}/transactions" and response.status == 200 and asked.query:
            self.calls += 1
            if self.calls % 3 == 0:
                refused = error(401, "UNAUTHORIZED", "the token is not known")
                response.__dict__.update(refused.__dict__)


class PaidOtherwise:
    """A node that names another currency to every account but the first that it has seen."""

    def __init__(self) -> None:
        self.first: str | None = None

    def __call__(self, asked: Asked, response: Response) -> None:
        """Remember who came first, and rename the currency of others."""
        if asked.path == INFERENCE and response.status == 200 and response.events is None:
            self.first = self.first or asked.authorization
            if asked.authorization != self.first:
                response.json["cost"]["currency"] = "units"


class IdOfTheBody:
    """A node that makes the id of a result of the request, so that a repeated one has it again."""

    def __init__(self) -> None:
        self.ids: dict[str, str] = {}

    def __call__(self, body: Any, response: Response) -> None:
        """Give out the id that this body had first."""
        response.json["id"] = self.ids.setdefault(str(body), response.json["id"])


class StreamsOfTheFirst:
    """A node that takes what a stream costs from the first account."""

    def __init__(self) -> None:
        self.first: str | None = None
        self.less = 0.0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Add it up, and show so much less."""
        if asked.path == INFERENCE and response.events is not None:
            self.less += TINY
        if asked.path == f"{WALLET}/balance" and response.status == 200:
            self.first = self.first or asked.authorization
            if asked.authorization == self.first:
                for key in ("available", "total"):
                    response.json["balances"][key] -= self.less


def offset_refused(asked: Asked, response: Response) -> None:
    """Refuse an offset that comes without a limit."""
    alone = "offset" in asked.query and "limit" not in asked.query
    if asked.path == f"{WALLET}/transactions" and response.status == 200 and alone:
        response.__dict__.update(error(400, "INVALID_REQUEST", "limit is missing").__dict__)


def nothing_is_open(asked: Asked, response: Response) -> None:
    """Make a change of nothing for whoever shows no token at all."""
    nothing = asked.path == CONFIG and asked.method == "PATCH" and asked.body == {}
    if nothing and response.status == 401 and asked.authorization is None:
        made = {"success": True, "updated": [], "restart_required": False}
        response.__dict__.update(Response(200, made).__dict__)


def amount_before_token(asked: Asked, response: Response) -> None:
    """Look at the amount before the token."""
    amount = asked.body.get("amount") if isinstance(asked.body, dict) else None
    if response.status == 401 and isinstance(amount, float) and amount > MUCH:
        refused = error(402, "INSUFFICIENT_BALANCE", "too little", required=amount, available=0)
        response.__dict__.update(refused.__dict__)


def query_before_token(asked: Asked, response: Response) -> None:
    """Look at the query before the token."""
    if response.status == 401 and "many" in asked.query:
        response.__dict__.update(error(400, "INVALID_REQUEST", "no number").__dict__)


class AbsentWhileOff:
    """A node without one of its routes while training is turned off."""

    def __init__(self) -> None:
        self.off = False

    def __call__(self, asked: Asked, response: Response) -> None:
        """Learn whether it is off, and answer as if the route were not there."""
        if asked.path == CONFIG and asked.method == "PATCH" and response.status == 200:
            self.off = asked.body.get("training", {}).get("enabled", not self.off) is False
        if asked.path == "/api/training/global" and self.off:
            response.__dict__.update(error(404, "NOT_FOUND", "no such path").__dict__)


def one_section(asked: Asked, response: Response) -> None:
    """Refuse a change of keys in two sections."""
    changed = asked.path == CONFIG and asked.method == "PATCH" and response.status == 200
    if changed and len(asked.body) > 1:
        refused = error(400, "INVALID_REQUEST", "one section at a time")
        response.__dict__.update(refused.__dict__)


class Shortest:
    """A node that keeps the shortest page of proofs that anybody has asked for."""

    def __init__(self) -> None:
        self.shortest = LONG_PAGE

    def __call__(self, asked: Asked, response: Response) -> None:
        """Cut a page as short as the shortest before it."""
        if asked.path == f"{API}/proofs" and response.status == 200 and asked.query:
            self.shortest = min(self.shortest, len(response.json["proofs"]))
            response.json["proofs"] = response.json["proofs"][: self.shortest]


def no_limit_at_zero(asked: Asked, response: Response) -> None:
    """Take a limit of 0 for none."""
    page = asked.path == f"{WALLET}/transactions" and response.status == 200
    if page and "limit=0" in asked.query:
        row = {"id": "t1", "type": "fee", "amount": -0.1, "timestamp": "2026-01-01T00:00:00Z"}
        response.json["transactions"] = [row]


HTTP: list[tuple[str, Http]] = [
    ("NA-QUERY-019", Shortest()),
    ("NA-QUERY-020", no_limit_at_zero),
    ("NA-INF-045", events(lambda values: values[:2] + values[3:])),
    ("NA-WALLET-052", StreamsOfTheFirst()),
    ("NA-QUERY-018", offset_refused),
    ("NA-AUTH-033", nothing_is_open),
    ("NA-AUTH-023", amount_before_token),
    ("NA-AUTH-034", query_before_token),
    ("NA-ROUTE-018", AbsentWhileOff()),
    ("NA-PATCH-121", one_section),
    ("NA-SANE-040", PaidOtherwise()),
    ("NA-SANE-041", inference(IdOfTheBody())),
    ("NA-INF-045", events(turned)),
    ("NA-INF-045", inference(unlike_alone)),
    ("NA-WALLET-052", TinyLost()),
    ("NA-WALLET-052", StakedByNobody()),
    ("NA-WALLET-053", tiny_listed_whole),
    ("NA-WALLET-013", FromTheFirst()),
    ("NA-QUERY-018", offset_alone),
    ("NA-AUTH-032", Open()),
    ("NA-AUTH-032", RefusedAtOnce()),
    ("NA-COUNT-008", OneOfMany()),
    ("NA-PATCH-113", SeenByItsMaker()),
]
