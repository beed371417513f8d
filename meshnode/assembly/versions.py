"""The branch that switches between versions of the weights (decision 0225)."""

from __future__ import annotations

from functools import partial

import trio

from meshnode.assembly.dependencies import NetworkDependencies
from meshnode.config import Config
from meshnode.domain.training.serving import OFF, Measured
from meshnode.model.loading import LoadedModel, load_model
from meshnode.services.peers import PeerBook
from meshnode.services.training.trainer import TrainingService
from meshnode.services.versions.service import (
    Candidate,
    VersionDependencies,
    VersionSwitch,
    serve_versions,
)
from meshnode.services.versions.store import VersionFiles
from meshnode.supervise import Restarts, Supervisor


def serve_setting(config: Config) -> str:
    """``training.serve`` as it is in force: a node whose model is pinned serves that model."""
    return OFF if config.model_hash else config.training.serve


async def start_versions(
    nursery: trio.Nursery,
    run: Supervisor,
    needs: NetworkDependencies,
    *,
    book: PeerBook,
    training: TrainingService,
) -> VersionSwitch:
    """Start the switch. It may fail, for want of disk or memory, without stopping inference."""
    held, dtype, where = needs.source.held, needs.config.dtype, needs.executor.where

    def load(version: VersionFiles) -> LoadedModel:
        return load_model(version.files, held, dtype=dtype, where=where)

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
            store=needs.store,
            setting=serve_setting(needs.config),
            dtype=dtype,
            load=load,
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
