"""The validator: recomputes proven work and votes (interface 4.3; decision 0099).

========  ==================================================================
turn      votes
========  ==================================================================
chosen    as soon as it knows the proof; the chosen are the first of the
          draw that have more than two thirds of the power together
reserve   when a third of the proof's time has passed, if it is still open
========  ==================================================================

Invariants: this node approves only outputs that it has recomputed, and refuses only a wrong
statement that the prover itself has signed; in all other cases it does not vote; it sends at most
one vote for a proof.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from meshnode.domain.chain.canonical import Json
from meshnode.domain.chain.errors import Rejected
from meshnode.domain.errors import MeshnodeError, Unavailable
from meshnode.domain.identity import NodeKey, node_id_of
from meshnode.domain.proofs.drawing import chosen
from meshnode.domain.proofs.judging import Judgement, Verdict, judge_words
from meshnode.domain.proofs.statements import Vote, sign_vote, tensor_hash
from meshnode.rpc.errors import CallFailed
from meshnode.services.proofs.gossip import Known, statement
from meshnode.services.proofs.prover import stands
from meshnode.services.proofs.recompute import Recomputation, RecomputedWork
from meshnode.services.shards.messages import MAX_DIMENSIONS, off_loop
from meshnode.wire import node_pb2 as pb

if TYPE_CHECKING:
    from meshnode.domain.peers import Peer
    from meshnode.services.proofs.chain import ChainView, Member, OpenProof
    from meshnode.services.proofs.gossip import ProofGossip
    from meshnode.services.stub_pool import StubPool

log = logging.getLogger(__name__)

FETCH_S = 20.0
JUDGE_S = 120.0
"""Deadline for one judgement, with loading and computing."""
TRIES = 5
TRY_AGAIN_S = 3.0
AT_ONCE = 4
"""Judgements at the same time: a prover that does not answer must not delay the other proofs."""
MAX_WORK_BYTES = 64 * 1024 * 1024
VOTE_TTL = 4


class ProofValidator:
    """Judges open proofs, if this node's validator has power."""

    def __init__(
        self,
        chain: ChainView,
        gossip: ProofGossip,
        recomputation: Recomputation,
        *,
        key: NodeKey,
        consensus_key: Callable[[], str],
        pool: StubPool,
        find_peer: Callable[[str], Peer | None],
    ) -> None:
        """``consensus_key`` is the validator's; ``find_peer`` finds a peer by its node id."""
        self._chain = chain
        self._gossip = gossip
        self._recomputation = recomputation
        self._key = key
        self._consensus_key = consensus_key
        self._pool = pool
        self._find_peer = find_peer
        self._tries: dict[str, tuple[int, float]] = {}
        """For open proofs: how often they were tried, and when to try next."""
        self._voted: set[str] = set()
        self._turns = trio.CapacityLimiter(AT_ONCE)
        self.judgements: dict[str, Judgement] = {}
        """The latest judgement of each open proof."""

    async def look(self, entries: dict[str, OpenProof]) -> None:
        """Judge and vote on the known proofs in ``entries``, which has all open ones."""
        for remembered in (self._tries, self.judgements):
            for name in [name for name in remembered if name not in entries]:
                del remembered[name]
        self._voted &= entries.keys()
        members, me = await self._chain.members(), self._consensus_key()
        if me not in members or members[me].owner != self._chain.account:
            return
        known = list(self._gossip.known.values())
        due = [one for one in known if await self._is_due(one, members, me)]
        async with trio.open_nursery() as nursery:
            for one in due:
                nursery.start_soon(self._validate, one)

    async def _is_due(self, known: Known, members: dict[str, Member], me: str) -> bool:
        entry = known.entry
        name, claimed = entry.claimed.proof_id, entry.claimed
        # A node does not judge its own claims, and votes once.
        if claimed.owner == self._chain.account or me in entry.voters or name in self._voted:
            return False
        tries, next_at = self._tries.get(name, (0, 0.0))
        if tries >= TRIES or trio.current_time() < next_at:
            return False
        block_hash = await self._chain.block_hash(entry.height)
        if block_hash is None:
            return False
        powers = {key: one.power for key, one in members.items() if one.owner != claimed.owner}
        if me in chosen(name, block_hash, powers):
            return True
        waited = self._chain.height - entry.height
        return 3 * waited >= claimed.expires - entry.height

    async def _validate(self, known: Known) -> None:
        name = known.entry.claimed.proof_id
        async with self._turns:
            judgement = Judgement(Verdict.ABSTAIN, "it took too long")
            with trio.move_on_after(JUDGE_S):
                judgement = await self.judge(known)
            self.judgements[name] = judgement
            log.info(
                "proof %s: %s",
                name[:16],
                judgement.verdict.value,
                extra={"fields": {"why": judgement.reason}},
            )
            if judgement.verdict is Verdict.ABSTAIN:
                tries, _ = self._tries.get(name, (0, 0.0))
                self._tries[name] = (tries + 1, trio.current_time() + TRY_AGAIN_S * 2**tries)
                return
            try:
                await self._vote(known, approve=judgement.verdict is Verdict.APPROVE)
            except (MeshnodeError, Rejected) as error:
                # The other validators have decided already, or the chain cannot be reached. Only
                # votes on the chain count.
                log.info("no vote on %s: %s", name[:16], error)

    async def judge(self, known: Known) -> Judgement:
        """Judge a proof."""
        proof, claimed = known.proof, known.entry.claimed
        judgement = judge_words(proof, claimed)
        if judgement is not None:
            return judgement
        try:
            # Only requesters with something to lose count, because keys are free to make.
            if not await stands(self._chain, proof.order.requester):
                return _abstain("the signer of its order has neither a stake nor a validator")
            work = await self._fetch(known)
            if work is None:
                return _abstain("its prover cannot be asked")
            # Anybody could have answered in the prover's name, so it is not punished for this.
            if await _hash(work.input_shape, work.inputs) != proof.order.input_hash:
                return _abstain("the inputs are not those that were ordered")
            if await _hash(work.output_shape, work.outputs) != proof.output_hash:
                return _abstain("the outputs are not those that were claimed")
            agrees = await self._recomputation.agrees(proof.layers, work, proof.order.model_hash)
        except (CallFailed, MeshnodeError, Rejected) as error:
            return _abstain(str(error))
        if agrees is None:
            return _abstain("it cannot be computed here")
        if agrees:
            return Judgement(Verdict.APPROVE, "computed again, and the same")
        prover = self._find_peer(node_id_of(proof.prover))
        if prover is not None and not self._recomputation.compares(prover.numeric_class):
            return _abstain("its prover computes in another numeric class")
        return Judgement(Verdict.REFUSE, "computed again, and not the same")

    async def _fetch(self, known: Known) -> RecomputedWork | None:
        peer = self._find_peer(node_id_of(known.proof.prover))
        if peer is None:
            return None
        request = pb.ProofValidationRequest(
            proof_id=known.entry.claimed.proof_id,
            validator_id=self._key.node_id,
            proof=statement(known.signed),
        )
        with trio.move_on_after(FETCH_S):
            stub = await self._pool.stub(peer.host, peer.grpc_port)
            answer = await stub.RequestProofValidation(request, most_bytes=MAX_WORK_BYTES)
            if not answer.success:
                log.debug("proofs: %s gives no inputs: %s", peer.node_id, answer.error_message)
                return None
            if max(len(answer.input_shape), len(answer.output_shape)) > MAX_DIMENSIONS:
                log.debug("proofs: %s answers with an invalid tensor", peer.node_id)
                return None
            return RecomputedWork(
                tuple(answer.input_shape),
                answer.input_states,
                tuple(answer.output_shape),
                answer.output_states,
            )
        return None

    async def _vote(self, known: Known, *, approve: bool) -> None:
        claimed, me = known.entry.claimed, self._consensus_key()
        self._voted.add(claimed.proof_id)
        fields: dict[str, Json] = {
            "proof_id": claimed.proof_id,
            "consensus_key": me,
            "approve": approve,
        }
        vote = Vote(
            chain_id=self._chain.chain_id,
            proof_id=claimed.proof_id,
            claim=claimed.statement,
            voter=self._key.public_key,
            consensus_key=me,
            approve=approve,
        )
        signed = sign_vote(vote, self._key)
        # Gossip is faster than a block. Only the vote on the chain counts.
        try:
            await self._gossip.take_vote(signed, VOTE_TTL + 1, "")
        except (Unavailable, Rejected) as error:
            log.debug("proofs: the vote on %s is not gossiped: %s", claimed.proof_id[:16], error)
        with trio.move_on_after(JUDGE_S):
            await self._chain.send("vote", fields)


async def _hash(shape: tuple[int, ...], data: bytes) -> str:
    return await off_loop(len(data), lambda: tensor_hash(shape, data))


def _abstain(reason: str) -> Judgement:
    return Judgement(Verdict.ABSTAIN, reason)
