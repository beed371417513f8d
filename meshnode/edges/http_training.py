"""The training-verification routes (interface 2.1 and 4.1; no version prefix)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypedDict, cast

from meshnode.http.app import Response, json_response
from meshnode.http.fields import Count, Share, Trend
from meshnode.http.routes import Route
from meshnode.services.training.overview import GlobalTraining, survey

if TYPE_CHECKING:
    from meshnode.domain.metering import TrafficMeter
    from meshnode.services.training.trainer import TrainingService
    from meshnode.services.versions.service import ServedVersions
    from meshnode.wire import node_pb2 as pb


class LocalTraining(TypedDict):
    """What this node has trained."""

    node_id: str
    training_rounds: Count
    current_loss: float
    is_training: bool


class DilocoState(TypedDict):
    """Where this node is in its round."""

    enabled: bool
    inner_step_count: Count
    inner_steps_total: Count
    progress: Share
    outer_step_count: Count


class GlobalVerification(TypedDict):
    """Global training verification (interface 2.1)."""

    global_avg_loss: float
    global_min_loss: float
    hash_agreement_rate: Share
    total_nodes_training: Count
    successful_syncs: Count
    failed_syncs: Count
    sync_success_rate: Share
    global_steps: Count
    global_tokens: Count
    data_shards_covered: list[Count]
    is_converging: bool
    training_verified: bool
    loss_trend: Trend
    local: LocalTraining
    diloco: DilocoState


class WorkingMetrics(TypedDict):
    """What shows that training works."""

    loss_trend: Trend
    hash_agreement: str
    global_loss: float


class TrainingWorks(TypedDict):
    """Quick verification, when training works (interface 2.1)."""

    is_working: Literal[True]
    reason: str
    metrics: WorkingMetrics


class TrainingProblem(TypedDict):
    """Quick verification, when training does not work (interface 2.1)."""

    is_working: Literal[False]
    reason: str
    action: str


class ServedWeights(TypedDict):
    """The version of the weights that new generations get (decision 0225)."""

    setting: str
    version: Count
    model_hash: str
    held_out_loss: float | None
    waiting: str
    """Why a newer version is not served yet; empty if none waits."""


class TrainingNode(TypedDict):
    """One node of the training, as it reports itself."""

    node_id: str
    state: str
    round: Count
    version: Count
    weights_hash: str
    loss: float
    held_out_loss: float
    steps: Count
    tokens: Count
    syncs: Count
    failed_syncs: Count


class TrainingState(TypedDict):
    """The training of this node and of those that it knows (decision 0228)."""

    node_id: str
    enabled: bool
    problem: str
    steps_done: Count
    steps_in_round: Count
    dropped_rounds: Count
    losses: list[float]
    """Held-out losses of the weights that were kept, oldest first."""
    served: ServedWeights
    nodes: list[TrainingNode]
    """This node first."""
    bytes_sent: Count
    """Of contributions and weights, since the start."""
    bytes_received: Count


MOVING = ("GossipGradient", "GetCheckpoint", "GetWeights")
"""Operations whose bytes are those of training."""


@dataclass(frozen=True, slots=True)
class TrainingApi:
    """Answers from what this node and its peers have measured."""

    training: TrainingService
    versions: ServedVersions
    traffic: TrafficMeter

    async def get_global(self) -> Response:
        """Global training verification (interface 2.1)."""
        found, training = survey(self.training), self.training
        rounds, part = training.rounds, training.part
        loss = part.progress.loss if part else rounds.learner.progress.loss if rounds else 0.0
        inner = rounds.learner.progress.inner_step if rounds else 0
        # A round that has made more steps when diloco_steps is lowered has had as many.
        total = max(training.inner_steps, inner)
        answer: GlobalVerification = {
            "global_avg_loss": found.avg_loss,
            "global_min_loss": found.min_loss,
            "hash_agreement_rate": found.hash_agreement_rate,
            "total_nodes_training": found.nodes,
            "successful_syncs": found.successful_syncs,
            "failed_syncs": found.failed_syncs,
            "sync_success_rate": found.sync_success_rate,
            "global_steps": found.steps,
            "global_tokens": found.tokens,
            "data_shards_covered": list(found.shards),
            "is_converging": found.is_converging,
            "training_verified": found.verified,
            "loss_trend": cast("Trend", found.trend),
            "local": {
                "node_id": training.node_id,
                "training_rounds": rounds.replica.tally.rounds if rounds else 0,
                "current_loss": loss,
                "is_training": training.enabled,
            },
            "diloco": {
                # In a pipeline every step is synchronous: nothing is exchanged afterwards.
                "enabled": training.enabled and part is None,
                "inner_step_count": inner,
                "inner_steps_total": total,
                "progress": min(1.0, inner / total),
                "outer_step_count": rounds.replica.kept.version if rounds else 0,
            },
        }
        return json_response(answer)

    async def get_status(self) -> Response:
        """Rounds, nodes, losses and bytes (decision 0228)."""
        training, switch = self.training, self.versions
        rounds, sizes = training.rounds, self.traffic.message_bytes
        judged = rounds.record.judging if rounds else None
        answer: TrainingState = {
            "node_id": training.node_id,
            "enabled": training.enabled,
            "problem": training.problem,
            "steps_done": training.figures().step,
            "steps_in_round": training.inner_steps,
            "dropped_rounds": judged.dropped if judged else 0,
            "losses": [loss for loss in training.losses if math.isfinite(loss)],
            "served": {
                "setting": switch.setting,
                "version": switch.served.weights.version,
                "model_hash": switch.served.model_hash,
                "held_out_loss": switch.served_loss,
                "waiting": switch.waiting,
            },
            "nodes": [node_row(node_id, status) for node_id, status in training.nodes()],
            "bytes_sent": sum(sizes[name, True] for name in MOVING),
            "bytes_received": sum(sizes[name, False] for name in MOVING),
        }
        return json_response(answer)

    async def get_verify(self) -> Response:
        """Quick verification: the success shape, or the problem shape with what to do."""
        return json_response(verdict(survey(self.training)))


def node_row(node_id: str, status: pb.TrainingStatus) -> TrainingNode:
    """A node's report as a row of the table."""
    figures = status.figures
    return {
        "node_id": node_id,
        "state": status.state,
        "round": status.round_id,
        "version": status.version,
        "weights_hash": status.model_hash,
        "loss": figures.loss,
        "held_out_loss": figures.validation_loss,
        "steps": figures.steps,
        "tokens": figures.tokens,
        "syncs": figures.successful_syncs,
        "failed_syncs": figures.failed_syncs,
    }


