"""Mutants that do what they refuse, or let two do what only one can.

The fifth stranger's node has shown them; see `followed.py`.
"""

import uuid
from typing import Any

from conformance.judging.hooks import CONFIG, Grpc, Http, inference
from conformance.judging.mutants.mixed_native import API
from conformance.judging.toy.answers import Asked, Response
from conformance.judging.toy.native import ARTIFACT
from conformance.judging.toy.node import TOKEN

SEND, STAKE, UNSTAKE, BALANCE = (
    f"{API}/wallet/{name}" for name in ("send", "stake", "unstake", "balance")
)
HISTORY = f"{API}/wallet/transactions"


class TakenAnyway:
    """A node that takes what it has refused to stake, or counts what it has refused to unstake."""

    def __init__(self, path: str, key: str, sign: int) -> None:
        self.path, self.key, self.sign = path, key, sign
        self.moved: dict[str | None, float] = {}

    def __call__(self, asked: Asked, response: Response) -> None:
        """Add up what was refused, and show it in the balance."""
        account = asked.authorization
        amount = asked.body.get("amount") if isinstance(asked.body, dict) else None
        refused = asked.path == self.path and 400 <= response.status < 500
        if refused and isinstance(amount, float) and amount > 0:
            self.moved[account] = self.moved.get(account, 0.0) + amount
        if asked.path == BALANCE and response.status == 200:
            for key in (self.key, "total"):
                response.json["balances"][key] += self.sign * self.moved.get(account, 0.0)


def sent_by_receivers(asked: Asked, response: Response) -> None:
    """List what was received as sent."""
    if asked.path == HISTORY and response.status == 200:
        for row in response.json["transactions"]:
            if row["type"] == "receive":
                row.update(type="send", amount=-row["amount"])


def almost(asked: Asked, response: Response) -> None:
    """Take a token whose first letter is another for the valid one."""
    token = (asked.authorization or "").removeprefix("Bearer ")
    if asked.path == CONFIG and response.status == 401 and token[1:] == TOKEN[1:]:
        response.status, response.json = 200, {"node": {}}


class CheckedEarly:
    """A node that grants a transfer for what there was before the one beside it."""

    def __init__(self) -> None:
        self.last: dict[str, Any] = {}
        self.more = 0.0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Answer the second of two alike as the first, and count it where it went."""
        if asked.path == SEND and response.status == 200:
            self.last = {"body": asked.body, "answer": response.json}
        if asked.path == SEND and response.status == 402 and self.last.get("body") == asked.body:
            again = {**self.last["answer"], "transaction_id": uuid.uuid4().hex}
            response.status, response.json = 200, again
            self.more += asked.body["amount"]
        first = asked.authorization == f"Bearer {TOKEN}"
        if first and asked.path == BALANCE and response.status == 200:
            for key in ("available", "total"):
                response.json["balances"][key] += self.more


class ReadOnce:
    """A node whose artifacts are empty from the second reading on."""

    def __init__(self) -> None:
        self.read: set[str] = set()

    def __call__(self, asked: Asked, response: Response) -> None:
        """Remember what was read."""
        if response.raw == ARTIFACT:
            response.raw = b"" if asked.path in self.read else response.raw
            self.read.add(asked.path)


def before_the_prompt(body: Any, response: Response) -> None:
    """Look at no parameter that stands before the prompt."""
    if next(iter(body)) != "prompt":
        used = response.json["usage"]
        used.update(completion_tokens=9, total_tokens=used["prompt_tokens"] + 9)
        response.json.update(text=" ".join("abcdefghi"), tokens_generated=9)


class ReceivedBelow:
    """A node that lists what was received below zero, and by its sender alone."""

    def __init__(self) -> None:
        self.sender = ""

    def __call__(self, asked: Asked, response: Response) -> None:
        """Remember who sends, and change the entries of receivers."""
        if asked.path == SEND and response.status == 200:
            self.sender = response.json["from"]
        if asked.path == HISTORY and response.status == 200:
            for row in response.json["transactions"]:
                if row["type"] == "receive":
                    row.update({"amount": -row["amount"], "from": self.sender})
                    row.pop("to", None)


HTTP: list[tuple[str, Http]] = [
    ("NA-WALLET-057", ReceivedBelow()),
    ("NT-RULE-019", ReadOnce()),
    ("NA-FORM-001", inference(before_the_prompt)),
    ("NA-WALLET-056", TakenAnyway(STAKE, "available", -1)),
    ("NA-WALLET-056", TakenAnyway(UNSTAKE, "pending", 1)),
    ("NA-WALLET-057", sent_by_receivers),
    ("NA-AUTH-021", almost),
    ("NA-ERR-031", CheckedEarly()),
]


def no_frame(called: str, request: Any, answer: Any) -> Any:
    """Fail at a gradient that is no LZ4 frame."""
    plain = called == "GossipGradient" and b"plain" in request.layer_gradients.values()
    return "INTERNAL" if plain else answer


GRPC: list[tuple[str, Grpc]] = [("GR-CODE-015", no_frame)]
