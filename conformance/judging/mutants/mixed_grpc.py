"""Mutants over gRPC that only combinations show: two conditions, two searches, two passes.

The rows have the form of those in `followed_calls.py`. All of them are for the toy.
"""

from typing import Any

from conformance import messages
from conformance.checks.dht import NODE_ID_BYTES
from conformance.judging.hooks import Grpc
from conformance.judging.mutants.followed_calls import not_found
from conformance.judging.toy.calls import CHECKPOINT, DATA, HELD

GIVEN = {**CHECKPOINT, "success": True, "checkpoint_data": DATA, "total_size": len(DATA)}
# No longer request_id is kept whole.
KEPT = 100
# A value of so many characters is refused.
LONG = 60_000
LOST = {"success": False, "error_message": "no such pass"}


def empty_unfound(called: str, request: Any, answer: Any) -> Any:
    """Find nothing where an empty value was stored."""
    empty = called == "DHTFindValue" and answer.get("found") and not answer["value"]
    return not_found(answer) if empty else answer


class RefusedClears:
    """A table that refuses long values, and then forgets what it had under the same key."""

    def __init__(self) -> None:
        self.cleared: set[bytes] = set()

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Remember the keys of what is refused."""
        if called == "DHTStore" and len(request.value) > LONG:
            self.cleared.add(request.key)
            return {**answer, "success": False}
        if called == "DHTFindValue" and request.key in self.cleared:
            return not_found(answer)
        return answer


class EachItsOwn:
    """A table in which only who has stored a value finds it."""

    def __init__(self) -> None:
        self.stored: dict[bytes, bytes] = {}

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Remember who stores."""
        if called == "DHTStore":
            self.stored[request.key] = request.sender.node_id
        stranger = called == "DHTFindValue" and answer.get("found")
        if stranger and self.stored.get(request.key) != request.sender.node_id:
            return not_found(answer)
        return answer


class NodesUnfound:
    """A table that finds no value under the ID of a node that has called."""

    def __init__(self) -> None:
        self.callers: set[bytes] = set()

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Remember who calls."""
        if called == "DHTPing":
            self.callers.add(request.sender.node_id)
        if called == "DHTFindValue" and request.key in self.callers and answer.get("found"):
            return not_found(answer)
        return answer


class SamePlace:
    """A table whose unsuccessful search for values lists the same nodes for every key."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Remember the first listing."""
        if called == "DHTFindNode":
            self.nodes = self.nodes or answer["nodes"]
        if called == "DHTFindValue" and not answer.get("found"):
            return {**answer, "nodes": self.nodes}
        return answer


def four_bytes(called: str, request: Any, answer: Any) -> Any:
    """List each node with the bytes of its ip."""
    if called != "DHTFindNode":
        return answer
    nodes = [
        messages.make("DHTNodeInfo", node_id=node.node_id, ip="\n\x14\x01\x02", port=node.port)
        for node in answer["nodes"]
        if len(node.node_id) == NODE_ID_BYTES
    ]
    return {**answer, "nodes": nodes}


def version_ignored(called: str, request: Any, answer: Any) -> Any:
    """Return the checkpoint for its own hash, however new it has to be."""
    own = called == "GetCheckpoint" and request.model_hash == CHECKPOINT["model_hash"]
    return GIVEN if own else answer


def version_echoed(called: str, request: Any, answer: Any) -> Any:
    """Return the checkpoint for its own hash, as if it had the version that is asked for."""
    if called != "GetCheckpoint" or request.model_hash != CHECKPOINT["model_hash"]:
        return answer
    return {**GIVEN, "version": max(3, request.min_version)}


def other_hash(called: str, request: Any, answer: Any) -> Any:
    """Give the checkpoint another hash if it is asked for by its version alone."""
    by_version = called == "GetCheckpoint" and request.min_version and not request.model_hash
    return {**answer, "model_hash": "b" * 64} if by_version and answer["success"] else answer


def other_data(called: str, request: Any, answer: Any) -> Any:
    """Give the checkpoint other data if it is asked for by its hash."""
    by_hash = called == "GetCheckpoint" and request.model_hash and answer["success"]
    return {**answer, "checkpoint_data": DATA + b"more"} if by_hash else answer


