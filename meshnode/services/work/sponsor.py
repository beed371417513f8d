"""The sponsor: has training tasks done by outbound workers (interface 4.2: ``/work/*``).

Terms are those of :mod:`meshnode.domain.work`; an *operation* is one stage of the leased task. This
module answers workers; :mod:`meshnode.services.work.sponsoring` takes the sponsor's own steps.

Invariants: a result is accepted only if it is what every validator will compute; the first result
of an assignment counts, and a repeated one gets the same answer; the memory for workers and
operations is bounded.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import trio

from meshnode.domain.chain.canonical import Json, digest
from meshnode.domain.chain.context import TrainingReplay
from meshnode.domain.chain.envelope import Envelope, open_envelope, sign_envelope
from meshnode.domain.chain.records import Lease
from meshnode.domain.identity import NodeKey
from meshnode.domain.work import (
    ASSIGNMENT,
    OPERATIONS,
    POLL,
    RESULT,
    NoAssignment,
    WorkNetwork,
    WrongWork,
    read_stage,
)

RECENT_S = 10.0
"""A worker that polled within this time counts as present; workers poll every second."""
MAX_WORKERS = 128
RESIGN_S = 30.0
"""An assignment is signed again after this time: workers refuse one older than a minute."""
MAX_ANSWERED = 256
"""Job ids whose results were accepted, so that repeated results get the same answer."""
PAYMENT = "by the chain, once validators have repeated the finished work"


class Replays(Protocol):
    """The part of the execution that the sponsor uses."""

    def train(self, lease: Lease) -> TrainingReplay:
        """Repeat the training step of a reserved task."""


@dataclass
class StageAssignment:
    """One stage of the leased task, as its worker gets it."""

    worker: str
    stage: int
    request: dict[str, Json]
    lease: Lease
    assignment: dict[str, Json] = field(default_factory=dict)
    signed_at: float = -math.inf
    result: dict[str, Any] | None = None
    done: trio.Event = field(default_factory=trio.Event)


class Sponsor:
    """Handle of the service, which the routes under ``/work/*`` use too."""

    def __init__(
        self,
        execution: Replays,
        key: NodeKey | None,
        network: WorkNetwork,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Without a ``key`` nothing is sponsored, and workers get no assignment."""
        self._execution = execution
        self._key = key
        self._network = network
        self._clock = clock
        self.remaining: int | None = None
        """Tasks that may still be reserved; None if none are sponsored or the count is not read."""
        self._workers: OrderedDict[tuple[str, int], float] = OrderedDict()
        self._operation: StageAssignment | None = None
        self._answered: OrderedDict[str, str] = OrderedDict()
        self._offered: OrderedDict[str, StageAssignment] = OrderedDict()
        self._polled = trio.Event()

    @property
    def sponsoring(self) -> bool:
        """Whether tasks are sponsored at all."""
        return self._key is not None

    def status(self) -> dict[str, Json]:
        """The body of ``GET /work/status``."""
        recent = [stage for (_, stage), seen in self._workers.items() if self._is_recent(seen)]
        return {
            "chain_id": self._network.chain_id,
            "sponsor": None if self._key is None else self._key.public_key,
            "remaining_tasks": self.remaining,
            "active_operations": 0 if self._operation is None else 1,
            "workers_by_stage": [recent.count(stage) for stage in range(len(OPERATIONS))],
            "payment": PAYMENT,
        }

    async def poll(self, envelope: Json) -> dict[str, Json]:
        """The body of ``POST /work/poll``. Raises Rejected for an invalid message."""
        message = self._network.open(envelope, POLL, self._clock())
        stage = read_stage(message.body)
        place = (message.signer, stage)
        self._workers[place] = trio.current_time()
        while len(self._workers) > MAX_WORKERS:
            self._workers.popitem(last=False)
        self._polled.set()
        operation = self._operation
        if operation is None or (operation.worker, operation.stage) != place:
            return {"assignment": None}
        return {"assignment": self._assignment(operation)}

    async def result(self, envelope: Json) -> dict[str, Json]:
        """The body of ``POST /work/result``.

        The first result of an assignment counts; a later one gets the same answer. Raises Rejected
        for an unknown job, and for a result that differs from a replay's.
        """
        message = self._network.open(envelope, RESULT, self._clock())
        name = str(message.body.get("job_id"))
        if self._answered.get(name) != message.signer:
            operation = self._offered.get(name)
            if operation is None or operation.worker != message.signer:
                raise NoAssignment
            if operation.result is None:
                await self._take(operation, message)
            self._answered[name] = message.signer
            while len(self._answered) > MAX_ANSWERED:
                self._answered.popitem(last=False)
        return {"accepted_for_submission": True}

    # For the service.

    async def wait_workers(self) -> list[str]:
        """Wait until both stages have a worker. Returns the first one that was seen, by stage."""
        while True:
            self._polled = trio.Event()
            found = [self._first_worker(stage) for stage in range(len(OPERATIONS))]
            if None not in found:
                return [key for key in found if key is not None]
            await self._polled.wait()

    async def compute(self, lease: Lease, stage: int, request: dict[str, Json]) -> dict[str, Any]:
        """Have the lease's worker do one operation. Waits without a deadline."""
        operation = StageAssignment(lease.workers[stage], stage, request, lease)
        self._operation = operation
        try:
            await operation.done.wait()
        finally:
            self._operation = None
            # Its job ids are forgotten too; those with an accepted result stay in `_answered`.
            self._offered.clear()
        assert operation.result is not None  # noqa: S101 - set before `done`
        return operation.result

    def settled(self, lease: Lease) -> None:
        """Note that the task is over. Its workers count as present again when they poll."""
        for stage, key in enumerate(lease.workers):
            self._workers.pop((key, stage), None)

    def _first_worker(self, stage: int) -> str | None:
        fits = (
            key
            for (key, at), seen in self._workers.items()
            if at == stage and self._is_recent(seen)
        )
        return next(fits, None)

    def _is_recent(self, seen: float) -> bool:
        return trio.current_time() - seen < RECENT_S

    def _assignment(self, operation: StageAssignment) -> dict[str, Json]:
        now = trio.current_time()
        if now - operation.signed_at > RESIGN_S:
            assert self._key is not None  # noqa: S101 - operations exist only with a key
            body = self._network.body(
                ASSIGNMENT,
                self._clock(),
                worker=operation.worker,
                stage=operation.stage,
                request=operation.request,
            )
            operation.assignment = sign_envelope(body, self._key.seed)
            operation.signed_at = now
            # A long lease gets many signed assignments. Workers answer only the newest ones, so the
            # oldest can be dropped.
            self._offered[digest(body)] = operation
            while len(self._offered) > MAX_ANSWERED:
                self._offered.popitem(last=False)
        return operation.assignment

    async def _take(self, operation: StageAssignment, message: Envelope) -> None:
        """Check a result as validators will check the submission, and keep it if it is right."""
        result = message.body.get("result")
        names = {"activation", "receipt"} if operation.stage == 0 else {"weights", "receipt"}
        if not isinstance(result, dict) or set(result) != names:
            raise WrongWork
        receipt = open_envelope(result["receipt"])
        replay = await trio.to_thread.run_sync(self._execution.train, operation.lease)
        expected = replay.receipts[operation.stage]
        if receipt.signer != operation.worker or digest(receipt.body) != digest(expected):
            raise WrongWork
        data, root = (
            (result["activation"], expected["feature_root"])
            if operation.stage == 0
            else (result["weights"], replay.result_root)
        )
        if digest(data) != root:
            raise WrongWork
        # Another copy of it may have been accepted while this one was checked.
        if operation.result is None:
            operation.result = cast("dict[str, Any]", result)
            operation.done.set()
