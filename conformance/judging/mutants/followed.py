"""Mutants of effects that only somebody sees who follows them: twice, in two places, at an edge.

The rows have the form of those in `rules.py`.
"""

import json
from typing import Any

from conformance.judging.hooks import CONFIG, INFERENCE, Grpc, Http, inference, on, put, serving
from conformance.judging.mutants import followed_bodies as bodies
from conformance.judging.mutants import followed_crossed as crossed
from conformance.judging.mutants import followed_edges as edges
from conformance.judging.mutants import followed_figures as figures
from conformance.judging.mutants import followed_lasting as lasting
from conformance.judging.mutants import followed_later as later
from conformance.judging.mutants import followed_left as left
from conformance.judging.mutants import followed_native as natives
from conformance.judging.mutants import followed_next as following
from conformance.judging.mutants import followed_odd as odd
from conformance.judging.mutants import followed_pairs as pairs
from conformance.judging.mutants import followed_places as places
from conformance.judging.mutants import followed_refused as refused
from conformance.judging.mutants import followed_situations as situations
from conformance.judging.mutants import followed_sizes as sizes
from conformance.judging.mutants import followed_tensors as tensors
from conformance.judging.mutants import (
    later_answers,
    mixed,
    mixed_grpc,
    mixed_native,
    money,
    openai_mixed,
    overlay,
    texts,
)
from conformance.judging.mutants.followed_calls import GRPC, OF_TOY
from conformance.judging.mutants.followed_more import HTTP as MORE
from conformance.judging.mutants.followed_more import OF_TOY as MORE_OF_TOY
from conformance.judging.toy.answers import (
    Asked,
    Response,
    day,
    error,
    no_grpc_hook,
    no_http_hook,
    now,
)

WALLET, METRICS = "/api/v1/wallet", "/api/v1/metrics"
TRANSACTIONS = f"{WALLET}/transactions"
# A change of fewer keys is partial.
WHOLE = 3


def pages(change: Any) -> Http:
    """Change the pages of blocks."""

    def hook(asked: Asked, response: Response) -> None:
        if asked.path == "/api/blocks" and response.status == 200 and response.json:
            response.json["blocks"] = change(response.json["blocks"])

    return hook


def another_record(asked: Asked, response: Response) -> None:
    """Name a request in each block, and return another one for it."""
    if asked.path.startswith("/api/block/") and response.status == 200:
        response.json = {**response.json, "request_id": "ab" * 32}
    if asked.path == "/api/inference/request":
        record = response.json if response.status == 200 else {}
        response.__dict__.update(Response(200, {**record, "id": "cd" * 32}).__dict__)


def removable(asked: Asked, response: Response) -> None:
    """Say that a view was removed."""
    if asked.path.startswith("/reference/") and asked.method == "DELETE":
        response.__dict__.update(Response(200, {"deleted": True}).__dict__)


def broken_work(asked: Asked, response: Response) -> None:
    """Fail at each message of a worker."""
    if asked.path == "/work/poll":
        response.__dict__.update(Response(500, {"error": "undefined"}).__dict__)


def open_stream(asked: Asked, response: Response) -> None:
    """Serve streams to everybody."""
    body = asked.body if isinstance(asked.body, dict) else {}
    if asked.path == INFERENCE and response.status == 401 and body.get("stream"):
        response.__dict__.update(Response(events=[]).__dict__)


def beginnings(asked: Asked, response: Response) -> None:
    """Accept every token that only begins like a valid one."""
    resembles = (asked.authorization or "").endswith("-not-this-one")
    if (asked.path, asked.method, response.status) == (CONFIG, "GET", 401) and resembles:
        response.__dict__.update(Response(200, {}).__dict__)


class FifthRefused:
    """A node that refuses every fifth reading of its configuration."""

    def __init__(self) -> None:
        self.reads = 0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Count the readings."""
        if asked.path == CONFIG and asked.method == "GET" and response.status == 200:
            self.reads += 1
            if self.reads % 5 == 0:
                response.__dict__.update(error(401, "UNAUTHORIZED", "not now").__dict__)


def body_first(asked: Asked, response: Response) -> None:
    """Judge the body before the token."""
    if asked.method == "POST" and response.status == 401 and asked.body == {}:
        response.__dict__.update(error(400, "INVALID_REQUEST", "the body is empty").__dict__)


class Unstaked:
    """A node that ends the whole stake when a part of it is asked for."""

    def __init__(self) -> None:
        self.ended = False

    def __call__(self, asked: Asked, response: Response) -> None:
        """Show that nothing is staked any more."""
        if response.status == 200 and asked.path == f"{WALLET}/unstake":
            self.ended = True
        if response.status == 200 and asked.path == f"{WALLET}/balance" and self.ended:
            response.json["balances"]["staked"] = response.json["staking"]["amount"] = 0


class Refused:
    """A node that takes half a unit for each refusal."""

    def __init__(self) -> None:
        self.taken = 0.0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Count the refusals, and show less."""
        self.taken += 0.5 * (response.status == 402)
        if asked.path == f"{WALLET}/balance" and response.status == 200:
            response.json["balances"]["available"] -= self.taken


