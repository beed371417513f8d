"""Peculiar behaviour that the document leaves open, and therefore allows.

Each variant is a hook that changes answers as far as no sentence of the document is violated.
"""

import json
from collections.abc import Callable
from typing import Any

from conformance import messages
from conformance.judging.hooks import (
    CONFIG,
    INFERENCE,
    Grpc,
    Http,
    events,
    grpc_status,
    inference,
    on,
    put,
    raw_events,
    refusal,
    unended,
)
from conformance.judging.toy.node import Asked, Response, error, no_grpc_hook, no_http_hook

METRICS, STATUS, HEALTH = "/api/v1/metrics", "/api/v1/status", "/api/v1/health"


def every(change: Callable[[Response], object]) -> Http:
    """Change every answer."""

    def hook(asked: Asked, response: Response) -> None:
        change(response)

    return hook


def with_more_fields(asked: Asked, response: Response) -> None:
    """Add a field to every object."""

    def add(value: Any) -> Any:
        if isinstance(value, dict):
            return {"zz_extra": None, **{key: add(inner) for key, inner in value.items()}}
        return [add(inner) for inner in value] if isinstance(value, list) else value

    response.json = add(response.json)
    if response.events is not None:
        response.events = add(response.events)


def refusals_with(status: int) -> Http:
    """Answer every invalid body with another status."""
    return on(INFERENCE, lambda r: setattr(r, "status", status), "POST", 400)


def encoded(**settings: Any) -> Http:
    """Serialise the JSON in another way."""

    def hook(asked: Asked, response: Response) -> None:
        if response.events is None and response.raw is None:
            response.raw = json.dumps(response.json, **settings).encode()

    return hook


