"""The service of proofs (interface 4.3; decisions 0098, 0099).

Invariant: a failure of proofs stays here; forward calls and the chain go on without them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from meshnode.domain.chain.errors import Rejected
from meshnode.domain.errors import Unavailable
from meshnode.domain.identity import NodeKey, node_id_of
from meshnode.domain.proofs.statements import Signed
from meshnode.services.ledger.asking import ChainLedger
from meshnode.services.proofs.chain import ChainView
from meshnode.services.proofs.gossip import ProofGossip, Taken
from meshnode.services.proofs.prover import ProofPolicy, Prover
from meshnode.services.proofs.recompute import Recomputation, RecomputedWork
from meshnode.services.proofs.validator import ProofValidator

if TYPE_CHECKING:
    from meshnode.services.peers import PeerBook
    from meshnode.services.shards.messages import ForwardAnswer, ForwardCall
    from meshnode.services.signer.signer import Signer
    from meshnode.services.stub_pool import StubPool

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
"""Pause between looks at the chain, which may have ten blocks a second. Gossip of a new proof ends
the pause at once."""


class Proofs:
    """Handle of the service."""

    def __init__(
        self,
        *,
        key: NodeKey,
        models: Callable[[], frozenset[str]],
        num_layers: int,
        find_ledger: Callable[[], ChainLedger],
        find_signer: Callable[[], Signer],
        consensus_key: Callable[[], str],
        book: PeerBook,
        pool: StubPool,
        recomputation: Recomputation,
        policy: ProofPolicy,
    ) -> None:
        """``models`` gives the hashes of the weights that this node knows.

        ``find_ledger``, ``find_signer`` and ``consensus_key`` may raise Unavailable.
        ``consensus_key`` gives the key of this node's validator.
        """
        self._key = key
        self._book = book
        self._recomputation = recomputation
        self.chain = ChainView(find_ledger, find_signer, key.public_key)
        self.gossip = ProofGossip(
            self.chain,
            pool,
            book.peers,
            models=models,
            num_layers=num_layers,
            node_id=key.node_id,
        )
        self.prover = Prover(self.chain, self.gossip, key, policy)
        self.validator = ProofValidator(
            self.chain,
            self.gossip,
            recomputation,
            key=key,
            consensus_key=consensus_key,
            pool=pool,
            find_peer=book.get,
        )

    def observe(self, call: ForwardCall, answer: ForwardAnswer) -> None:
        """Note a forward call that was answered; ``serve_holder`` calls this."""
        self.prover.observe(call, answer)

    async def take_proof(self, signed: Signed, ttl: int, sender_id: str) -> Taken:
        """Judge a proof from gossip. Raises Unavailable while there is no chain."""
        return await self.gossip.take_proof(signed, ttl, sender_id)

    async def take_vote(self, signed: Signed, ttl: int, sender_id: str) -> Taken:
        """Judge a vote from gossip. Raises Unavailable while there is no chain."""
        return await self.gossip.take_vote(signed, ttl, sender_id)

    async def give(self, proof_id: str, validator_id: str, ip: str) -> RecomputedWork | str:
        """What a validator needs to recompute a claim, or the reason why it does not get it.

        ``ip`` is the caller's address, which must be the validator's: inputs come from a user's
        text, so only validators' nodes may see them.
        """
        work = self.prover.give(proof_id)
        if work is None:
            return "this node has no open proof with that id"
        owners = {node_id_of(member.owner) for member in (await self.chain.members()).values()}
        if validator_id not in owners:
            return "validator_id is not the id of a validator"
        peer = self._book.get(validator_id)
        if peer is None or peer.host != ip:
            return "the call does not come from that validator"
        return work

    async def run(self) -> None:
        """Prove, validate and gossip until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.gossip.run)
            nursery.start_soon(self.prover.run)
            nursery.start_soon(self.prover.spread)
            await self._watch()

    async def _watch(self) -> None:
        while True:
            try:
                # Taken before the query: a claim that arrives during it must not look settled.
                asked = self.prover.kept | self.gossip.known.keys()
                entries = await self.chain.open_proofs()
                settled = asked - entries.keys()
                self.gossip.note(entries, settled)
                self.prover.forget(settled)
                await self.validator.look(entries)
            except (Unavailable, Rejected) as error:
                log.debug("proofs wait for the chain: %s", error)
            with trio.move_on_after(LOOK_EVERY_S):
                await self.gossip.wait_news()

    def close(self) -> None:
        """End the thread that recomputes work."""
        self._recomputation.close()


async def serve_proofs(
    proofs: Proofs, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Prove and validate until cancelled. ``proofs`` outlives a restart of this service."""
    task_status.started()
    try:
        await proofs.run()
    finally:
        proofs.close()
