"""Mutants of bodies, sequences and names; see `followed.py`."""

import html
import re
import time
from collections.abc import Callable
from typing import Any

from conformance import messages
from conformance.judging.hooks import CONFIG, INFERENCE, Grpc, Http, inference, on, put
from conformance.judging.toy.answers import Asked, Response, error
from conformance.judging.toy.node import TOKEN

WALLET = "/api/v1/wallet"
# Changes so close to each other are at the same time.
SOON_S = 0.02
# As many rewards as the suite looks at.
ENOUGH = 3


def taken_bodies(fits: Callable[[Any], bool]) -> Http:
    """Take transfers whose amount is such a value."""

    def hook(asked: Asked, response: Response) -> None:
        sent = asked.path == f"{WALLET}/send" and response.status == 400
        if sent and isinstance(asked.body, dict) and fits(asked.body.get("amount")):
            done = {"transaction_id": str(time.monotonic()), "from": "a", "to": "b", "fee": 0}
            done |= {"amount": 1, "memo": "", "status": "confirmed"}
            done["timestamp"] = "2026-01-01T00:00:00Z"
            response.__dict__.update(Response(json=done).__dict__)

    return hook


def fails_at_lists(asked: Asked, response: Response) -> None:
    """Fail at an amount that is a list."""
    wrong = asked.path == f"{WALLET}/send" and isinstance(asked.body, dict)
    if wrong and isinstance(asked.body.get("amount"), list):
        response.__dict__.update(error(500, "INTERNAL", "unsupported operand").__dict__)


def by_pattern(body: dict[str, Any], response: Response) -> None:
    """Take stop sequences for regular expressions."""
    text, stops = response.json["text"], body.get("stop") or []
    found = [match.start() for stop in stops if (match := re.search(stop, text))]
    if found:
        _end(response, min(found))


def by_prompt(body: dict[str, Any], response: Response) -> None:
    """Look for stop sequences in the prompt."""
    if any(stop in body["prompt"] for stop in body.get("stop") or []):
        _end(response, 0)


def _end(response: Response, length: int) -> None:
    response.json["text"] = response.json["text"][:length]
    made = len(response.json["text"].split())
    response.json["tokens_generated"] = response.json["usage"]["completion_tokens"] = made
    response.json["usage"]["total_tokens"] = response.json["usage"]["prompt_tokens"] + made


def without_signature(asked: Asked, response: Response) -> None:
    """Serve a worker that has signed nothing."""
    if asked.path == "/work/poll":
        response.__dict__.update(Response(json={"work": []}).__dict__)


def no_number(called: str, request: Any, answer: Any) -> Any:
    """Report no number as the loss."""
    info = called == "GetCheckpointInfo" and isinstance(answer, dict)
    return {**answer, "loss": float("nan")} if info else answer


def of_nothing(response: Response) -> None:
    """Name proofs in the history that nobody has made."""
    rewards = [entry for entry in response.json["transactions"] if entry["type"] == "reward"]
    for number in range(ENOUGH if rewards else 0):
        other = {**rewards[0], "id": f"r{number}", "details": {"proof_id": "x", "role": "worker"}}
        response.json["transactions"].append(other)
    for entry in rewards:
        entry["details"] = {"proof_id": "x", "role": "worker"}


def as_text(called: str, request: Any, answer: Any) -> Any:
    """Read a gradient as a text."""
    if called != "GossipGradient" or request is None:
        return answer
    texts = (content.isascii() for content in request.layer_gradients.values())
    return answer if all(texts) else "INVALID_ARGUMENT"


def first_only(called: str, request: Any, answer: Any) -> Any:
    """Answer the first sequence of a pass of two."""
    if called != "PipelineForward" or request is None or list(request.hidden_shape[:1]) != [2]:
        return answer
    first = {"success": True, "is_final": True, "logits": bytes(8), "logits_shape": [1, 1, 2]}
    return {"request_id": request.request_id, **first}


class Lost:
    """A node that loses one of several changes of a moment."""

    def __init__(self) -> None:
        self.at, self.lost = 0.0, dict[str, Any]()

    def __call__(self, asked: Asked, response: Response) -> None:
        """Show another value for the key of a change that came soon after one."""
        if asked.path != CONFIG or response.status != 200:
            return
        if asked.method == "PATCH":
            soon = time.monotonic() - self.at < SOON_S
            self.at = time.monotonic()
            self.lost = asked.body if soon and len(asked.body) == 1 else {}
            return
        for section, keys in self.lost.items():
            response.json[section].update(dict.fromkeys(keys, 12345))


def dotted_only(asked: Asked, response: Response) -> None:
    """Take changes whose keys are dotted, and no others."""
    if (asked.path, asked.method) != (CONFIG, "PATCH") or response.status == 401:
        return
    if all("." in key for key in asked.body):
        taken = {"success": True, "updated": list(asked.body), "restart_required": False}
        response.__dict__.update(Response(json=taken).__dict__)
    else:
        response.__dict__.update(error(400, "INVALID_REQUEST", "unknown key").__dict__)


class PendingToo:
    """A node that shows what is staked as pending, too."""

    def __init__(self) -> None:
        self.staked: dict[str | None, float] = {}

    def __call__(self, asked: Asked, response: Response) -> None:
        """Add up the stakes."""
        account = asked.authorization
        if response.status == 200 and asked.path == f"{WALLET}/stake":
            self.staked[account] = self.staked.get(account, 0.0) + asked.body["amount"]
        if response.status == 200 and asked.path == f"{WALLET}/balance":
            more = self.staked.get(account, 0.0)
            response.json["balances"]["pending"] += more
            response.json["balances"]["total"] += more


