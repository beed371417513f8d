"""The layers that other nodes hold, for one generation, with failover (decision 0037).

Terms: the driver *keeps* its own hidden states of every position so far, the input of the first
remote hop. When a hop fails, they are *replayed* over another path, in a new session: the prompt in
the chunks in which it was first computed, the rest as if one position came at a time. Every bit is
then the same as in a generation without failures.

A *slow* path is left too, when another one is expected to be so much quicker that a replay is worth
it (decision 0134).

Invariants: the caller of :meth:`RemoteLayers.forward` gets the logits of each position once,
whatever fails on the way; memory for the kept states is reserved at the beginning and never grows.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
import trio

from meshnode.domain.errors import MeshnodeError
from meshnode.domain.routing import SLOW_MS, SLOW_TIMES, is_worth_leaving
from meshnode.rpc.errors import Code
from meshnode.services.pipeline.policy import (
    LOST_AGAIN,
    MAX_REFUSALS,
    ROUNDS,
    HopFailed,
    Reaction,
    backoff_s,
    refused_outcome,
)
from meshnode.services.pipeline.remote import RemotePath

if TYPE_CHECKING:
    from torch import Tensor

    from meshnode.services.peers import PeerBook
    from meshnode.services.pipeline.records import HopTime, HopTrace
    from meshnode.services.pipeline.routes import RemoteHop, Routes
    from meshnode.services.stub_pool import StubPool

log = logging.getLogger(__name__)

PATIENCE = 1 / 4
"""Part of the call's deadline that one position gets at least."""
PATIENT_TIMES = 10
"""How much longer than usual a position may take before another holder is asked."""
PREFILL_SPEED = 8
"""How many positions of a prompt are taken to cost as much as one that is generated."""
MAX_LEFT = 2
"""Paths that one generation leaves because they are slow."""


@dataclass(slots=True)
class SeenLogits:
    """What this driver has seen of its model's logits."""

    varied: bool = False
    """Whether they have ever differed between tokens."""

    def is_empty(self, logits: Tensor, states: Tensor) -> bool:
        """Whether logits ``[vocab]`` are all equal, though they depend on the ``[hidden]`` states.

        The same head has given logits that differ, so these were not computed from the states.
        """
        if bool(logits.min() < logits.max()):
            self.varied = True
            return False
        return self.varied and bool(states.any())


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
    seen: SeenLogits = field(default_factory=SeenLogits)


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
        self._again: Sequence[RemoteHop] | None = None
        """The path on which to begin the next session, if it is to be the same one."""
        self._refusals: list[str] = []
        """Nodes that refused the request as invalid, since the last answer."""
        self._left: set[str] = set()
        """Nodes that were left because they are slow."""
        self._position_ms: list[float] = []
        """Time of a position in each of the latest two calls on this path."""
        self._patience_s = math.inf
        self._impatient = True
        self._rounds = 0
        self._relay = context.relay
        self.failovers = 0
        """How many paths were left, because a hop failed or was slow."""

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
                for node_id in self._refusals:
                    self._context.routes.refused(node_id)
                self._refusals.clear()
                if states.shape[1] == 1:
                    self._leave_if_slow()
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
            within_s = self._patience_s if end == start + 1 else math.inf
            began = trio.current_time()
            answer = await path.forward(self._kept[:, start:end], decode_from, within_s)
            if self._context.seen.is_empty(answer[0], self._kept[0, end - 1]):
                raise path.failed_at_end("the same logit for every token")
            took_ms = (trio.current_time() - began) * 1e3
            each_ms = took_ms / max(1, (end - start) / PREFILL_SPEED)
            self._position_ms = [*self._position_ms[-1:], each_ms]
            self._context.routes.answered(path.hops, path.took_ms if end == start + 1 else ())
            if path.length == self._length:
                return answer

    async def _begin(self) -> RemotePath:
        """Begin a session on the best path. Waits, round by round, while there is no path."""
        while True:
            hops, self._again = self._again or self._context.routes.choose(self._excluded), None
            if hops is not None:
                break
            await self._next_round(self._context.routes.unavailable(self._excluded))
        self._context.routes.enter(hops)
        self._patience_s = self._patience(hops)
        self._position_ms = []
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
            else:
                self._again = path.hops
            self._forgetful.add(failure.node_id)
        self._remember(path, failure, reaction)
        if reaction.suspect:
            self._context.book.suspect(failure.node_id)
        if reaction.bar:
            self._barred.add(failure.node_id)
        if reaction.avoid:
            self._avoided.add(failure.node_id)
        if failure.code is Code.DEADLINE_EXCEEDED:
            # Perhaps it is not the holders that are slow: from now on, wait for the full deadline.
            self._impatient = False
        none_left = self._context.routes.choose(self._excluded) is None
        if reaction.refused and (none_left or len(self._refusals) >= MAX_REFUSALS):
            raise refused_outcome(len(self._refusals))
        if reaction.direct:
            self._relay = False
        elif none_left:
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
        self._left.clear()

    @property
    def _excluded(self) -> set[str]:
        return self._avoided | self._barred | self._left

    def _remember(self, path: RemotePath, failure: HopFailed, reaction: Reaction) -> None:
        """Count a failure against the holders that are to blame, for later generations."""
        routes, full = self._context.routes, failure.code is Code.RESOURCE_EXHAUSTED
        if reaction.refused:
            self._refusals.append(failure.node_id)
        elif reaction.direct and failure.code is Code.INVALID_ARGUMENT:
            routes.doubt(path.hops[: failure.place + 1])
        elif reaction.avoid or reaction.bar:
            before = path.hops[: failure.place] if failure.relayed else ()
            routes.failed((*before, path.hops[failure.place]), len(before), full=full)

    def _patience(self, hops: Sequence[RemoteHop]) -> float:
        """Seconds to wait for one position on a path, while there is another."""
        routes = self._context.routes
        usual_ms = routes.usual_ms(hops) if self._impatient else None
        if usual_ms is None:
            return math.inf
        replaceable = any(routes.choose(self._excluded | {hop.node_id}) for hop in hops)
        if not replaceable:
            return math.inf
        return max(PATIENCE * self._context.call_s, PATIENT_TIMES * usual_ms / 1e3)

    def _leave_if_slow(self) -> None:
        """Leave a path if what is left to generate would take less time on another, replay too."""
        path, position_ms = self._path, min(self._position_ms, default=0.0)
        if path is None or len(self._position_ms) < 2 or len(self._left) >= MAX_LEFT:
            return
        if position_ms < SLOW_MS:
            return
        place = max(range(len(path.hops)), key=lambda place: path.took_ms[place])
        slow = path.hops[place]
        routes = self._context.routes
        unknown_ms = PATIENCE * self._context.call_s * 1e3 / SLOW_TIMES
        other_ms = routes.alternative_ms(self._excluded | {slow.node_id}, unknown_ms)
        left = self._positions - self._length
        if other_ms is None or not is_worth_leaving(position_ms, other_ms, self._length, left):
            return
        self._trace.failed(f"{slow.node_id[:8]} is slow: {position_ms:.0f} ms a position")
        log.warning(
            "generation %s: leaves %s, which takes %.0f ms a position; others take %.0f ms",
            self._trace.generation_id,
            slow.node_id[:8],
            position_ms,
            other_ms,
        )
        if path.relay:
            routes.doubt(path.hops[:place])
        self._left.add(slow.node_id)
        self._leave(path)
        self.failovers += 1

    def _leave(self, path: RemotePath) -> None:
        self._context.routes.leave(path.hops)
        self._path = None
        self._context.spawn(path.close)
