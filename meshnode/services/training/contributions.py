"""The contributions to the current round, as messages (interface 2.3: GossipGradient).

Invariant: a contribution is bounded, decoded and verified before it is counted, and decoded again
before it is used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial

import trio
from google.protobuf.message import DecodeError

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.training.message import Contribution, check, digest_of
from meshnode.domain.training.replica import Replica
from meshnode.services.gradient_values import PackedGradients, Shapes, check_gradients
from meshnode.services.training.disk import TrainingDisk
from meshnode.services.training.gossip import Wanted
from meshnode.services.training.messages import contribution_in
from meshnode.wire import node_pb2 as pb

FORWARD_POLLS = 2
"""Polls before another node's contribution is forwarded to peers that still lack it. Its author
sends it to all peers that it reaches, and forwarding at once would double the traffic. Before that
passes as much time as its check took here: peers do not report it before they have checked it."""


def filed_contribution(disk: TrainingDisk, digest: str | None) -> pb.GossipGradientRequest | None:
    """This node's contribution from its file, if it has this ``digest``. Blocks."""
    if digest is None:
        return None
    try:
        message = pb.GossipGradientRequest.FromString(disk.contribution() or b"")
    except DecodeError:
        return None
    return message if digest_of(contribution_in(message).statement()) == digest else None


class ContributionStore:
    """The messages of the contributions that a replica counts."""

    def __init__(
        self, replica: Replica, shapes: Shapes, *, is_peer: Callable[[str], bool], forward_s: float
    ) -> None:
        """``is_peer`` says of a node id whether it is a peer's.

        ``forward_s`` is how long the contribution of another node is not forwarded.
        """
        self.messages: dict[str, pb.GossipGradientRequest] = {}
        """By digest."""
        self.accepted = 0
        self._arrived: dict[str, float] = {}
        """When each message of another node can be expected at peers too, by digest."""
        self._replica = replica
        self._shapes = shapes
        self._is_peer = is_peer
        self._forward_s = forward_s
        self._checking = trio.CapacityLimiter(1)

    async def take(self, message: pb.GossipGradientRequest) -> str | None:
        """Take a contribution of a peer. Returns None, or the reason for refusing it."""
        replica, contribution = self._replica, contribution_in(message)
        if contribution.node_id == replica.node_id:
            return "the contribution is this node's own"
        if not self._is_peer(contribution.node_id):
            return "its maker is not a peer of this node"
        # Checked first, because these cost no verification of a signature.
        if contribution.round_id < replica.round_id:
            return "the round is over"
        if any(_same(message, known) for known in self.messages.values()):
            return "the contribution is known already"
        judge = partial(_judge, contribution, self._shapes, time.time())
        came_at = trio.current_time()
        try:
            digest = await trio.to_thread.run_sync(judge, limiter=self._checking)
        except InvalidRequest as refusal:
            return str(refusal)
        reason = replica.contributed(
            contribution.node_id, contribution.round_id, contribution.model_hash, digest
        )
        if reason is None:
            self.messages[digest] = message
            checked_at = trio.current_time()
            self._arrived[digest] = checked_at + (checked_at - came_at)
            self.accepted += 1
        return reason

    def wanted(self, node_id: str) -> Wanted:
        """The contributions to send to a peer now."""
        latest = trio.current_time() - self._forward_s
        return {
            digest: self.messages[digest]
            for maker, digest in self._replica.lacking(node_id)
            if digest in self.messages
            and (maker == self._replica.node_id or self._arrived.get(digest, latest) <= latest)
        }

    def of(self, digests: Iterable[str]) -> list[pb.GossipGradientRequest]:
        """The messages with these digests."""
        return [self.messages[digest] for digest in digests]

    def forget_uncounted(self) -> None:
        """Drop the messages that the replica no longer counts."""
        known = self._replica.contributions.known().values()
        counted = {digest for digests in known for digest in digests}
        self.messages = {d: message for d, message in self.messages.items() if d in counted}
        self._arrived = {d: at for d, at in self._arrived.items() if d in counted}


def _same(a: pb.GossipGradientRequest, b: pb.GossipGradientRequest) -> bool:
    """Whether two messages differ at most in their ``ttl``."""
    if a.signature != b.signature or a.layer_gradients.keys() != b.layer_gradients.keys():
        return False
    fields = [f.name for f in a.DESCRIPTOR.fields if f.name not in ("ttl", "layer_gradients")]
    return all(getattr(a, name) == getattr(b, name) for name in fields) and all(
        data == b.layer_gradients[name] for name, data in a.layer_gradients.items()
    )


def _judge(contribution: Contribution, shapes: Shapes, now: float) -> str:
    """Verify a contribution and return its digest. Raises InvalidRequest."""
    digest = check(contribution, frozenset(shapes), now)
    # They are decoded again for use: a message takes less memory.
    check_gradients(PackedGradients(contribution.layer_gradients, shapes))
    return digest
