"""The provider: answers paid jobs that name this node's key (interface 3; native network 1.3).

Terms: a *job* is an accepted ``infer`` that waits for its provider's ``respond``. Jobs are answered
in the order in which they expire.

Invariants: this service keeps no state that matters, so a node that was killed at any moment goes
on with the jobs that are still pending on the chain; a job has one answer, since the chain refuses
a second ``respond``; a job that cannot be answered in time is left to expire.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any, Protocol

import trio

from meshnode.domain.chain.canonical import Json, digest
from meshnode.domain.chain.errors import LedgerBroken, Rejected
from meshnode.domain.errors import Unavailable
from meshnode.services.ledger.asking import ChainLedger, ask
from meshnode.services.signer.signer import ASK_AGAIN_S, Signer

log = logging.getLogger(__name__)

HEARTBEAT_S = 240.0
"""A provider that has not looked at the chain for this long does not count as online."""
SPARE_BLOCKS = 1
"""Blocks that may pass while an answer is computed and sent."""
MAX_TRIES = 3
"""Tries of one job, which is then left to expire: a refused answer is refused again."""
REMEMBERED_JOBS = 256
"""Jobs whose tries are counted: several times as many as can be pending."""


class Answers(Protocol):
    """The part of the execution that the provider uses."""

    @property
    def conformant(self) -> bool:
        """Whether this machine computes as the chain does."""

    def answer_prompt(self, model_root: str, prompt: str, max_tokens: int) -> dict[str, Json]:
        """The answer of an adapter to a prompt."""


class Provider:
    """Handle of the service."""

    def __init__(self, chain: ChainLedger, execution: Answers, signer: Signer) -> None:
        self._chain = chain
        self._execution = execution
        self._signer = signer
        self._tries: Counter[str] = Counter()
        self._looked_at: float | None = None
        self.answered = 0
        """Jobs that this process has answered."""

    @property
    def public_key(self) -> str:
        """The key that jobs name."""
        return self._signer.public_key

    @property
    def online(self) -> bool:
        """Whether this node has looked for jobs recently."""
        if self._looked_at is None:
            return False
        return trio.current_time() - self._looked_at < HEARTBEAT_S

    async def run(self) -> None:
        """Answer jobs until cancelled. Asks the chain for jobs once per block."""
        while self._execution.conformant:
            height = self._chain.height
            try:
                await self.answer_pending()
                await self._chain.wait_beyond(height)
            except Unavailable as error:
                log.info("the provider waits for the ledger: %s", error)
                await trio.sleep(ASK_AGAIN_S)
        log.error("this node does not compute as its chain does, so it provides no answers")
        await trio.sleep_forever()

    async def answer_pending(self) -> None:
        """Answer every job that is pending now and can be answered in time."""
        jobs = (await ask(self._chain, "/jobs", {"provider": self.public_key}))["jobs"]
        self._looked_at = trio.current_time()
        for job in sorted(jobs, key=lambda job: (job["expires"], job["id"])):
            # The answer goes into a later block, whose height must not be above `expires`.
            in_time = self._chain.height + 1 + SPARE_BLOCKS <= job["expires"]
            if in_time and self._tries[job["id"]] < MAX_TRIES:
                await self._answer(job)
                self._looked_at = trio.current_time()

    def stopped(self) -> None:
        """Count as offline until :meth:`run` asks for jobs again."""
        self._looked_at = None

    async def _answer(self, job: dict[str, Any]) -> None:
        job_id, request = job["id"], job["request"]
        if len(self._tries) >= REMEMBERED_JOBS:
            self._tries.clear()
        self._tries[job_id] += 1
        try:
            output = await trio.to_thread.run_sync(
                self._execution.answer_prompt,
                job["model_root"],
                request["prompt"],
                request["max_tokens"],
            )
            fields: dict[str, Json] = {"job_id": job_id, "result_root": digest(output)}
            await self._signer.send("respond", fields)
        except (Rejected, LedgerBroken, ArithmeticError, MemoryError) as error:
            log.warning("job %s is not answered: %s", job_id, error)
        else:
            self.answered += 1
            log.info("job %s is answered", job_id, extra={"fields": {"price": job["price"]}})


async def serve_provider(
    provider: Provider, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Answer jobs until cancelled. ``provider`` outlives a restart of this service.

    If this is cancelled after an answer was signed, the signer still submits the answer.
    """
    task_status.started()
    try:
        await provider.run()
    finally:
        provider.stopped()
