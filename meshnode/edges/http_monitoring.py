"""``GET /metrics`` for Prometheus (decision 0170).

A request from this machine needs no token, unless a proxy passed it on; any other needs one, since
the figures show a node's load and earnings. With the setting ``public_metrics`` nobody needs one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from quart import request

from meshnode.domain.connections import is_here
from meshnode.domain.tokens import Scope
from meshnode.http.app import Response
from meshnode.http.routes import Reply, Route

if TYPE_CHECKING:
    from meshnode.http.access import Access
    from meshnode.services.monitoring import Monitor

TEXT_TYPE = "text/plain"
FORWARDED = ("Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via")
"""Headers by which a proxy shows that a request is not its own."""


@dataclass(frozen=True, slots=True)
class MonitoringApi:
    """The route's owners."""

    monitor: Monitor
    access: Access
    public: bool

    async def get_metrics(self) -> Response:
        """All metrics, in Prometheus' text format."""
        if not self.public and not _is_local():
            self.access.authorize(Scope.READ)
        body, content_type = self.monitor.encode()
        response = Response(body, content_type=content_type)
        response.headers["Cache-Control"] = "no-store"
        return response


def _is_local() -> bool:
    """Whether the client is a program on this machine, by its connection."""
    if any(name in request.headers for name in FORWARDED):
        return False
    client = request.scope["client"]
    return client is not None and is_here(client[0])


ROUTES = (
    Route(
        "GET",
        "/metrics",
        MonitoringApi.get_metrics,
        "Metrics for Prometheus; a bearer token is needed unless the client is on this machine",
        (Reply(200, "Success.", {TEXT_TYPE: str}),),
        name="getPrometheusMetrics",
        private=True,
        errors=(401, 403),
    ),
)
