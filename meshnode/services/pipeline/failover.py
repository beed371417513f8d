"""The layers that other nodes hold, for one generation, with failover (decision 0037).

Terms: the driver *keeps* its own hidden states of every position so far, the input of the first
remote hop. When a hop fails, they are *replayed* over another path, in a new session: the prompt in
the chunks in which it was first computed, the rest as if one position came at a time. Every bit is
then the same as in a generation without failures.

Invariants: the caller of :meth:`RemoteLayers.forward` gets the logits of each position once,
whatever fails on the way; memory for the kept states is reserved at the beginning and never grows.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import trio

from meshnode.domain.errors import MeshnodeError
from meshnode.services.pipeline.policy import LOST_AGAIN, ROUNDS, HopFailed, backoff_s
from meshnode.services.pipeline.remote import RemotePath

if TYPE_CHECKING:
    from torch import Tensor

    from meshnode.services.peers import PeerBook
    from meshnode.services.pipeline.records import HopTime, HopTrace
    from meshnode.services.pipeline.routes import Routes
    from meshnode.services.stub_pool import StubPool

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DriverContext:
    """What all generations of a driver share."""

    book: PeerBook
    pool: StubPool
    routes: Routes
    relay: bool
    call_s: float
    hidden_dim: int
    vocab_size: int
    prefill_chunk: int
    spawn: Callable[[Callable[[], Awaitable[None]]], None]
    """Starts a task that may outlive its generation: closing the sessions of a failed path."""


class RemoteLayers:
    """The remote layers as one generation sees them."""

    def __init__(
        self, context: DriverContext, prompt: int, positions: int, trace: HopTrace
    ) -> None:
        """``prompt`` is the number of the prompt's tokens, ``positions`` that of all positions."""
        self._context = context
        self._prompt = prompt
        self._positions = positions
        self._trace = trace
        # Pages that are never written take no memory.
        self._kept = torch.empty(1, positions, context.hidden_dim)
        self._length = 0
        self._path: RemotePath | None = None
        self._avoided: set[str] = set()
        self._barred: set[str] = set()
        self._forgetful: set[str] = set()
        """Nodes that have lost a session since the last answer."""
        self._rounds = 0
        self._relay = context.relay
        self.failovers = 0
        """How many times a hop has failed."""

    async def forward(self, states: Tensor) -> tuple[Tensor, list[HopTime]]:
        """Run the next positions' states ``[1, seq, hidden]`` through the remote layers.

        Returns the logits ``[vocab]`` of the last position. Raises LayersUnavailable, RateLimited,
        Unavailable or ComputationFailed when no attempt is left.
        """
        stop = self._length + states.shape[1]
        self._kept[:, self._length : stop] = states
        self._length = stop
        while True:
            try:
                answer = await self._catch_up()
            except HopFailed as failure:
                await self._react(failure)
            else:
                self._rounds = 0
                self._avoided.clear()
                self._forgetful.clear()
                return answer

    def close(self) -> None:
        """Start closing the session at the holders. Does not wait."""
        if self._path is not None:
            self._leave(self._path)

    async def _catch_up(self) -> tuple[Tensor, list[HopTime]]:
        """Send the positions that the path does not have yet: after a failure, all of them."""
        path = self._path or await self._begin()
        while True:
            start = path.length
            in_prompt = start < self._prompt
            end = self._prompt if in_prompt else self._length
            end = min(start + self._context.prefill_chunk, end, self._length)
            decode_from = None if in_prompt or end == start + 1 else self._prompt
            answer = await path.forward(self._kept[:, start:end], decode_from)
            if path.length == self._length:
                return answer

    async def _begin(self) -> RemotePath:
        """Begin a session on the cheapest path. Waits, round by round, while there is no path."""
        while True:
            excluded = self._avoided | self._barred
            hops = self._context.routes.choose(excluded)
            if hops is not None:
                break
            await self._next_round(self._context.routes.unavailable(excluded))
        self._context.routes.enter(hops)
        self._trace.paths += 1
        self._path = RemotePath(
            hops,
            self._context.pool,
            relay=self._relay,
            call_s=self._context.call_s,
            positions=self._positions,
            vocab_size=self._context.vocab_size,
        )
        return self._path

    async def _react(self, failure: HopFailed) -> None:
        """Leave the path, and decide whether and when to try again."""
        path, self._path = self._path, None
        if path is None:
            raise AssertionError("a hop failed without a path")
        self._leave(path)
        self.failovers += 1
        self._trace.failed(str(failure))
        log.warning("generation %s: %s", self._trace.generation_id, failure)
        reaction = failure.reaction
        if failure.lost:
            if failure.node_id in self._forgetful:
                reaction = LOST_AGAIN
            self._forgetful.add(failure.node_id)
        if reaction.fatal:
            raise failure.outcome()
        if reaction.suspect:
            self._context.book.suspect(failure.node_id)
        if reaction.bar:
            self._barred.add(failure.node_id)
        if reaction.avoid:
            self._avoided.add(failure.node_id)
        if reaction.direct:
            self._relay = False
        elif self._context.routes.choose(self._avoided | self._barred) is None:
            # Perhaps only another holder cannot reach the peer: next time, call it directly.
            self._relay = self._relay and not failure.relayed
            await self._next_round(failure.outcome())

    async def _next_round(self, outcome: MeshnodeError) -> None:
        """Wait before the next round. Raises ``outcome`` if there have been too many."""
        self._rounds += 1
        if self._rounds >= ROUNDS:
            raise outcome
        await trio.sleep(backoff_s(self._rounds))
        self._avoided.clear()

    def _leave(self, path: RemotePath) -> None:
        self._context.routes.leave(path.hops)
        self._path = None
        self._context.spawn(path.close)
