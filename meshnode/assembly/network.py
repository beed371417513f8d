"""The services between nodes, branch by branch (interface 1 and 4.3).

Each branch starts what it needs and returns its handle; the order is that of the nursery tree in
ARCHITECTURE.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import trio

from meshnode.assembly.dependencies import NetworkDependencies
from meshnode.assembly.peers import start_dht, start_peers
from meshnode.assembly.pipeline import start_generations
from meshnode.assembly.proofs import ordering_pool, start_proofs
from meshnode.assembly.shards import own_relay, start_holder, start_shard_training
from meshnode.assembly.training import own_driver, start_training, start_training_memory
from meshnode.assembly.versions import start_versions
from meshnode.services.dht.handle import Dht
from meshnode.services.executor import Executor
from meshnode.services.forwarding import Forwarding
from meshnode.services.peers import PeerBook
from meshnode.services.pipeline.records import HopRecorder
from meshnode.services.pipeline.service import Pipeline
from meshnode.services.proofs.service import Proofs
from meshnode.services.shards.exchange import LayerExchange
from meshnode.services.shards.holder import Holder
from meshnode.services.shards.relay import ShardRelay
from meshnode.services.shards.training import ShardTrainer
from meshnode.services.training.checkpoints import Checkpoints
from meshnode.services.training.trainer import TrainingService
from meshnode.services.versions.service import ServedVersions
from meshnode.services.weights import WeightServer
from meshnode.supervise import Supervisor


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkHandles:
    """Handles of the services between nodes."""

    dht: Dht
    book: PeerBook
    holder: Holder
    relay: ShardRelay
    shard_training: ShardTrainer
    exchange: LayerExchange | None
    generations: Executor | Pipeline | Forwarding
    """Opens generations: the executor on a node that holds all layers, the pipeline on others with
    the first one; the rest pass them on."""
    hops: HopRecorder
    training: TrainingService
    checkpoints: Checkpoints
    proofs: Proofs
    versions: ServedVersions
    weights: WeightServer


async def start_network(
    nursery: trio.Nursery, run: Supervisor, needs: NetworkDependencies
) -> NetworkHandles:
    """Start the services in ``nursery``, one after another."""
    dht = await start_dht(nursery, run, needs)
    book = await start_peers(nursery, run, needs, dht=dht)
    proofs = await start_proofs(nursery, run, needs, book=book)
    ordering, hops = ordering_pool(needs, book), needs.hops
    holder = await start_holder(nursery, run, needs, proofs=proofs, book=book)
    memory = await start_training_memory(nursery, run, needs)
    shard_trainer, exchange = await start_shard_training(
        nursery, run, needs, book=book, memory=memory
    )
    generations = await start_generations(
        nursery, run, needs, book=book, ordering=ordering, hops=hops
    )
    driver = own_driver(needs, dht=dht, book=book, shard_trainer=shard_trainer)
    training = await start_training(
        nursery,
        run,
        needs,
        book=book,
        driver=driver,
        shard_trainer=shard_trainer,
        exchange=exchange,
        memory=memory,
    )
    versions = await start_versions(
        nursery,
        run,
        needs,
        book=book,
        training=training,
        driver=driver,
        shard_trainer=shard_trainer,
        exchange=exchange,
    )
    return NetworkHandles(
        dht=dht,
        book=book,
        holder=holder,
        relay=own_relay(needs, holder=holder, ordering=ordering, book=book),
        shard_training=shard_trainer,
        exchange=exchange,
        generations=generations,
        hops=hops,
        training=training,
        checkpoints=Checkpoints(needs.source, training, versions.piece),
        proofs=proofs,
        versions=versions,
        weights=needs.source.served(),
    )
