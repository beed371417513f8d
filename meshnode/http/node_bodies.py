"""Bodies of the node's own routes and of inference requests (interface 2.1 and 4.1)."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from meshnode.domain.generation import (
    DEFAULT_MAX_TOKENS,
    DEFAULT_TEMPERATURE,
    DEFAULT_TOP_K,
    DEFAULT_TOP_P,
)
from meshnode.domain.inference_rules import (
    MAX_COUNT,
    MAX_SEED,
    MAX_STOP_CHARS,
    MAX_STOP_STRINGS,
    MAX_TEMPERATURE,
)
from meshnode.http.fields import Amount, Count, Percent, Role, Timestamp
from meshnode.http.schema import Limits, extensible


class StatusTraining(TypedDict):
    """The training part of the node status."""

    enabled: bool
    epoch: Count
    step: Count
    loss: float


class StatusResources(TypedDict):
    """The resources part of the node status."""

    gpu_memory_used: Count
    gpu_memory_total: Count
    cpu_percent: Percent
    ram_used: Count


class NodeStatus(TypedDict):
    """Node status (interface 2.1)."""

    node_id: str
    version: str
    uptime_seconds: Count
    status: Literal["running", "draining"]
    role: Role
    layers: list[Count]
    peer_count: Count
    training: StatusTraining
    resources: StatusResources


class InferenceMetrics(TypedDict):
    """The inference part of the metrics."""

    requests_total: Count
    requests_per_minute: Amount
    avg_latency_ms: Amount
    p99_latency_ms: Amount
    tokens_generated: Count


class TrainingMetrics(TypedDict):
    """The training part of the metrics."""

    steps_total: Count
    steps_per_hour: Count
    gradients_submitted: Count
    gradients_accepted: Count


class NetworkMetrics(TypedDict):
    """The network part of the metrics."""

    bytes_sent: Count
    bytes_received: Count
    active_connections: Count
    rpc_calls: Count


class RewardMetrics(TypedDict):
    """The rewards part of the metrics."""

    earned_today: Amount
    earned_total: Amount
    pending: Amount


class PipelineMetrics(TypedDict):
    """What the hops of this node's generations took (decision 0039)."""

    generations: Count
    failovers: Count
    hop_queue_ms: Amount
    hop_compute_ms: Amount
    hop_network_ms: Amount
    hop_network_p99_ms: Amount


class Metrics(TypedDict):
    """Metrics (interface 2.1)."""

    timestamp: Timestamp
    inference: InferenceMetrics
    training: TrainingMetrics
    network: NetworkMetrics
    rewards: RewardMetrics
    pipeline: PipelineMetrics


class HealthChecks(TypedDict):
    """A word for each check (decision 0004)."""

    gpu: str
    network: str
    storage: str
    peers: str
    clock: NotRequired[str]
    """Only while this machine's clock cannot be right (decision 0136)."""


class HealthAnswer(TypedDict):
    """Health (interface 2.1)."""

    healthy: bool
    checks: HealthChecks


class LayerEntry(TypedDict):
    """One layer that the node holds."""

    index: Count
    type: Literal["transformer"]
    memory_mb: Count
    status: Literal["active"]


class Layers(TypedDict):
    """Layer information (interface 2.1)."""

    layers: list[LayerEntry]
    total_layers: Count
    my_layer_count: Count


class ConfigurationChanged(TypedDict):
    """The answer to a change of the configuration (interface 2.1)."""

    success: Literal[True]
    updated: list[str]
    restart_required: bool


@extensible
class InferenceRequest(TypedDict):
    """The body of an inference request (interface 4.1)."""

    prompt: Annotated[str, Limits(min_length=1)]
    max_tokens: NotRequired[
        Annotated[int, Limits(minimum=1, maximum=MAX_COUNT, default=DEFAULT_MAX_TOKENS)]
    ]
    temperature: NotRequired[
        Annotated[
            float,
            Limits(
                minimum=0,
                maximum=MAX_TEMPERATURE,
                default=DEFAULT_TEMPERATURE,
                description="0 always takes the most probable token.",
            ),
        ]
    ]
    top_p: NotRequired[Annotated[float, Limits(minimum=0, maximum=1, default=DEFAULT_TOP_P)]]
    top_k: NotRequired[
        Annotated[
            int,
            Limits(
                minimum=0,
                maximum=MAX_COUNT,
                default=DEFAULT_TOP_K,
                description="0 switches the limit off.",
            ),
        ]
    ]
    stream: NotRequired[Annotated[bool, Limits(default=False)]]
    stop: NotRequired[
        Annotated[
            list[Annotated[str, Limits(min_length=1, max_length=MAX_STOP_CHARS)]],
            Limits(max_items=MAX_STOP_STRINGS, default=()),
        ]
    ]
    seed: NotRequired[
        Annotated[
            int, Limits(minimum=0, maximum=MAX_SEED, description="Makes sampling repeatable.")
        ]
    ]
