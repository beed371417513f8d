"""Documents to rows of tokens: whole documents, best fit, no document cut.

A row starts with a document, as a prompt does when the model is used, and further documents fill
it as far as they fit whole; what remains is padding without a loss. Deterministic: rows depend on
the documents and their order only.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

import torch

from meshnode.model.training import IGNORED, Batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

POOL = 256
"""Documents that wait to be fitted; enough that short ones are always at hand to fill gaps."""


def rows(documents: Iterable[Sequence[int]], length: int) -> Iterator[list[Sequence[int]]]:
    """Groups of documents that together take at most ``length`` + 1 tokens.

    A document that is longer is cut; the corpus has hardly any.
    """
    source = iter(documents)
    pool: list[tuple[int, int, Sequence[int]]] = []
    order = 0
    exhausted = False
    while True:
        while not exhausted and len(pool) < POOL:
            document = next(source, None)
            if document is None:
                exhausted = True
            else:
                cut = document[: length + 1]
                # The running number breaks ties, and keeps the order of arrival among equals.
                bisect.insort(pool, (len(cut), order, cut))
                order += 1
        if not pool:
            return
        # The oldest document opens the row, so that none waits for ever.
        first = min(range(len(pool)), key=lambda i: pool[i][1])
        row = [pool.pop(first)]
        room = length + 1 - row[0][0]
        while (fit := bisect.bisect_right(pool, (room, order, ())) - 1) >= 0:
            row.append(pool.pop(fit))
            room -= row[-1][0]
        yield [tokens for _, _, tokens in row]


def batches(
    documents: Iterable[Sequence[int]], *, length: int, size: int, pad: int
) -> Iterator[Batch]:
    """Batches of ``size`` rows of ``length`` positions; the last may have fewer rows.

    No target crosses from one document into the next: nothing predicts a begin token.
    """
    packed: list[tuple[list[int], list[int]]] = []
    for group in rows(documents, length):
        inputs: list[int] = []
        targets: list[int] = []
        for tokens in group:
            inputs += tokens
            targets += [*tokens[1:], IGNORED]
        gap = max(0, length - len(inputs))
        packed.append(((inputs + [pad] * gap)[:length], (targets + [IGNORED] * gap)[:length]))
        if len(packed) == size:
            yield _batch(packed)
            packed = []
    if packed:
        yield _batch(packed)


def _batch(packed: Sequence[tuple[list[int], list[int]]]) -> Batch:
    return Batch(
        torch.tensor([inputs for inputs, _ in packed]),
        torch.tensor([targets for _, targets in packed]),
    )
