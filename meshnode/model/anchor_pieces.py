"""An anchor in pieces, each below the largest message (interface 2.3; decision 0191).

Terms: the *contents* of an anchor list its tensors with their hashes; a *piece* is a tensor, or
some rows of one. The outer momentum of a tensor stands under its name behind ``velocity.``. A
``shard_range`` of GetWeights names version, hash and piece:

===============================  =====================================================
``37:HASH:contents``             the contents, as JSON
``37:HASH:NAME``                 one tensor, as safetensors under its name
``37:HASH:NAME[128:256]``        rows of one
===============================  =====================================================

Invariants: contents have the announced hash, so every tensor can be checked by itself; no answer is
larger than ``MAX_BYTES``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import safetensors.torch
from torch import Tensor

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.model.checkpoint import VELOCITY
from meshnode.model.documents import ModelUnreadable
from meshnode.model.manifest import TensorFacts, facts_of_tensors, hash_of_tensors, tensor_facts
from meshnode.model.trained_model import Anchor
from meshnode.model.transfer import FIELD, MAX_BYTES, read_tensors

CONTENTS = "contents"
FORMAT = "meshnode-anchor-v1"
MAX_CONTENTS = 16 << 20
"""Bytes of contents: a hundred thousand tensors."""

_UNIT = re.compile(
    r"([0-9]{1,10}):([0-9a-f]{64}):([A-Za-z0-9_.]{1,210})(?:\[([0-9]{1,9}):([0-9]{1,9})\])?"
)
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece, or the contents, of an anchor."""

    weights: WeightsVersion
    name: str
    rows: tuple[int, int] | None = None

    def __str__(self) -> str:
        """As in a ``shard_range``."""
        rows = f"[{self.rows[0]}:{self.rows[1]}]" if self.rows else ""
        return f"{self.weights.version}:{self.weights.model_hash}:{self.name}{rows}"

    @classmethod
    def parse(cls, text: str) -> Unit | None:
        """Read a ``shard_range``; None if it names something else."""
        match = _UNIT.fullmatch(text)
        if match is None:
            return None
        rows = (int(match[4]), int(match[5])) if match[4] else None
        return cls(WeightsVersion(int(match[1]), match[2]), match[3], rows)


Facts = Mapping[str, TensorFacts]


@dataclass(frozen=True, slots=True)
class Contents:
    """The tensors of an anchor by name, those of its momentum behind ``velocity.``."""

    tensors: Facts

    @classmethod
    def of(cls, anchor: Anchor) -> Contents:
        """Hash all tensors. Blocks."""
        return cls(facts_of_tensors(tensors_of(anchor).items()))

    def document(self) -> bytes:
        """As JSON."""
        facts = [self.tensors[name] for name in sorted(self.tensors)]
        lines = [{"name": f.name, "shape": [*f.shape], "sha256": f.sha256} for f in facts]
        return json.dumps({"format": FORMAT, "tensors": lines}).encode()


def read_contents(
    data: bytes, shapes: Mapping[str, tuple[int, ...]], model_hash: str, momentum_hash: str
) -> Contents:
    """Parse contents that have these shapes and hashes. Raises ModelUnreadable otherwise."""
    if len(data) > MAX_CONTENTS:
        raise ModelUnreadable("the contents of a checkpoint are too large")
    try:
        document = json.loads(data)
        if document["format"] != FORMAT:
            raise ValueError("unknown format")
        facts = {
            str(one["name"]): TensorFacts(
                str(one["name"]), tuple(map(int, one["shape"])), str(one["sha256"])
            )
            for one in document["tensors"]
        }
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ModelUnreadable("the contents of a checkpoint are malformed") from None
    wanted = dict(shapes)
    if momentum_hash:
        wanted |= {VELOCITY + name: shape for name, shape in shapes.items()}
    if {name: one.shape for name, one in facts.items()} != wanted:
        raise ModelUnreadable("the contents of a checkpoint are of another model")
    if not all(_SHA256.fullmatch(one.sha256) for one in facts.values()):
        raise ModelUnreadable("the contents of a checkpoint are malformed")
    weights = {name: facts[name] for name in shapes}
    if (hash_of_tensors(weights), momentum_of(facts)) != (model_hash, momentum_hash):
        raise ModelUnreadable("the contents of a checkpoint have another hash")
    return Contents(facts)


