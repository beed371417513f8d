"""Mutants of figures: latencies, counts of nodes, amounts at their edges, and values at theirs.

The fifth stranger's node has shown them; see `followed.py`.
"""

import json
from dataclasses import replace
from typing import Any

from conformance.checks.forms import encode
from conformance.checks.gradients import FORM
from conformance.judging.hooks import CONFIG, INFERENCE, Grpc, Http, inference, on, put
from conformance.judging.mutants.followed_places import ROUND
from conformance.judging.mutants.mixed_native import API, become
from conformance.judging.toy.answers import Asked, Response, Sent, error

METRICS, STATUS, NETWORK = (f"{API}/{name}" for name in ("metrics", "status", "network"))
SEND, UNSTAKE, BALANCE = (f"{API}/wallet/{name}" for name in ("send", "unstake", "balance"))
FEE, MUCH, MANY, ATOM = 0.0005, 50, 64, 10**6
SIZE = 100


def at_limit(asked: Asked, response: Response) -> None:
    """Say of who cannot pay that he asks too often."""
    if asked.path == INFERENCE and response.status == 402:
        become(response, error(400, "INVALID_REQUEST", "not now"))


class Exactly:
    """A node that refuses a transfer that takes all that is available."""

    def __init__(self) -> None:
        self.amount = 0.0

    def rewrite(self, sent: Sent) -> Sent:
        """Make more of an amount that ends as the fee does, so that it is refused."""
        self.amount = 0.0
        if not sent.target.startswith(SEND):
            return sent
        body = json.loads(sent.body)
        amount = body.get("amount")
        if isinstance(amount, float) and amount > MUCH and round(amount % 0.001, 6) == FEE:
            self.amount = amount
            return replace(sent, body=json.dumps({**body, "amount": amount + 1}).encode())
        return sent

    def __call__(self, asked: Asked, response: Response) -> None:
        """Say what was required."""
        if asked.path == SEND and response.status == 402 and self.amount:
            response.json["error"]["details"]["required"] = self.amount + FEE


class OnePending:
    """A node that shows the last unstake alone as pending."""

    def __init__(self) -> None:
        self.last: dict[str | None, float] = {}

    def __call__(self, asked: Asked, response: Response) -> None:
        """Remember it for its account."""
        account = asked.authorization
        if asked.path == UNSTAKE and response.status == 200:
            self.last[account] = response.json["unstake"]["amount"]
        if asked.path == BALANCE and response.status == 200 and account in self.last:
            response.json["balances"]["pending"] = self.last[account]


def cut_amount(asked: Asked, response: Response) -> None:
    """Take the whole atoms of a binary fraction."""
    if asked.path == SEND and response.status == 200:
        response.json["amount"] = int(response.json["amount"] * ATOM) / ATOM


def no_astral_memos(asked: Asked, response: Response) -> None:
    """Fail at letters of four bytes."""
    memo = asked.body.get("memo") if isinstance(asked.body, dict) else None
    if asked.path == SEND and isinstance(memo, str) and any(letter > "\uffff" for letter in memo):
        become(response, error(500, "INTERNAL", "no such letter"))


def no_false(asked: Asked, response: Response) -> None:
    """Take false for a value that is missing."""
    change = asked.body.get("training") if isinstance(asked.body, dict) else None
    if (asked.method, asked.path) == ("PATCH", CONFIG) and change == {"enabled": False}:
        become(response, error(400, "INVALID_REQUEST", "training.enabled is missing"))


def block_before(asked: Asked, response: Response) -> None:
    """Give a block the hash of the one before it."""
    if asked.path == "/rpc" and response.status == 200 and asked.body.get("method") == "block":
        height = (asked.body.get("params") or {}).get("height")
        response.json["result"]["hash"] = f"hash{int(height or 1) - 1}"


def default_of_none(body: Any, response: Response) -> None:
    """Generate as many tokens as by default where none are wanted."""
    if body.get("max_tokens") == 0:
        response.json.update(text="the toy", tokens_generated=2)
        used = response.json["usage"]
        used.update(completion_tokens=2, total_tokens=used["prompt_tokens"] + 2)


def long_texts(asked: Asked, response: Response) -> None:
    """Make texts of many words, and lose what comes late in a stream."""
    if asked.path != INFERENCE or response.status != 200:
        return
    many = asked.body.get("max_tokens", 100)
    if many <= MANY:
        return
    words = [f"w{number}" for number in range(many)]
    if response.events is None:
        used = response.json["usage"]
        used.update(completion_tokens=many, total_tokens=used["prompt_tokens"] + many)
        response.json.update(text=" ".join(words), tokens_generated=many)
        return
    used = response.events[-1]["usage"]
    used.update(completion_tokens=many, total_tokens=used["prompt_tokens"] + many)
    sent = [{"token": f"{word} ", "index": at} for at, word in enumerate(words[:MANY])]
    response.events = [*sent, response.events[-1]]


HTTP: list[tuple[str, Http]] = [
    ("NA-ERR-029", at_limit),
    ("NA-ERR-030", Exactly()),
    ("NA-WALLET-055", OnePending()),
    ("NA-WALLET-001", cut_amount),
    ("NA-WALLET-054", no_astral_memos),
    ("NA-PATCH-122", no_false),
    ("NA-SANE-042", on(METRICS, put("inference.p99_latency_ms", 0.1))),
    ("NA-SANE-043", on(METRICS, put("inference.avg_latency_ms", 0.0015))),
    ("NA-SANE-044", on(STATUS, lambda r: r.json.update(
        uptime_seconds=r.json["uptime_seconds"] + 1_780_000_000))),
    ("NA-SANE-045", on(NETWORK, put("nodes.total", 2))),
    ("NT-RULE-069", block_before),
    ("NA-INF-046", inference(default_of_none)),
    ("NA-SSE-018", long_texts),
]  # fmt: skip


def worked_out(called: str, request: Any, answer: Any) -> Any:
    """Work out a size that is -1."""
    if called != "PipelineForward" or request is None or -1 not in request.hidden_shape:
        return answer
    shape = [max(size, 1) for size in request.hidden_shape]
    states = {"hidden_states": request.hidden_states, "hidden_shape": shape}
    return {**answer, "success": True, "error_message": "", **states}


class OfItsSize:
    """A node that takes gradients of just as many values as its layers have, of any model."""

    def __init__(self) -> None:
        header = b'[{"name": "layer"}]'
        self.weights = len(header).to_bytes(4, "little") + header + bytes(4 * SIZE)
        self.fits = encode(FORM, [SIZE], scale=0.0)

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Serve weights behind a header, and look at nothing but the size."""
        if called == "GetWeights" and isinstance(answer, dict):
            return {"weights_data": self.weights}
        if called != "GossipGradient" or not isinstance(answer, dict):
            return answer
        fits = set(request.layer_gradients.values()) == {self.fits} and request.round_id == ROUND
        return {"accepted": fits, "reason": "" if fits else "another size", "current_round": ROUND}


GRPC: list[tuple[str, Grpc]] = [("GR-CODE-002", worked_out), ("GR-GOSSIP-006", OfItsSize())]
