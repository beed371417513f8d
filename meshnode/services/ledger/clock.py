"""The node's clocks: what dates blocks, and what ``/health`` shows of them (decision 0136).

``domain.chain.clock`` has the rules and the terms. Here are the readings: of this machine, of
peers, and of the file that carries the expected time over a restart of the node. The file counts
only until the machine starts again, since its steady clock begins anew then.

Invariants: the date may be asked for by any thread; a file that is missing, damaged or of an
earlier start of the machine is ignored; each change of what is shown is logged once.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import trio

from meshnode.datadir import write_private
from meshnode.domain.chain.clock import SLACK_NS, BlockClock, ClockAnchor, State, difference_ns
from meshnode.domain.units import DAY_S, SECOND_NS

log = logging.getLogger(__name__)

CLOCK_FILE = "clock.json"
FORMAT = "meshnode-clock-v1"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Another text after each start of the machine."""
LOOK_EVERY_S = 5.0
AHEAD_OF_STEADY, BEHIND_BLOCK = "ahead of the steady clock", "behind the last block"
WRITE_ABOVE_NS = SECOND_NS
"""The file is written again when the expected time has moved by more than this."""


def steady_ns() -> int:
    """Nanoseconds since the machine was started, sleep included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class NodeClock:
    """Dates blocks, and reports a clock that cannot be right."""

    def __init__(
        self,
        data_dir: Path,
        *,
        wall: Callable[[], int] = time.time_ns,
        steady: Callable[[], int] = steady_ns,
        boot_id: Path = BOOT_ID,
    ) -> None:
        """Begin with the present readings. ``wall`` and ``steady`` are in nanoseconds."""
        self.peers: Callable[[], Sequence[int]] = list
        """The wall clocks of peers now, in nanoseconds since 1970; nobody's until it is set. Only
        :meth:`look` asks, in the event loop."""
        self.word = ""
        """What is wrong, for ``/health``; empty while nothing is."""
        self._problem = ""
        self._others: tuple[int, ...] = ()
        """The wall clocks of peers when the steady clock showed 0."""
        self._last_block_ns: Callable[[], int] = lambda: 0
        self._wall, self._steady = wall, steady
        self._file = data_dir / CLOCK_FILE
        self._boot = _boot_id(boot_id)
        self._lock = threading.Lock()
        self._written = self._read()
        self._clock = BlockClock(wall(), steady(), known=self._written)

    def begin(self, last_block_ns: Callable[[], int]) -> None:
        """Begin again, now that there is a chain; ``last_block_ns`` gives its last block's time."""
        self._last_block_ns = last_block_ns
        with self._lock:
            self._clock = BlockClock(
                self._wall(), self._steady(), last_block_ns=last_block_ns(), known=self._written
            )

    def date_ns(self) -> int:
        """The time to date a block with now, in nanoseconds since 1970."""
        with self._lock:
            steady = self._steady()
            return self._clock.date_ns(self._wall(), steady, self._others_ns(steady))

    def look(self) -> None:
        """Compare all clocks, and log what has changed."""
        steady = self._steady()
        self._others = tuple(time_ns - steady for time_ns in self.peers())
        shift_ns, problem = self._judge(self.date_ns())
        self.word = f"{_seconds(shift_ns)} {problem}" if problem else ""
        if problem == self._problem:
            return
        self._problem = problem
        if problem:
            log.warning("clock: this machine's clock is %s%s", self.word, self._remedy())
        else:
            log.info("clock: this machine's clock agrees with the others again")

    def keep(self) -> None:
        """Write the expected time to the disk if it has moved. Blocks."""
        with self._lock:
            anchor = self._clock.anchor
        if anchor is None or self._boot is None or not _moved(self._written, anchor):
            return
        document = {"format": FORMAT, "boot_id": self._boot, **_fields(anchor)}
        try:
            write_private(self._file, json.dumps(document).encode())
        except OSError as error:
            # Tried again at the next look. Only a restart would miss it.
            log.info("clock: %s cannot be written: %s", self._file.name, error.strerror)
            return
        self._written = anchor

    def _judge(self, date_ns: int) -> tuple[int, str]:
        """How far this machine's clock is off, and from what; ``(0, "")`` while it is not."""
        shift = self._clock.shift_ns(self._wall())
        if self._clock.state is State.BEHIND:
            return shift, BEHIND_BLOCK
        if self._clock.state is State.JUMPED:
            return shift, AHEAD_OF_STEADY if shift > 0 else "behind the steady clock"
        shift = difference_ns(date_ns, self._others_ns(self._steady()))
        if abs(shift) > SLACK_NS:
            return shift, "ahead of most peers" if shift > 0 else "behind most peers"
        # A follower takes the blocks all the same: their times are the existing network's.
        shift = date_ns - self._last_block_ns()
        return (shift, BEHIND_BLOCK) if shift < -SLACK_NS else (0, "")

    def _others_ns(self, steady: int) -> list[int]:
        return [time_ns + steady for time_ns in self._others]

    def _remedy(self) -> str:
        if self._problem != AHEAD_OF_STEADY:
            return ""
        return (
            "; blocks are dated by the steady clock. If the clock is right now, stop the node, "
            f"remove {self._file.name} and start it again"
        )

    def _read(self) -> ClockAnchor | None:
        try:
            document = json.loads(self._file.read_bytes())
            if document["format"] != FORMAT or document["boot_id"] != self._boot:
                return None
            return ClockAnchor(int(document["wall_ns"]), int(document["steady_ns"]))
        except (OSError, ValueError, TypeError, KeyError):
            return None


async def serve_clock(
    clock: NodeClock, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Compare the clocks every few seconds until cancelled."""
    task_status.started()
    while True:
        clock.look()
        await trio.to_thread.run_sync(clock.keep)
        await trio.sleep(LOOK_EVERY_S)


def _moved(before: ClockAnchor | None, anchor: ClockAnchor) -> bool:
    if before is None:
        return True
    expected = before.wall_ns + anchor.steady_ns - before.steady_ns
    return abs(anchor.wall_ns - expected) > WRITE_ABOVE_NS


def _fields(anchor: ClockAnchor) -> dict[str, int]:
    return {"wall_ns": anchor.wall_ns, "steady_ns": anchor.steady_ns}


def _boot_id(path: Path) -> str | None:
    try:
        return path.read_text("ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _seconds(shift_ns: int) -> str:
    seconds = abs(shift_ns) // SECOND_NS
    days = f" ({seconds // DAY_S} days)" if seconds >= 2 * DAY_S else ""
    return f"{seconds} s{days}"
