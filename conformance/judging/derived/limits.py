"""Faults of limits: each set to what common libraries have by default."""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs

from conformance import messages
from conformance.judging.derived.fault import Fault, Wrapper
from conformance.judging.derived.routes import refused
from conformance.judging.hooks import INFERENCE
from conformance.judging.toy.answers import Asked, Response, Sent
from conformance.judging.toy.node import ToyNode

MIB = 1024 * 1024
MESSAGE_LIMIT = "message limit"
OPERATIONS = ("GossipGradient", "PipelineForward", "GetCheckpoint", "GetWeights", "DHTStore")


def limit_faults() -> Iterator[Fault]:
    """Yield the limits."""
    for operation in OPERATIONS:
        for size in (4 * MIB, 16 * MIB, 64 * MIB):
            yield _messages(operation, size)
    for size in (1024, 16 * 1024, 100 * 1024, MIB):
        yield _bodies(size)
    for path, key in (("/api/v1/wallet/transactions", "transactions"), ("/api/v1/proofs", "proofs"),
                      ("/api/blocks", "blocks"), ("/api/training", "records")):  # fmt: skip
        for most in (1, 10, 100):
            yield _rows(path, key, most)
    ranges: dict[str, Callable[[Any], bool]] = {
        "temperature up to 1": lambda body: body.get("temperature", 0) > 1,
        "temperature below 2": lambda body: body.get("temperature", 0) >= 2,
        "temperature above 0": lambda body: body.get("temperature", 1) == 0,
        "max_tokens up to 4": lambda body: body.get("max_tokens", 1) > 4,
        "top_k up to 40": lambda body: body.get("top_k", 1) > 40,
        "top_p below 1": lambda body: body.get("top_p", 0.5) >= 1,
        "one stop sequence": lambda body: len(body.get("stop", [])) > 1,
        "stop not empty": lambda body: body.get("stop") == [],
    }
    for name, wrong in ranges.items():
        yield _inference(name, wrong)
    for days in (90, 365):
        yield _staked(days)
    for length in (16, 32, 64):
        yield _ids(length)


def _messages(operation: str, size: int) -> Fault:
    def hook(called: str, request: Any, answer: Any) -> Any:
        if called != operation or request is None:
            return answer
        answered = sum(len(v) for v in answer.values() if isinstance(v, bytes)) if isinstance(
            answer, dict) else 0  # fmt: skip
        return "RESOURCE_EXHAUSTED" if max(request.ByteSize(), answered) > size else answer

    name = f"{operation} {size // MIB} MiB"
    touched = frozenset({f"rpc {operation}"})
    return Fault(MESSAGE_LIMIT, name, touched, lambda node: Wrapper(grpc=hook))


def _bodies(size: int) -> Fault:
    def make(node: ToyNode) -> Wrapper:
        large = [False]

        def request(sent: Sent) -> Sent:
            large[0] = len(sent.body) > size
            return sent

        def hook(asked: Asked, response: Response) -> None:
            if large[0]:
                refused(413, "TOO_LARGE")(response)

        return Wrapper(http=hook, request=request)

    return Fault("body limit", f"{size} bytes", frozenset({f"POST {INFERENCE}"}), make)


def _rows(path: str, key: str, most: int) -> Fault:
    def hook(asked: Asked, response: Response) -> None:
        if asked.path == path and response.status == 200 and isinstance(response.json, dict):
            wanted = int(parse_qs(asked.query).get("limit", ["20"])[0])
            rows = response.json.get(key)
            if isinstance(rows, list) and wanted > most:
                response.json[key] = rows[:most]

    touched = frozenset({f"GET {path}"})
    return Fault("page limit", f"GET {path} {most} rows", touched, lambda node: Wrapper(hook))


def _inference(name: str, wrong: Callable[[Any], bool]) -> Fault:
    def hook(asked: Asked, response: Response) -> None:
        if asked.path != INFERENCE or response.status != 200 or not isinstance(asked.body, dict):
            return
        if wrong(asked.body):
            refused(400, "INVALID_REQUEST")(response)

    touched = frozenset({f"POST {INFERENCE}"})
    return Fault("parameter limit", name, touched, lambda node: Wrapper(hook))


def _staked(days: int) -> Fault:
    path = "/api/v1/wallet/stake"

    def hook(asked: Asked, response: Response) -> None:
        body = asked.body if isinstance(asked.body, dict) else {}
        if asked.path == path and response.status == 200 and body.get("duration_days", days) < days:
            refused(422, "TOO_SHORT")(response)

    touched = frozenset({f"POST {path}"})
    name = f"at least {days} days of a stake"
    return Fault("parameter limit", name, touched, lambda node: Wrapper(hook))


def _ids(length: int) -> Fault:
    """Name nodes by digests of another length."""

    def hook(called: str, request: Any, answer: Any) -> Any:
        if not called.startswith("DHT") or isinstance(answer, str) or "responder" not in answer:
            return answer
        old = answer["responder"]
        ident = (old.node_id * 4)[:length]
        node = messages.make("DHTNodeInfo", node_id=ident, ip=old.ip, port=old.port)
        return {**answer, "responder": node}

    touched = frozenset(f"rpc {name}" for name in ("DHTPing", "DHTFindNode", "DHTFindValue"))
    return Fault("length of an id", f"{length} bytes", touched, lambda node: Wrapper(grpc=hook))
