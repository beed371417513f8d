"""An outbound worker: does stages of training tasks for a sponsor (interface 4.2: ``/work/*``).

It is a separate program, which opens no port: it polls a gateway, computes what the chain leased to
its key, and returns the result with a signed receipt. Terms: as in :mod:`meshnode.domain.work`.

==================  =====================================================  ===================
the journal has     so the assigned operation                              and the worker does
==================  =====================================================  ===================
nothing             is new                                                 note it, compute
its digest          was begun, but not finished: the worker was killed     nothing: next lease
its digest, result  is done; the answer may have been lost                 send the result again
another digest      was changed by the sponsor                             nothing: next lease
==================  =====================================================  ===================

Invariants: the journal is on the disk before anything is computed, and the result before it is sent
(decision 0091); no operation is computed twice, and no two receipts are signed for one; the worker
trusts the chain, and its sponsor only where it agrees with the chain.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from meshnode.datadir import write_private
from meshnode.domain.chain.canonical import Json, JsonLimits, digest, encode, parse
from meshnode.domain.chain.envelope import Envelope, sign_envelope
from meshnode.domain.chain.errors import MalformedJson, Rejected
from meshnode.domain.errors import MeshnodeError, StartupError
from meshnode.domain.identity import NodeKey
from meshnode.domain.work import (
    ASSIGNMENT,
    MAX_RESULT_BYTES,
    POLL,
    RESULT,
    ForeignTask,
    WorkNetwork,
    check_assignment,
    job_id,
)
from meshnode.model.adapter import InvalidTensor
from meshnode.model.execution import feature_receipt, update_receipt
from meshnode.services.work.execution import Execution

POLL_EVERY_S = 1.0
_JOURNAL_LIMITS = JsonLimits(size=2 * MAX_RESULT_BYTES, depth=16)


class Interrupted(Rejected):
    """The operation was interrupted; it needs a new lease."""


class AssignmentChanged(Rejected):
    """The sponsor changed the assigned operation."""


class WorkGateway(Protocol):
    """The part of a gateway that a worker uses; every failure raises a MeshnodeError."""

    def post(self, path: str, value: Json) -> dict[str, Any]:
        """Post JSON. Returns the object in the answer."""

    def query(self, path: str) -> dict[str, Any]:
        """The chain's answer to a native query."""


class StageJournal:
    """The operation of a stage that was begun last, on the disk."""

    def __init__(self, folder: Path, stage: int) -> None:
        """Read the journal, if there is one.

        Raises StartupError for a damaged file: without it, an operation could be computed twice.
        """
        self._path = folder / f"worker-stage-{stage}.json"
        try:
            entry = parse(self._path.read_bytes(), _JOURNAL_LIMITS)
        except FileNotFoundError:
            entry = {"task_id": "", "digest": ""}
        except (OSError, MalformedJson):
            entry = None
        if not isinstance(entry, dict) or not {"task_id", "digest"} <= set(entry):
            raise StartupError(f"{self._path} is damaged; move it away once its lease is over")
        self._entry: dict[str, Any] = entry

    def result(self, task_id: str, request_digest: str) -> dict[str, Any] | None:
        """The stored result; None for a new operation. Raises Interrupted, AssignmentChanged."""
        if self._entry["task_id"] != task_id:
            return None
        if self._entry["digest"] != request_digest:
            raise AssignmentChanged
        if "result" not in self._entry:
            raise Interrupted
        stored: dict[str, Any] = self._entry["result"]
        return stored

    def begin(self, task_id: str, request_digest: str) -> None:
        """Note an operation before it is computed."""
        self._write({"task_id": task_id, "digest": request_digest})

    def finish(self, result: dict[str, Json]) -> None:
        """Note its result before it is sent."""
        self._write({**self._entry, "result": result})

    def _write(self, entry: dict[str, Any]) -> None:
        write_private(self._path, encode(entry))
        self._entry = entry


