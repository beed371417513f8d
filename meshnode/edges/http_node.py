"""The node API's own state and its inference over HTTP (interface 2.1, 4.1, 5 and 6).

Checks come in this order: rate limit of the address, bearer token, rate limit of the token
(``http.access``), then whether the node drains, media type, body, rules of the request.

Nothing here owns state: each request reads the figures from their owners.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, cast

import trio
from quart import request

from meshnode.domain.errors import Unavailable
from meshnode.domain.inference_rules import generation_request, ignored_keys, wants_stream
from meshnode.domain.metering import RewardFigures, TrainingFigures
from meshnode.domain.peers import role_of
from meshnode.domain.ratelimit import Rate, RateLimit, RateLimits
from meshnode.domain.tokens import Scope
from meshnode.domain.units import MEBIBYTE
from meshnode.http.access import Access, bearer
from meshnode.http.app import Response, json_response
from meshnode.http.body import read_json_object
from meshnode.http.exchange import hold, request_record
from meshnode.http.inference import (
    INFERENCE_EVENT,
    TRACE_HEADER,
    InferenceResult,
    Trace,
    collect,
    stream,
)
from meshnode.http.node_bodies import (
    ConfigurationChanged,
    HealthAnswer,
    HealthChecks,
    InferenceMetrics,
    InferenceRequest,
    LayerEntry,
    Layers,
    Metrics,
    NodeStatus,
    PipelineMetrics,
    RewardMetrics,
)
from meshnode.http.routes import JSON_TYPE, Reply, Route
from meshnode.http.schema import NamedSchema
from meshnode.http.values import timestamp_now
from meshnode.services.process import ProcessGauge
from meshnode.services.settings import configuration_schema, patch_schema
from meshnode.services.wallet.serving import cost_of
from meshnode.wire import sse

if TYPE_CHECKING:
    from meshnode.config import LimitsConfig
    from meshnode.domain.metering import TrafficMeter
    from meshnode.http.fields import Role
    from meshnode.http.site_guard import SiteGuard
    from meshnode.services.executor import Executor
    from meshnode.services.health import Health
    from meshnode.services.pipeline.records import HopRecorder
    from meshnode.services.settings import Settings
    from meshnode.services.tokens import TokenStore
    from meshnode.services.wallet.serving import Serving
    from meshnode.supervise import Drain

BASE = "/api/v1"


CONFIGURATION = NamedSchema("Configuration", configuration_schema())
CONFIGURATION_PATCH = NamedSchema("ConfigurationPatch", patch_schema())


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What does not change while the node runs."""

    node_id: str
    version: str
    currency: str
    """Code of the network's currency, ``<TOKEN_CODE>`` in the document."""
    started_at: float
    """Seconds of Trio's clock."""


