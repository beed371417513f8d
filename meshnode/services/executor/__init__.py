"""The model executor: the one torch thread, and the generations and sessions that share it."""

from __future__ import annotations

from meshnode.domain.batching import EngineLimits
from meshnode.services.executor.service import Executor
from meshnode.services.executor.sessions import ForwardJob, SessionEvicted, ShardSession
from meshnode.services.executor.starting import engine_limits, provide_cache, serve_executor
from meshnode.services.executor.versions import ServedVersion, Versions
from meshnode.services.generation import Generation

__all__ = [
    "EngineLimits",
    "Executor",
    "ForwardJob",
    "Generation",
    "ServedVersion",
    "SessionEvicted",
    "ShardSession",
    "Versions",
    "engine_limits",
    "provide_cache",
    "serve_executor",
]
