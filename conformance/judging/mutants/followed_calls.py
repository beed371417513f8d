"""Mutants of calls that only somebody sees who follows them: many values, other layers, streams."""

from collections import Counter, deque
from typing import Any

from conformance import messages
from conformance.checks.dht import NODE_ID_BYTES, SENDER
from conformance.judging.hooks import Grpc

# What is kept of a value.
LONG = 16
# No model of the judge's nodes has a shard with this number or a higher one.
ABSENT = 1000


def cut_values(called: str, request: Any, answer: Any) -> Any:
    """Keep the beginning of a value."""
    if called != "DHTFindValue" or isinstance(answer, str) or not answer.get("found"):
        return answer
    return {**answer, "value": answer["value"][:LONG]}


def unix_lines(called: str, request: Any, answer: Any) -> Any:
    """Find a value with other line breaks."""
    if called != "DHTFindValue" or isinstance(answer, str) or not answer.get("found"):
        return answer
    return {**answer, "value": answer["value"].replace("\r\n", "\n")}


class FirstTwenty:
    """A table that looks at the beginning of a key."""

    def __init__(self) -> None:
        self.stored: dict[bytes, str] = {}

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Remember values by their cut keys."""
        if called == "DHTStore":
            self.stored[request.key[:NODE_ID_BYTES]] = request.value
        if called == "DHTFindValue" and len(request.key) > NODE_ID_BYTES and answer.get("found"):
            return {**answer, "value": self.stored[request.key[:NODE_ID_BYTES]]}
        return answer


def not_found(answer: Any) -> Any:
    """Return the answer to a search that found nothing."""
    return {"responder": answer["responder"], "found": False}


class ThreeValues:
    """A table that keeps the latest three values."""

    def __init__(self) -> None:
        self.keys: deque[bytes] = deque(maxlen=3)

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Find nothing under an older key."""
        if called == "DHTStore" and request is not None:
            self.keys.append(request.key)
        if called != "DHTFindValue" or request is None or not answer.get("found"):
            return answer
        return answer if request.key in self.keys else not_found(answer)


class FoundTwice:
    """A table that forgets a value when it has been found twice."""

    def __init__(self) -> None:
        self.found: Counter[bytes] = Counter()

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Count what is found."""
        if called != "DHTFindValue" or request is None or not answer.get("found"):
            return answer
        self.found[request.key] += 1
        return answer if self.found[request.key] <= 2 else not_found(answer)


def both_addresses(called: str, request: Any, answer: Any) -> Any:
    """List the suite under two addresses."""
    if called != "DHTFindNode" or isinstance(answer, str):
        return answer
    if request is None or request.target_id != SENDER.node_id:
        return answer
    return {**answer, "nodes": [SENDER, SENDER]}


class ReadElsewhere:
    """A store that reads its value from another number, and finds what the suite has sent."""

    def __init__(self) -> None:
        self.keys: set[bytes] = set()

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Refuse a value at its number."""
        if called == "DHTStore" and request is not None and not isinstance(answer, str):
            if request.value:
                return {**answer, "success": False}
            self.keys.add(request.key)
            return {**answer, "success": True}
        if called == "DHTFindValue" and request is not None and request.key in self.keys:
            return {**not_found(answer), "found": True, "value": "192.0.2.1:9000"}
        return answer


def confused_by_lengths(called: str, request: Any, answer: Any) -> Any:
    """End a search for an ID of another length with a status that is not documented."""
    if called != "DHTFindNode" or request is None or len(request.target_id) == NODE_ID_BYTES:
        return answer
    return "UNKNOWN"


def _is_absent(called: str, request: Any) -> bool:
    """Whether this is a pass backward to a layer that is not here."""
    backward = called == "PipelineBackward" and request is not None
    return backward and bool(request.target_shard >= ABSENT)


def backward_taken(called: str, request: Any, answer: Any) -> Any:
    """Take a backward pass to a layer that is not here."""
    return {"success": True} if _is_absent(called, request) else answer


