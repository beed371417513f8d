"""More mutants: of queries, of lists, and of plausibility requirements.

The rows have the form of those in `rules.py`.
"""

import os
import re
from collections.abc import Callable
from typing import Any

from conformance import messages
from conformance.checks.not_shown import NOT_SHOWN
from conformance.checks.wallet import EXCESS
from conformance.judging.hooks import CONFIG, Drifting, Grpc, Http, grpc_status, on, put
from conformance.judging.toy.answers import Asked, Response, error, no_grpc_hook, no_http_hook

TRANSACTIONS, PROOFS = "/api/v1/wallet/transactions", "/api/v1/proofs"
LARGE_BYTES = 1024 * 1024


def queried(path: str, change: Any) -> Http:
    """Change the answers to a GET with a query."""

    def hook(asked: Asked, response: Response) -> None:
        if asked.path == path and asked.query and response.status == 200:
            change(response)

    return hook


def refused(response: Response) -> None:
    """Refuse the request."""
    response.__dict__.update(error(400, "INVALID_REQUEST", "no such parameter").__dict__)


def longer(key: str) -> Any:
    """Return nine times as many entries."""
    return lambda response: response.json.update({key: response.json[key] * 9})


class Renamed:
    """A node whose node_id differs in every answer."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Give the next node_id."""
        if asked.path == "/api/v1/status" and response.status == 200:
            self.looks += 1
            response.json["node_id"] = f"node {self.looks}"


class Backwards:
    """A clock that runs backwards."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Give a time one year before the previous one."""
        if asked.path == "/api/v1/metrics" and response.status == 200:
            self.looks += 1
            put("timestamp", f"20{50 - self.looks % 50:02d}-01-01T00:00:00Z")(response)


class ChangedByRefusal:
    """A configuration that even a refused change modifies."""

    def __init__(self) -> None:
        self.refusals = 0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Count the refusals, and add them to the batch size."""
        if asked.path == CONFIG and asked.method == "PATCH" and response.status == 400:
            self.refusals += 1
        if asked.path == CONFIG and asked.method == "GET" and response.status == 200:
            response.json["training"]["batch_size"] += self.refusals


def found_nodes(change: Any) -> Grpc:
    """Change the list of nodes of DHTFindNode; `change` sees the request too."""

    def hook(called: str, request: Any, answer: Any) -> Any:
        if called != "DHTFindNode" or isinstance(answer, str):
            return answer
        return {**answer, "nodes": change(request, list(answer["nodes"]))}

    return hook


def moved(node: Any, **changes: Any) -> Any:
    """Return a copy of a node with some fields changed."""
    kept = {"node_id": node.node_id, "ip": node.ip, "port": node.port}
    return messages.make("DHTNodeInfo", **{**kept, **changes})


def renamed_responder(called: str, request: Any, answer: Any) -> Any:
    """Let another node answer every ping."""
    if called != "DHTPing" or isinstance(answer, str):
        return answer
    return {**answer, "responder": moved(answer["responder"], node_id=os.urandom(20))}


def small_only(called: str, request: Any, answer: Any) -> Any:
    """Refuse gradients of more than a MiB."""
    large = called == "GossipGradient" and request is not None
    return "RESOURCE_EXHAUSTED" if large and request.ByteSize() > LARGE_BYTES else answer


def served(method: str, path: str, fits: Callable[[Asked], bool], body: Any = None) -> Http:
    """Turn refusals of one route into a success."""

    def hook(asked: Asked, response: Response) -> None:
        if (asked.method, asked.path) == (method, path) and response.status >= 400 and fits(asked):
            response.__dict__.update(Response(200, body or {}).__dict__)

    return hook


def out_of_date(asked: Asked) -> bool:
    """Return whether a refused request has a token that the suite has not invented."""
    return bool(asked.authorization) and "not-a-token" not in str(asked.authorization)


def excessive(asked: Asked) -> bool:
    """Return whether a request asks for more than anybody has."""
    amount = asked.body.get("amount") if isinstance(asked.body, dict) else None
    return isinstance(amount, int | float) and amount >= EXCESS


def forgets_its_hash(called: str, request: Any, answer: Any) -> Any:
    """Refuse every checkpoint that is asked for by its hash."""
    if called != "GetCheckpoint" or request is None or not request.model_hash:
        return answer
    return {"success": False, "error_message": "no such checkpoint"}


def confused_weights(called: str, request: Any, answer: Any) -> Any:
    """Call weights of a layer that no model has an error of the server."""
    named = re.findall(r"\d+", request.shard_range) if called == "GetWeights" and request else []
    return "INTERNAL" if any(int(number) >= 1000 for number in named) else answer


ALL_OF_IT = {"success": True, "unstake": {
    "amount": 10**9, "cooldown_days": 7, "available_date": "2026-01-01"}}  # fmt: skip
HTTP: list[tuple[str, Http]] = [
    ("NA-SANE-023", on("/api/v1/status", put("uptime_seconds", 5))),
    ("TR-RULE-015", on("/api/training/global", put("local.node_id", "another"))),
    ("NA-WALLET-024", served("POST", "/api/v1/wallet/unstake", excessive, ALL_OF_IT)),
    ("NA-AUTH-018", served("POST", "/api/v1/wallet/stake", out_of_date)),
    ("NA-AUTH-019", served("POST", "/api/v1/inference", lambda asked: not asked.authorization)),
    ("NA-QUERY-001", queried(TRANSACTIONS, refused)),
    ("NA-QUERY-002", queried(TRANSACTIONS, longer("transactions"))),
    ("NA-QUERY-004", queried(PROOFS, refused)),
    ("NA-QUERY-005", queried(PROOFS, longer("proofs"))),
    ("NA-SANE-002", Renamed()),
    ("NA-SANE-013", Backwards()),
    ("NA-PATCH-106", ChangedByRefusal()),
    ("NA-PATCH-103", Drifting(CONFIG, "port", 1)),
]
GRPC: list[tuple[str, Grpc]] = [
    ("GR-CKPT-012", forgets_its_hash),
    ("GR-WEIGHT-002", confused_weights),
    ("DH-002", renamed_responder),
    ("DH-005", found_nodes(lambda request, nodes: [*nodes, *nodes])),
    ("DH-006", found_nodes(
        lambda request, nodes: [node for node in nodes if node.node_id != request.target_id])),
    ("DH-013", found_nodes(lambda request, nodes: [moved(node, port=0) for node in nodes])),
    ("LIM-007", small_only),
    ("GR-OP-001", grpc_status("StreamInference", "UNIMPLEMENTED")),
    *((ident, grpc_status(name, "UNIMPLEMENTED"))
      for ident, name in NOT_SHOWN.items() if name != "GossipStake"),
]  # fmt: skip
ROWS: list[tuple[str, Http, Grpc]] = [(ident, hook, no_grpc_hook) for ident, hook in HTTP]
ROWS += [(ident, no_http_hook, hook) for ident, hook in GRPC]
