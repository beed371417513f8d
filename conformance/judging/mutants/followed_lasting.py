"""Mutants that show in a later answer, at the ends of a text, or beside it; see `followed.py`.

Faults of the twelfth stranger's node, of those that nobody had looked at, have shown them.
"""

import itertools
import re
from typing import Any

from conformance.checks.dht import NODE_ID_BYTES
from conformance.judging.hooks import CONFIG, INFERENCE, Grpc, Http, on, put, refusing
from conformance.judging.mutants.followed_later import FEW, Table
from conformance.judging.mutants.mixed_native import API, become
from conformance.judging.toy.answers import Asked, Response, error
from conformance.judging.toy.native import TIP, loss_of

SHORT, LONG = 5, 100
HISTORY = f"{API}/wallet/transactions"


def left_at_the_end(asked: Asked, response: Response) -> None:
    """Leave a stop sequence in a text that it would have ended at once, if that is short."""
    stops = asked.body.get("stop") if isinstance(asked.body, dict) else None
    if asked.path != INFERENCE or response.status != 200 or not stops or not response.json:
        return
    if not response.json["text"].strip() and asked.body.get("max_tokens", LONG) <= SHORT:
        response.json["text"] = stops[0]


def of_one_height(asked: Asked, response: Response) -> None:
    """Serve a block only where its height is named."""
    if asked.path != "/rpc" or not isinstance(asked.body, dict) or response.status != 200:
        return
    named = (asked.body.get("params") or {}).get("height")
    if asked.body.get("method") == "block" and not named:
        become(response, Response(400, {"error": "a height is missing"}))


class Another:
    """A node that shows the first block with other requests in every other answer."""

    def __init__(self) -> None:
        self.answers = itertools.count()

    def __call__(self, asked: Asked, response: Response) -> None:
        """Turn the digits of a name."""
        if asked.path == f"/api/block/{TIP}" and response.status == 200 and next(self.answers) % 2:
            for one in response.json["jobs"]:
                one["request_id"] = one["request_id"][::-1]


class Reopened:
    """A node in which a request that was completed waits again later."""

    def __init__(self) -> None:
        self.answers = itertools.count()

    def __call__(self, asked: Asked, response: Response) -> None:
        """Show a completed request as pending, after some answers."""
        done = asked.path == "/api/inference/request" and response.status == 200
        if done and response.json["status"] == "completed" and next(self.answers) % 2:
            response.json["status"] = "pending"
            del response.json["response"]


class Falling:
    """A node whose next nonces fall."""

    def __init__(self) -> None:
        self.answers = itertools.count()

    def __call__(self, asked: Asked, response: Response) -> None:
        """Count down."""
        if asked.path == "/api/account" and response.status == 200:
            response.json["next_nonce"] = max(1000 - next(self.answers), 0)


def without_what_is_locked(response: Response) -> None:
    """Have a total of what can be spent."""
    response.json["total"] = response.json["balance"]


def in_capitals(response: Response) -> None:
    """Write the hashes of a page in capitals."""
    for block in response.json["blocks"]:
        block["hash"] = block["hash"].upper()


def bare(response: Response) -> None:
    """List the layers by their numbers."""
    response.json["layers"] = [layer["index"] for layer in response.json["layers"]]


