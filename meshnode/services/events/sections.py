"""The values that the events of a node are made of (decision 0166).

Plain functions of the owners' handles. They run some times a second while somebody watches.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import trio

from meshnode.domain.chain.comet.times import format_time
from meshnode.services.training.overview import survey

if TYPE_CHECKING:
    from meshnode.domain.peers import Peer
    from meshnode.services.executor import Executor
    from meshnode.services.ledger.records import StoredBlock
    from meshnode.services.peers import PeerBook
    from meshnode.services.pipeline.records import HopRecorder
    from meshnode.services.training.trainer import TrainingService

Fields = dict[str, Any]

SHOWN_TRANSACTIONS = 20
"""Transactions of a block in its event; ``count`` says how many there are."""
SHOWN_MAKERS = 64


def peer_fields(peer: Peer) -> Fields:
    """A peer, as ``GET /peers`` has it, with how busy it is."""
    capacity = peer.capacity
    return {
        "id": peer.node_id,
        "address": peer.address,
        "role": peer.role,
        "layers": list(peer.layers),
        # Rounded, so that small changes are no news.
        "latency_ms": float(f"{peer.latency_ms:.1g}"),
        "active_sessions": capacity.active_sessions if capacity else 0,
        "queue_depth": capacity.queue_depth if capacity else 0,
        "same_model": True,
    }


def peers_of(book: PeerBook) -> list[Fields]:
    """All peers; those with another model say so, and not those that serve another version."""
    model = book.own.lineage
    return [peer_fields(peer) | {"same_model": peer.lineage == model} for peer in book.peers()]


def figures(executor: Executor, hops: HopRecorder, book: PeerBook, serving: int) -> Fields:
    """Counts since the start, and how busy the node is. ``serving`` counts sessions of peers."""
    inference = executor.meter.snapshot(trio.current_time())
    return {
        "requests_total": inference.requests_total,
        "tokens_generated": inference.tokens_generated,
        "avg_latency_ms": round(inference.avg_latency_ms, 1),
        "active": executor.active,
        "queued": executor.queued,
        "serving": serving,
        "failovers": hops.failovers,
        "kv_bytes_in_use": executor.kv_bytes_in_use,
        "kv_bytes_limit": executor.kv_bytes_limit,
        "peer_count": len(book),
    }


def training_fields(training: TrainingService) -> Fields:
    """The training of this node and of those that it knows: held-out losses, contributions, hashes.

    ``losses`` are those of the weights that were kept, oldest first, measured on held-out text; in
    a pipeline they are means of training losses, which ``held_out`` says.
    """
    found, rounds, part = survey(training), training.rounds, training.part
    value: Fields = {
        "enabled": training.enabled,
        "pipeline": found.pipeline,
        "problem": found.problem,
        "nodes": found.nodes,
        "hash_agreement_rate": found.hash_agreement_rate,
        "trend": found.trend,
        "steps": found.steps,
        "tokens": found.tokens,
        "inner_steps": training.inner_steps,
        "held_out": part is None,
        "losses": [],
    }
    if part is not None:
        value["losses"] = [_finite(loss) for loss in part.losses]
    if rounds is not None:
        report = rounds.record.published
        value |= {
            "losses": [_finite(loss) for loss in rounds.record.losses],
            "round": report.round_id,
            "state": report.state.value,
            "version": report.kept.version,
            "model_hash": report.kept.model_hash,
            "inner_step": rounds.learner.progress.inner_step,
            "contributions": {
                maker: list(digests)
                for maker, digests in list(report.contributions.items())[:SHOWN_MAKERS]
            },
            "peers": {
                node_id: history[max(history)]
                for node_id, history in list(training.gossip.history.items())[:SHOWN_MAKERS]
                if history
            },
        }
    return value


def block_fields(block: StoredBlock) -> Fields:
    """A block: height, hash, time, and its first transactions."""
    return {
        "height": block.height,
        "hash": block.hash.hex().upper(),
        "time": format_time(block.time_ns),
        "count": len(block.results),
        "transactions": [
            {
                "hash": result.hash,
                "id": result.id,
                "kind": result.kind,
                "sender": result.sender,
                "code": result.code,
            }
            for result in block.results[:SHOWN_TRANSACTIONS]
        ],
    }


def _finite(loss: float) -> float | None:
    return round(loss, 5) if math.isfinite(loss) else None
