"""Training through several nodes: loss at the last, gradients back to the first (decision 0035).

Terms: a message *trains* when it has ``training_labels`` or the metadata ``training: 1``. Each
holder keeps the *graph* of such a message by its session and request ids. The last holder computes
the loss and sends gradients to the *sender* of the message, which sends its own to the sender of
its message, and so on. A message *steps* when it has the metadata ``training: step``: each holder
then updates its weights by the sum of the session's gradients, once they have gone all the way back
(decision 0100).

==========  ==================================  ==============================================
graph       moved by                            next
==========  ==================================  ==============================================
(none)      PipelineForward that trains         kept; at the last holder used at once
kept        PipelineBackward with its ids       used: gradients passed on, then added up
kept        ``idle_s``                          (none)
==========  ==================================  ==============================================

Invariants: graphs and gradients are bounded in number, bytes and time; a graph is used once, and
never after a step has changed its weights, since messages that step take turns; only addresses of
peers are called; gradients count only if the whole way back succeeded. The trained weights are
copies, read when the first message trains.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import torch
import trio
from torch import Tensor

from meshnode.domain.errors import (
    ComputationFailed,
    InvalidRequest,
    LayerNotHeld,
    RateLimited,
)
from meshnode.model.decoder import Decoder
from meshnode.model.engine import ComputationError
from meshnode.model.loading import LoadedModel
from meshnode.model.training import Recipe
from meshnode.rpc.errors import CallFailed, CallRefused, Code
from meshnode.services.executor import Executor
from meshnode.services.shards.graphs import (
    Gradients,
    GradientSum,
    Graph,
    GraphUnknown,
    KeptGraph,
    backward_graph,
    forward_graph,
    graph_bytes,
    square_of,
)
from meshnode.services.shards.messages import (
    BESIDE_BYTES,
    ForwardAnswer,
    ForwardCall,
    bounded,
    off_loop,
)
from meshnode.services.shards.relay import time_for_next_hop
from meshnode.services.shards.senders import UpstreamHolder, sender_at
from meshnode.services.shards.stepping import GRADIENT_SQUARE, Stepper, add_to, added, square_in
from meshnode.services.shards.training_call import TrainingCall, unpack_training
from meshnode.services.wakeup import Wakeup
from meshnode.wire import node_pb2 as pb
from meshnode.wire.tensors import pack_floats, unpack_floats

if TYPE_CHECKING:
    from meshnode.services.peers import PeerBook
    from meshnode.services.stub_pool import StubPool

log = logging.getLogger(__name__)

Key = tuple[str, str]
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingLimits:
    """Bounds on what training keeps. Times are in seconds."""

    graphs: int = 16
    graph_bytes: int = 512 * 1024 * 1024
    """Bytes of all graphs together, estimated before they are made."""
    gradient_sets: int = 2
    """Sessions whose gradients are kept: those of one session are as large as the weights."""
    idle_s: float = 60.0


async def serve_training(
    executor: Executor,
    load: Callable[[], LoadedModel],
    limits: TrainingLimits,
    *,
    enabled: Callable[[], bool],
    pool: StubPool,
    peers: PeerBook,
    learning_rate: Callable[[], float] = lambda: Recipe().learning_rate,
    task_status: trio.TaskStatus[ShardTrainer],
) -> None:
    """Keep graphs for peers until cancelled; starts with the :class:`ShardTrainer`.

    ``load`` reads the held layers, trainable; it is called in a thread, once, when it is needed.
    """
    training = ShardTrainer(executor, load, limits, enabled, pool, peers, learning_rate)
    task_status.started(training)
    while True:
        await trio.sleep(limits.idle_s / 4)
        training.expire()


class ShardTrainer:
    """Handle of the service."""

    def __init__(
        self,
        executor: Executor,
        load: Callable[[], LoadedModel],
        limits: TrainingLimits,
        enabled: Callable[[], bool],
        pool: StubPool,
        peers: PeerBook,
        learning_rate: Callable[[], float],
    ) -> None:
        """Made by :func:`serve_training`."""
        self._executor = executor
        self._load = load
        self._limits = limits
        self._enabled = enabled
        self._pool = pool
        self._peers = peers
        self.learning_rate = learning_rate
        self._decoder: Decoder | None = None
        self._stepper = Stepper()
        self.stepped = Wakeup()
        self._loading = trio.Lock()
        self._turn = trio.Lock()
        """Held by a message that steps, from its last use of the weights to its update."""
        self._graphs: dict[Key, KeptGraph] = {}
        self._making: dict[Key, int] = {}
        """Estimated bytes of graphs that are being made."""
        self._used: set[KeptGraph] = set()
        """Graphs whose gradients are on their way back."""
        self._sums: dict[str, GradientSum] = {}

    @property
    def loaded(self) -> bool:
        """Whether the trainable weights are in memory."""
        return self._decoder is not None

    @property
    def bytes_in_use(self) -> int:
        """Estimated memory of graphs."""
        kept = (*self._graphs.values(), *self._used)
        return sum(self._making.values()) + sum(each.size for each in kept)

    @property
    def steps(self) -> int:
        """Updates of the weights."""
        return self._stepper.steps

    def gradients(self, session_id: str) -> Gradients | None:
        """Remove and return the sum of a session's gradients; None if there are none."""
        found = self._sums.pop(session_id, None)
        return None if found is None else found.gradients

    def discard(self, session_id: str, request_id: str) -> bool:
        """Drop the graph of a message that its driver gave up. Returns whether there was one."""
        return self._graphs.pop((session_id, request_id), None) is not None

    def expire(self) -> None:
        """Drop graphs and gradients that have not been used for ``idle_s``."""
        oldest = trio.current_time() - self._limits.idle_s
        for key, kept in list(self._graphs.items()):
            if kept.made_at <= oldest:
                del self._graphs[key]
        for name, kept_sum in list(self._sums.items()):
            if kept_sum.touched <= oldest:
                del self._sums[name]

    async def forward(self, message: TrainingCall) -> tuple[ForwardAnswer, float]:
        """Run the layers and keep the graph; at the last layer, compute loss and gradients.

        The gradients have gone all the way back when the last holder answers. Returns the answer
        and the loss, which is 0.0 before the last layer. Raises InvalidRequest, LayerNotHeld,
        RateLimited, ComputationFailed, CallRefused when this node does not train, and CallFailed
        when the way back failed.
        """
        if not self._enabled():
            raise CallRefused(Code.UNIMPLEMENTED, "this node does not train")
        call = message.call
        sender = self._sender(message)
        is_last = call.layers.stop == self._executor.card.num_layers
        card = self._executor.card
        read = partial(
            unpack_training, message, self._executor.config, card.context_length, is_last=is_last
        )
        inputs, targets = await off_loop(call.nbytes, read)
        key = (call.session_id, call.request_id)
        size = self._room(key, call, inputs.shape[0], inputs.shape[1])
        self._making[key] = size
        try:
            # The last holder's backward pass must use the weights of its forward pass.
            async with self._turn if is_last and message.backward else nullcontext():
                return await self._answer(message, inputs, targets, sender, size)
        finally:
            del self._making[key]

    async def _answer(
        self,
        message: TrainingCall,
        inputs: Tensor,
        targets: Tensor | None,
        sender: UpstreamHolder | None,
        size: int,
    ) -> tuple[ForwardAnswer, float]:
        call = message.call
        key = (call.session_id, call.request_id)
        decoder = await self._trainable()

        def run() -> tuple[Graph, int]:
            return forward_graph(decoder, call.layers, inputs, targets), self._stepper.steps

        begun = trio.current_time()
        graph, steps_before = await self._compute(run)
        now = trio.current_time()
        compute_ms = (now - begun) * 1e3
        kept = KeptGraph(graph, size, sender, now, message.step, steps_before)
        if targets is None:
            self._graphs[key] = kept
            output = graph.output.detach()
            data = await off_loop(output.nbytes, lambda: pack_floats(output.numpy()))
            shape = tuple(output.shape)
            return ForwardAnswer(data, shape, is_final=False, compute_ms=compute_ms), 0.0
        loss = float(graph.output.detach())
        if message.backward:
            await self._send_back(key, kept, None, message.source_shard, 0.0)
        return ForwardAnswer(b"", (), is_final=True, compute_ms=compute_ms), loss

    async def backward(self, message: pb.PipelineBackwardRequest, square: float = 0.0) -> float:
        """Use the graph of a message: send the gradients of its inputs to its sender.

        ``square`` is the sum of the squares of the gradients of the holders after this one. If the
        message steps, the sum over all holders is returned. Raises GraphUnknown, InvalidRequest,
        LayerNotHeld, ComputationFailed, CallRefused and CallFailed.
        """
        # A node that does not train keeps no graph. UNIMPLEMENTED would deny the operation itself.
        key = (message.session_id, message.request_id)
        kept = self._graphs.get(key)
        if kept is None:
            raise GraphUnknown
        if message.target_shard != kept.graph.layers.start:
            raise LayerNotHeld(f"the graph begins at layer {kept.graph.layers.start}")
        shape = tuple(kept.graph.output.shape)
        if bounded(message.grad_shape, len(shape)) != shape:
            raise InvalidRequest("grad_shape", f"must be {list(shape)}")
        read = partial(unpack_floats, message.grad_output, shape, "grad_output")
        gradient = await off_loop(4 * math.prod(shape), read)
        # Taken only now: an invalid message must not use the graph up.
        if self._graphs.get(key) is not kept:
            raise GraphUnknown
        del self._graphs[key]
        source = -1 if kept.sender is None else kept.sender.layer
        self._used.add(kept)
        try:
            async with self._turn if kept.step else nullcontext():
                return await self._send_back(key, kept, torch.from_numpy(gradient), source, square)
        finally:
            self._used.remove(kept)

    async def _send_back(
        self, key: Key, kept: KeptGraph, gradient: Tensor | None, source_shard: int, after: float
    ) -> float:
        """Compute gradients, send those of the inputs on, then add the others up, or step.

        Returns the sum of squares that all holders step by; 0.0 without a step.
        """
        decoder = await self._trainable()

        def run() -> tuple[Tensor | None, Gradients]:
            # Nothing else changes the weights while this runs in the torch thread.
            if kept.steps_before != self._stepper.steps:
                raise GraphUnknown
            return backward_graph(decoder, kept.graph, gradient)

        of_inputs, gradients = await self._compute(run)
        square = 0.0
        if kept.step:
            earlier = self._sums.get(key[0])
            if earlier is not None:
                gradients = added(earlier.gradients, gradients)
            size = sum(one.nbytes for one in gradients.values())
            square = after + await off_loop(size, partial(square_of, gradients))
        if kept.sender is not None and of_inputs is not None:
            data = await off_loop(of_inputs.nbytes, lambda: pack_floats(of_inputs.detach().numpy()))
            request = pb.PipelineBackwardRequest(
                session_id=key[0],
                request_id=key[1],
                grad_output=data,
                grad_shape=of_inputs.shape,
                target_shard=source_shard,
            )
            square = await self._call(kept.sender, request, square)
        if kept.step:
            rate = self.learning_rate()
            step = partial(self._stepper.update, decoder, gradients, square, rate)
            # The holders before this one have stepped, so this one must, even if it is cancelled.
            # It waits for the torch thread only.
            with trio.CancelScope(shield=kept.sender is not None):
                await self._compute(step)
            self.stepped.set()
            self._sums.pop(key[0], None)
            # These graphs were made from the weights before the step.
            self._graphs.clear()
        else:
            self._add(key[0], gradients)
        return square

    async def _call(
        self, sender: UpstreamHolder, request: pb.PipelineBackwardRequest, square: float
    ) -> float:
        """Returns the sum of squares of all holders, or the part of it that is known here."""
        with trio.move_on_after(time_for_next_hop()):
            stub = await self._pool.stub(sender.host, sender.grpc_port)
            told = {GRADIENT_SQUARE: repr(square)} if square else {}
            answer = await stub.PipelineBackward.ask(
                request, metadata=told, most_bytes=BESIDE_BYTES
            )
            if not answer.message.success:
                raise CallFailed(Code.INTERNAL, answer.message.error_message[:200])
            try:
                return max(square, square_in(answer.metadata.get(GRADIENT_SQUARE, "0")))
            except InvalidRequest:
                # Treated like a missing one: this node steps by the part that it knows.
                return square
        raise CallFailed(Code.DEADLINE_EXCEEDED, "no answer in time")

    async def _compute(self, function: Callable[[], Result]) -> Result:
        try:
            return await self._executor.compute(function)
        except ComputationError as error:
            log.error("training: %r", error)
            raise ComputationFailed from None

    async def _trainable(self) -> Decoder:
        async with self._loading:
            if self._decoder is None:
                log.info("reading the weights for training")
                model = await trio.to_thread.run_sync(self._load)
                self._decoder = model.decoder
            return self._decoder

    def _sender(self, message: TrainingCall) -> UpstreamHolder | None:
        """The holder that gets the gradients. Raises InvalidRequest unless it is a peer."""
        if not message.sender_url:
            return None
        sender = sender_at(message.sender_url, message.source_shard)
        if not self._peers.knows(sender.host, sender.grpc_port):
            raise InvalidRequest("sender_url", "is not a peer of this node")
        return sender

    def _room(self, key: Key, call: ForwardCall, batch: int, seq: int) -> int:
        """Estimated bytes of a graph. Raises InvalidRequest or RateLimited if it has no room."""
        size = graph_bytes(self._executor.config, call.layers, batch, seq)
        if size > self._limits.graph_bytes:
            raise InvalidRequest("hidden_shape", "is too large to train with here")
        if key in self._graphs or key in self._making:
            raise InvalidRequest("request_id", "was used in this session before")
        self.expire()
        graphs = len(self._graphs) + len(self._making) + len(self._used)
        if graphs >= self._limits.graphs or self.bytes_in_use + size > self._limits.graph_bytes:
            raise RateLimited(1, "no more graphs here")
        if key[0] not in self._sums and len(self._sums) >= self._limits.gradient_sets:
            raise RateLimited(1, "no more sessions train here")
        return size

    def _add(self, session_id: str, gradients: Gradients) -> None:
        now = trio.current_time()
        total = self._sums.get(session_id)
        if total is None:
            if len(self._sums) >= self._limits.gradient_sets:
                oldest = min(self._sums, key=lambda name: self._sums[name].touched)
                del self._sums[oldest]
            self._sums[session_id] = GradientSum(dict(gradients), now)
            return
        total.touched = now
        add_to(total.gradients, gradients)
