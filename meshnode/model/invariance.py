"""Whether a row's rounding depends on its batch, found out on the machine at hand (decisions/0008).

A seed promises the same tokens alone and among others, so logits must be the same bits. The kernels
of ``model.linear`` keep that promise where it was tested; whether they and all that runs between
them keep it on this processor, at these shapes, with this number of threads, is computed here once
at start. Where they do not, the engine computes row by row: slower, and still true.

The same goes for a replay, which computes in one go the positions that were computed in as many
steps (decisions/0034).
"""

from __future__ import annotations

import torch
from torch import Tensor

from meshnode.model.decoder import Decoder
from meshnode.model.kv import KVCache

_LENGTHS = (0, 1, 2, 5, 17, 33, 64, 101)
"""Positions that the probe's sessions have behind them, in turn: short, odd, and beyond a block."""

_REPLAYED = 37
"""Positions of the probe of replay: no multiple of any vector's width."""


@torch.inference_mode()
def rows_are_independent(decoder: Decoder, most_rows: int) -> bool:
    """Whether every batch of up to ``most_rows`` rows gives each row the bits it gets alone.

    Compares one layer, and the head where it is held, on random hidden states: layers have equal
    shapes, and a different order of summation shows in a few thousand random sums.
    """
    random = torch.Generator().manual_seed(0)
    hidden = torch.randn(most_rows, 1, decoder.config.hidden_size, generator=random)
    lengths = [_LENGTHS[row % len(_LENGTHS)] for row in range(most_rows)]
    lengths = [min(length, decoder.config.context_length - 1) for length in lengths]
    storages = [
        torch.randn(KVCache.allocate(decoder.config, 1, n + 1).storage.shape, generator=random)
        for n in lengths
    ]

    def outputs(rows: slice) -> Tensor:
        caches = [KVCache(s.clone(), n) for s, n in zip(storages[rows], lengths[rows], strict=True)]
        states = decoder.transform(hidden[rows], caches, range(1))
        return decoder.predict(states) if decoder.is_last else states

    alone = torch.cat([outputs(slice(row, row + 1)) for row in range(most_rows)])
    return all(
        torch.equal(outputs(slice(most_rows - count, most_rows)), alone[most_rows - count :])
        for count in range(2, most_rows + 1)
    )


@torch.inference_mode()
def replays_exactly(decoder: Decoder) -> bool:
    """Whether positions computed singly in one call get the bits of as many steps."""
    random = torch.Generator().manual_seed(1)
    seq = min(_REPLAYED, decoder.config.context_length)
    hidden = torch.randn(1, seq, decoder.config.hidden_size, generator=random)
    stepped, replayed = (KVCache.allocate(decoder.config, 1, seq) for _ in range(2))
    steps = [decoder.transform(hidden[:, i : i + 1], [stepped], range(1)) for i in range(seq)]
    states = decoder.transform(hidden, [replayed], range(1), singly=True)
    return torch.equal(states, torch.cat(steps, dim=1)) and torch.equal(
        replayed.storage, stepped.storage
    )
