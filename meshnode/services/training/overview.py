"""The training of all known nodes together (interface 2.1 and 4.1: the /api/training routes).

Terms: a node is *in training* when it reports a round. Nodes are compared at the newest version
that all of them have reached: a node that is a moment behind does not disagree, but a node with
other weights does.

Invariant: every number was measured by this node or by the one that reports it.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from meshnode.domain.training.agreement import agreement_rate, winner
from meshnode.domain.training.trend import IMPROVING, UNKNOWN, WORSENING, loss_trend, rise
from meshnode.services.training.gossip import History
from meshnode.services.training.part import PipelinePart
from meshnode.services.training.trainer import TrainingService
from meshnode.wire import node_pb2 as pb

BEGINNING = "training is about to begin: the model is being loaded"
MEND = "fix this; the node tries again by itself"
ASK_THE_DRIVER = "see /api/training/verify of the node with the first layers, and whether it trains"


@dataclass(frozen=True, slots=True)
class GlobalTraining:
    """The fields of the document's global training verification that concern all nodes."""

    avg_loss: float
    min_loss: float
    hash_agreement_rate: float
    nodes: int
    successful_syncs: int
    failed_syncs: int
    steps: int
    tokens: int
    shards: tuple[int, ...]
    trend: str
    problem: str = ""
    """Why this node does not train although it should."""
    action: str = MEND
    """What to do about it."""
    pipeline: bool = False
    """Whether the nodes train one copy of the weights together, each some of its layers."""
    exchanged: bool = True
    """Whether any weights were made together yet."""
    rose: tuple[float, float] | None = None
    """The held-out losses of the last two versions, if the newer one is worse."""

    @property
    def sync_success_rate(self) -> float:
        """The share of syncs that succeeded; 0.0 before the first one."""
        syncs = self.successful_syncs + self.failed_syncs
        return self.successful_syncs / syncs if syncs else 0.0

    @property
    def agreed(self) -> bool:
        """Whether nodes train, and all of them have the same weights."""
        return self.nodes > 0 and self.hash_agreement_rate == 1.0

    @property
    def is_converging(self) -> bool:
        """Whether all have the same weights, made together, and these do not get worse."""
        worse = self.trend == WORSENING or self.rose is not None
        return self.agreed and self.exchanged and not worse

    @property
    def verified(self) -> bool:
        """Whether the model provably improves: all have the same weights, and the loss falls."""
        return self.is_converging and self.trend == IMPROVING


def survey(training: TrainingService) -> GlobalTraining:
    """Combine the reports of all known nodes with this node's figures."""
    if training.part is not None:
        return survey_of_pipeline(training.part)
    figures = [peer.figures for peer in training.gossip.peers.values()]
    histories = {node: training.gossip.history[node] for node in training.gossip.peers}
    rounds = training.rounds
    if rounds is not None and training.enabled:
        figures.append(training.figures_message())
        histories[training.node_id] = rounds.record.history
    kept = [(peer.report.kept, peer.figures) for peer in training.gossip.peers.values()]
    if rounds is not None and training.enabled:
        kept.append((rounds.record.published.kept, figures[-1]))
    agreed = winner(weights for weights, _ in kept)
    losses = [one.validation_loss for weights, one in kept if weights == agreed]
    own = rounds.record.losses if rounds is not None else []
    return GlobalTraining(
        avg_loss=fmean(losses) if losses else 0.0,
        min_loss=min(losses, default=0.0),
        hash_agreement_rate=compare(histories),
        nodes=len(figures),
        successful_syncs=_total(figures, "successful_syncs"),
        failed_syncs=_total(figures, "failed_syncs"),
        steps=_total(figures, "steps"),
        tokens=_total(figures, "tokens"),
        shards=tuple(sorted({shard for one in figures for shard in one.data_shards})),
        trend=loss_trend(own) if own else UNKNOWN,
        exchanged=agreed is not None and agreed.version > 0,
        rose=rise(own),
        problem=training.problem or (BEGINNING if training.beginning else ""),
        action=MEND if training.problem else "wait until it has been loaded",
    )


def survey_of_pipeline(part: PipelinePart) -> GlobalTraining:
    """What a node knows of its pipeline, where there is one copy of each layer."""
    progress = part.progress
    return GlobalTraining(
        avg_loss=progress.loss,
        min_loss=progress.loss,
        hash_agreement_rate=1.0,
        nodes=part.nodes,
        successful_syncs=0,
        failed_syncs=0,
        steps=progress.steps,
        tokens=progress.tokens,
        shards=tuple(sorted(part.shards)),
        trend=loss_trend(part.losses),
        rose=rise(part.losses),
        problem=part.problem,
        action=MEND if part.drives else ASK_THE_DRIVER,
        pipeline=True,
    )


def compare(histories: dict[str, History]) -> float:
    """The share of nodes that have the most common weights, at the version that all have
    reached."""
    if not histories:
        return 1.0
    common = min(max(history) for history in histories.values())
    # If a node was not seen at that version, its newest weights are compared.
    return agreement_rate(
        {node: history.get(common, history[max(history)]) for node, history in histories.items()}
    )


def _total(figures: list[pb.TrainingFigures], name: str) -> int:
    return sum(int(getattr(one, name)) for one in figures)
