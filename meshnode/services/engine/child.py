"""The engine's process: started, watched, and never left behind.

The process is started by this process's main thread and asks the kernel to be killed when that
thread ends, so not even a kill -9 of the node leaves an engine that goes on signing. trio would
start it in a worker thread, which ends sooner.

Lines of its log are taken over into the node's own. The last ones are kept, because what ended an
engine is what it wrote last.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path

import trio

from meshnode.services.engine.home import RPC_SOCKET

log = logging.getLogger(__name__)

STOP_S = 10.0
"""How long an engine may take to end after SIGTERM. Nothing is lost if it is killed then."""
MAX_LINE = 64 * 1024
KEPT_LINES = 200
LEVELS = {"error": logging.WARNING, "info": logging.INFO}
QUIET = re.compile(r"dial|reconnect|connection|peer|stop(ped|ping)|EOF", re.IGNORECASE)
"""Errors that the network between engines brings about by itself; shown at the level DEBUG."""
_LAUNCH = """\
import ctypes, os, signal, sys
parent = int(sys.argv[1])
try:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
except (OSError, AttributeError):
    pass
if os.getppid() != parent:
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Runs in the new process, before it becomes the engine. On a system without prctl the engine ends
by itself once the ABCI socket is gone."""


FAILED = "CONSENSUS FAILURE"
"""After this line the engine's process stays, but its consensus has ended."""
INVALID = "Error in validation"
DIFFERS = re.compile(
    r"wrong Block\.Header\.AppHash\.\s+Expected ([0-9A-F]{64}), got ([0-9A-F]{64})"
)


class EngineEnded(Exception):
    """The engine has ended by itself; the message has its status and its last error."""


class StateDiffers(Exception):
    """More than two thirds of the power have decided upon another state than this node's."""

    def __init__(self, ours: str, theirs: str) -> None:
        super().__init__(f"this node's root is {ours}, the network's is {theirs}")


class Engine:
    """A running engine."""

    def __init__(self, program: str, home: Path) -> None:
        """Start it. It runs until it ends by itself or :meth:`stop`."""
        # An engine that was killed leaves its socket, on which no other can listen.
        (home / RPC_SOCKET).unlink(missing_ok=True)
        arguments = [sys.executable, "-I", "-c", _LAUNCH, str(os.getpid())]
        self._process = subprocess.Popen(
            [*arguments, program, "start", "--home", "."],
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # Ctrl-C reaches the node alone, which then drains.
            start_new_session=True,
            env={"PATH": os.environ.get("PATH", ""), "HOME": str(home), "GOGC": "100"},
        )
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        self._output = trio.lowlevel.FdStream(os.dup(self._process.stdout.fileno()))
        self._process.stdout.close()
        self._pidfd = os.pidfd_open(self._process.pid)
        self._failure = ""
        self.last_lines: deque[str] = deque(maxlen=KEPT_LINES)

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    async def run(self) -> None:
        """Take over its log until it ends. Raises EngineEnded or StateDiffers."""
        async with self._output:
            await self._take_lines()
        if self._failure:
            if found := DIFFERS.search(self._failure):
                raise StateDiffers(found[1], found[2])
            raise EngineEnded(f"failed: {self._failure}")
        await trio.lowlevel.wait_readable(self._pidfd)
        status = self._process.wait()
        raise EngineEnded(f"ended with status {status}: {self.last_error()}")

    async def stop(self) -> None:
        """End it: SIGTERM, and SIGKILL when that takes too long. Shielded from cancellation."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                self._process.terminate()
            with trio.move_on_after(STOP_S, shield=True) as waiting:
                await trio.lowlevel.wait_readable(self._pidfd)
            if waiting.cancelled_caught:
                log.warning("engine: it did not end in %g s and is killed", STOP_S)
                self._process.send_signal(signal.SIGKILL)
                with trio.CancelScope(shield=True):
                    await trio.lowlevel.wait_readable(self._pidfd)
            self._process.wait()
        os.close(self._pidfd)

    @property
    def lacks_space(self) -> bool:
        """Whether the disk refused it something."""
        return any("no space left on device" in line for line in self.last_lines)

    def last_error(self) -> str:
        """What it wrote last that tells why it ended."""
        found = [one for one in self.last_lines if "panic" in one or "err=" in one]
        chosen = found[-1] if found else next(reversed(self.last_lines), "")
        return chosen[:500]

    async def _take_lines(self) -> None:
        kept = b""
        async for chunk in self._output:
            *lines, kept = (kept + chunk).split(b"\n")
            kept = kept[-MAX_LINE:]
            for line in lines:
                self._take(line.decode("utf-8", "replace").strip())
            if self._failure:
                return

    def _take(self, line: str) -> None:
        if not line:
            return
        level, text = read_line(line)
        self.last_lines.append(text)
        # While it fetches blocks, it checks them after their commits.
        if FAILED in text or (INVALID in text and DIFFERS.search(text)):
            # What follows is a trace of Go's stack.
            self._failure = text = text.partition(" stack=")[0]
        log.log(level, "engine: %s", text[:2000])


def read_line(line: str) -> tuple[int, str]:
    """Level and text of a line of the engine's log."""
    try:
        fields = json.loads(line)
        text = str(fields.pop("_msg"))
    except (ValueError, KeyError, AttributeError, TypeError):
        # A panic of Go is plain text.
        level = logging.ERROR if line.startswith(("panic", "fatal", "ERROR")) else logging.DEBUG
        return level, line
    level = LEVELS.get(str(fields.pop("level", "")), logging.DEBUG)
    fields.pop("ts", None)
    module = fields.pop("module", "")
    if module in ("p2p", "pex", "mempool", "blocksync") or QUIET.search(text):
        level = logging.DEBUG
    more = " ".join(f"{name}={value}" for name, value in fields.items() if name != "impl")
    return level, f"{module}: {text} {more}".strip()
