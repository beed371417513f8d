"""The node API's own state and its inference over HTTP (document, sections 2.1, 4.1, 5 and 6).

Checks come in this order: rate limit of the address, bearer token, rate limit of the token
(``http.access``), then whether the node drains, media type, body, rules of the request.

Nothing here owns state: each figure is asked of its owner at each request.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import trio
from quart import request

from meshnode.domain.errors import Unavailable
from meshnode.domain.inference_rules import generation_request, wants_stream
from meshnode.domain.metering import RewardFigures, TrainingFigures
from meshnode.domain.peers import role_of
from meshnode.domain.ratelimit import Rate, RateLimit, RateLimits
from meshnode.http.access import Access, bearer
from meshnode.http.app import Response, json_response
from meshnode.http.body import read_json_object
from meshnode.http.exchange import hold
from meshnode.http.inference import TRACE_HEADER, Trace, collect, stream
from meshnode.http.openapi import openapi_document
from meshnode.http.routes import Route
from meshnode.http.values import timestamp_now
from meshnode.services.process import ProcessGauge
from meshnode.services.wallet.serving import cost_of

if TYPE_CHECKING:
    from meshnode.config import LimitsConfig
    from meshnode.domain.generation import GenerationRequest
    from meshnode.domain.metering import TrafficMeter
    from meshnode.services.executor import Executor
    from meshnode.services.generation import Generation
    from meshnode.services.health import Health
    from meshnode.services.settings import Settings
    from meshnode.services.tokens import TokenStore
    from meshnode.services.wallet.charging import ChargedGeneration
    from meshnode.services.wallet.serving import Serving
    from meshnode.supervise import Drain

BASE = "/api/v1"
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


async def no_rewards() -> RewardFigures:
    """Those of a node without a ledger."""
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
    serving: Serving | None = None
    """Opens generations for tokens; without it the executor does, for nothing."""
    peer_count: Callable[[], int] = lambda: 0
    training: Callable[[], TrainingFigures] = TrainingFigures
    rewards: Callable[[], Awaitable[RewardFigures]] = no_rewards
    gauge: ProcessGauge = field(default_factory=ProcessGauge)

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
        hops = {"pipeline": asdict(self.serving.hops())} if self.serving is not None else {}
        return json_response(
            {
                "timestamp": timestamp_now(),
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
                "rewards": asdict(await self.rewards()),
                **hops,
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
        generation = await self._open(wanted)
        trace = self._trace()
        if streamed:
            return stream(await hold(generation), trace)
        async with generation:
            cost = partial(cost_of, generation)
            result = await collect(generation, self.facts.currency, cost)
        hops = trace(generation.id) if trace is not None else None
        return json_response(result, headers={TRACE_HEADER: hops} if hops else None)

    async def _open(self, wanted: GenerationRequest) -> Generation | ChargedGeneration:
        if self.serving is None:
            return await self.executor.open(wanted)
        return await self.serving.open(bearer(), wanted)

    def _trace(self) -> Trace | None:
        """Tells of the hops, if the client wants to know."""
        if self.serving is None or request.headers.get(TRACE_HEADER) != "1":
            return None
        return self.serving.trace

    async def get_openapi(self) -> Response:
        """The description of all this."""
        return json_response(openapi_document(self.facts.version))


ROUTES = (
    Route("GET", BASE + "/status", NodeApi.get_status),
    Route("GET", BASE + "/metrics", NodeApi.get_metrics),
    # So that a node under load is not taken for a dead one.
    Route("GET", BASE + "/health", NodeApi.get_health, limited=False),
    Route("POST", BASE + "/inference", NodeApi.post_inference, auth=True),
    Route("GET", BASE + "/layers", NodeApi.get_layers, auth=True),
    Route("GET", BASE + "/config", NodeApi.get_config, auth=True),
    Route("PATCH", BASE + "/config", NodeApi.patch_config, auth=True),
    Route("GET", "/openapi.json", NodeApi.get_openapi),
)


def node_access(tokens: TokenStore, limits: LimitsConfig) -> Access:
    """Who is let in, and how often, as the configuration says."""
    address = Rate(limits.requests_per_second_per_address, limits.burst_per_address)
    token = Rate(limits.requests_per_second_per_token, limits.burst_per_token)
    rates = RateLimits(per_address=RateLimit(address), per_token=RateLimit(token))
    return Access(tokens.authenticate, rates)