def gradient_taken(called: str, request: Any, answer: Any) -> Any:
    """Take a gradient for a layer that is not here, if it has one."""
    taken = _is_absent(called, request) and request.grad_output
    return {"success": True} if taken else answer


def backward_failed(called: str, request: Any, answer: Any) -> Any:
    """Fail at a gradient for a layer that is not here."""
    return "INTERNAL" if _is_absent(called, request) else answer


class OneMessage:
    """A stream that takes a single message: here, the first call, of two, is refused."""

    def __init__(self, code: str = "UNIMPLEMENTED") -> None:
        self.calls, self.code = 0, code

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Count the calls."""
        self.calls += called == "StreamInference"
        refused = called == "StreamInference" and self.calls % 2 == 1
        return self.code if refused else answer


def offline(called: str, request: Any, answer: Any) -> Any:
    """Say that the peer is offline where a layer is not here."""
    absent = called == "PipelineForward" and request is not None and request.target_shard >= ABSENT
    return "UNAVAILABLE" if absent else answer


def offline_backward(called: str, request: Any, answer: Any) -> Any:
    """Say that a gradient for a layer that is not here took too long."""
    return "DEADLINE_EXCEEDED" if _is_absent(called, request) else answer


class Nowhere:
    """A table that lists who has called without an address."""

    def __init__(self) -> None:
        self.known: set[bytes] = set()

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Keep the senders without an address, and list them."""
        if request is None or isinstance(answer, str):
            return answer
        if called == "DHTPing" and not request.sender.ip:
            self.known.add(request.sender.node_id)
        if called == "DHTFindNode" and request.target_id in self.known:
            bare = messages.make("DHTNodeInfo", node_id=request.target_id)
            return {**answer, "nodes": [bare, *answer["nodes"]]}
        return answer


class RangeElsewhere:
    """A node that reads the range of weights from another number, and needs none."""

    answers_itself = True

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Serve weights that depend on the fields that the message does not have."""
        if called != "GetWeights" or request is None:
            return answer
        rest = type(request)()
        rest.CopyFrom(request)
        rest.ClearField("shard_range")
        return {"weights_data": b"weights" + rest.SerializeToString()}


class CallsAsRounds:
    """A node that counts each gossiped gradient as a round."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Count the calls."""
        if called != "GossipGradient" or isinstance(answer, str):
            return answer
        self.calls += 1
        return {**answer, "current_round": answer.get("current_round", 0) + self.calls}


def not_here(called: str, request: Any, answer: Any) -> Any:
    """Find no layer at all."""
    return "NOT_FOUND" if called == "PipelineForward" else answer


def without_port(called: str, request: Any, answer: Any) -> Any:
    """Name a responder without a port."""
    if called != "DHTPing" or isinstance(answer, str):
        return answer
    me = answer["responder"]
    return {**answer, "responder": messages.make("DHTNodeInfo", node_id=me.node_id, ip=me.ip)}


GRPC: list[tuple[str, Grpc]] = [
    ("DH-021", cut_values),
    ("DH-022", ThreeValues()),
    ("DH-021", unix_lines),
    ("DH-022", FirstTwenty()),
    ("DH-023", FoundTwice()),
    ("DH-024", both_addresses),
    ("GR-CODE-011", confused_by_lengths),
    ("GR-CODE-012", backward_taken),
    ("GR-OP-022", OneMessage()),
    ("GR-CODE-013", offline),
    ("GR-CODE-013", offline_backward),
    ("GR-GOSSIP-004", CallsAsRounds()),
    ("GR-CODE-014", not_here),
    ("DH-027", Nowhere()),
    ("GR-WEIGHT-003", RangeElsewhere()),
    ("DH-026", without_port),
]
# A layer before a real node cannot take back an error, and that node declares no backward passes.
OF_TOY: list[tuple[str, Grpc]] = [
    ("DH-025", ReadElsewhere()),
    ("GR-CODE-012", gradient_taken),
    ("GR-CODE-004", backward_failed),
]
