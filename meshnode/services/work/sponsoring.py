"""The sponsor's own steps: reserve a task, have it computed, submit it (native network 1.4, 4).

The sponsor reserves a task for two workers that it has just seen, has them compute both operations,
and submits the receipts. The chain pays the workers. The sponsor risks the bond of a lease that
runs out.

Invariants: the chain's state determines the next step, so a sponsor that was killed goes on with
its own lease; however often it is started, it never reserves more tasks than the operator allowed
(decision 0090).
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import trio

from meshnode.datadir import write_private
from meshnode.domain.chain.canonical import Json, digest
from meshnode.domain.chain.records import Lease
from meshnode.domain.errors import StartupError, Unavailable
from meshnode.domain.work import OPERATIONS
from meshnode.services.ledger.asking import ChainLedger, ask
from meshnode.services.signer.signer import ASK_AGAIN_S, Signer
from meshnode.services.signer.submission import TransactionRefused
from meshnode.services.work.sponsor import Sponsor

log = logging.getLogger(__name__)

JOURNAL_FILE = "sponsor.json"


class TaskBudget:
    """Counts reserved tasks on the disk, each before its reservation is sent."""

    def __init__(self, folder: Path, tasks: int) -> None:
        """``tasks`` is the limit over all starts. Raises StartupError for a damaged file."""
        self._path = folder / JOURNAL_FILE
        self._tasks = tasks
        try:
            self._reserved = int(json.loads(self._path.read_bytes())["reserved"])
        except FileNotFoundError:
            self._reserved = 0
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            raise StartupError(f"{self._path} cannot be read; restore it, or remove it") from None

    @property
    def remaining(self) -> int:
        """Tasks that may still be reserved."""
        return max(0, self._tasks - self._reserved)

    async def count(self, change: int) -> None:
        """Note that a task is about to be reserved (1) or was refused (-1). Raises Unavailable."""
        reserved = self._reserved + change
        data = json.dumps({"reserved": reserved}).encode()
        try:
            await trio.to_thread.run_sync(write_private, self._path, data)
        except OSError as error:
            raise Unavailable(f"cannot write {self._path.name}: {error.strerror}") from None
        self._reserved = reserved


async def serve_sponsor(
    sponsor: Sponsor,
    chain: ChainLedger,
    signer: Signer,
    folder: Path,
    *,
    tasks: int,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Sponsor up to ``tasks`` tasks, those of earlier runs included, until cancelled.

    The service has started when it has read the count of earlier runs; it raises StartupError when
    that file is damaged. ``sponsor`` outlives a restart of this service. Without a key it answers
    ``/work/*``, but never has work. If cancelled during a task, it leaves a lease with which the
    next start goes on.
    """
    budget = TaskBudget(folder, tasks)
    if not sponsor.sponsoring:
        task_status.started()
        await trio.sleep_forever()
    sponsor.remaining = budget.remaining
    task_status.started()
    run = _Run(chain, sponsor, signer, budget)
    while True:
        try:
            await run.next_step()
        except Unavailable as error:
            log.info("the sponsor waits for the ledger: %s", error)
            await trio.sleep(ASK_AGAIN_S)


class _Run:
    """Takes the step that the state of the chain calls for."""

    def __init__(
        self, chain: ChainLedger, sponsor: Sponsor, signer: Signer, budget: TaskBudget
    ) -> None:
        self._chain = chain
        self._sponsor = sponsor
        self._signer = signer
        self._budget = budget
        self._given_up = ""
        """The task whose submission the chain refused."""

    async def next_step(self) -> None:
        height = self._chain.height
        task = await ask(self._chain, "/task")
        lease = task["lease"]
        if lease is not None and lease["owner"] == self._signer.public_key:
            if lease["task_id"] != self._given_up:
                await self._carry_out(task)
                return
        elif lease is None and self._budget.remaining:
            workers = await self._sponsor.wait_workers()
            if await self._reserve(workers):
                return
        # Wait for a block: another has the lease, the chain refused ours, or no task is left.
        await self._chain.wait_beyond(height)

    async def _reserve(self, workers: list[str]) -> bool:
        # The round is asked for now, because waiting for workers may have taken hours.
        summary = await ask(self._chain, "/summary")
        fields: dict[str, Json] = {
            "task_kind": "train",
            "parent": summary["model_root"],
            "round": summary["round"],
            "workers": [*workers],
            "request": {},
            "price": 0,
        }
        await self._count(1)
        try:
            task_id = await self._signer.send("reserve", fields)
        except TransactionRefused as refusal:
            await self._count(-1)
            log.warning("the chain refused to reserve a task: %s", refusal)
            return False
        log.info("reserved task %s", task_id)
        return True

    async def _carry_out(self, task: dict[str, Any]) -> None:
        lease = _lease_of(task["lease"])
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._until_expired, lease, nursery.cancel_scope)
                await self._have_done(lease, task)
                nursery.cancel_scope.cancel()
        finally:
            self._sponsor.settled(lease)

    async def _until_expired(self, lease: Lease, scope: trio.CancelScope) -> None:
        while self._chain.height <= lease.expires:
            await self._chain.wait_beyond(self._chain.height)
        log.warning("task %s ran out: its bond is burned", lease.task_id)
        scope.cancel()

    async def _have_done(self, lease: Lease, task: dict[str, Any]) -> None:
        common: dict[str, Json] = {
            "task_id": lease.task_id,
            "input_ids": task["input_ids"],
            "weights": task["weights"],
        }
        first = await self._sponsor.compute(lease, 0, {**common, "operation": OPERATIONS[0]})
        activation = first["activation"]
        second = await self._sponsor.compute(
            lease, 1, {**common, "operation": OPERATIONS[1], "activation": activation}
        )
        fields: dict[str, Json] = {
            "task_id": lease.task_id,
            "result_root": digest(second["weights"]),
            "receipts": [first["receipt"], second["receipt"]],
        }
        try:
            await self._signer.send("submit", fields)
        except TransactionRefused as refusal:
            self._given_up = lease.task_id
            log.error("the chain refused task %s: %s", lease.task_id, refusal)
        else:
            log.info("task %s is accepted", lease.task_id)

    async def _count(self, change: int) -> None:
        await self._budget.count(change)
        self._sponsor.remaining = self._budget.remaining


def _lease_of(value: dict[str, Any]) -> Lease:
    return Lease(
        task_id=value["task_id"],
        owner=value["owner"],
        workers=tuple(value["workers"]),
        parent=value["parent"],
        round=value["round"],
        escrow=value["escrow"],
        expires=value["expires"],
    )
