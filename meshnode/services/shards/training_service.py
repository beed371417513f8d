"""The service that trains this node's layers by messages (interface 2.3; decision 0035).

``training`` has the handle, and says what the messages do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from meshnode.model.loading import LoadedModel
from meshnode.model.training import Recipe
from meshnode.services.executor import Executor
from meshnode.services.shards.kept_graphs import TrainingLimits
from meshnode.services.shards.layer_versions import LayerVersions
from meshnode.services.shards.training import ShardTrainer
from meshnode.services.wakeup import Wakeup, wait_any

if TYPE_CHECKING:
    from meshnode.services.peers import PeerBook
    from meshnode.services.shards.members import TrainingMembers
    from meshnode.services.stub_pool import StubPool

UNLOAD_RETRY_S = 1.0
"""Pause before the weights are freed, while a message still uses them or the disk is full."""


async def serve_training(
    executor: Executor,
    load: Callable[[], LoadedModel],
    limits: TrainingLimits,
    *,
    enabled: Callable[[], bool],
    pool: StubPool,
    peers: PeerBook,
    members: TrainingMembers,
    learning_rate: Callable[[], float] = lambda: Recipe().learning_rate,
    changed: Wakeup | None = None,
    versions: LayerVersions | None = None,
    make_room: Callable[[], bool] = lambda: True,
    freed: Callable[[], None] = lambda: None,
    task_status: trio.TaskStatus[ShardTrainer],
) -> None:
    """Keep graphs for peers until cancelled; starts with the :class:`ShardTrainer`.

    ``load`` reads the held layers, trainable; it is called in a thread, when they are needed.
    ``make_room`` is called before; it returns whether there is memory for them.
    ``changed`` is set when ``enabled`` may have changed: then what was trained goes to the disk of
    ``versions``, its memory is freed, and ``freed`` is called.
    """
    training = ShardTrainer(
        executor, load, limits, enabled, pool, peers, members, learning_rate, versions, make_room
    )
    changed = changed or Wakeup()
    task_status.started(training)
    while True:
        news, pause = changed.next, limits.idle_s / 4
        if training.loaded and not training.enabled:
            if await training.unload():
                freed()
            else:
                pause = UNLOAD_RETRY_S
        await wait_any(news, deadline=trio.current_time() + pause)
        training.expire()