async def no_rewards() -> RewardFigures:
    """The reward figures of a node without a ledger."""
    return RewardFigures()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeApi:
    """The owners that the routes ask, and the routes."""

    facts: NodeFacts
    settings: Settings
    executor: Executor
    health: Health
    traffic: TrafficMeter
    drain: Drain
    serving: Serving
    hops: HopRecorder
    peer_count: Callable[[], int] = lambda: 0
    training: Callable[[], TrainingFigures] = TrainingFigures
    rewards: Callable[[], Awaitable[RewardFigures]] = no_rewards
    gauge: ProcessGauge = field(default_factory=ProcessGauge)

    async def get_status(self) -> Response:
        """Node status (interface 2.1)."""
        card, training, gpu = self.executor.card, self.training(), self.executor.gpu_memory
        answer: NodeStatus = {
            "node_id": self.facts.node_id,
            "version": self.facts.version,
            "uptime_seconds": math.floor(trio.current_time() - self.facts.started_at),
            "status": "draining" if self.drain.draining else "running",
            "role": cast("Role", role_of(card.layers, card.num_layers)),
            "layers": list(card.layers),
            "peer_count": self.peer_count(),
            "training": {
                "enabled": self.settings.current.training.enabled,
                "epoch": training.epoch,
                "step": training.step,
                "loss": training.loss,
            },
            "resources": {
                "gpu_memory_used": gpu.used,
                "gpu_memory_total": gpu.total,
                "cpu_percent": self.gauge.cpu_percent(),
                "ram_used": self.gauge.ram_used(),
            },
        }
        return json_response(answer)

    async def get_metrics(self) -> Response:
        """Metrics (interface 2.1)."""
        training, traffic = self.training(), self.traffic
        inference = self.executor.meter.snapshot(trio.current_time())
        answer: Metrics = {
            "timestamp": timestamp_now(),
            "inference": cast("InferenceMetrics", asdict(inference)),
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
            "rewards": cast("RewardMetrics", asdict(await self.rewards())),
            "pipeline": cast("PipelineMetrics", asdict(self.hops.figures())),
        }
        return json_response(answer)

    async def get_health(self) -> Response:
        """Health (interface 2.1); 503 when the node is not fit to be sent work."""
        report = self.health.report()
        checks = cast("HealthChecks", report.checks)
        value: HealthAnswer = {"healthy": report.healthy, "checks": checks}
        return json_response(value, 200 if report.healthy else 503)

    async def get_layers(self) -> Response:
        """The model's layers that this node holds."""
        card = self.executor.card
        layers: list[LayerEntry] = [
            {
                "index": index,
                "type": "transformer",
                # Rounded up: a layer that is there takes some memory.
                "memory_mb": math.ceil(card.layer_bytes.get(index, 0) / MEBIBYTE),
                "status": "active",
            }
            for index in card.layers
        ]
        answer: Layers = {
            "layers": layers,
            "total_layers": card.num_layers,
            "my_layer_count": len(layers),
        }
        return json_response(answer)

    async def get_config(self) -> Response:
        """Configuration (interface 2.1)."""
        return json_response(self.settings.document())

    async def patch_config(self) -> Response:
        """Change some keys of the configuration, all or none of them."""
        result = await self.settings.patch(await read_json_object(request))
        answer: ConfigurationChanged = {
            "success": True,
            "updated": result.updated,
            "restart_required": result.restart_required,
        }
        return json_response(answer)

    async def post_inference(self) -> Response:
        """Generate text: an inference result, or a stream of events (interface 2.1, 6)."""
        if self.drain.draining:
            raise Unavailable("the node is draining")
        fields = await read_json_object(request)
        wanted, streamed = generation_request(fields), wants_stream(fields)
        request_record().streamed = streamed
        generation = await self.serving.open(bearer(), wanted)
        trace = self._trace()
        if streamed:
            return stream(await hold(generation), trace, ignored_keys(fields))
        async with generation:
            cost = partial(cost_of, generation)
            result = await collect(generation, self.facts.currency, cost, ignored_keys(fields))
        hops = trace(generation.id) if trace is not None else None
        return json_response(result, headers={TRACE_HEADER: hops} if hops else None)

    def _trace(self) -> Trace | None:
        """The function that returns the times of the hops, if the client asked for them."""
        return self.hops.line if request.headers.get(TRACE_HEADER) == "1" else None


ROUTES = (
    Route(
        "GET",
        BASE + "/status",
        NodeApi.get_status,
        "Node status",
        NodeStatus,
        name="getStatus",
        prompt=True,
    ),
    Route("GET", BASE + "/metrics", NodeApi.get_metrics, "Metrics", Metrics, name="getMetrics"),
    Route(
        "GET",
        BASE + "/health",
        NodeApi.get_health,
        "Health; never rate limited",
        (
            Reply(200, "Success.", {JSON_TYPE: HealthAnswer}),
            Reply(
                503,
                "The node is not fit to be sent work, or it is draining.",
                {JSON_TYPE: HealthAnswer},
            ),
        ),
        name="getHealth",
        # A monitor that got 429 would take a busy node for a dead one.
        limited=False,
        prompt=True,
    ),
    Route(
        "POST",
        BASE + "/inference",
        NodeApi.post_inference,
        "Generate text, as one answer or as a stream of events",
        (
            Reply(
                200,
                "Success.",
                {JSON_TYPE: InferenceResult, sse.MEDIA_TYPE: INFERENCE_EVENT},
            ),
        ),
        name="createInference",
        scope=Scope.INFER,
        body=InferenceRequest,
        example={"prompt": "Once upon a time", "max_tokens": 16, "temperature": 0.7},
        errors=(402, 503),
    ),
    Route(
        "GET",
        BASE + "/layers",
        NodeApi.get_layers,
        "Layers held by this node",
        Layers,
        name="getLayers",
        scope=Scope.READ,
    ),
    Route(
        "GET",
        BASE + "/config",
        NodeApi.get_config,
        "Configuration",
        CONFIGURATION,
        name="getConfig",
        scope=Scope.READ,
    ),
    Route(
        "PATCH",
        BASE + "/config",
        NodeApi.patch_config,
        "Change some keys of the configuration, all or none of them",
        ConfigurationChanged,
        name="patchConfig",
        scope=Scope.ADMIN,
        body=CONFIGURATION_PATCH,
        example={"training": {"batch_size": 16}},
    ),
)


def node_rates(limits: LimitsConfig) -> RateLimits:
    """The rate limits that the configuration sets."""
    address = Rate(limits.requests_per_second_per_address, limits.burst_per_address)
    token = Rate(limits.requests_per_second_per_token, limits.burst_per_token)
    return RateLimits(per_address=RateLimit(address), per_token=RateLimit(token))


def node_access(tokens: TokenStore, limits: LimitsConfig, guard: SiteGuard | None = None) -> Access:
    """Authentication by ``tokens``, and the rate limits that the configuration sets."""
    return Access(tokens.authenticate, node_rates(limits), guard)