class TwoWorkers:
    """Every other reading of the metrics is that of a process that counted other requests."""

    def __init__(self) -> None:
        self.reads = 0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Show fewer requests every other time."""
        if asked.path == METRICS and response.status == 200:
            self.reads += 1
            more = 1000 * (self.reads % 2)
            response.json["inference"]["requests_total"] += more


class TwoConfigurations:
    """Every other reading of the configuration is that of the start."""

    def __init__(self) -> None:
        self.reads = 0
        self.first: Any = None

    def __call__(self, asked: Asked, response: Response) -> None:
        """Show the configuration of the start every other time."""
        if asked.path == CONFIG and asked.method == "GET" and response.status == 200:
            self.reads += 1
            self.first = self.first or json.loads(json.dumps(response.json))
            if self.reads % 2 == 0:
                response.json = json.loads(json.dumps(self.first))


class Turning:
    """A history whose entries take turns at being the first."""

    def __init__(self) -> None:
        self.reads = 0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Turn the page by one entry more."""
        if asked.path == TRANSACTIONS and response.status == 200:
            self.reads += 1
            entries = response.json["transactions"]
            at = self.reads % max(len(entries), 1)
            response.json["transactions"] = entries[at:] + entries[:at]


def first_stop_only(body: Any, response: Response) -> None:
    """Go on after every stop sequence but the first."""
    if len(body.get("stop", [])) > 1:
        response.json["text"] += f"{body['stop'][-1]} and so on"


class CountedTwice:
    """A node that counts each stream twice."""

    def __init__(self) -> None:
        self.streams = 0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Count the streams, and add them."""
        self.streams += response.events is not None
        if asked.path == METRICS and response.status == 200:
            response.json["inference"]["requests_total"] += self.streams


def stake_refused(response: Response) -> None:
    """Refuse a stake in another way."""
    response.__dict__.update(error(422, "STAKE_TOO_LARGE", "more than there is").__dict__)


def without_its_fee(response: Response) -> None:
    """Accept a transfer of more than there is, and name a fee."""
    sent = {"transaction_id": "a", "from": "a", "to": "b", "amount": 1, "fee": 0.5, "memo": ""}
    sent |= {"status": "confirmed", "timestamp": now()}
    response.__dict__.update(Response(200, sent).__dict__)


def whole_only(asked: Asked, response: Response) -> None:
    """Refuse changes of fewer than three keys."""
    taken = (asked.path, asked.method, response.status) == (CONFIG, "PATCH", 200)
    if taken and sum(len(section) for section in asked.body.values()) < WHOLE:
        response.__dict__.update(error(400, "INCOMPLETE", "not all keys").__dict__)


class PartlyChanged:
    """A configuration that takes the good keys of a refused change."""

    def __init__(self) -> None:
        self.refused = 0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Count the refusals of more than one key, and show them."""
        body = asked.body if isinstance(asked.body, dict) else {}
        if (asked.path, asked.method, response.status) == (CONFIG, "PATCH", 400):
            self.refused += len(body) > 1
        if (asked.path, asked.method, response.status) == (CONFIG, "GET", 200):
            response.json["training"]["batch_size"] += self.refused