def numbers_as(kind: type) -> Http:
    """Write every whole number as an integer, or with a fraction."""

    def turn(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: turn(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [turn(inner) for inner in value]
        whole = (
            isinstance(value, int | float) and not isinstance(value, bool) and value == int(value)
        )
        return kind(value) if whole else value

    def hook(asked: Asked, response: Response) -> None:
        response.json = turn(response.json)

    return hook


class Limited:
    """Answer 429 to every third request, as documented."""

    def __init__(self, retry_after: Any = 0) -> None:
        self.count, self.retry_after = 0, retry_after

    def __call__(self, asked: Asked, response: Response) -> None:
        """Count the request, and refuse every third."""
        self.count += 1
        if self.count % 3 == 0:
            limited = error(429, "RATE_LIMITED", "slow down", retry_after=self.retry_after)
            response.__dict__.update(limited.__dict__)


def refused_change(asked: Asked, response: Response) -> None:
    """Refuse every change of the configuration."""
    if asked.method == "PATCH" and asked.path == CONFIG and response.status == 200:
        response.__dict__.update(error(403, "FORBIDDEN", "not from here").__dict__)


def not_training(asked: Asked, response: Response) -> None:
    """Report training that does not work."""
    if asked.path == "/api/training/global":
        response.json["hash_agreement_rate"] = 0.5
    if asked.path == "/api/training/verify":
        response.json = {"is_working": False, "reason": "nodes differ", "action": "sync"}


def nothing_staked(asked: Asked, response: Response) -> None:
    """Report that nothing is staked, and therefore no dates."""
    if asked.path == "/api/v1/wallet/balance" and response.status == 200:
        response.json["staking"] = {"amount": 0, "start_date": None}


def plain_missing(asked: Asked, response: Response) -> None:
    """Answer a missing path with an HTML page."""
    if response.status == 404:
        response.raw, response.headers = b"<h1>Not found</h1>", {"Content-Type": "text/html"}


VARIANTS: dict[str, Http] = {
    "a time without a zone": on(METRICS, put("timestamp", "2026-01-01T12:00:00")),
    "a time in the basic format": on(METRICS, put("timestamp", "20260101T120000.5+0000")),
    "additional fields everywhere": with_more_fields,
    "JSON indented": encoded(indent=2),
    "JSON sorted": encoded(sort_keys=True),
    "JSON not ASCII": encoded(ensure_ascii=False),
    "whole numbers with a fraction": numbers_as(float),
    "whole numbers without a fraction": numbers_as(int),
    "content type with charset": every(
        lambda r: r.headers.update(
            {} if r.events is not None else {"Content-Type": "application/json; charset=utf-8"})),
    "another status word": on(STATUS, put("status", "syncing")),
    "another role": on(STATUS, put("role", "archivist")),
    "no layers": on(STATUS, put("layers", [])),
    "layers out of order": on(STATUS, put("layers", [1, 0])),
    "an odd version": on(STATUS, put("version", "nightly")),
    "an unhealthy node": on(
        HEALTH, lambda r: r.__dict__.update(
            status=503, json={**r.json, "healthy": False})),
    "an unhealthy node with status 200": on(HEALTH, put("healthy", False)),
    "other words for health": on(HEALTH, put("checks.gpu", "no GPU in this machine")),
    "a gateway that is catching up": on("/healthz", lambda r: setattr(r, "status", 503)),
    "permanent redirects of legacy paths": on(
        "/login", lambda r: r.__dict__.update(
            status=308, headers={"Location": "https://example.invalid/join/"}), status=302),
    "transfers to oneself refused": on(
        "/api/v1/wallet/send",
        lambda r: r.__dict__.update(error(400, "SELF", "to yourself").__dict__), "POST"),
    "a minimum stake": on(
        "/api/v1/wallet/stake",
        lambda r: r.__dict__.update(error(422, "TOO_LITTLE", "at least 100").__dict__), "POST"),
    "a stake added to an existing one": on(
        "/api/v1/wallet/stake", put("stake.amount", 17), "POST"),
    "a stake that does not succeed": on(
        "/api/v1/wallet/stake", lambda r: setattr(r, "json", {"success": False}), "POST"),
    "a poor wallet": on("/api/v1/wallet/balance", put("balances.available", 0)),
    "no peers": on("/api/v1/peers", lambda r: r.json.update(peers=[], total=0)),
    "a peer behind IPv6": on(
        "/api/v1/peers", lambda r: r.json["peers"][0].update(address="[2001:db8::1]:9000")),
    "no transactions": on(
        "/api/v1/wallet/transactions", lambda r: r.json.update(transactions=[], total=0)),
    "no proofs": on("/api/v1/proofs", lambda r: r.json.update(proofs=[])),
    "nothing staked": nothing_staked,
    "training that does not work": not_training,
    "a network in another unit": on("/api/v1/network", put("architecture.parameters", "")),
    "invalid bodies get 422": refusals_with(422),
    "invalid bodies get 413": refusals_with(413),
    "invalid bodies get 409": refusals_with(409),
    "HTML pages at missing paths": plain_missing,
    "a challenge with the 401": refusal(lambda body: body["error"].update(message="")),
    "additional fields in the error": refusal(lambda body: body.update(request_id="r1")),
    "changes are refused": refused_change,
    "changes need a restart": on(
        CONFIG, lambda r: r.json.update(restart_required=True), "PATCH"),
    "rate limited": Limited(),
    "rate limited with a fraction": Limited(0.0),
    "slow answers": every(lambda r: setattr(r, "delay_s", 0.01)),
    "nothing generated": inference(lambda body, r: r.json.update(
        text="", tokens_generated=0, finish_reason="length",
        usage={"prompt_tokens": 2, "completion_tokens": 0, "total_tokens": 2})),
    "another finish reason": inference(lambda body, r: r.json.update(finish_reason="length")),
    "free inference": inference(lambda body, r: r.json["cost"].update(amount=0)),
    "the stop sequence is kept": inference(
        lambda body, r: r.json.update(text=r.json["text"] + (body.get("stop") or [""])[0])),
    "comments in the stream": raw_events(": keep-alive\n\ndata: {}\n\n"),
    "named events": raw_events("event: message\nid: 7\nretry: 10\ndata: {}\n\n"),
    "CRLF in the stream": raw_events("data: {}\r\n\r\n"),
    "CR in the stream": raw_events("data: {}\r\r"),
    "no space after the colon": raw_events("data:{}\n\n"),
    "no blank line at the end": unended,
    "many blank lines": raw_events("\n\ndata: {}\n\n\n\n"),
    "no token at all": events(lambda values: [{
        **values[-1], "usage": {"prompt_tokens": 2, "completion_tokens": 0, "total_tokens": 2}}]),
    "indices with gaps": events(
        lambda values: [{**v, **({"index": 2 * i} if "index" in v else {})}
                        for i, v in enumerate(values)]),
    "the final event has an index": events(
        lambda values: [*values[:-1], {**values[-1], "index": 99}]),
    "a token that reads [DONE]": events(
        lambda values: [{**v, "token": "[DONE]"} for v in values]),
    "empty tokens": events(lambda values: [
        {**v, "token": ""} if "index" in v else v for v in values]),
}  # fmt: skip


def unsorted_nodes(called: str, request: Any, answer: Any) -> Any:
    """List more nodes, in no order."""
    if called not in ("DHTFindNode", "DHTFindValue") or not answer.get("nodes"):
        return answer
    more = [
        messages.make("DHTNodeInfo", node_id=bytes([n]) * 20, ip="192.0.2.9", port=9000 + n)
        for n in (9, 3, 7)
    ]
    return {**answer, "nodes": [*more, *answer["nodes"]]}


def more_fields(called: str, request: Any, answer: Any) -> Any:
    """Add fields with numbers that the document does not use."""
    if called not in messages.OPERATIONS or isinstance(answer, str):
        return answer
    data = messages.make(messages.OPERATIONS[called][1], **answer).SerializeToString()
    return data + b"\xa2\x06\x03abc"


GRPC_VARIANTS: dict[str, Grpc] = {
    "nodes in any order": unsorted_nodes,
    "no nodes known": lambda called, request, answer: (
        {**answer, "nodes": []} if "nodes" in answer else answer),
    "additional fields": more_fields,
    "stores nothing": lambda called, request, answer: (
        {**answer, "success": False} if called == "DHTStore" else answer),
    "no checkpoint": lambda called, request, answer: (
        {"success": False, "error_message": "none yet"} if called == "GetCheckpoint" else answer),
    "no checkpoint, by status": grpc_status("GetCheckpoint", "NOT_FOUND"),
    "nothing about checkpoints": lambda called, request, answer: (
        {} if called == "GetCheckpointInfo" else answer),
    "an overloaded pipeline": grpc_status("PipelineForward", "RESOURCE_EXHAUSTED"),
    "a pipeline without the layer": grpc_status("PipelineForward", "NOT_FOUND"),
    "gradients accepted": lambda called, request, answer: (
        {"accepted": True, "current_round": 1} if called == "GossipGradient" else answer),
    "weights refused": grpc_status("GetWeights", "INVALID_ARGUMENT"),
    "no swarm": grpc_status("SwarmForward", "UNIMPLEMENTED"),
}  # fmt: skip

ROWS: list[tuple[str, Http, Grpc]] = [(name, hook, no_grpc_hook) for name, hook in VARIANTS.items()]
ROWS += [(name, no_http_hook, hook) for name, hook in GRPC_VARIANTS.items()]
