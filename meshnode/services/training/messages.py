"""Conversion between training's messages and values (interface 2.3; decisions 0095 to 0097).

Everything from a peer is bounded here before it becomes a value: the size of a frame by the shape
of its tensor, the length of a list by a constant.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.training.contribution import MAX_DIGESTS
from meshnode.domain.training.message import MAX_NORM, Contribution
from meshnode.domain.training.replica import Report, State
from meshnode.model.data import SHARDS
from meshnode.wire import node_pb2 as pb
from meshnode.wire.frames import frame
from meshnode.wire.tensors import unpack_floats

Shapes = Mapping[str, tuple[int, ...]]
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
    )


def contribution_message(contribution: Contribution) -> pb.GossipGradientRequest:
    """The opposite of :func:`contribution_in`."""
    return pb.GossipGradientRequest(
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


def pack_gradients(gradients: Mapping[str, Tensor]) -> dict[str, bytes]:
    """An LZ4 frame of raw little-endian float32 for each tensor (interface 8: level 1)."""
    return {
        name: frame(tensor.numpy().astype("<f4", copy=False).tobytes())
        for name, tensor in gradients.items()
    }


def unpack_gradients(frames: Mapping[str, bytes], shapes: Shapes) -> dict[str, Tensor]:
    """Tensors of exactly these shapes, finite, of a bounded norm. Raises InvalidRequest."""
    tensors, square = {}, 0.0
    for name, shape in shapes.items():
        values = unpack_floats(frames[name], shape, f"layer_gradients[{name}]")
        square += float(np.square(values, dtype=np.float64).sum())
        tensors[name] = torch.from_numpy(values)
    if math.sqrt(square) > MAX_NORM:
        raise InvalidRequest("layer_gradients", f"have a norm above {MAX_NORM:g}")
    return tensors


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
    _check_figures(message.figures)
    return Report(message.round_id, state, kept, pending, notices)


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


def report_message(report: Report, figures: pb.TrainingFigures) -> pb.TrainingStatus:
    """The opposite of :func:`report_in`, with figures."""
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
    )


def _weights(version: int, model_hash: str) -> WeightsVersion:
    if version < 0 or not _HEX64.fullmatch(model_hash):
        raise InvalidRequest("training", "names invalid weights")
    return WeightsVersion(version, model_hash)
