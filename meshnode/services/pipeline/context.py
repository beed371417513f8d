"""What the generations of a driver share, and what one has in flight (decision 0230)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from meshnode.domain.errors import MeshnodeError
from meshnode.services.pipeline.convoys import Convoys
from meshnode.services.pipeline.logits import SeenLogits
from meshnode.services.pipeline.policy import HopFailed
from meshnode.services.pipeline.records import SpotChecks
from meshnode.services.pipeline.remote import AnswersTo, RemotePath
from meshnode.services.pipeline.short_cuts import ShortCuts

if TYPE_CHECKING:
    from meshnode.domain.traces import GenerationTrace
    from meshnode.services.peers import PeerBook
    from meshnode.services.pipeline.remote import PathAnswer, PathMessage
    from meshnode.services.pipeline.routes import RemoteHop, Routes
    from meshnode.services.stub_pool import StubPool


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
    checks: SpotChecks = field(default_factory=SpotChecks)
    convoys: Convoys = field(default_factory=Convoys)
    node_id: str = ""
    """This node's; without one its answers come along the calls."""
    short_cuts: ShortCuts = field(default_factory=ShortCuts)

    def path(self, hops: Sequence[RemoteHop], positions: int, *, relay: bool) -> RemotePath:
        """A session for so many ``positions`` over ``hops``. Nothing is sent yet."""
        answers = None
        if self.node_id and self.routes.short_cut_pays(hops):
            answers = AnswersTo(self.node_id, self.short_cuts, self.spawn)
        return RemotePath(
            hops,
            self.pool,
            relay=relay,
            call_s=self.call_s,
            positions=positions,
            vocab_size=self.vocab_size,
            model_hash=self.routes.model_hash,
            answers=answers,
        )


@dataclass(slots=True, eq=False)
class InFlight:
    """A message that was sent."""

    message: PathMessage
    sent_at: float
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    done: trio.Event = field(default_factory=trio.Event)
    answer: PathAnswer | None = None
    failure: HopFailed | MeshnodeError | None = None

    async def fly(self, path: RemotePath, spans: GenerationTrace | None) -> None:
        """Take the message along ``path``, in a span of the generation's trace if there is one."""
        try:
            with self.scope:
                self.answer = await self._forward(path, spans)
        except (HopFailed, MeshnodeError) as failure:
            self.failure = failure
        finally:
            self.done.set()

    async def _forward(self, path: RemotePath, spans: GenerationTrace | None) -> PathAnswer:
        call = None if spans is None else spans.calling(self.message.seq)
        if call is None:
            return await path.forward(self.message)
        reason = "cancelled"
        try:
            answer = await path.forward(self.message, call.metadata)
            reason = ""
            return answer
        except HopFailed as failure:
            reason = str(failure)
            raise
        finally:
            call.ended(reason)

    @property
    def answered(self) -> PathAnswer:
        """The answer. Raises the failure if there is one."""
        if self.failure is not None:
            raise self.failure
        if self.answer is None:
            raise AssertionError("a message that was given up was waited for")
        return self.answer
