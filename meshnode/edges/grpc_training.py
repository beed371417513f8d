"""Training over gRPC (interface 2.3 and 4.3; decisions 0095 to 0097).

``accepted=false`` always has a ``reason``, and ``success=false`` an ``error_message``;
``current_round`` lets a node that lags behind catch up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshnode.rpc.node_grpc import NodeServiceServicer
from meshnode.wire import node_pb2 as pb

if TYPE_CHECKING:
    from meshnode.services.training.checkpoints import Checkpoints
    from meshnode.services.training.trainer import TrainingService


class TrainingServicer(NodeServiceServicer):
    """GossipGradient, GetCheckpoint and GetCheckpointInfo."""

    def __init__(self, *, training: TrainingService, checkpoints: Checkpoints) -> None:
        """Ask ``training`` for every contribution, ``checkpoints`` for weights."""
        self._training = training
        self._checkpoints = checkpoints

    async def GossipGradient(  # noqa: N802 - the document's name
        self, input_message: pb.GossipGradientRequest
    ) -> pb.GossipGradientResponse:
        """Take a contribution to the round, or answer with the reason for refusing it."""
        accepted, reason, current = await self._training.take(input_message)
        return pb.GossipGradientResponse(accepted=accepted, reason=reason, current_round=current)

    async def GetCheckpoint(  # noqa: N802 - the document's name
        self, input_message: pb.GetCheckpointRequest
    ) -> pb.GetCheckpointResponse:
        """The weights that this node keeps, if they are those that the request names."""
        answer = await self._checkpoints.get(input_message.model_hash, input_message.min_version)
        return pb.GetCheckpointResponse(
            success=not answer.error,
            error_message=answer.error,
            version=answer.info.version,
            model_hash=answer.info.model_hash,
            phase=answer.info.phase,
            checkpoint_data=answer.data,
            total_size=answer.total_size,
        )

    async def GetCheckpointInfo(  # noqa: N802 - the document's name
        self, input_message: pb.GetCheckpointInfoRequest
    ) -> pb.GetCheckpointInfoResponse:
        """A description of the checkpoint, without its weights."""
        info = self._checkpoints.info()
        return pb.GetCheckpointInfoResponse(
            version=info.version,
            model_hash=info.model_hash,
            phase=info.phase,
            params=info.params,
            loss=info.loss,
        )
