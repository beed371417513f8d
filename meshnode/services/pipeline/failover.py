"""The layers that other nodes hold, for one generation, whoever of them fails (decisions/0037).

Terms: what is *kept* are the driver's own hidden states of every position so far, the input of the
first remote hop. When a hop fails, they are *replayed* over another path, in a new session: the
prompt in the chunks in which it was computed first, the rest as if a position came at a time, so
that every bit is the same as in a generation that nothing disturbed.

Invariants: the caller of :meth:`Remainder.forward` gets the logits of each position once, whatever
happened on the way; memory for what is kept is given up front and never grows.
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

    from meshnode.services.pipeline.ports import Book, Pool
    from meshnode.services.pipeline.records import HopTime, Trace
    from meshnode.services.pipeline.routes import Routes

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all generations of a driver share."""

    book: Book
    pool: Pool
    routes: Routes
    chain: bool
    call_s: float
    hidden_dim: int
    vocab_size: int
    prefill_chunk: int
    spawn: Callable[[Callable[[], Awaitable[None]]], None]
    """Start a task that may outlive its generation: closing sessions of a broken path."""


class Remainder:
    """The remote layers as one generation sees them."""

    def __init__(self, around: Surroundings, prompt: int, positions: int, trace: Trace) -> None:
        """For ``prompt`` tokens of prompt, and ``positions`` in all."""
        self._around = around
        self._prompt = prompt
        self._positions = positions
        self._trace = trace
        # Untouched pages of it take no memory.
        self._kept = torch.empty(1, positions, around.hidden_dim)
        self._length = 0
        self._path: RemotePath | None = None
        self._avoided: set[str] = set()
        self._barred: set[str] = set()
        self._forgetful: set[str] = set()
        """Nodes that have lost a session since the last answer."""
        self._rounds = 0
        self._chain = around.chain
        self.failovers = 0
        """Times that the generation had to begin a new session."""

    async def forward(self, states: Tensor) -> tuple[Tensor, list[HopTime]]:
        """Run the next positions' states ``[1, seq, hidden]`` through the remote layers.

        Returns the logits ``[vocab]`` of the last position. Raises LayersUnavailable, RateLimited,
        Unavailable or ComputationFailed when there is no way left.
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
        """Tell the holders that the generation is over. Does not wait."""
        if self._path is not None:
            self._leave(self._path)

    async def _catch_up(self) -> tuple[Tensor, list[HopTime]]:
        """Send what the path does not have yet: the newest positions, or all of them."""
        path = self._path or await self._begin()
        while True:
            start = path.length
            in_prompt = start < self._prompt
            end = self._prompt if in_prompt else self._length
            end = min(start + self._around.prefill_chunk, end, self._length)
            decode_from = None if in_prompt or end == start + 1 else self._prompt
            answer = await path.forward(self._kept[:, start:end], decode_from)
            if path.length == self._length:
                return answer

    async def _begin(self) -> RemotePath:
        """A session on the cheapest path; waits while there is none, as long as it may."""
        while True:
            excluded = self._avoided | self._barred
            stops = self._around.routes.choose(excluded)
            if stops is not None:
                break
            await self._next_round(self._around.routes.unavailable(excluded))
        self._around.routes.enter(stops)
        self._trace.paths += 1
        self._path = RemotePath(
            stops,
            self._around.pool,
            chain=self._chain,
            call_s=self._around.call_s,
            positions=self._positions,
            vocab_size=self._around.vocab_size,
        )
        return self._path

    async def _react(self, failure: HopFailed) -> None:
        """Leave the path, and decide whether and when to go on."""
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
            self._around.book.suspect(failure.node_id)
        if reaction.bar:
            self._barred.add(failure.node_id)
        if reaction.avoid:
            self._avoided.add(failure.node_id)
        if reaction.star:
            self._chain = False
        elif self._around.routes.choose(self._avoided | self._barred) is None:
            # It may be out of reach of another holder only.
            self._chain = self._chain and not failure.chained
            await self._next_round(failure.outcome())

    async def _next_round(self, outcome: MeshnodeError) -> None:
        """Wait before trying again what has failed; raises ``outcome`` when that was the last."""
        self._rounds += 1
        if self._rounds >= ROUNDS:
            raise outcome
        await trio.sleep(backoff_s(self._rounds))
        self._avoided.clear()

    def _leave(self, path: RemotePath) -> None:
        self._around.routes.leave(path.stops)
        self._path = None
        self._around.spawn(path.close)
