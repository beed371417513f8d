"""The formats in which weights are kept and multiplied, and how integers come from floats.

Terms: a *group* is 32 consecutive inputs of one output, which share a *scale* and, in some formats,
a *minimum*, both float16; a *quant* is the small integer that stands for a weight. The groups are
those of llama.cpp's Q8_0, Q4_0 and Q4_1, so that weights in these formats are taken over exactly.

Invariants: a quantised matrix depends on its weights alone; a weight that is zero stays zero in
INT8 and INT4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

GROUP = 32
_MAX_HALF = 65504.0
_SAMPLES, _SAMPLED_ROWS = 8, 8
"""Where a matrix is looked at, and the rows that are looked at there."""
_PEAKS = (8.0, 8.25, 7.75, 7.5, 8.5, 7.25, 7.0, 6.75, 6.5)
"""What a group's largest weight may be in four bits before it is rounded; -8 is the first."""


class Format(IntEnum):
    """How the numbers of a matrix are kept. The values are those of ``source/vector.hpp``."""

    FLOAT32 = 0
    BFLOAT16 = 1
    FLOAT16 = 2
    INT8 = 3
    INT4 = 4
    INT4_MIN = 5

    @property
    def integer(self) -> bool:
        """Whether weights are quants with scales."""
        return self >= Format.INT8

    @property
    def bits(self) -> float:
        """Bits that a weight takes, scales included."""
        return _BITS[self]

    @property
    def cache_dtype(self) -> torch.dtype:
        """The type of keys and values: 16 bits wherever weights have 16 or fewer."""
        if self is Format.FLOAT32:
            return torch.float32
        return torch.bfloat16 if self is Format.BFLOAT16 else torch.float16


_BITS = {
    Format.FLOAT32: 32.0,
    Format.BFLOAT16: 16.0,
    Format.FLOAT16: 16.0,
    Format.INT8: 8.5,
    Format.INT4: 4.5,
    Format.INT4_MIN: 5.0,
}

_BY_SIZE = (
    *(Format.INT4, Format.INT4_MIN, Format.INT8),
    *(Format.BFLOAT16, Format.FLOAT16, Format.FLOAT32),
)
AUTO = "auto"
DTYPES: dict[str, Format | None] = {
    "float32": Format.FLOAT32,
    "bfloat16": Format.BFLOAT16,
    "float16": Format.FLOAT16,
    "int8": Format.INT8,
    "int4": Format.INT4,
    AUTO: None,
}
"""The names of the formats in the configuration; None is the narrowest that is exact."""


@dataclass(frozen=True, slots=True)
class Quantised:
    """A matrix ``[outputs, inputs]`` in an integer format; inputs are padded to whole groups."""

    format: Format
    inputs: int
    quants: Tensor
    """int8 ``[outputs, groups, 32]``: -127 to 127 for INT8, else 0 to 15."""
    scales: Tensor
    """float16 ``[outputs, groups]``."""
    minima: Tensor | None = None
    """float16 ``[outputs, groups]``, for INT4_MIN."""

    def dequantised(self) -> Tensor:
        """The weights that it stands for, float32 ``[outputs, inputs]``."""
        scales, quants = self.scales.float()[..., None], self.quants.float()
        if self.format is Format.INT4:
            quants = quants - 8
        weights = scales * quants
        if self.minima is not None:
            weights = weights + self.minima.float()[..., None]
        return weights.flatten(1)[:, : self.inputs]

    @classmethod
    def joined(cls, parts: Sequence[Quantised]) -> Quantised:
        """The rows of several, one after another; all have the same format and inputs."""
        return parts[0]._combined(parts, torch.cat)

    def in_turn(self, other: Quantised, panel: int) -> Quantised:
        """``panel`` rows of this one, then of the other, and so on; both have as many."""

        def alternate(both: list[Tensor]) -> Tensor:
            panels = [one.reshape(-1, panel, *one.shape[1:]) for one in both]
            return torch.stack(panels, 1).flatten(0, 2)

        return self._combined((self, other), alternate)

    def _combined(
        self, parts: Sequence[Quantised], combine: Callable[[list[Tensor]], Tensor]
    ) -> Quantised:
        minima = [one.minima for one in parts if one.minima is not None]
        return Quantised(
            self.format,
            self.inputs,
            combine([one.quants for one in parts]),
            combine([one.scales for one in parts]),
            combine(minima) if minima else None,
        )


