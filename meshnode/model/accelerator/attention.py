"""Attention on a device: fixed groups of queries with fixed blocks of keys (decision 0229).

Terms: a *group* is ``GROUP_ROWS`` consecutive positions of a session, counted from its first one;
positions that a step does not compute are filled up. A *pair* is a group with one block of keys
(``pool.BLOCK`` positions). For each pair the products, the largest score and the sums are computed
by themselves; the pairs of a group are then added in the order of a binary tree, in which missing
pairs add nothing.

Invariants: every pair is computed with operands of the same shapes, so a position's bits depend on
its session's keys and values up to it alone, not on other sessions, on the step's other positions,
or on where chunks begin. All operands of a step are on the device before its first layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from meshnode.model.accelerator.pool import BLOCK, PagedCache
from meshnode.model.accelerator.tiles import parts
from meshnode.model.config import DecoderConfig

GROUP_ROWS = 8
"""Positions of a group. A product of fewer rows takes a device as long."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs of a step, for the layers of one kind. ``P`` is a multiple of the base."""

    groups: Tensor
    """int64 ``[P]``: the group of each pair."""
    blocks: Tensor
    """int64 ``[P]``: its block in the pool."""
    allowed: Tensor
    """bool ``[P, GROUP_ROWS, BLOCK]``: which positions attend to which keys."""
    tree: Tensor
    """int64 ``[groups, leaves]``: the pairs of each group in order; P stands for none."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Where the rows of a step belong. ``R`` counts rows with padding, ``G`` groups."""

    count: int
    """Rows without padding."""
    positions: Tensor
    """int64 ``[R]``."""
    blocks: Tensor
    """int64 ``[R]``: the block that each row's keys and values are written to."""
    offsets: Tensor
    """int64 ``[R]``: their place in the block."""
    rows_of_groups: Tensor
    """int64 ``[G, GROUP_ROWS]``: the row at each place; R stands for none."""
    places: Tensor
    """int64 ``[R]``: the place of each row among those of all groups."""
    pairs: dict[bool, Pairs]
    """Those of layers without a window and, under True, of windowed ones."""