def one_name(asked: Asked, response: Response) -> None:
    """Name a transaction by its request."""
    if asked.path.startswith("/api/block/") and response.status == 200:
        response.json["entries"] = [{"request_id": "ab", "hash": "ab"}]


def sent_but_failed(called: str, request: Any, answer: Any) -> Any:
    """Send a checkpoint, and say that it failed."""
    if called != "GetCheckpoint" or not isinstance(answer, dict) or not answer.get("success"):
        return answer
    return {**answer, "success": False, "error_message": "ok"}


def of_the_first(asked: Asked, response: Response) -> None:
    """Show no account but the first what it has sent."""
    mine = asked.authorization == f"Bearer {TOKEN}"
    if asked.path == f"{WALLET}/transactions" and response.status == 200 and not mine:
        rows = response.json["transactions"]
        kept = [row for row in rows if len(row["id"]) < len("transaction")]
        response.json["transactions"], response.json["total"] = kept, len(kept)


def failed_by_words(called: str, request: Any, answer: Any) -> Any:
    """Fail at a range of layers in words."""
    words = called == "GetWeights" and request is not None and " at " in request.shard_range
    return "INTERNAL" if words else answer


def failed_by_misfits(called: str, request: Any, answer: Any) -> Any:
    """Fail at a tensor of another shape."""
    misfit = called == "PipelineForward" and request is not None and 9 in request.hidden_shape
    return "INTERNAL" if misfit else answer


def unpacked(called: str, request: Any, answer: Any) -> Any:
    """Send a checkpoint that is not compressed."""
    if called != "GetCheckpoint" or not isinstance(answer, dict) or not answer.get("success"):
        return answer
    return {**answer, "checkpoint_data": b"data"}


def escaped_memo(response: Response) -> None:
    """Escape the memo of a transfer for a page."""
    response.json["memo"] = html.escape(response.json["memo"])


def room_of_both(body: Any, response: Response) -> None:
    """Count the tokens of the prompt among those of max_tokens."""
    usage = response.json["usage"]
    usage["completion_tokens"] = max(1, body.get("max_tokens", 100) - usage["prompt_tokens"])
    usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
    response.json["tokens_generated"] = usage["completion_tokens"]


def dearer(body: Any, response: Response) -> None:
    """Name the cost of a thousand such requests."""
    response.json["cost"]["amount"] *= 1000


def older_by_hash(called: str, request: Any, answer: Any) -> Any:
    """Leave out the version of a checkpoint that is asked for by its hash."""
    if called != "GetCheckpoint" or request is None or not request.model_hash:
        return answer
    return {**answer, "version": 0} if answer.get("success") else answer


def nowhere(called: str, request: Any, answer: Any) -> Any:
    """Leave out the ip of the responder."""
    if called != "DHTPing" or not isinstance(answer, dict):
        return answer
    there: Any = messages.make("DHTNodeInfo")
    there.CopyFrom(answer["responder"])
    there.ip = ""
    return {**answer, "responder": there}


def hot_streams(asked: Asked, response: Response) -> None:
    """Stream at any temperature."""
    if asked.path != INFERENCE or response.status != 400 or not isinstance(asked.body, dict):
        return
    if asked.body.get("stream") is True and asked.body.get("temperature") in (2.5, -0.5):
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        last = {"token": "[DONE]", "finish_reason": "stop", "usage": usage}
        response.__dict__.update(Response(events=[{"token": "a", "index": 0}, last]).__dict__)


def peers_as_urls(response: Response) -> None:
    """Name peers by their URLs."""
    for peer in response.json["peers"]:
        peer["address"] = f"http://{peer['address']}"


HTTP: list[tuple[str, Http]] = [
    ("NA-PATCH-118", Lost()),
    ("NA-PATCH-119", dotted_only),
    ("NA-WALLET-043", PendingToo()),
    ("NT-RULE-040", one_name),
    ("NA-WALLET-040", taken_bodies(lambda value: isinstance(value, list))),
    ("NA-WALLET-041", taken_bodies(lambda value: value == "0.01")),
    ("NA-WALLET-042", fails_at_lists),
    ("NT-RULE-039", without_signature),
    ("NA-SANE-008", on("/api/v1/peers", peers_as_urls)),
    ("NA-WALLET-046", inference(dearer)),
    ("NA-INF-007", hot_streams),
    ("NA-WALLET-032", on(f"{WALLET}/send", escaped_memo, "POST")),
]
GRPC: list[tuple[str, Grpc]] = [
    ("GR-SANE-002", no_number),
    ("GR-NUM-002", as_text),
    ("GR-CKPT-013", sent_but_failed),
    ("GR-CKPT-015", older_by_hash),
    ("DH-028", nowhere),
    ("GR-CKPT-014", unpacked),
    ("GR-CODE-015", failed_by_words),
]
# Of texts that are as long each time, and of training and proofs that there need not be.
HTTP_OF_TOY: list[tuple[str, Http]] = [
    ("NA-WALLET-044", of_the_first),
    ("NA-INF-041", inference(by_pattern)),
    ("NA-INF-041", inference(by_prompt)),
    ("NA-INF-042", inference(room_of_both)),
    ("TR-RULE-016", on("/api/training/global", put("diloco.progress", 77))),
    ("NA-SANE-029", on(f"{WALLET}/transactions", of_nothing)),
]
# A node before which the layer stands need not take several sequences, and refuses in its own way
# what does not fit.
OF_TOY: list[tuple[str, Grpc]] = [
    ("PL-FWD-010", first_only),
    ("GR-CODE-015", failed_by_misfits),
]
