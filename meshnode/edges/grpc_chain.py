"""Transactions from other nodes (interface 4.3: GossipTransaction, GossipStake; decision 0016).

The producer checks and queues them; a follower passes them on with the ttl reduced by one. The
same bytes again are the same transaction: they get the same answer and are queued once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from meshnode.domain.chain.canonical import JsonLimits, parse
from meshnode.domain.chain.errors import Rejected
from meshnode.domain.errors import InvalidRequest
from meshnode.rpc.node_grpc import NodeServiceServicer
from meshnode.wire import node_pb2 as pb

if TYPE_CHECKING:
    from meshnode.domain.chain.blocks import TransactionResult
    from meshnode.services.ledger import Ledger

STAKE_KINDS = ("stake", "unstake")
MAX_TTL = 8
"""A larger ttl counts as this one, so that this node bounds the work that it causes at others."""
MAX_SENDER_CHARS = 128


class ChainServicer(NodeServiceServicer):
    """GossipTransaction and GossipStake."""

    def __init__(self, find: Callable[[], Ledger]) -> None:
        """Submit to the ledger that ``find`` gives; it raises Unavailable while there is none."""
        self._find = find

    async def GossipTransaction(  # noqa: N802 - the document's name
        self, input_message: pb.GossipTransactionRequest
    ) -> pb.GossipTransactionResponse:
        """Take a transaction of any kind; ``accepted`` is false if the ledger refuses it."""
        result = await self._submit(input_message)
        return pb.GossipTransactionResponse(
            accepted=result.code == 0,
            reason=result.log,
            transaction_hash=result.hash,
            application_id=result.id or "",
        )

    async def GossipStake(  # noqa: N802 - the document's name
        self, input_message: pb.GossipStakeRequest
    ) -> pb.GossipStakeResponse:
        """Take a stake or an unstake; INVALID_ARGUMENT for another kind."""
        _require_stake(input_message.transaction)
        result = await self._submit(input_message)
        return pb.GossipStakeResponse(
            accepted=result.code == 0,
            reason=result.log,
            transaction_hash=result.hash,
            application_id=result.id or "",
        )

    async def _submit(
        self, message: pb.GossipTransactionRequest | pb.GossipStakeRequest
    ) -> TransactionResult:
        ledger, raw = self._find(), message.transaction
        most = ledger.genesis.profile.params.max_tx_bytes
        if not 1 <= len(raw) <= most:
            raise InvalidRequest("transaction", f"must be 1 to {most} bytes")
        if len(message.sender_id) > MAX_SENDER_CHARS:
            raise InvalidRequest("sender_id", f"must be at most {MAX_SENDER_CHARS} characters")
        if message.ttl < 0:
            raise InvalidRequest("ttl", "must not be negative")
        return await ledger.submit(raw, ttl=min(message.ttl, MAX_TTL) - 1)


def _require_stake(raw: bytes) -> None:
    """Check only the kind; the ledger checks everything else."""
    try:
        envelope = parse(raw[: _LIMITS.size + 1], _LIMITS)
    except Rejected as refusal:
        raise InvalidRequest("transaction", str(refusal)) from None
    body = envelope.get("body") if isinstance(envelope, dict) else None
    if not isinstance(body, dict) or body.get("kind") not in STAKE_KINDS:
        raise InvalidRequest("transaction", f"must be of kind {' or '.join(STAKE_KINDS)}")


_LIMITS = JsonLimits(size=65_536, fractions=False)
