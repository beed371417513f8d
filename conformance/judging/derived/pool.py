"""Judges derived faults of the small node in several processes, each with a node of its own.

Most of the time of a run goes by with waiting, so there may be more processes than cores. What is
known of a fault is kept in a file, if there is one, so that a judging that was broken off goes on.
"""

import multiprocessing
import resource
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing.util import Finalize

from conformance.checks import wallet
from conformance.judging.derived.allowed import reason
from conformance.judging.derived.fault import Fault
from conformance.judging.derived.judge import DerivedJudge, Ended, every_fault, spread
from conformance.judging.derived.limits import MESSAGE_LIMIT
from conformance.judging.derived.when import CONDITIONS, conditional, conditions_of
from conformance.judging.rows import Judged, Rows
from conformance.judging.toy.serving import Toy, toy_target

# Operations with messages whose contents the document does not show.
UNSHOWN = frozenset({"rpc PipelineForward", "rpc GetWeights"})
# As much as a process may take.
MEMORY_BYTES = 6 * 2**30
# The small node shows what a request has changed at once, or never.
SHOWN_WITHIN_S = 0.5
# What a worker has until its process ends.
_stack = ExitStack()
_own: list[DerivedJudge] = []


# So many faults are worn under each condition, drawn from all kinds.
OF_A_CONDITION = 20


@dataclass(frozen=True)
class Small:
    """The small node, which declares what an operator can, or nothing of its tensors.

    Its faults show always, or only under a condition.
    """

    name: str
    declares: bool = True
    conditions: bool = False

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Its faults, in an order in which every beginning has a share of every kind."""
        return _conditional() if self.conditions else _faults(self.declares)

    def judge(self, stack: ExitStack) -> DerivedJudge:
        """Start the node until the stack is closed."""
        served = stack.enter_context(Toy())
        target = replace(toy_target(served), examples=1, burst_s=0.0)
        target = replace(target, timeout_s=6.0, inference_timeout_s=6.0)
        if not self.declares:
            target = replace(target, pipeline={}, field_map={})
        return DerivedJudge(served.node, target, served.node.reset)


# The second one is to show what a node that declares nothing shows of its pipeline and its weights.
NODES = (
    Small("the small node"),
    Small("the small node, which declares nothing", declares=False),
    Small("the small node, whose faults show under a condition", conditions=True),
)


@cache
def _faults(everything: bool) -> tuple[Fault, ...]:
    # Their order is the same in each process.
    faults = spread(every_fault())
    return tuple(fault for fault in faults if everything or fault.touches & UNSHOWN)


@cache
def _conditional() -> tuple[Fault, ...]:
    """Draw faults for each condition, of those that the document forbids."""
    forbidden = [one for one in every_fault() if reason(one) is None and one.kind != MESSAGE_LIMIT]
    drawn: list[Fault] = []
    for seed, when in enumerate(CONDITIONS):
        fitting = [fault for fault in forbidden if when in conditions_of(fault)]
        drawn += [conditional(fault, when) for fault in spread(fitting, seed)[:OF_A_CONDITION]]
    return tuple(spread(drawn))


def _begin(small: Small) -> None:
    # A fault with which a run takes all memory breaks that run down, and is named.
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    wallet.LISTED_WITHIN_S = SHOWN_WITHIN_S
    _own.append(small.judge(_stack))
    # The threads of its node would keep the process.
    Finalize(None, _stack.close, exitpriority=1)


def _judge(small: Small, number: int) -> tuple[int, str, tuple[str, ...], float]:
    ended = _own[0].judge(small.faults[number])
    return number, ended.how, ended.by, ended.took_s


def judge_small(small: Small, at_once: int, within_s: float, rows: Rows) -> list[Ended]:
    """Judge the faults of the small node that are not among the rows, as far as the time goes."""
    found, left = list[Ended](), list[int]()
    for number, fault in enumerate(small.faults):
        key = (small.name, fault.name, fault.kind)
        if rows.has(key):
            row = rows.known[key]
            found.append(Ended(fault, row.level, (), row.took_s))
        else:
            left.append(number)
    for number, how, by, took_s in _judged(small, left, at_once, within_s) if left else ():
        fault = small.faults[number]
        rows.add(Judged(small.name, fault.name, fault.kind, how, "", took_s))
        found.append(Ended(fault, how, by, took_s))
    return found


def _judged(
    small: Small, numbers: list[int], at_once: int, within_s: float
) -> Iterator[tuple[int, str, tuple[str, ...], float]]:
    """Yield what is judged, as soon as it is known."""
    context, ends, rest = multiprocessing.get_context("spawn"), None, iter(numbers)
    with ProcessPoolExecutor(at_once, context, _begin, (small,)) as pool:
        going: set[Future[tuple[int, str, tuple[str, ...], float]]] = set()
        while True:
            late = ends is not None and time.monotonic() > ends
            while not late and len(going) < at_once and (number := next(rest, None)) is not None:
                going.add(pool.submit(_judge, small, number))
            if not going:
                return
            done, going = wait(going, return_when=FIRST_COMPLETED)
            # The time begins once a process has started its node.
            ends = ends or time.monotonic() + within_s
            yield from (each.result() for each in done)
