"""Several nodes that train together: real gRPC, real weights, a peer list that a test controls."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import torch
import trio

from meshnode.config import Config, build_config
from meshnode.domain.identity import NodeKey, key_from_seed
from meshnode.domain.metering import TrafficMeter
from meshnode.domain.peers import Peer
from meshnode.domain.training.replica import Timings
from meshnode.edges.grpc_service import node_services
from meshnode.edges.grpc_training import TrainingServicer
from meshnode.edges.grpc_weights import WeightsServicer
from meshnode.model.config import DecoderConfig
from meshnode.model.data import TokenData
from meshnode.model.diloco import Rule
from meshnode.model.files import open_files
from meshnode.model.manifest import manifest_of_directory
from meshnode.model.trained_model import TrainedModel
from meshnode.model.transfer import WeightFiles
from meshnode.rpc.node_grpc import NodeServiceServicer
from meshnode.rpc.pool import ChannelPool, serve_pool
from meshnode.rpc.server import serve_grpc
from meshnode.services.model_source import ModelSource
from meshnode.services.training.checkpoints import Checkpoints
from meshnode.services.training.gossip import GradientGossip
from meshnode.services.training.timings import TrainingTimings
from meshnode.services.training.trainer import TrainingService, serve_training
from meshnode.services.wakeup import Wakeup
from meshnode.services.weights import WeightServer
from meshnode.supervise import Drain
from meshnode.wire import node_pb2 as pb
from spec_tests.model.small_models import VOCAB_SIZE

TIMINGS = TrainingTimings(
    rounds=Timings(
        exchange_least_s=2.0, exchange_share=0.5, settle_s=3.0, retry_s=0.2, distrust_s=1.0
    ),
    poll_s=0.1,
)
PATIENT = replace(TIMINGS, rounds=replace(TIMINGS.rounds, exchange_least_s=60.0, settle_s=60.0))
"""For tests in which every exchange must succeed, however busy the machine is."""
WITHIN_S = 180.0


def token_data(seed: int = 0, rows: int = 64, length: int = 17) -> TokenData:
    """Return rows of consecutive tokens, which a small model learns quickly."""
    random = torch.Generator().manual_seed(seed)
    starts = torch.randint(1, VOCAB_SIZE - length, (rows, 1), generator=random)
    steps = torch.arange(length)
    return TokenData(starts + steps, starts[:8] + steps)


class ChangingSettings:
    """Settings that a test changes."""

    def __init__(self, config: Config) -> None:
        self.current = config
        self.changed = Wakeup()

    def change(self, **settings: float) -> None:
        """Change settings of ``training``, as PATCH /config does."""
        training = replace(self.current.training, **settings)  # type: ignore[arg-type]
        self.current = replace(self.current, training=training)
        self.changed.set()


class StatusService(NodeServiceServicer):
    """Answers GetSwarmStatus with the training status only."""

    def __init__(self, node: TrainingNode) -> None:
        self._node = node

    async def GetSwarmStatus(  # noqa: N802 - the document's name
        self, input_message: pb.SwarmStatusRequest
    ) -> pb.SwarmStatusResponse:
        return pb.SwarmStatusResponse(training=self._node.training.status())


@dataclass
class TrainingNode:
    """A node in training. ``peers`` are the nodes in its peer book."""

    key: NodeKey
    model: Path
    folder: Path
    settings: ChangingSettings
    data: TokenData
    model_hash: str = ""
    port: int = 0
    peers: list[TrainingNode] = field(default_factory=list)
    training: TrainingService = None  # type: ignore[assignment]
    scope: trio.CancelScope | None = None
    trained: Callable[[Path], TrainedModel] = TrainedModel
    rule: Rule = Rule.TRIMMED_MEAN
    timings: TrainingTimings = TIMINGS

    # The methods of a peer book that training uses.

    @property
    def own(self) -> SimpleNamespace:
        return SimpleNamespace(lineage=self.model_hash)

    def book(self) -> list[Peer]:
        return [peer.as_peer() for peer in self.peers if peer.scope is not None]

    def get(self, node_id: str) -> Peer | None:
        return next((peer for peer in self.book() if peer.node_id == node_id), None)

    def as_peer(self) -> Peer:
        return Peer(
            node_id=self.key.node_id,
            host="127.0.0.1",
            port=self.port - 1000,
            role="driver",
            layers=(0, 1, 2, 3),
            total_layers=4,
            model_hash=self.model_hash,
            latency_ms=1.0,
            connected_since=time.time(),
        )

    @property
    def kept(self) -> tuple[int, str]:
        """Version and hash of the weights that the node publishes."""
        rounds = self.training.rounds
        assert rounds
        kept = rounds.record.published.kept
        return kept.version, kept.model_hash

    def enable(self, *, on: bool) -> None:
        self.settings.change(enabled=on)

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Serve until ``scope`` is cancelled, which stops the node as abruptly as a kill."""
        with trio.CancelScope() as self.scope:
            async with trio.open_nursery() as nursery:
                pool: ChannelPool = await nursery.start(serve_pool, TrafficMeter())
                await self._serve(nursery, pool)
                task_status.started()
                await trio.sleep_forever()
        self.scope = None

    async def _serve(self, nursery: trio.Nursery, pool: ChannelPool) -> None:
        shape = DecoderConfig.read(self.model / "config.json")
        manifest = manifest_of_directory(self.model, shape, self.folder.parent / "cache.json")
        self.model_hash = manifest.model_hash
        book = SimpleNamespace(peers=self.book, get=self.get, own=self.own)
        self.training = TrainingService(
            key=self.key,
            settings=self.settings,
            gossip=GradientGossip(book, pool, self.timings),  # type: ignore[arg-type]
            load=lambda: (self.trained(self.model), self.data),
            folder=self.folder,
            timings=self.timings,
            rule=self.rule,
            origin=manifest.weights_hash,
        )
        source = ModelSource(open_files(self.model), shape, range(shape.num_layers), manifest)
        checkpoints = Checkpoints(source, self.training)
        files = WeightFiles(source.files, shape, source.held, manifest)
        parts = [
            TrainingServicer(training=self.training, checkpoints=checkpoints),
            WeightsServicer(WeightServer(files, manifest.model_hash), checkpoints),
            StatusService(self),
        ]
        services = node_services(parts, Drain())
        serve = partial(serve_grpc, services, "127.0.0.1", self.port, traffic=TrafficMeter())
        _, self.port = await nursery.start(serve)
        await nursery.start(serve_training, self.training)


