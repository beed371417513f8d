"""The branch that proves work, and orders it from others (interface 4.3; decisions 0098, 0099)."""

from __future__ import annotations

from functools import partial

import trio

from meshnode.assembly.dependencies import NetworkDependencies
from meshnode.services.peers import PeerBook
from meshnode.services.proofs.orders import OrderingPool
from meshnode.services.proofs.prover import ProofPolicy
from meshnode.services.proofs.recompute import Recomputation
from meshnode.services.proofs.service import Proofs, serve_proofs
from meshnode.supervise import Restarts, Supervisor


async def start_proofs(
    nursery: trio.Nursery, run: Supervisor, needs: NetworkDependencies, *, book: PeerBook
) -> Proofs:
    """Start the proofs. They may fail: they earn money, and nothing else depends on them."""
    proofs = own_proofs(needs, book)
    serve = partial(serve_proofs, proofs)
    await nursery.start(partial(run, restarts=Restarts()), "proofs", serve)
    return proofs


def ordering_pool(needs: NetworkDependencies, book: PeerBook) -> OrderingPool:
    """Connections to peers whose calls carry a signed order for the work they ask for."""
    return OrderingPool(
        needs.pool,
        key=needs.key,
        served=lambda: needs.executor.versions.current.model_hash,
        chain_id=lambda: needs.slot.ledger().chain_id,
        peers=book.peers,
    )


def own_proofs(needs: NetworkDependencies, book: PeerBook) -> Proofs:
    """Proofs of what this node computes for others, and its judgement of others' proofs."""
    origin = needs.source.manifest
    return Proofs(
        key=needs.key,
        models=lambda: frozenset({origin.model_hash, *needs.executor.versions.seen}),
        num_layers=needs.source.config.num_layers,
        find_ledger=needs.slot.ledger,
        find_signer=lambda: needs.slot.require().signer,
        consensus_key=lambda: needs.slot.require().consensus_key,
        book=book,
        pool=needs.pool,
        recomputation=Recomputation(needs.executor, needs.store.files, needs.config.dtype),
        policy=ProofPolicy(),
    )
