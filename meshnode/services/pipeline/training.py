"""One training step over the holders of a model (interface 2.3: training_labels, sender_url).

The driver runs its own layers and keeps their graph, the holders do the same in turn, and the
holder of the last layer computes the loss. Gradients come back from holder to holder, each calling
the one before it, and finally this node: ``services.shards.training`` adds them up by session.

Terms: a step with ``update`` also updates the weights, at every holder those of its own layers.

Invariants: steps keep to one path while it works, since only its holders have the trained weights;
a step has a request id of its own; when a step returns, every holder has added its gradients up;
when it raises, some holders may have done so, and the caller gives up the session.
"""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import trio

from meshnode.domain.errors import (
    ComputationFailed,
    InvalidRequest,
    MeshnodeError,
    Unavailable,
)
from meshnode.domain.training.position import (
    MAX_NUMBER,
    VERSIONS,
    PipelineVersion,
    Place,
    versions_in,
)
from meshnode.domain.training.steps import Turn
from meshnode.rpc.errors import CallFailed, Code
from meshnode.rpc.limits import MAX_MESSAGE_BYTES
from meshnode.services.pipeline.policy import HopFailed, parse_failure
from meshnode.services.shards.decoding import ADD_UP, EXCHANGE, LOSS
from meshnode.services.shards.exchange_messages import answer_in, place_of
from meshnode.services.shards.members import ROUND, turn_in
from meshnode.services.shards.messages import ForwardCall, answer_bytes, off_loop
from meshnode.services.shards.training_call import TrainingCall
from meshnode.wire import node_pb2 as pb
from meshnode.wire.tensors import pack_integers

if TYPE_CHECKING:
    from torch import Tensor

    from meshnode.services.pipeline.routes import RemoteHop, Routes
    from meshnode.services.shards.training import ShardTrainer
    from meshnode.services.stub_pool import StubPool

log = logging.getLogger(__name__)

COMMAND_S = 600.0
"""Deadline of a command for the layers of a holder, which may fetch or combine all of them."""
CALL_S = 60.0
"""Deadline of a call to one holder. The last holder answers when all have their gradients."""
REQUEST_BYTES = 16


class _Apart(Exception):
    """A holder's layers are not where the pipeline is."""

    def __init__(self, node_id: str, versions: tuple[PipelineVersion, ...]) -> None:
        super().__init__(node_id)
        self.node_id = node_id
        self.versions = versions


