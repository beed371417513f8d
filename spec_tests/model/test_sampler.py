"""Document 4.1: temperature, top_k and top_p, in the usual order; 0 is greedy; seeds repeat."""

import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.generation import GenerationRequest
from meshnode.model.sampler import NonFiniteLogits, NoTokenPossible, Sampler

LOGITS = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -3.0])


def sampler(**changes: Any) -> Sampler:
    plain: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "seed": 1}
    return Sampler(GenerationRequest("", **(plain | changes)))


def draws(count: int = 4000, logits: torch.Tensor = LOGITS, **changes: Any) -> Counter[int]:
    chooser = sampler(**changes)
    return Counter(chooser.choose(logits) for _ in range(count))


def assert_distribution(counts: Counter[int], probabilities: torch.Tensor) -> None:
    total = counts.total()
    for token, probability in enumerate(probabilities.tolist()):
        # Within five standard deviations; as the seed is fixed, a failure is due to the code.
        tolerance = 5 * math.sqrt(max(probability * (1 - probability), 1e-9) / total)
        assert abs(counts[token] / total - probability) <= tolerance


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_temperature_scales_the_logits(temperature: float) -> None:
    assert_distribution(draws(temperature=temperature), (LOGITS / temperature).softmax(0))


def test_temperature_zero_takes_the_most_likely_whatever_else_is_set() -> None:
    assert set(draws(50, temperature=0.0, top_k=3, top_p=0.1)) == {0}
    assert set(draws(5, logits=torch.tensor([1.0, 7.0, 7.0]), temperature=0.0)) == {1}


@pytest.mark.parametrize("temperature", [1e-300, 1e-12, 1e-3])
def test_a_tiny_temperature_does_not_overflow(temperature: float) -> None:
    assert set(draws(50, temperature=temperature)) == {0}


@pytest.mark.parametrize("top_k", [1, 2, 4])
def test_top_k_leaves_the_most_likely(top_k: int) -> None:
    masked = LOGITS.clone()
    masked[top_k:] = -math.inf
    assert_distribution(draws(top_k=top_k), masked.softmax(0))


@pytest.mark.parametrize("top_k", [0, 6, 1000])
def test_top_k_of_zero_or_of_everything_limits_nothing(top_k: int) -> None:
    assert_distribution(draws(top_k=top_k), LOGITS.softmax(0))


@pytest.mark.parametrize("top_p", [0.0, 0.3, 0.7, 0.9, 0.9999])
def test_top_p_leaves_the_smallest_set_that_reaches_it(top_p: float) -> None:
    probabilities = LOGITS.softmax(0)
    before = probabilities.cumsum(0) - probabilities
    kept = torch.where((before < top_p) | (before == 0), probabilities, torch.zeros(()))
    assert_distribution(draws(top_p=top_p), kept / kept.sum())


def test_top_p_counts_what_top_k_has_left() -> None:
    """The first of the two tokens that top_k leaves has 73 %, which is enough for top_p."""
    assert LOGITS.softmax(0)[0] < 0.6
    assert set(draws(200, top_k=2, top_p=0.7)) == {0}


def test_order_of_the_logits_does_not_matter() -> None:
    order = torch.tensor([3, 5, 0, 2, 4, 1])
    shuffled = draws(logits=LOGITS[order], top_p=0.8)
    straight = draws(logits=LOGITS, top_p=0.8)
    assert {int(order[token]): n for token, n in shuffled.items()} == dict(straight)


def test_a_seed_repeats_and_no_seed_does_not() -> None:
    wide = torch.zeros(1000)

    def sequence(seed: int | None) -> list[int]:
        chooser = sampler(seed=seed)
        return [chooser.choose(wide) for _ in range(8)]

    assert sequence(3) == sequence(3) != sequence(4)
    assert sequence(None) != sequence(None)


@pytest.mark.parametrize("seed", [0, 2**63 - 1, 2**64 + 5, -1])
def test_any_integer_is_a_seed(seed: int) -> None:
    assert draws(5, seed=seed) == draws(5, seed=seed)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_numbers_are_an_error(bad: float, temperature: float) -> None:
    logits = LOGITS.clone()
    logits[3] = bad
    with pytest.raises(NonFiniteLogits):
        sampler(temperature=temperature).choose(logits)


@given(
    st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=20),
    st.floats(0, 2),
    st.floats(0, 1),
    st.integers(0, 25),
)
def test_every_finite_row_gives_a_token(
    values: list[float], temperature: float, top_p: float, top_k: int
) -> None:
    chooser = sampler(temperature=temperature, top_p=top_p, top_k=top_k)
    assert 0 <= chooser.choose(torch.tensor(values)) < len(values)


def test_penalties_count_the_tokens_of_the_completion() -> None:
    chooser = sampler(temperature=0.0, frequency_penalty=0.4, presence_penalty=0.3)
    # 2.0, then 2.0 - 0.7, then that - 0.4, which is below 1.0.
    assert [chooser.choose(LOGITS) for _ in range(4)] == [0, 0, 1, 0]
    assert [sampler(temperature=0.0, presence_penalty=2.0).choose(LOGITS)] == [0]
    eager = sampler(temperature=0.0, frequency_penalty=-2.0)
    assert {eager.choose(LOGITS) for _ in range(3)} == {0}


def test_a_request_without_penalties_is_drawn_as_before() -> None:
    plain, zero = sampler(seed=5), sampler(seed=5, frequency_penalty=0.0, logprobs=3)
    assert [plain.choose(LOGITS) for _ in range(50)] == [zero.choose(LOGITS) for _ in range(50)]


def test_logprobs_are_the_models_own() -> None:
    chooser = sampler(temperature=0.3, presence_penalty=2.0, logprobs=2, seed=3)
    for _ in range(5):
        token = chooser.choose(LOGITS)
        found = chooser.logprobs(lambda token: bytes([token]))
        assert found is not None
        wanted = LOGITS.double().log_softmax(0)
        assert found.chosen.piece == bytes([token])
        assert found.chosen.logprob == pytest.approx(float(wanted[token]))
        assert [one.piece for one in found.top] == [b"\0", b"\1"]
    assert sampler().logprobs(lambda token: b"") is None


class Evens:
    """Allows even tokens, each once."""

    def __init__(self) -> None:
        self.left = [0, 2, 4]

    def allowed(self) -> torch.Tensor:
        if not self.left:
            raise NoTokenPossible
        return torch.tensor(self.left)

    def accept(self, token: int) -> None:
        self.left.remove(token)


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"top_k": 2}, {"top_p": 0.5}, {}])
def test_a_constraint_leaves_only_what_it_allows(options: dict[str, Any]) -> None:
    chooser = Sampler(GenerationRequest("", **({"top_k": 0, "seed": 1} | options)), Evens())
    assert sorted(chooser.choose(LOGITS) for _ in range(3)) == [0, 2, 4]
    with pytest.raises(NoTokenPossible):
        chooser.choose(LOGITS)
