"""Faults of refusals: each turned into a success, and each success into a refusal."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from conformance import messages
from conformance.judging.derived.fault import Fault, Wrapper
from conformance.judging.derived.interface import NODE_ROUTES, ROUTES, Route
from conformance.judging.derived.routes import refused
from conformance.judging.toy.answers import Asked, Response, Sent
from conformance.judging.toy.node import ToyNode

# A request that every node serves, for each route whose bodies may be refused.
GOOD: dict[str, Any] = {
    "/api/v1/inference": {"prompt": "Hello", "max_tokens": 1},
    "/api/v1/wallet/stake": {"amount": 1.0, "duration_days": 30},
    "/api/v1/wallet/unstake": {"amount": 0.01},
    "/api/v1/config": {},
}
ERRORS = {401: "UNAUTHORIZED", 402: "INSUFFICIENT_BALANCE", 429: "RATE_LIMITED"}


def refusal_faults() -> Iterator[Fault]:
    """Yield the faults of every refusal, of its body, and of every success."""
    for route in NODE_ROUTES:
        if route.path in GOOD:
            yield _served(route)
        if route.path in ("/api/v1/wallet/send", "/api/v1/wallet/stake"):
            yield _of(route, 402, "served", _send_served)
        for status in (402, 403, 422):
            yield _success(route, status)
    for status in ERRORS:
        for name, change in _BODIES.items():
            yield _of_status(status, name, change)
    for name in ("required", "available"):
        for kind, change in _FIGURES.items():
            yield _of_status(402, f"{name} {kind}", _figure(name, change))
    yield _of_status(402, "required and available swapped", _swapped)
    for route in ROUTES:
        yield _posted(route)
    for operation in ("PipelineForward", "PipelineBackward", "GetCheckpoint", "GossipGradient"):
        yield _accepted(operation)
    touched = frozenset({"rpc PipelineForward"})
    name = "NOT_FOUND of an absent layer"
    yield Fault("refusal's other status", name, touched, lambda node: Wrapper(grpc=_no_layer))


def _touched(route: Route) -> frozenset[str]:
    return frozenset({route.key})


def _served(route: Route) -> Fault:
    """Serve invalid bodies as if they were valid."""

    def make(node: ToyNode) -> Wrapper:
        def hook(asked: Asked, response: Response) -> None:
            if not route.matches(asked.method, asked.path) or response.status not in (400, 422):
                return
            headers = {"Authorization": asked.authorization or "",
                       "Content-Type": "application/json"}  # fmt: skip
            body = json.dumps(GOOD[route.path]).encode()
            _, good = node.answered(Sent(route.method, route.path, body, headers))
            response.__dict__.update(good.__dict__)

        return Wrapper(hook)

    return Fault("refusal turned into a success", route.key, _touched(route), make)


def _send_served(asked: Asked, response: Response) -> None:
    body = asked.body if isinstance(asked.body, dict) else {}
    done = {"success": True, "transaction_id": "t", "from": "x", "fee": 0, "status": "confirmed",
            "timestamp": "2026-01-01T00:00:00Z", **body}  # fmt: skip
    response.__dict__.update(Response(200, done).__dict__)


def _of(route: Route, status: int, name: str, change: Callable[[Asked, Response], object]) -> Fault:
    def hook(asked: Asked, response: Response) -> None:
        if route.matches(asked.method, asked.path) and response.status == status:
            change(asked, response)

    kind = "refusal turned into a success"
    return Fault(kind, f"{route.key} {status} {name}", _touched(route), lambda node: Wrapper(hook))


def _success(route: Route, status: int) -> Fault:
    def hook(asked: Asked, response: Response) -> None:
        if route.matches(asked.method, asked.path) and response.status == 200:
            refused(status, ERRORS.get(status, "REFUSED"))(response)

    name = f"{route.key} {status}"
    return Fault("success turned into a refusal", name, _touched(route), lambda node: Wrapper(hook))


def _error(response: Response) -> dict[str, Any]:
    inner = response.json.get("error") if isinstance(response.json, dict) else None
    return inner if isinstance(inner, dict) else {}


_BODIES: dict[str, Callable[[Response], object]] = {
    "without error": lambda r: setattr(r, "json", {"detail": "no"}),
    "error as a string": lambda r: setattr(r, "json", {"error": "no"}),
    "as text": lambda r: r.__dict__.update(raw=b"no", headers={"Content-Type": "text/plain"}),
    "without code": lambda r: _error(r).pop("code", None),
    "code in lower case": lambda r: _error(r).update(code=str(_error(r).get("code")).lower()),
    "code as a number": lambda r: _error(r).update(code=r.status),
    "another code": lambda r: _error(r).update(code="ERROR"),
    "without message": lambda r: _error(r).pop("message", None),
    "message null": lambda r: _error(r).update(message=None),
    "details as a string": lambda r: _error(r).update(details="none"),
    "details as an array": lambda r: _error(r).update(details=["none"]),
    "without details": lambda r: _error(r).pop("details", None),
    "another status": lambda r: setattr(r, "status", 400),
    "status 403": lambda r: setattr(r, "status", 403),
}
_FIGURES: dict[str, Callable[[Any], Any]] = {
    "missing": lambda value: None,
    "as a string": str,
    "of another sign": lambda value: -value,
    "off by a factor": lambda value: value * 1000,
    "zero": lambda value: 0,
}


def _figure(name: str, change: Callable[[Any], Any]) -> Callable[[Response], object]:
    def do(response: Response) -> None:
        details = _error(response).get("details")
        if isinstance(details, dict) and name in details:
            details[name] = change(details[name])

    return do


def _swapped(response: Response) -> None:
    details = _error(response).get("details")
    if isinstance(details, dict) and {"required", "available"} <= set(details):
        details["required"], details["available"] = details["available"], details["required"]


def _of_status(status: int, name: str, change: Callable[[Response], object]) -> Fault:
    routes = [route for route in NODE_ROUTES if route.guarded] if status == 401 else []
    if status == 402:
        routes = [r for r in NODE_ROUTES if r.path.endswith(("/send", "/stake"))]
    if status == 429:
        routes = [r for r in NODE_ROUTES if r.path.endswith("/status")]

    def make(node: ToyNode) -> Wrapper:
        served = [0]

        def hook(asked: Asked, response: Response) -> None:
            if status == 429 and asked.path == "/api/v1/status":
                served[0] += 1
                if served[0] == 1:
                    limited = refused(429, "RATE_LIMITED")
                    limited(response)
                    response.json["error"]["details"] = {"retry_after": 0}
            if response.status == status and asked.path.startswith("/api/v1"):
                change(response)

        return Wrapper(hook)

    touched = frozenset(route.key for route in routes)
    return Fault("error body", f"{status} {name}", touched, make)


def _posted(route: Route) -> Fault:
    """Serve a route that only reads for POST too."""

    def hook(asked: Asked, response: Response) -> None:
        if (
            asked.method == "POST"
            and asked.path == route.path.rstrip("/")
            and response.status > 400
        ):
            response.__dict__.update(Response(200, {}).__dict__)

    return Fault("another method served", route.key, _touched(route), lambda node: Wrapper(hook))


def _accepted(operation: str) -> Fault:
    """Turn an application-level refusal, which says why, into a success."""

    def hook(called: str, request: Any, answer: Any) -> Any:
        if called != operation or isinstance(answer, str):
            return answer
        key, why = "success", "error_message"
        if operation == "GossipGradient":
            key, why = "accepted", "reason"
        if answer.get(key) or not answer.get(why):
            return answer
        return {**{k: v for k, v in answer.items() if k != why}, key: True}

    touched = frozenset({f"rpc {operation}"})
    return Fault(
        "refusal turned into a success", operation, touched, lambda node: Wrapper(grpc=hook)
    )


def _no_layer(operation: str, request: Any, answer: Any) -> Any:
    if operation != "PipelineForward" or request is None or request.target_shard < 1000:
        return answer
    return messages.make(
        "PipelineForwardResponse", request_id=request.request_id, error_message="no such layer"
    ).SerializeToString()
