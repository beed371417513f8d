"""The choice of layers for a node, by its memory and what the network lacks (interface 1).

Terms: the *coverage* of a layer is the number of other nodes that hold it; a *window* is a
contiguous range of layers, as every node holds one.

Invariants: the chosen window fits the budget; with none that fits would fewer nodes of the same
size be needed for the layers that still nobody has; of those, it is one with the most weight of
layers that nobody has, then the least covered, and then the lowest. So two nodes that have room for
half of the model hold it, although a window in its middle, without embedding and head, is longer.
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

    def weight(self, layer: int) -> int:
        """What a layer counts: its bytes with what comes with it, the same for both ends."""
        is_end = layer in (0, self.num_layers - 1)
        return self.layer_bytes + is_end * max(self.embedding_bytes, self.head_bytes)

    def of(self, held: range) -> int:
        """Memory that the weights of ``held`` take."""
        size = len(held) * self.layer_bytes
        size += self.embedding_bytes if held.start == 0 else 0
        return size + (self.head_bytes if held.stop == self.num_layers else 0)


def choose_layers(sizes: ModelSizes, budget: int, coverage: Sequence[int]) -> range:
    """The window to hold within ``budget`` bytes. StartupError when not one layer fits.

    That is the whole model, if it fits: a node that needs no other one answers fastest.
    """
    windows = _windows(sizes, budget)
    if not windows:
        raise StartupError(f"not one layer of the model fits in {budget / 2**30:.2f} GiB of memory")
    return max(windows, key=lambda window: _worth(sizes, budget, window, coverage))


def _windows(sizes: ModelSizes, budget: int) -> list[range]:
    return [
        range(start, stop)
        for start in range(sizes.num_layers)
        for stop in range(start + 1, sizes.num_layers + 1)
        if sizes.of(range(start, stop)) <= budget
    ]


def _worth(
    sizes: ModelSizes, budget: int, window: range, coverage: Sequence[int]
) -> tuple[int, int, float, int]:
    """Sort key: nodes still needed, weight that nobody else has, rarely held layers, low start."""
    missing = [layer for layer, holders in enumerate(coverage) if not holders]
    gained = sum(sizes.weight(layer) for layer in missing if layer in window)
    relief = sum(sizes.weight(layer) / (1 + coverage[layer]) for layer in window)
    left = [layer for layer in missing if layer not in window]
    return -nodes_for(sizes, budget, left), gained, relief, -window.start


def nodes_for(sizes: ModelSizes, budget: int, missing: Sequence[int]) -> int:
    """How many nodes with this budget hold these layers, which ascend."""
    count, stop = 0, 0
    for layer in missing:
        if layer < stop:
            continue
        # Layers that do not even fit alone have to be held by larger nodes.
        count, stop = count + 1, layer + 1
        while stop < sizes.num_layers and sizes.of(range(layer, stop + 1)) <= budget:
            stop += 1
    return count
