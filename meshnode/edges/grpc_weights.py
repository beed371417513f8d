"""GetWeights over gRPC (interface 2.3 and 4.3; decision 0047)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshnode.rpc.node_grpc import NodeServiceServicer
from meshnode.wire import node_pb2 as pb

if TYPE_CHECKING:
    from meshnode.services.weights import WeightServer


class WeightsServicer(NodeServiceServicer):
    """The weights of the layers that this node holds, a unit at a time."""

    def __init__(self, weights: WeightServer) -> None:
        """Ask ``weights`` for every unit."""
        self._weights = weights

    async def GetWeights(  # noqa: N802 - the document's name
        self, input_message: pb.WeightRequest
    ) -> pb.WeightResponse:
        """Answer a unit; NOT_FOUND if this node lacks its layer, INVALID_ARGUMENT if too large."""
        return pb.WeightResponse(weights_data=await self._weights.read(input_message.shard_range))
