"""Conversion between training's messages and values (interface 2.3; decisions 0095 to 0097).

Everything from a peer is bounded here before it becomes a value: the size of a frame by the shape
of its tensor, the length of a list by a constant.
"""

from __future__ import annotations

import math
import re

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.training.contribution import MAX_DIGESTS
from meshnode.domain.training.message import Contribution
from meshnode.domain.training.opinions import Opinion
from meshnode.domain.training.replica import Report, State
from meshnode.domain.training.verdict import HeldOut
from meshnode.model.data import SHARDS
from meshnode.wire import node_pb2 as pb

MAX_NOTICES = 256
"""Contributions that a report may name: one for each peer that a node can know."""
MAX_COUNT = 2**53
"""Of steps or tokens. JSON numbers beyond this are not exact."""
_HEX40 = re.compile(r"[0-9a-f]{40}")
_HEX64 = re.compile(r"[0-9a-f]{64}")
_STATES = {state.value: state for state in State}


def contribution_in(message: pb.GossipGradientRequest) -> Contribution:
    """The fields of a message, unchecked."""
    return Contribution(
        node_id=message.node_id,
        round_id=message.round_id,
        model_hash=message.model_hash,
        timestamp=message.timestamp,
        batch_size=message.batch_size,
        loss=message.loss,
        layer_gradients=message.layer_gradients,
        signature=message.signature,
        ttl=message.ttl,
        held_out=held_out_in(message),
        opinions=opinions_in(message),
    )


def held_out_in(message: pb.GossipGradientRequest) -> HeldOut | None:
    """What the maker of a contribution has measured, unchecked; None if it says nothing."""
    if not message.HasField("held_out"):
        return None
    measured = message.held_out
    return HeldOut(measured.previous_hash, measured.before, measured.after)


def opinions_in(message: pb.GossipGradientRequest) -> dict[str, Opinion]:
    """What the maker of a contribution has found of others, unchecked, by node id."""
    return {one.node_id: Opinion(one.assigned, one.others) for one in message.opinions}


def contribution_message(contribution: Contribution) -> pb.GossipGradientRequest:
    """The opposite of :func:`contribution_in`."""
    measured = contribution.held_out
    held_out = None
    if measured is not None:
        held_out = pb.HeldOut(
            previous_hash=measured.previous, before=measured.before, after=measured.after
        )
    return pb.GossipGradientRequest(
        held_out=held_out,
        opinions=[
            pb.Opinion(node_id=node_id, assigned=opinion.assigned, others=opinion.others)
            for node_id, opinion in contribution.opinions.items()
        ],
        node_id=contribution.node_id,
        round_id=contribution.round_id,
        model_hash=contribution.model_hash,
        timestamp=contribution.timestamp,
        batch_size=contribution.batch_size,
        loss=contribution.loss,
        layer_gradients=dict(contribution.layer_gradients),
        signature=contribution.signature,
        ttl=contribution.ttl,
    )


def report_in(message: pb.TrainingStatus) -> Report:
    """A peer's report. Raises InvalidRequest if it is malformed."""
    state = _STATES.get(message.state)
    if state is None or message.round_id < 0 or len(message.contributions) > MAX_NOTICES:
        raise InvalidRequest("training", "is not a valid state of training")
    kept = _weights(message.version, message.model_hash)
    pending = None
    if message.pending_hash:
        pending = _weights(message.pending_version, message.pending_hash)
    notices = {}
    for notice in message.contributions:
        digests = tuple(notice.digests[:MAX_DIGESTS])
        if not (_HEX40.fullmatch(notice.node_id) and all(map(_HEX64.fullmatch, digests))):
            raise InvalidRequest("training", "names invalid contributions")
        notices[notice.node_id] = digests
    if message.momentum_hash and not _HEX64.fullmatch(message.momentum_hash):
        raise InvalidRequest("training", "names an invalid momentum")
    _check_figures(message.figures)
    left_s = message.left_s if message.HasField("left_s") else math.inf
    if not left_s >= 0:
        raise InvalidRequest("training", "expects an end in the past")
    return Report(message.round_id, state, kept, pending, notices, left_s)


def _check_figures(figures: pb.TrainingFigures) -> None:
    """Raise InvalidRequest unless the figures are finite and in range: they are summed and
    shown."""
    counts = (
        *(figures.steps, figures.tokens, figures.rounds),
        *(figures.successful_syncs, figures.failed_syncs),
    )
    losses = (figures.loss, figures.validation_loss)
    if min(counts) < 0 or max(counts) > MAX_COUNT or not all(map(math.isfinite, losses)):
        raise InvalidRequest("training", "contains invalid figures")
    if len(figures.data_shards) > SHARDS or not all(0 <= n < SHARDS for n in figures.data_shards):
        raise InvalidRequest("training", "names shards that do not exist")


def report_message(
    report: Report, figures: pb.TrainingFigures, momentum_hash: str = ""
) -> pb.TrainingStatus:
    """The opposite of :func:`report_in`, with figures and the hash of the outer momentum."""
    pending = report.pending or WeightsVersion(0, "")
    return pb.TrainingStatus(
        round_id=report.round_id,
        state=report.state.value,
        version=report.kept.version,
        model_hash=report.kept.model_hash,
        pending_version=pending.version,
        pending_hash=pending.model_hash,
        contributions=[
            pb.ContributionNotice(node_id=node, digests=digests)
            for node, digests in report.contributions.items()
        ],
        figures=figures,
        momentum_hash=momentum_hash,
        left_s=report.left_s if math.isfinite(report.left_s) else None,
    )


def _weights(version: int, model_hash: str) -> WeightsVersion:
    if version < 0 or not _HEX64.fullmatch(model_hash):
        raise InvalidRequest("training", "names invalid weights")
    return WeightsVersion(version, model_hash)
