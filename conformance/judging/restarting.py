"""Runs a node that can be restarted: `python -m conformance.judging.restarting FILE COMMAND...`.

The program writes its process number to FILE and runs the command. With FILE alone it asks the
program that has written FILE to end the command and to run it again. A command that ends by itself
ends the program with its status.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType


def command(file: Path) -> list[str]:
    """Return the words that run a command, or restart it if no command follows."""
    return [sys.executable, "-m", "conformance.judging.restarting", str(file)]


def keep(file: Path, words: list[str]) -> int:
    """Run a command until it ends by itself or this process is told to end."""
    asked: list[int] = []
    child: list[subprocess.Popen[bytes]] = []

    def note(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        child[0].terminate()

    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, note)
    while True:
        asked.clear()
        child[:] = [subprocess.Popen(words)]
        file.write_text(str(os.getpid()), encoding="ascii")
        status = child[0].wait()
        if signal.SIGHUP not in asked:
            return status


def main() -> int:
    """Run a command, or ask for its restart."""
    file, words = Path(sys.argv[1]), sys.argv[2:]
    if words:
        return keep(file, words)
    os.kill(int(file.read_text(encoding="ascii")), signal.SIGHUP)
    return 0


if __name__ == "__main__":
    sys.exit(main())
