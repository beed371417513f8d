"""The rotations of a decoder's layers: one for all, or others for windowed layers, or none."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from meshnode.model.config import DecoderConfig
from meshnode.model.families import LayerKind
from meshnode.model.rope import Rope, Rotation


@dataclass(frozen=True, slots=True)
class Rotations:
    """The rotations at some positions."""

    everywhere: Rotation
    windowed: Rotation

    def of(self, kind: LayerKind) -> Rotation | None:
        """The rotation of a layer; None if it has none."""
        if not kind.rotated:
            return None
        return self.windowed if kind.windowed else self.everywhere


class RopeTables:
    """The frequencies of a model's rotations."""

    def __init__(self, config: DecoderConfig) -> None:
        self.everywhere = RopeTable.of(config.rope, config.rotary_dim)
        local = config.local_rope
        self.windowed = None if local is None else RopeTable.of(local, config.rotary_dim)

    def at(self, positions: Tensor) -> Rotations:
        """The rotations at ``positions`` ``[batch, seq]``."""
        everywhere = self.everywhere.at(positions)
        return Rotations(everywhere, self.windowed.at(positions) if self.windowed else everywhere)


@dataclass(frozen=True, slots=True)
class RopeTable:
    """Angle per position for each pair of dimensions, and the factor of sine and cosine."""

    frequencies: Tensor
    magnitude: float

    @classmethod
    def of(cls, rope: Rope, rotary_dim: int) -> RopeTable:
        """The table of a rotation of ``rotary_dim`` dimensions."""
        return cls(rope.frequencies(rotary_dim), rope.magnitude())

    def at(self, positions: Tensor) -> Rotation:
        """The rotation at ``positions`` ``[batch, seq]``."""
        return Rotation.at(positions, self.frequencies, self.magnitude)
