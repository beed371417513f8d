"""Mutants that drawn combinations show: of pages, keys, connections and bodies; see `followed.py`.

Each breaks a rule for some combination only: a page that is shorter than its limit, an account that
is read behind another one, a request without a token behind one that has it.
"""

import time
from collections.abc import Callable
from typing import Any

from conformance.judging.hooks import CONFIG, INFERENCE, Http, raw_events, serving
from conformance.judging.toy.answers import Asked, Response, error

API = "/api/v1"
WALLET = f"{API}/wallet"
BALANCE, SEND, STAKE = f"{WALLET}/balance", f"{WALLET}/send", f"{WALLET}/stake"
ACCOUNT, REQUEST = "/api/account", "/api/inference/request"
POOR, UNAUTHORIZED, SHORT = 402, 401, 3


def become(response: Response, other: Response) -> None:
    """Answer something else."""
    response.__dict__.update(other.__dict__)


def refuse(response: Response) -> None:
    """Answer that the token is not known."""
    become(response, error(UNAUTHORIZED, "UNAUTHORIZED", "the token is not known"))


def query_of(asked: Asked) -> dict[str, str]:
    """Return the parameters of a query."""
    return dict(pair.split("=", 1) for pair in asked.query.split("&") if "=" in pair)


def filled_up(asked: Asked, response: Response) -> None:
    """Fill a page of blocks up with later ones, where fewer are left than its limit."""
    query = query_of(asked)
    above = "before" in query and int(query["before"]) <= int(query["limit"])
    if asked.path == "/api/blocks" and above:
        numbers = range(int(query["limit"]), 0, -1)
        blocks = [{"height": number, "hash": f"hash{number}"} for number in numbers]
        become(response, Response(json={"blocks": blocks}))


def first_round_left_out(asked: Asked, response: Response) -> None:
    """Leave the first round out of each page with a bound."""
    if asked.path == "/api/training" and "before" in query_of(asked):
        response.json["records"] = [one for one in response.json["records"] if one["round"] > 1]


def even_bounds_skip_one(asked: Asked, response: Response) -> None:
    """Begin one block too low where both parameters are even."""
    query = query_of(asked)
    both = [int(query.get(key, "1")) % 2 for key in ("limit", "before")]
    if asked.path == "/api/blocks" and both == [0, 0]:
        response.json["blocks"] = response.json["blocks"][1:]


def bounds_of_both_refused(asked: Asked, response: Response) -> None:
    """Refuse a page of updates with a limit of more than four and a bound."""
    query = query_of(asked)
    asked_for = asked.path == "/api/training" and "before" in query
    if asked_for and 4 < int(query.get("limit", "0")) < 10:
        become(response, Response(400, {"error": "not both"}))


def short_pages_of_another(asked: Asked, response: Response) -> None:
    """Give the blocks of a page of up to three another hash."""
    short = asked.path == "/api/blocks" and int(query_of(asked).get("limit", "9")) <= SHORT
    if short and "before" in asked.query:
        for block in response.json["blocks"]:
            block["hash"] = f"hash{block['height'] - 1}"


class AccountBefore:
    """A node that shows for a key that nobody has what it has read before."""

    def __init__(self) -> None:
        self.before: Any = None

    def __call__(self, asked: Asked, response: Response) -> None:
        """Remember an account with money."""
        if asked.path == ACCOUNT and response.status == 200:
            if response.json["balance"] != "0":
                self.before = response.json
            elif self.before is not None:
                response.json = self.before


class UnusedKept:
    """A node that shows nothing for an account behind one that nobody has."""

    def __init__(self) -> None:
        self.before: Any = None

    def __call__(self, asked: Asked, response: Response) -> None:
        """Remember an account without money, for one reading."""
        if asked.path == ACCOUNT and response.status == 200:
            money = response.json["balance"] != "0"
            if money and self.before is not None:
                response.json = self.before
            self.before = None if money else response.json


