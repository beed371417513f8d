"""The branch that moves the node to other layers, where its settings allow that (decision 0250)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import trio

from meshnode.assembly.dependencies import NetworkDependencies
from meshnode.assembly.network import NetworkHandles
from meshnode.services.model_source import fetch_layers, may_move, remember_layers
from meshnode.services.moving import MoveDependencies, Mover, serve_moving
from meshnode.supervise import Restarts, Supervisor


async def start_moving(
    nursery: trio.Nursery, run: Supervisor, needs: NetworkDependencies, network: NetworkHandles
) -> None:
    """Start to look for better layers, unless the node holds them all."""
    config, executor = needs.config, needs.executor
    if not (needs.may_move and may_move(config)) or executor.card.complete:
        return
    num_layers = needs.source.config.num_layers

    def is_free() -> bool:
        # Training keeps files and graphs of its layers; weights that it has made are of these, too.
        trains = needs.settings.current.training.enabled or network.shard_training.loaded
        return not trains and not executor.versions.current.weights.version

    def is_idle() -> bool:
        return not executor.active and not network.generations.active

    async def write_down(held: range) -> None:
        write = partial(remember_layers, Path(config.data_dir), held, num_layers)
        await trio.to_thread.run_sync(write)

    mover = Mover(
        needs.claim,
        MoveDependencies(
            book=network.book,
            connect=needs.pool.stub,
            sizes=needs.room.sizes,
            budget=needs.room.budget,
            may_move=is_free,
            idle=is_idle,
            fetch=partial(fetch_layers, config, needs.key, needs.pool.stub),
            write_down=write_down,
            leave=needs.drain.begin,
        ),
        needs.timings.moving,
        moved=needs.moved,
    )
    serve = partial(serve_moving, mover, needs.timings.moving)
    await nursery.start(partial(run, restarts=Restarts()), "moving", serve)
