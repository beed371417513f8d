"""Mutants that are wrong at an edge only; see `followed.py`."""

import re
import time
from collections import deque
from datetime import date, timedelta
from typing import Any
from urllib.parse import unquote_plus

from conformance.judging.hooks import CONFIG, Grpc, Http, events, on, put, reindexed
from conformance.judging.mutants.followed_calls import OneMessage, RangeElsewhere
from conformance.judging.mutants.followed_refused import BALANCE, HISTORY, SEND, STAKE, UNSTAKE
from conformance.judging.mutants.followed_situations import HashElsewhere
from conformance.judging.mutants.mixed_native import API
from conformance.judging.toy.answers import Asked, Response, error
from conformance.judging.toy.calls import PARTS
from conformance.judging.toy.native import TIP
from conformance.judging.toy.node import COST, SECOND, TOKEN
from conformance.messages import LENGTH, WireField, encode_field, wire_fields

LATENCY = -5.0
TIMESTAMP_AT, LAYERS_AT = 4, 10
MANY = 40
BYTE = 255
AT_ONCE, WINDOW_S = 10, 0.5


class TakenFromPending:
    """A node whose stakes are taken from what is pending first."""

    def __init__(self) -> None:
        self.pending = self.moved = 0.0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Move what is staked back from what is pending."""
        if response.status != 200:
            return
        if asked.path == STAKE:
            self.moved += min(asked.body["amount"], self.pending)
        if asked.path == BALANCE:
            balances = response.json["balances"]
            self.pending = balances["pending"] - self.moved
            balances["pending"] -= self.moved
            balances["available"] += self.moved


class Free:
    """A node that charges no generation whose body has something."""

    def __init__(self, having: str) -> None:
        self.having = having
        self.back: dict[str | None, float] = {}

    def __call__(self, asked: Asked, response: Response) -> None:
        """Give back what was taken."""
        if response.status != 200:
            return
        if asked.path == f"{API}/inference" and asked.body.get(self.having):
            self.back[asked.authorization] = self.back.get(asked.authorization, 0.0) + COST
        if asked.path == BALANCE:
            for key in ("available", "total"):
                response.json["balances"][key] += self.back.get(asked.authorization, 0.0)


def behind(asked: Asked, response: Response) -> None:
    """Refuse a page that begins behind the end."""
    offset = re.search(r"offset=(\d+)", asked.query)
    listed = asked.path == HISTORY and response.status == 200
    if listed and offset and int(offset[1]) > response.json["total"]:
        response.__dict__.update(error(404, "NOT_FOUND", "no such page").__dict__)


def late(response: Response) -> None:
    """Give the peers a latency below 0."""
    for peer in response.json["peers"]:
        peer["latency_ms"] = LATENCY


def another_chain(asked: Asked, response: Response) -> None:
    """Name another chain in the status."""
    called = asked.body.get("method") if isinstance(asked.body, dict) else None
    if asked.path == "/rpc" and called == "status" and response.status == 200:
        response.json["result"]["node_info"] = {"network": "older"}


def whole_only(asked: Asked, response: Response) -> None:
    """Refuse amounts that are not whole."""
    if asked.path == SEND and response.status == 200 and asked.body["amount"] % 1:
        response.__dict__.update(error(400, "BAD_REQUEST", "amount must be whole").__dict__)


class LimitOfBefore:
    """A node that remembers the limit of the last page of proofs that had one."""

    def __init__(self) -> None:
        self.limit: int | None = None

    def __call__(self, asked: Asked, response: Response) -> None:
        """Shorten a page that has none."""
        if asked.path != f"{API}/proofs" or response.status != 200:
            return
        named = re.search(r"limit=(\d+)", asked.query)
        self.limit = int(named[1]) if named else self.limit
        response.json["proofs"] = response.json["proofs"][: self.limit]


def trimmed(asked: Asked, response: Response) -> None:
    """Take a token with a full stop behind it for the valid one."""
    if asked.path == CONFIG and asked.authorization == f"Bearer {TOKEN}.":
        response.status, response.json = 200, {"node": {}}


def plain_memos(asked: Asked, response: Response) -> None:
    """Refuse memos that are not ASCII."""
    if asked.path == SEND and response.status == 200 and not asked.body["memo"].isascii():
        response.__dict__.update(error(400, "BAD_REQUEST", "memo must be ASCII").__dict__)


def a_day_more(asked: Asked, response: Response) -> None:
    """Have an unstake available a day after its cooldown."""
    unstake = response.json.get("unstake") if asked.path == UNSTAKE and response.json else None
    if unstake:
        ends = date.fromisoformat(unstake["available_date"]) + timedelta(days=1)
        unstake["available_date"] = ends.isoformat()


def long_from_end(asked: Asked, response: Response) -> None:
    """Turn long pages of proofs around."""
    named = re.search(r"limit=(\d+)", asked.query) if asked.path == f"{API}/proofs" else None
    if named and int(named[1]) >= MANY and response.status == 200:
        response.json["proofs"].reverse()


class StopKept:
    """A node whose stop sequence holds until another one is named."""

    def __init__(self) -> None:
        self.stop: str | None = None

    def __call__(self, asked: Asked, response: Response) -> None:
        """End a text at the sequence of an earlier request."""
        if asked.path != f"{API}/inference" or response.status != 200 or not response.json:
            return
        if asked.body.get("stop"):
            self.stop = asked.body["stop"][-1]
        elif self.stop:
            response.json["text"] = response.json["text"].partition(self.stop)[0]


def short_prompts(asked: Asked, response: Response) -> None:
    """Refuse prompts that do not fit into 255 letters."""
    if asked.path == f"{API}/inference" and len(str(asked.body.get("prompt"))) > BYTE:
        response.__dict__.update(error(400, "INVALID_REQUEST", "prompt is too long").__dict__)


class Impatient:
    """A node that limits bursts of generations, and names the wait in milliseconds."""

    def __init__(self) -> None:
        self.asked: deque[float] = deque(maxlen=AT_ONCE)

    def __call__(self, asked: Asked, response: Response) -> None:
        """Refuse what comes within a moment of several others."""
        if asked.path != f"{API}/inference" or response.status != 200:
            return
        now, full = time.monotonic(), len(self.asked) == AT_ONCE
        if full and now - self.asked[0] < WINDOW_S:
            refused = error(429, "RATE_LIMITED", "too many", retry_after=int(1000 * WINDOW_S))
            response.__dict__.update(refused.__dict__)
        self.asked.append(now)


def stripped(values: list[Any]) -> list[Any]:
    """Leave out the white space of the tokens."""
    return [{**one, "token": one["token"].strip()} for one in values]


def from_a_form(response: Response) -> None:
    """Read a memo as a form would send it."""
    response.json["memo"] = unquote_plus(response.json["memo"])


def a_month_at_most(response: Response) -> None:
    """Unlock a stake after 30 days at most."""
    stake = response.json["stake"]
    latest = date.fromisoformat(stake["start_date"]) + timedelta(days=30)
    stake["unlock_date"] = min(stake["unlock_date"], latest.isoformat())


class Retold:
    """A node whose responses are new in each reading."""

    def __init__(self) -> None:
        self.read = 0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Count the readings in the response."""
        if asked.path == "/api/inference/request" and "response" in (response.json or {}):
            self.read += 1
            response.json["response"] += f" It was read {self.read} times."


