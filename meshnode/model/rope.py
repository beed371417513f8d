"""Rotary position embedding: frequencies and the rotation (Hugging Face conventions).

Terms: dimension pairs of a head rotate by ``position * frequency``; a *scaling* lowers the
frequencies so that positions beyond the trained context fall into the trained range of angles.
The *attention factor* multiplies sine and cosine, and so the attention logits.

Halves convention: element ``i`` of a head is paired with element ``i + head_dim / 2``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor


class RopeKind(StrEnum):
    """The scalings of Hugging Face's ``rope_type`` that are computed here."""

    DEFAULT = "default"
    LINEAR = "linear"
    DYNAMIC = "dynamic"
    """Unscaled up to the model's context, which no generation here may exceed."""
    LLAMA3 = "llama3"
    YARN = "yarn"
    LONGROPE = "longrope"
    """A factor for each pair of dimensions; those for texts of the trained context are used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """Parameters of the rotation. Fields beyond ``theta`` matter only to some kinds."""

    kind: RopeKind = RopeKind.DEFAULT
    theta: float = 10_000.0
    factor: float = 1.0
    trained_context: int = 2048
    """Context before scaling, in tokens (llama3, yarn)."""
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    attention_factor: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    short_factors: tuple[float, ...] = ()
    """What divides the frequency of each pair (longrope)."""

    def frequencies(self, head_dim: int) -> Tensor:
        """Angle per position for each pair of dimensions: float32 ``[head_dim / 2]``."""
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
        frequencies = 1.0 / self.theta**exponents
        if self.kind is RopeKind.LINEAR:
            return frequencies / self.factor
        if self.kind is RopeKind.LLAMA3:
            return self._blend_by_wavelength(frequencies)
        if self.kind is RopeKind.YARN:
            return self._blend_by_rotations(frequencies, head_dim)
        if self.kind is RopeKind.LONGROPE:
            # Multiplied before the division, as the model was trained.
            return 1.0 / (torch.tensor(self.short_factors) * self.theta**exponents)
        return frequencies

    def magnitude(self) -> float:
        """The attention factor: 1 for every kind but yarn and longrope."""
        if self.kind not in (RopeKind.YARN, RopeKind.LONGROPE):
            return 1.0
        if self.attention_factor is not None:
            return self.attention_factor
        if self.kind is RopeKind.LONGROPE:
            return math.sqrt(1 + math.log(self.factor) / math.log(self.trained_context))
        if self.mscale and self.mscale_all_dim:
            return self._yarn_magnitude(self.mscale) / self._yarn_magnitude(self.mscale_all_dim)
        return self._yarn_magnitude(1.0)

    def limited(self, context_length: int) -> int:
        """The context that can be served of a model's ``context_length`` (decision 0146)."""
        if self.kind is RopeKind.LONGROPE:
            return min(context_length, self.trained_context)
        return context_length

    def scaling_document(self) -> dict[str, object] | None:
        """The ``rope_scaling`` object of a ``config.json``, or None where there is no scaling."""
        if self.kind is RopeKind.DEFAULT:
            return None
        document: dict[str, object] = {"rope_type": str(self.kind), "factor": self.factor}
        if self.kind is RopeKind.LLAMA3:
            document["low_freq_factor"] = self.low_frequency_factor
            document["high_freq_factor"] = self.high_frequency_factor
        if self.kind is RopeKind.YARN:
            document["beta_fast"] = self.beta_fast
            document["beta_slow"] = self.beta_slow
            document["truncate"] = self.truncate
            document["attention_factor"] = self.magnitude()
        if self.kind in (RopeKind.LLAMA3, RopeKind.YARN):
            document["original_max_position_embeddings"] = self.trained_context
        return document

    def _blend_by_wavelength(self, frequencies: Tensor) -> Tensor:
        """llama3: keep short wavelengths, stretch long ones, blend between the two bounds."""
        wavelengths = 2 * math.pi / frequencies
        turns = self.trained_context / wavelengths
        keep = (turns - self.low_frequency_factor) / (
            self.high_frequency_factor - self.low_frequency_factor
        )
        keep = keep.clamp(0.0, 1.0)
        return (1 - keep) * frequencies / self.factor + keep * frequencies

    def _blend_by_rotations(self, frequencies: Tensor, head_dim: int) -> Tensor:
        """yarn: keep pairs that turn often in the trained context, stretch the others."""
        low = self._pair_turning(self.beta_fast, head_dim)
        high = self._pair_turning(self.beta_slow, head_dim)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, head_dim - 1)
        if low == high:
            high += 0.001  # A step instead of a ramp, without dividing by zero.
        pairs = torch.arange(head_dim // 2, dtype=torch.float32)
        stretch = ((pairs - low) / (high - low)).clamp(0.0, 1.0)
        return frequencies / self.factor * stretch + frequencies * (1 - stretch)

    def _pair_turning(self, turns: float, head_dim: int) -> float:
        """Index of the pair that makes this many full turns over the trained context."""
        ratio = self.trained_context / (turns * 2 * math.pi)
        return head_dim * math.log(ratio) / (2 * math.log(self.theta))

    def _yarn_magnitude(self, scale: float) -> float:
        return 0.1 * scale * math.log(self.factor) + 1.0 if self.factor > 1 else 1.0


@dataclass(frozen=True, slots=True)
class Rotation:
    """The rotation at given positions. Tensors are ``[batch, seq, 1, rotary_dim]``.

    Dimensions of a head from ``rotary_dim`` on do not rotate.
    """

    cosine: Tensor
    signed_sine: Tensor
    """Sine, negated in the first half, so that a rotation only needs to swap the halves."""

    @classmethod
    def at(cls, positions: Tensor, frequencies: Tensor, magnitude: float) -> Rotation:
        """From ``positions`` ``[batch, seq]`` and ``frequencies`` ``[head_dim / 2]``."""
        angles = positions[..., None, None].float() * frequencies
        cosine, sine = angles.cos() * magnitude, angles.sin() * magnitude
        return cls(torch.cat((cosine, cosine), -1), torch.cat((-sine, sine), -1))

    def apply(self, heads: Tensor) -> Tensor:
        """Rotate ``heads`` ``[batch, seq, heads, head_dim]``."""
        rotary_dim = self.cosine.shape[-1]
        if rotary_dim < heads.shape[-1]:
            rotated = self.apply(heads[..., :rotary_dim])
            return torch.cat((rotated, heads[..., rotary_dim:]), -1)
        swapped = heads.roll(heads.shape[-1] // 2, -1)
        # Not addcmul: whether that rounds once or twice depends on where an element stands.
        return heads * self.cosine + swapped * self.signed_sine
