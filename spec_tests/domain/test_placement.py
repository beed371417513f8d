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


def test_what_others_need_comes_first() -> None:
    # The middle has five layers, but two nodes can hold everything.
    sizes = ModelSizes(num_layers=8, layer_bytes=100, embedding_bytes=90, head_bytes=90)
    assert choose_layers(sizes, 500, [0] * 8) == range(4)
    assert choose_layers(sizes, 500, [1] * 4 + [0] * 4) == range(4, 8)


@st.composite
def networks(draw: st.DrawFn) -> tuple[ModelSizes, int, list[int]]:
    """Sizes of a model, a budget, and how many others hold each layer."""
    number = draw(st.integers(1, 8))
    sizes = ModelSizes(number, draw(st.integers(10, 200)), 30, 40)
    return sizes, draw(st.integers(0, 1200)), [draw(st.integers(0, 3)) for _ in range(number)]


def fitting(sizes: ModelSizes, budget: int) -> list[range]:
    number = sizes.num_layers
    windows = [range(a, b) for a in range(number) for b in range(a + 1, number + 1)]
    return [window for window in windows if sizes.of(window) <= budget]


def nodes_for(windows: list[range], missing: frozenset[int]) -> int:
    """The fewest windows that cover ``missing``, by trying; a layer that fits nowhere is one."""
    if not missing:
        return 0
    first = min(missing)
    covering = [window for window in windows if first in window] or [range(first, first + 1)]
    return 1 + min(nodes_for(windows, missing - set(window)) for window in covering)


@given(networks())
def test_no_window_that_fits_would_help_more(network: tuple[ModelSizes, int, list[int]]) -> None:
    sizes, budget, coverage = network
    windows = fitting(sizes, budget)
    if not windows:
        with pytest.raises(StartupError):
            choose_layers(sizes, budget, coverage)
        return
    missing = frozenset(layer for layer, holders in enumerate(coverage) if not holders)

    def worth(window: range) -> tuple[int, int]:
        gained = sum(sizes.weight(layer) for layer in missing & set(window))
        return -nodes_for(windows, missing - set(window)), gained

    chosen = choose_layers(sizes, budget, coverage)
    assert chosen in windows
    assert worth(chosen) == max(map(worth, windows))