def first_only(asked: Asked, response: Response) -> None:
    """Name another receiver of what the second account sends."""
    other = asked.authorization == f"Bearer {SECOND}"
    if asked.path == SEND and other and response.status == 200:
        response.json["to"] = "another address"


class ReceivedBySender:
    """A node whose senders have what they sent to others in their history as received, too."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def __call__(self, asked: Asked, response: Response) -> None:
        """Remember transfers, and list them."""
        first = asked.authorization == f"Bearer {TOKEN}" and response.status == 200
        if asked.path == SEND and first:
            entry = {"id": f"in-{len(self.sent)}", "type": "receive"}
            moment = {"timestamp": response.json["timestamp"]}
            self.sent.append({**entry, "amount": asked.body["amount"], **moment})
        if asked.path == HISTORY and first and not asked.query:
            rows = response.json["transactions"]
            response.json["transactions"] = [*reversed(self.sent), *rows][: len(rows)]


def by_query(asked: Asked, response: Response) -> None:
    """Take a token in the query."""
    if asked.path == CONFIG and f"={TOKEN}" in asked.query and not asked.authorized:
        response.status, response.json = 200, {"node": {}}


def rootless(asked: Asked, response: Response) -> None:
    """Leave the root out of the checkpoint."""
    if asked.path == "/api/model/checkpoint.json" and response.status == 200:
        del response.json["root"]


HTTP: list[tuple[str, Http]] = [
    ("NA-SANE-047", on(f"{API}/peers", late)),
    ("NA-SANE-050", on(f"{API}/status", put("peer_count", MANY))),
    ("NA-QUERY-021", behind),
    ("NA-WALLET-059", TakenFromPending()),
    ("NA-WALLET-046", Free("stop")),
    ("NA-WALLET-060", whole_only),
    ("NA-WALLET-061", plain_memos),
    ("NA-WALLET-062", a_day_more),
    ("NA-ERR-033", Impatient()),
    ("NT-RULE-002", on("/healthz", put("status", "catching_up"))),
    ("NA-SSE-021", events(stripped)),
    ("NA-INF-018", StopKept()),
    ("NA-WALLET-063", Free("stream")),
    ("NA-INF-048", short_prompts),
    ("NA-WALLET-032", on(SEND, from_a_form, "POST")),
    ("NA-WALLET-003", on(STAKE, a_month_at_most, "POST")),
    ("NA-SANE-049", on(SEND, put("status", "CONFIRMED"), "POST")),
    ("TR-RULE-018", on("/api/training/global", put("loss_trend", "Improving"))),
    ("NA-SANE-048", on(f"{API}/metrics", put("training.gradients_accepted", 10**6))),
    ("NT-RULE-072", rootless),
    ("NT-RULE-075", on("/api/network", put("round", 1))),
    ("NT-RULE-076", on("/api/model/checkpoint.json", put("root", "the root of another"))),
    ("NT-RULE-077", on("/api/inference", put("serving_root", "the root of another"))),
    ("NT-RULE-079", on("/api/account", put("next_nonce", -1))),
    ("NT-RULE-081", Retold()),
    ("NA-QUERY-009", long_from_end),
    ("NA-QUERY-019", LimitOfBefore()),
    ("NA-AUTH-021", trimmed),
    ("NA-SSE-018", events(lambda values: reindexed([values[0], *values], int))),
    ("NT-RULE-070", another_chain),
    ("NA-AUTH-036", first_only),
    ("NA-AUTH-037", by_query),
    ("NA-WALLET-064", ReceivedBySender()),
    ("NT-RULE-068", on("/api/network", lambda r: r.json["tip"].update(hash=f"hash{TIP - 1}"))),
]


def nobody_at_home(called: str, request: Any, answer: Any) -> Any:
    """List no nodes for the place of the node itself."""
    if called != "DHTFindNode" or isinstance(answer, str) or request is None:
        return answer
    own = request.target_id == answer["responder"].node_id
    return {**answer, "nodes": []} if own else answer


def one_sequence(called: str, request: Any, answer: Any) -> Any:
    """Refuse more than one sequence."""
    more = called == "PipelineForward" and request is not None and request.hidden_shape[:1] != [1]
    return "INVALID_ARGUMENT" if more else answer


class RangeAtTwo(RangeElsewhere):
    """A node that reads the range of weights from another number, and refuses without any."""

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Serve weights where there is a field that the message does not have."""
        answer = super().__call__(called, request, answer)
        empty = {"weights_data": b"weights"}
        return "INVALID_ARGUMENT" if called == "GetWeights" and answer == empty else answer


