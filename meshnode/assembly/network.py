"""The services between nodes: DHT, peer book, shards, pipeline, training (document, 1 and 4.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from meshnode import __version__
from meshnode.assembly.chain import ChainSlot
from meshnode.config import Config
from meshnode.domain.addresses import grpc_addresses
from meshnode.domain.errors import StartupError, Unavailable
from meshnode.domain.identity import NodeKey
from meshnode.domain.kademlia.node_id import parse_id
from meshnode.domain.peers import Capacity, ShardInfo
from meshnode.model.data import TokenData
from meshnode.model.loading import LoadedModel, load_model
from meshnode.model.replica import TrainedModel
from meshnode.rpc.pool import ChannelPool
from meshnode.services.dht.handle import Dht
from meshnode.services.dht.service import DhtSettings, serve_dht
from meshnode.services.executor import Executor
from meshnode.services.model_source import ModelSource
from meshnode.services.peers import PeerBook, serve_peers
from meshnode.services.pipeline.routes import Routes
from meshnode.services.pipeline.service import Pipeline, PipelineLimits, serve_pipeline
from meshnode.services.pipeline.training import TrainingDriver
from meshnode.services.process import ProcessGauge
from meshnode.services.proofs.orders import OrderingPool
from meshnode.services.proofs.prover import ProofPolicy
from meshnode.services.proofs.recompute import Recomputation
from meshnode.services.proofs.service import Proofs, serve_proofs
from meshnode.services.settings import Settings
from meshnode.services.shards.chain import Chain
from meshnode.services.shards.holder import Holder, HolderLimits, serve_holder
from meshnode.services.shards.training import Training as ShardTraining
from meshnode.services.shards.training import TrainingLimits
from meshnode.services.shards.training import serve_training as serve_shard_training
from meshnode.services.training.checkpoints import Checkpoints
from meshnode.services.training.gossip import Gossip
from meshnode.services.training.part import PipelinePart
from meshnode.services.training.trainer import Training, serve_training
from meshnode.services.weights import Weights
from meshnode.supervise import Drain, Restarts, Supervisor

GIBIBYTE = 1 << 30
TRAINING_FOLDER = "training"
ROW_TOKENS = 129
"""Of a sequence from a folder of text: 128 inputs, each with its target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Handles of the services between nodes."""

    dht: Dht
    book: PeerBook
    holder: Holder
    chain: Chain
    shard_training: ShardTraining
    pipeline: Pipeline
    training: Training
    checkpoints: Checkpoints
    proofs: Proofs
    weights: Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkNeeds:
    """What the services between nodes build on."""

    config: Config
    settings: Settings
    key: NodeKey
    source: ModelSource
    model: LoadedModel
    executor: Executor
    pool: ChannelPool
    drain: Drain
    listening: trio.Event
    """Set when the edges can be reached."""
    slot: ChainSlot


async def start_network(nursery: trio.Nursery, run: Supervisor, needs: NetworkNeeds) -> Network:
    """Start the services in ``nursery``, one after another."""
    config, executor, pool = needs.config, needs.executor, needs.pool
    held = tuple(needs.source.held)
    own_id = parse_id(bytes.fromhex(needs.key.node_id))
    dht_settings = DhtSettings(
        own_id=own_id,
        bound=config.host,
        port=config.port,
        data_dir=Path(config.data_dir),
        trackers=grpc_addresses(config.tracker_url),
    )
    dht: Dht = await nursery.start(
        run, "dht", partial(serve_dht, dht_settings, pool, needs.listening)
    )
    book: PeerBook = await nursery.start(
        run, "peers", partial(serve_peers, dht, pool, own_shards(needs))
    )
    proofs = own_proofs(needs, book)
    # It earns what it can; nothing else depends on it.
    restarting = partial(run, restarts=Restarts())
    await nursery.start(restarting, "proofs", partial(serve_proofs, proofs))
    ordering = OrderingPool(
        pool,
        key=needs.key,
        model_hash=needs.source.manifest.model_hash,
        chain_id=lambda: needs.slot.ledger().chain_id,
        peers=book.peers,
    )
    holder: Holder = await nursery.start(
        run,
        "shards",
        partial(
            serve_holder,
            executor,
            HolderLimits(sessions=config.limits.max_batch),
            accepting=lambda: not needs.drain.draining,
            observe=proofs.observe,
        ),
    )
    load = partial(load_model, needs.source.directory, needs.source.held, trainable=True)
    enabled = lambda: needs.settings.current.training.enabled  # noqa: E731 - asked at each message
    shard_training: ShardTraining = await nursery.start(
        run,
        "shard training",
        partial(
            serve_shard_training,
            executor,
            load,
            TrainingLimits(),
            enabled=enabled,
            pool=pool,
            peers=book,
            learning_rate=lambda: needs.settings.current.training.learning_rate,
        ),
    )
    pipeline: Pipeline = await nursery.start(
        run,
        "pipeline",
        partial(
            serve_pipeline,
            needs.model,
            executor,
            book,
            ordering,
            pipeline_limits(config),
            node_id=needs.key.node_id,
        ),
    )
    training = Training(
        key=needs.key,
        settings=lambda: needs.settings.current,
        gossip=Gossip(book, pool),
        load=lambda: (TrainedModel(needs.source.directory), training_data(needs)),
        folder=Path(config.data_dir) / TRAINING_FOLDER,
        part=own_part(needs, dht, book, shard_training),
    )
    # Training may fail, for want of disk or memory, without taking inference with it.
    await nursery.start(restarting, "training", partial(serve_training, training))
    chain = Chain(
        node_id=needs.key.node_id,
        holder=holder,
        held=held,
        num_layers=needs.source.config.num_layers,
        pool=ordering,
        peers=book,
    )
    return Network(
        dht=dht,
        book=book,
        holder=holder,
        chain=chain,
        shard_training=shard_training,
        pipeline=pipeline,
        training=training,
        checkpoints=Checkpoints(needs.source, training),
        proofs=proofs,
        weights=needs.source.served(),
    )


def pipeline_limits(config: Config) -> PipelineLimits:
    """What the settings say of generations over other nodes."""
    return PipelineLimits(
        max_sessions=config.limits.max_batch,
        max_queue=config.limits.max_queue,
        call_s=config.pipeline.call_s,
        chain=config.pipeline.chain,
    )


def own_part(
    needs: NetworkNeeds, dht: Dht, book: PeerBook, shard_training: ShardTraining
) -> PipelinePart | None:
    """This node's part in a pipeline that trains; None where it holds the whole model."""
    held, total = needs.source.held, needs.source.config.num_layers
    if len(held) == total:
        return None

    def address() -> str:
        own = dht.own_address.best()
        if own is None:
            raise Unavailable("nobody has told this node its own address yet")
        return (
            f"[{own}]:{needs.config.grpc_port}" if ":" in own else f"{own}:{needs.config.grpc_port}"
        )

    driver = TrainingDriver(
        training=shard_training,
        held=held,
        routes=Routes(book, held.stop, total),
        pool=needs.pool,
        address=address,
    )
    return PipelinePart(
        settings=lambda: needs.settings.current,
        steps=lambda: shard_training.steps,
        driver=driver if held.start == 0 else None,
        load=partial(training_data, needs),
        seed=int(needs.key.node_id[:8], 16),
    )


