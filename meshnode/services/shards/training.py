"""Training through several nodes: loss at the last, gradients back to the first (decision 0035).

Terms: a message *trains* when it has ``training_labels`` or the metadata ``training: 1``. Each
holder keeps the *graph* of such a message by its session and request ids. The last holder computes
the loss and sends gradients to the *sender* of the message, which sends its own to the sender of
its message, and so on. A message *steps* when it has the metadata ``training: step``: each holder
then updates its weights by the sum of the session's gradients, once they have gone all the way back
(decision 0100). Only members may send such messages (decision 0137; ``members``).

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
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import torch
import trio
from torch import Tensor

from meshnode.domain.errors import ComputationFailed, InvalidRequest, LayerNotHeld
from meshnode.domain.training.message import MAX_NORM
from meshnode.domain.training.position import PipelineVersion, Place, Position
from meshnode.model.decoder import Decoder
from meshnode.model.engine import ComputationError
from meshnode.model.loading import LoadedModel
from meshnode.rpc.errors import CallRefused, Code
from meshnode.services.executor import Executor
from meshnode.services.shards.graphs import (
    Gradients,
    Graph,
    GraphUnknown,
    KeptGraph,
    backward_graph,
    forward_graph,
    graph_bytes,
    square_of,
)
from meshnode.services.shards.kept_graphs import KeptGraphs, Key, TrainingLimits
from meshnode.services.shards.layer_versions import Compute, LayerVersions
from meshnode.services.shards.messages import ForwardAnswer, bounded, off_loop
from meshnode.services.shards.senders import UpstreamHolder, sender_at
from meshnode.services.shards.stepping import Stepper
from meshnode.services.shards.strangers import StrangersTurns
from meshnode.services.shards.training_call import TrainingCall, unpack_training
from meshnode.services.shards.way_back import send_back
from meshnode.services.wakeup import Wakeup
from meshnode.wire import node_pb2 as pb
from meshnode.wire.tensors import pack_floats, unpack_floats

if TYPE_CHECKING:
    from meshnode.services.peers import PeerBook
    from meshnode.services.shards.members import TrainingMembers
    from meshnode.services.stub_pool import StubPool

log = logging.getLogger(__name__)

Result = TypeVar("Result")


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
        members: TrainingMembers,
        learning_rate: Callable[[], float],
        versions: LayerVersions | None = None,
        make_room: Callable[[], bool] = lambda: True,
    ) -> None:
        """Made by ``training_service.serve_training``."""
        self._executor = executor
        self._load = load
        self._enabled = enabled
        self._make_room = make_room
        self._pool = pool
        self._peers = peers
        self.members = members
        self.learning_rate = learning_rate
        self.versions = versions or LayerVersions()
        self._decoder: Decoder | None = None
        self._stepper = Stepper()
        self.stepped = Wakeup()
        self._loading = trio.Lock()
        self._turn = trio.Lock()
        """Held while the weights must not change: by the backward pass of a message that steps,
        and at the last holder by both passes of a member's message."""
        self._kept = KeptGraphs(limits)
        self._strangers = StrangersTurns(lambda: bool(executor.requesters()), limits.graph_bytes)

    @property
    def enabled(self) -> bool:
        """Whether this node trains now."""
        return self._enabled()

    @property
    def loaded(self) -> bool:
        """Whether the trainable weights are in memory."""
        return self._decoder is not None

    @property
    def bytes_in_use(self) -> int:
        """Estimated memory of graphs."""
        return self._kept.bytes_in_use

    @property
    def steps(self) -> int:
        """Updates of the weights."""
        return self._stepper.steps

    @property
    def position(self) -> Position:
        """Where the layers are in the training of their pipeline (decision 0201)."""
        return self.versions.position

    def gradients(self, session_id: str) -> Gradients | None:
        """Remove and return the sum of a session's gradients; None if there are none."""
        return self._kept.pop_sum(session_id)

    def layer_after(self, session_id: str, request_id: str) -> int | None:
        """The layer whose holder sends the gradients of a message; None unless it steps."""
        kept = self._kept.get((session_id, request_id))
        return kept.graph.layers.stop if kept is not None and kept.step else None

    async def place(self, round_steps: int) -> Place:
        """What this node, as the driver, says with the next step (decision 0201)."""
        await self._trainable()
        return self.versions.next_place(round_steps)

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[tuple[Decoder, Compute]]:
        """The weights, while no step changes them, and what computes for members."""
        async with self._turn:
            yield await self._tools()

    async def agree(self, others: Sequence[Sequence[PipelineVersion]]) -> None:
        """Go, as the driver, where the holders can follow that were elsewhere."""
        async with self._turn:
            self._replaced(await self.versions.agree(others, *await self._tools()))

    def discard(self, session_id: str, request_id: str) -> bool:
        """Drop the graph of a message that its driver gave up. Returns whether there was one."""
        return self._kept.discard((session_id, request_id))

    def expire(self) -> None:
        """Drop graphs and gradients that have not been used for ``idle_s``."""
        self._kept.expire(trio.current_time())

    async def unload(self) -> bool:
        """Free the trained weights, and all that belongs to them. False if that must wait."""
        async with self._loading:
            if self._decoder is None:
                return True
            if self.enabled or self._kept.busy:
                return False
            if self._stepper.changed:
                try:
                    await trio.to_thread.run_sync(self.versions.pause, self._decoder)
                except OSError as error:
                    log.warning("training: the layers stay in memory: %s", error.strerror)
                    return False
            self._decoder = None
            self._stepper.forget()
            self._kept.forget()
            self.members.rounds.renew()
            return True

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
        sender = sender_at(message.sender_url, message.source_shard, self._peers.knows)
        is_last = call.layers.stop == self._executor.card.num_layers
        card = self._executor.card
        read = partial(
            unpack_training, message, self._executor.config, card.context_length, is_last=is_last
        )
        inputs, targets = await off_loop(call.nbytes, read)
        key = (call.session_id, call.request_id)
        size = graph_bytes(self._executor.config, call.layers, inputs.shape[0], inputs.shape[1])
        if not message.member:
            self._strangers.validate_size(size)
        with self._kept.making(key, size, message.member, trio.current_time()):
            # The last holder's backward pass must use the weights of its forward pass. Nobody but
            # members may let others wait for that.
            if message.place is not None:
                async with self._turn:
                    self._replaced(await self.versions.meet(message.place, *await self._tools()))
            in_turn = is_last and message.backward and message.member
            async with self._turn if in_turn else nullcontext():
                return await self._answer(message, inputs, targets, sender, size)

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
        graph, steps_before = await self._compute(run, message.member)
        compute_ms = ((now := trio.current_time()) - begun) * 1e3
        kept = KeptGraph(graph, size, sender, now, message.step, message.member, steps_before)
        if targets is None:
            if message.backward:
                self._kept.put(key, kept)
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
        # Whether this node trains is not asked: without training it has no graph. UNIMPLEMENTED
        # would say that there is no such operation.
        key = (message.session_id, message.request_id)
        kept = self._kept.get(key)
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
        if self._kept.get(key) is not kept:
            raise GraphUnknown
        source = -1 if kept.sender is None else kept.sender.layer
        with self._kept.using(key):
            async with self._turn if kept.step else nullcontext():
                return await self._send_back(key, kept, torch.from_numpy(gradient), source, square)

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

        of_inputs, gradients = await self._compute(run, kept.member)
        square = 0.0
        if kept.step:
            gradients = self._kept.sum_with(key[0], gradients, kept.member)
            size = sum(one.nbytes for one in gradients.values())
            own = await off_loop(size, partial(square_of, gradients))
            if own > MAX_NORM**2:
                raise CallRefused(
                    Code.INVALID_ARGUMENT, f"gradients have a norm above {MAX_NORM:g}"
                )
            square = after + own
        if kept.sender is not None and of_inputs is not None:
            data = await off_loop(of_inputs.nbytes, lambda: pack_floats(of_inputs.detach().numpy()))
            request = pb.PipelineBackwardRequest(
                session_id=key[0],
                request_id=key[1],
                grad_output=data,
                grad_shape=of_inputs.shape,
                target_shard=source_shard,
            )
            square = await send_back(self._pool, self.members, kept.sender, request, square)
        if kept.step:
            rate = self.learning_rate()
            step = partial(self._stepper.update, decoder, gradients, square, rate)
            # The holders before this one have stepped, so this one must, even if it is cancelled.
            # It waits for the torch thread only.
            with trio.CancelScope(shield=kept.sender is not None):
                await self._compute(step, kept.member)
            self.versions.stepped()
            self.stepped.set()
            self._kept.pop_sum(key[0])
            # These graphs were made from the weights before the step.
            self._kept.clear()
        else:
            self._kept.add(key[0], gradients, kept.member, trio.current_time())
        return square

    async def _compute_for_members(self, function: Callable[[], Result]) -> Result:
        return await self._compute(function, self.members.node_id)

    async def _compute(self, function: Callable[[], Result], member: str) -> Result:
        try:
            if not member:
                return await self._strangers.compute(self._executor.compute, function)
            return await self._executor.compute(function)
        except ComputationError as error:
            log.error("training: %r", error)
            raise ComputationFailed from None

    async def _tools(self) -> tuple[Decoder, Compute]:
        return await self._trainable(), self._compute_for_members

    def _replaced(self, changed: bool) -> None:
        """Note that the weights are others now, if they are: nothing of before belongs to them."""
        if changed:
            self.replaced(moments=False)

    def replaced(self, *, moments: bool) -> None:
        """Note that the weights are others now; the optimizer's ``moments`` may go on."""
        if not moments:
            self._stepper.forget()
        self._stepper.changed = True
        self._kept.clear()

    async def _trainable(self) -> Decoder:
        async with self._loading:
            if self._decoder is None:
                if not self._make_room():
                    raise CallRefused(Code.RESOURCE_EXHAUSTED, "this node has no memory for that")
                log.info("reading the weights for training")
                decoder = (await trio.to_thread.run_sync(self._load)).decoder
                if await trio.to_thread.run_sync(self.versions.restore, decoder):
                    self._stepper.changed = True
                self._decoder = decoder
            return self._decoder
