"""Peculiar behaviour that the document leaves open, and therefore allows.

Each variant is a hook that changes answers as far as no sentence of the document is violated.
"""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from conformance import messages
from conformance.judging.hooks import (
    CONFIG,
    HEALTH,
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
from conformance.judging.peculiar_accounts import (
    NoneToOneself,
    NoStake,
    NothingStaked,
    Unused,
    poor_wallet,
)
from conformance.judging.toy.answers import (
    Asked,
    Response,
    Sent,
    error,
    no_grpc_hook,
    no_http_hook,
)

METRICS, STATUS = "/api/v1/metrics", "/api/v1/status"


def catching_up(asked: Asked, response: Response) -> None:
    """Say in both places that the chain is not ready."""
    if asked.path == "/healthz":
        response.status = 503
    elif asked.path == "/api/network" and response.status == 200:
        response.json["ready"] = False


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
    """Answer 429 to every third request, as documented, without carrying it out.

    But not to one that comes again: of several at once, the same one might be the third each time.
    """

    def __init__(self, retry_after: Any = 0) -> None:
        self.count, self.retry_after = 0, retry_after
        self.refused: set[tuple[str, str, str, bytes]] = set()
        self.here = threading.local()

    def rewrite(self, sent: Sent) -> Sent:
        """Count the request; of every third ask the node nothing that it would carry out."""
        self.count += 1
        asked = (sent.method, sent.target, sent.header("authorization"), sent.body)
        self.here.limited = self.count % 3 == 0 and asked not in self.refused
        if self.here.limited:
            self.refused.add(asked)
        else:
            self.refused.discard(asked)
        return Sent("GET", HEALTH, b"", {}) if self.here.limited else sent

    def __call__(self, asked: Asked, response: Response) -> None:
        """Refuse every third request."""
        if getattr(self.here, "limited", False):
            limited = error(429, "RATE_LIMITED", "slow down", retry_after=self.retry_after)
            response.__dict__.update(limited.__dict__)


def refused_change(asked: Asked, response: Response) -> None:
    """Refuse every change of the configuration."""
    if asked.method == "PATCH" and asked.path == CONFIG and response.status == 200:
        response.__dict__.update(error(403, "FORBIDDEN", "not from here").__dict__)


class Unswitched:
    """Take no switch of the training, and list none as updated."""

    def rewrite(self, sent: Sent) -> Sent:
        """Leave the switch out of a change."""
        if sent.method != "PATCH" or not sent.target.startswith(CONFIG):
            return sent
        try:
            body = json.loads(sent.body)
            switch = body["training"].pop("enabled")
        except (ValueError, LookupError, TypeError, AttributeError):
            return sent
        return replace(sent, body=json.dumps(body).encode()) if isinstance(switch, bool) else sent

    def __call__(self, asked: Asked, response: Response) -> None:
        """Answer as always."""


def not_training(asked: Asked, response: Response) -> None:
    """Report training that does not work."""
    if asked.path == "/api/training/global":
        response.json["hash_agreement_rate"] = 0.5
    if asked.path == "/api/training/verify":
        response.json = {"is_working": False, "reason": "nodes differ", "action": "sync"}


def without_layers(asked: Asked, response: Response) -> None:
    """Hold no layers."""
    if asked.path == STATUS:
        response.json["layers"] = []
    if asked.path == "/api/v1/layers" and response.status == 200:
        response.json.update(layers=[], my_layer_count=0)


def reads_done(body: Any, response: Response) -> None:
    """Let every token read [DONE]; the stream stops there if it is asked to."""
    values = response.events or []
    if "[DONE]" in (body.get("stop") or []):
        values = [values[0], values[-1]]
    response.events = [{**value, "token": "[DONE]"} for value in values]


def plain_missing(asked: Asked, response: Response) -> None:
    """Answer a missing path with an HTML page; OpenAI's refusals stay as they are."""
    if response.status == 404 and not asked.path.startswith("/v1/"):
        response.raw, response.headers = b"<h1>Not found</h1>", {"Content-Type": "text/html"}


def written(form: str) -> Callable[[Response], None]:
    """Write the present time in another form."""
    return lambda response: put("timestamp", datetime.now(UTC).strftime(form))(response)


def ascending(asked: Asked, response: Response) -> None:
    """Let pages of blocks end with the latest block."""
    if asked.path == "/api/blocks" and response.status == 200:
        response.json["blocks"].reverse()


VARIANTS: dict[str, Http] = {
    "pages of blocks that end with the latest": ascending,
    "a time without a zone": on(METRICS, written("%Y-%m-%dT%H:%M:%S")),
    "a time in the basic format": on(METRICS, written("%Y%m%dT%H%M%S.5+0000")),
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
    "no layers": without_layers,
    "layers out of order": on(STATUS, lambda r: r.json.update(layers=r.json["layers"][::-1])),
    "an odd version": on(STATUS, put("version", "nightly")),
    "an unhealthy node": on(
        HEALTH, lambda r: r.__dict__.update(
            status=503, json={**r.json, "healthy": False})),
    "an unhealthy node with status 200": on(HEALTH, put("healthy", False)),
    "other words for health": on(HEALTH, put("checks.gpu", "no GPU in this machine")),
    "a gateway that is catching up": catching_up,
    "permanent redirects of legacy paths": on(
        "/login", lambda r: r.__dict__.update(
            status=308, headers={"Location": "https://example.invalid/join/"}), status=302),
    "transfers to oneself refused": NoneToOneself(),
    "a minimum stake": NoStake(error(422, "TOO_LITTLE", "at least 100")),
    "a stake added to an existing one": on(
        "/api/v1/wallet/stake",
        lambda r: r.json["stake"].update(amount=r.json["new_balance"]["staked"]), "POST"),
    "a stake that does not succeed": NoStake(Response(json={"success": False})),
    "a poor wallet": poor_wallet,
    "no peers": on("/api/v1/peers", lambda r: r.json.update(peers=[], total=0)),
    "a peer behind IPv6": on(
        "/api/v1/peers", lambda r: r.json["peers"][0].update(address="[2001:db8::1]:9000")),
    "no transactions": Unused(),
    "no proofs": on("/api/v1/proofs", lambda r: r.json.update(proofs=[])),
    "nothing staked": NothingStaked(error(422, "TOO_LITTLE", "at least 100")),
    "training that does not work": not_training,
    "a network in another unit": on("/api/v1/network", put("architecture.parameters", "")),
    "invalid bodies get 422": refusals_with(422),
    "invalid bodies get 413": refusals_with(413),
    "invalid bodies get 409": refusals_with(409),
    "HTML pages at missing paths": plain_missing,
    "a challenge with the 401": refusal(lambda body: body["error"].update(message="")),
    "additional fields in the error": refusal(lambda body: body.update(request_id="r1")),
    "changes are refused": refused_change,
    "training that is not switched": Unswitched(),
    "changes need a restart": on(
        CONFIG, lambda r: r.json.update(restart_required=True), "PATCH"),
    "rate limited": Limited(),
    "rate limited with a fraction": Limited(0.0),
    "slow answers": every(lambda r: setattr(r, "delay_s", 0.01)),
    "nothing generated": inference(lambda body, r: r.json.update(
        text="", tokens_generated=0, finish_reason="length",
        usage={**r.json["usage"], "completion_tokens": 0,
               "total_tokens": r.json["usage"]["prompt_tokens"]})),
    "another finish reason": inference(lambda body, r: r.json.update(finish_reason="length")),
    "the stop sequence is kept": inference(
        # Of several, the answer does not show which it was.
        lambda body, r: len(body.get("stop") or ()) == 1 and r.json.update(
            text=r.json["text"] + body["stop"][0])),
    "comments in the stream": raw_events(": keep-alive\n\ndata: {}\n\n"),
    "named events": raw_events("event: message\nid: 7\nretry: 10\ndata: {}\n\n"),
    "CRLF in the stream": raw_events("data: {}\r\n\r\n"),
    "CR in the stream": raw_events("data: {}\r\r"),
    "no space after the colon": raw_events("data:{}\n\n"),
    "no blank line at the end": unended,
    "many blank lines": raw_events("\n\ndata: {}\n\n\n\n"),
    "no token at all": events(lambda values: [{**values[-1], "usage": {
        "prompt_tokens": values[-1]["usage"]["prompt_tokens"], "completion_tokens": 0,
        "total_tokens": values[-1]["usage"]["prompt_tokens"]}}]),
    "indices with gaps": events(
        lambda values: [{**v, **({"index": 2 * i} if "index" in v else {})}
                        for i, v in enumerate(values)]),
    "the final event has an index": events(
        lambda values: [*values[:-1], {**values[-1], "index": 99}]),
    "a token that reads [DONE]": inference(reads_done, stream=True),
    "the usage so far beside each token": events(
        lambda values: [{"finish_reason": None, "usage": {"completion_tokens": i + 1}, **v}
                        for i, v in enumerate(values)]),
    "empty tokens": events(lambda values: [
        {**v, "token": ""} if "index" in v else v for v in values]),
}  # fmt: skip


def unsorted_nodes(called: str, request: Any, answer: Any) -> Any:
    """List the nodes in an order of no meaning."""
    if called not in ("DHTFindNode", "DHTFindValue") or not answer.get("nodes"):
        return answer
    return {**answer, "nodes": sorted(answer["nodes"], key=lambda node: node.port)}


def more_fields(called: str, request: Any, answer: Any) -> Any:
    """Add fields with numbers that the document does not use."""
    if called not in messages.OPERATIONS or isinstance(answer, str):
        return answer
    data = messages.make(messages.OPERATIONS[called][1], **answer).SerializeToString()
    return data + b"\xa2\x06\x03abc"


def stores_nothing(called: str, request: Any, answer: Any) -> Any:
    """Refuse every value, and have none."""
    if called == "DHTStore":
        return {**answer, "success": False}
    if called == "DHTFindValue" and answer.get("found"):
        return {"responder": answer["responder"], "found": False}
    return answer


class LabelsOnly:
    """Keep the graphs only of passes with labels."""

    def __init__(self) -> None:
        self.kept: set[str] = set()

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Remember a pass with labels, or refuse the gradients of others."""
        if called == "PipelineForward" and request is not None and request.training_labels:
            self.kept.add(request.request_id)
        if called != "PipelineBackward" or isinstance(answer, str) or not answer.get("success"):
            return answer
        unknown = {"success": False, "error_message": "no graph is kept"}
        return answer if request.request_id in self.kept else unknown


GRPC_VARIANTS: dict[str, Grpc] = {
    "graphs only of passes with labels": LabelsOnly(),
    "nodes in any order": unsorted_nodes,
    "no nodes known": lambda called, request, answer: (
        {**answer, "nodes": []} if "nodes" in answer else answer),
    "additional fields": more_fields,
    "stores nothing": stores_nothing,
    "no checkpoint": lambda called, request, answer: (
        {"success": False, "error_message": "none yet"} if called == "GetCheckpoint" else answer),
    "no checkpoint, by status": grpc_status("GetCheckpoint", "NOT_FOUND"),
    "nothing about checkpoints": lambda called, request, answer: (
        {} if called == "GetCheckpointInfo" else
        {"success": False, "error_message": "none yet"} if called == "GetCheckpoint" else answer),
    "an overloaded pipeline": grpc_status("PipelineForward", "RESOURCE_EXHAUSTED"),
    "gradients accepted": lambda called, request, answer: (
        {"accepted": True, "current_round": 1} if called == "GossipGradient" else answer),
    "weights refused": grpc_status("GetWeights", "INVALID_ARGUMENT"),
    "a swarm that wants a message": grpc_status("SwarmForward", "INVALID_ARGUMENT"),
}  # fmt: skip

ROWS: list[tuple[str, Http, Grpc]] = [(name, hook, no_grpc_hook) for name, hook in VARIANTS.items()]
ROWS += [(name, no_http_hook, hook) for name, hook in GRPC_VARIANTS.items()]
# It lists what it has: a layer that it listed and did not find would be GR-CODE-014's.
ROWS.append((
    "a pipeline without the layer",
    on("/api/v1/status", put("layers", [0, 2, 3])),
    lambda called, request, answer: (
        "NOT_FOUND"
        if called == "PipelineForward" and request is not None
        and request.target_shard not in (0, 2, 3)
        else answer),
))  # fmt: skip