class OldPages:
    """A node that keeps the pages of a usual length as they were when they were read first."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}

    def __call__(self, asked: Asked, response: Response) -> None:
        """Answer with the page of before."""
        if asked.path == HISTORY and response.status == 200 and "limit=20" in asked.query:
            response.json = self.known.setdefault(asked.query, response.json)


class FreeBehindStreams:
    """A node that charges nothing for a generation that follows a stream."""

    def __init__(self) -> None:
        self.free, self.streamed = 0.0, False

    def __call__(self, asked: Asked, response: Response) -> None:
        """Give back what a generation has cost."""
        if asked.path == INFERENCE and response.status == 200:
            if self.streamed and response.json:
                self.free += response.json["cost"]["amount"]
            self.streamed = response.events is not None
        if asked.path == f"{API}/wallet/balance" and response.status == 200:
            response.json["balances"]["available"] += self.free
            response.json["balances"]["total"] += self.free


class Confused:
    """A node that lacks its configuration just behind a path that it does not know."""

    def __init__(self) -> None:
        self.lost = False

    def __call__(self, asked: Asked, response: Response) -> None:
        """Lose a route."""
        if self.lost and asked.path == CONFIG and response.status == 200:
            become(response, error(404, "NOT_FOUND", "no such path"))
        self.lost = asked.path.endswith("no-such-route-of-the-document")


def few_tokens(response: Response) -> None:
    """Begin anew to count tokens."""
    response.json["inference"]["tokens_generated"] %= 2


def failing_for_a_word(asked: Asked, response: Response) -> None:
    """Fail for a header that has no space in it."""
    if response.status == 401 and " " not in (asked.authorization or " "):
        become(response, error(500, "INTERNAL", "no second word"))


def with_its_end(asked: Asked, response: Response) -> None:
    """Have the entry with the bound on pages whose limit is no single digit."""
    found = re.search(r"before=(\d+)", asked.query)
    if asked.path == "/api/training" and found and not re.search(r"limit=\d(\D|$)", asked.query):
        bound = int(found[1])
        if 0 < bound <= TIP:
            response.json["records"].insert(0, {"round": bound, "loss": loss_of(bound)})


HTTP: list[tuple[str, Http]] = [
    ("NA-AUTH-040", failing_for_a_word),
    ("NT-PAGE-012", with_its_end),
    ("NA-WALLET-070", FreeBehindStreams()),
    ("NA-WALLET-071", OldPages()),
    ("NA-ROUTE-019", Confused()),
    ("NA-COUNT-010", on(f"{API}/metrics", few_tokens)),
    ("NA-INF-055", refusing(lambda body: len(body.get("prompt", "")) > LONG)),
    ("NT-RULE-106", on("/api/network", put("height", TIP - 1))),
    ("NA-INF-053", left_at_the_end),
    ("NT-RULE-099", of_one_height),
    ("NT-RULE-100", Another()),
    ("NT-RULE-101", Reopened()),
    ("NT-RULE-102", Falling()),
    ("NT-RULE-103", on("/api/account", without_what_is_locked)),
    ("NT-RULE-104", on("/api/blocks", in_capitals)),
    ("NA-LAYERS-007", on(f"{API}/layers", bare)),
]


class FirstComers(Table):
    """A table that lists those that came first, wherever they are."""

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """List them in both searches."""
        answer = super().__call__(called, request, answer)
        if called != "DHTFindValue" or not isinstance(answer, dict) or "nodes" not in answer:
            return answer
        return {**answer, "nodes": self.listed(request.key, answer["nodes"])}

    def listed(self, target: bytes, nodes: list[Any]) -> list[Any]:
        """List the first few; none before anybody has come, as the toy does."""
        return list(self.pinged.values())[:FEW] or nodes


class RefusedAndKept:
    """A store that refuses keys of another length, and has their values."""

    def __init__(self) -> None:
        self.values: dict[bytes, str] = {}

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Refuse a store, and find what was stored."""
        odd = called in ("DHTStore", "DHTFindValue") and request is not None
        if not odd or len(request.key) in (0, NODE_ID_BYTES) or not isinstance(answer, dict):
            return answer
        if called == "DHTStore":
            self.values[request.key] = request.value
            return {**answer, "success": False}
        return {**answer, "found": request.key in self.values}


def unchanged(called: str, request: Any, answer: Any) -> Any:
    """Give back what came in."""
    if called != "PipelineForward" or request is None or not isinstance(answer, dict):
        return answer
    part = "logits" if answer.get("logits") else "hidden_states"
    return {**answer, part: request.hidden_states}


GRPC: list[tuple[str, Grpc]] = [
    ("PL-FWD-025", unchanged),
    ("DH-035", FirstComers()),
    ("DH-019", RefusedAndKept()),
]