def odd_keys_refused(asked: Asked, response: Response) -> None:
    """Refuse keys that begin with 03."""
    if asked.path == ACCOUNT and query_of(asked).get("public_key", "").startswith("03"):
        become(response, Response(400, {"error": "no key"}))


class RecordBefore:
    """A node that shows the record before under each id that is new to it."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}

    def __call__(self, asked: Asked, response: Response) -> None:
        """Remember each record."""
        if asked.path == REQUEST and response.status == 200:
            ident = query_of(asked)["id"]
            if ident not in self.known and self.known:
                response.json = list(self.known.values())[-1]
            self.known[ident] = response.json


def unrefunded(asked: Asked, response: Response) -> None:
    """Say only that a request is expired."""
    if asked.path == REQUEST and response.status == 200:
        response.json = {**response.json, "status": "expired"}


class Remembering:
    """A connection that remembers that it has had a valid token."""

    def __init__(self, method: str) -> None:
        """Requests of this ``method`` are served then."""
        self.method = method
        self.good: set[int] = set()

    def __call__(self, asked: Asked, response: Response) -> None:
        """Remember the connections."""
        if asked.authorized and response.status == 200:
            self.good.add(asked.connection)
        known = asked.connection in self.good and asked.authorization is None
        if known and response.status == UNAUTHORIZED and asked.method == self.method:
            become(response, Response(json={}))


class Refusing:
    """A connection that refuses every request behind one that it has refused."""

    def __init__(self) -> None:
        self.bad: set[int] = set()

    def __call__(self, asked: Asked, response: Response) -> None:
        """Remember the connections."""
        if response.status == UNAUTHORIZED:
            self.bad.add(asked.connection)
        elif asked.connection in self.bad:
            refuse(response)


class Ending:
    """A connection that ends without a word behind a request that is refused."""

    def __init__(self) -> None:
        self.bad: set[int] = set()

    def __call__(self, asked: Asked, response: Response) -> None:
        """Remember the connections, each until its next request."""
        if asked.connection in self.bad:
            self.bad.discard(asked.connection)
            response.reset = True
        elif response.status in (POOR, UNAUTHORIZED):
            self.bad.add(asked.connection)


class AccountOfConnection:
    """A connection on which everybody reads the account that was read first."""

    def __init__(self) -> None:
        self.first: dict[int, Any] = {}

    def __call__(self, asked: Asked, response: Response) -> None:
        """Remember the first balance of each connection."""
        if asked.path == BALANCE and response.status == 200:
            response.json = self.first.setdefault(asked.connection, response.json)


class RefusedAfter:
    """A token that is refused once after it was used for something that got another status."""

    def __init__(self, status: int) -> None:
        """After a refusal with this ``status``."""
        self.status = status
        self.blocked: set[str | None] = set()

    def __call__(self, asked: Asked, response: Response) -> None:
        """Remember who was refused, until the next request."""
        if response.status == self.status and asked.authorized:
            self.blocked.add(asked.authorization)
        elif asked.authorization in self.blocked and response.status == 200:
            self.blocked.discard(asked.authorization)
            refuse(response)


def taken(path: str, key: str) -> Http:
    """Take a body of a route with a value in an array."""

    def hook(asked: Asked, response: Response) -> None:
        wrapped = isinstance(asked.body, dict) and isinstance(asked.body.get(key), list)
        if asked.path == path and response.status == 400 and wrapped:
            become(response, Response(json={"success": True, "transaction_id": str(time.time())}))

    return hook


def taken_change(asked: Asked, response: Response) -> None:
    """Take a change of which a value is in an array."""
    if asked.path == CONFIG and asked.method == "PATCH" and response.status == 400:
        sections = asked.body.values() if isinstance(asked.body, dict) else ()
        inner = [section for section in sections if isinstance(section, dict)]
        if any(isinstance(value, list) for section in inner for value in section.values()):
            told = {"success": True, "updated": [], "restart_required": False}
            become(response, Response(json=told))


class Completed:
    """A node that completes a transfer with what the one before had."""

    def __init__(self) -> None:
        self.before: Any = None

    def __call__(self, asked: Asked, response: Response) -> None:
        """Remember what was answered to a good one."""
        lacking = isinstance(asked.body, dict) and "to" not in asked.body
        if asked.path == SEND and response.status == 200:
            self.before = response.json
        elif asked.path == SEND and response.status == 400 and lacking and self.before:
            become(response, Response(json=dict(self.before)))


class RefusedButListed:
    """A history that has transfers which were refused."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def __call__(self, asked: Asked, response: Response) -> None:
        """Remember the transfers whose receiver is in an array."""
        body = asked.body if isinstance(asked.body, dict) else {}
        if asked.path == SEND and response.status == 400 and isinstance(body.get("to"), list):
            row = {"id": str(len(self.rows)), "type": "send", "amount": -body["amount"]}
            self.rows.append({**row, "timestamp": "2026-01-01T00:00:00Z", "to": body["to"][0]})
        if asked.path == f"{WALLET}/transactions" and response.status == 200:
            response.json["transactions"] = [*self.rows, *response.json["transactions"]]
            response.json["total"] += len(self.rows)


