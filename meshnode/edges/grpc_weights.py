"""GetWeights over gRPC (interface 2.3 and 4.3; decisions 0047 and 0191)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshnode.rpc.node_grpc import NodeServiceServicer
from meshnode.services.training.checkpoints import unit_of_checkpoint
from meshnode.wire import node_pb2 as pb

if TYPE_CHECKING:
    from meshnode.services.training.checkpoints import Checkpoints
    from meshnode.services.weights import WeightServer


class WeightsServicer(NodeServiceServicer):
    """The weights of the layers that this node holds, a unit at a time."""

    def __init__(self, weights: WeightServer, checkpoints: Checkpoints | None = None) -> None:
        """Ask ``checkpoints`` for the pieces of one, and ``weights`` for every other unit."""
        self._weights = weights
        self._checkpoints = checkpoints

    async def GetWeights(  # noqa: N802 - the document's name
        self, input_message: pb.WeightRequest
    ) -> pb.WeightResponse:
        """Answer a unit; NOT_FOUND if this node lacks its layer, INVALID_ARGUMENT if too large."""
        piece = unit_of_checkpoint(input_message.shard_range)
        if piece is not None and self._checkpoints is not None:
            return pb.WeightResponse(weights_data=await self._checkpoints.piece(piece))
        return pb.WeightResponse(weights_data=await self._weights.read(input_message.shard_range))