@asynccontextmanager
async def training_nodes(
    model: Path, folder: Path, count: int, **settings: object
) -> AsyncIterator[tuple[list[TrainingNode], trio.Nursery]]:
    """Yield ``count`` nodes that know each other, not started, and a nursery for them."""
    values = {
        "data_dir": str(folder),
        "training.enabled": True,
        "training.diloco_steps": 4,
        "training.batch_size": 8,
        "training.learning_rate": 1e-3,
        **settings,
    }
    nodes = []
    for index in range(count):
        (folder / f"node-{index}").mkdir()
        node = TrainingNode(
            key=key_from_seed(f"{index + 1:064x}"),
            model=model,
            folder=folder / f"node-{index}" / "training",
            settings=ChangingSettings(build_config(values)),  # type: ignore[arg-type]
            data=token_data(),
        )
        nodes.append(node)
    for node in nodes:
        node.peers = [other for other in nodes if other is not node]
    async with trio.open_nursery() as nursery:
        yield nodes, nursery
        nursery.cancel_scope.cancel()


async def wait_for(condition: Callable[[], bool], within_s: float = WITHIN_S) -> None:
    """Poll until the condition holds."""
    with trio.fail_after(within_s):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in a thread or a peer
            await trio.sleep(0.02)


def agreed(nodes: list[TrainingNode], version: int) -> bool:
    """Return whether all nodes have the same weights, of at least this version."""
    if any(node.training.rounds is None for node in nodes):
        return False
    kept = {node.kept for node in nodes}
    return len(kept) == 1 and min(kept)[0] >= version
