"""Gradients on their way back to the driver (interface 4.3: PipelineBackward; decision 0035)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from meshnode.domain.errors import InvalidRequest
from meshnode.rpc.errors import CallFailed, Code
from meshnode.services.shards.messages import BESIDE_BYTES
from meshnode.services.shards.relay import time_for_next_hop
from meshnode.services.shards.stepping import GRADIENT_SQUARE, square_in

if TYPE_CHECKING:
    from meshnode.services.shards.members import TrainingMembers
    from meshnode.services.shards.senders import UpstreamHolder
    from meshnode.services.stub_pool import StubPool
    from meshnode.wire import node_pb2 as pb


async def send_back(
    pool: StubPool,
    members: TrainingMembers,
    sender: UpstreamHolder,
    request: pb.PipelineBackwardRequest,
    square: float,
) -> float:
    """Send gradients to the sender of a message.

    ``square`` is the sum of squares of the gradients of this holder and those after it; 0.0 unless
    the message steps. Returns that of all holders, or the part of it that is known here. Raises
    CallFailed.
    """
    with trio.move_on_after(time_for_next_hop()):
        stub = await pool.stub(sender.host, sender.grpc_port)
        told = members.signed_gradient(request, repr(square) if square else "")
        answer = await stub.PipelineBackward.ask(request, metadata=told, most_bytes=BESIDE_BYTES)
        if not answer.message.success:
            raise CallFailed(Code.INTERNAL, answer.message.error_message[:200])
        try:
            return max(square, square_in(answer.metadata.get(GRADIENT_SQUARE, "0")))
        except InvalidRequest:
            # Treated like a missing one: this node steps by the part that it knows.
            return square
    raise CallFailed(Code.DEADLINE_EXCEEDED, "no answer in time")
