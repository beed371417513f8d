"""This node's part in a pipeline that trains (interface 1, 2.1 and 2.3; decision 0105).

A node that holds some of the layers trains those, and no copy of the whole model. Terms: the node
with the first layers is the *driver*: it reads the data, and takes step after step over the holders
of the other layers, each of which updates its own (``services.pipeline.training``). The others are
*followers*: they answer the driver's messages, and know only how many steps they took part in.

Invariants: a batch is used until a step with it has succeeded, the batch size changes or training
is switched off; settings are read before each step, so they can be changed while training runs;
every reported number was measured by this node.
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

from meshnode.domain.errors import MeshnodeError, StartupError, public_reason
from meshnode.domain.metering import TrainingFigures
from meshnode.domain.training.position import PipelineVersion, Position
from meshnode.model.data import Shuffled, TokenData
from meshnode.model.training import Batch
from meshnode.services.settings import LiveSettings
from meshnode.services.training.learner import VALIDATION_BATCH, VALIDATION_ROWS
from meshnode.services.training.progress import MAX_LOSSES, Progress
from meshnode.services.training.timings import TRAINING_TIMINGS, TrainingTimings
from meshnode.services.wakeup import Wakeup, wait_any

log = logging.getLogger(__name__)

SESSION_BYTES = 16
MAX_MEASURED = 16
"""Versions whose losses are known, beside the untrained one."""


class LayerUpdates(Protocol):
    """The updates of the layers that this node holds."""

    @property
    def steps(self) -> int:
        """How many there were."""

    @property
    def position(self) -> Position:
        """Where the layers are (decision 0201)."""

    @property
    def stepped(self) -> Wakeup:
        """Set after each one."""


class StepDriver(Protocol):
    """Takes training steps over the holders of all layers."""

    @property
    def nodes(self) -> int:
        """How many nodes took part in the latest successful step."""

    async def step(
        self, session_id: str, tokens: Tensor, labels: Tensor, *, update: bool = False
    ) -> float:
        """The loss of a step. Raises MeshnodeError."""

    async def loss(self, tokens: Tensor, labels: Tensor) -> float:
        """The loss without a step. Raises MeshnodeError."""


class PipelinePart:
    """This node's training in a pipeline, as driver or follower."""

    def __init__(
        self,
        *,
        settings: LiveSettings,
        updates: LayerUpdates,
        driver: StepDriver | None,
        load: Callable[[], TokenData],
        seed: int,
        timings: TrainingTimings = TRAINING_TIMINGS,
        measures: bool = False,
    ) -> None:
        """``driver`` is None for a follower. With ``measures`` it measures what all keep.

        ``load`` blocks; it is called when the driver first trains. ``seed`` decides the order of
        the data.
        """
        self.progress = Progress(begun_at=trio.current_time())
        self.losses: list[float] = []
        """Mean losses of ``diloco_steps`` steps each, oldest first."""
        self.shards: set[int] = set()
        self.held_out: dict[PipelineVersion, float] = {}
        """Held-out losses of the latest versions, as they were measured since the start."""
        self.kept = Wakeup()
        """Set when another version was kept."""
        self.problem = ""
        """Why no step succeeds, in words for the operator."""
        self._settings = settings
        self._updates = updates
        self._timings = timings
        self._driver = driver
        self._load = load
        self._seed = seed
        self._measures = measures
        self._data: TokenData | None = None
        self._window: list[float] = []
        self._stepped_at = -math.inf

    @property
    def drives(self) -> bool:
        """Whether this node is the driver."""
        return self._driver is not None

    @property
    def nodes(self) -> int:
        """The number of nodes known to train in this pipeline now, including this one."""
        enabled = self._settings.current.training.enabled
        if not enabled or self.problem or not self._stepped_recently():
            return 0
        return 1 if self._driver is None else self._driver.nodes

    @property
    def steps(self) -> int:
        """Updates of this node's layers since the start."""
        return self._updates.steps

    def figures(self) -> TrainingFigures:
        """For ``GET /status`` and ``/metrics``. The epoch is the version of the pipeline's weights.

        All its nodes say the same, and go on with it after a restart.
        """
        position = self._updates.position
        hours = max(trio.current_time() - self.progress.begun_at, 1.0) / 3600
        return TrainingFigures(
            epoch=position.version.number,
            step=position.steps,
            loss=self.progress.loss,
            steps_total=self.steps,
            steps_per_hour=round(self.steps / hours),
        )

    async def run(self) -> None:
        """Drive while training is enabled, or count the steps as a follower, until cancelled."""
        while True:
            stepped, changed = self._updates.stepped.next, self._settings.changed.next
            if self._settings.current.training.enabled and self._driver is not None:
                await self._drive(self._driver)
            else:
                self._watch()
                stale_at = self._stepped_at + self._timings.recent_s
                still_fresh = stale_at > trio.current_time()
                await wait_any(stepped, changed, deadline=stale_at if still_fresh else math.inf)

    def _watch(self) -> None:
        self.problem = ""
        if self.steps != self.progress.steps:
            self.progress.steps, self._stepped_at = self.steps, trio.current_time()
        if self._settings.current.training.enabled and not self._stepped_recently():
            self.problem = "no step has come from the node with the first layers"

    async def _drive(self, driver: StepDriver) -> None:
        try:
            if self._data is None:
                self._data = await trio.to_thread.run_sync(self._load)
            await self._steps_with(driver, self._data)
        except (StartupError, OSError) as error:
            detail = str(error).removeprefix("training: ")
            await self._pause(public_reason(error).removeprefix("training: "), detail)

    async def _steps_with(self, driver: StepDriver, data: TokenData) -> None:
        size, shuffled = 0, None
        batches: Iterator[Shuffled] = iter(())
        while (config := self._settings.current.training).enabled:
            if config.batch_size != size:
                size, seed = config.batch_size, self._seed + self.progress.steps
                batches, shuffled = data.batches(range(data.shards), size, seed), None
            shuffled = shuffled or next(batches)
            held_out = await self._held_out(driver, data)
            before = self._updates.position.version
            loss = await self._step(driver, shuffled.batch)
            if loss is not None:
                self._note_kept(before, held_out)
                self.shards |= shuffled.shards
                self._count(loss, shuffled.batch.tokens)
                shuffled = None

    async def _step(self, driver: StepDriver, batch: Batch) -> float | None:
        """The loss of a step; None after a failure and a pause."""
        # Each step has its own session, so that remains of a failed step count in no other.
        session = secrets.token_hex(SESSION_BYTES)
        try:
            loss = await driver.step(session, batch.inputs, batch.targets, update=True)
        except MeshnodeError as error:
            await self._pause(str(error))
            return None
        self.problem = ""
        return loss

    async def _held_out(self, driver: StepDriver, data: TokenData) -> float | None:
        """The held-out loss of the weights, if the next step keeps them; else None."""
        at = self._updates.position
        first = at == Position() and at.version not in self.held_out
        if not self._measures or not (
            first or at.steps >= self._settings.current.training.diloco_steps
        ):
            return None
        batches = data.validation_batches(VALIDATION_BATCH, VALIDATION_ROWS)
        try:
            loss = fmean([await driver.loss(batch.inputs, batch.targets) for batch in batches])
        except MeshnodeError as error:
            log.info("the weights are not measured: %s", error)
            return None
        if first:
            self.held_out[at.version] = loss
        return loss

    def _note_kept(self, before: PipelineVersion, held_out: float | None) -> None:
        """Note the loss of the version that a step has kept, if it has."""
        version = self._updates.position.version
        if version == before:
            return
        if held_out is not None:
            self.held_out[version] = held_out
            log.info("version %d kept, held-out loss %.4f", version.number, held_out)
            latest = sorted(self.held_out)[-MAX_MEASURED:]
            self.held_out = {
                one: self.held_out[one]
                for one in (PipelineVersion(), *latest)
                if one in self.held_out
            }
        self.kept.set()

    def _count(self, loss: float, tokens: int) -> None:
        progress = self.progress
        progress.steps, progress.loss = self.steps, loss
        progress.tokens += tokens
        self._stepped_at = trio.current_time()
        self._window.append(loss)
        if len(self._window) >= self._settings.current.training.diloco_steps:
            self.losses = [*self.losses, fmean(self._window)][-MAX_LOSSES:]
            self._window.clear()

    async def _pause(self, problem: str, detail: str = "") -> None:
        """Show ``problem`` to clients, and ``detail``, which may name folders, in the log only."""
        if problem != self.problem:
            log.warning("%s", detail or problem)
        self.problem = problem
        await trio.sleep(self._timings.step_retry_s)

    def _stepped_recently(self) -> bool:
        return trio.current_time() - self._stepped_at < self._timings.recent_s
