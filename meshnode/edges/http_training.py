"""The training-verification routes (document, sections 2.1 and 4.1; no version prefix)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshnode.http.app import Response, json_response
from meshnode.http.routes import Route
from meshnode.services.training.overview import GlobalTraining, survey

if TYPE_CHECKING:
    from meshnode.services.training.trainer import Training


@dataclass(frozen=True, slots=True)
class TrainingApi:
    """Answers from what this node and its peers have measured."""

    training: Training

    async def get_global(self) -> Response:
        """Global training verification (2.1)."""
        found, training = survey(self.training), self.training
        rounds, part, total = training.rounds, training.part, training.inner_steps
        loss = part.progress.loss if part else rounds.progress.loss if rounds else 0.0
        inner = rounds.progress.inner_step if rounds else 0
        return json_response(
            {
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
                "loss_trend": found.trend,
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
        )

    async def get_verify(self) -> Response:
        """Quick verification: the success shape, or the problem shape with what to do."""
        return json_response(verdict(survey(self.training)))


def verdict(found: GlobalTraining) -> dict[str, object]:
    """Whether training works, in the document's two shapes."""
    if not found.nodes:
        return {
            "is_working": False,
            "reason": found.problem or "no known node trains",
            "action": found.action
            if found.problem
            else "set training.enabled with PATCH /api/v1/config, here or on another node",
        }
    if not found.is_converging:
        return {
            "is_working": False,
            "reason": f"hash agreement is {found.hash_agreement_rate:.0%}: nodes have diverged",
            "action": "wait for the next round, in which nodes fetch what most have; if that does "
            "not help, look in the logs for nodes that cannot reach each other",
        }
    return {
        "is_working": True,
        "reason": _success(found),
        "metrics": {
            "loss_trend": found.trend,
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
    Route("GET", "/api/training/global", TrainingApi.get_global),
    Route("GET", "/api/training/verify", TrainingApi.get_verify),
)
