"""Proofs over gRPC: GossipProof, RequestProofValidation, GossipValidationVote (interface 4.3).

A refusal is an answer with a reason, as in gradient gossip (decision 0015). Only a malformed
message ends the call with an error status.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshnode.rpc.caller import caller
from meshnode.rpc.node_grpc import NodeServiceServicer
from meshnode.services.proofs.gossip import signed_in
from meshnode.wire import node_pb2 as pb

if TYPE_CHECKING:
    from meshnode.services.proofs.service import Proofs

MAX_ID = 128


class ProofsServicer(NodeServiceServicer):
    """The three operations of proofs."""

    def __init__(self, proofs: Proofs) -> None:
        """Ask ``proofs``, which raises Unavailable while there is no chain."""
        self._proofs = proofs

    async def GossipProof(  # noqa: N802 - the document's name
        self, input_message: pb.GossipProofRequest
    ) -> pb.GossipProofResponse:
        """Take a proof, and pass it on."""
        taken = await self._proofs.take_proof(
            signed_in(input_message.proof), input_message.ttl, input_message.sender_id
        )
        return pb.GossipProofResponse(
            accepted=not taken.reason, reason=taken.reason, proof_id=taken.proof_id
        )

    async def RequestProofValidation(  # noqa: N802 - the document's name
        self, input_message: pb.ProofValidationRequest
    ) -> pb.ProofValidationResponse:
        """Give a validator what it needs to recompute this node's work."""
        given = await self._proofs.give(
            input_message.proof_id[:MAX_ID], input_message.validator_id[:MAX_ID], caller().ip
        )
        if isinstance(given, str):
            return pb.ProofValidationResponse(error_message=given)
        return pb.ProofValidationResponse(
            success=True,
            input_states=given.inputs,
            input_shape=given.input_shape,
            output_states=given.outputs,
            output_shape=given.output_shape,
        )

    async def GossipValidationVote(  # noqa: N802 - the document's name
        self, input_message: pb.ValidationVoteRequest
    ) -> pb.ValidationVoteResponse:
        """Take a vote, and pass it on."""
        taken = await self._proofs.take_vote(
            signed_in(input_message.vote), input_message.ttl, input_message.sender_id
        )
        return pb.ValidationVoteResponse(
            accepted=not taken.reason, reason=taken.reason, proof_status=taken.status
        )
