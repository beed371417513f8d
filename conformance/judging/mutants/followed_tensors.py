"""Mutants of passes, weights and gradients that stand beside others, and of how calls end.

The rows have the form of those in `followed_calls.py`. All of them are for the toy.
"""

import hashlib
import os
import struct
import threading
import time
from typing import Any

from conformance.checks.forms import FRAME
from conformance.checks.frame_forms import stored
from conformance.judging.hooks import Grpc, grpc_answer
from conformance.judging.toy.calls import SHAPE, VALUE_BYTES

FORWARD, BACKWARD, WEIGHTS = "PipelineForward", "PipelineBackward", "GetWeights"
RESULT_BYTES = 8
# So long does a mutant work on a request, in seconds: others come meanwhile.
WORKS_S = 0.03
LARGE_BYTES = 1 << 20


def _computed(called: str, answer: Any) -> bool:
    """Whether this is the answer to a pass, with logits."""
    return called == FORWARD and isinstance(answer, dict) and bool(answer.get("logits"))


def _result(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()[:RESULT_BYTES]


def leaking(called: str, request: Any, answer: Any) -> Any:
    """Compute each sequence of a batch with those before it."""
    if not _computed(called, answer):
        return answer
    states, rows = request.hidden_states, request.hidden_shape[0]
    wide = len(states) // rows
    logits = b"".join(_result(states[: at * wide]) for at in range(2, rows + 1))
    return {**answer, "logits": answer["logits"][:RESULT_BYTES] + logits}


def rows_moved(called: str, request: Any, answer: Any) -> Any:
    """Answer for the second sequence of a batch with what the third one comes to."""
    if not _computed(called, answer) or request.hidden_shape[0] < 3:
        return answer
    rows = [answer["logits"][at:][:RESULT_BYTES] for at in range(0, len(answer["logits"]), 8)]
    return {**answer, "logits": b"".join([rows[0], rows[2], *rows[2:]])}


class EverOthers:
    """A node that computes with something drawn."""

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Change the result of a pass, or the weights."""
        if called == WEIGHTS and isinstance(answer, dict):
            return {"weights_data": answer["weights_data"] + os.urandom(4)}
        if not _computed(called, answer):
            return answer
        values = (float(os.urandom(1)[0]), 1.0) * request.hidden_shape[0]
        return {**answer, "logits": struct.pack(f"<{len(values)}f", *values)}


def by_sender(called: str, request: Any, answer: Any) -> Any:
    """Compute otherwise what comes from somewhere."""
    sent = _computed(called, answer) and request.sender_url
    return {**answer, "logits": bytes(len(answer["logits"]))} if sent else answer


def larger_by_sender(called: str, request: Any, answer: Any) -> Any:
    """Compute with a little more where the gradients are to go somewhere."""
    if not _computed(called, answer) or not request.sender_url:
        return answer
    values = struct.unpack(f"<{len(answer['logits']) // 4}f", answer["logits"])
    return {**answer, "logits": struct.pack(f"<{len(values)}f", *(1.04 * one for one in values))}


def by_cache(called: str, request: Any, answer: Any) -> Any:
    """Compute otherwise where a cache is to be kept."""
    kept = _computed(called, answer) and request.use_cache and not request.past_key_values
    return {**answer, "logits": bytes(len(answer["logits"]))} if kept else answer


class OneSession:
    """A node with room for the tensors of one session, which the next session finds, or not."""

    def __init__(self, *, evicts: bool) -> None:
        self.session, self.seen, self.evicts = "", b"", evicts

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Compute with the tensor before."""
        if not _computed(called, answer) or not request.use_cache:
            return answer
        other = request.session_id != self.session
        before = b"" if other and self.evicts else self.seen
        self.session, self.seen = request.session_id, request.hidden_states
        return {**answer, "logits": _result(request.hidden_states, before)} if before else answer


def usual_length(called: str, request: Any, answer: Any) -> Any:
    """Refuse passes of other lengths than one."""
    if called != FORWARD or list(request.hidden_shape[1:2]) in ([], SHAPE[1:2]):
        return answer
    return {"request_id": request.request_id, "success": False, "error_message": "too long"}


def one_more(called: str, request: Any, answer: Any) -> Any:
    """Return an entry more of the cache than is taken."""
    past = answer.get("past_key_values") if isinstance(answer, dict) else None
    return {**answer, "past_key_values": [*past, b"more"]} if past else answer


def as_it_came(called: str, request: Any, answer: Any) -> Any:
    """Return the cache that came."""
    sent = called == FORWARD and isinstance(answer, dict) and list(request.past_key_values)
    return {**answer, "past_key_values": sent} if sent else answer


class LossBefore:
    """A node that returns the loss of the pass before."""

    def __init__(self) -> None:
        self.loss = 2.5

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Keep each loss until the next pass."""
        if called != FORWARD or not isinstance(answer, dict) or "loss" not in answer:
            return answer
        before, self.loss = self.loss, answer["loss"]
        return {**answer, "loss": before}


def one_loss(called: str, request: Any, answer: Any) -> Any:
    """Return the same loss for all labels."""
    told = called == FORWARD and isinstance(answer, dict) and "loss" in answer
    return {**answer, "loss": 2.5} if told else answer


def of_one_sequence(called: str, request: Any, answer: Any) -> Any:
    """Return a loss for one sequence alone."""
    told = called == FORWARD and isinstance(answer, dict) and "loss" in answer
    return {**answer, "loss": 0.0} if told and request.hidden_shape[0] > 1 else answer


class OneAtATime:
    """A node that takes one gradient at a time."""

    def __init__(self) -> None:
        self.busy = threading.Lock()

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Refuse a gradient that comes meanwhile."""
        if called != BACKWARD or not isinstance(answer, dict) or not answer.get("success"):
            return answer
        if not self.busy.acquire(blocking=False):
            return {"success": False, "error_message": "another one is under way"}
        time.sleep(WORKS_S)
        self.busy.release()
        return answer


class WeightsBefore:
    """A node that returns the weights of the request before."""

    def __init__(self) -> None:
        self.before: Any = None

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Keep each answer until the next request."""
        if called != WEIGHTS or not isinstance(answer, dict):
            return answer
        before, self.before = self.before or answer, answer
        return before


class LatestWeights:
    """A node that returns the weights that were asked for last, after a while."""

    def __init__(self) -> None:
        self.latest: Any = None

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Take what the latest request left."""
        if called != WEIGHTS or not isinstance(answer, dict):
            return answer
        self.latest = answer
        time.sleep(WORKS_S)
        return self.latest


def undescribed(called: str, request: Any, answer: Any) -> Any:
    """Say nothing of the phase of a checkpoint."""
    told = called.startswith("GetCheckpoint") and isinstance(answer, dict) and "phase" in answer
    return {**answer, "phase": ""} if told else answer


class Growing:
    """A node whose model has more parameters each time somebody asks."""

    def __init__(self) -> None:
        self.params = 1000

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Count on."""
        if called != "GetCheckpointInfo" or not isinstance(answer, dict):
            return answer
        self.params += 1
        return {**answer, "params": self.params}


def described_in_full(called: str, request: Any, answer: Any) -> Any:
    """Describe a checkpoint by all that is in it."""
    if called not in ("GetCheckpoint", "GetCheckpointInfo") or not isinstance(answer, dict):
        return answer
    content = "weights of the toy, " * 8
    if answer.get("checkpoint_data"):
        data = FRAME + stored(content.encode()) + bytes(4)
        answer = {**answer, "checkpoint_data": data, "total_size": len(data)}
    return {**answer, "phase": content}


def plain_names(called: str, request: Any, answer: Any) -> Any:
    """Refuse passes whose names have other letters than ASCII."""
    odd = called == FORWARD and not request.request_id.isascii()
    return {"request_id": request.request_id, "error_message": "no name"} if odd else answer


def beginnings(called: str, request: Any, answer: Any) -> Any:
    """Return the checkpoint for the beginning of its hash."""
    short = called == "GetCheckpoint" and 0 < len(request.model_hash) < 32
    if not short or not ("a" * 64).startswith(request.model_hash):
        return answer
    data = b"\x04\x22\x4d\x18\x60\x70\x73" + bytes(4)
    known = {"version": 3, "model_hash": "a" * 64, "phase": "early", "total_size": len(data)}
    return {**known, "success": True, "checkpoint_data": data}


def without_end(called: str, request: Any, answer: Any) -> Any:
    """Leave the end of the frame of a checkpoint out."""
    given = called == "GetCheckpoint" and isinstance(answer, dict) and answer["success"]
    return {**answer, "checkpoint_data": answer["checkpoint_data"][:-4]} if given else answer


def said_anyway(called: str, request: Any, answer: Any) -> Any:
    """Write an error into what has succeeded."""
    done = called == "GetCheckpoint" and isinstance(answer, dict) and answer["success"]
    return {**answer, "error_message": "none"} if done else answer


def failed_with_states(called: str, request: Any, answer: Any) -> Any:
    """Give back the tensor of a pass that has failed."""
    failed = called == FORWARD and isinstance(answer, dict) and not answer.get("success")
    return {**answer, "hidden_states": request.hidden_states} if failed else answer


def small_only(called: str, request: Any, answer: Any) -> Any:
    """Refuse what is large."""
    large = called == FORWARD and len(request.hidden_states) > LARGE_BYTES
    return "RESOURCE_EXHAUSTED" if large else answer


class KnownSessions:
    """A node that looks at the layer of the first pass of a session."""

    def __init__(self) -> None:
        self.known: set[str] = set()

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Serve a session that is known, whichever layer it asks for."""
        if called != FORWARD:
            return answer
        if answer == "NOT_FOUND" and request.session_id in self.known:
            done = {"request_id": request.request_id, "success": True, "is_final": True}
            return {**done, "logits": bytes(RESULT_BYTES), "logits_shape": [1, 1, 2]}
        if isinstance(answer, dict) and answer["success"]:
            self.known.add(request.session_id)
        return answer


def more_than_fits(called: str, request: Any, answer: Any) -> Any:
    """Compute with the beginning of what is too long for its shape."""
    if called != FORWARD or not isinstance(answer, dict) or answer["success"]:
        return answer
    rows, length, width = [*request.hidden_shape, 0, 0, 0][:3]
    needed = rows * length * width * VALUE_BYTES
    if not 0 < needed < len(request.hidden_states):
        return answer
    done = {"request_id": request.request_id, "success": True, "is_final": True}
    return {**done, "logits": bytes(RESULT_BYTES * rows), "logits_shape": [rows, 1, 2]}


def another_status(called: str, request: Any, answer: Any) -> Any:
    """End a pass to a layer below 0 with a status that is not documented."""
    return "OUT_OF_RANGE" if called == FORWARD and request.target_shard < 0 else answer


def not_last_in_session(called: str, request: Any, answer: Any) -> Any:
    """Take the part for another one than the last where a cache is kept."""
    if not _computed(called, answer) or not request.use_cache:
        return answer
    states = {"hidden_states": request.hidden_states, "hidden_shape": list(request.hidden_shape)}
    return {**answer, **states, "is_final": False, "logits": b"", "logits_shape": []}


class Offline:
    """Says that it is offline where it does not know the pass of gradients."""

    def __init__(self) -> None:
        self.made: set[tuple[str, str]] = set()

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Remember the passes."""
        if called == "PipelineForward" and request is not None:
            self.made.add((request.session_id, request.request_id))
        if called == "PipelineBackward" and request is not None and request.grad_output:
            known = (request.session_id, request.request_id) in self.made
            return answer if known else "UNAVAILABLE"
        return answer


GRPC: list[tuple[str, Grpc]] = [
    ("PL-FWD-030", leaking),
    ("PL-FWD-014", rows_moved),
    ("PL-FWD-031", EverOthers()),
    ("PL-FWD-032", by_sender),
    ("PL-FWD-033", by_cache),
    ("PL-FWD-043", larger_by_sender),
    ("PL-FWD-034", OneSession(evicts=False)),
    ("PL-FWD-035", OneSession(evicts=True)),
    ("PL-FWD-036", usual_length),
    ("PL-FWD-037", one_more),
    ("PL-FWD-038", as_it_came),
    ("PL-FWD-039", LossBefore()),
    ("PL-FWD-040", one_loss),
    ("PL-FWD-041", of_one_sequence),
    ("PL-FWD-042", plain_names),
    ("PL-BWD-026", OneAtATime()),
    ("GR-WEIGHT-010", WeightsBefore()),
    ("GR-WEIGHT-011", LatestWeights()),
    ("GR-WEIGHT-012", EverOthers()),
    ("GR-CKPT-030", undescribed),
    ("GR-CKPT-031", Growing()),
    ("GR-CKPT-032", described_in_full),
    ("GR-CKPT-002", beginnings),
    ("GR-CKPT-014", without_end),
    ("GR-SANE-010", said_anyway),
    ("GR-SANE-011", failed_with_states),
    ("GR-SANE-012", grpc_answer("GetCheckpointInfo", loss=-2.5)),
    ("LIM-040", small_only),
    ("GR-CODE-020", KnownSessions()),
    ("GR-CODE-021", more_than_fits),
    ("GR-CODE-023", Offline()),
    ("GR-CODE-001", another_status),
    ("PL-FWD-005", not_last_in_session),
]