class TrainingDriver:
    """Runs training steps from a node that holds the first layers."""

    def __init__(
        self,
        *,
        training: ShardTrainer,
        held: range,
        routes: Routes,
        pool: StubPool,
        address: Callable[[], str],
        round_steps: Callable[[], int],
        exchanges: bool = False,
        commands: bool = False,
    ) -> None:
        """``training`` keeps the graph of this node's layers, and gets their gradients.

        After ``round_steps`` steps all holders keep a version of their layers (decision 0201),
        unless the pipeline ``exchanges``: then the rounds decide about versions (decision 0222).
        ``commands`` says that holders get other commands, while steps are taken.

        ``address`` gives ``host:port`` of this node's gRPC interface, as the holders have it in
        their peer books; it may raise Unavailable.
        """
        self._training = training
        self._held = held
        self._routes = routes
        self._pool = pool
        self._address = address
        self._round_steps = round_steps
        self._exchanges = exchanges
        self._in_lanes = exchanges or commands
        self._path: tuple[RemoteHop, ...] | None = None
        self._lanes: dict[str, trio.Lock] = {}
        """By node id. Commands and steps come at the same time: messages to one holder go one after
        the other, since their numbers must rise."""
        self._turns: dict[str, Turn] = {}
        """The round of each holder, and the number of the latest message, by node id."""
        self._trained: tuple[RemoteHop, ...] | None = None
        """The path of the latest step that succeeded."""

    @property
    def nodes(self) -> int:
        """How many nodes took part in the latest step that succeeded, this one included."""
        return 0 if self._trained is None else 1 + len(self._trained)

    def _steps_of_a_round(self) -> int:
        return MAX_NUMBER if self._exchanges else self._round_steps()

    async def step(
        self, session_id: str, tokens: Tensor, labels: Tensor, *, update: bool = False
    ) -> float:
        """Loss of predicting ``labels`` from ``tokens``, both int64 ``[batch, seq]``.

        Gradients of this node's layers are then in ``training.gradients(session_id)``, those of the
        other layers at their holders. With ``update`` every holder has made a step of AdamW by the
        session's gradients so far (decision 0100). A label of -100 does not count. Raises
        LayersUnavailable, Unavailable, ComputationFailed, and what ``ShardTrainer.forward`` raises.
        """
        path = self._path or self._routes.choose()
        if path is None:
            raise self._routes.unavailable()
        # If the step fails, the next one chooses a path again.
        self._path = None
        loss = await self._agreed(path, session_id, tokens, labels, update=update)
        if self._trained not in (None, path):
            log.warning("training: the path changed; its new holders may have other weights")
        self._path = self._trained = path
        return loss

    def choose(self, excluded: Collection[str] = ()) -> tuple[RemoteHop, ...]:
        """A path for the next steps, without these nodes. Raises LayersUnavailable."""
        self._path = self._routes.choose(excluded)
        if self._path is None:
            raise self._routes.unavailable(excluded)
        return self._path

    async def loss(self, tokens: Tensor, labels: Tensor) -> float:
        """The loss of predicting ``labels``; no weights change, and no gradients are computed."""
        path = self._path or self.choose()
        session = secrets.token_hex(REQUEST_BYTES)
        return await self._pass_on(path, session, session, tokens, labels, None, mode=LOSS)

    async def command(self, hop: RemoteHop, command: pb.LayerCommand) -> pb.LayerAnswer:
        """Give a holder a command for its layers. Raises MeshnodeError."""
        number = secrets.token_hex(REQUEST_BYTES)
        request = pb.PipelineForwardRequest(
            session_id=number,
            request_id=number,
            hidden_states=command.SerializeToString(),
            target_shard=hop.first,
        )
        place = place_of(command.action)
        answer = await self._call(hop, request, MAX_MESSAGE_BYTES, place, EXCHANGE, COMMAND_S)
        return answer_in(answer.hidden_states)

    async def _agreed(
        self,
        path: tuple[RemoteHop, ...],
        session_id: str,
        tokens: Tensor,
        labels: Tensor,
        *,
        update: bool,
    ) -> float:
        """Take the step where all nodes of the path are, or go there first (decision 0201)."""
        apart: dict[str, tuple[PipelineVersion, ...]] = {}
        # Each holder may be elsewhere, and once more where another one had to go back further.
        for _ in range(2 * len(path) + 1):
            place = await self._training.place(self._steps_of_a_round()) if update else None
            try:
                return await self._along(path, session_id, tokens, labels, place)
            except _Apart as one:
                if self._exchanges:
                    raise Unavailable("a node's layers are not where the round is") from None
                apart[one.node_id] = one.versions
                await self._training.agree(list(apart.values()))
        raise Unavailable("the nodes that hold the layers do not agree where to go on from")

    async def _along(
        self,
        path: tuple[RemoteHop, ...],
        session_id: str,
        tokens: Tensor,
        labels: Tensor,
        place: Place | None,
    ) -> float:
        request_id = secrets.token_hex(REQUEST_BYTES)
        try:
            loss = await self._pass_on(path, session_id, request_id, tokens, labels, place)
        finally:
            # Gradients that come back after a failure are not used: the batch is tried again.
            unused = self._training.discard(session_id, request_id)
        if unused:
            raise Unavailable("a node reported a loss, but no gradients have come back")
        return loss

    async def _pass_on(
        self,
        path: tuple[RemoteHop, ...],
        session_id: str,
        request_id: str,
        tokens: Tensor,
        labels: Tensor,
        place: Place | None,
        *,
        mode: str = ADD_UP,
    ) -> float:
        sender = self._address() if mode != LOSS else ""
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
                backward=mode != LOSS,
                step=place is not None,
                place=place,
                member=self._training.members.node_id,
            )
        )
        data, shape, source = mine.data, mine.shape, self._held.start
        # The answer has states of the same shape, or a loss.
        most_bytes = answer_bytes(tokens.numel(), mine.shape[-1]) if path else 0
        for hop in path:
            last = hop is path[-1]
            request = pb.PipelineForwardRequest(
                session_id=session_id,
                request_id=request_id,
                hidden_states=data,
                hidden_shape=shape,
                source_shard=source,
                target_shard=hop.first,
                training_labels=wanted if last else b"",
                sender_url=sender,
            )
            told = "" if place is None else str(place)
            answer = await self._call(hop, request, most_bytes, told, mode)
            if answer.is_final != last:
                raise Unavailable("a node holds other layers than announced")
            loss = answer.loss
            if not 0.0 <= loss < math.inf:
                log.warning("training: %s reports a loss of %r", hop.node_id[:8], loss)
                raise ComputationFailed
            data, shape = answer.hidden_states, tuple(answer.hidden_shape)
            sender, source = sender and hop.address, hop.first
        return loss

    async def _call(
        self,
        hop: RemoteHop,
        request: pb.PipelineForwardRequest,
        most_bytes: int,
        place: str,
        mode: str,
        seconds: float = CALL_S,
    ) -> pb.PipelineForwardResponse:
        with trio.move_on_after(seconds):
            try:
                async with self._lane(hop):
                    answer = await self._ask(hop, request, most_bytes, place, mode)
            except CallFailed as error:
                raise _failure(hop, error.code, error.message) from None
            if not answer.success:
                raise _failure(hop, parse_failure(answer.error_message)[0], answer.error_message)
            return answer
        raise _failure(hop, Code.DEADLINE_EXCEEDED, "no answer in time")

    @asynccontextmanager
    async def _lane(self, hop: RemoteHop) -> AsyncIterator[None]:
        if not self._in_lanes:
            yield
            return
        async with self._lanes.setdefault(hop.node_id, trio.Lock()):
            yield

    async def _ask(
        self,
        hop: RemoteHop,
        request: pb.PipelineForwardRequest,
        most_bytes: int,
        place: str,
        mode: str,
    ) -> pb.PipelineForwardResponse:
        """Send a signed message; once more if the holder has begun another round."""
        stub = await self._pool.stub(hop.host, hop.grpc_port)
        for again in (False, True):
            turn = self._turns.get(hop.node_id, Turn()).next
            self._turns[hop.node_id] = turn
            sign = partial(
                self._training.members.signed,
                request,
                hop.node_id,
                turn,
                update=bool(place) and mode == ADD_UP,
                place=place,
                mode=mode,
            )
            metadata = await off_loop(len(request.hidden_states), sign)
            answer = await stub.PipelineForward.ask(
                request, metadata=metadata, most_bytes=most_bytes
            )
            if answer.message.success or again or ROUND not in answer.metadata:
                break
            self._turns[hop.node_id] = turn_in(answer.metadata)
        if not answer.message.success and VERSIONS in answer.metadata:
            try:
                raise _Apart(hop.node_id, versions_in(answer.metadata[VERSIONS]))
            except InvalidRequest:
                raise _failure(hop, Code.INTERNAL, "malformed versions") from None
        return answer.message


def _failure(hop: RemoteHop, code: Code, message: str) -> MeshnodeError:
    log.info("training: %s", HopFailed(0, hop.node_id, code, message))
    if code in (Code.INTERNAL, Code.INVALID_ARGUMENT):
        return ComputationFailed()
    return Unavailable("a node that holds some of the model's layers did not train")
