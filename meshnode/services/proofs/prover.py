"""The prover: claims what this node computed for others (interface 4.3; decision 0098).

A *policy* limits how often it claims, because a claim costs a fee and the validators' time. Nothing
is kept of forward calls that are not claimed.

Invariants: inputs and outputs are kept until the chain has settled their claim, for a bounded
number of claims and bytes; only validators' nodes get them; a failure here costs a claim, never a
forward call.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from meshnode.domain.chain.canonical import Json
from meshnode.domain.chain.errors import ProofKnown, Rejected
from meshnode.domain.errors import InvalidRequest, Unavailable
from meshnode.domain.identity import NodeKey, node_id_of
from meshnode.domain.proofs.judging import MAX_AGE_NS, MAX_SKEW_NS
from meshnode.domain.proofs.statements import (
    Signed,
    WorkOrder,
    read_order,
    sign_proof,
    tensor_hash,
)
from meshnode.services.proofs.orders import begins
from meshnode.services.proofs.recompute import RecomputedWork
from meshnode.services.signer.submission import TransactionRefused

if TYPE_CHECKING:
    from meshnode.services.proofs.chain import ChainView
    from meshnode.services.proofs.gossip import ProofGossip
    from meshnode.services.shards.messages import ForwardAnswer, ForwardCall

log = logging.getLogger(__name__)

KEPT_PROOFS = 8
KEPT_BYTES = 128 * 1024 * 1024
SPREAD_EVERY_S = 5.0
"""A proof is sent again until it is settled: messages get lost, and followers lag."""


@dataclass(frozen=True, slots=True)
class ProofPolicy:
    """When work is worth a claim."""

    enabled: bool = True
    every_s: float = 60.0
    """Shortest time between two claims. The fee is a tenth of the reward."""
    look_again_s: float = 1.0
    """Shortest time between two orders that are read. An invalid order does not use up ``every_s``;
    otherwise anybody could keep this node from claiming at all."""
    most_bytes: int = 32 * 1024 * 1024
    """Size of inputs and outputs together, which validators have to fetch."""
    submit_s: float = 60.0
    """Deadline for the claim to get into a block."""
    ttl: int = 4
    """Hops of gossip. The prover itself sends to a few of its peers, different ones each time."""


@dataclass(frozen=True, slots=True)
class _Sample:
    """A forward call that is to be claimed."""

    order_text: str
    layers: range
    work: RecomputedWork
    model_hash: str
    """Of the model that has computed it; empty if it has no name."""


@dataclass(frozen=True, slots=True)
class OpenClaim:
    """What is kept of a claim until the chain has settled it."""

    signed: Signed
    work: RecomputedWork


class Prover:
    """Observes forward calls, and claims some of them."""

    def __init__(
        self, chain: ChainView, gossip: ProofGossip, key: NodeKey, policy: ProofPolicy
    ) -> None:
        """``key`` is this node's."""
        self._chain = chain
        self._gossip = gossip
        self._key = key
        self._policy = policy
        self._next_at = 0.0
        # While a claim is being made, one more call can wait for its turn; others are passed over.
        self._send, self._receive = trio.open_memory_channel[_Sample](1)
        self._kept: dict[str, OpenClaim] = {}
        self.claimed = 0
        """How many claims of this process the chain accepted."""
        self.trouble = ""
        """Why the latest claim was not made."""

    def observe(self, call: ForwardCall, answer: ForwardAnswer) -> None:
        """Consider an answered call for a claim. Does not wait, and raises nothing."""
        now = trio.current_time()
        # Only calls whose outputs follow from their inputs alone can be checked.
        if not call.order or not begins(call.positions) or call.past or not call.data:
            return
        if call.decode_from is not None or not call.shape or call.shape[0] != 1:
            return
        work = RecomputedWork(tuple(call.shape), call.data, tuple(answer.shape), answer.data)
        if not self._policy.enabled or now < self._next_at or work.nbytes > self._policy.most_bytes:
            return
        try:
            self._send.send_nowait(_Sample(call.order, call.layers, work, call.model_hash))
        except trio.WouldBlock:
            return
        self._next_at = now + self._policy.every_s

    def give(self, proof_id: str) -> RecomputedWork | None:
        """The inputs and outputs of an open claim, or None if this node has no such claim."""
        kept = self._kept.get(proof_id)
        return None if kept is None else kept.work

    @property
    def kept(self) -> frozenset[str]:
        """Ids of the claims that are kept."""
        return frozenset(self._kept)

    def forget(self, settled: Set[str]) -> None:
        """Drop claims that are no longer open on the chain."""
        for name in self._kept.keys() & settled:
            del self._kept[name]

    async def run(self) -> None:
        """Make claims until cancelled."""
        async for sample in self._receive:
            try:
                with trio.fail_after(self._policy.submit_s):
                    await self._claim(sample)
                self.trouble = ""
            except InvalidRequest as error:
                # The requester is at fault, and must not be able to fill the log.
                log.debug("work is not claimed: %s", error)
                self.trouble = str(error)
                again = trio.current_time() + self._policy.look_again_s
                self._next_at = min(self._next_at, again)
            except (Rejected, Unavailable, trio.TooSlowError) as error:
                reason = str(error) or "the chain takes too long"
                # A lasting reason, such as a missing stake, is logged once and not for every call.
                if reason != self.trouble:
                    log.info("work is not claimed: %s", reason)
                self.trouble = reason

    async def spread(self) -> None:
        """Send open proofs again at intervals, until cancelled."""
        while True:
            await trio.sleep(SPREAD_EVERY_S)
            for kept in list(self._kept.values()):
                self._gossip.spread_proof(kept.signed, self._policy.ttl)

    async def _claim(self, sample: _Sample) -> None:
        order, envelope = read_order(sample.order_text)
        work = sample.work
        await trio.to_thread.run_sync(self._validate, order, sample)
        if len(self._kept) >= KEPT_PROOFS or self._bytes() + work.nbytes > KEPT_BYTES:
            raise Unavailable("too many claims are open")
        if not await stands(self._chain, order.requester):
            raise InvalidRequest("order", "its signer has neither a stake nor a validator")
        output_hash = await trio.to_thread.run_sync(tensor_hash, work.output_shape, work.outputs)
        signed = sign_proof(
            envelope, sample.layers.stop - 1, output_hash, time.time_ns(), self._key
        )
        await self.submit(order, signed, work)

    async def submit(self, order: WorkOrder, signed: Signed, work: RecomputedWork) -> str:
        """Claim work on the chain, keep it for validators, and gossip the proof.

        Returns the proof's id. Raises TransactionRefused when the chain refuses the claim.
        """
        fields: dict[str, Json] = {
            "work_kind": "forward",
            "layer": order.first_layer,
            "statement": order.claim,
        }
        height = self._chain.height
        try:
            name = await self._chain.send("prove", fields)
        except TransactionRefused as refusal:
            if str(refusal) == str(ProofKnown()):
                await self._show(signed, height)
            raise
        self.claimed += 1
        self._kept[name] = OpenClaim(signed, work)
        log.info("work is claimed", extra={"fields": {"proof": name, "layer": order.first_layer}})
        taken = await self._gossip.take_proof(signed, self._policy.ttl + 1, "")
        if taken.reason:
            log.warning("this node's own proof is refused here: %s", taken.reason)
        return name

    async def _show(self, signed: Signed, height: int) -> None:
        """Gossip this node's proof for an order that another node may have claimed."""
        # The other claim may not be in a block yet; gossip is accepted only for claims in blocks.
        await self._chain.wait_beyond(height)
        await self._gossip.take_proof(signed, self._policy.ttl + 1, "")

    def _validate(self, order: WorkOrder, sample: _Sample) -> None:
        """Check that the order is for this node and these inputs. Raises InvalidRequest."""
        if order.holder != self._key.node_id:
            raise InvalidRequest("order", "is for another node")
        if node_id_of(order.requester) == self._key.node_id:
            raise InvalidRequest("order", "is signed by this node itself")
        if order.chain_id != self._chain.chain_id:
            raise InvalidRequest("order", "is for another chain")
        known = frozenset({sample.model_hash}) if sample.model_hash else self._gossip.models()
        if order.model_hash not in known:
            raise InvalidRequest("order", "is for another model")
        # Validators check the time, so the fee for such a claim would be lost.
        if not -MAX_SKEW_NS <= time.time_ns() - order.time_ns <= MAX_AGE_NS:
            raise InvalidRequest("order", "has a time that is too old or in the future")
        if order.first_layer != sample.layers.start:
            raise InvalidRequest("order", "is for other layers")
        if order.input_hash != tensor_hash(sample.work.input_shape, sample.work.inputs):
            raise InvalidRequest("order", "is for other inputs")

    def _bytes(self) -> int:
        return sum(kept.work.nbytes for kept in self._kept.values())


async def stands(chain: ChainView, account: str) -> bool:
    """Whether an account has something to lose: a stake, or a validator."""
    if await chain.has_stake(account):
        return True
    return any(member.owner == account for member in (await chain.members()).values())
