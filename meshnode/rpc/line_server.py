"""Serves calls that come over a line (decision 0263).

Terms: a *line* is a call whose messages are calls and answers; the calls *inside* it are unary ones
of the other services, and each is served by a task of its own, as if it had come by itself.

Invariants: a number is answered once, or never if its call was abandoned; what is held for the
calls inside is counted for the line; a line with calls inside is not idle; no address has more
calls inside its lines than it may have calls. What is refused is answered before the next call is
read, so that a peer that reads no answers is not read either.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from meshnode.rpc.caller import Exchange, current, enter
from meshnode.rpc.decoding import decode
from meshnode.rpc.errors import NOT_IMPLEMENTED, CallRefused, Code
from meshnode.rpc.line import ANSWER_BYTES, CALLS, REQUEST_BYTES
from meshnode.rpc.line_grpc import LineServicer
from meshnode.rpc.metadata import CONVOY, received_metadata
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

    inside = Counter[str]()

    async def serve(calls: AsyncIterator[pb.LineCall], line: ServerCall) -> None:
        await _Line(unary, traffic, inside, line).run(calls)

    service = LineServicer().service
    calls = service.operations["Calls"]
    service.operations["Calls"] = replace(calls, handler=serve, carries=True)
    return service


class _Line:
    """One line, while it is open."""

    def __init__(
        self,
        operations: Mapping[str, Operation],
        traffic: TrafficMeter,
        inside: Counter[str],
        line: ServerCall,
    ) -> None:
        self._operations = operations
        self._traffic = traffic
        self._inside = inside
        """Calls inside all lines, by the address of the caller."""
        self._line = line
        self._outer = current()
        self._scopes: dict[int, trio.CancelScope] = {}
        """Of the calls inside, by number."""
        self._answering = trio.Lock()
        self._refused: CallRefused | None = None
        """Why the line ends, if its caller has not ended it."""
        self._ending = trio.CancelScope()
        """Of all calls inside."""

    async def run(self, calls: AsyncIterator[pb.LineCall]) -> None:
        """Serve until the peer ends the line, and all calls inside have ended."""
        await self._line.send_message(pb.LineAnswer())
        async with trio.open_nursery() as nursery:
            self._ending = nursery.cancel_scope
            try:
                async for call in calls:
                    if not call.operation:
                        self._abandon(call.number)
                    elif call.number not in self._scopes:
                        await self._begin(nursery, call)
            except CallRefused as error:
                # The calls inside still end, for instance when the node stops.
                self._refused = error
        if self._refused is not None:
            raise self._refused

    async def _begin(self, nursery: trio.Nursery, call: pb.LineCall) -> None:
        operation = self._operations.get(call.operation)
        if operation is None:
            await self._refuse(call, *NOT_IMPLEMENTED)
            return
        scope = self._admit(call)
        if scope is None:
            await self._refuse(call, Code.RESOURCE_EXHAUSTED, "too much at once on this line")
            return
        nursery.start_soon(self._serve, call, operation, scope)

    async def _refuse(self, call: pb.LineCall, code: Code, message: str) -> None:
        await self._send(pb.LineAnswer(number=call.number, code=code, message=message))

    async def _send(self, answer: pb.LineAnswer, *, together: bool = False) -> None:
        # What fits is sent whole, so it waits for no other answer that is on its way.
        if not self._answering.locked() and self._line.fits(answer.ByteSize()):
            self._line.send_at_once(answer, together=together)
            return
        async with self._answering:
            try:
                await self._line.send_message(answer)
            except CallRefused as error:
                # The peer takes no answers, so none has to be computed.
                self._refused = error
                self._ending.cancel()

    def _abandon(self, number: int) -> None:
        scope = self._scopes.get(number)
        if scope is not None:
            scope.cancel()

    def _admit(self, call: pb.LineCall) -> trio.CancelScope | None:
        """Count a call; its scope, or None if there are too many, or too many bytes."""
        size, ip = len(call.request), self._line.ip
        full = len(self._scopes) >= CALLS or self._inside[ip] >= self._line.most_inside
        if full or size > REQUEST_BYTES or not self._line.hold(size):
            return None
        self._inside[ip] += 1
        self._outer.inside += 1
        self._traffic.rpc_calls += 1
        seconds = call.timeout_s if call.timeout_s > 0 else math.inf
        scope = trio.CancelScope(deadline=trio.current_time() + seconds)
        self._scopes[call.number] = scope
        return scope

    async def _serve(
        self, call: pb.LineCall, operation: Operation, scope: trio.CancelScope
    ) -> None:
        answer = pb.LineAnswer(number=call.number)
        try:
            code = await self._fill(answer, call, operation, scope)
        finally:
            self._left(call)
        self._traffic.served[operation.name, code.name] += 1
        if code is not Code.CANCELLED:
            await self._send(answer, together=CONVOY in call.metadata and bool(self._scopes))

    def _left(self, call: pb.LineCall) -> None:
        del self._scopes[call.number]
        self._outer.inside -= 1
        self._inside[self._line.ip] -= 1
        if not self._inside[self._line.ip]:
            del self._inside[self._line.ip]
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