class TrainingWorker:
    """A worker for one stage, with one key."""

    def __init__(
        self,
        gateway: WorkGateway,
        execution: Execution,
        key: NodeKey,
        stage: int,
        network: WorkNetwork,
        journal: StageJournal,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._gateway = gateway
        self._execution = execution
        self._key = key
        self._stage = stage
        self._network = network
        self._journal = journal
        self._clock = clock

    def work_once(self) -> str | None:
        """Poll once, do what is assigned and send the result. Returns the task's id, if any.

        Raises Rejected for an assignment that must not be done, and what the gateway raises.
        """
        poll = self._signed(POLL, stage=self._stage)
        offered = self._gateway.post("/work/poll", poll).get("assignment")
        if offered is None:
            return None
        assignment = self._network.open(offered, ASSIGNMENT, self._clock())
        result = self._carry_out(assignment)
        answer = self._signed(RESULT, job_id=job_id(assignment), result=result)
        self._gateway.post("/work/result", answer)
        request: Any = assignment.body["request"]
        task_id: str = request["task_id"]
        return task_id

    def _carry_out(self, assignment: Envelope) -> dict[str, Any]:
        task, summary = self._gateway.query("/task"), self._gateway.query("/summary")
        request = self._believe(assignment, task, summary)
        task_id, request_digest = request["task_id"], digest(request)
        done = self._journal.result(task_id, request_digest)
        if done is not None:
            return done
        self._check_inputs(request, task)
        self._journal.begin(task_id, request_digest)
        result = self._compute(request, task)
        self._journal.finish(result)
        return result

    def _believe(
        self, assignment: Envelope, task: dict[str, Any], summary: dict[str, Any]
    ) -> dict[str, Any]:
        try:
            # A block may come between the two queries; the next poll then finds them consistent.
            if task["chain_id"] != self._network.chain_id or summary["lease"] != task["lease"]:
                raise ForeignTask
            height = int(summary["height"])
            return check_assignment(assignment, self._key.public_key, self._stage, task, height)
        except (KeyError, TypeError, ValueError, IndexError):
            # The gateway's answer about its chain has an unexpected shape.
            raise ForeignTask from None

    def _check_inputs(self, request: dict[str, Any], task: dict[str, Any]) -> None:
        """Check the chain's inputs against this worker's own model and data set."""
        tokens = self._execution.round_tokens(task["round"])
        if list(tokens) != request["input_ids"] or digest(request["weights"]) != task["model_root"]:
            raise ForeignTask
        # The worker would sign a receipt for a wrong activation, and never be paid for it.
        features = digest(self._execution.features(tokens)) if self._stage else ""
        if self._stage and digest(request["activation"]) != features:
            raise ForeignTask

    def _compute(self, request: dict[str, Any], task: dict[str, Any]) -> dict[str, Json]:
        tokens, about = request["input_ids"], (request["task_id"], task["model_root"])
        if self._stage == 0:
            activation = self._execution.features(tokens)
            receipt = feature_receipt(*about, tokens, digest(activation))
            return {"activation": activation, "receipt": sign_envelope(receipt, self._key.seed)}
        step = self._execution.update(request["weights"], task["round"])
        receipt = update_receipt(*about, tokens, step)
        return {
            "weights": step.adapter.document(),
            "receipt": sign_envelope(receipt, self._key.seed),
        }

    def _signed(self, kind: str, **fields: Json) -> dict[str, Json]:
        return sign_envelope(self._network.body(kind, self._clock(), **fields), self._key.seed)


def run_worker(
    worker: TrainingWorker, stop: threading.Event, tasks: int, say: Callable[[str], None]
) -> int:
    """Work until ``stop`` is set or ``tasks`` tasks were returned (0: no limit). Returns how many.

    A failure is reported to ``say`` once, and tried again with the next poll.
    """
    returned, last = set[str](), ""
    while not stop.is_set():
        try:
            task_id = worker.work_once()
            last = ""
        except (MeshnodeError, InvalidTensor, ArithmeticError, OSError) as error:
            task_id = None
            if str(error) != last:
                say(f"not now: {error}")
                last = str(error)
        if task_id is not None and task_id not in returned:
            returned.add(task_id)
            say(f"returned task {task_id}; it is paid once validators have repeated it")
        if tasks and len(returned) >= tasks:
            break
        stop.wait(POLL_EVERY_S)
    return len(returned)
