"""The node API over HTTP (document, sections 2.1, 4.1, 5 and 6), as far as it exists.

Routes are one table, ``ROUTES``; the OpenAPI document describes exactly these. Checks come in this
order: rate limit of the address, bearer token, rate limit of the token, whether the node drains,
media type, body, rules of the request. ``/health`` has no rate limit, so that a node under load is
not taken for a dead one. Addresses are those of the connections: a forwarded one is not believed.

Nothing here owns state: each figure is asked of its owner at each request.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import trio
from quart import request

from meshnode.domain.errors import Unavailable
from meshnode.domain.inference_rules import generation_request, wants_stream
from meshnode.domain.metering import RewardFigures, TrainingFigures
from meshnode.domain.ratelimit import Rate, RateLimit, RateLimits, address_key
from meshnode.domain.tokens import bearer_secret
from meshnode.http.app import QuartTrio, Response, json_response, make_app
from meshnode.http.body import read_json_object
from meshnode.http.exchange import hold
from meshnode.http.inference import collect, stream
from meshnode.http.openapi import openapi_document
from meshnode.services.process import ProcessGauge

if TYPE_CHECKING:
    from meshnode.config import LimitsConfig
    from meshnode.domain.metering import TrafficMeter
    from meshnode.services.executor import Executor
    from meshnode.services.health import Health
    from meshnode.services.settings import Settings
    from meshnode.services.tokens import TokenStore
    from meshnode.supervise import Drain

BASE = "/api/v1"
HEALTH_PATH = BASE + "/health"
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What does not change while the node runs."""

    node_id: str
    version: str
    currency: str
    """Code of the network's currency, ``<TOKEN_CODE>`` in the document."""
    started_at: float
    """Seconds of Trio's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeApi:
    """The owners that the routes ask, and the routes."""

    facts: NodeFacts
    settings: Settings
    executor: Executor
    tokens: TokenStore
    limits: RateLimits
    health: Health
    traffic: TrafficMeter
    drain: Drain
    peer_count: Callable[[], int]
    training: Callable[[], TrainingFigures]
    rewards: Callable[[], RewardFigures]
    gauge: ProcessGauge

    async def limit_address(self) -> None:
        """Count a request against its address."""
        if request.path != HEALTH_PATH:
            client = request.scope["client"]
            key = address_key(client[0]) if client else "local"
            self.limits.per_address.check(key, trio.current_time())

    def authorize(self) -> None:
        """Recognise the bearer token, and count the request against it."""
        secret = bearer_secret(request.headers.get("Authorization"))
        record = self.tokens.authenticate(secret)
        self.limits.per_token.check(record.id, trio.current_time())

    async def get_status(self) -> Response:
        """Node status (2.1)."""
        card, training = self.executor.card, self.training()
        return json_response(
            {
                "node_id": self.facts.node_id,
                "version": self.facts.version,
                "uptime_seconds": math.floor(trio.current_time() - self.facts.started_at),
                "status": "draining" if self.drain.draining else "running",
                "role": role_of(card.layers, card.num_layers),
                "layers": list(card.layers),
                "peer_count": self.peer_count(),
                "training": {
                    "enabled": self.settings.current.training.enabled,
                    "epoch": training.epoch,
                    "step": training.step,
                    "loss": training.loss,
                },
                "resources": {
                    "gpu_memory_used": self.executor.gpu_memory_used,
                    "gpu_memory_total": self.executor.gpu_memory_total,
                    "cpu_percent": self.gauge.cpu_percent(),
                    "ram_used": self.gauge.ram_used(),
                },
            }
        )

    async def get_metrics(self) -> Response:
        """Metrics (2.1)."""
        training, traffic = self.training(), self.traffic
        return json_response(
            {
                "timestamp": _timestamp(),
                "inference": asdict(self.executor.meter.snapshot(trio.current_time())),
                "training": {
                    "steps_total": training.steps_total,
                    "steps_per_hour": training.steps_per_hour,
                    "gradients_submitted": training.gradients_submitted,
                    "gradients_accepted": training.gradients_accepted,
                },
                "network": {
                    "bytes_sent": traffic.bytes_sent,
                    "bytes_received": traffic.bytes_received,
                    "active_connections": traffic.active_connections,
                    "rpc_calls": traffic.rpc_calls,
                },
                "rewards": asdict(self.rewards()),
            }
        )

    async def get_health(self) -> Response:
        """Health (2.1); 503 when the node is not fit to be sent work."""
        report = self.health.report()
        value = {"healthy": report.healthy, "checks": report.checks}
        return json_response(value, 200 if report.healthy else 503)

    async def get_layers(self) -> Response:
        """The model's layers that this node holds."""
        card = self.executor.card
        layers = [
            {
                "index": index,
                "type": "transformer",
                # Rounded up: a layer that is there takes some memory.
                "memory_mb": math.ceil(card.layer_bytes.get(index, 0) / MIB),
                "status": "active",
            }
            for index in card.layers
        ]
        return json_response(
            {"layers": layers, "total_layers": card.num_layers, "my_layer_count": len(layers)}
        )

    async def get_config(self) -> Response:
        """Configuration (2.1)."""
        return json_response(self.settings.document())

    async def patch_config(self) -> Response:
        """Change some keys of the configuration, all or none of them."""
        result = await self.settings.patch(await read_json_object(request))
        return json_response(
            {
                "success": True,
                "updated": result.updated,
                "restart_required": result.restart_required,
            }
        )

    async def post_inference(self) -> Response:
        """Generate text: an inference result (2.1), or a stream of events (6)."""
        if self.drain.draining:
            raise Unavailable("the node is draining")
        fields = await read_json_object(request)
        wanted, streamed = generation_request(fields), wants_stream(fields)
        generation = await self.executor.open(wanted)
        if streamed:
            return stream(await hold(generation))
        async with generation:
            return json_response(await collect(generation, self.facts.currency))

    async def get_openapi(self) -> Response:
        """The description of all this."""
        return json_response(openapi_document(self.facts.version))


