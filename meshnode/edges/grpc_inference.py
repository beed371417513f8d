"""Inference over gRPC (interface 4.3 and 7.3; decisions 0013, 0133).

Terms: a *generation* is one request and its answer. ``UnaryInference`` answers it whole,
``StreamInference`` answers one message for each token and a final one. A stream may carry several
requests; each is answered to its end before the next is read.

A request may come from another node that does not hold the first layer and passes it on
(decision 0218). Its answers are messages of their own: the first one says that it was taken, others
that the driver is still at work, the last one why it failed.

Checks come in the order of the node API: rate limit of the address, bearer token if there is one,
rate limit of the token, then whether the node drains, and the rules of the request.

Invariants: a request that was passed on is not passed on again; a request is validated by the same
rules as over HTTP; a call that is cancelled frees its place in the batch within one step; while the
node drains, no generation begins.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import trio

from meshnode.domain.connections import is_here
from meshnode.domain.errors import (
    ComputationFailed,
    InvalidRequest,
    LayersUnavailable,
    MeshnodeError,
    Unauthorized,
    Unavailable,
)
from meshnode.domain.generation import Finished, GenerationRequest, TokenEvent
from meshnode.domain.inference_rules import generation_request
from meshnode.domain.ratelimit import RateLimits, address_key
from meshnode.domain.shares import Requester, Standing
from meshnode.domain.tokens import Scope, TokenRecord, bearer_secret
from meshnode.rpc.caller import answer_metadata, caller
from meshnode.rpc.metadata import MAX_VALUE_CHARS
from meshnode.rpc.node_grpc import NodeServiceServicer
from meshnode.services.forwarding.messages import (
    failed_answer,
    forwarded_request,
    logprobs_message,
    waiting_answer,
)
from meshnode.services.shards.decoding import CREDENTIAL
from meshnode.services.wallet.charging import ChargedGeneration
from meshnode.wire import node_pb2 as pb

if TYPE_CHECKING:
    from meshnode.services.pipeline.records import HopRecorder
    from meshnode.services.wallet.charging import GenerationSource, OpenedGeneration
    from meshnode.services.wallet.serving import Serving
    from meshnode.supervise import Drain

MAX_REQUEST_ID_CHARS = 256
"""The id is repeated with every token, so a long one would cost the node more than the caller."""
TRACE = "meshnode-trace"
"""Metadata: ``1`` in a request asks for the hops' times, which come with the answer's status."""
AUTHORIZATION = "authorization"
"""Metadata: a bearer token, as in the header of this name (interface 5)."""
BEAT_S = 1.0
"""A peer that passed a request on hears at least so often that the driver is at work."""
OPTIONAL_FIELDS = ("max_tokens", "temperature", "top_p", "top_k", "seed")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerAccess:
    """Opens generations for callers, with a bearer token or without one (decision 0133)."""

    source: GenerationSource
    """Opens those of callers without a token, who pay nothing."""
    serving: Serving
    """Opens those of callers with one."""
    authenticate: Callable[[str], TokenRecord]
    """Gives the record of a secret, or raises Unauthorized."""
    limits: RateLimits
    """The node API's: an address has one allowance for both ports."""
    currency: str
    free_to: str = "loopback"
    """The setting ``free_inference``."""
    driving: GenerationSource | None = None
    """Opens those that peers pass on; None on a node that takes none."""
    by_peer: Callable[[str, str], bool] = lambda credential, ip: False
    """Whether a peer has signed a credential, for an address (decision 0164)."""

    def admit(self) -> TokenRecord | None:
        """Count one request of the current call's caller; the record of its token, if it has one.

        Raises RateLimited, Unauthorized and MissingScope.
        """
        who, now = caller(), trio.current_time()
        self.limits.per_address.check(address_key(who.ip), now)
        authorization = who.metadata.get(AUTHORIZATION)
        if authorization is None:
            if self.free_to == "all" or (self.free_to == "loopback" and is_here(who.ip)):
                return None
            raise Unauthorized("inference needs a bearer token in the metadata 'authorization'")
        record = self.authenticate(bearer_secret(authorization))
        self.limits.per_token.check(record.id, now)
        record.require(Scope.INFER)
        return record

    async def open(
        self, record: TokenRecord | None, request: GenerationRequest
    ) -> OpenedGeneration | ChargedGeneration:
        """Open a generation of an admitted caller; raises what its source raises."""
        if record is not None:
            return await self.serving.open(record, request)
        whose = Requester(Standing.FREE, address_key(caller().ip))
        return await self.source.open(replace(request, requester=whose))

    def admit_peer(self) -> None:
        """Count one request that the current call's caller passes on.

        Raises RateLimited, and Unauthorized unless the caller is a peer that signs.
        """
        who = caller()
        self.limits.per_address.check(address_key(who.ip), trio.current_time())
        if not self.by_peer(who.metadata.get(CREDENTIAL, ""), who.ip):
            raise Unauthorized("requests of other nodes' clients are taken from peers that sign")

    async def open_forwarded(self, message: pb.InferenceRequest) -> OpenedGeneration:
        """Open a generation for an admitted peer; raises what its source raises."""
        if self.driving is None:
            raise LayersUnavailable("this node takes no requests of other nodes' clients")
        request = forwarded_request(message, address_key(caller().ip))
        return await self.driving.open(request)


