"""Logits as they come from the last holder, and what is chosen from them (decision 0230)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from meshnode.services.shards.messages import BYTES_PER_NUMBER, off_loop
from meshnode.services.shards.wanted import ALL, BEST, WantedLogits
from meshnode.wire.tensors import unpack_floats, unpack_integers

if TYPE_CHECKING:
    from torch import Tensor

    from meshnode.model.sampler import Sampler

KEPT_AT_MOST = 4
"""One in so many logits: with its id, one takes three times as many bytes as without."""


def kept_for(sampler: Sampler, vocab_size: int) -> str:
    """What a sampler needs of each row, as ``WantedLogits.kept``."""
    looks_at = sampler.looks_at
    if looks_at is None or looks_at * KEPT_AT_MOST > vocab_size:
        return ALL
    return BEST if looks_at == 1 and sampler.is_greedy else str(looks_at)


@dataclass(frozen=True, slots=True)
class LogitRows:
    """Logits after some consecutive positions."""

    values: Tensor = field(repr=False)
    """float32 ``[rows, kept]``."""
    ids: Tensor | None = field(default=None, repr=False)
    """int64 ``[rows, kept]``; None if the logits of all tokens are there."""

    def __len__(self) -> int:
        """The number of rows."""
        return self.values.shape[0]

    def last(self, rows: int) -> LogitRows:
        """The last so many rows."""
        start = len(self) - rows
        return LogitRows(self.values[start:], None if self.ids is None else self.ids[start:])

    def first(self) -> LogitRows:
        """The first row."""
        return LogitRows(self.values[:1], None if self.ids is None else self.ids[:1])

    def choose(self, row: int, sampler: Sampler) -> int:
        """The token that a sampler chooses from one row. Raises NoTokenPossible."""
        if self.ids is None:
            return sampler.choose(self.values[row])
        return sampler.choose_among(self.values[row], self.ids[row])


NO_ROWS = LogitRows(torch.empty(0, 0))


@dataclass(slots=True)
class SeenLogits:
    """What this driver has seen of its model's logits."""

    varied: bool = False
    """Whether they have ever differed between tokens."""

    def is_empty(self, rows: LogitRows, states: Tensor) -> bool:
        """Whether all logits of a row are equal, though they depend on the ``[hidden]`` states.

        The same head has given logits that differ, so these were not computed from the states.
        """
        if len(rows) == 0 or rows.values.shape[1] < 2:
            return False
        low, high = rows.values.aminmax(dim=1)
        if bool((low < high).all()):
            self.varied = True
            return False
        return self.varied and bool(states.any())


async def read_rows(
    data: bytes, ids: bytes, shape: Sequence[int], wanted: WantedLogits, vocab_size: int, seq: int
) -> LogitRows:
    """The rows in an answer to ``seq`` positions. Raises ValueError or InvalidRequest.

    A holder that knows nothing of ``wanted`` answers the last position's logits, or those of all.
    """
    if not wanted.rows and not data:
        return NO_ROWS
    width = wanted.width(vocab_size) if ids else vocab_size
    # Checked before unpacking: a compressed frame may expand to far more than its size.
    if len(shape) != 3 or (shape[0], shape[2]) != (1, width) or not 1 <= shape[1] <= seq:
        raise ValueError("logits of the wrong shape")
    if shape[1] < wanted.rows:
        raise ValueError("logits of fewer positions than it was asked for")

    def read() -> LogitRows:
        values = torch.from_numpy(unpack_floats(data, shape, "logits"))[0]
        if not ids:
            return LogitRows(values)
        tokens = torch.from_numpy(unpack_integers(ids, shape, "logits"))[0]
        if tokens.min() < 0 or tokens.max() >= vocab_size:
            raise ValueError("logits of tokens that do not exist")
        return LogitRows(values, tokens)

    rows = await off_loop(BYTES_PER_NUMBER * math.prod(shape), read)
    return rows.last(wanted.rows)