def verdict(found: GlobalTraining) -> TrainingWorks | TrainingProblem:
    """Whether training works, in the document's two shapes."""
    if not found.nodes:
        return {
            "is_working": False,
            "reason": found.problem or "no known node trains",
            "action": found.action
            if found.problem
            else "set training.enabled with PATCH /api/v1/config, here or on another node",
        }
    if not found.agreed:
        return {
            "is_working": False,
            "reason": f"hash agreement is {found.hash_agreement_rate:.0%}: nodes have diverged",
            "action": "wait for the next round, in which nodes fetch what most have; if that does "
            "not help, look in the logs for nodes that cannot reach each other",
        }
    if found.rose is not None:
        older, newer = found.rose
        return {
            "is_working": False,
            "reason": f"the held-out loss rose from {older:.3f} to {newer:.3f} in the last round",
            "action": "if it goes on, lower training.learning_rate or training.diloco_steps, or "
            "give the nodes more text",
        }
    return {
        "is_working": True,
        "reason": _success(found),
        "metrics": {
            "loss_trend": cast("Trend", found.trend),
            "hash_agreement": f"{found.hash_agreement_rate:.0%}",
            "global_loss": found.avg_loss,
        },
    }


def _success(found: GlobalTraining) -> str:
    if found.pipeline:
        several = f"{found.nodes} nodes train one model, each its own layers"
        return several if found.nodes > 1 else "this node trains its layers of a pipeline's model"
    if found.nodes > 1:
        return f"{found.nodes} nodes have the same weights"
    return "one node trains by itself"


ROUTES = (
    Route(
        "GET",
        "/api/training/global",
        TrainingApi.get_global,
        "Global training verification",
        GlobalVerification,
        name="getGlobalTraining",
        prompt=True,
    ),
    Route(
        "GET",
        "/api/training/status",
        TrainingApi.get_status,
        "Rounds, nodes, losses and bytes of the training, and the weights that are served",
        TrainingState,
        name="getTrainingStatus",
    ),
    Route(
        "GET",
        "/api/training/verify",
        TrainingApi.get_verify,
        "Quick verification",
        TrainingWorks | TrainingProblem,
        name="verifyTraining",
        prompt=True,
    ),
)
