"""``--layers auto`` fills the memory with layers, first those that the network lacks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.errors import StartupError
from meshnode.domain.placement import ModelSizes, choose_layers

EIGHT = ModelSizes(num_layers=8, layer_bytes=100, embedding_bytes=50, head_bytes=60)


def test_a_model_that_fits_is_held_whole() -> None:
    assert choose_layers(EIGHT, 10_000, [3] * 8) == range(8)


def test_the_layers_that_nobody_has_come_first() -> None:
    assert choose_layers(EIGHT, 400, [1, 1, 1, 1, 0, 0, 0, 1]) == range(3, 7)
    assert choose_layers(EIGHT, 300, [1, 1, 1, 1, 0, 0, 0, 1]) == range(4, 7)


def test_an_empty_network_begins_with_the_first_layer() -> None:
    assert choose_layers(EIGHT, 460, [0] * 8).start == 0


def test_the_embedding_and_the_head_count() -> None:
    assert choose_layers(EIGHT, 120, [0, 1, 1, 1, 1, 1, 1, 0]) == range(1, 2)
    assert choose_layers(EIGHT, 150, [0, 1, 1, 1, 1, 1, 1, 0]) == range(1)


def test_too_little_memory_is_reported() -> None:
    with pytest.raises(StartupError, match="not one layer"):
        choose_layers(EIGHT, 99, [0] * 8)


@given(
    st.integers(1, 12).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(st.integers(0, 3), min_size=n, max_size=n))
    ),
    st.integers(10, 200),
    st.integers(0, 2000),
)
def test_no_window_that_fits_would_help_more(
    shape: tuple[int, list[int]], layer_bytes: int, budget: int
) -> None:
    number, coverage = shape
    sizes = ModelSizes(number, layer_bytes, 30, 40)
    windows = [range(a, b) for a in range(number) for b in range(a + 1, number + 1)]
    fitting = [window for window in windows if sizes.of(window) <= budget]
    if not fitting:
        with pytest.raises(StartupError):
            choose_layers(sizes, budget, coverage)
        return
    chosen = choose_layers(sizes, budget, coverage)
    assert chosen in fitting

    def missing(window: range) -> int:
        return sum(coverage[layer] == 0 for layer in window)

    assert missing(chosen) == max(map(missing, fitting))
