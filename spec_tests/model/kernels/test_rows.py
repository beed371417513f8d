"""Packing reads some rows at a time, and gets the bits that reading all of them gives."""

import pytest
import torch

from meshnode.model.kernels import rows as rows_module
from meshnode.model.kernels.formats import Format
from meshnode.model.kernels.fused import PackedMatrix, packed
from meshnode.model.kernels.library import Library
from meshnode.model.kernels.rows import InTurn, TensorRows, blocks
from spec_tests.model.kernels.test_products import tensors


def test_the_halves_come_in_turn_and_are_filled_up() -> None:
    both = torch.arange(10.0)[:, None].expand(10, 3)
    rows = InTurn(TensorRows(both), 4)
    assert (rows.outputs, rows.inputs) == (16, 3)
    wanted = [0, 1, 2, 3, 5, 6, 7, 8, 4, 0, 0, 0, 9, 0, 0, 0]
    assert rows.read(0, 16)[:, 0].tolist() == wanted
    assert torch.equal(torch.cat([rows.read(0, 8), rows.read(8, 16)]), rows.read(0, 16))


def test_blocks_begin_at_multiples_and_leave_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "BLOCK_BYTES", 4 * 3 * 40)
    matrix = TensorRows(torch.zeros(100, 3))
    assert list(blocks(matrix, 16)) == [(0, 32), (32, 64), (64, 96), (96, 100)]


@pytest.mark.parametrize("form", list(Format))
def test_the_blocks_do_not_show(
    kernels: Library, form: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = TensorRows(tensors(100, 70)[0])
    whole = PackedMatrix(kernels, packed(kernels, weight, None, form)).dense()
    monkeypatch.setattr(rows_module, "BLOCK_BYTES", 1)
    assert torch.equal(PackedMatrix(kernels, packed(kernels, weight, None, form)).dense(), whole)