class Rows(Protocol):
    """A matrix ``[outputs, inputs]``."""

    @property
    def outputs(self) -> int:
        """Rows of the matrix."""

    @property
    def inputs(self) -> int:
        """Columns of the matrix."""

    def read(self, first: int, stop: int) -> Tensor:
        """Rows ``first`` to ``stop``, float32; not to be changed."""

    def stored(self, first: int, stop: int, form: Format) -> Quantised | None:
        """What ``quantise`` makes of these rows, if it is stored like that; None if it is not."""


def quantise(weight: Tensor, form: Format) -> Quantised:
    """``weight`` ``[outputs, inputs]`` in an integer format."""
    outputs, inputs = weight.shape
    missing = -inputs % GROUP
    # Padding copies, even by nothing.
    whole = functional.pad(weight.float(), (0, missing)) if missing else weight.float()
    padded = whole.view(outputs, -1, GROUP)
    if form is Format.INT4_MIN:
        return Quantised(form, inputs, *_int4_min(padded))
    quants, scales = (_int8 if form is Format.INT8 else _int4)(padded)
    return Quantised(form, inputs, quants, scales)


def narrowest(weight: Rows) -> Format:
    """The smallest format that holds ``weight`` exactly, judged by some of its rows.

    So weights of a GGUF file keep the type that the file has them in.
    """
    step = max(_SAMPLED_ROWS, weight.outputs // _SAMPLES)
    places = range(0, weight.outputs, step)
    ends = [min(first + _SAMPLED_ROWS, weight.outputs) for first in places]
    blocks = list(zip(places, ends, strict=True))
    sample = torch.cat([weight.read(*block) for block in blocks])

    def holds(form: Format) -> bool:
        # Most formats fail with the first row. To look how the rest is stored is faster than
        # quantising it.
        if not torch.equal(rounded(sample[:1], form), sample[:1]):
            return False
        if all(weight.stored(*block, form) is not None for block in blocks):
            return True
        return torch.equal(rounded(sample, form), sample)

    return next(filter(holds, _BY_SIZE))


def chosen(weight: Rows, form: Format | None) -> Format:
    """``form`` for this matrix; None takes the narrowest that is exact.

    Four bits keep a minimum where the weights already have one.
    """
    if form is None:
        return narrowest(weight)
    if form is Format.INT4 and narrowest(weight) is Format.INT4_MIN:
        return Format.INT4_MIN
    return form


def _int8(groups: Tensor) -> tuple[Tensor, Tensor]:
    scales = (groups.abs().amax(-1) / 127).clamp_max(_MAX_HALF).half()
    return _divided(groups, scales).clamp(-127, 127).to(torch.int8), scales


def _int4(groups: Tensor) -> tuple[Tensor, Tensor]:
    """The scale with the smallest squared error among a few around that of the largest weight."""
    at = groups.abs().argmax(-1, keepdim=True)
    peaks = groups.gather(-1, at).squeeze(-1)
    best = torch.full(peaks.shape, torch.inf)
    quants = torch.zeros(groups.shape, dtype=torch.int8)
    scales = torch.zeros(peaks.shape, dtype=torch.float16)
    for peak in _PEAKS:
        tried = (peaks / -peak).clamp(-_MAX_HALF, _MAX_HALF).half()
        rounded = _divided(groups, tried).clamp(-8, 7)
        error = (rounded * tried.float()[..., None] - groups).square().sum(-1)
        better = error < best
        best = torch.where(better, error, best)
        scales = torch.where(better, tried, scales)
        quants = torch.where(better[..., None], (rounded + 8).to(torch.int8), quants)
    return quants, scales


def _int4_min(groups: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    low, high = groups.aminmax(dim=-1)
    scales = ((high - low) / 15).clamp_max(_MAX_HALF).half()
    minima = low.clamp(-_MAX_HALF, _MAX_HALF).half()
    quants = _divided(groups - minima.float()[..., None], scales).clamp(0, 15)
    return quants.to(torch.int8), scales, minima


def _divided(groups: Tensor, scales: Tensor) -> Tensor:
    factors = scales.float().reciprocal().nan_to_num(posinf=0.0, neginf=0.0)
    return (groups * factors[..., None]).round()


def rounded(weight: Tensor, form: Format) -> Tensor:
    """``weight`` as the format holds it, float32."""
    if form.integer:
        return quantise(weight, form).dequantised()
    dtype = {Format.BFLOAT16: torch.bfloat16, Format.FLOAT16: torch.float16}.get(form)
    return weight.float() if dtype is None else weight.to(dtype).float()