def _computed(request: Any, logits: bytes) -> Any:
    done = {"request_id": request.request_id, "success": True, "is_final": True}
    return {**done, "logits": logits, "logits_shape": [1, 1, 2]}


def from_the_end(called: str, request: Any, answer: Any) -> Any:
    """Count layers below 0 from the end."""
    if called != "PipelineForward" or not -4 <= request.target_shard < 0:
        return answer
    return _computed(request, bytes([4 + request.target_shard]) * 8)


def any_layer(called: str, request: Any, answer: Any) -> Any:
    """Take every number below 0 for the node's own first layer."""
    below = called == "PipelineForward" and request.target_shard < 0
    return _computed(request, b"computed") if below else answer


def cut_ids(called: str, request: Any, answer: Any) -> Any:
    """Name the beginning of a long request_id."""
    if called != "PipelineForward" or isinstance(answer, str):
        return answer
    return {**answer, "request_id": answer["request_id"][:KEPT]}


def trimmed_ids(called: str, request: Any, answer: Any) -> Any:
    """Name a request_id without the white space at its ends."""
    if called != "PipelineForward" or isinstance(answer, str):
        return answer
    return {**answer, "request_id": answer["request_id"].strip()}


def below_zero(called: str, request: Any, answer: Any) -> Any:
    """Fail at a version below zero."""
    return "INTERNAL" if called == "GetCheckpoint" and request.min_version < 0 else answer


class Late:
    """A node that answers a pass with the result of the one before."""

    def __init__(self) -> None:
        self.before: bytes = b""

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Keep each result for the next pass."""
        if called != "PipelineForward" or isinstance(answer, str) or not answer.get("logits"):
            return answer
        before, self.before = self.before, answer["logits"]
        return {**answer, "logits": before or self.before}


def held_part(called: str, request: Any, answer: Any) -> Any:
    """Read ranges of layers, and serve those of them that are here."""
    begin, dash, end = request.shard_range.partition("-") if called == "GetWeights" else ("",) * 3
    if not dash or not begin.isdecimal() or not end.isdecimal():
        return answer
    here = [layer for layer in HELD if int(begin) <= layer <= int(end)]
    return {"weights_data": f"weights of {here}".encode()} if here else "NOT_FOUND"


class StrangeDisturbs:
    """A node that forgets its latest pass with the gradients of one that nobody has made."""

    def __init__(self) -> None:
        self.disturbed = False

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Refuse the first gradients after those."""
        if called != "PipelineBackward" or isinstance(answer, str):
            return answer
        forgotten, self.disturbed = self.disturbed, not answer["success"]
        return LOST if forgotten and answer["success"] else answer


class RefusedDrops:
    """A node that forgets a pass whose gradients were sent to an absent layer."""

    def __init__(self) -> None:
        self.dropped: set[str] = set()

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Remember the pass."""
        if called != "PipelineBackward":
            return answer
        if answer == "NOT_FOUND":
            self.dropped.add(request.request_id)
        return LOST if request.request_id in self.dropped and answer != "NOT_FOUND" else answer


def target_at_six(called: str, request: Any, answer: Any) -> Any:
    """Read the shard of gradients from number 6."""
    if called != "PipelineBackward":
        return answer
    numbers = {field.number for field in messages.wire_fields(request.SerializeToString())}
    return answer if 6 in numbers else "NOT_FOUND"


GRPC: list[tuple[str, Grpc]] = [
    ("DH-031", empty_unfound),
    ("DH-031", RefusedClears()),
    ("DH-031", EachItsOwn()),
    ("DH-031", NodesUnfound()),
    ("DH-032", SamePlace()),
    ("DH-033", four_bytes),
    ("GR-CKPT-016", version_ignored),
    ("GR-CKPT-016", version_echoed),
    ("GR-CKPT-017", other_hash),
    ("GR-CKPT-018", other_data),
    ("PL-FWD-011", from_the_end),
    ("PL-FWD-012", any_layer),
    ("PL-FWD-013", cut_ids),
    ("PL-FWD-013", trimmed_ids),
    ("GR-CODE-015", below_zero),
    ("PL-FWD-014", Late()),
    ("GR-WEIGHT-005", held_part),
    ("PL-BWD-006", StrangeDisturbs()),
    ("PL-BWD-007", RefusedDrops()),
    ("PL-BWD-008", target_at_six),
]
