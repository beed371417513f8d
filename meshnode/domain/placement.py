"""The choice of layers for a node, by its memory and what the network lacks (interface 1).

Terms: the *coverage* of a layer is the number of other nodes that hold it; a *window* is a
contiguous range of layers, as every node holds one.

Invariants: the chosen window fits the budget; no window that fits holds more of the layers that
nobody has; among equals, the least covered window is chosen, and then the lowest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshnode.domain.errors import StartupError


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """Bytes in memory: of one layer, and of what comes with the first and the last one."""

    num_layers: int
    layer_bytes: int
    embedding_bytes: int
    head_bytes: int

    def of(self, held: range) -> int:
        """Memory that the weights of ``held`` take."""
        size = len(held) * self.layer_bytes
        size += self.embedding_bytes if held.start == 0 else 0
        return size + (self.head_bytes if held.stop == self.num_layers else 0)


def choose_layers(sizes: ModelSizes, budget: int, coverage: Sequence[int]) -> range:
    """The window to hold within ``budget`` bytes. StartupError when not one layer fits.

    That is the whole model, if it fits: a node that needs no other one answers fastest.
    """
    windows = [
        range(start, stop)
        for start in range(sizes.num_layers)
        for stop in range(start + 1, sizes.num_layers + 1)
        if sizes.of(range(start, stop)) <= budget
    ]
    if not windows:
        raise StartupError(f"not one layer of the model fits in {budget / 2**30:.2f} GiB of memory")
    return max(windows, key=lambda window: _worth(window, coverage))


def _worth(window: range, coverage: Sequence[int]) -> tuple[int, float, int]:
    """Sort key: layers that nobody else has, then rarely held ones, then the lowest start."""
    missing = sum(coverage[layer] == 0 for layer in window)
    relief = sum(1 / (1 + coverage[layer]) for layer in window)
    return missing, relief, -window.start
