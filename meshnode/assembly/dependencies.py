"""The dependencies that every branch of the services between nodes may use."""

from __future__ import annotations

from dataclasses import dataclass

import trio

from meshnode.assembly.chain import ChainSlot
from meshnode.assembly.timings import NodeTimings
from meshnode.config import Config
from meshnode.domain.identity import NodeKey
from meshnode.model.loading import LoadedModel
from meshnode.rpc.pool import ChannelPool
from meshnode.services.executor import Executor
from meshnode.services.model_source import ModelSource
from meshnode.services.settings import Settings
from meshnode.supervise import Drain


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkDependencies:
    """What the services between nodes depend on."""

    config: Config
    settings: Settings
    key: NodeKey
    source: ModelSource
    model: LoadedModel
    executor: Executor
    pool: ChannelPool
    drain: Drain
    listening: trio.Event
    """Set when the edges accept connections."""
    slot: ChainSlot
    timings: NodeTimings
