"""Mutants of sizes, places and moments that a third stranger has shown; see `followed.py`."""

import threading
import time
from collections.abc import Callable
from typing import Any

from conformance.checks.native_pages import LONG
from conformance.judging.hooks import CONFIG, INFERENCE, Grpc, Http, on, put
from conformance.judging.toy.answers import Asked, Response, error

WALLET, STATUS = "/api/v1/wallet", "/api/v1/status"
# A long generation, a large transfer, and a long memo.
MANY, LARGE, SHORT_MEMO = 100, 2, 64
# A clock that stops, and a change that is gone, after so many seconds.
STOPS_S, GONE_S = 2, 3.0
AT_ONCE = 3
# When the latest generations were asked for.
BUSY: list[float] = []
# Who has called, by the ID.
SENDERS: dict[bytes, Any] = {}


class OneAtATime:
    """A node that fails while it generates for somebody else."""

    def __init__(self) -> None:
        self.busy = threading.Lock()

    def __call__(self, asked: Asked, response: Response) -> None:
        """Take a while, and nothing else meanwhile."""
        if asked.path != INFERENCE or response.status != 200:
            return
        if not self.busy.acquire(blocking=False):
            response.__dict__.update(error(500, "INTERNAL", "busy").__dict__)
            return
        try:
            time.sleep(0.1)
        finally:
            self.busy.release()


