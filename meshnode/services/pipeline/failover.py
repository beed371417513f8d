"""The layers that other nodes hold, for one generation, with failover (decision 0037).

Terms: the driver *keeps* its own hidden states of every position so far, the input of the first
remote hop. When a hop fails, they are *replayed* over another path, in a new session: the prompt in
the chunks in which it was first computed, the rest as if one position came at a time. Every bit is
then the same as in a generation without failures.

A *slow* path is left too, when another one is expected to be so much quicker that a replay is worth
it (decision 0134).

Several messages may be *in flight*: sent, and not answered. The caller may have guessed the
positions of some, and *rewinds* when a guess was wrong: answers that come later are dropped
(decision 0230).

Invariants: the caller gets the rows of logits that are *due* in the order of their positions, each
once unless it rewinds, whatever fails on the way; memory for the kept states is reserved at the
beginning and never grows; no more messages are in flight than all holders of the path allow.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
import trio

from meshnode.domain.errors import FalseResults, MeshnodeError
from meshnode.domain.routing import is_worth_leaving
from meshnode.rpc.errors import Code
from meshnode.services.observing import PathHop
from meshnode.services.pipeline.context import DriverContext, InFlight
from meshnode.services.pipeline.logits import LogitRows
from meshnode.services.pipeline.pace import PATIENCE, PREFILL_SPEED, Pace
from meshnode.services.pipeline.policy import (
    LOST_AGAIN,
    MAX_REFUSALS,
    ROUNDS,
    HopFailed,
    Reaction,
    backoff_s,
    refused_outcome,
)
from meshnode.services.pipeline.remote import PathMessage
from meshnode.services.pipeline.spot_checks import GenerationChecks
from meshnode.services.shards.flights import Flight
from meshnode.services.shards.wanted import ALL, WantedLogits

if TYPE_CHECKING:
    from torch import Tensor

    from meshnode.services.pipeline.records import HopTime, HopTrace
    from meshnode.services.pipeline.remote import RemotePath
    from meshnode.services.pipeline.routes import RemoteHop

log = logging.getLogger(__name__)


class RemoteLayers:
    """The remote layers as one generation sees them."""

    def __init__(
        self,
        context: DriverContext,
        prompt: int,
        positions: int,
        trace: HopTrace,
        *,
        due: int | None = None,
        kept: str = ALL,
        emitted: int = 0,
    ) -> None:
        """``prompt`` is the number of the prompt's tokens, ``positions`` that of all positions.

        ``due`` is the first position whose logits are wanted, by default the prompt's last one;
        ``kept`` is what is wanted of them (``WantedLogits.kept``).
        ``emitted`` tokens were sent before.
        """
        self._context = context
        self._prompt = prompt
        self._positions = positions
        self._trace = trace
        self._kept_logits = kept
        # Pages that are never written take no memory.
        self._kept = torch.empty(1, positions, context.hidden_dim)
        self._length = 0
        self._due = prompt - 1 if due is None else due
        self._convoy = ""
        """Of the message that is being sent."""
        self._sent = 0
        """Positions that were sent on this path."""
        self._in_flight: deque[InFlight] = deque()
        self._late: set[InFlight] = set()
        """Messages whose answers nobody waits for any more."""
        self._epoch = Flight(0, 0)
        self._path: RemotePath | None = None
        self._avoided: set[str] = set()
        self._barred: set[str] = set()
        self._forgetful: set[str] = set()
        """Nodes that have lost a session since the last answer."""
        self._again: Sequence[RemoteHop] | None = None
        """The path on which to begin the next session, if it is to be the same one."""
        self._refusals: list[str] = []
        """Nodes that refused the request as invalid, since the last answer."""
        self._pace = Pace(context.routes, context.call_s)
        self._rounds = 0
        self._relay = context.relay
        self._unchecked = emitted
        """Results behind tokens that were sent, since the latest that a check has found true."""
        self._checks = GenerationChecks(
            context.checks,
            context.routes,
            self._session,
            self._end,
            prompt=prompt,
            chunk=context.prefill_chunk,
            patience_s=PATIENCE * context.call_s,
        )
        self.failovers = 0
        """How many paths were left, because a hop failed or was slow."""

    @property
    def ahead(self) -> int:
        """Messages that may be in flight on this path; 0 if positions cannot be guessed on it."""
        return 0 if self._path is None else self._path.ahead

    @property
    def hops(self) -> Sequence[RemoteHop]:
        """The remote hops of the path; empty while there is none."""
        return () if self._path is None else self._path.hops

    @property
    def has_room(self) -> bool:
        """Whether a message may be sent before another answer is received."""
        room = 0 if self._path is None else self._path.room
        return self.ahead > 0 and self._sent == self._length and len(self._in_flight) < room

    @property
    def waits(self) -> bool:
        """Whether an answer is to come."""
        return bool(self._in_flight) or self._sent < self._length

    async def send(self, states: Tensor, convoy: str = "") -> None:
        """Send the next positions' states ``[1, seq, hidden]`` into the remote layers.

        ``convoy`` names the messages that this one should be computed with. Raises
        LayersUnavailable when there is no path.
        """
        stop = self._length + states.shape[1]
        self._kept[:, self._length : stop] = states
        self._length, self._convoy = stop, convoy
        self._launch(self._path or await self._begin())
        self._convoy = ""

    async def receive(self) -> tuple[LogitRows, list[HopTime]]:
        """Wait for the next answer: rows of logits from the first one that is due, or no rows.

        Raises LayersUnavailable, RateLimited, Unavailable or ComputationFailed when no attempt is
        left.
        """
        while True:
            try:
                return await self._receive()
            except HopFailed as failure:
                await self._react(failure)

    def rewind(self, length: int) -> None:
        """Forget all positions from ``length`` on, and what is in flight; the next row is due."""
        self._late.update(each for each in self._in_flight if not each.done.is_set())
        self._in_flight.clear()
        self._length = self._due = length
        self._sent = min(self._sent, length)
        self._epoch = Flight(self._epoch.epoch + 1, length)

    def close(self) -> None:
        """Give up what is in flight, and start closing the session. Does not wait."""
        for each in self._late:
            each.scope.cancel()
        self._checks.close()
        if self._path is not None:
            self._leave(self._path)

    async def _receive(self) -> tuple[LogitRows, list[HopTime]]:
        path = self._path or await self._begin()
        self._launch(path)
        first = self._in_flight[0]
        await first.done.wait()
        message, answer = first.message, first.answered
        if self._context.seen.is_empty(answer.rows, self._kept[0, message.stop - 1]):
            raise path.failed_at_end("the same logit for every token")
        if answer.rows and not await self._is_believed(path, answer.rows):
            return await self._receive()
        path.opened = True
        self._in_flight.popleft()
        self._due += len(answer.rows)
        took_ms = (trio.current_time() - first.sent_at) * 1e3
        self._pace.note(took_ms, message)
        is_step = message.start >= self._prompt and message.seq <= PREFILL_SPEED
        alone = is_step and not message.before
        self._context.routes.answered(path.hops, answer.took_ms if alone else ())
        if answer.rows:
            self._answered()
            if is_step:
                self._leave_if_slow(path, answer.took_ms)
        return answer.rows, answer.times

    async def _is_believed(self, path: RemotePath, rows: LogitRows) -> bool:
        """Check the row that is due if a check is. Leaves a path that has given a false result.

        Raises FalseResults if tokens from earlier results of it have been sent unchecked.
        """
        if self._checks.is_due(path):
            states = self._kept[:, : self._due + 1]
            row = rows.first()
            found = await self._checks.check(path, states, row, self._kept_logits, self._excluded)
            if found is not None:
                self._trace.failed("a holder gave a false result")
                if self._unchecked:
                    raise FalseResults
                self._barred.update(found.blamed)
                self._leave(path)
                self.failovers += 1
                return False
            if self._checks.undecided:
                self._trace.disputed()
            else:
                self._unchecked = 0
        self._unchecked += len(rows)
        return True

    def _answered(self) -> None:
        """A row has come: what went wrong before it is over."""
        self._rounds = 0
        self._avoided.clear()
        self._forgetful.clear()
        for node_id in self._refusals:
            self._context.routes.refused(node_id)
        self._refusals.clear()

    def _launch(self, path: RemotePath) -> None:
        """Send what the path does not have yet, as far as its holders allow."""
        while self._sent < self._length and len(self._in_flight) < path.room:
            message = self._next_message(path)
            flying = InFlight(message, trio.current_time())
            self._in_flight.append(flying)
            self._sent = message.stop
            self._context.spawn(partial(self._call, path, flying))

    def _next_message(self, path: RemotePath) -> PathMessage:
        """The next positions: a chunk of the prompt, or of those that come one at a time."""
        start, most = self._sent, self._context.prefill_chunk
        in_prompt = start < self._prompt
        stop = min(start + most, self._prompt if in_prompt else self._length, self._length)
        if not path.ahead and stop > self._due + 1:
            stop = max(start, self._due) + 1  # One row an answer.
        rows = max(0, stop - max(start, self._due))
        waiting, within_s = [each.message for each in self._in_flight], math.inf
        is_step = stop - start <= (1 if in_prompt else PREFILL_SPEED)
        if is_step and all(each.within_s < math.inf for each in waiting):
            within_s = self._pace.patience_s * (1 + len(waiting))
        elif not waiting:
            within_s = self._pace.first_s(stop - start)
        return PathMessage(
            self._kept[:, start:stop],
            start,
            WantedLogits(rows, self._kept_logits if path.ahead else ALL),
            None if in_prompt or stop == start + 1 else self._prompt,
            self._epoch if path.ahead else None,
            within_s,
            self._convoy if stop == self._length == start + 1 else "",
            sum(each.seq for each in waiting),
        )

    async def _call(self, path: RemotePath, flying: InFlight) -> None:
        try:
            await flying.fly(path, self._trace.spans)
        finally:
            self._late.discard(flying)

    async def _begin(self) -> RemotePath:
        """Begin a session on the best path. Waits, round by round, while there is no path."""
        while True:
            hops, self._again = self._again or self._context.routes.choose(self._excluded), None
            if hops is not None:
                break
            await self._next_round(self._context.routes.unavailable(self._excluded))
        self._pace.begin(hops, self._excluded)
        self._trace.took_path(
            [PathHop(hop.node_id, hop.first, hop.last) for hop in hops],
            mixed=any(hop.mixed for hop in hops),
            expected_ms=self._context.routes.expected_ms(hops),
        )
        self._path = self._session(hops)
        self._sent, self._epoch = 0, Flight(0, 0)
        return self._path

    def _session(self, hops: Sequence[RemoteHop]) -> RemotePath:
        self._context.routes.enter(hops)
        return self._context.path(hops, self._positions, relay=self._relay)

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
            self._pace.impatient = False
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
        self._pace.left.clear()

    @property
    def _excluded(self) -> set[str]:
        return self._avoided | self._barred | self._pace.left

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

    def _leave_if_slow(self, path: RemotePath, took_ms: Sequence[float]) -> None:
        """Leave a path if what is left to generate would take less time on another, replay too."""
        left = self._positions - self._length

        def worth(here_ms: float, there_ms: float) -> bool:
            return is_worth_leaving(here_ms, there_ms, self._length, left)

        slow = self._pace.slow_hop(
            path.hops, took_ms, self._excluded, relay=path.relay, worth=worth
        )
        if slow is None:
            return
        name = slow.hop.node_id[:8]
        self._trace.failed(f"{name} is slow: {slow.position_ms:.0f} ms a position")
        log.warning(
            "generation %s: leaves %s, which takes %.0f ms a position; others take %.0f ms",
            self._trace.generation_id,
            name,
            slow.position_ms,
            slow.other_ms,
        )
        self._context.routes.doubt(slow.before)
        self._pace.left.add(slow.hop.node_id)
        self._leave(path)
        self.failovers += 1

    def _leave(self, path: RemotePath) -> None:
        self._path = None
        for each in self._in_flight:
            each.scope.cancel()
        self._in_flight.clear()
        self._end(path)

    def _end(self, path: RemotePath) -> None:
        self._context.routes.leave(path.hops)
        self._context.spawn(path.close)
