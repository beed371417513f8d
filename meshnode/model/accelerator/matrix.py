"""Weights on a device, in their format, and their products with rows (decisions 0153, 0229).

Float formats keep a matrix in that type, and a product takes its rows in that type too. Integer
formats keep quants and scales as ``kernels.formats`` defines them, four bits in half a byte each,
and are turned into float16 a product at a time. Sums are float32 in all of them.

Rows that become float16 are first divided by a power of two so that their largest element is below
1, and the result is multiplied by it: nothing overflows, and the division is exact.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from meshnode.model.accelerator.tiles import padded, padded_count, tiled
from meshnode.model.kernels.formats import Format, Rows, quantise

BLOCK_BYTES = 32 << 20
"""About as many bytes of a matrix are in the host's memory at a time, as float32."""
MAX_DENSE_BYTES = 256 << 20
"""About as much of an integer matrix is turned into floats at a time."""

_DTYPES = {
    Format.FLOAT32: torch.float32,
    Format.BFLOAT16: torch.bfloat16,
    Format.FLOAT16: torch.float16,
}


class DeviceMatrix:
    """Weights ``[outputs, inputs]`` on a device, with an optional bias ``[outputs]``."""

    def __init__(
        self, weight: Rows, form: Format, device: torch.device, bias: Tensor | None = None
    ) -> None:
        """Copy ``weight``, some rows at a time, so that the host never holds all of it."""
        self.format, self.outputs, self.inputs = form, weight.outputs, weight.inputs
        self.sizes: list[int] = []
        """The numbers of rows that a product may have, descending (``accelerator.tiles``)."""
        self._parts: list[Tensor] = []
        """The weights; or quants, scales and, in one format, minima."""
        self.bias = None if bias is None else bias.detach().float().to(device)
        step = max(1, BLOCK_BYTES // (4 * weight.inputs))
        for first in range(0, weight.outputs, step):
            stop = min(first + step, weight.outputs)
            block = _encoded(weight.read(first, stop), form)
            if not self._parts:
                self._parts = [
                    torch.empty((weight.outputs, *part.shape[1:]), dtype=part.dtype, device=device)
                    for part in block
                ]
            for whole, part in zip(self._parts, block, strict=True):
                whole[first:stop].copy_(part)

    @property
    def nbytes(self) -> int:
        """Device memory that weights and bias take."""
        return sum(part.nbytes for part in self._parts) + (
            0 if self.bias is None else self.bias.nbytes
        )

    def __call__(self, rows: Tensor) -> Tensor:
        """``[rows, inputs]`` to ``[rows, outputs]``, float32; rows are a multiple of the base."""
        return tiled(self.product, rows, self.sizes)

    def product(self, rows: Tensor) -> Tensor:
        """The same in one call, whatever the number of rows."""
        if self.format is Format.FLOAT32:
            result = functional.linear(rows, self._parts[0])
        elif self.format is Format.BFLOAT16:
            result = functional.linear(rows.bfloat16(), self._parts[0]).float()
        else:
            _, exponents = torch.frexp(rows.abs().amax(-1, keepdim=True))
            halves = (rows * _power_of_two(-exponents)).half()
            result = self._half_product(halves).float() * _power_of_two(exponents)
        return result if self.bias is None else result + self.bias

    def select(self, outputs: Tensor) -> Tensor:
        """The weights of ``outputs`` (int64 ``[count]``), float32 ``[count, inputs]``."""
        return _decoded([part[outputs] for part in self._parts], self.format, self.inputs).float()

    def _half_product(self, rows: Tensor) -> Tensor:
        if not self.format.integer:
            return functional.linear(rows, self._parts[0])
        # In parts, so that a large matrix is never there as floats as a whole.
        step = max(1, MAX_DENSE_BYTES // (2 * self.inputs))
        found = [
            functional.linear(
                rows, _decoded([p[i : i + step] for p in self._parts], self.format, self.inputs)
            )
            for i in range(0, self.outputs, step)
        ]
        return found[0] if len(found) == 1 else torch.cat(found, dim=-1)


def _power_of_two(exponents: Tensor) -> Tensor:
    """Two to the power of each number, float32: exact, where a device's own power may not be."""
    return ((exponents + 127).clamp(1, 254) << 23).to(torch.int32).view(torch.float32)


def _encoded(weight: Tensor, form: Format) -> list[Tensor]:
    """Rows ``[rows, inputs]`` as they are kept."""
    if not form.integer:
        return [weight.to(_DTYPES[form])]
    held = quantise(weight, form)
    quants = held.quants
    if form is not Format.INT8:
        low, high = quants.to(torch.uint8).chunk(2, dim=-1)
        quants = low | (high << 4)
    return [quants, held.scales, *(() if held.minima is None else (held.minima,))]


def _decoded(parts: list[Tensor], form: Format, inputs: int) -> Tensor:
    """Rows as floats ``[rows, inputs]``; integer formats as float16."""
    if not form.integer:
        return parts[0]
    quants, scales = parts[0], parts[1][..., None]
    if form is Format.INT8:
        weights = quants * scales
    else:
        whole = torch.cat((quants & 15, quants >> 4), dim=-1)
        if form is Format.INT4:
            weights = (whole.to(torch.int8) - 8) * scales
        else:
            weights = (whole * scales.float() + parts[2][..., None]).half()
    return weights.flatten(1)[:, :inputs]


class DeviceHead(nn.Module):
    """An inference-only head, after its norm."""

    def __init__(self, matrix: DeviceMatrix, norm: Tensor, eps: float, base: int) -> None:
        super().__init__()
        self.matrix, self._norm, self._eps, self._base = matrix, norm, eps, base

    def forward(self, hidden: Tensor) -> Tensor:
        """``[..., hidden]`` to logits ``[..., vocab]``, float32, on the device."""
        rows = hidden.reshape(-1, hidden.shape[-1]).to(self._norm.device).float()
        whole = padded(rows, padded_count(rows.shape[0], self._base))
        logits = tiled(self._normed, whole, [self._base])[: rows.shape[0]]
        return logits.view(*hidden.shape[:-1], -1)

    def _normed(self, rows: Tensor) -> Tensor:
        normal = functional.rms_norm(rows, self._norm.shape, self._norm, self._eps)
        return self.matrix.product(normal)


class DeviceEmbedding(nn.Module):
    """An embedding whose rows are the outputs of a matrix on a device."""

    def __init__(self, matrix: DeviceMatrix, device: torch.device) -> None:
        super().__init__()
        self.matrix, self._device = matrix, device

    def forward(self, tokens: Tensor) -> Tensor:
        """int64 ``[...]`` to float32 ``[..., hidden]`` on the device."""
        rows = self.matrix.select(tokens.reshape(-1).to(self._device))
        return rows.view(*tokens.shape, -1)
