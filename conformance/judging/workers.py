"""Judges rows in several processes, each with real nodes of its own behind a layer of its own.

Most of the time of a run goes by with waiting, so there may be more processes than cores.
"""

import multiprocessing
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from multiprocessing.queues import Queue
from multiprocessing.util import Finalize
from pathlib import Path

from conformance.judging.behind import (
    CONTROL,
    HOSTILE,
    MUTANT,
    VARIANT,
    Behind,
    Derived,
    behind,
    rows_of,
)
from conformance.judging.derived.table import NodeTable
from conformance.judging.rows import Judged, Rows
from conformance.judging.table import Mutant

# From the ports of one process's nodes to those of the next.
APART = 10
# What a process has until it ends.
_stack = ExitStack()
_own: list[Behind] = []


def judge_rows(
    folder: Path, port: int, at_once: int, found: Rows, only: str, derived_s: float
) -> list[NodeTable]:
    """Judge the rows that are not among those found, and derived faults for so many seconds."""
    context = multiprocessing.get_context("spawn")
    ports: Queue[int] = context.Queue()
    for number in range(at_once):
        ports.put(port + number * APART)
    tables: list[NodeTable] = []
    with ProcessPoolExecutor(at_once, context, _begin, (folder, ports)) as pool:
        # The longest first, so that the processes end at about the same time.
        derived = [pool.submit(_judge_derived, derived_s)] if derived_s else []
        going: list[Future[Judged]] = [
            pool.submit(_judge, group, number) for group, number in _left(found, only)
        ]
        for at, done in enumerate(as_completed(going), 1):
            row = done.result()
            found.add(row)
            if row.gap or sys.stderr.isatty():
                shown = f"{row.group} {row.name} {row.ident}: {row.gap or 'as expected'}"
                print(f"{at}/{len(going)} {shown}", file=sys.stderr, flush=True)
        tables += [one.result().table for one in derived]
    return tables


def _left(found: Rows, only: str) -> list[tuple[str, int]]:
    """Return the rows to judge, each by its group and its number in it."""
    parts = only.split("|")
    left = [(CONTROL, 0)]
    for group in (VARIANT, MUTANT, HOSTILE):
        for number, row in enumerate(rows_of(group)):
            ident = getattr(row, "ident", "")
            if any(part in row.name or part in ident for part in parts):
                left += [] if found.has((group, row.name, ident)) else [(group, number)]
    return left


def _begin(folder: Path, ports: "Queue[int]") -> None:
    port = ports.get()
    _own.append(_stack.enter_context(behind(folder / f"layer-{port}", port)))
    # The threads of its layer would keep the process.
    Finalize(None, _stack.close, exitpriority=1)


def _judge(group: str, number: int) -> Judged:
    began = time.monotonic()
    gap = _own[0].judge(group, number)
    took_s = time.monotonic() - began
    if group == CONTROL:
        return Judged(group, "no mutant at all", "", "", gap, took_s)
    row = rows_of(group)[number]
    level = row.level.value if isinstance(row, Mutant) else ""
    return Judged(group, row.name, getattr(row, "ident", ""), level, gap, took_s)


def _judge_derived(within_s: float) -> Derived:
    return _own[0].judge_derived(within_s)
