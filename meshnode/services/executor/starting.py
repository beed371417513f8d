"""Starting the executor: its limits, its torch thread and its engine (interface 1)."""

from __future__ import annotations

import logging
from functools import partial

import torch
import trio

from meshnode.config import Config
from meshnode.domain.batching import EngineLimits
from meshnode.domain.errors import StartupError
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.units import GIBIBYTE
from meshnode.model.engine import Engine
from meshnode.model.loading import LoadedModel
from meshnode.services.executor.service import Executor
from meshnode.services.executor.torch_thread import TorchThread
from meshnode.services.executor.versions import ServedVersion, Versions
from meshnode.services.observing import UNOBSERVED, GenerationObserver

log = logging.getLogger(__name__)

UNNAMED = WeightsVersion(0, ""), ""
"""The version and the model hash of a model that nobody has to name."""


POOL_SHARE = 15 / 16
"""Share of a device's cache that is promised: what is copied from is for a moment there twice."""


def provide_cache(engine: Engine) -> int | None:
    """Take a device's memory for keys and values; returns how much of it may be promised.

    None on the CPU, where it is taken as needed. Blocks. Raises StartupError.
    """
    if engine.where is None:
        return None
    budget = engine.where.cache_budget()
    try:
        engine.provide(budget)
    except torch.OutOfMemoryError:
        raise StartupError(
            f"--device {engine.where.setting}: no {budget / GIBIBYTE:.2f} GiB for keys and values; "
            "another process may have taken them"
        ) from None
    return int(budget * POOL_SHARE)


def engine_limits(
    config: Config, taken_bytes: int, device_cache_bytes: int | None = None
) -> EngineLimits:
    """The limits that the configuration sets. The cache gets the memory that the rest leaves.

    ``taken_bytes`` counts all copies of the weights in the host's memory, and the process itself.
    ``device_cache_bytes`` is the cache on a device, if it is there. Raises StartupError if they
    leave no memory.
    """
    memory = int(config.resources.max_memory_gb * GIBIBYTE)
    if taken_bytes >= memory:
        raise StartupError(
            f"resources.max_memory_gb is {config.resources.max_memory_gb:g}, "
            f"the weights and the process alone take {taken_bytes / GIBIBYTE:.2f} GiB"
        )
    left = memory - taken_bytes
    return EngineLimits(
        max_batch=config.limits.max_batch,
        max_queue=config.limits.max_queue,
        kv_bytes=left if device_cache_bytes is None else device_cache_bytes,
        beside_bytes=None if device_cache_bytes is None else left,
    )


async def serve_executor(
    served: ServedVersion | LoadedModel,
    limits: EngineLimits,
    observer: GenerationObserver = UNOBSERVED,
    *,
    task_status: trio.TaskStatus[Executor],
) -> None:
    """Serve generations from a model until cancelled; starts with the :class:`Executor`.

    A version of the weights says which one it is; a model alone is as the node was started with.
    A step that has begun is finished first. Generations still open then end with Unavailable.
    Raises StartupError if ``limits`` leave no room for a generation of ``SHORTEST_CONTEXT``.
    """
    compute = TorchThread()
    if isinstance(served, LoadedModel):
        engine = await compute(partial(Engine, served.decoder, limits.max_batch))
        served = ServedVersion(*UNNAMED, served.facts, engine)
    engine = served.engine
    if not engine.batches:
        log.warning("batches round differently on this machine: computing row by row")
    if not engine.replays:
        log.warning("a replay rounds differently on this machine: replaying step by step")
    executor = Executor(Versions(served), limits, compute, observer)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(executor.watch_queue)
            task_status.started(executor)
            while True:
                await executor.step()
    finally:
        executor.close()
