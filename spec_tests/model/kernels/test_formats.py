"""What the formats hold, and how near it is to the weights."""

import pytest
import torch

from meshnode.model.kernels.formats import DTYPES, Format, narrowest, quantise, rounded
from meshnode.model.kernels.rows import TensorRows

FORMATS = [form for form in DTYPES.values() if form is not None]


def weights(outputs: int, inputs: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(seed)) * 0.05


@pytest.mark.parametrize(
    ("form", "bound"),
    [
        (Format.FLOAT32, 0.0),
        (Format.BFLOAT16, 0.002),
        (Format.FLOAT16, 0.0003),
        (Format.INT8, 0.006),
        (Format.INT4, 0.085),
        (Format.INT4_MIN, 0.085),
    ],
)
def test_the_error_of_each_format_is_bounded(form: Format, bound: float) -> None:
    weight = weights(64, 256)
    error = (rounded(weight, form) - weight).norm() / weight.norm()
    assert error <= bound


@pytest.mark.parametrize("form", list(Format))
def test_what_a_format_holds_it_holds_exactly(form: Format) -> None:
    held = rounded(weights(32, 96), form)
    assert torch.equal(rounded(held, form), held)
    assert narrowest(TensorRows(held)) is form


def test_four_bits_are_nearer_than_the_peak_alone_would_give() -> None:
    groups = weights(64, 256).view(64, -1, 32)
    peaks = groups.gather(-1, groups.abs().argmax(-1, keepdim=True))
    scales = (peaks / -8).half().float()
    plain = (groups / scales).round().clamp(-8, 7) * scales
    ours = rounded(groups.flatten(1), Format.INT4).view_as(groups)
    assert (ours - groups).norm() < 0.95 * (plain - groups).norm()


@pytest.mark.parametrize("form", [Format.INT8, Format.INT4, Format.INT4_MIN])
def test_inputs_that_are_no_multiple_of_a_group_are_padded(form: Format) -> None:
    weight = weights(5, 70)
    held = quantise(weight, form)
    assert held.quants.shape == (5, 3, 32)
    assert held.dequantised().shape == (5, 70)


@pytest.mark.parametrize("form", [Format.INT8, Format.INT4, Format.INT4_MIN])
def test_zero_stays_zero_and_extremes_stay_finite(form: Format) -> None:
    weight = torch.zeros(3, 64)
    weight[1] = 1e-30
    weight[2, 5] = 1e30
    held = rounded(weight, form)
    assert torch.equal(held[0], weight[0])
    assert torch.isfinite(held).all()
