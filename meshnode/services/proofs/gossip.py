"""Gossip of proofs and votes (interface 4.3: GossipProof, GossipValidationVote).

A statement is accepted if its signatures are valid and the proof is open on the chain. One that is
new is passed on with its ttl reduced by one. Only the chain decides: gossip carries the statements
of which the chain has the digests, and shows votes before a block does.

Invariants: statements are kept only for proofs that are open on the chain, and their number is
bounded; at most one statement of each signer is kept for a proof; a statement is passed on once;
every refusal has a reason.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import trio

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.identity import node_id_of
from meshnode.domain.proofs.judging import Terms, validate_gossiped
from meshnode.domain.proofs.statements import (
    ForwardProof,
    Signed,
    Vote,
    read_proof,
    read_vote,
)
from meshnode.rpc.errors import CallFailed
from meshnode.services.proofs.chain import ChainView, OpenProof
from meshnode.wire import node_pb2 as pb

if TYPE_CHECKING:
    from meshnode.domain.peers import Peer
    from meshnode.services.stub_pool import StubPool

log = logging.getLogger(__name__)

MAX_TTL = 8
"""Hops. A larger ttl is refused: it is a mistake, or an attempt to make others work."""
MAX_PROOFS = 256
"""The most proofs kept at once: four times as many as can be open on the chain."""
MAX_VOTES = 64
"""The most votes kept for one proof. A network has a handful of validators."""
FANOUT = 8
"""Peers that get a message, drawn anew for each one: if they were always the same, some nodes of a
larger network would never get any."""
SEND_S = 3.0
QUEUED = 64
"""The most messages that wait to be passed on. More are dropped, as provers repeat their proofs."""
SENDERS = 4
MAX_SENDER_CHARS = 128
ANSWER_BYTES = 16 * 1024
"""Limit for a peer's answer, which has a sentence and an id."""

Message: TypeAlias = "pb.GossipProofRequest | pb.ValidationVoteRequest"


@dataclass(slots=True)
class Known:
    """A proof that is open on the chain."""

    signed: Signed
    proof: ForwardProof
    entry: OpenProof
    votes: dict[str, Vote] = field(default_factory=dict)
    """Votes that were gossiped, by consensus key."""


@dataclass(frozen=True, slots=True)
class Taken:
    """An answer: ``reason`` is empty when the statement was accepted."""

    reason: str = ""
    proof_id: str = ""
    status: str = ""


