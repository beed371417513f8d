"""Pipelines over gRPC (interface 2.3, 4.3 and 7.3; decisions 0033, 0034, 0035).

Terms: a *failure of the computation* is answered with ``success`` false and ``error_message``; all
other failures are statuses of the call. A message that closes a session has the session's id and
nothing else (``use_cache`` false, no ``hidden_states``).

Invariant: a session belongs to the address of its caller's socket, whatever the message claims.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshnode.domain.errors import ComputationFailed, InvalidRequest
from meshnode.domain.training.position import PLACE, VERSIONS, Elsewhere, versions_text
from meshnode.domain.training.steps import RoundOver
from meshnode.rpc.caller import Caller, answer_metadata, caller
from meshnode.rpc.errors import CallFailed, CallRefused, Code
from meshnode.rpc.node_grpc import NodeServiceServicer
from meshnode.services.pipeline.short_cuts import ShortCuts
from meshnode.services.shards.decoding import (
    COMPUTE_MS,
    EXCHANGE,
    QUEUE_MS,
    TRAINING,
    decode_pipeline_forward,
    decode_swarm_forward,
    decode_training,
    trains,
)
from meshnode.services.shards.exchange_messages import command_in, place_of
from meshnode.services.shards.graphs import GraphUnknown
from meshnode.services.shards.members import turn_metadata
from meshnode.services.shards.messages import SessionBehind
from meshnode.services.shards.relay import ShardRelay
from meshnode.services.shards.stepping import GRADIENT_SQUARE, square_in
from meshnode.services.shards.training import ShardTrainer
from meshnode.wire import node_pb2 as pb

if TYPE_CHECKING:
    from meshnode.services.shards.exchange import LayerExchange
    from meshnode.services.shards.holder import Holder


class PipelineServicer(NodeServiceServicer):
    """PipelineForward, PipelineBackward and SwarmForward."""

    def __init__(
        self,
        *,
        holder: Holder,
        relay: ShardRelay,
        training: ShardTrainer,
        held: tuple[int, ...],
        short_cuts: ShortCuts | None = None,
        exchange: LayerExchange | None = None,
    ) -> None:
        """``held`` are the layers of this node; ``short_cuts`` has what its driver expects."""
        self._exchange = exchange
        self._short_cuts = short_cuts or ShortCuts()
        self._holder = holder
        self._training = training
        self._relay = relay
        self._held = held

    async def PipelineForward(  # noqa: N802 - the document's name
        self, input_message: pb.PipelineForwardRequest
    ) -> pb.PipelineForwardResponse:
        """Pass hidden states through this node's layers, from ``target_shard`` on."""
        who = caller()
        if who.metadata.get(TRAINING) == EXCHANGE:
            return await self._command(input_message, who)
        call = decode_pipeline_forward(input_message, who, self._held)
        answer = pb.PipelineForwardResponse(request_id=call.request_id)
        try:
            if trains(input_message, who):
                call.validate_ids()
                member = await self._member(input_message, who)
                message = decode_training(input_message, who, call, member)
                computed, answer.loss = await self._training.forward(message)
            else:
                computed = await self._holder.forward(call)
        except RoundOver as error:
            return _round_over(answer, error)
        except Elsewhere as error:
            answer.error_message = f"{Code.FAILED_PRECONDITION.name}: {error}"
            answer_metadata(VERSIONS, versions_text(error.versions))
            return answer
        except (SessionBehind, GraphUnknown, ComputationFailed, CallFailed) as error:
            answer.error_message = str(error)
            return answer
        answer_metadata(QUEUE_MS, f"{computed.queue_ms:.3f}")
        answer_metadata(COMPUTE_MS, f"{computed.compute_ms:.3f}")
        answer.success = True
        answer.is_final = computed.is_final
        answer.past_key_values.extend(computed.past)
        if computed.is_final:
            # A training message has no logits; its answer is the loss.
            answer.logits = computed.data
            answer.logits_shape.extend(computed.shape)
            # The ids of logits that are not of all tokens: a final answer has no states.
            answer.hidden_states = computed.ids
        else:
            answer.hidden_states = computed.data
            answer.hidden_shape.extend(computed.shape)
        return answer

    async def PipelineBackward(  # noqa: N802 - the document's name
        self, input_message: pb.PipelineBackwardRequest
    ) -> pb.PipelineBackwardResponse:
        """Pass gradients through this node's layers, and on to the node before it."""
        try:
            who = caller()
            after = square_in(who.metadata.get(GRADIENT_SQUARE, "0"))
            ids = input_message.session_id, input_message.request_id
            if (layer := self._training.layer_after(*ids)) is not None:
                members = self._training.members
                await members.admit_gradient(input_message, who.metadata, layer)
            square = await self._training.backward(input_message, after)
        except (GraphUnknown, ComputationFailed, CallFailed) as error:
            return pb.PipelineBackwardResponse(error_message=str(error))
        if square:
            answer_metadata(GRADIENT_SQUARE, repr(square))
        return pb.PipelineBackwardResponse(success=True)

    async def _command(
        self, message: pb.PipelineForwardRequest, who: Caller
    ) -> pb.PipelineForwardResponse:
        """Do what this node's driver asks of its layers (decisions 0222, 0246)."""
        answer = pb.PipelineForwardResponse(request_id=message.request_id)
        if self._exchange is None or not self._training.enabled:
            raise CallRefused(Code.UNIMPLEMENTED, "this node does not train")
        try:
            driver = await self._training.members.admit(message, who)
            command = command_in(message.hidden_states)
            if who.metadata.get(PLACE) != place_of(command.action):
                raise InvalidRequest("action", "is not what was signed")
            found = await self._exchange.answer(command, driver)
        except RoundOver as error:
            return _round_over(answer, error)
        except OSError as error:
            raise CallRefused(Code.RESOURCE_EXHAUSTED, error.strerror or "disk error") from None
        answer.success = True
        answer.hidden_states = found.SerializeToString()
        return answer

    async def _member(self, message: pb.PipelineForwardRequest, who: Caller) -> str:
        # A node that does not train answers that first, whoever asks.
        return await self._training.members.admit(message, who) if self._training.enabled else ""

    async def SwarmForward(  # noqa: N802 - the document's name
        self, input_message: pb.SwarmForwardRequest
    ) -> pb.SwarmForwardResponse:
        """Run the first hop of the route in this node's layers, and relay to the next hop.

        A message with an ``answer`` is one to this node's own request (decision 0219).
        """
        if input_message.HasField("answer"):
            return self._short_cuts.take(input_message)
        call = decode_swarm_forward(input_message, caller())
        return await self._relay.forward(input_message, call)


def _round_over(answer: pb.PipelineForwardResponse, error: RoundOver) -> pb.PipelineForwardResponse:
    # Begins with the status that it would have as the failure of a call.
    answer.error_message = f"{Code.FAILED_PRECONDITION.name}: {error}"
    for key, value in turn_metadata(error.latest).items():
        answer_metadata(key, value)
    return answer