class RefusedWhenBusy:
    """A node that takes a token for an unknown one while it looks at others."""

    def __init__(self) -> None:
        self.lock, self.looking = threading.Lock(), 0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Count who is there."""
        if asked.path != CONFIG or response.status != 200:
            return
        with self.lock:
            self.looking += 1
            many = self.looking > AT_ONCE - 1
        time.sleep(0.02)
        with self.lock:
            self.looking -= 1
        if many:
            refused = error(401, "UNAUTHORIZED", "the token is not valid")
            response.__dict__.update(refused.__dict__)


class Dearer:
    """A node that takes more for a large transfer than it says: ``more`` of an amount."""

    def __init__(self, least: float, more: Callable[[float], float]) -> None:
        self.least, self.more = least, more
        self.taken: dict[str | None, float] = {}

    def __call__(self, asked: Asked, response: Response) -> None:
        """Add up what is taken besides, and show so much less."""
        if response.status != 200:
            return
        account = asked.authorization
        if asked.path == f"{WALLET}/send" and asked.body["amount"] >= self.least:
            more = self.more(asked.body["amount"])
            self.taken[account] = self.taken.get(account, 0.0) + more
        if asked.path == f"{WALLET}/balance":
            response.json["balances"]["available"] -= self.taken.get(account, 0.0)


class RefusedButDone:
    """A node that lists a transfer, or adds a stake, that it refuses."""

    def __init__(self, route: str) -> None:
        self.route = route
        self.done: dict[str | None, list[dict[str, Any]]] = {}

    def __call__(self, asked: Asked, response: Response) -> None:
        """Note what was refused, and show it where it would be."""
        account = asked.authorization
        if asked.path == f"{WALLET}/{self.route}" and response.status == 402:
            self.done.setdefault(account, []).append(asked.body)
        refused = self.done.get(account, [])
        if asked.path == f"{WALLET}/transactions" and response.status == 200:
            for number, body in enumerate(refused if self.route == "send" else ()):
                entry = {"id": f"r{number}", "type": "send", "to": body["to"]}
                entry |= {"amount": -body["amount"], "timestamp": "2026-01-01T00:00:00Z"}
                response.json["transactions"].insert(0, entry)
        if asked.path == f"{WALLET}/balance" and self.route == "stake":
            added = sum(body["amount"] for body in refused)
            response.json["balances"]["staked"] += added
            response.json["balances"]["total"] += added


class StoppedClock:
    """A node whose uptime counts for a moment only."""

    def __init__(self) -> None:
        self.began: float | None = None

    def __call__(self, asked: Asked, response: Response) -> None:
        """Count from the first reading."""
        if asked.path == STATUS and response.status == 200:
            self.began = self.began or time.monotonic()
            passed_s = int(time.monotonic() - self.began)
            response.json["uptime_seconds"] = min(passed_s, STOPS_S)


class BackLater:
    """A node whose batch size goes back to what it was after some seconds."""

    def __init__(self) -> None:
        self.first: Any = None
        self.changed: float | None = None

    def __call__(self, asked: Asked, response: Response) -> None:
        """Remember the first value and the last change."""
        if asked.path != CONFIG or response.status != 200:
            return
        if asked.method == "PATCH":
            self.changed = time.monotonic()
            return
        training = response.json["training"]
        self.first = self.first or training["batch_size"]
        if self.changed and time.monotonic() > self.changed + GONE_S:
            training["batch_size"] = self.first


class BackWhenRefused:
    """A node in which a refused value sets its key back to the first one."""

    def __init__(self) -> None:
        self.first: Any = None
        self.back = False

    def __call__(self, asked: Asked, response: Response) -> None:
        """Remember the first value, and show it after a refusal."""
        if asked.path != CONFIG or not asked.authorized:
            return
        if asked.method == "PATCH":
            changed = asked.body if isinstance(asked.body, dict) else {}
            self.back = response.status == 400 and "batch_size" in changed.get("training", {})
        elif response.status == 200:
            training = response.json["training"]
            self.first = self.first or training["batch_size"]
            if self.back:
                training["batch_size"] = self.first


def open_pages(asked: Asked, response: Response) -> None:
    """Serve a page of the history to anybody."""
    page = asked.path == f"{WALLET}/transactions" and "limit" in asked.query
    if page and response.status == 401:
        empty = {"transactions": [], "total": 0, "limit": 1, "offset": 0}
        response.__dict__.update(Response(json=empty).__dict__)


def without_word(asked: Asked, response: Response) -> None:
    """Take the scheme alone for a token."""
    if asked.authorization == "Bearer" and response.status == 401 and asked.path == CONFIG:
        response.__dict__.update(Response(json={}).__dict__)


def refused_among_many(asked: Asked, response: Response) -> None:
    """Refuse the token of the later requests of a moment."""
    if asked.path == INFERENCE and response.status == 200:
        BUSY.append(time.monotonic())
        time.sleep(0.05)
        if len([at for at in BUSY[-AT_ONCE:] if at > time.monotonic() - 0.1]) >= AT_ONCE:
            refused = error(401, "UNAUTHORIZED", "the token is not valid")
            response.__dict__.update(refused.__dict__)


def spaced(response: Response) -> None:
    """Write times with a space."""
    for entry in response.json["transactions"]:
        entry["timestamp"] = entry["timestamp"].replace("T", " ")


class NullWhenOff:
    """A node that shows no loss at one place while training is off."""

    def __init__(self, path: str, place: str) -> None:
        self.off = False
        self.path, self.change = path, put(place, None)

    def __call__(self, asked: Asked, response: Response) -> None:
        """Follow the configuration."""
        if asked.path == CONFIG and response.status == 200 and asked.method == "PATCH":
            self.off = asked.body.get("training", {}).get("enabled") is False
        if asked.path == self.path and response.status == 200 and self.off:
            self.change(response)


def no_short_usage(response: Response) -> None:
    """Leave out the usage of a single token."""
    if response.json and response.json["tokens_generated"] == 1:
        del response.json["usage"]


def no_empty_memo(response: Response) -> None:
    """Write null for a memo without letters."""
    response.json["memo"] = response.json["memo"] or None


def registers(asked: Asked, response: Response) -> None:
    """Make an account at an old endpoint."""
    if (asked.method, asked.path) == ("POST", "/api/register"):
        response.__dict__.update(Response(201, {"account": 1}).__dict__)


def reads_first(asked: Asked, response: Response) -> None:
    """Refuse what is no JSON before the token is looked at."""
    if asked.path == INFERENCE and asked.body is None and response.status == 401:
        response.__dict__.update(error(400, "INVALID_REQUEST", "no JSON").__dict__)


def registered_ports(called: str, request: Any, answer: Any) -> Any:
    """List a sender at whatever port it names."""
    if called == "DHTPing" and request is not None:
        SENDERS[request.sender.node_id] = request.sender
    if called != "DHTFindNode" or request is None or isinstance(answer, str):
        return answer
    found = SENDERS.get(request.target_id)
    return {**answer, "nodes": [*answer["nodes"], found]} if found and found.port else answer


def to_itself(asked: Asked, response: Response) -> None:
    """Let an account send itself more than it has."""
    if asked.path == f"{WALLET}/send" and response.status == 402:
        wanted = response.json["error"]["details"]["required"]
        if asked.body["to"] == "second" and wanted == asked.body["amount"]:
            sent = {"transaction_id": "a", "from": "second", "to": "second", "fee": 0, "memo": ""}
            sent |= {"status": "confirmed", "amount": wanted, "timestamp": "2026-01-01T00:00:00Z"}
            response.__dict__.update(Response(json=sent).__dict__)


def one_less(response: Response) -> None:
    """Show a total that leaves one entry out."""
    response.json["total"] -= 1


def cut_memo(response: Response) -> None:
    """Repeat the beginning of a memo."""
    response.json["memo"] = response.json["memo"].strip()[:SHORT_MEMO]


def no_long_pages(asked: Asked, response: Response) -> None:
    """Fail at a long page of blocks."""
    if asked.path == "/api/blocks" and f"limit={LONG}" in asked.query:
        response.__dict__.update(Response(500, {"error": "too long"}).__dict__)


def one_more(asked: Asked, response: Response) -> None:
    """List one block more than asked for, where there is a bound."""
    if asked.path == "/api/blocks" and "before" in asked.query and response.status == 200:
        blocks = response.json["blocks"]
        blocks += [{**blocks[-1], "height": blocks[-1]["height"] - 1}] if blocks else []


def no_end(asked: Asked, response: Response) -> None:
    """Leave out the final event of a stream that a stop sequence may end."""
    stopped = response.events is not None and asked.path == INFERENCE and asked.body.get("stop")
    if stopped and response.events:
        response.events = response.events[:-1]


def no_data_by_hash(called: str, request: Any, answer: Any) -> Any:
    """Return a checkpoint that was asked for by its hash without data."""
    if called != "GetCheckpoint" or not request or not request.model_hash:
        return answer
    return {**answer, "checkpoint_data": b""} if answer.get("success") else answer


def silent_of_old_rounds(called: str, request: Any, answer: Any) -> Any:
    """Refuse a gradient of an old round without a reason."""
    if called != "GossipGradient" or request is None or request.round_id:
        return answer
    return answer if answer.get("accepted") else {**answer, "reason": ""}


def silent_of_shapes(called: str, request: Any, answer: Any) -> Any:
    """Refuse another shape without a reason."""
    odd = called == "PipelineForward" and request is not None and 9 in request.hidden_shape
    return {**answer, "error_message": ""} if odd and isinstance(answer, dict) else answer


def needs_a_sender(called: str, request: Any, answer: Any) -> Any:
    """Refuse a ping without a sender with another status."""
    missing = called == "DHTPing" and request is not None and not request.HasField("sender")
    return "FAILED_PRECONDITION" if missing else answer


def no_loss(called: str, request: Any, answer: Any) -> Any:
    """Take labels of 32 bits only, and return no loss for them."""
    if called != "PipelineForward" or request is None or not request.training_labels:
        return answer
    if len(request.training_labels) > 4 * request.hidden_shape[0] * request.hidden_shape[1]:
        refused = {"success": False, "error_message": "these are too many labels"}
        return {"request_id": request.request_id, **refused}
    return {**answer, "loss": 0.0}


HTTP: list[tuple[str, Http]] = [
    ("NA-INF-040", OneAtATime()),
    ("NA-AUTH-017", open_pages),
    ("NA-AUTH-017", without_word),
    ("NA-AUTH-022", RefusedWhenBusy()),
    ("NA-AUTH-022", refused_among_many),
    ("GEN-020", on(f"{WALLET}/transactions", spaced)),
    ("NA-INF-RESULT-009", on(INFERENCE, no_short_usage, "POST")),
    ("NA-SEND-012", on(f"{WALLET}/send", no_empty_memo, "POST")),
    ("NT-RULE-038", registers),
    ("NA-AUTH-025", reads_first),
    ("NA-WALLET-039", Dearer(LARGE, lambda amount: amount)),
    ("NA-WALLET-032", on(f"{WALLET}/send", cut_memo, "POST")),
    ("NA-ERR-026", RefusedButDone("send")),
    ("NA-ERR-026", RefusedButDone("stake")),
    ("NA-SANE-028", StoppedClock()),
    ("NA-PATCH-106", BackWhenRefused()),
    ("NA-PATCH-117", BackLater()),
    ("NT-ROUTE-006", no_long_pages),
    ("NT-PAGE-001", one_more),
    ("NA-SSE-005", no_end),
]
GRPC: list[tuple[str, Grpc]] = [
    ("GR-CKPT-005", no_data_by_hash),
    ("GR-GOSSIP-001", silent_of_old_rounds),
    ("DH-013", registered_ports),
    ("GR-CODE-001", needs_a_sender),
]
# The reference node takes labels of 64 bits.
OF_TOY: list[tuple[str, Grpc]] = [("PL-FWD-008", no_loss), ("PL-FWD-001", silent_of_shapes)]
# The receiver is known by the address that the toy has given it. The layer freezes what is said of
# training, and its node has a long history.
HTTP_OF_TOY: list[tuple[str, Http]] = [
    ("NA-ERR-021", to_itself),
    ("NA-STATUS-024", NullWhenOff(STATUS, "training.loss")),
    ("TR-GLOBAL-034", NullWhenOff("/api/training/global", "local.current_loss")),
    ("NA-QUERY-017", on(f"{WALLET}/transactions", one_less)),
]
