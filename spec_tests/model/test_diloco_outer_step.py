"""The outer step: robust rules, and bits that depend only on the set of contributions."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.training.weighting import weights_of
from meshnode.model.diloco import (
    Contribution,
    Rule,
    SparseTensor,
    aggregate,
    scales_of,
    tolerated,
)
from meshnode.model.outer_step import (
    APART_STEP,
    DENSE_STEP,
    HALF_STEP,
    LEAST_AGREEMENT,
    SPARSE_STEP,
    OuterStep,
    agreement,
    step_of,
)

VALUES = st.floats(-1e3, 1e3, width=32)
LIES = st.floats(-(2.0**127), 2.0**127, width=32)


def gradients(*rows: list[float]) -> list[dict[str, torch.Tensor]]:
    return [{"w": torch.tensor(row)} for row in rows]


def test_the_outer_step_is_nesterov_s() -> None:
    anchor, velocity = {"w": torch.tensor([1.0])}, {"w": torch.tensor([0.5])}
    weights, moved = OuterStep().apply(anchor, velocity, {"w": torch.tensor([0.2])}, [])
    assert moved["w"].item() == pytest.approx(0.9 * 0.5 + 0.2)
    assert weights["w"].item() == pytest.approx(1.0 - 0.7 * (0.2 + 0.9 * (0.9 * 0.5 + 0.2)))
    assert anchor["w"].item() == 1.0
    # The result must equal that of torch's own optimizer.
    parameter = torch.nn.Parameter(torch.tensor([1.0]))
    library = torch.optim.SGD([parameter], lr=0.7, momentum=0.9, nesterov=True)
    own = {"w": torch.tensor([1.0])}, {"w": torch.zeros(1)}
    for value in (0.2, -0.1, 0.4):
        parameter.grad = torch.tensor([value])
        library.step()
        own = OuterStep().apply(*own, {"w": torch.tensor([value])}, [])
    assert own[0]["w"].item() == pytest.approx(parameter.item(), rel=1e-6)


def sending(sent: int) -> dict[str, SparseTensor | torch.Tensor]:
    """Return a contribution of eight values that sends so many of them."""
    return {"w": SparseTensor((8,), torch.arange(sent), torch.ones(sent))}


def test_most_of_a_set_decides_on_the_step() -> None:
    dense: dict[str, SparseTensor | torch.Tensor] = {"w": torch.ones(8)}
    assert step_of([dense]) == step_of([dense, dense]) == DENSE_STEP
    assert step_of([sending(4)]) == step_of([sending(8), dense]) == HALF_STEP
    assert step_of([sending(3)]) == step_of([sending(3), dense]) == SPARSE_STEP
    # One of three does not decide between the steps of sparse sets.
    assert step_of([dense, sending(1), sending(8)]) == HALF_STEP
    assert step_of([sending(1), sending(2), dense]) == SPARSE_STEP
    # The share is that of all tensors together.
    assert step_of([{"v": torch.ones(2)} | sending(3)]) == HALF_STEP


def turned(cosine: float) -> dict[str, SparseTensor | torch.Tensor]:
    """Return a contribution that has this cosine with ``{"w": 1 0}`` repeated."""
    pair = torch.tensor([cosine, (1 - cosine**2) ** 0.5])
    return {"w": pair.repeat(50), "v": pair.repeat(3).reshape(3, 2)}


def test_contributions_that_agree_little_take_a_calm_step() -> None:
    straight = turned(1.0)
    assert agreement([straight]) == 1.0
    for cosine, step in ((0.5, DENSE_STEP), (0.4, DENSE_STEP), (0.3, APART_STEP), (-1, APART_STEP)):
        assert agreement([straight, turned(cosine)]) == pytest.approx(cosine, abs=1e-6)
        assert step_of([straight, turned(cosine)]) == step
    # Those that send half of their values, too; but not those that are mostly feedback.
    first = SparseTensor((8,), torch.arange(4), torch.ones(4))
    second = SparseTensor((8,), torch.arange(3, 7), torch.ones(4))
    assert step_of([{"w": first}, {"w": second}]) == APART_STEP
    third = SparseTensor((8,), torch.arange(4, 7), torch.ones(3))
    assert step_of([{"w": first}, {"w": third}]) == SPARSE_STEP


def test_no_tensor_goes_further_than_the_bound() -> None:
    contributions: list[Contribution] = [
        {"w": torch.full((100,), length), "v": torch.ones(4)} for length in (1.0, 2.0, 9.0)
    ]
    anchor = {"w": torch.zeros(100), "v": torch.zeros(4)}
    combined = {"w": torch.full((100,), 5.0), "v": torch.full((4,), 0.25)}

    def way(step: OuterStep, sets: Sequence[Contribution]) -> dict[str, torch.Tensor]:
        return {n: -t for n, t in step.apply(anchor, {}, combined, sets)[0].items()}

    bound = OuterStep(1.0, 0.0, longest=0.5)
    found = way(bound, contributions)
    # The median of the lengths is that of the second; a liar's alone does not move it.
    assert found["w"].norm().item() == pytest.approx(0.5 * 2 * 10)
    assert torch.equal(found["v"], combined["v"])
    free = way(OuterStep(1.0, 0.0), contributions)
    assert all(torch.equal(free[name], combined[name]) for name in combined)
    sent: Contribution = {
        name: SparseTensor((len(t),), torch.arange(2), t[:2]) for name, t in combined.items()
    }
    assert way(bound, [sent])["w"].norm().item() == pytest.approx(0.5 * 5 * 2**0.5)
    nothing: Contribution = {name: torch.zeros_like(t) for name, t in combined.items()}
    assert not any(t.any() for t in way(bound, [nothing]).values())


@given(st.integers(3, 10), st.integers(0, 1000))
def test_liars_cannot_make_honest_contributions_seem_to_disagree(count: int, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    honest = [
        {"w": 1 + torch.randn(500, generator=random)} for _ in range(count - tolerated(count))
    ]
    lies = [{"w": -1e3 * torch.randn(500, generator=random)} for _ in range(tolerated(count))]
    together = agreement([*honest, *lies])
    assert together >= min(agreement([a, b]) for a in honest for b in honest if a is not b) - 1e-9
    assert step_of([*honest, *lies]) == DENSE_STEP


def test_a_part_of_a_large_contribution_tells_its_agreement() -> None:
    random = torch.Generator().manual_seed(1)
    shared = torch.randn(3000, 1000, generator=random)
    two = [{"w": shared + torch.randn(3000, 1000, generator=random)} for _ in range(2)]
    assert agreement(two) == pytest.approx(0.5, abs=0.01)
    flat = [one["w"].flatten() for one in two]
    sent = torch.arange(0, 3_000_000, 3)
    thirds = [{"w": SparseTensor((3000, 1000), sent, one[sent])} for one in flat]
    assert agreement(thirds) == pytest.approx(0.5, abs=0.02)
    assert 0.2 < LEAST_AGREEMENT < 0.5


def test_rules_by_hand() -> None:
    four = gradients([1.0], [2.0], [3.0], [1000.0])
    assert aggregate(Rule.MEAN, four)["w"].item() == 251.5
    assert aggregate(Rule.TRIMMED_MEAN, four)["w"].item() == 2.5
    assert aggregate(Rule.MEDIAN, four)["w"].item() == 2.5
    assert aggregate(Rule.KRUM, four)["w"].item() in (1.0, 2.0, 3.0)
    assert aggregate(Rule.MEDIAN, four[:3])["w"].item() == 2.0
    assert aggregate(Rule.TRIMMED_MEAN, four[:2])["w"].item() == 1.5
    with pytest.raises(ValueError, match="nothing"):
        aggregate(Rule.MEAN, [])


@pytest.mark.parametrize("rule", [Rule.TRIMMED_MEAN, Rule.MEDIAN])
@given(data=st.data(), count=st.integers(3, 10))
def test_liars_within_the_bound_do_not_leave_the_honest_range(
    rule: Rule, data: st.DataObject, count: int
) -> None:
    lies = tolerated(count)
    honest = data.draw(st.lists(VALUES, min_size=count - lies, max_size=count - lies))
    false = data.draw(
        st.lists(st.floats(-(2.0**127), 2.0**127, width=32), min_size=lies, max_size=lies)
    )
    mixed = data.draw(st.permutations([*honest, *false]))
    result = aggregate(rule, gradients(*([value] for value in mixed)))["w"].item()
    slack = 1e-5 * max(1.0, *map(abs, honest))
    assert min(honest) - slack <= result <= max(honest) + slack


@given(count=st.integers(4, 9), seed=st.integers(0, 1000))
def test_krum_chooses_an_honest_one(count: int, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    honest = [{"w": torch.randn(20, generator=random)} for _ in range(count - tolerated(count))]
    false = [{"w": 100 * torch.randn(20, generator=random)} for _ in range(tolerated(count))]
    result = aggregate(Rule.KRUM, [*false, *honest])["w"]
    assert any(torch.equal(result, one["w"]) for one in honest)


@pytest.mark.parametrize("rule", list(Rule))
def test_the_bits_do_not_depend_on_threads(rule: Rule) -> None:
    random = torch.Generator().manual_seed(1)
    shape = (211, 389)
    five = [{"w": torch.randn(shape, generator=random)} for _ in range(5)]
    anchor = {"w": torch.randn(shape, generator=random)}
    velocity = {"w": torch.randn(shape, generator=random)}
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(OuterStep().apply(anchor, velocity, aggregate(rule, five), five)[0]["w"])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(result, results[0]) for result in results)


def test_contributions_count_by_their_weights() -> None:
    three = gradients([1.0, 4.0], [2.0, 4.0], [4.0, 4.0])
    mean = aggregate(Rule.MEAN, three, weights=[1.0, 1.0, 0.5])["w"]
    assert mean.tolist() == [2.0, 4.0]
    # One at either end is left out, whatever it weighs.
    trimmed = aggregate(Rule.TRIMMED_MEAN, three, weights=[1.0, 0.125, 1.0])["w"]
    assert trimmed.tolist() == [2.0, 4.0]


@given(
    st.lists(st.lists(VALUES, min_size=3, max_size=3), min_size=1, max_size=7),
    st.sampled_from(Rule),
)
def test_equal_weights_change_no_bit(rows: list[list[float]], rule: Rule) -> None:
    without = aggregate(rule, gradients(*rows))["w"]
    assert torch.equal(aggregate(rule, gradients(*rows), weights=[1.0] * len(rows))["w"], without)


def sparse(indices: list[int], values: list[float], size: int = 4) -> dict[str, SparseTensor]:
    return {"w": SparseTensor((size,), torch.tensor(indices), torch.tensor(values))}


def test_what_one_alone_sent_counts_with_its_share_of_the_weight() -> None:
    two = [sparse([0, 1], [3.0, 4.0]), sparse([0, 2], [3.0, 4.0])]
    combined = aggregate(Rule.TRIMMED_MEAN, two, scales=[1.0, 1.0], weights=[1.0, 0.25])["w"]
    assert combined.tolist() == pytest.approx([3.0, 3.2, 0.8, 0.0])


def test_a_norm_is_judged_by_the_weight_of_its_contribution() -> None:
    quick, slow = sparse([0], [10.0]), sparse([1], [1.0])
    assert scales_of([quick, slow], [1.0, 0.1]) == pytest.approx([1.0, 1.0])
    assert scales_of([quick, slow]) == pytest.approx([0.1, 1.0])
    # A slow node that went too far for its steps.
    assert scales_of([quick, sparse([1], [4.0])], [1.0, 0.1]) == pytest.approx([1.0, 0.25])


@given(st.data(), st.integers(3, 9))
def test_no_claimed_weight_moves_the_trimmed_mean_beyond_honest_values(
    data: st.DataObject, count: int
) -> None:
    liars = tolerated(count)
    honest = data.draw(st.lists(VALUES, min_size=count - liars, max_size=count - liars))
    false = data.draw(st.lists(LIES, min_size=liars, max_size=liars))
    declared = data.draw(st.lists(st.integers(1, 2**31 - 1), min_size=count, max_size=count))
    weights = weights_of(declared)
    mixed = gradients(*([value] for value in [*false, *honest]))
    result = aggregate(Rule.TRIMMED_MEAN, mixed, weights=weights)["w"].item()
    slack = 1e-5 * max(1.0, *map(abs, honest))
    assert min(honest) - slack <= result <= max(honest) + slack