class InferenceServicer(NodeServiceServicer):
    """UnaryInference and StreamInference."""

    def __init__(self, *, access: CallerAccess, drain: Drain, hops: HopRecorder) -> None:
        """Open generations with ``access`` until ``drain`` has begun; ``hops`` has traces."""
        self._access = access
        self._drain = drain
        self._hops = hops

    async def UnaryInference(  # noqa: N802 - the document's name
        self, input_message: pb.InferenceRequest
    ) -> pb.InferenceResponse:
        """Generate, and answer with the whole text."""
        if input_message.HasField("forwarded"):
            raise InvalidRequest("forwarded", "comes by StreamInference only")
        text: list[str] = []
        async with await self._open(input_message) as generation:
            async for event in generation:
                if isinstance(event, Finished):
                    self._trace(generation.id)
                    answer = self._final(input_message.request_id, generation, event)
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
            failure: MeshnodeError | None = None
            if request.HasField("forwarded"):
                async with aclosing(self._forwarded(request)) as answers:
                    async for answer in answers:
                        yield answer
                continue
            async with await self._open(request) as generation:
                try:
                    async for event in generation:
                        if isinstance(event, Finished):
                            self._trace(generation.id)
                            yield self._final(request.request_id, generation, event)
                        else:
                            yield _token(request.request_id, generation.id, event)
                except MeshnodeError as error:
                    failure = error
            # Raised out here, because what was delivered before is charged.
            if failure is not None:
                raise failure

    async def _forwarded(
        self, message: pb.InferenceRequest
    ) -> AsyncGenerator[pb.InferenceResponse, None]:
        """Generate for a client of a peer. A failure is a message, so that the peer can tell it."""
        self._access.admit_peer()
        name, failure = message.request_id, None
        try:
            self._check(message)
            generation = await self._access.open_forwarded(message)
        except MeshnodeError as error:
            yield failed_answer(error, name)
            return
        async with generation:
            yield waiting_answer(generation, name)
            try:
                ended = False
                while not ended:
                    event = None
                    with trio.move_on_after(BEAT_S):
                        event = await anext(generation)
                    ended = isinstance(event, Finished)
                    yield self._passed(generation, name, event)
            except MeshnodeError as error:
                failure = error
        if failure is not None:
            yield failed_answer(failure, name)

    def _passed(
        self, generation: OpenedGeneration, name: str, event: TokenEvent | Finished | None
    ) -> pb.InferenceResponse:
        """One answer to a request that was passed on; without an event it says that it waits."""
        if event is None:
            return waiting_answer(generation, name)
        if isinstance(event, TokenEvent):
            answer = _token(name, generation.id, event)
            answer.forwarded.SetInParent()
            if event.logprobs is not None:
                answer.forwarded.logprobs.CopyFrom(logprobs_message(event.logprobs))
            return answer
        answer = _final(name, generation.id, event)
        answer.forwarded.notes.extend(generation.notes)
        answer.forwarded.trace = self._hops.line(generation.id) or ""
        return answer

    async def _open(self, message: pb.InferenceRequest) -> OpenedGeneration | ChargedGeneration:
        record = self._access.admit()
        self._check(message)
        return await self._access.open(record, generation_request(_fields(message)))

    def _check(self, message: pb.InferenceRequest) -> None:
        if self._drain.draining:
            raise Unavailable("the node is draining")
        if len(message.request_id) > MAX_REQUEST_ID_CHARS:
            raise InvalidRequest("request_id", f"must be at most {MAX_REQUEST_ID_CHARS} characters")

    def _final(
        self,
        request_id: str,
        generation: OpenedGeneration | ChargedGeneration,
        event: Finished,
    ) -> pb.InferenceResponse:
        """The last message, with the cost of a generation that is charged."""
        answer = _final(request_id, generation.id, event)
        if isinstance(generation, ChargedGeneration):
            answer.cost.atoms = generation.cost_atoms()
            answer.cost.currency = self._access.currency
        return answer

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


def _token(request_id: str, generation_id: str, event: TokenEvent) -> pb.InferenceResponse:
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
