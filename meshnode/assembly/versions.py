"""The branch that switches between versions of the weights (decisions 0225, 0246)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import trio

from meshnode.assembly.dependencies import NetworkDependencies
from meshnode.assembly.shards import TRAINING_FOLDER, layer_fetcher
from meshnode.config import Config
from meshnode.domain.training.serving import OFF, Measured
from meshnode.model.loading import LoadedModel, load_model
from meshnode.services.model_source import ModelSource
from meshnode.services.peers import PeerBook
from meshnode.services.pipeline.exchange import version_of
from meshnode.services.pipeline.routes import Routes
from meshnode.services.pipeline.training import TrainingDriver
from meshnode.services.shards.exchange import LayerExchange
from meshnode.services.shards.trained_layers import TrainedLayers
from meshnode.services.shards.training import ShardTrainer
from meshnode.services.training.trainer import TrainingService
from meshnode.services.versions.commands import Newest, PipelineDependencies
from meshnode.services.versions.holder import (
    ACTIONS,
    HolderDependencies,
    LayerServing,
    serve_layers,
)
from meshnode.services.versions.layer_store import LayerFiles, LayerStore
from meshnode.services.versions.loading import VersionLoader
from meshnode.services.versions.pipeline import PipelineSwitch, serve_pipeline_versions
from meshnode.services.versions.service import (
    Candidate,
    ServedVersions,
    VersionDependencies,
    VersionSwitch,
    serve_versions,
)
from meshnode.services.versions.store import VersionFiles, VersionStore
from meshnode.services.wakeup import Wakeup
from meshnode.supervise import Restarts, Supervisor

SERVED_FETCHED = "fetched-served"
"""In the training folder: pieces of layers to serve that come from other nodes."""


def serve_setting(config: Config) -> str:
    """``training.serve`` as it is in force: a node whose model is pinned serves that model."""
    return OFF if config.model_hash else config.training.serve


def version_store(data_dir: Path, source: ModelSource) -> VersionStore | LayerStore:
    """The folder of the served version, for all layers or for some."""
    complete = len(source.held) == source.config.num_layers
    return VersionStore(data_dir, source) if complete else LayerStore(data_dir, source)


def load_version(needs: NetworkDependencies, version: VersionFiles) -> LoadedModel:
    """Load the held layers of a version. Blocks. Raises ModelUnreadable."""
    where = needs.executor.where
    return load_model(version.files, needs.source.held, dtype=needs.config.dtype, where=where)


async def start_versions(
    nursery: trio.Nursery,
    run: Supervisor,
    needs: NetworkDependencies,
    *,
    book: PeerBook,
    training: TrainingService,
    driver: TrainingDriver | None,
    shard_trainer: ShardTrainer,
    exchange: LayerExchange | None,
) -> ServedVersions:
    """Start what decides which version is served. It may fail without stopping inference."""
    store, served = needs.store, needs.served
    if isinstance(store, VersionStore):
        return await _start_switch(nursery, run, needs, store, book=book, training=training)
    if not isinstance(served, LayerFiles) or exchange is None:
        raise TypeError("a node with some of the layers has their files")
    layers = own_layers(needs, store, served, book)
    exchange.serving = dict.fromkeys(ACTIONS, layers.answer)
    serve = partial(serve_layers, layers)
    await nursery.start(partial(run, restarts=Restarts()), "versions", serve)
    if driver is None:
        return layers
    switch = own_switch(needs, layers, book, training, driver, shard_trainer)
    decide = partial(serve_pipeline_versions, switch)
    await nursery.start(partial(run, restarts=Restarts()), "pipeline versions", decide)
    return switch


def own_layers(
    needs: NetworkDependencies, store: LayerStore, served: LayerFiles, book: PeerBook
) -> LayerServing:
    """What serves this node's layers as their driver says."""
    source = needs.source
    kept = TrainedLayers(
        Path(needs.config.data_dir) / TRAINING_FOLDER, source.manifest.model_hash, source.held
    )
    return LayerServing(
        HolderDependencies(
            executor=needs.executor,
            store=store,
            loader=VersionLoader(needs.executor, partial(load_version, needs), needs.config.dtype),
            setting=serve_setting(needs.config),
            trained=kept.path_of,
            fetch=layer_fetcher(needs, book, SERVED_FETCHED).fetch,
        ),
        served,
    )


def own_switch(
    needs: NetworkDependencies,
    layers: LayerServing,
    book: PeerBook,
    training: TrainingService,
    driver: TrainingDriver,
    shard_trainer: ShardTrainer,
) -> PipelineSwitch:
    """What decides for the pipeline that this node drives."""
    source, part, freed = needs.source, training.part, Wakeup()
    routes = Routes(book, source.held.stop, source.config.num_layers)
    needs.executor.versions.changed.append(freed.set)

    def newest() -> Newest | None:
        if part is not None:
            version = next(iter(shard_trainer.versions.versions), None)
            return None if version is None else Newest(version, part.held_out.get(version))
        kept = training.kept_by_pipeline
        return None if kept is None else Newest(version_of(kept), training.loss_of(kept))

    def loss_of(files: LayerFiles) -> float | None:
        if part is None:
            return training.loss_of(files.weights)
        return part.held_out.get(files.version)

    return PipelineSwitch(
        PipelineDependencies(
            own=layers,
            origin=layers.origin,
            tied=source.config.tied_head,
            node_id=needs.key.node_id,
            trains=lambda: needs.settings.current.training.enabled,
            layers=range(source.held.stop, source.config.num_layers),
            kin=book.kin,
            look_again=book.look_again,
            covered=lambda model_hash: routes.over(model_hash).choose() is not None,
            command=driver.command,
            newest=newest,
            loss_of=loss_of,
            news=training.kept if part is None else part.kept,
            freed=freed,
        )
    )


async def _start_switch(
    nursery: trio.Nursery,
    run: Supervisor,
    needs: NetworkDependencies,
    store: VersionStore,
    *,
    book: PeerBook,
    training: TrainingService,
) -> VersionSwitch:
    """Start the switch of a node that holds all layers."""

    def newest() -> Candidate | None:
        found = training.newest
        if found is None:
            return None
        weights, anchor = found
        return Candidate(Measured(weights, training.loss_of(weights)), anchor)

    def dependent() -> str:
        served = needs.executor.versions.current.model_hash
        partial_holders = (
            peer.address
            for peer in book.peers()
            if len(peer.layers) < peer.total_layers and peer.model_hash == served
        )
        return next(partial_holders, "")

    switch = VersionSwitch(
        VersionDependencies(
            executor=needs.executor,
            store=store,
            setting=serve_setting(needs.config),
            dtype=needs.config.dtype,
            load=partial(load_version, needs),
            newest=newest,
            loss_of=training.loss_of,
            dependent=dependent,
            news=training.kept,
        ),
        needs.served,
    )

    training.served = lambda: (
        switch.served.weights.model_hash,
        partial(switch.served.tensors, needs.source.config),
    )
    serve = partial(serve_versions, switch)
    await nursery.start(partial(run, restarts=Restarts()), "versions", serve)
    return switch
