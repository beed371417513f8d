"""Packs documents into batches of tokens: one document a row, or long rows of several.

*Single* batches contain documents of similar length, one a row, like prompts when the model is
used. *Packed* rows start with a document and are filled with further complete documents; they train
the positions that no single document reaches. The rest is padding without a loss. Batches depend
only on the documents, their order and the random generator.
"""

from __future__ import annotations

import bisect
from itertools import islice
from typing import TYPE_CHECKING

import torch

from meshnode.model.training import IGNORED, Batch

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator, Sequence

POOL = 256
"""Waiting documents; enough that short ones are always available to fill gaps."""


def rows(documents: Iterable[Sequence[int]], length: int) -> Iterator[list[Sequence[int]]]:
    """Yield groups of documents that together have at most ``length`` + 1 tokens.

    Longer documents, of which the corpus has hardly any, are cut.
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
                # The running number breaks ties and keeps documents of equal length in order.
                bisect.insort(pool, (len(cut), order, cut))
                order += 1
        if not pool:
            return
        # The oldest document starts the row, so that none waits forever.
        first = min(range(len(pool)), key=lambda i: pool[i][1])
        row = [pool.pop(first)]
        room = length + 1 - row[0][0]
        while (fit := bisect.bisect_right(pool, (room, order, ())) - 1) >= 0:
            row.append(pool.pop(fit))
            room -= row[-1][0]
        yield [tokens for _, _, tokens in row]


def single_batches(
    documents: Iterable[Sequence[int]], *, area: int, pad: int, rng: random.Random
) -> Iterator[Batch]:
    """Yield batches of at most ``area`` positions, including padding, from an endless corpus.

    Documents are sorted within pools of ``POOL``, so that similar lengths come together; the
    batches of a pool are shuffled, so that short and long ones alternate.
    """
    source = iter(documents)
    while pool := sorted(islice(source, POOL), key=len):
        groups: list[list[Sequence[int]]] = [[]]
        for tokens in pool:
            # The documents are sorted, so the newest row is the longest; the others are padded to
            # it.
            if groups[-1] and (len(groups[-1]) + 1) * (len(tokens) - 1) > area:
                groups.append([])
            groups[-1].append(tokens)
        rng.shuffle(groups)
        for group in groups:
            longest = len(group[-1]) - 1
            yield _batch(
                [
                    (
                        [*tokens[:-1], *[pad] * (longest + 1 - len(tokens))],
                        [*tokens[1:], *[IGNORED] * (longest + 1 - len(tokens))],
                    )
                    for tokens in group
                ]
            )


def packed_batches(
    documents: Iterable[Sequence[int]], *, length: int, size: int, pad: int
) -> Iterator[Batch]:
    """Yield batches of ``size`` rows of ``length`` positions; the last may have fewer rows.

    The last token of a document has no target, so the model never learns to predict a begin token.
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
