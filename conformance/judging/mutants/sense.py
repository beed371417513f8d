"""More mutants: of queries, of lists, and of plausibility requirements.

The rows have the form of those in `rules.py`.
"""

import os
from typing import Any

from conformance import messages
from conformance.checks.rpc import NOT_SHOWN
from conformance.judging.hooks import CONFIG, Drifting, Grpc, Http, grpc_status, put
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


HTTP: list[tuple[str, Http]] = [
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
