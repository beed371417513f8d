"""Conversion between training's messages and values (interface 2.3; decisions 0095 to 0097).

Everything from a peer is bounded here before it becomes a value: the size of a frame by the shape
of its tensor, the length of a list by a constant.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.training.contribution import MAX_DIGESTS
from meshnode.domain.training.message import MAX_NORM, Contribution
from meshnode.domain.training.opinions import Opinion
from meshnode.domain.training.replica import Report, State
from meshnode.domain.training.verdict import HeldOut
from meshnode.model.data import SHARDS
from meshnode.model.diloco import SparseTensor, norm
from meshnode.wire import node_pb2 as pb
from meshnode.wire.gradients import (
    Format,
    SparseValues,
    kept_of,
    pack_float32,
    pack_int8,
    pack_sparse,
    unpack_gradient,
)

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


def packed(values: Tensor, kind: Format, parameters: int) -> bytes:
    """A tensor of the pseudo-gradient of a model of so many parameters (decision 0190)."""
    if kind is Format.SPARSE:
        return pack_sparse(values.numpy(), kept=kept_of(parameters))
    pack = pack_int8 if kind is Format.INT8 else pack_float32
    return pack(values.numpy())


def unpacked(data: bytes, shape: tuple[int, ...], field: str) -> Tensor | SparseTensor:
    """A tensor of exactly this shape, finite. Raises InvalidRequest, which names ``field``."""
    values = unpack_gradient(data, shape, field)
    if isinstance(values, SparseValues):
        indices = torch.from_numpy(values.indices)
        return SparseTensor(values.shape, indices, torch.from_numpy(values.values))
    return torch.from_numpy(values)


class PackedGradients(Mapping[str, Tensor | SparseTensor]):
    """The gradients of a message, each decoded whenever it is asked for.

    So a set of contributions takes the memory of its messages, and of one tensor of each. Asking
    raises InvalidRequest unless the tensor has exactly its shape and is finite.
    """

    def __init__(self, frames: Mapping[str, bytes], shapes: Shapes) -> None:
        """``frames`` has a value for each of the ``shapes``."""
        self._frames = frames
        self._shapes = shapes

    def __getitem__(self, name: str) -> Tensor | SparseTensor:
        """Decode a tensor."""
        return unpacked(self._frames[name], self._shapes[name], f"layer_gradients[{name}]")

    def __iter__(self) -> Iterator[str]:
        """The names of the tensors."""
        return iter(self._shapes)

    def __len__(self) -> int:
        """The number of tensors."""
        return len(self._shapes)


def check_gradients(gradients: PackedGradients) -> None:
    """Raise InvalidRequest unless all can be decoded and their norm is bounded."""
    if norm(gradients) > MAX_NORM:
        raise InvalidRequest("layer_gradients", f"have a norm above {MAX_NORM:g}")


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
    )


def _weights(version: int, model_hash: str) -> WeightsVersion:
    if version < 0 or not _HEX64.fullmatch(model_hash):
        raise InvalidRequest("training", "names invalid weights")
    return WeightsVersion(version, model_hash)