class TakenTwice:
    """An account that a larger stake takes its amount from twice."""

    def __init__(self) -> None:
        self.taken = 0.0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Add up the stakes, and show less."""
        if asked.path == f"{WALLET}/stake" and response.status == 200:
            self.taken += asked.body["amount"]
        if asked.path == f"{WALLET}/balance" and response.status == 200:
            response.json["balances"]["available"] -= self.taken


class Shuffled:
    """A history whose pages are sorted after they are cut."""

    def __call__(self, asked: Asked, response: Response) -> None:
        """Sort the page, unless it is the long one."""
        short = asked.path == TRANSACTIONS and "limit=20" not in asked.query
        if short and response.status == 200:
            response.json["transactions"].sort(key=lambda row: row["amount"])


class OfTheStart:
    """A status that has training as it was when somebody first looked."""

    def __init__(self) -> None:
        self.first: Any = None

    def __call__(self, asked: Asked, response: Response) -> None:
        """Show what was seen first, in the configuration or here."""
        if response.status != 200 or asked.path not in (CONFIG, "/api/v1/status"):
            return
        training = response.json.get("training", {})
        if self.first is None and asked.method == "GET":
            self.first = training["enabled"]
        if asked.path == "/api/v1/status":
            training["enabled"] = self.first


def trips(body: Any, response: Response) -> None:
    """Fail at quotes."""
    if '"' in body["prompt"]:
        response.__dict__.update(error(500, "INTERNAL", "unterminated string").__dict__)


def no_result_route(asked: Asked, response: Response) -> None:
    """Have no route for the results of workers."""
    if asked.path == "/work/result":
        response.__dict__.update(Response(404, {"error": "nothing is here"}).__dict__)


def next_block(asked: Asked, response: Response) -> None:
    """Return the block behind the one that is asked for."""
    if asked.path.startswith("/api/block/") and response.status == 200:
        response.json = {**response.json, "height": int(asked.path.rpartition("/")[2]) + 1}


HTTP: list[tuple[str, Http]] = [
    ("NT-PAGE-005", pages(lambda blocks: [blocks[0], *blocks[:-1]] if blocks else blocks)),
    ("NT-PAGE-006", pages(lambda blocks: [one for one in blocks if int(one["height"]) % 3])),
    ("NT-RULE-029", on("/api/inference", put("fee_atoms", 5))),
    ("NT-RULE-030", another_record),
    ("NT-RULE-031", removable),
    ("NT-RULE-032", broken_work),
    ("NA-AUTH-020", open_stream),
    ("NA-AUTH-021", beginnings),
    ("NA-AUTH-022", FifthRefused()),
    ("NA-AUTH-023", body_first),
    ("NA-WALLET-027", on(f"{WALLET}/stake", put("stake.duration_days", 30), "POST")),
    ("NA-WALLET-028", on(f"{WALLET}/balance", put("staking.unlock_date", day(1)))),
    ("NA-WALLET-029", Unstaked()),
    ("NA-WALLET-030", on(f"{WALLET}/stake", put("stake.start_date", day(2)), "POST")),
    ("NA-ERR-022", on(f"{WALLET}/stake", stake_refused, "POST", 402)),
    ("NA-ERR-023", Refused()),
    ("NA-ERR-024", on(f"{WALLET}/send", without_its_fee, "POST", 402)),
    ("NA-SANE-026", TwoWorkers()),
    ("NA-SANE-027", on(METRICS, put("timestamp", "2026-01-01T00:00:00Z"))),
    ("NA-PATCH-113", TwoConfigurations()),
    ("NA-QUERY-013", Turning()),
    ("NA-INF-036", inference(first_stop_only)),
    ("NA-COUNT-006", CountedTwice()),
    ("NA-PATCH-114", whole_only),
    ("NA-PATCH-115", PartlyChanged()),
    ("NA-PATCH-116", OfTheStart()),
    ("NA-INF-037", on(INFERENCE, put("timing.total_ms", 0.75), "POST")),
    ("NA-INF-038", inference(trips)),
    ("NA-INF-039", serving(lambda body: isinstance(body.get("stream"), dict))),
    ("NT-RULE-033", no_result_route),
    ("NT-RULE-034", next_block),
    ("NA-WALLET-031", TakenTwice()),
    ("NA-QUERY-014", Shuffled()),
    *MORE,
    *sizes.HTTP,
    *bodies.HTTP,
    *pairs.HTTP,
]
ROWS: list[tuple[str, Http, Grpc]] = [(ident, hook, no_grpc_hook) for ident, hook in HTTP]
ROWS += [
    (ident, no_http_hook, hook) for ident, hook in (*GRPC, *sizes.GRPC, *bodies.GRPC, *pairs.GRPC)
]
GRPC_OF_TOY = (
    *OF_TOY, *sizes.OF_TOY, *bodies.OF_TOY, *pairs.GRPC_OF_TOY, *situations.GRPC, *mixed_grpc.GRPC,
    *following.GRPC, *left.GRPC, *places.GRPC, *figures.GRPC, *refused.GRPC,
    *crossed.GRPC, *edges.GRPC, *later.GRPC, *lasting.GRPC, *overlay.GRPC, *tensors.GRPC,
)  # fmt: skip
TOY_ROWS = ROWS + [(ident, no_http_hook, hook) for ident, hook in GRPC_OF_TOY]
HOOKS_OF_TOY = (
    *MORE_OF_TOY, *sizes.HTTP_OF_TOY, *bodies.HTTP_OF_TOY, *pairs.OF_TOY, *situations.HTTP,
    *odd.HTTP, *following.HTTP, *left.HTTP, *places.HTTP, *mixed.HTTP, *mixed_native.HTTP,
    *openai_mixed.HTTP, *figures.HTTP, *refused.HTTP, *crossed.HTTP,
    *edges.HTTP, *later.HTTP, *lasting.HTTP, *overlay.HTTP, *natives.HTTP, *money.HTTP,
    *texts.HTTP, *later_answers.HTTP,
)  # fmt: skip
TOY_ROWS += [(ident, hook, no_grpc_hook) for ident, hook in HOOKS_OF_TOY]
