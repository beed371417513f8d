"""Which contributions are alike (decision 0212)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from meshnode.model.diloco import Contribution, SparseTensor
from meshnode.model.overlap import alike, likeness
from meshnode.services.gradient_values import PackedGradients, packed
from meshnode.wire.gradients import Format, Packing

SHAPES = {"a": (40, 64), "b": (300,)}


def random(seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}


def sent(values: Mapping[str, Tensor], kind: Format) -> Contribution:
    frames = {name: packed(tensor, Packing(kind)) for name, tensor in values.items()}
    return PackedGradients(frames, SHAPES)


def noisy(values: Mapping[str, Tensor], part: float, seed: int) -> dict[str, Tensor]:
    noise = random(seed)
    return {name: tensor + part * noise[name] for name, tensor in values.items()}


@pytest.mark.parametrize("kind", list(Format))
def test_a_copy_is_found_and_independent_ones_are_not_alike(kind: Format) -> None:
    one, other = random(1), random(2)
    copied = noisy(one, 0.01, 3)
    assert alike([sent(v, kind) for v in (one, other, copied)]) == [[0, 2]]
    assert alike([sent(v, kind) for v in (one, other)]) == []
    assert likeness(sent(one, kind), sent(one, kind)) == pytest.approx(1.0)
    assert abs(likeness(sent(one, kind), sent(other, kind))) < 0.2


@pytest.mark.parametrize("kind", list(Format))
def test_the_opposite_of_a_contribution_is_no_copy(kind: Format) -> None:
    one = random(1)
    opposite = {name: -tensor for name, tensor in one.items()}
    assert alike([sent(one, kind), sent(opposite, kind)]) == []


def test_several_groups_and_members_are_found() -> None:
    one, two, three = (sent(random(seed), Format.SPARSE) for seed in (1, 2, 3))
    assert alike([one, two, one, three, two, one]) == [[0, 2, 5], [1, 4]]


def test_zeros_make_nobody_a_copy() -> None:
    nothing = {name: torch.zeros(shape) for name, shape in SHAPES.items()}
    for kind in Format:
        assert alike([sent(nothing, kind)] * 2) == []
        assert alike([sent(nothing, kind), sent(random(1), kind)]) == []


def test_a_part_of_a_contribution_is_no_copy() -> None:
    whole = {"w": SparseTensor((100,), torch.arange(50), torch.ones(50))}
    part = {"w": SparseTensor((100,), torch.arange(20), torch.ones(20))}
    assert alike([whole, part]) == []
    most = {"w": SparseTensor((100,), torch.arange(48), torch.ones(48))}
    assert alike([whole, most]) == [[0, 1]]


def test_a_dense_copy_of_a_sparse_contribution_is_found() -> None:
    sparse = sent(random(1), Format.SPARSE)
    dense = {
        name: tensor.dense() for name, tensor in sparse.items() if isinstance(tensor, SparseTensor)
    }
    assert alike([sparse, sent(dense, Format.FLOAT32), sent(random(2), Format.INT8)]) == [[0, 1]]


def test_pairs_that_are_clearly_different_are_compared_no_further() -> None:
    long = [
        {
            "a": torch.randn(20_000, generator=torch.Generator().manual_seed(seed)),
            "b": torch.ones(9),
        }
        for seed in (1, 2)
    ]
    asked: list[str] = []

    class Watched(dict[str, Tensor]):
        def __getitem__(self, name: str) -> Tensor:
            asked.append(name)
            return super().__getitem__(name)

    assert alike([Watched(one) for one in long]) == []
    assert asked.count("a") > asked.count("b") == 0


def test_results_do_not_depend_on_how_much_is_compared_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pairs = [
        (sent(random(1), one), sent(noisy(random(1), 0.3, 2), other))
        for one in Format
        for other in Format
    ]
    whole = [likeness(*pair) for pair in pairs]
    monkeypatch.setattr("meshnode.model.overlap.WINDOW", 70)
    assert [likeness(*pair) for pair in pairs] == whole
