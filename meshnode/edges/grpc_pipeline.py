"""Pipelines over gRPC (document, sections 2.3, 4.3 and 7.3; decisions/0033, 0034, 0035).

Terms: a *failure of the computation* is answered with ``success`` false and ``error_message``; all
other failures are statuses of the call. A message that closes a session has its id and nothing else
(``use_cache`` false, no ``hidden_states``).

Invariant: a session belongs to the address of its caller's socket, whatever the message says.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshnode.domain.errors import ComputationFailed, InvalidRequest
from meshnode.rpc.caller import Caller, answer_metadata, caller
from meshnode.rpc.errors import CallFailed
from meshnode.rpc.node_grpc import NodeServiceServicer
from meshnode.services.proofs.orders import ORDER
from meshnode.services.shards.chain import DECODE_FROM, ORIGIN, RESERVE, Chain
from meshnode.services.shards.messages import (
    MOST_DIMENSIONS,
    ForwardAnswer,
    ForwardCall,
    SessionBehind,
    held_from,
    some,
)
from meshnode.services.shards.stepping import GRADIENT_SQUARE, square_in
from meshnode.services.shards.training import GraphUnknown, Training
from meshnode.services.shards.training_call import TrainingCall
from meshnode.wire import node_pb2 as pb

if TYPE_CHECKING:
    from meshnode.services.shards.holder import Holder

TRAINING = "training"
ADD_UP, STEP = "1", "step"
"""What a message that trains wants: gradients added up, or the weights updated by them as well."""
QUEUE_MS, COMPUTE_MS = "queue-ms", "compute-ms"
MOST_POSITIONS = 1 << 31
_ADDRESSES = re.compile(r"[0-9A-Fa-f.:%,a-z]{0,512}")


class PipelineService(NodeServiceServicer):
    """PipelineForward, PipelineBackward and SwarmForward."""

    def __init__(
        self, *, holder: Holder, chain: Chain, training: Training, held: tuple[int, ...]
    ) -> None:
        """``held`` are the layers of this node."""
        self._holder = holder
        self._training = training
        self._chain = chain
        self._held = held

    async def PipelineForward(  # noqa: N802 - the document's name
        self, input_message: pb.PipelineForwardRequest
    ) -> pb.PipelineForwardResponse:
        """Pass hidden states through this node's layers, from ``target_shard`` on."""
        who = caller()
        call = _forward_call(input_message, who, self._held)
        answer = pb.PipelineForwardResponse(request_id=call.request_id)
        try:
            if input_message.training_labels or who.metadata.get(TRAINING) in (ADD_UP, STEP):
                computed, answer.loss = await self._train(input_message, who, call)
            else:
                computed = await self._holder.forward(call)
        except (SessionBehind, ComputationFailed, CallFailed) as error:
            answer.error_message = str(error)
            return answer
        answer_metadata(QUEUE_MS, f"{computed.queue_ms:.3f}")
        answer_metadata(COMPUTE_MS, f"{computed.compute_ms:.3f}")
        answer.success = True
        answer.is_final = computed.is_final
        answer.past_key_values.extend(computed.past)
        if computed.is_final:
            # Of a message that trained there are none: its answer is the loss.
            answer.logits = computed.data
            answer.logits_shape.extend(computed.shape)
        else:
            answer.hidden_states = computed.data
            answer.hidden_shape.extend(computed.shape)
        return answer

    async def PipelineBackward(  # noqa: N802 - the document's name
        self, input_message: pb.PipelineBackwardRequest
    ) -> pb.PipelineBackwardResponse:
        """Pass gradients through this node's layers, and on to the node before."""
        try:
            after = square_in(caller().metadata.get(GRADIENT_SQUARE, "0"))
            square = await self._training.backward(input_message, after)
        except (GraphUnknown, ComputationFailed, CallFailed) as error:
            return pb.PipelineBackwardResponse(error_message=str(error))
        if square:
            answer_metadata(GRADIENT_SQUARE, repr(square))
        return pb.PipelineBackwardResponse(success=True)

    async def _train(
        self, message: pb.PipelineForwardRequest, who: Caller, call: ForwardCall
    ) -> tuple[ForwardAnswer, float]:
        call.validate_ids()
        flag = who.metadata.get(TRAINING)
        return await self._training.forward(
            TrainingCall(
                call=call,
                labels=message.training_labels,
                sender_url=message.sender_url,
                source_shard=message.source_shard,
                backward=flag in (ADD_UP, STEP) or bool(message.sender_url),
                step=flag == STEP,
            )
        )

    async def SwarmForward(  # noqa: N802 - the document's name
        self, input_message: pb.SwarmForwardRequest
    ) -> pb.SwarmForwardResponse:
        """The same for the first hop of the route, and on to the next."""
        who = caller()
        return await self._chain.forward(
            input_message,
            ip=who.ip,
            origin=_origin(who),
            reserve=_positions(who, RESERVE),
            decode_from=_positions(who, DECODE_FROM),
            order=who.metadata.get(ORDER, ""),
        )


def _forward_call(
    message: pb.PipelineForwardRequest, who: Caller, held: tuple[int, ...]
) -> ForwardCall:
    closes = bool(message.session_id) and not (
        message.use_cache or message.hidden_states or message.hidden_shape
    )
    first = held[0] if closes else message.target_shard
    return ForwardCall(
        caller_ip=who.ip,
        session_id=message.session_id,
        request_id=message.request_id,
        layers=held_from(first, held),
        data=message.hidden_states,
        shape=some(message.hidden_shape, MOST_DIMENSIONS),
        mask=message.attention_mask,
        positions=message.position_ids,
        past=some(message.past_key_values, len(held)),
        use_cache=message.use_cache,
        reserve=_positions(who, RESERVE),
        decode_from=_positions(who, DECODE_FROM),
        order=who.metadata.get(ORDER, ""),
    )


def _positions(who: Caller, key: str) -> int | None:
    """A number of positions in the metadata. Raises InvalidRequest for anything else there."""
    text = who.metadata.get(key)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 10) or int(text) > MOST_POSITIONS:
        raise InvalidRequest(key, "must be a number of positions")
    return int(text)


def _origin(who: Caller) -> str:
    """Who the caller says that it passes on for. Raises InvalidRequest."""
    text = who.metadata.get(ORIGIN, "")
    if _ADDRESSES.fullmatch(text) is None:
        raise InvalidRequest(ORIGIN, "must be addresses")
    return text
