"""What a contribution leaves unsent is not lost, and how sparse contributions are combined."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from meshnode.model.diloco import Rule, SparseTensor, aggregate, norm
from meshnode.model.feedback import (
    DECAY,
    FeedbackUnreadable,
    contribute,
    read_feedback,
)
from meshnode.model.tensor_file import file_parts

SHAPES = {"w": (6,)}


def only_the_largest(name: str, tensor: torch.Tensor) -> tuple[bytes, SparseTensor]:
    at = tensor.abs().argmax().reshape(1)
    return b"%d" % at, SparseTensor(tuple(tensor.shape), at, tensor[at])


def test_small_values_add_up_until_they_are_sent() -> None:
    gradient = {"w": torch.tensor([1.0, 0.6, 0.0, 0.0, 0.0, 0.0])}
    feedback: dict[str, torch.Tensor] = {}
    sent = []
    for _ in range(3):
        frames, feedback = contribute(gradient, feedback, only_the_largest)
        sent.append(frames["w"])
    assert sent == [b"0", b"1", b"0"]
    assert gradient["w"].tolist()[:2] == pytest.approx([1.0, 0.6])
    # The second value was sent in the second round; since then it has grown once.
    assert feedback["w"].tolist()[:2] == pytest.approx([0.0, 0.6])


def test_the_old_feedback_decays() -> None:
    _, left = contribute(
        {"w": torch.zeros(6)},
        {"w": torch.tensor([4.0, 1.0, 0.0, 0.0, 0.0, 0.0])},
        only_the_largest,
    )
    assert left["w"].tolist()[:2] == pytest.approx([0.0, DECAY])


def test_nothing_is_left_by_a_contribution_that_sends_all() -> None:
    frames, left = contribute({"w": torch.ones(6)}, {}, lambda name, tensor: (b"all", tensor))
    assert (frames, left) == ({"w": b"all"}, {})


def test_a_feedback_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "feedback.safetensors"
    for feedback in ({"w": torch.arange(6.0)}, {}):
        path.write_bytes(b"".join(file_parts(feedback)))
        assert str(read_feedback(path, SHAPES)) == str(feedback)


@pytest.mark.parametrize(
    "feedback",
    [{"w": torch.ones(5)}, {"v": torch.ones(6)}, {"w": torch.tensor([torch.nan] * 6)}],
)
def test_a_feedback_of_another_model_is_refused(
    tmp_path: Path, feedback: dict[str, torch.Tensor]
) -> None:
    path = tmp_path / "feedback.safetensors"
    path.write_bytes(b"".join(file_parts(feedback)))
    with pytest.raises(FeedbackUnreadable, match="another model"):
        read_feedback(path, SHAPES)
    path.write_bytes(b"rubbish")
    with pytest.raises(FeedbackUnreadable, match="damaged or missing"):
        read_feedback(path, SHAPES)


def sparse(values: dict[int, float], size: int = 6) -> dict[str, SparseTensor]:
    indices = torch.tensor(sorted(values))
    return {"w": SparseTensor((size,), indices, torch.tensor([values[int(i)] for i in indices]))}


def test_what_few_nodes_sent_counts_by_their_share() -> None:
    # Equal norms, so nothing is scaled down.
    four = [sparse({0: 2.0}), sparse({0: 2.0}), sparse({1: 2.0}), sparse({2: -2.0})]
    for rule in (Rule.MEAN, Rule.TRIMMED_MEAN, Rule.MEDIAN):
        assert aggregate(rule, four)["w"].tolist() == [1.0, 0.5, -0.5, 0.0, 0.0, 0.0]


def test_values_far_from_those_of_the_others_are_trimmed() -> None:
    honest = [sparse({0: 1.0, 1: 5.0}), sparse({0: 1.1, 1: 5.0}), sparse({0: 1.2, 1: 5.0})]
    liar = sparse({0: -5.0, 3: 1.0})
    combined = aggregate(Rule.TRIMMED_MEAN, [*honest, liar])["w"]
    # All four sent element 0: its mean is that of the middle two.
    assert 1.0 <= combined[0].item() <= 1.1
    assert abs(combined[3].item()) <= 0.25


def test_a_contribution_cannot_be_louder_than_the_median() -> None:
    honest = [sparse({0: 1.0}), sparse({1: 1.0})]
    combined = aggregate(Rule.TRIMMED_MEAN, [*honest, sparse({5: 1000.0})])["w"]
    assert combined.tolist() == pytest.approx([1 / 3, 1 / 3, 0, 0, 0, 1 / 3])


@given(
    st.lists(
        st.dictionaries(st.integers(0, 5), st.floats(-1, 1, width=32), min_size=1),
        min_size=1,
        max_size=7,
    )
)
def test_bits_do_not_depend_on_the_window(parts: list[dict[int, float]]) -> None:
    contributions = [sparse(part) for part in parts]
    for rule in Rule:
        whole = aggregate(rule, contributions)["w"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("meshnode.model.diloco.WINDOW", 2)
            assert torch.equal(aggregate(rule, contributions)["w"], whole)


@given(st.lists(st.lists(st.floats(-9, 9, width=32), min_size=6, max_size=6), min_size=1))
def test_sparse_with_every_element_is_dense(rows: list[list[float]]) -> None:
    dense = [{"w": torch.tensor(row)} for row in rows[:6]]
    full = [sparse(dict(enumerate(row))) for row in rows[:6]]
    assert [norm(one) for one in dense] == [norm(one) for one in full]
    # Equal norms: nothing is scaled down.
    same = [dense[0]] * len(dense)
    for rule in Rule:
        expected = aggregate(rule, same)["w"]
        assert torch.equal(aggregate(rule, [full[0]] * len(dense))["w"], expected)
