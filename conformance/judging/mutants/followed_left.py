"""Mutants in which something is left of the request before, or lost by one that is refused.

The rest of the second list for the second stranger's node has shown them; see `followed.py`.
"""

from datetime import UTC, datetime
from typing import Any

from conformance.judging.hooks import CONFIG, INFERENCE, Grpc, Http
from conformance.judging.mutants.mixed_native import API, REQUEST, SEND, become, query_of
from conformance.judging.toy.answers import Asked, Response
from conformance.judging.toy.calls import SHAPE
from conformance.judging.toy.native import job_of, record_of
from conformance.judging.toy.node import EXPIRED

HISTORY, BALANCE, STATUS = f"{API}/wallet/transactions", f"{API}/wallet/balance", f"{API}/status"
PROOFS, METRICS = f"{API}/proofs", f"{API}/metrics"
WIDE, WHOLE_ID = 0x10000, len(job_of(0, 0))


def narrow_memo(asked: Asked, response: Response) -> None:
    """Lose letters beyond two bytes from the memo of a result."""
    if asked.path == SEND and response.status == 200:
        memo = response.json["memo"]
        response.json["memo"] = "".join(one if ord(one) < WIDE else "?" for one in memo)


def null_proofs(asked: Asked, response: Response) -> None:
    """Say null for a page without proofs."""
    if asked.path == PROOFS and response.status == 200 and not response.json["proofs"]:
        response.json["proofs"] = None


def null_updated(asked: Asked, response: Response) -> None:
    """Say null where a change changes nothing."""
    if asked.path == CONFIG and asked.method == "PATCH" and response.status == 200:
        response.json["updated"] = response.json["updated"] or None


def begun_id(asked: Asked, response: Response) -> None:
    """Find a request by the beginning of its ID."""
    ident = query_of(asked).get("id", "")
    if asked.path == REQUEST and WHOLE_ID // 2 <= len(ident) < WHOLE_ID:
        become(response, Response(json=record_of(job_of(7, 0))))


def expired_streams(asked: Asked, response: Response) -> None:
    """Generate for an expired token where a stream is asked for."""
    body = asked.body if isinstance(asked.body, dict) else {}
    expired = asked.authorization == f"Bearer {EXPIRED}"
    if asked.path == INFERENCE and body.get("stream") and expired:
        become(response, Response(events=[{"token": "a", "index": 0}]))


def balance_below(asked: Asked, response: Response) -> None:
    """Answer any path below the wallet."""
    if asked.path.startswith(f"{API}/wallet/") and response.status == 404:
        become(response, Response(json={"balances": {}}))


def short_milliseconds(asked: Asked, response: Response) -> None:
    """Write the milliseconds of a time without the zeros before them."""
    if asked.path == METRICS and response.status == 200:
        moment = datetime.now(UTC)
        milliseconds = moment.microsecond // 1000
        response.json["timestamp"] = f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds}Z"


class MemoKept:
    """A node where a transfer without a memo has that of the transfer before it."""

    def __init__(self) -> None:
        self.memo = ""

    def __call__(self, asked: Asked, response: Response) -> None:
        """Remember the memo."""
        if asked.path == SEND and response.status == 200:
            self.memo = asked.body.get("memo") or self.memo
            response.json["memo"] = self.memo


class TotalKept:
    """A history whose total is counted where a page has no offset."""

    def __init__(self) -> None:
        self.totals: dict[str | None, int] = {}

    def __call__(self, asked: Asked, response: Response) -> None:
        """Remember the total of an account."""
        if asked.path != HISTORY or response.status != 200:
            return
        if not response.json["offset"]:
            self.totals[asked.authorization] = response.json["total"]
        response.json["total"] = self.totals.get(asked.authorization, response.json["total"])


class BadMemoDebits:
    """A node that takes an amount before it looks at the memo."""

    def __init__(self) -> None:
        self.taken: dict[str | None, float] = {}

    def __call__(self, asked: Asked, response: Response) -> None:
        """Add up what was taken."""
        body = asked.body if isinstance(asked.body, dict) else {}
        refused = asked.path == SEND and response.status == 400 and asked.authorized
        if refused and isinstance(body.get("memo"), list | dict):
            account = asked.authorization
            self.taken[account] = self.taken.get(account, 0.0) + float(body["amount"])
        if asked.path == BALANCE and response.status == 200:
            for key in ("available", "total"):
                response.json["balances"][key] -= self.taken.get(asked.authorization, 0.0)


class TokensBefore:
    """A stream that counts the prompt of the generation before it."""

    def __init__(self) -> None:
        self.tokens: int | None = None

    def __call__(self, asked: Asked, response: Response) -> None:
        """Count once more, one request late."""
        if asked.path != INFERENCE or response.status != 200:
            return
        if response.json is not None:
            self.tokens = response.json["usage"]["prompt_tokens"]
        elif response.events and self.tokens is not None:
            usage = response.events[-1]["usage"]
            usage["total_tokens"] += self.tokens - usage["prompt_tokens"]
            usage["prompt_tokens"] = self.tokens


class EnabledAlone:
    """A status that follows training.enabled where nothing else is changed with it."""

    def __init__(self) -> None:
        self.shown: bool | None = None

    def __call__(self, asked: Asked, response: Response) -> None:
        """Remember the last value that came alone."""
        if asked.path == CONFIG and asked.method == "PATCH" and response.status == 200:
            changed = asked.body.get("training", {})
            if changed.keys() == {"enabled"} and len(asked.body) == 1:
                self.shown = changed["enabled"]
        if asked.path == STATUS and self.shown is not None:
            response.json["training"]["enabled"] = self.shown


class RefusedEvicts:
    """A store that loses its latest value with each store that it refuses."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.gone: set[bytes] = set()

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Remember a key, or lose one."""
        if called == "DHTStore":
            if not request.key and self.keys:
                self.gone.add(self.keys.pop())
                return "INVALID_ARGUMENT"
            self.keys.append(request.key)
            self.gone.discard(request.key)
        if called == "DHTFindValue" and request.key in self.gone:
            return {"responder": answer["responder"], "found": False}
        return answer


def one_row(called: str, request: Any, answer: Any) -> Any:
    """Answer all sequences of a batch with the result of the first."""
    if called != "PipelineForward" or request is None or request.hidden_shape[0] < 2:
        return answer
    rows = request.hidden_shape[0]
    made = {"success": True, "is_final": True, "request_id": request.request_id}
    return {**made, "logits": b"together" * rows, "logits_shape": [rows, 1, 2]}


def failed_gradients(called: str, request: Any, answer: Any) -> Any:
    """Fail at a gradient of another shape."""
    misfit = called == "PipelineBackward" and list(request.grad_shape) not in (SHAPE, [])
    return "INTERNAL" if misfit else answer


HTTP: list[tuple[str, Http]] = [
    ("NA-WALLET-032", narrow_memo),
    ("NA-PROOFS-002", null_proofs),
    ("NA-PATCH-004", null_updated),
    ("NT-RULE-028", begun_id),
    ("NA-WALLET-001", MemoKept()),
    ("NA-QUERY-011", TotalKept()),
    ("NA-WALLET-052", BadMemoDebits()),
    ("NA-SSE-017", TokensBefore()),
    ("NA-PATCH-116", EnabledAlone()),
    ("NA-AUTH-018", expired_streams),
    ("NA-SANE-013", short_milliseconds),
    ("NA-ERR-017", balance_below),
]
GRPC: list[tuple[str, Grpc]] = [
    ("DH-031", RefusedEvicts()),
    ("PL-FWD-014", one_row),
    ("GR-CODE-015", failed_gradients),
]
