"""This node's part in a pipeline that trains (document, 1, 2.1 and 2.3; decisions/0105).

A node that holds some of the layers trains those, and no copy of the whole model. Terms: the node
with the first layers *drives*: it reads the data, and takes step after step over the holders of the
other layers, each of which updates its own (``services.pipeline.training``). The others *follow*:
they answer the driver's messages, and know no more than how many steps have come by.

Invariants: a batch is used until a step with it has succeeded, or until batches have another size;
settings are read before each step, so they can be changed while it runs; no number is told that was
not measured here.
"""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import Callable, Iterator
from statistics import fmean
from typing import Protocol

import trio
from torch import Tensor

from meshnode.config import Config
from meshnode.domain.errors import MeshnodeError, StartupError
from meshnode.domain.metering import TrainingFigures
from meshnode.model.data import Shuffled, TokenData
from meshnode.model.training import Batch
from meshnode.services.training.rounds import LOSSES_KEPT, TICK_S, Progress

log = logging.getLogger(__name__)

RETRY_S = 2.0
"""Before a step that failed is tried again."""
LATELY_S = 60.0
"""A follower without a step for so long counts as one that does not train."""
SESSION_BYTES = 16


class Driver(Protocol):
    """Takes steps over the holders of all layers."""

    @property
    def nodes(self) -> int:
        """How many took part in the latest step that succeeded."""

    async def step(
        self, session_id: str, tokens: Tensor, labels: Tensor, *, update: bool = False
    ) -> float:
        """The loss of a step. Raises MeshnodeError."""


class PipelinePart:
    """What this node does in a pipeline, and what it knows of it."""

    def __init__(
        self,
        *,
        settings: Callable[[], Config],
        steps: Callable[[], int],
        driver: Driver | None,
        load: Callable[[], TokenData],
        seed: int,
    ) -> None:
        """``steps`` counts the updates of the held layers; ``driver`` is None for a follower.

        ``load`` blocks; it is called when the driver is to train for the first time. ``seed``
        decides the order of the data.
        """
        self.progress = Progress(begun_at=trio.current_time())
        self.losses: list[float] = []
        """Means over ``diloco_steps`` steps each, oldest first."""
        self.shards: set[int] = set()
        self.problem = ""
        """Why no step succeeds, in words for the operator."""
        self._settings = settings
        self._steps = steps
        self._driver = driver
        self._load = load
        self._seed = seed
        self._data: TokenData | None = None
        self._window: list[float] = []
        self._epochs = 0
        self._stepped_at = -math.inf

    @property
    def drives(self) -> bool:
        """Whether the steps begin here."""
        return self._driver is not None

    @property
    def nodes(self) -> int:
        """Nodes that are known to train in this pipeline now, this one included."""
        if not self._settings().training.enabled or self.problem or not self._lately():
            return 0
        return 1 if self._driver is None else self._driver.nodes

    @property
    def steps(self) -> int:
        """Updates of the layers here, since the start."""
        return self._steps()

    def figures(self) -> TrainingFigures:
        """For ``GET /status`` and ``/metrics``. An epoch is ``diloco_steps`` of the driver."""
        hours = max(trio.current_time() - self.progress.begun_at, 1.0) / 3600
        return TrainingFigures(
            epoch=self._epochs,
            step=len(self._window),
            loss=self.progress.loss,
            steps_total=self.steps,
            steps_per_hour=round(self.steps / hours),
        )

    async def run(self) -> None:
        """Drive while training is enabled, or watch the steps that come by; until cancelled."""
        while True:
            if self._settings().training.enabled and self._driver is not None:
                await self._drive(self._driver)
            else:
                self._watch()
                await trio.sleep(TICK_S)

    def _watch(self) -> None:
        self.problem = ""
        if self.steps != self.progress.steps:
            self.progress.steps, self._stepped_at = self.steps, trio.current_time()
        if self._settings().training.enabled and not self._lately():
            self.problem = "no step has come by from the node with the first layers"

    async def _drive(self, driver: Driver) -> None:
        try:
            if self._data is None:
                self._data = await trio.to_thread.run_sync(self._load)
            await self._steps_with(driver, self._data)
        except (StartupError, OSError) as error:
            await self._pause(str(error).removeprefix("training: "))

    async def _steps_with(self, driver: Driver, data: TokenData) -> None:
        size, now = 0, None
        batches: Iterator[Shuffled] = iter(())
        while (config := self._settings().training).enabled:
            if config.batch_size != size:
                size, seed = config.batch_size, self._seed + self.progress.steps
                batches, now = data.batches(range(data.shards), size, seed), None
            now = now or next(batches)
            loss = await self._step(driver, now.batch)
            if loss is not None:
                self.shards |= now.shards
                self._count(loss, now.batch.tokens)
                now = None

    async def _step(self, driver: Driver, batch: Batch) -> float | None:
        """The loss; None after a failure and a pause."""
        # Each in a session of its own: what is left of one that failed counts in no other.
        session = secrets.token_hex(SESSION_BYTES)
        try:
            loss = await driver.step(session, batch.inputs, batch.targets, update=True)
        except MeshnodeError as error:
            await self._pause(str(error))
            return None
        self.problem = ""
        return loss

    def _count(self, loss: float, tokens: int) -> None:
        progress = self.progress
        progress.steps, progress.loss = self.steps, loss
        progress.tokens += tokens
        self._stepped_at = trio.current_time()
        self._window.append(loss)
        if len(self._window) >= self._settings().training.diloco_steps:
            self.losses = [*self.losses, fmean(self._window)][-LOSSES_KEPT:]
            self._epochs += 1
            self._window.clear()

    async def _pause(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("training: %s", problem)
        self.problem = problem
        await trio.sleep(RETRY_S)

    def _lately(self) -> bool:
        return trio.current_time() - self._stepped_at < LATELY_S
