"""Answers that the last holder of a path sends straight to the driver (decision 0219).

Terms: a message of a session is *expected* from when it is sent until its answer has come, either
along the calls or by the *short cut*.

Invariants: an answer counts only for a message that is expected, whose session and request ids only
the holders of the path know, and only the first one does; what is expected is bounded by what is in
flight.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import trio

from meshnode.services.pipeline.policy import HopFailed
from meshnode.wire import node_pb2 as pb


@dataclass(slots=True, eq=False)
class Expected:
    """The answer to one message, whichever way it comes first."""

    came: trio.Event = field(default_factory=trio.Event)
    answer: pb.SwarmForwardResponse | None = None
    failure: HopFailed | None = None
    short_cut: bool = False
    """Whether it came straight from the last holder."""
    calls: trio.CancelScope = field(default_factory=trio.CancelScope)
    """Of the call along the path."""

    def settle(
        self,
        answer: pb.SwarmForwardResponse | None,
        failure: HopFailed | None = None,
        *,
        short_cut: bool = False,
    ) -> bool:
        """Note what came, unless something has come before."""
        if self.came.is_set():
            return False
        self.answer, self.failure, self.short_cut = answer, failure, short_cut
        self.came.set()
        return True


class ShortCuts:
    """What a driver expects, and the operation by which answers come."""

    def __init__(self) -> None:
        self._expected: dict[tuple[str, str], Expected] = {}
        self.taken = 0
        """Answers that came by the short cut, and before the one along the calls."""

    def take(self, message: pb.SwarmForwardRequest) -> pb.SwarmForwardResponse:
        """Take an answer from a last holder; ``success`` says whether it was expected."""
        expected = self._expected.get((message.session_id, message.request_id))
        took = False
        if expected is not None and message.answer.success:
            took = expected.settle(message.answer, short_cut=True)
            self.taken += took
        return pb.SwarmForwardResponse(request_id=message.request_id, success=took)

    async def first(
        self,
        request: pb.SwarmForwardRequest,
        call: Callable[[], Awaitable[pb.SwarmForwardResponse]],
        spawn: Callable[[Callable[[], Awaitable[None]]], None],
    ) -> Expected:
        """Make a call along the path, and wait for what comes first, it or the short cut.

        Raises HopFailed if the call failed before any answer. After a short cut the call goes on in
        a task of its own: to cancel it would cost the holders more than its small answer.
        """
        with self._expecting(request) as expected:

            async def along() -> None:
                with expected.calls:
                    try:
                        expected.settle(await call())
                    except HopFailed as failure:
                        expected.settle(None, failure)

            spawn(along)
            try:
                await expected.came.wait()
            finally:
                if not expected.came.is_set():
                    expected.calls.cancel()
        if expected.failure is not None:
            raise expected.failure
        return expected

    @contextmanager
    def _expecting(self, request: pb.SwarmForwardRequest) -> Iterator[Expected]:
        key = request.session_id, request.request_id
        expected = self._expected[key] = Expected()
        try:
            yield expected
        finally:
            del self._expected[key]
