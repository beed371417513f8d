"""The branch that computes for other nodes: sessions, relay and training in the held layers."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import trio

from meshnode.assembly.dependencies import NetworkDependencies
from meshnode.assembly.peers import peers_check
from meshnode.model.loading import load_model
from meshnode.model.manifest import parts_of
from meshnode.model.naming import EMBEDDING
from meshnode.services.peers import Kin, PeerBook
from meshnode.services.proofs.orders import OrderingPool
from meshnode.services.proofs.service import Proofs
from meshnode.services.shards.exchange import LayerExchange
from meshnode.services.shards.exchange_files import ExchangeFiles, original_layers
from meshnode.services.shards.holder import Holder, HolderLimits, serve_holder
from meshnode.services.shards.kept_graphs import TrainingLimits
from meshnode.services.shards.layer_versions import LayerVersions
from meshnode.services.shards.members import TrainingMembers
from meshnode.services.shards.messages import ForwardAnswer, ForwardCall
from meshnode.services.shards.relay import ShardRelay
from meshnode.services.shards.trained_layers import TrainedLayers
from meshnode.services.shards.training import ShardTrainer
from meshnode.services.shards.training_service import serve_training
from meshnode.services.training.layer_fetching import LayerFetcher
from meshnode.services.training.memory import TrainingMemory
from meshnode.supervise import Supervisor

TRAINING_FOLDER = "training"
LAYERS_FETCHED = "fetched-layers"
"""In it: pieces of layers that come from other nodes."""


async def start_holder(
    nursery: trio.Nursery,
    run: Supervisor,
    needs: NetworkDependencies,
    *,
    proofs: Proofs,
    book: PeerBook,
) -> Holder:
    """Start the sessions of other nodes in this node's layers. ``proofs`` sees their work."""
    by_peer = peers_check(needs.key.node_id, book).by_peer
    observers = [proofs.observe]
    if needs.tracing is not None:
        needs.tracing.by_peer = by_peer
        observers.append(needs.tracing.observe)

    def observe(call: ForwardCall, answer: ForwardAnswer) -> None:
        for each in observers:
            each(call, answer)

    serve = partial(
        serve_holder,
        needs.executor,
        HolderLimits(sessions=needs.config.limits.max_batch),
        accepting=lambda: not needs.drain.draining,
        observe=observe,
        by_peer=by_peer,
    )
    holder: Holder = await nursery.start(run, "shards", serve)
    return holder


async def start_shard_training(
    nursery: trio.Nursery,
    run: Supervisor,
    needs: NetworkDependencies,
    *,
    book: PeerBook,
    memory: TrainingMemory,
) -> tuple[ShardTrainer, LayerExchange | None]:
    """Start the training of this node's layers by other nodes' messages, and their exchange."""

    def enabled() -> bool:
        return needs.settings.current.training.enabled

    def learning_rate() -> float:
        return needs.settings.current.training.learning_rate

    layers = TrainedLayers(
        Path(needs.config.data_dir) / TRAINING_FOLDER,
        needs.source.manifest.model_hash,
        needs.source.held,
    )
    serve = partial(
        serve_training,
        needs.executor,
        partial(load_model, needs.source.directory, needs.source.held, trainable=True),
        TrainingLimits(),
        enabled=enabled,
        pool=needs.pool,
        peers=book,
        members=TrainingMembers(needs.key, Kin(book)),
        learning_rate=learning_rate,
        changed=needs.settings.changed,
        versions=LayerVersions(layers),
        make_room=memory.make_room,
        freed=memory.freed,
    )
    trainer: ShardTrainer = await nursery.start(run, "shard training", serve)
    memory.users.append(lambda: trainer.loaded)
    return trainer, layer_exchange(needs, trainer, layers, book)


def layer_exchange(
    needs: NetworkDependencies, trainer: ShardTrainer, layers: TrainedLayers, book: PeerBook
) -> LayerExchange | None:
    """What this node's layers do in rounds; None if it holds the whole model."""
    config, held = needs.source.config, needs.source.held
    if len(held) == config.num_layers:
        return None
    folder = Path(needs.config.data_dir) / TRAINING_FOLDER
    shapes = {name: part.shape for name, part in parts_of(config, held).items()}

    original = partial(original_layers, needs.source.directory, held)
    return LayerExchange(
        trainer,
        ExchangeFiles(folder, layers, shapes, original),
        shapes,
        tied=EMBEDDING if config.tied_head and EMBEDDING in shapes else "",
        fetch=layer_fetcher(needs, book, LAYERS_FETCHED).fetch,
    )


def layer_fetcher(needs: NetworkDependencies, book: PeerBook, folder: str) -> LayerFetcher:
    """What fetches the held layers from other nodes, by way of this folder of training."""
    config, held = needs.source.config, needs.source.held
    return LayerFetcher(
        {name: part.shape for name, part in parts_of(config, held).items()},
        {name: part.shape for name, part in parts_of(config).items()},
        Path(needs.config.data_dir) / TRAINING_FOLDER / folder,
        book,
        needs.pool,
        needs.timings.training.fetch_s,
    )


def own_relay(
    needs: NetworkDependencies, *, holder: Holder, ordering: OrderingPool, book: PeerBook
) -> ShardRelay:
    """The relay that passes hidden states from this node's layers on to the next holder."""
    return ShardRelay(
        node_id=needs.key.node_id,
        holder=holder,
        held=tuple(needs.source.held),
        num_layers=needs.source.config.num_layers,
        pool=ordering,
        peers=book,
        carried=needs.tracing.carried if needs.tracing is not None else None,
    )
