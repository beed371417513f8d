"""One training step over the holders of a model (document, 2.3: training_labels, sender_url).

The driver runs its own layers and keeps their graph, the holders do the same in turn, and the one
of the last layer computes the loss. Gradients come back from holder to holder, each calling the one
before it, and at last this node: ``services.shards.training`` adds them up under the session.

Terms: a step with ``update`` also updates the weights, at every holder by its own part.

Invariants: steps keep to one path while it works, for only its holders have the weights that were
trained; a step has a request id of its own; when it returns, every holder has added its
gradients up; when it raises, some may have, so the caller gives up the session.
"""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from meshnode.domain.errors import ComputationFailed, MeshnodeError, Unavailable
from meshnode.rpc.errors import CallFailed, Code
from meshnode.services.pipeline.policy import HopFailed, told
from meshnode.services.shards.messages import ForwardAnswer, ForwardCall, answer_bytes
from meshnode.services.shards.training_call import TrainingCall
from meshnode.wire import node_pb2 as pb
from meshnode.wire.tensors import pack_integers

if TYPE_CHECKING:
    from torch import Tensor

    from meshnode.services.pipeline.ports import Pool
    from meshnode.services.pipeline.routes import Routes, Stop
    from meshnode.services.shards.training import Training

log = logging.getLogger(__name__)

CALL_S = 60.0
"""For one holder, the whole way back included: the last one answers when all have added up."""
REQUEST_BYTES = 16
ADD_UP, UPDATE = {"training": "1"}, {"training": "step"}


class TrainingDriver:
    """Runs training steps from a node that holds the first layers."""

    def __init__(
        self,
        *,
        training: Training,
        held: range,
        routes: Routes,
        pool: Pool,
        address: Callable[[], str],
    ) -> None:
        """``training`` keeps the graph of our own layers, and gets our gradients.

        ``address`` gives ``host:port`` of our gRPC interface, as the holders know us among their
        peers; it may raise Unavailable.
        """
        self._training = training
        self._held = held
        self._routes = routes
        self._pool = pool
        self._address = address
        self._path: tuple[Stop, ...] | None = None
        self._trained: tuple[Stop, ...] | None = None
        """The path of the latest step that succeeded."""

    @property
    def nodes(self) -> int:
        """How many took part in the latest step that succeeded, this one included."""
        return 0 if self._trained is None else 1 + len(self._trained)

    async def step(
        self, session_id: str, tokens: Tensor, labels: Tensor, *, update: bool = False
    ) -> float:
        """Loss of predicting ``labels`` from ``tokens``, both int64 ``[batch, seq]``.

        Gradients of our own layers are then in ``training.gradients(session_id)``, those of others
        at their holders; with ``update`` all have used theirs, those of the session's earlier steps
        included, for a step of AdamW each (decisions/0100). A label of -100 does not count. Raises
        LayersUnavailable, Unavailable, ComputationFailed, and what our own part raises.
        """
        path = self._path or self._routes.choose()
        if path is None:
            raise self._routes.unavailable()
        # Chosen anew after a failure.
        self._path = None
        loss = await self._along(path, session_id, tokens, labels, update=update)
        if self._trained not in (None, path):
            log.warning("training: other holders than before, whose weights may be others")
        self._path = self._trained = path
        return loss

    async def _along(
        self,
        path: tuple[Stop, ...],
        session_id: str,
        tokens: Tensor,
        labels: Tensor,
        *,
        update: bool,
    ) -> float:
        request_id = secrets.token_hex(REQUEST_BYTES)
        try:
            loss = await self._pass_on(path, session_id, request_id, tokens, labels, update=update)
        finally:
            # What comes back after a failure is too late: the batch is tried again.
            unused = self._training.discard(session_id, request_id)
        if unused:
            raise Unavailable("a node told a loss, and no gradients have come back")
        return loss

    async def _pass_on(
        self,
        path: tuple[Stop, ...],
        session_id: str,
        request_id: str,
        tokens: Tensor,
        labels: Tensor,
        *,
        update: bool,
    ) -> float:
        sender = self._address()
        wanted = pack_integers(labels.numpy())
        call = ForwardCall(
            caller_ip="",
            session_id=session_id,
            request_id=request_id,
            layers=self._held,
            data=pack_integers(tokens.numpy()),
            shape=tuple(tokens.shape),
        )
        mine, loss = await self._training.forward(
            TrainingCall(
                call=call,
                labels=b"" if path else wanted,
                sender_url="",
                source_shard=-1,
                backward=True,
                step=update,
            )
        )
        data, source = mine, self._held.start
        # States of the same shape, or a loss.
        most_bytes = answer_bytes(tokens.numel(), mine.shape[-1]) if path else 0
        for stop in path:
            last = stop is path[-1]
            request = pb.PipelineForwardRequest(
                session_id=session_id,
                request_id=request_id,
                hidden_states=data.data,
                hidden_shape=data.shape,
                source_shard=source,
                target_shard=stop.first,
                training_labels=wanted if last else b"",
                sender_url=sender,
            )
            answer = await self._call(stop, request, UPDATE if update else ADD_UP, most_bytes)
            if answer.is_final != last:
                raise Unavailable("a node holds other layers than it said")
            loss = answer.loss
            if not 0.0 <= loss < math.inf:
                log.warning("training: %s tells a loss of %r", stop.node_id[:8], loss)
                raise ComputationFailed
            data = ForwardAnswer(answer.hidden_states, tuple(answer.hidden_shape), is_final=last)
            sender, source = stop.address, stop.first
        return loss

    async def _call(
        self,
        stop: Stop,
        request: pb.PipelineForwardRequest,
        metadata: dict[str, str],
        most_bytes: int,
    ) -> pb.PipelineForwardResponse:
        with trio.move_on_after(CALL_S):
            try:
                stub = await self._pool.stub(stop.host, stop.grpc_port)
                answer = await stub.PipelineForward(
                    request, metadata=metadata, most_bytes=most_bytes
                )
            except CallFailed as error:
                raise _failure(stop, error.code, error.message) from None
            if not answer.success:
                raise _failure(stop, told(answer.error_message)[0], answer.error_message)
            return answer
        raise _failure(stop, Code.DEADLINE_EXCEEDED, "no answer in time")


def _failure(stop: Stop, code: Code, message: str) -> MeshnodeError:
    log.info("training: %s", HopFailed(0, stop.node_id, code, message))
    if code in (Code.INTERNAL, Code.INVALID_ARGUMENT):
        return ComputationFailed()
    return Unavailable("a node that holds some of the model's layers did not train")
