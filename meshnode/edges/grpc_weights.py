"""GetWeights over gRPC (document, sections 2.3 and 4.3; decisions/0047)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshnode.rpc.node_grpc import NodeServiceServicer
from meshnode.wire import node_pb2 as pb

if TYPE_CHECKING:
    from meshnode.services.weights import Weights


class WeightsService(NodeServiceServicer):
    """The weights of the layers that this node holds, a unit at a time."""

    def __init__(self, weights: Weights) -> None:
        """Ask ``weights`` for every unit."""
        self._weights = weights

    async def GetWeights(  # noqa: N802 - the document's name
        self, input_message: pb.WeightRequest
    ) -> pb.WeightResponse:
        """Answer a unit; NOT_FOUND for layers of others, INVALID_ARGUMENT for what is too large."""
        return pb.WeightResponse(weights_data=await self._weights.read(input_message.shard_range))
