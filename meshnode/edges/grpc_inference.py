"""Inference over gRPC (interface 4.3 and 7.3; decision 0013).

Terms: a *generation* is one request and its answer. ``UnaryInference`` answers it whole,
``StreamInference`` answers one message for each token and a final one. A stream may carry several
requests; each is answered to its end before the next is read.

Invariants: a request is validated by the same rules as over HTTP; a call that is cancelled frees
its place in the batch within one step; while the node drains, no generation begins.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from meshnode.domain.errors import ComputationFailed, InvalidRequest, Unavailable
from meshnode.domain.generation import Finished, TokenEvent
from meshnode.domain.inference_rules import generation_request
from meshnode.rpc.caller import answer_metadata, caller
from meshnode.rpc.metadata import MAX_VALUE_CHARS
from meshnode.rpc.node_grpc import NodeServiceServicer
from meshnode.wire import node_pb2 as pb

if TYPE_CHECKING:
    from meshnode.services.executor import Executor, Generation
    from meshnode.services.pipeline import Pipeline
    from meshnode.services.pipeline.records import HopRecorder
    from meshnode.supervise import Drain

MAX_REQUEST_ID_CHARS = 256
"""The id is repeated with every token, so a long one would cost the node more than the caller."""
TRACE = "meshnode-trace"
"""Metadata: ``1`` in a request asks for the hops' times, which come with the answer's status."""
OPTIONAL_FIELDS = ("max_tokens", "temperature", "top_p", "top_k", "seed")


class InferenceServicer(NodeServiceServicer):
    """UnaryInference and StreamInference."""

    def __init__(
        self, *, generations: Executor | Pipeline, drain: Drain, hops: HopRecorder
    ) -> None:
        """Open generations with ``generations`` until ``drain`` has begun; ``hops`` has traces."""
        self._generations = generations
        self._drain = drain
        self._hops = hops

    async def UnaryInference(  # noqa: N802 - the document's name
        self, input_message: pb.InferenceRequest
    ) -> pb.InferenceResponse:
        """Generate, and answer with the whole text."""
        text: list[str] = []
        async with await self._open(input_message) as generation:
            async for event in generation:
                if isinstance(event, Finished):
                    self._trace(generation.id)
                    answer = _final(input_message.request_id, generation.id, event)
                    answer.text = "".join(text)
                    return answer
                text.append(event.text)
        # A generation that ends without a final event has failed.
        raise ComputationFailed

    async def StreamInference(  # noqa: N802 - the document's name
        self, input_messages: AsyncIterator[pb.InferenceRequest]
    ) -> AsyncIterator[pb.InferenceResponse]:
        """Generate for each request in turn, with one message for each token."""
        async for request in input_messages:
            async with await self._open(request) as generation:
                async for event in generation:
                    if isinstance(event, Finished):
                        self._trace(generation.id)
                    yield _answer(request.request_id, generation.id, event)

    async def _open(self, message: pb.InferenceRequest) -> Generation:
        if self._drain.draining:
            raise Unavailable("the node is draining")
        if len(message.request_id) > MAX_REQUEST_ID_CHARS:
            raise InvalidRequest("request_id", f"must be at most {MAX_REQUEST_ID_CHARS} characters")
        return await self._generations.open(generation_request(_fields(message)))

    def _trace(self, generation_id: str) -> None:
        """Answer how long each hop took, if the caller asked for it (decision 0039)."""
        if caller().metadata.get(TRACE) != "1":
            return
        hops = self._hops.line(generation_id)
        # Metadata is bounded, so the trace of a very long path is only in the log.
        if hops is not None and len(hops) <= MAX_VALUE_CHARS:
            answer_metadata(TRACE, hops)


def _fields(message: pb.InferenceRequest) -> dict[str, object]:
    """The parameters that are present, under the names of the HTTP interface."""
    fields: dict[str, object] = {"prompt": message.prompt, "stop": list(message.stop)}
    for name in OPTIONAL_FIELDS:
        if message.HasField(name):
            fields[name] = getattr(message, name)
    return fields


def _answer(
    request_id: str, generation_id: str, event: TokenEvent | Finished
) -> pb.InferenceResponse:
    if isinstance(event, Finished):
        return _final(request_id, generation_id, event)
    return pb.InferenceResponse(
        request_id=request_id, id=generation_id, text=event.text, index=event.index
    )


def _final(request_id: str, generation_id: str, event: Finished) -> pb.InferenceResponse:
    usage, timing = event.usage, event.timing
    return pb.InferenceResponse(
        request_id=request_id,
        id=generation_id,
        index=usage.completion_tokens,
        is_final=True,
        finish_reason=str(event.finish_reason),
        tokens_generated=usage.completion_tokens,
        usage=pb.InferenceUsage(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            total_tokens=usage.total_tokens,
        ),
        timing=pb.InferenceTiming(
            queue_ms=timing.queue_ms, inference_ms=timing.inference_ms, total_ms=timing.total_ms
        ),
    )
