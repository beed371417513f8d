"""The memory of training, which ``resources.max_memory_gb`` includes (decision 0138).

While training is on, the cache for keys and values gives up what training needs. It gets that back
when training has been switched off and its memory has been freed and returned to the system, except
for what stays: the anchor of a node of rounds.
``footprint`` says how much that is.

Others may train the layers of a node of rounds too, by messages, in a copy of their own. Few ever
do, so the memory of that copy is taken when the first such message comes, and the message is
refused where there is none.

Invariant: training is not switched on, and nothing is loaded for others, where the cache would have
too little left for one request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from meshnode.config import Config
from meshnode.domain.errors import InvalidRequest
from meshnode.domain.units import GIBIBYTE
from meshnode.memory import give_back_memory
from meshnode.services.executor import Executor
from meshnode.services.settings import Settings
from meshnode.services.training.footprint import TrainingShape
from meshnode.services.wakeup import Wakeup, wait_any

log = logging.getLogger(__name__)

USER = "training"
"""The name under which training reserves memory of the executor."""
LAYERS_USER = "training for others"
"""The name for what training these layers by messages of others takes on a node of rounds."""


class TrainingMemory:
    """Takes memory from the cache for training, and gives it back."""

    def __init__(self, settings: Settings, executor: Executor, shape: TrainingShape) -> None:
        """``settings`` are checked before each change from now on."""
        self.users: list[Callable[[], bool]] = []
        """Whether each part of training has its weights in memory."""
        self.stays: Callable[[], int] = lambda: 0
        """The bytes that training keeps although it is off."""
        self._settings = settings
        self._executor = executor
        self._shape = shape
        self._news = Wakeup()
        self._for_others = False
        """Whether the memory of training for others is taken."""
        settings.checks.append(self.check)

    def check(self, config: Config) -> None:
        """Raise InvalidRequest if training is on in ``config`` and does not fit."""
        if not config.training.enabled:
            return
        # A change of the memory is in force after a restart, but must allow one.
        allowed = int(config.resources.max_memory_gb * GIBIBYTE)
        now = int(self._settings.current.resources.max_memory_gb * GIBIBYTE)
        left = self._executor.spare_beside(USER) + min(0, allowed - now)
        needed = self._shape.needed(config.training)
        if needed > left:
            raise InvalidRequest(
                "training.enabled",
                f"needs {needed / GIBIBYTE:.2f} GiB; resources.max_memory_gb leaves "
                f"{max(0, left) / GIBIBYTE:.2f} GiB beside the weights and one request",
            )

    def make_room(self) -> bool:
        """Take the memory of training these layers for others. False: there is not enough."""
        if not self._shape.is_whole or self._for_others:
            return True
        needed = self._shape.layers
        if needed > self._executor.spare_beside(LAYERS_USER):
            log.warning("no memory to train for others: that takes %.2f GiB", needed / GIBIBYTE)
            return False
        self._for_others = True
        self._executor.reserve(LAYERS_USER, needed)
        return True

    def freed(self) -> None:
        """Note that a part of training has freed its memory."""
        self._news.set()

    async def keep(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the settings until cancelled."""
        taken = 0
        started = False
        while True:
            news, changed = self._news.next, self._settings.changed.next
            current = self._settings.current.training
            if current.enabled:
                taken = self._shape.needed(current)
            elif taken != self.stays() and not any(loaded() for loaded in self.users):
                await trio.to_thread.run_sync(give_back_memory)
                taken = self.stays()
                self._for_others = False
                self._executor.reserve(LAYERS_USER, 0)
            self._executor.reserve(USER, taken)
            if not started:
                task_status.started()
                started = True
            await wait_any(news, changed)