def wraps(key: str) -> Callable[[Any], bool]:
    """Return a test whether a body has the value of a key in an array or an object."""
    return lambda body: isinstance(body, dict) and isinstance(body.get(key), list | dict)


def told_in_an_event(asked: Asked, response: Response) -> None:
    """Refuse a stream in an event."""
    stream = isinstance(asked.body, dict) and asked.body.get("stream") is True
    if asked.path == INFERENCE and response.status == 400 and stream:
        become(response, Response(events=[response.json]))


class ArrayMade:
    """A configuration that takes a change in an array, and says nothing of it."""

    def __init__(self) -> None:
        self.size: int | None = None

    def __call__(self, asked: Asked, response: Response) -> None:
        """Remember the size of a batch in it."""
        if asked.path != CONFIG or not asked.authorized:
            return
        if asked.method == "PATCH" and isinstance(asked.body, list) and asked.body:
            self.size = asked.body[0]["training"]["batch_size"]
        elif asked.method == "PATCH" and response.status == 200:
            self.size = None
        elif asked.method == "GET" and self.size is not None:
            response.json["training"]["batch_size"] = self.size


HTTP: list[tuple[str, Http]] = [
    ("NT-PAGE-009", filled_up),
    ("NT-PAGE-010", first_round_left_out),
    ("NT-PAGE-010", even_bounds_skip_one),
    ("NT-PAGE-010", bounds_of_both_refused),
    ("NT-PAGE-011", short_pages_of_another),
    ("NT-RULE-059", AccountBefore()),
    ("NT-RULE-059", UnusedKept()),
    ("NT-RULE-060", odd_keys_refused),
    ("NT-RULE-061", RecordBefore()),
    ("NT-RULE-062", unrefunded),
    ("NA-AUTH-027", Remembering("GET")),
    ("NA-AUTH-028", Refusing()),
    ("NA-AUTH-029", AccountOfConnection()),
    ("NA-AUTH-030", Remembering("POST")),
    ("NA-AUTH-031", RefusedAfter(POOR)),
    ("NA-AUTH-031", RefusedAfter(400)),
    ("NA-ROUTE-038", Ending()),
    ("NA-SSE-019", raw_events("data: {}\n\n", ", ", ",\ndata: ")),
    ("NA-WALLET-050", taken(SEND, "to")),
    ("NA-WALLET-050", taken(STAKE, "duration_days")),
    ("NA-WALLET-050", RefusedButListed()),
    ("NA-WALLET-051", Completed()),
    ("NA-INF-043", serving(wraps("temperature"))),
    ("NA-INF-043", serving(wraps("stop"))),
    ("NA-INF-044", told_in_an_event),
    ("NA-PATCH-120", taken_change),
    ("NA-PATCH-120", ArrayMade()),
]