def plan_step(
    caches: Sequence[PagedCache],
    counts: Sequence[int],
    *,
    rows: int,
    base_pairs: int,
    window: int | None,
    device: torch.device,
) -> StepPlan:
    """The plan of a step: ``counts[i]`` new positions of ``caches[i]``, ``rows`` with padding.

    Steps of one position for each session have few different shapes (``accelerator.graphs``).
    """
    few_shapes = sum(counts) == len(counts)
    positions, blocks = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    places = np.zeros(rows, np.int64)
    groups: list[tuple[int, int, PagedCache]] = []
    """The number of each group in its session, the last new position in it, and its cache."""
    table: list[np.ndarray] = []
    row = 0
    for cache, count in zip(caches, counts, strict=True):
        start, stop = cache.length, cache.length + count
        at = np.arange(start, stop)
        first = start // GROUP_ROWS
        last = (stop - 1) // GROUP_ROWS
        here = slice(row, row + count)
        positions[here], blocks[here] = at, np.asarray(cache.blocks)[at // BLOCK]
        places[here] = at - first * GROUP_ROWS + len(groups) * GROUP_ROWS
        rows_of = np.full((last - first + 1) * GROUP_ROWS, rows)
        rows_of[at - first * GROUP_ROWS] = np.arange(row, row + count)
        table.append(rows_of)
        ends = np.minimum((np.arange(first, last + 1) + 1) * GROUP_ROWS, stop) - 1
        groups += [(first + i, int(end), cache) for i, end in enumerate(ends)]
        row += count
    rows_of_groups = np.concatenate(table).reshape(-1, GROUP_ROWS)
    if few_shapes:
        missing = (1 << (len(groups) - 1).bit_length()) - len(groups)
        rows_of_groups = np.pad(rows_of_groups, ((0, missing), (0, 0)), constant_values=rows)
    windows = {False: None} if window is None else {False: None, True: window}
    return StepPlan(
        count=row,
        positions=torch.from_numpy(positions).to(device),
        blocks=torch.from_numpy(blocks).to(device),
        offsets=torch.from_numpy(positions % BLOCK).to(device),
        rows_of_groups=torch.from_numpy(rows_of_groups).to(device),
        places=torch.from_numpy(places).to(device),
        pairs={
            windowed: _pairs(groups, len(rows_of_groups), base_pairs, size, few_shapes, device)
            for windowed, size in windows.items()
        },
    )


def _pairs(
    groups: Sequence[tuple[int, int, PagedCache]],
    num_groups: int,
    base: int,
    window: int | None,
    few_shapes: bool,
    device: torch.device,
) -> Pairs:
    """``num_groups`` counts groups that are filled up, too."""
    firsts = [
        0 if window is None else max(0, number * GROUP_ROWS - window + 1) // BLOCK
        for number, _, _ in groups
    ]
    sizes = [end // BLOCK + 1 - first for (_, end, _), first in zip(groups, firsts, strict=True)]
    count = sum(sizes)
    multiple = -(-count // base)
    total = (_round_number(multiple) if few_shapes else multiple) * base
    numbers, blocks = np.zeros(total, np.int64), np.zeros(total, np.int64)
    # Padding has its queries before all keys, so that it attends to none.
    begins, queries = np.full(total, BLOCK), np.full(total, -GROUP_ROWS)
    ends = np.zeros(total, np.int64)
    # The number of leaves is a power of two, for pairs of neighbours are added again and again.
    leaves = 1 << (max(sizes) - 1).bit_length()
    tree = np.full((num_groups, leaves), total)
    at = 0
    for index, ((number, end, cache), first, size) in enumerate(
        zip(groups, firsts, sizes, strict=True)
    ):
        here = slice(at, at + size)
        numbers[here], blocks[here] = index, cache.blocks[first : first + size]
        begins[here] = np.arange(first, first + size) * BLOCK
        queries[here], ends[here] = number * GROUP_ROWS, end
        tree[index, :size] = np.arange(at, at + size)
        at += size
    keys = torch.from_numpy(begins).to(device)[:, None] + torch.arange(BLOCK, device=device)
    asking = torch.from_numpy(queries).to(device)[:, None]
    asking = asking + torch.arange(GROUP_ROWS, device=device)
    # Later positions of the group are not computed now, and what they would look at may be NaN.
    asking = asking.minimum(torch.from_numpy(ends).to(device)[:, None])
    allowed = keys[:, None, :] <= asking[:, :, None]
    if window is not None:
        allowed &= keys[:, None, :] > asking[:, :, None] - window
    return Pairs(
        torch.from_numpy(numbers).to(device),
        torch.from_numpy(blocks).to(device),
        allowed,
        torch.from_numpy(tree).to(device),
    )


def _round_number(count: int) -> int:
    """The smallest power of two, or one and a half times such a power, that is not below."""
    power = 1 << (count - 1).bit_length()
    return power // 4 * 3 if power >= 4 and power // 4 * 3 >= count else power


class PagedAttention:
    """Attention of the rows of a step to what the pool has of their sessions."""

    def __init__(self, config: DecoderConfig) -> None:
        self._heads, self._kv_heads = config.num_heads, config.num_kv_heads
        self._head_dim = config.head_dim
        self._scale = config.attention_scale or config.head_dim**-0.5
        self._cap = config.attention_cap
        self.sizes: list[int] = []
        """The numbers of pairs that are computed at once, descending."""

    def __call__(self, query: Tensor, storage: Tensor, plan: StepPlan, *, windowed: bool) -> Tensor:
        """``query`` ``[R, heads, head_dim]`` to ``[R, heads * head_dim]``, float32.

        ``storage`` is the layer's part of the pool, ``[blocks, 2, kv_heads, BLOCK, head_dim]``.
        """
        pairs = plan.pairs[windowed]
        none = query.new_zeros(1, *query.shape[1:])
        queries = torch.cat((query, none))[plan.rows_of_groups]
        # Heads that share keys are rows of one product: [groups, kv_heads, rows, head_dim].
        shape = len(queries), GROUP_ROWS, self._kv_heads, -1, self._head_dim
        queries = queries.view(shape).transpose(1, 2).flatten(2, 3)
        found = [
            self.of_pairs(
                queries[pairs.groups[start:stop]],
                storage[pairs.blocks[start:stop]],
                pairs.allowed[start:stop],
            )
            for start, stop in parts(len(pairs.groups), self.sizes)
        ]
        mixed = _sum(found, pairs.tree)
        # [groups, kv_heads, rows, head_dim] back to the rows.
        mixed = mixed.view(len(mixed), self._kv_heads, GROUP_ROWS, -1, self._head_dim)
        return mixed.transpose(1, 2).flatten(0, 1).flatten(1)[plan.places]

    def of_pairs(
        self, query: Tensor, both: Tensor, allowed: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Pairs by themselves: the largest scores, the sums of weights, the weighted values.

        ``query`` is ``[P, kv_heads, rows, head_dim]``, ``both`` has keys and values
        ``[P, 2, kv_heads, BLOCK, head_dim]``, ``allowed`` is ``[P, GROUP_ROWS, BLOCK]``.
        """
        key, value = both[:, 0].float().flatten(0, 1), both[:, 1].float()
        # What nobody may look at may be anything, also NaN, which times zero would be NaN.
        value = value.masked_fill_(~allowed.any(1)[:, None, :, None], 0).flatten(0, 1)
        scores = torch.bmm(query.flatten(0, 1), key.transpose(1, 2)) * self._scale
        if self._cap is not None:
            scores = torch.tanh(scores / self._cap) * self._cap
        scores = scores.view(len(both), self._kv_heads, GROUP_ROWS, -1, BLOCK)
        scores = scores.masked_fill(~allowed[:, None, :, None, :], -torch.inf).flatten(2, 3)
        largest = scores.amax(-1)
        weights = torch.exp(scores - _finite(largest)[..., None])
        sums = weights.sum(-1)
        mixed = torch.bmm(weights.flatten(0, 1), value).view(*weights.shape[:3], -1)
        return largest, sums, mixed


def _finite(largest: Tensor) -> Tensor:
    """The largest scores, with 0 where a position attends to no key of a block."""
    return largest.masked_fill(largest == -torch.inf, 0)


def _sum(found: Sequence[tuple[Tensor, Tensor, Tensor]], tree: Tensor) -> Tensor:
    """The attention of whole groups ``[groups, kv_heads, rows, head_dim]`` from that of pairs."""
    largest, sums, mixed = (torch.cat(each) for each in zip(*found, strict=True))
    empty = largest.new_full((1, *largest.shape[1:]), -torch.inf)
    largest = torch.cat((largest, empty))[tree]
    top = largest.amax(1)
    shares = torch.exp(largest - _finite(top)[:, None])
    sums = torch.cat((sums, torch.zeros_like(empty)))[tree] * shares
    none = mixed.new_zeros(1, *mixed.shape[1:])
    mixed = torch.cat((mixed, none))[tree] * shares[..., None]
    while sums.shape[1] > 1:
        sums, mixed = sums[:, ::2] + sums[:, 1::2], mixed[:, ::2] + mixed[:, 1::2]
    # A place without a row attends to nothing, and is read by none.
    return mixed[:, 0] / sums[:, 0, ..., None].clamp_min(torch.finfo(sums.dtype).tiny)