class ProofGossip:
    """Accepts statements and passes them on."""

    def __init__(
        self,
        chain: ChainView,
        pool: StubPool,
        peers: Callable[[], Sequence[Peer]],
        *,
        models: Callable[[], frozenset[str]],
        num_layers: int,
        node_id: str,
    ) -> None:
        """``peers`` gives all live peers; ``models`` the hashes that this node knows proofs of."""
        self.known: dict[str, Known] = {}
        self._chain = chain
        self._pool = pool
        self._peers = peers
        self.models = models
        self._num_layers = num_layers
        self._node_id = node_id
        self._send, self._receive = trio.open_memory_channel[tuple[Message, str]](QUEUED)
        self._news = trio.Event()

    async def wait_news(self) -> None:
        """Wait until a proof arrives that was not known."""
        await self._news.wait()

    async def take_proof(self, signed: Signed, ttl: int, sender_id: str) -> Taken:
        """Judge a proof, keep it, pass it on. Raises Unavailable while there is no chain."""
        try:
            _validate_way(ttl, sender_id)
            proof = read_proof(signed)
            entry = _claimed(await self._chain.open_proofs(), proof)
            terms = Terms(self._chain.chain_id, self.models(), self._num_layers)
            validate_gossiped(proof, entry.claimed if entry else None, terms)
        except InvalidRequest as refusal:
            return Taken(str(refusal))
        assert entry is not None  # noqa: S101 - validated above
        name = entry.claimed.proof_id
        known = self.known.get(name)
        if known is not None:
            if known.proof.digest == proof.digest:
                return Taken(proof_id=name, status="pending")
            # The statement of the order's holder replaces a claimant's, as it proves the theft.
            if not _replaces(proof, known.proof):
                return Taken("proof: a different proof of this claim is already known", name)
        elif len(self.known) >= MAX_PROOFS:
            return Taken("proof: too many are known here", name)
        self.known[name] = Known(signed, proof, entry)
        news, self._news = self._news, trio.Event()
        news.set()
        self.spread_proof(signed, ttl - 1, sender_id)
        return Taken(proof_id=name, status="pending")

    async def take_vote(self, signed: Signed, ttl: int, sender_id: str) -> Taken:
        """Judge a vote, remember it, pass it on. Raises Unavailable while there is no chain."""
        try:
            _validate_way(ttl, sender_id)
            vote = read_vote(signed)
            if vote.chain_id != self._chain.chain_id:
                raise InvalidRequest("chain_id", "is that of another chain")
        except InvalidRequest as refusal:
            return Taken(str(refusal))
        name = vote.proof_id
        state, holder = await self._chain.claim(vote.claim)
        if state == "none" or holder != name:
            return Taken("proof_id: the chain has no such proof", name, "refused")
        if state == "verified":
            return Taken("proof_id: the proof is already settled", name, "accepted")
        entry = (await self._chain.open_proofs()).get(name)
        members = await self._chain.members()
        member = members.get(vote.consensus_key)
        reason = ""
        if entry is None:
            reason = "proof_id: the proof is already settled"
        elif member is None or member.owner != vote.voter:
            # Only the owner of a validator has a stake behind the vote.
            reason = "vote: its signer does not own the validator that it names"
        elif vote.voter == entry.claimed.owner:
            reason = "vote: a validator may not vote on a proof of its owner"
        if reason:
            return Taken(reason, name, "pending")
        known = self.known.get(name)
        if known is None:
            # A vote is kept only with its proof; the one on the chain counts in any case.
            return Taken("proof_id: the proof is not known here", name, "pending")
        earlier = known.votes.get(vote.consensus_key)
        if earlier is not None:
            reason = (
                "vote: a different vote of this validator is already known"
                if earlier != vote
                else ""
            )
            return Taken(reason, name, "pending")
        if len(known.votes) >= MAX_VOTES:
            return Taken("vote: too many are known here", name, "pending")
        known.votes[vote.consensus_key] = vote
        self.spread_vote(signed, ttl - 1, sender_id)
        return Taken(proof_id=name, status="pending")

    def note(self, entries: dict[str, OpenProof], settled: Set[str]) -> None:
        """Drop the settled proofs, and note what the chain now has of the others."""
        for name in list(self.known):
            if name in settled:
                del self.known[name]
            elif name in entries:
                self.known[name].entry = entries[name]

    def spread_proof(self, signed: Signed, ttl: int, source: str = "") -> None:
        """Queue a proof for some peers, except the ``source`` that it came from."""
        message = pb.GossipProofRequest(proof=statement(signed), sender_id=self._node_id, ttl=ttl)
        self._queue(message, source)

    def spread_vote(self, signed: Signed, ttl: int, source: str = "") -> None:
        """Queue a vote, as :meth:`spread_proof`."""
        message = pb.ValidationVoteRequest(vote=statement(signed), sender_id=self._node_id, ttl=ttl)
        self._queue(message, source)

    def _queue(self, message: Message, source: str) -> None:
        if message.ttl < 1:
            return
        try:
            self._send.send_nowait((message, source))
        except trio.WouldBlock:
            log.debug("proofs: too much to pass on; one message is dropped")

    async def run(self) -> None:
        """Pass on what is queued, until cancelled."""
        async with trio.open_nursery() as nursery:
            for _ in range(SENDERS):
                nursery.start_soon(self._pass_on)

    async def _pass_on(self) -> None:
        async for message, source in self._receive.clone():
            others = [peer for peer in self._peers() if peer.node_id != source]
            # All at the same time, because a silent peer takes the whole of its deadline.
            async with trio.open_nursery() as calls:
                for peer in random.sample(others, min(FANOUT, len(others))):
                    calls.start_soon(self._send_to, peer, message)

    async def _send_to(self, peer: Peer, message: Message) -> None:
        with trio.move_on_after(SEND_S):
            try:
                stub = await self._pool.stub(peer.host, peer.grpc_port)
                answer: pb.GossipProofResponse | pb.ValidationVoteResponse
                if isinstance(message, pb.GossipProofRequest):
                    answer = await stub.GossipProof(message, most_bytes=ANSWER_BYTES)
                else:
                    answer = await stub.GossipValidationVote(message, most_bytes=ANSWER_BYTES)
            except CallFailed as error:
                log.debug("proofs: %s cannot be reached: %s", peer.node_id, error)
                return
            if not answer.accepted:
                log.debug("proofs: %s refused: %s", peer.node_id, answer.reason)


def statement(signed: Signed) -> pb.SignedStatement:
    """A signed statement as a message."""
    return pb.SignedStatement(
        body=signed.body, public_key=signed.public_key, signature=signed.signature
    )


def signed_in(message: pb.SignedStatement) -> Signed:
    """The signed statement in a message; nothing is checked."""
    return Signed(message.body, message.public_key, message.signature)


def _claimed(entries: dict[str, OpenProof], proof: ForwardProof) -> OpenProof | None:
    claim = proof.order.claim
    return next((one for one in entries.values() if one.claimed.statement == claim), None)


def _replaces(proof: ForwardProof, known: ForwardProof) -> bool:
    return proof.prover != known.prover and node_id_of(proof.prover) == proof.order.holder


def _validate_way(ttl: int, sender_id: str) -> None:
    # A message is passed on a bounded number of times.
    if not 0 <= ttl <= MAX_TTL:
        raise InvalidRequest("ttl", f"must be between 0 and {MAX_TTL}")
    if len(sender_id) > MAX_SENDER_CHARS:
        raise InvalidRequest("sender_id", f"must be at most {MAX_SENDER_CHARS} characters")
