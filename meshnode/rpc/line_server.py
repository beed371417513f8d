"""Serves calls that come over a line (decision 0263).

Terms: a *line* is a call whose messages are calls and answers; the calls *inside* it are unary ones
of the other services, and each is served by a task of its own, as if it had come by itself.

Invariants: a number is answered once, or never if its call was abandoned; what is held for the
calls inside is counted for the line; a line with calls inside is not idle.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from meshnode.rpc.caller import Exchange, current, enter
from meshnode.rpc.decoding import decode
from meshnode.rpc.errors import NOT_IMPLEMENTED, CallRefused, Code
from meshnode.rpc.line import ANSWER_BYTES, CALLS, REQUEST_BYTES
from meshnode.rpc.line_grpc import LineServicer
from meshnode.rpc.metadata import received_metadata
from meshnode.rpc.outcomes import outcome
from meshnode.wire import line_pb2 as pb

if TYPE_CHECKING:
    from meshnode.domain.metering import TrafficMeter
    from meshnode.rpc.calls import ServerCall
    from meshnode.rpc.stubs import Operation, Service


def line_service(services: Iterable[Service], traffic: TrafficMeter) -> Service:
    """The service that takes calls of the unary operations of ``services``, as they are now."""
    unary = {
        name: operation
        for service in services
        for name, operation in service.operations.items()
        if not (operation.takes_stream or operation.gives_stream)
    }

    async def serve(calls: AsyncIterator[pb.LineCall], line: ServerCall) -> None:
        await _Line(unary, traffic, line).run(calls)

    service = LineServicer().service
    calls = service.operations["Calls"]
    service.operations["Calls"] = replace(calls, handler=serve, carries=True)
    return service


class _Line:
    """One line, while it is open."""

    def __init__(
        self, operations: Mapping[str, Operation], traffic: TrafficMeter, line: ServerCall
    ) -> None:
        self._operations = operations
        self._traffic = traffic
        self._line = line
        self._outer = current()
        self._scopes: dict[int, trio.CancelScope] = {}
        """Of the calls inside, by number."""
        self._answering = trio.Lock()

    async def run(self, calls: AsyncIterator[pb.LineCall]) -> None:
        """Serve until the peer ends the line, and all calls inside have ended."""
        await self._line.send_message(pb.LineAnswer())
        refused: CallRefused | None = None
        async with trio.open_nursery() as nursery:
            try:
                async for call in calls:
                    if not call.operation:
                        self._abandon(call.number)
                    elif call.number not in self._scopes:
                        nursery.start_soon(self._serve, call, self._admit(call))
            except CallRefused as error:
                # The calls inside still end, for instance when the node stops.
                refused = error
        if refused is not None:
            raise refused

    def _abandon(self, number: int) -> None:
        scope = self._scopes.get(number)
        if scope is not None:
            scope.cancel()

    def _admit(self, call: pb.LineCall) -> trio.CancelScope | None:
        """Count a call; its scope, or None if there are too many, or too many bytes."""
        size = len(call.request)
        if len(self._scopes) >= CALLS or size > REQUEST_BYTES or not self._line.hold(size):
            return None
        self._outer.inside += 1
        self._traffic.rpc_calls += 1
        seconds = call.timeout_s if call.timeout_s > 0 else math.inf
        scope = trio.CancelScope(deadline=trio.current_time() + seconds)
        self._scopes[call.number] = scope
        return scope

    async def _serve(self, call: pb.LineCall, scope: trio.CancelScope | None) -> None:
        answer = pb.LineAnswer(number=call.number)
        if scope is None:
            answer.code, answer.message = Code.RESOURCE_EXHAUSTED, "too much at once on this line"
        elif (operation := self._operations.get(call.operation)) is None:
            answer.code, answer.message = NOT_IMPLEMENTED
            self._left(call)
        else:
            try:
                code = await self._fill(answer, call, operation, scope)
            finally:
                self._left(call)
            self._traffic.served[operation.name, code.name] += 1
            if code is Code.CANCELLED:
                return
        async with self._answering:
            await self._line.send_message(answer)

    def _left(self, call: pb.LineCall) -> None:
        del self._scopes[call.number]
        self._outer.inside -= 1
        self._line.release(len(call.request))

    async def _fill(
        self,
        answer: pb.LineAnswer,
        call: pb.LineCall,
        operation: Operation,
        scope: trio.CancelScope,
    ) -> Code:
        """Serve a call and fill in its answer; the status, CANCELLED if it was abandoned."""
        caller = replace(self._outer.caller, metadata=received_metadata(call.metadata.items()))
        exchange = Exchange(caller, {})
        enter(exchange)

        async def work() -> None:
            with scope:
                request = await decode(operation.request_type, bytearray(call.request), CallRefused)
                answer.response = (await operation.handler(request)).SerializeToString()

        code, text = await outcome(operation.name, work)
        if scope.cancelled_caught and code is Code.OK:
            if trio.current_time() < scope.deadline:
                return Code.CANCELLED
            code, text = Code.DEADLINE_EXCEEDED, "deadline exceeded"
        if code is Code.OK and len(answer.response) > ANSWER_BYTES:
            code, text = Code.RESOURCE_EXHAUSTED, "the answer is too large for a line"
        if code is not Code.OK:
            answer.ClearField("response")
        answer.code, answer.message = code, text
        answer.metadata.update(exchange.answer)
        return code
