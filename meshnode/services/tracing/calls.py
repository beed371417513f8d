"""Operations of the gRPC port whose calls have spans: inference, and steps for other nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshnode.rpc.caller import caller
from meshnode.rpc.errors import Code, status_of

if TYPE_CHECKING:
    from meshnode.rpc.stubs import Operation, Service
    from meshnode.services.tracing.tracer import Tracing

GENERATE = ("UnaryInference", "StreamInference")
FORWARD = ("PipelineForward", "SwarmForward")


def trace_calls(services: Iterable[Service], tracing: Tracing) -> None:
    """Let the operations above of these services record spans."""
    for service in services:
        for name in (*GENERATE, *FORWARD):
            if (operation := service.operations.get(name)) is not None:
                service.operations[name] = _traced(operation, tracing)


def _traced(operation: Operation, tracing: Tracing) -> Operation:
    name, inner = operation.name, operation.handler
    begin = tracing.generating_call if name in GENERATE else tracing.forward_call

    def handler(argument: Any) -> Any:
        served = begin(name, caller())
        answer = inner(argument)
        if served is None:
            return answer
        end = _end_of(tracing, served)
        return _many(answer, end) if operation.gives_stream else _one(answer, end)

    return replace(operation, handler=handler)


def _end_of(tracing: Tracing, served: Any) -> Callable[[str], None]:
    def end(status: str) -> None:
        tracing.call_ended(served, status)

    return end


async def _one(answer: Awaitable[Any], end: Callable[[str], None]) -> Any:
    """The only answer of an operation."""
    status = Code.CANCELLED.name
    try:
        message = await answer
        # A step that failed is answered with ``success`` false (interface 2.3).
        failed = not getattr(message, "success", True)
        status = (Code.INTERNAL if failed else Code.OK).name
        return message
    except Exception as error:
        status = status_of(error)[0].name
        raise
    finally:
        end(status)


async def _many(answers: AsyncIterator[Any], end: Callable[[str], None]) -> AsyncIterator[Any]:
    """The answers of an operation that gives many."""
    status = Code.CANCELLED.name
    try:
        async with aclosing(answers) as each:  # type: ignore[type-var]
            async for message in each:
                yield message
        status = Code.OK.name
    except Exception as error:
        status = status_of(error)[0].name
        raise
    finally:
        end(status)
