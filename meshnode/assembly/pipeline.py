"""The branch that generates over the holders of all layers, or has it done (interface 4.3)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import trio

from meshnode.assembly.dependencies import NetworkDependencies
from meshnode.config import Config
from meshnode.model.draft import DraftModel, load_draft
from meshnode.model.loading import ModelFacts
from meshnode.services.executor import Executor
from meshnode.services.forwarding import Forwarding, ForwardingLimits, serve_forwarding
from meshnode.services.peers import PeerBook
from meshnode.services.pipeline.evidence import Evidence
from meshnode.services.pipeline.records import HopRecorder
from meshnode.services.pipeline.service import Pipeline, PipelineLimits, serve_pipeline
from meshnode.services.proofs.orders import OrderingPool
from meshnode.supervise import Supervisor


async def start_generations(
    nursery: trio.Nursery,
    run: Supervisor,
    needs: NetworkDependencies,
    *,
    book: PeerBook,
    ordering: OrderingPool,
    hops: HopRecorder,
) -> Executor | Pipeline | Forwarding:
    """Start the pipeline, or on a node without the first layer what passes requests on.

    A node that holds all layers needs neither: its executor generates alone.
    """
    if needs.executor.card.complete:
        return needs.executor
    if 0 not in needs.executor.card.layers and needs.config.pipeline.forward:
        return await _start_forwarding(nursery, run, needs, book=book, hops=hops)
    hops.checks.told = Evidence(Path(needs.config.data_dir), needs.key.seed).note
    serve = partial(
        serve_pipeline,
        needs.model,
        needs.executor,
        book,
        ordering,
        pipeline_limits(needs.config),
        node_id=needs.key.node_id,
        recorder=hops,
        draft=needs.draft,
    )
    pipeline: Pipeline = await nursery.start(run, "pipeline", serve)
    return pipeline


async def _start_forwarding(
    nursery: trio.Nursery,
    run: Supervisor,
    needs: NetworkDependencies,
    *,
    book: PeerBook,
    hops: HopRecorder,
) -> Forwarding:
    limits = needs.config.limits
    serve = partial(
        serve_forwarding,
        needs.model,
        needs.executor,
        book,
        needs.pool,
        ForwardingLimits(
            most=limits.max_batch + limits.max_queue, call_s=needs.config.pipeline.call_s
        ),
        key=needs.key,
        recorder=hops,
    )
    forwarding: Forwarding = await nursery.start(run, "forwarding", serve)
    return forwarding


def own_draft(config: Config, model: ModelFacts, directory: Path) -> DraftModel | None:
    """The draft of a node that drives generations over others. Blocks. Raises ModelUnreadable."""
    drives = 0 in model.card.layers and not model.card.complete
    if not (drives and config.pipeline.speculate):
        return None
    return load_draft(
        config.draft, model, directory, config.dtype, sessions=config.limits.max_batch
    )


def pipeline_limits(config: Config) -> PipelineLimits:
    """The settings of generations over other nodes."""
    return PipelineLimits(
        max_sessions=config.limits.max_batch,
        max_queue=config.limits.max_queue,
        call_s=config.pipeline.call_s,
        relay=config.pipeline.chain,
        mixed=config.pipeline.mixed,
        checks=config.pipeline.checks,
        speculate=config.pipeline.speculate,
        short_cut=config.pipeline.short_cut,
        convoys=config.pipeline.convoys,
    )
