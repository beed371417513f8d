"""A node's training data, and how nodes divide it (interface 2.1: data_shards_covered).

Terms: a *sequence* is a row of tokens, all of which but the first are targets; a *shard* is every
``SHARDS``-th sequence, so that shards are alike. Nodes that train at the same time divide the
shards among themselves in the order of their ids.

Invariant: together the nodes of a round read every shard. Each shard has one reader, unless there
are more nodes than shards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from meshnode.domain.errors import StartupError
from meshnode.model.tokenizer import Tokenizer
from meshnode.model.training import Batch

SHARDS = 16
VALIDATION_SHARE = 50
"""One of every ``VALIDATION_SHARE`` sequences of a folder is held out, and at least one."""
TEXT_SUFFIXES = frozenset({".txt", ".md", ".rst", ".text"})
MAX_FILE_BYTES = 64 << 20
PIECE_CHARS = 1 << 14
"""Characters that are encoded at a time. All threads wait while a list of ids is built."""


@dataclass(frozen=True, slots=True)
class TokenData:
    """``train`` and ``validation`` are int64 ``[sequences, tokens]``."""

    train: Tensor
    validation: Tensor

    @classmethod
    def of_sequences(
        cls, train: Sequence[Sequence[int]], validation: Sequence[Sequence[int]]
    ) -> TokenData:
        """Make tensors of rows, which must all have the same length."""
        return cls(torch.tensor(train), torch.tensor(validation))

    @classmethod
    def of_folder(
        cls, folder: Path, tokenizer: Tokenizer, length: int, end_of_text: int | None
    ) -> TokenData:
        """The text files of a folder, in the order of their names, cut every ``length`` tokens.

        Raises StartupError for no folder, too little text, a file that is too large, or one that
        is not UTF-8. Its message is also shown to clients without a token, so it names files
        relative to the folder.
        """
        if not folder.is_dir():
            raise StartupError(f"there is no folder {folder.name}")
        closing = [] if end_of_text is None else [end_of_text]
        parts: list[NDArray[np.int32]] = []
        for path in sorted(folder.rglob("*")):
            if path.suffix not in TEXT_SUFFIXES or not path.is_file():
                continue
            name = path.relative_to(folder)
            if path.stat().st_size > MAX_FILE_BYTES:
                raise StartupError(f"{name}: larger than {MAX_FILE_BYTES >> 20} MiB")
            try:
                text = path.read_text("utf-8")
                for number, piece in enumerate(_pieces(text)):
                    ids = tokenizer.encode_part(piece, special=number == 0)
                    parts.append(np.array(ids, dtype=np.int32))
            except (OSError, ValueError):
                raise StartupError(f"{name}: not a readable text in UTF-8") from None
            parts.append(np.array(closing, dtype=np.int32))
        tokens = np.concatenate([np.empty(0, dtype=np.int32), *parts])
        count = len(tokens) // length
        rows = tokens[: count * length].reshape(count, length)
        if count < 2:
            where = f"the text in the folder {folder.name}"
            raise StartupError(f"{where} is shorter than two sequences of {length} tokens")
        held_out = rows[:: max(2, min(VALIDATION_SHARE, count))]
        seen = {row.tobytes() for row in held_out}
        rest = [at for at, row in enumerate(rows) if row.tobytes() not in seen] or range(1, count)
        both = torch.from_numpy(rows).long()
        return cls(both[list(rest)], torch.from_numpy(held_out).long())

    @property
    def shards(self) -> int:
        """The number of shards."""
        return min(SHARDS, len(self.train))

    def batches(self, shards: Sequence[int], batch_size: int, seed: int) -> Iterator[Shuffled]:
        """Endless batches of the sequences of ``shards``, in an order that ``seed`` decides."""
        random = torch.Generator().manual_seed(seed)
        own = [row for row in range(len(self.train)) if row % self.shards in shards]
        while True:
            order = [own[int(n)] for n in torch.randperm(len(own), generator=random)]
            for at in range(0, len(order), batch_size):
                rows = order[at : at + batch_size]
                read = frozenset(row % self.shards for row in rows)
                yield Shuffled(batch_of(self.train[rows]), read)

    def sample(self, shards: Sequence[int], rows: int, seed: int) -> Batch | None:
        """So many sequences of ``shards``, chosen by ``seed``; None if there are none."""
        own = [row for row in range(len(self.train)) if row % self.shards in shards]
        order = torch.randperm(len(own), generator=torch.Generator().manual_seed(seed))
        chosen = [own[int(place)] for place in order[:rows]]
        return batch_of(self.train[chosen]) if chosen else None

    def validation_batches(self, batch_size: int, most_rows: int | None = None) -> list[Batch]:
        """All held-out sequences, or ``most_rows`` of them, spread evenly."""
        rows = self.validation
        if most_rows is not None and len(rows) > most_rows:
            rows = rows[torch.arange(most_rows) * len(rows) // most_rows]
        return [batch_of(some) for some in torch.split(rows, batch_size)]


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces that are quick to encode, cut after a line or, failing that, a word."""
    start = 0
    while len(text) - start > PIECE_CHARS:
        end = start + PIECE_CHARS
        cuts = (text.rfind(mark, start, end) + 1 for mark in "\n ")
        end = next((cut for cut in cuts if cut > start), end)
        yield text[start:end]
        start = end
    yield text[start:]


@dataclass(frozen=True, slots=True)
class Shuffled:
    """A batch, and the shards that it was read from."""

    batch: Batch
    shards: frozenset[int]


def batch_of(rows: Tensor) -> Batch:
    """A batch of rows in which every token predicts the next one."""
    return Batch(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())


def shards_of(node_id: str, trainers: Sequence[str], shards: int) -> tuple[int, ...]:
    """The shards of one node among the ``trainers``, which include it."""
    order = sorted({*trainers, node_id})
    # With more nodes than shards, several nodes read the same shard.
    place = order.index(node_id) % shards
    return tuple(range(place, shards, min(len(order), shards)))
