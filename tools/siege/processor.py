"""What processes used of the processors, and what other programs took from them.

Terms: the processors of the node are those of ``place.processors``. Others *take* time from the
node while they compute on its processors and one of its threads waits for one. The kernel counts
both: how busy each processor is (``/proc/stat``, in steps of 10 ms), and how long each thread has
waited (``schedstat``). Threads of the node wait for each other too, so the smaller of the two is
what was taken: on an idle node others take nothing, and on one that computes all the time they take
what they use.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

TICKS = os.sysconf("SC_CLK_TCK")
BUSY_FIELDS = (0, 1, 2, 5, 6, 7)
"""user, nice, system, irq, softirq and steal of a line of ``/proc/stat``."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Seconds since the processes were started; only differences of two mean anything."""

    node: float
    """Of the node with its children."""
    loop: float
    """Of the thread that runs the node's event loop, which ``node`` includes."""
    siblings: float
    """Of the further honest nodes of a trial, which compute on the same processors."""
    attacker: float
    attacker_waits: float
    """How long the attackers' threads have waited for a processor."""
    busy: float
    """Of everything on the node's processors, other machines on the same hardware included."""
    waits: Mapping[int, float]
    """How long each thread of the node has waited for a processor, by its id."""


class ProcessorMeter:
    """Looks at the node of one trial."""

    def __init__(self, node: int, siblings: Collection[int], processors: Collection[int]) -> None:
        """``node`` and ``siblings`` are process ids."""
        self._node = node
        self._siblings = siblings
        self._lines = {f"cpu{number}" for number in processors}

    def look(self, attacker: int | None = None) -> Usage:
        """Read all counters. What has ended by now counts as 0."""
        node = _family(self._node)
        attackers = _family(attacker) if attacker else []
        return Usage(
            node=sum(map(_seconds, node)),
            loop=_main_thread(self._node),
            siblings=sum(_seconds(each) for pid in self._siblings for each in _family(pid)),
            attacker=sum(map(_seconds, attackers)),
            attacker_waits=sum(wait for each in attackers for _, wait in _waits(each.pid)),
            busy=self._busy(),
            waits=dict(wait for each in node for wait in _waits(each.pid)),
        )

    def _busy(self) -> float:
        lines = (line.split() for line in Path("/proc/stat").read_text().splitlines())
        return sum(
            int(fields[1 + field]) / TICKS
            for fields in lines
            if fields and fields[0] in self._lines
            for field in BUSY_FIELDS
        )


def taken(before: Usage, now: Usage) -> float:
    """Seconds of the node's processors that other programs took from it between two looks."""
    own = now.node - before.node + now.siblings - before.siblings
    foreign = max(0.0, now.busy - before.busy - own)
    waited = sum(
        max(0.0, wait - before.waits.get(thread, 0.0)) for thread, wait in now.waits.items()
    )
    return min(foreign, waited)


def _family(pid: int) -> list[psutil.Process]:
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def _seconds(process: psutil.Process) -> float:
    with suppress(psutil.Error):
        times = process.cpu_times()
        return times.user + times.system
    return 0.0


def _main_thread(pid: int) -> float:
    with suppress(OSError):
        line = Path(f"/proc/{pid}/task/{pid}/stat").read_text()
        fields = line.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS
    return 0.0


def _waits(pid: int) -> list[tuple[int, float]]:
    found = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                fields = Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()
                found.append((int(thread), int(fields[1]) / 1e9))
    return found