Handler = Callable[[NodeApi], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Route:
    """One operation. ``auth`` routes need a bearer token."""

    method: str
    path: str
    auth: bool
    handler: Handler


ROUTES = (
    Route("GET", BASE + "/status", False, NodeApi.get_status),
    Route("GET", BASE + "/metrics", False, NodeApi.get_metrics),
    Route("GET", HEALTH_PATH, False, NodeApi.get_health),
    Route("POST", BASE + "/inference", True, NodeApi.post_inference),
    Route("GET", BASE + "/layers", True, NodeApi.get_layers),
    Route("GET", BASE + "/config", True, NodeApi.get_config),
    Route("PATCH", BASE + "/config", True, NodeApi.patch_config),
    Route("GET", "/openapi.json", False, NodeApi.get_openapi),
)


def node_app(
    *,
    facts: NodeFacts,
    settings: Settings,
    executor: Executor,
    tokens: TokenStore,
    health: Health,
    traffic: TrafficMeter,
    drain: Drain,
    peer_count: Callable[[], int] = lambda: 0,
    training: Callable[[], TrainingFigures] = TrainingFigures,
    rewards: Callable[[], RewardFigures] = RewardFigures,
) -> QuartTrio:
    """The ASGI application of the node API. Limits are those of ``settings`` at this moment."""
    limits = settings.current.limits
    api = NodeApi(
        facts=facts,
        settings=settings,
        executor=executor,
        tokens=tokens,
        limits=rate_limits(limits),
        health=health,
        traffic=traffic,
        drain=drain,
        peer_count=peer_count,
        training=training,
        rewards=rewards,
        gauge=ProcessGauge(),
    )
    app = make_app(max_body_bytes=limits.max_body_bytes)
    app.before_request(api.limit_address)
    for route in ROUTES:
        endpoint = f"{route.method} {route.path}"
        app.add_url_rule(route.path, endpoint, _view(api, route), methods=[route.method])
    return app


def _view(api: NodeApi, route: Route) -> Callable[[], Awaitable[Response]]:
    async def view() -> Response:
        if route.auth:
            api.authorize()
        return await route.handler(api)

    return view


def rate_limits(limits: LimitsConfig) -> RateLimits:
    """The buckets that the configuration asks for."""
    address = Rate(limits.requests_per_second_per_address, limits.burst_per_address)
    token = Rate(limits.requests_per_second_per_token, limits.burst_per_token)
    return RateLimits(per_address=RateLimit(address), per_token=RateLimit(token))


def role_of(layers: tuple[int, ...], total: int) -> str:
    """The role that follows from the layers held (section 2.3: "driver only", "validator").

    The driver has the embedding, which goes with the first layer; the validator has the head, which
    goes with the last. A node that holds all layers drives.
    """
    if 0 in layers:
        return "driver"
    return "validator" if total - 1 in layers else "worker"


def _timestamp() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
