"""Products of the compiled kernels: against a plain reference, and alone or in any batch."""

import pytest
import torch
from torch import Tensor

from meshnode.model.kernels.formats import GROUP, Format, quantise, rounded
from meshnode.model.kernels.fused import PackedEmbedding, PackedMatrix, packed
from meshnode.model.kernels.library import Library
from meshnode.model.kernels.rows import TensorRows

SHAPES = [(7, 24), (16, 32), (50, 100), (40, 512), (96, 600)]
ROWS = 29


def tensors(outputs: int, inputs: int) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(outputs)
    weight = torch.randn(outputs, inputs, generator=random) * 0.05
    bias = torch.randn(outputs, generator=random)
    return weight, bias, torch.randn(ROWS, inputs, generator=random) * 3


def expected(weight: Tensor, bias: Tensor, rows: Tensor, form: Format) -> Tensor:
    """The product as doubles; in integer formats, of rows rounded to eight bits in groups."""
    if form.integer:
        padded = torch.nn.functional.pad(rows, (0, -rows.shape[1] % GROUP)).view(ROWS, -1, GROUP)
        peaks = padded.abs().amax(-1, keepdim=True)
        quants = (padded * (127 / peaks).nan_to_num(posinf=0)).round()
        rows = (quants.double() * (peaks / 127).double()).flatten(1)[:, : rows.shape[1]]
    return rows.double() @ rounded(weight, form).double().T + bias


@pytest.mark.parametrize("form", list(Format))
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_products_are_those_of_a_plain_reference(
    kernels: Library, form: Format, outputs: int, inputs: int
) -> None:
    weight, bias, rows = tensors(outputs, inputs)
    result = PackedMatrix(kernels, packed(kernels, TensorRows(weight), bias, form))(rows)
    reference = expected(weight, bias, rows, form)
    assert result.shape == (ROWS, outputs)
    assert (result - reference).abs().max() <= 3e-6 * reference.abs().max()


@pytest.mark.parametrize("form", list(Format))
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_a_row_has_the_same_bits_alone_and_among_any_others(
    kernels: Library, form: Format, outputs: int, inputs: int
) -> None:
    weight, bias, rows = tensors(outputs, inputs)
    product = PackedMatrix(kernels, packed(kernels, TensorRows(weight), bias, form))
    alone = torch.cat([product(rows[i : i + 1]) for i in range(ROWS)])
    for count in range(2, ROWS + 1):
        assert torch.equal(product(rows[ROWS - count :]), alone[ROWS - count :])
    many = rows.repeat(8, 1)
    assert torch.equal(product(many), alone.repeat(8, 1))


@pytest.mark.parametrize("form", list(Format))
def test_the_number_of_threads_does_not_matter(kernels: Library, form: Format) -> None:
    weight, bias, rows = tensors(96, 600)
    one = Library(1)
    results = [
        PackedMatrix(k, packed(k, TensorRows(weight), bias, form))(rows) for k in (kernels, one)
    ]
    assert torch.equal(*results)


@pytest.mark.parametrize("form", list(Format))
def test_a_packed_matrix_gives_its_weights_back(kernels: Library, form: Format) -> None:
    weight, _, _ = tensors(50, 100)
    matrix = packed(kernels, TensorRows(weight), None, form)
    assert torch.equal(PackedMatrix(kernels, matrix).dense(), rounded(weight, form))
    tokens = torch.tensor([[3, 49], [0, 3]])
    assert torch.equal(PackedEmbedding(kernels, matrix)(tokens), rounded(weight, form)[tokens])


@pytest.mark.parametrize("form", list(Format))
def test_numbers_that_are_not_finite_are_not_hidden(kernels: Library, form: Format) -> None:
    weight, bias, rows = tensors(50, 100)
    rows[3, 7] = float("nan")
    rows[5, 8] = float("inf")
    result = PackedMatrix(kernels, packed(kernels, TensorRows(weight), bias, form))(rows)
    assert not torch.isfinite(result[3]).any()
    assert not torch.isfinite(result[5]).any()
    assert torch.isfinite(result[[0, 1, 2, 4, 6]]).all()


def test_memory_is_that_of_the_format(kernels: Library) -> None:
    weight = torch.zeros(256, 512)
    for form in Format:
        assert (
            packed(kernels, TensorRows(weight), None, form).nbytes == weight.numel() * form.bits / 8
        )


def test_a_quantised_matrix_is_taken_over_as_it_is(kernels: Library) -> None:
    held = quantise(tensors(50, 100)[0], Format.INT4_MIN)
    matrix = packed(kernels, TensorRows(held.dequantised()), None, Format.INT4_MIN)
    assert torch.equal(PackedMatrix(kernels, matrix).dense(), held.dequantised())


@pytest.mark.parametrize("form", list(Format))
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_wider_vectors_change_no_bit(
    kernels: Library, plain: Library, form: Format, outputs: int, inputs: int
) -> None:
    weight, bias, rows = tensors(outputs, inputs)
    ours, theirs = (
        PackedMatrix(each, packed(each, TensorRows(weight), bias, form))
        for each in (kernels, plain)
    )
    for count in (1, 5, 8, ROWS):
        assert torch.equal(ours(rows[:count]), theirs(rows[:count]))
