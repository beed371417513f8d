"""The dependencies that every branch of the services between nodes may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from meshnode.assembly.chain import ChainSlot
from meshnode.assembly.timings import NodeTimings
from meshnode.config import Config
from meshnode.domain.identity import NodeKey
from meshnode.model.draft import DraftModel
from meshnode.model.loading import ModelFacts
from meshnode.rpc.pool import ChannelPool
from meshnode.services.executor import Executor
from meshnode.services.model_source import LayerRoom, ModelSource
from meshnode.services.moving import MoveClaim
from meshnode.services.pipeline.records import HopRecorder
from meshnode.services.settings import Settings
from meshnode.services.versions.layer_store import LayerStore
from meshnode.services.versions.store import VersionFiles, VersionStore
from meshnode.supervise import Drain

if TYPE_CHECKING:
    from meshnode.services.tracing import Tracing


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkDependencies:
    """What the services between nodes depend on."""

    config: Config
    settings: Settings
    key: NodeKey
    source: ModelSource
    model: ModelFacts
    draft: DraftModel | None
    """The model that guesses tokens for generations over other nodes, if there is one."""
    store: VersionStore | LayerStore
    """The versions of the weights that may be served."""
    served: VersionFiles
    """The one that the executor was started with."""
    executor: Executor
    pool: ChannelPool
    drain: Drain
    listening: trio.Event
    """Set when the edges accept connections."""
    slot: ChainSlot
    hops: HopRecorder
    timings: NodeTimings
    claim: MoveClaim
    """What this node announces about moving to other layers."""
    may_move: bool
    """Whether it may move, if its settings say so."""
    moved: bool
    """Whether it has moved to its layers while it ran."""
    room: LayerRoom
    """The layers that it has room for."""
    tracing: Tracing | None = None
    """Records spans, where that is wanted."""
