"""Hangs, resets, garbage and truncation over HTTP and gRPC, which must never prove anything.

Each row has the fault for every answer of one kind, and the requirement that is run.
"""

import time
from dataclasses import dataclass, replace
from typing import Any

from conformance.judging.hooks import Grpc, Http
from conformance.judging.layer import Layer
from conformance.judging.toy.answers import Asked, Response, no_grpc_hook, no_http_hook
from conformance.run import Runner
from conformance.target import Target
from conformance.verdict import Standing

SHORT_S = 0.5
HANG_S = 1.5


@dataclass(frozen=True)
class Hostile:
    """One kind of broken answer, and the requirement that it must not prove."""

    name: str
    ident: str
    http: Http = no_http_hook
    grpc: Grpc = no_grpc_hook


def _every(path: str, **changes: Any) -> Http:
    def hook(asked: Asked, response: Response) -> None:
        if asked.path == path:
            response.__dict__.update(changes)

    return hook


def _truncated(path: str) -> Http:
    def hook(asked: Asked, response: Response) -> None:
        if asked.path == path:
            response.cut = True

    return hook


def _hang(operation: str) -> Grpc:
    def hook(called: str, request: Any, answer: Any) -> Any:
        if called == operation:
            time.sleep(HANG_S)
        return answer

    return hook


def _bytes(operation: str, data: bytes) -> Grpc:
    return lambda called, request, answer: data if called == operation else answer


ROUTES = {
    "/api/v1/status": "NA-ROUTE-001",
    "/api/v1/wallet/balance": "NA-ROUTE-005",
    "/api/v1/inference": "NA-ROUTE-004",
    "/api/training/global": "TR-ROUTE-001",
    "/api/network": "NT-ROUTE-002",
}
OPERATIONS = {
    "GetCheckpointInfo": ("GR-OP-006", "GR-GET-CHECKPOINT-INFO-RESPONSE-02"),
    "DHTPing": ("GR-OP-015", "DH-001"),
    "PipelineForward": ("GR-OP-012", "PL-FWD-004"),
}
ROWS: list[Hostile] = [
    *(Hostile(f"hang at {path}", ident, _every(path, delay_s=HANG_S))
      for path, ident in ROUTES.items()),
    *(Hostile(f"reset at {path}", ident, _every(path, reset=True))
      for path, ident in ROUTES.items()),
    *(Hostile(f"garbage at {path}", ident, _every(
        path, raw=b"\x00\xff<html>", events=None, headers={"Content-Type": "application/json"}))
      for path, ident in ROUTES.items() if path != "/api/network"),
    *(Hostile(f"truncation at {path}", ident, _truncated(path)) for path, ident in ROUTES.items()),
    *(Hostile(f"hang of {name}", idents[0], grpc=_hang(name))
      for name, idents in OPERATIONS.items()),
    *(Hostile(f"garbage of {name}", idents[1], grpc=_bytes(name, b"\xff\xff\xff"))
      for name, idents in OPERATIONS.items()),
    *(Hostile(f"truncation of {name}", idents[1], grpc=_bytes(name, b"\x0a\x7fabc"))
      for name, idents in OPERATIONS.items()),
]  # fmt: skip


def judge(layer: Layer, target: Target, row: Hostile) -> str:
    """Run the requirement; return the gap if it is proved nevertheless, else an empty string."""
    layer.http_hook, layer.grpc_hook = row.http, row.grpc
    impatient = replace(target, timeout_s=SHORT_S, inference_timeout_s=SHORT_S, examples=1)
    run = Runner(impatient, only=[row.ident]).run()
    result = next(item for item in run.results if item.requirement.id == row.ident)
    if run.faults:
        return f"the suite broke down: {sorted(run.faults)}"
    # An earlier failure may end a check, which then has no finding on this requirement.
    open_or_wrong = {Standing.INCONCLUSIVE, Standing.VIOLATED}
    if result.standing is Standing.PROVED:
        return f"{row.ident} is proved"
    noticed = any(item.standing in open_or_wrong for item in run.results)
    return "" if noticed else f"not noticed: {result.standing.value} {result.reason}"
