"""The service of proofs (document, 4.3; decisions/0098, 0099).

Invariant: what goes wrong with proofs stays here: forward calls, and the chain, go on without them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import trio

from meshnode.domain.chain.errors import Rejected
from meshnode.domain.errors import Unavailable
from meshnode.domain.identity import NodeKey, node_id_of
from meshnode.domain.proofs.statements import Signed
from meshnode.services.proofs.chain import ChainView, Ledger
from meshnode.services.proofs.gossip import Gossip, Taken
from meshnode.services.proofs.orders import Peer, Pool
from meshnode.services.proofs.prover import ProofPolicy, Prover
from meshnode.services.proofs.recompute import Recomputation, Work
from meshnode.services.proofs.validator import Validator

if TYPE_CHECKING:
    from meshnode.services.shards.messages import ForwardAnswer, ForwardCall

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
"""Blocks may come ten times a second; a proof that is new here is looked at at once."""


class Book(Protocol):
    """Who lives."""

    def peers(self) -> Sequence[Peer]:
        """All peers."""

    def get(self, node_id: str) -> Peer | None:
        """The peer with this id."""


class Proofs:
    """Handle of the service."""

    def __init__(
        self,
        *,
        key: NodeKey,
        model_hash: str,
        num_layers: int,
        find_ledger: Callable[[], Ledger],
        consensus_key: Callable[[], str],
        book: Book,
        pool: Pool,
        recomputation: Recomputation,
        policy: ProofPolicy,
    ) -> None:
        """``find_ledger`` and ``consensus_key`` (of the node's validator) may be Unavailable."""
        self._key = key
        self._book = book
        self._recomputation = recomputation
        self.chain = ChainView(find_ledger, key)
        self.gossip = Gossip(
            self.chain,
            pool,
            book.peers,
            model_hash=model_hash,
            num_layers=num_layers,
            node_id=key.node_id,
        )
        self.prover = Prover(self.chain, self.gossip, key, policy)
        self.validator = Validator(
            self.chain,
            self.gossip,
            recomputation,
            key=key,
            consensus_key=consensus_key,
            pool=pool,
            find_peer=book.get,
        )

    def observe(self, call: ForwardCall, answer: ForwardAnswer) -> None:
        """Look at a forward call that was answered (``serve_holder``)."""
        self.prover.observe(call, answer)

    async def take_proof(self, signed: Signed, ttl: int, sender_id: str) -> Taken:
        """A proof that somebody gossips. Raises Unavailable while there is no chain."""
        return await self.gossip.take_proof(signed, ttl, sender_id)

    async def take_vote(self, signed: Signed, ttl: int, sender_id: str) -> Taken:
        """A vote that somebody gossips. Raises Unavailable while there is no chain."""
        return await self.gossip.take_vote(signed, ttl, sender_id)

    async def give(self, proof_id: str, validator_id: str, ip: str) -> Work | str:
        """What a validator needs to compute a claim again, or why it does not get it.

        ``ip`` is the caller's address: inputs are somebody's text, and only the nodes of validators
        get to see them.
        """
        work = self.prover.give(proof_id)
        if work is None:
            return "no open proof of that id is this node's"
        owners = {node_id_of(member.owner) for member in (await self.chain.members()).values()}
        if validator_id not in owners:
            return "validator_id is no validator's"
        peer = self._book.get(validator_id)
        if peer is None or peer.host != ip:
            return "the call does not come from that validator"
        return work

    async def run(self) -> None:
        """Do everything until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.gossip.run)
            nursery.start_soon(self.prover.run)
            nursery.start_soon(self.prover.spread)
            await self._watch()

    async def _watch(self) -> None:
        while True:
            try:
                # What is taken up while the chain is asked is not in its answer.
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
        """End the thread that computes again."""
        self._recomputation.close()


async def serve_proofs(
    proofs: Proofs, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Prove and validate until cancelled. ``proofs`` is made before: a restart goes on with it."""
    task_status.started()
    try:
        await proofs.run()
    finally:
        proofs.close()