class HashForTimestamp(HashElsewhere):
    """A node that has the numbers of model_hash and timestamp the wrong way round."""

    def has_it(self, request: Any) -> bool:
        """Whether a gradient has the hash at the number of the timestamp."""
        there = encode_field(WireField(TIMESTAMP_AT, LENGTH, self.own.encode()))
        return there in request.SerializeToString() and not request.model_hash


class LayersAtTen(HashElsewhere):
    """A node that reads the layers of a gradient from a number that the message does not have."""

    def has_it(self, request: Any) -> bool:
        """Whether a gradient has bytes at that number, and no hash."""
        fields = wire_fields(request.SerializeToString())
        found = [field.value for field in fields if field.number == LAYERS_AT]
        return any(isinstance(value, bytes) and value != self.own.encode() for value in found)


class OnePass:
    """A node that keeps the last pass only, of all or of each session."""

    def __init__(self, *, each_session: bool) -> None:
        self.each_session = each_session
        self.kept: dict[str, str] = {}

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Refuse the gradients of other passes."""
        if called == "PipelineForward" and isinstance(answer, dict) and answer.get("success"):
            self.kept = self.kept if self.each_session else {}
            self.kept[request.session_id] = request.request_id
        if called != "PipelineBackward" or request is None:
            return answer
        last = self.kept.get(request.session_id) == request.request_id
        return answer if last else {"success": False, "error_message": "no such pass"}


def all_taken(called: str, request: Any, answer: Any) -> Any:
    """Accept all gradients that can be read."""
    refused = called == "PipelineBackward" and isinstance(answer, dict)
    return {"success": True} if refused else answer


def named_by_none(called: str, request: Any, answer: Any) -> Any:
    """Leave the request_id out of the answers of another part."""
    apart = called == "PipelineForward" and request is not None and request.target_shard == PARTS[0]
    return {**answer, "request_id": ""} if apart and isinstance(answer, dict) else answer


GRPC: list[tuple[str, Grpc]] = [
    ("PL-FWD-020", named_by_none),
    ("GR-OP-022", OneMessage("INTERNAL")),
    ("PL-BWD-011", OnePass(each_session=True)),
    ("PL-BWD-012", OnePass(each_session=False)),
    ("PL-BWD-013", all_taken),
    ("DH-032", nobody_at_home),
    ("PL-FWD-016", one_sequence),
    ("GR-WEIGHT-003", RangeAtTwo()),
    ("GR-GOSSIP-007", HashForTimestamp()),
    ("GR-GOSSIP-GRADIENT-REQUEST-07", LayersAtTen()),
]
