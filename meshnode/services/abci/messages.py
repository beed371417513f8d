"""Values of the state machine as ABCI messages, and back. Pure functions.

Addresses are 20 bytes on the wire and uppercase hex in the domain; times are seconds and
nanoseconds on the wire and nanoseconds since 1970 in the domain.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from meshnode.domain.chain.blocks import Block, BlockFrame
from meshnode.domain.chain.bonds import Misbehaviour
from meshnode.domain.units import SECOND_NS
from meshnode.wire import abci_pb2 as pb

if TYPE_CHECKING:
    from meshnode.domain.chain.application import Finalized
    from meshnode.domain.chain.blocks import TransactionResult, ValidatorUpdate

TX_OVERHEAD_BYTES = 4
"""Bytes that a block adds to a transaction: a field's tag and a length below 2**21."""


def time_ns(time: pb.Timestamp) -> int:
    """Nanoseconds since 1970."""
    return time.seconds * SECOND_NS + time.nanos


def committers(info: pb.CommitInfo | pb.ExtendedCommitInfo) -> frozenset[str]:
    """Addresses of the validators that voted for the block before."""
    return frozenset(
        vote.validator.address.hex().upper()
        for vote in info.votes
        if vote.block_id_flag == pb.BLOCK_ID_FLAG_COMMIT
    )


def misbehaviour(reports: Iterable[pb.Misbehavior]) -> tuple[Misbehaviour, ...]:
    """The offences that a block reports."""
    return tuple(
        Misbehaviour(one.type, one.validator.address.hex().upper(), one.height) for one in reports
    )


def proposal_frame(request: pb.RequestPrepareProposal) -> BlockFrame:
    """The block that this validator is asked to fill."""
    return BlockFrame(
        request.height,
        time_ns(request.time),
        committers(request.local_last_commit),
        misbehaviour(request.misbehavior),
    )


def proposed_block(request: pb.RequestProcessProposal) -> Block:
    """A block that another validator proposes."""
    voted = committers(request.proposed_last_commit)
    return _block(request, voted)


def decided_block(request: pb.RequestFinalizeBlock) -> Block:
    """A block that more than two thirds of the power decided."""
    return _block(request, committers(request.decided_last_commit))


def _block(
    request: pb.RequestProcessProposal | pb.RequestFinalizeBlock, voted: frozenset[str]
) -> Block:
    offences = misbehaviour(request.misbehavior)
    frame = BlockFrame(request.height, time_ns(request.time), voted, offences)
    return Block(frame, tuple(request.txs))


def finalized_message(finalized: Finalized) -> pb.ResponseFinalizeBlock:
    """The outcome of a decided block."""
    return pb.ResponseFinalizeBlock(
        tx_results=[pb.ExecTxResult(code=one.code, log=one.log) for one in finalized.results],
        validator_updates=[_update(one) for one in finalized.validator_updates],
        app_hash=finalized.app_hash,
    )


def check_message(result: TransactionResult) -> pb.ResponseCheckTx:
    """The result of a check."""
    return pb.ResponseCheckTx(code=result.code, log=result.log)


def _update(update: ValidatorUpdate) -> pb.ValidatorUpdate:
    key = pb.PublicKey(ed25519=bytes.fromhex(update.consensus_key))
    return pb.ValidatorUpdate(pub_key=key, power=update.power)
