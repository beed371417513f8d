"""Whether a row's rounding depends on its batch, tested on the machine at hand (decision 0008).

A seed promises the same tokens whether a request runs alone or in a batch, so the logits must be
equal to the bit. The kernels of ``model.linear`` keep this promise where they were tested. This
module tests once, at the start, whether they and all operations between them keep it on this
processor, with these shapes and this number of threads. If they do not, the engine computes row by
row: slower, but exact.

The same test is made for a replay, which computes in one call the positions that were first
computed in one step each (decision 0034).
"""

from __future__ import annotations

import torch
from torch import Tensor

from meshnode.model.decoder import Decoder
from meshnode.model.kv import KVCache

_LENGTHS = (0, 1, 2, 5, 17, 33, 64, 101)
"""Lengths of the probe's sessions, in turn: short ones, odd ones, and longer than a block."""

_REPLAYED = 37
"""Positions of the probe for replay; not a multiple of any vector width."""


@torch.inference_mode()
def rows_are_independent(decoder: Decoder, most_rows: int) -> bool:
    """Whether every batch of up to ``most_rows`` rows gives each row the bits it gets alone.

    Compares one layer of each kind, and the head where it is held, on random hidden states: layers
    of a kind have equal shapes, and a different order of summation shows in a few thousand sums.
    """
    random = torch.Generator().manual_seed(0)
    hidden = torch.randn(most_rows, 1, decoder.config.hidden_size, generator=random)
    lengths = [_LENGTHS[row % len(_LENGTHS)] for row in range(most_rows)]
    lengths = [min(length, decoder.config.context_length - 1) for length in lengths]
    filled = [_filled(decoder, length, random) for length in lengths]

    def outputs(rows: slice) -> Tensor:
        states = hidden[rows]
        for layer in _examples(decoder):
            caches = []
            for cache in filled[rows]:
                caches.append(decoder.new_cache(1, cache.length + 1))
                caches[-1].begin_with(cache, cache.length)
            states = decoder.transform(states, caches, layer)
        return decoder.predict(states) if decoder.is_last else states

    alone = torch.cat([outputs(slice(row, row + 1)) for row in range(most_rows)])
    return all(
        torch.equal(outputs(slice(most_rows - count, most_rows)), alone[most_rows - count :])
        for count in range(2, most_rows + 1)
    )


@torch.inference_mode()
def replays_exactly(decoder: Decoder, *, stepwise: bool = True) -> bool:
    """Whether positions computed stepwise in one call get the same bits as in separate steps.

    Without ``stepwise``, whether positions of a prompt do: then chunks may end anywhere.
    """
    random = torch.Generator().manual_seed(1)
    seq = min(_REPLAYED, decoder.config.context_length)
    hidden = torch.randn(1, seq, decoder.config.hidden_size, generator=random)
    for layer in _examples(decoder):
        stepped, replayed = (decoder.new_cache(1, seq) for _ in range(2))
        steps = [decoder.transform(hidden[:, i : i + 1], [stepped], layer) for i in range(seq)]
        states = decoder.transform(hidden, [replayed], layer, stepwise=stepwise)
        same = torch.equal(states, torch.cat(steps, dim=1))
        if not same or not torch.equal(replayed.contents(), stepped.contents()):
            return False
    return True


def _filled(decoder: Decoder, length: int, random: torch.Generator) -> KVCache:
    """A cache of one layer with random keys and values."""
    cache = decoder.new_cache(1, length)
    shape = KVCache.allocate(decoder.config, 1, length).storage.shape
    cache.fill(torch.randn(shape, generator=random))
    return cache


def _examples(decoder: Decoder) -> list[range]:
    """The index of one held layer of each kind, as ranges for ``Decoder.transform``."""
    kinds = {decoder.config.kind(layer): place for place, layer in enumerate(decoder.held)}
    return [range(place, place + 1) for place in kinds.values()]
