"""Messages between a sponsor and its workers (interface 4.2: ``/work/*``; native network 4).

Every message is a signed envelope whose body has the network's work domain, the chain, a kind and
the time. Terms: an *assignment* is the sponsor's message to one worker; its *job id* is the digest
of its body. An assignment's *request* names the *operation*: ``features`` in stage 0, ``update`` in
stage 1.

Invariants: a message is valid if its time is within a minute of the reader's clock; an assignment
is valid only if it agrees with the chain, so that a worker never has to trust a sponsor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from meshnode.domain.chain.canonical import Json, digest
from meshnode.domain.chain.envelope import Envelope, open_envelope
from meshnode.domain.chain.errors import Rejected

POLL, RESULT, ASSIGNMENT = "poll", "result", "assignment"
OPERATIONS: Final = ("features", "update")
"""The operation of each stage."""
WINDOW_S: Final = 60
"""How far a message's time may be from the reader's clock."""
MAX_RESULT_BYTES: Final = 2_000_000


class WorkRefused(Rejected):
    """Work message refused."""


class ForeignMessage(WorkRefused):
    """Foreign or stale work message."""


class UnknownStage(WorkRefused):
    """Unknown stage."""


class NoAssignment(WorkRefused):
    """No matching pending assignment."""


class WrongWork(WorkRefused):
    """Result differs from full replay."""


class NotLeased(WorkRefused):
    """Assignment is not authorized by the chain's lease."""


class ForeignTask(WorkRefused):
    """Assignment differs from the chain's checkpoint, batch, or stage."""


@dataclass(frozen=True, slots=True)
class WorkNetwork:
    """The chain that messages belong to, and the work domain of its profile."""

    domain: str
    chain_id: str

    def body(self, kind: str, now_s: float, **fields: Json) -> dict[str, Json]:
        """The body of a message, to be signed."""
        common: dict[str, Json] = {"domain": self.domain, "chain_id": self.chain_id}
        return {**common, "kind": kind, "time": int(now_s), **fields}

    def open(self, value: Json, kind: str, now_s: float) -> Envelope:
        """Check signature, network, kind and time. Raises ForeignMessage or an envelope's error."""
        envelope = open_envelope(value)
        body = envelope.body
        time = body.get("time")
        ours = {"domain": self.domain, "chain_id": self.chain_id, "kind": kind}
        # Fields beyond these are checked elsewhere.
        if any(body.get(name) != text for name, text in ours.items()):
            raise ForeignMessage
        # Compared as integers, because a huge one does not fit a float.
        if type(time) is not int or abs(int(now_s) - time) > WINDOW_S:
            raise ForeignMessage
        return envelope


def job_id(assignment: Envelope) -> str:
    """The id by which a result names its assignment."""
    return digest(assignment.body)


def read_stage(body: Mapping[str, Json]) -> int:
    """The stage for which a poll asks for work. Raises UnknownStage."""
    stage = body.get("stage")
    if type(stage) is not int or not 0 <= stage < len(OPERATIONS):
        raise UnknownStage
    return stage


def check_assignment(
    assignment: Envelope, worker: str, stage: int, task: Mapping[str, Any], height: int
) -> dict[str, Any]:
    """The request of an assignment to ``worker``. Raises WorkRefused if it differs from ``task``.

    ``task`` is the chain's answer to ``/task`` and ``height`` the chain's height; the worker has
    queried both itself.
    """
    lease = task["lease"]
    # The sponsor must hold a lease that has not expired and that names this worker for this stage.
    if lease is None or assignment.signer != lease["owner"] or height > lease["expires"]:
        raise NotLeased
    addressed = (assignment.body.get("worker"), assignment.body.get("stage"))
    if addressed != (worker, stage) or lease["workers"][stage] != worker:
        raise NotLeased
    # The work must be the chain's next round.
    request = assignment.body.get("request")
    expected = {
        "task_id": lease["task_id"],
        "operation": OPERATIONS[stage],
        "input_ids": task["input_ids"],
        "weights": task["weights"],
    }
    if not isinstance(request, dict):
        raise ForeignTask
    names = expected.keys() | ({"activation"} if stage == 1 else set())
    if request.keys() != names or any(request[name] != expected[name] for name in expected):
        raise ForeignTask
    if (lease["round"], lease["parent"]) != (task["round"], task["model_root"]):
        raise ForeignTask
    return request