def momentum_of(facts: Facts) -> str:
    """The hash of the outer momentum among these tensors; empty if there is none."""
    moving = {n.removeprefix(VELOCITY): f for n, f in facts.items() if n.startswith(VELOCITY)}
    # It is over the names of the weights.
    named = {name: TensorFacts(name, one.shape, one.sha256) for name, one in moving.items()}
    return hash_of_tensors(named) if named else ""


def tensors_of(anchor: Anchor) -> dict[str, Tensor]:
    """All tensors of an anchor, those of its momentum behind ``velocity.``."""
    momentum = {VELOCITY + name: tensor for name, tensor in anchor.velocity.items()}
    return {**anchor.weights, **momentum}


def read_piece(anchor: Anchor, unit: Unit) -> bytes:
    """A piece as safetensors. Raises InvalidRequest."""
    tensor = tensors_of(anchor).get(unit.name)
    if tensor is None:
        raise InvalidRequest(FIELD, f"the checkpoint has no {unit.name}")
    rows = rows_in(unit, tuple(tensor.shape))
    return safetensors.torch.save({unit.name: tensor[rows.start : rows.stop].contiguous()})


def rows_in(unit: Unit, shape: tuple[int, ...]) -> range:
    """The rows that a piece has of a tensor of this shape. Raises InvalidRequest."""
    first, stop = unit.rows or (0, shape[0])
    if not 0 <= first < stop <= shape[0]:
        raise InvalidRequest(FIELD, f"{unit.name} has rows 0 to {shape[0]}")
    if 4 * (stop - first) * math.prod(shape[1:]) > MAX_BYTES:
        rows = rows_of(shape)
        raise InvalidRequest(FIELD, f"{unit} is too large; ask for {rows} rows at a time")
    return range(first, stop)


def units_of(weights: WeightsVersion, name: str, shape: tuple[int, ...]) -> list[Unit]:
    """The pieces of a tensor, in order."""
    count, rows = shape[0], rows_of(shape)
    if rows >= count:
        return [Unit(weights, name)]
    starts = range(0, count, rows)
    return [Unit(weights, name, (at, min(at + rows, count))) for at in starts]


def rows_of(shape: tuple[int, ...]) -> int:
    """How many rows of a tensor fit one answer."""
    return max(1, MAX_BYTES // (4 * math.prod(shape[1:])))


def piece_in(data: bytes, unit: Unit, shape: tuple[int, ...]) -> Tensor:
    """The tensor of an answer to ``unit``. Raises ModelUnreadable."""
    tensors = read_tensors(data)
    rows = unit.rows[1] - unit.rows[0] if unit.rows else shape[0]
    tensor = tensors.get(unit.name)
    if len(tensors) != 1 or tensor is None or tuple(tensor.shape) != (rows, *shape[1:]):
        raise ModelUnreadable(f"a peer answered something else than {unit}")
    return tensor


def check_tensor(contents: Contents, name: str, tensor: Tensor) -> None:
    """Raise ModelUnreadable unless ``tensor`` is the one in the contents."""
    if tensor_facts(name, tensor) != contents.tensors[name]:
        raise ModelUnreadable(f"{name} is not the one that the checkpoint's hash stands for")


def anchor_of(tensors: Mapping[str, Tensor], weights: WeightsVersion, momentum: str) -> Anchor:
    """The anchor of tensors that were checked one by one."""
    velocity = {
        name.removeprefix(VELOCITY): tensor
        for name, tensor in tensors.items()
        if name.startswith(VELOCITY)
    }
    own = {name: tensor for name, tensor in tensors.items() if not name.startswith(VELOCITY)}
    return Anchor(own, velocity, weights.model_hash, momentum)
