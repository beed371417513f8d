"""Judges a node that wears derived faults, one after the other.

For each fault only the checks run that a run without any fault has seen to touch its routes, and
the run ends with the first MUST that is violated. A sample of the faults is judged by whole runs
afterwards, which must end alike.
"""

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import chain, groupby
from urllib.parse import urlsplit

from conformance.ended import Run
from conformance.journal import Exchange
from conformance.judging.derived import (
    effects,
    fields,
    limits,
    parameters,
    refusals,
    routes,
    streams,
    wire,
)
from conformance.judging.derived.fault import Fault, take_off, wear
from conformance.judging.derived.limits import MESSAGE_LIMIT
from conformance.judging.toy.node import ToyNode
from conformance.run import Runner
from conformance.target import Target
from conformance.verdict import Outcome, Standing

CAUGHT, ADVISED, OPEN, PASSED, NOT_SHOWN, BROKE = (
    "caught", "advised", "inconclusive", "passed", "not shown", "broke down",
)  # fmt: skip


@dataclass(frozen=True)
class Ended:
    """How the run against one fault ended, with the requirements that say so."""

    fault: Fault
    how: str
    by: tuple[str, ...]
    took_s: float


def every_fault() -> list[Fault]:
    """Return all derived faults, in the order of their kinds."""
    return list(
        chain(
            fields.field_faults(), fields.pair_faults(), wire.message_faults(),
            wire.operation_faults(), routes.route_faults(), parameters.parameter_faults(),
            effects.effect_faults(), refusals.refusal_faults(), limits.limit_faults(),
            streams.stream_faults(),
        )
    )  # fmt: skip


def spread(faults: list[Fault], seed: int = 0) -> list[Fault]:
    """Return the faults in an order in which every beginning has a share of every kind."""
    shuffle = random.Random(seed)  # noqa: S311 - an order, no secret
    placed: list[tuple[float, Fault]] = []
    for _, group in groupby(sorted(faults, key=lambda f: f.kind), key=lambda f: f.kind):
        members = list(group)
        shuffle.shuffle(members)
        placed += [((at + 0.5) / len(members), fault) for at, fault in enumerate(members)]
    return [fault for _, fault in sorted(placed, key=lambda pair: pair[0])]


class DerivedJudge:
    """Judges faults of one node; `reset` makes the node forget what the last run did to it."""

    def __init__(
        self, node: ToyNode, target: Target, reset: Callable[[], None] = lambda: None
    ) -> None:
        """Run once without any fault, to see which checks touch which routes."""
        self._node, self._target, self._reset = node, target, reset
        take_off(node)
        reset()
        self.control = Runner(target).run()
        self._touching: dict[str, set[str]] = {}
        for exchange in self.control.exchanges:
            self._touching.setdefault(key_of(exchange), set()).add(exchange.check)

    def checks_for(self, fault: Fault) -> set[str]:
        """Return the checks that touch anything that the fault touches."""
        found: set[str] = set()
        for key in fault.touches:
            for known, names in self._touching.items():
                if known == key or (key.endswith("/") and known.startswith(key)):
                    found |= names
        # A message of 99 MiB takes longer than all other checks together.
        return found if fault.kind == MESSAGE_LIMIT else found - {"grpc-large"}

    def judge(self, fault: Fault, *, whole: bool = False) -> Ended:
        """Run against one fault."""
        began = time.monotonic()
        self._reset()
        worn = wear(self._node, fault)
        names = None if whole else self.checks_for(fault)
        try:
            run = Runner(self._target, names=names, first_violation=not whole).run()
        finally:
            take_off(self._node)
        how, by = conclude(run)
        if how == PASSED and not worn.shown:
            how = NOT_SHOWN
        return Ended(fault, how, by, time.monotonic() - began)

    def judge_all(
        self, faults: Iterable[Fault], *, within_s: float = float("inf"),
        progress: Callable[[Ended], None] = lambda ended: None,
    ) -> list[Ended]:  # fmt: skip
        """Judge as many faults as fit into the time, at least one."""
        ends = time.monotonic() + within_s
        found: list[Ended] = []
        for fault in faults:
            found.append(self.judge(fault))
            progress(found[-1])
            if time.monotonic() > ends:
                break
        return found


def key_of(exchange: Exchange) -> str:
    """Return the key of what an exchange touches."""
    if exchange.kind == "grpc":
        return f"rpc {exchange.request['operation']}"
    return f"{exchange.request['method']} {urlsplit(exchange.request['url']).path}"


def conclude(run: Run) -> tuple[str, tuple[str, ...]]:
    """Return how a run ended, and the requirements that say so."""
    if run.faults:
        return BROKE, tuple(run.faults)
    fail = [item for item in run.results if item.outcome is Outcome.FAIL]
    warn = [item for item in run.results if item.outcome is Outcome.WARN]
    unclear = [item for item in run.results if item.standing is Standing.INCONCLUSIVE]
    for how, found in ((CAUGHT, fail), (ADVISED, warn), (OPEN, unclear)):
        if found:
            return how, tuple(item.requirement.id for item in found)
    return PASSED, ()


def impatient(target: Target) -> Target:
    """Return the target with few examples, for the many runs of the judge."""
    return replace(target, examples=1, burst_s=0.0, max_wait_s=1.0)