def own_proofs(needs: NetworkNeeds, book: PeerBook) -> Proofs:
    """Proofs of what this node computes for others, and its judgement of others' proofs."""
    return Proofs(
        key=needs.key,
        model_hash=needs.source.manifest.model_hash,
        num_layers=needs.source.config.num_layers,
        find_ledger=needs.slot.ledger,
        consensus_key=lambda: needs.slot.require().consensus_key,
        book=book,
        pool=needs.pool,
        recomputation=Recomputation(needs.executor, needs.source.directory),
        policy=ProofPolicy(),
    )


def own_shards(needs: NetworkNeeds) -> Callable[[], ShardInfo]:
    """What this node says of itself, asked anew each time."""
    source, executor, config = needs.source, needs.executor, needs.config
    gauge = ProcessGauge()
    memory_total = int(config.resources.max_memory_gb * GIBIBYTE)

    def info() -> ShardInfo:
        capacity = Capacity(
            memory_total=memory_total,
            memory_used=gauge.ram_used(),
            kv_total=max(0, memory_total - needs.model.weight_bytes),
            kv_used=executor.kv_bytes_in_use,
            queue_depth=executor.queued,
            active_sessions=executor.active,
            max_batch=config.limits.max_batch,
            tokens_per_second=0.0,
        )
        return ShardInfo(
            node_id=needs.key.node_id,
            version=__version__,
            model_name=executor.card.name,
            model_hash=source.manifest.model_hash,
            total_layers=source.config.num_layers,
            layers=tuple(source.held),
            hidden_dim=source.config.hidden_size,
            vocab_size=source.config.vocab_size,
            context_length=executor.card.context_length,
            capacity=capacity,
        )

    return info


def training_data(needs: NetworkNeeds) -> TokenData:
    """The chain's data set, or a folder that the operator named. Raises StartupError."""
    config, model = needs.config, needs.model
    if not config.training_text:
        if needs.slot.chain is None:
            raise StartupError("training: no data without a chain; set training_text to a folder")
        return needs.slot.chain.execution.training_data()
    end = min(model.eos_token_ids, default=None)
    length = min(ROW_TOKENS, model.card.context_length + 1)
    return TokenData.of_folder(Path(config.training_text), model.tokenizer, length, end)
