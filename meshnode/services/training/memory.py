"""The memory of training, which ``resources.max_memory_gb`` includes (decision 0138).

While training is on, the cache for keys and values gives up what training needs. It gets that back
when training has been switched off and its memory has been freed and returned to the system.

Invariant: training is not switched on where the cache would have too little left for one request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import trio

from meshnode.config import Config
from meshnode.domain.errors import InvalidRequest
from meshnode.domain.units import GIBIBYTE, MEBIBYTE
from meshnode.memory import give_back_memory
from meshnode.model.config import DecoderConfig
from meshnode.services.executor import Executor
from meshnode.services.settings import Settings
from meshnode.services.shards.graphs import graph_bytes
from meshnode.services.wakeup import Wakeup, wait_any

log = logging.getLogger(__name__)

LIBRARIES = 100 * MEBIBYTE
"""What torch imports for an optimizer. It stays, but is counted only while training is on."""
USER = "training"
"""The name under which training reserves memory of the executor."""
ROUND_COPIES = 14
"""The weights, two moments and gradients; anchor and momentum, both once more at the outer step;
the pseudo-gradient, as tensors and as frames, its sum, and both tensors of a file."""
LAYER_COPIES = 7
"""The weights, two moments, gradients, the sums of two sessions, and a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingShape:
    """What the memory of training depends on, besides the settings."""

    config: DecoderConfig
    held: range
    weight_bytes: int
    """Of the held layers."""
    sequence: int
    """Tokens of a sequence of the data."""
    graph_bytes: int
    """The most that graphs for other nodes may take."""

    def needed(self, batch_size: int) -> int:
        """Bytes that training takes at most, by estimate."""
        layers = LIBRARIES + LAYER_COPIES * self.weight_bytes + self.graph_bytes
        if len(self.held) < self.config.num_layers:
            return layers
        rounds = ROUND_COPIES * self.weight_bytes
        return layers + rounds + graph_bytes(self.config, self.held, batch_size, self.sequence)


class TrainingMemory:
    """Takes memory from the cache for training, and gives it back."""

    def __init__(self, settings: Settings, executor: Executor, shape: TrainingShape) -> None:
        """``settings`` are checked before each change from now on."""
        self.users: list[Callable[[], bool]] = []
        """Whether each part of training has its weights in memory."""
        self._settings = settings
        self._executor = executor
        self._shape = shape
        self._news = Wakeup()
        settings.checks.append(self.check)

    def check(self, config: Config) -> None:
        """Raise InvalidRequest if training is on in ``config`` and does not fit."""
        if not config.training.enabled:
            return
        # A change of the memory is in force after a restart, but must allow one.
        allowed = int(config.resources.max_memory_gb * GIBIBYTE)
        now = int(self._settings.current.resources.max_memory_gb * GIBIBYTE)
        left = self._executor.spare_beside(USER) + min(0, allowed - now)
        needed = self._shape.needed(config.training.batch_size)
        if needed > left:
            raise InvalidRequest(
                "training.enabled",
                f"needs {needed / GIBIBYTE:.2f} GiB; resources.max_memory_gb leaves "
                f"{max(0, left) / GIBIBYTE:.2f} GiB beside the weights and one request",
            )

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
                taken = self._shape.needed(current.batch_size)
            elif taken and not any(loaded() for loaded in self.users):
                await trio.to_thread.run_sync(give_back_memory)
                taken = 0
            self._executor.reserve(USER, taken)
            if not started:
                task_status.started()
                started = True
            await wait_any(news, changed)
