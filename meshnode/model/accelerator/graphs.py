"""Steps that a CUDA device repeats from a recording, which saves the time to launch each operator.

A step of decoding launches a thousand small operators, which takes longer than the device computes
one stream. The operands of a step have few different shapes, because everything is computed in
fixed numbers of rows and pairs, and all of them are on the device before its first layer. So the
operators of one shape are recorded once, as a *graph*, and replayed with other operands.

A recording computes with the same kernels and so gives the same bits. This is tested when it is
made: what it computes is compared with what the operators have computed. If it differs, or cannot
be made, there are no recordings from then on, and a line in the log says so.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from meshnode.model.accelerator.attention import Pairs, StepPlan

log = logging.getLogger(__name__)

MAX_GRAPHS = 48
"""Recordings that are kept; each has some megabytes. Those used longest ago leave first."""
RECORDED_AT = 2
"""A shape is recorded when it comes for this many times."""

_OWN = ("positions", "blocks", "offsets", "rows_of_groups", "places")
"""The tensors of a plan, beside those of its pairs."""

Through = Callable[[Tensor, StepPlan], Tensor]
Replay = Callable[[], None]
Record = Callable[[Callable[[], Tensor]], tuple[Replay, Tensor]]
"""Records a function without arguments; returns what replays it, and the tensor of its result."""


class Recording:
    """The operators for operands of some shapes, and where they find these."""

    def __init__(self, through: Through, states: Tensor, plan: StepPlan, record: Record) -> None:
        self._states, self._plan = states.clone(), _cloned(plan)
        self._replay, self._result = record(lambda: through(self._states, self._plan))

    def __call__(self, states: Tensor, plan: StepPlan) -> Tensor:
        """The result."""
        self._states.copy_(states)
        for mine, given in zip(_tensors(self._plan), _tensors(plan), strict=True):
            mine.copy_(given)
        self._replay()
        # The next call of any recording may overwrite it.
        return self._result.clone()


class Recordings:
    """Runs steps, from a recording where there is one."""

    def __init__(self, record: Record) -> None:
        self._record: Record | None = record
        self._made: OrderedDict[tuple[Any, ...], Recording | int] = OrderedDict()
        """A recording, or how often its shape has come."""

    def run(
        self, through: Through, states: Tensor, plan: StepPlan, about: tuple[Any, ...]
    ) -> Tensor:
        """``through`` of the operands. ``about`` is all else that the operators depend on."""
        if self._record is None:
            return through(states, plan)
        key = (*about, *(tuple(each.shape) for each in (states, *_tensors(plan))))
        found = self._made.pop(key, 0)
        if isinstance(found, Recording):
            self._made[key] = found
            return found(states, plan)
        result = through(states, plan)
        self._made[key] = found + 1
        if found + 1 >= RECORDED_AT:
            self._make(key, through, states, plan, result)
        while len(self._made) > MAX_GRAPHS:
            self._made.popitem(last=False)
        return result

    def _make(
        self, key: tuple[Any, ...], through: Through, states: Tensor, plan: StepPlan, right: Tensor
    ) -> None:
        assert self._record is not None  # noqa: S101 - asked before
        try:
            made = Recording(through, states, plan, self._record)
            # A step may be repeated: it writes the same keys and values to the same places.
            same = torch.equal(made(states, plan), right)
        except RuntimeError as error:
            self._give_up(f"a step cannot be recorded: {error}")
            return
        if same:
            self._made[key] = made
        else:
            self._give_up("a recorded step computes other bits")

    def _give_up(self, reason: str) -> None:
        log.warning("computing without CUDA graphs, which is slower: %s", reason)
        self._record = None
        self._made.clear()


def recordings_for(device: torch.device) -> Recordings | None:
    """What records steps on this device; None where nothing can."""
    if device.type != "cuda":
        return None
    pool = torch.cuda.graph_pool_handle()

    def record(function: Callable[[], Tensor]) -> tuple[Replay, Tensor]:
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the device meanwhile, as the judge of proofs does.
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            result = function()
        return graph.replay, result

    return Recordings(record)


def _tensors(plan: StepPlan) -> list[Tensor]:
    own = [getattr(plan, name) for name in _OWN]
    pairs = [getattr(each, one.name) for each in plan.pairs.values() for one in fields(Pairs)]
    return own + pairs


def _cloned(plan: StepPlan) -> StepPlan:
    own = {name: getattr(plan, name).clone() for name in _OWN}
    pairs = {
        windowed: Pairs(*(getattr(each, one.name).clone() for one in fields(Pairs)))
        for windowed, each in plan.pairs.items()
    }
    return replace(plan, **own, pairs=pairs)
