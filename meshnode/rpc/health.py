"""The standard health service, ``grpc.health.v1.Health``: for load balancers and orchestrators.

The whole server (the empty name) and the registered services are SERVING until the node drains,
then NOT_SERVING. For any other name ``Check`` fails with NOT_FOUND, and ``Watch`` answers
SERVICE_UNKNOWN once and stays open, as the protocol requires.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import replace

import trio

from meshnode.rpc.errors import CallRefused, Code
from meshnode.rpc.health_grpc import HealthServicer as Generated
from meshnode.rpc.stubs import Service
from meshnode.wire import health_pb2 as pb

WHOLE_SERVER = ""


class HealthServicer(Generated):
    """Reports the node's health for each of the named services."""

    def __init__(
        self,
        *,
        services: Iterable[str],
        serving: Callable[[], bool],
        wait_stopping: Callable[[], Awaitable[None]],
    ) -> None:
        """``wait_stopping`` returns when ``serving`` becomes false, which happens at most once."""
        self._services = {WHOLE_SERVER, *services}
        self._serving = serving
        self._wait_stopping = wait_stopping

    async def Check(  # noqa: N802 - the protocol's name
        self, input_message: pb.HealthCheckRequest
    ) -> pb.HealthCheckResponse:
        """Return the current state."""
        if input_message.service not in self._services:
            raise CallRefused(Code.NOT_FOUND, "unknown service")
        return self._state()

    async def Watch(  # noqa: N802 - the protocol's name
        self, input_message: pb.HealthCheckRequest
    ) -> AsyncIterator[pb.HealthCheckResponse]:
        """Yield the current state, and each later one."""
        if input_message.service not in self._services:
            yield pb.HealthCheckResponse(status=pb.HealthCheckResponse.SERVICE_UNKNOWN)
            await trio.sleep_forever()
        state = self._state()
        yield state
        if state.status == pb.HealthCheckResponse.SERVING:
            await self._wait_stopping()
            yield self._state()
        await trio.sleep_forever()

    @property
    def service(self) -> Service:
        """The operations; a watch never ends by itself."""
        service = super().service
        service.operations["Watch"] = replace(service.operations["Watch"], ends=False)
        return service

    def _state(self) -> pb.HealthCheckResponse:
        serving = self._serving()
        kinds = pb.HealthCheckResponse
        return kinds(status=kinds.SERVING if serving else kinds.NOT_SERVING)
