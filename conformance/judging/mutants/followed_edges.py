"""Mutants that are wrong at an edge only; see `followed.py`."""

import re
from typing import Any

from conformance.judging.hooks import Grpc, Http, events, on, reindexed
from conformance.judging.mutants.followed_refused import BALANCE, HISTORY, STAKE
from conformance.judging.mutants.mixed_native import API
from conformance.judging.toy.answers import Asked, Response, error
from conformance.judging.toy.node import COST

LATENCY = -5.0


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


class StoppedFree:
    """A node that does not charge a generation that a stop sequence ends."""

    def __init__(self) -> None:
        self.back: dict[str | None, float] = {}

    def __call__(self, asked: Asked, response: Response) -> None:
        """Give back what was taken."""
        if response.status != 200:
            return
        if asked.path == f"{API}/inference" and asked.body.get("stop"):
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


HTTP: list[tuple[str, Http]] = [
    ("NA-SANE-047", on(f"{API}/peers", late)),
    ("NA-QUERY-021", behind),
    ("NA-WALLET-059", TakenFromPending()),
    ("NA-WALLET-046", StoppedFree()),
    ("NA-SSE-018", events(lambda values: reindexed([values[0], *values], int))),
    ("NT-RULE-070", another_chain),
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


GRPC: list[tuple[str, Grpc]] = [("DH-032", nobody_at_home), ("PL-FWD-016", one_sequence)]
