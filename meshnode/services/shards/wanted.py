"""Which logits a caller wants, and the answer in those words (decision 0230).

Terms: a *row* is the logits after one position. What is *kept* of a row is all of it, its largest
number (beside the smallest, which shows that they differ), or its ``K`` largest ones in descending
order; of kept logits the token ids are sent too. A sampler that would look at no others chooses the
same token from what is kept as from all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from meshnode.domain.errors import InvalidRequest

MAX_ROWS = 1024
"""More than any chunk of positions has."""
ALL, BEST = "all", "best"


@dataclass(frozen=True, slots=True)
class WantedLogits:
    """The last ``rows`` positions' logits, and what is ``kept`` of each row."""

    rows: int = 1
    kept: str = ALL

    def __post_init__(self) -> None:
        """Refuse what cannot be wanted."""
        count = self.kept.isascii() and self.kept.isdigit() and len(self.kept) <= 7
        if not 0 <= self.rows <= MAX_ROWS or not (self.kept in (ALL, BEST) or count):
            raise InvalidRequest("logits", f"must be at most {MAX_ROWS} rows of some logits")

    def __str__(self) -> str:
        """The value of the metadata."""
        return f"{self.rows}:{self.kept}"

    @classmethod
    def read(cls, text: str, name: str) -> WantedLogits:
        """The inverse of ``str``. Raises InvalidRequest, which ``name`` names."""
        rows, _, kept = text.partition(":")
        if not (rows.isascii() and rows.isdigit() and len(rows) <= 4):
            raise InvalidRequest(name, "must be a number of rows, and what is kept of each")
        return cls(int(rows), kept)

    def width(self, vocab_size: int) -> int:
        """Numbers that are kept of a row."""
        if self.kept == ALL:
            return vocab_size
        return 2 if self.kept == BEST else min(int(self.kept), vocab_size)

    def select(self, logits: Tensor) -> tuple[Tensor, Tensor | None]:
        """What is kept of ``[1, rows, vocab]``, and its token ids, int64; None for all of them."""
        logits = logits[:, logits.shape[1] - self.rows :] if self.rows else logits[:, :0]
        vocab = logits.shape[2]
        if self.kept == ALL or not self.rows:
            return logits, None
        if self.kept == BEST:
            # numpy finds the first of the largest, as torch does, in a tenth of its time.
            numbers = logits.numpy()
            ids = torch.from_numpy(np.stack((numbers.argmax(-1), numbers.argmin(-1)), -1))
            return logits.gather(-1, ids), ids
        # Row by row, as a sampler does it: equal logits come in the same order.
        rows = [row.topk(min(int(self.kept), vocab)) for row in logits[0]]
        values = torch.stack([found.values for found in rows])
        return values[None], torch.stack([found.indices for found in rows])[None]
