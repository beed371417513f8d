"""A peer of a benchmark in a process of its own, with the settings that its users have.

The node's threads wait passively (``OMP_WAIT_POLICY``, decision 0070), and everything in this
process does so with them. Others are not written for that: llama.cpp meets at a barrier after every
operator, and waits up to four times as long for its second thread when it has to be woken. So its
process waits as OpenMP does where nobody has set anything.

The two processes talk in lines of JSON: a method and its arguments, and what it returned.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

SPINS = "300000"
"""GNU OpenMP's own number of spins before a thread sleeps; naming it overrides the wait policy."""


class PeerProcess:
    """A peer that runs in another process. Calls block; nothing runs between two calls."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        """Take over a process that was started by :func:`peer_process`."""
        self._process = process
        self._to: Any = process.stdin
        self._from: Any = process.stdout

    def call(self, method: str, *arguments: Any) -> Any:
        """What the peer's method returns. RuntimeError if the process ends meanwhile."""
        self._to.write(json.dumps([method, arguments]) + "\n")
        self._to.flush()
        answer = self._from.readline()
        if not answer:
            raise RuntimeError(f"the peer ended with status {self._process.wait()}")
        return json.loads(answer)


@contextmanager
def peer_process(peer: type[Any], *arguments: Path | int) -> Iterator[PeerProcess]:
    """Run ``peer(*arguments)`` in a process for the time of a measurement."""
    given = [str(each) if isinstance(each, Path) else each for each in arguments]
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, peer.__module__, peer.__name__, json.dumps(given)],
        env={**os.environ, "GOMP_SPINCOUNT": SPINS},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield PeerProcess(process)


def _serve(module: str, name: str, given: str) -> None:
    """Answer calls until the other process closes the pipe."""
    # Whatever a library prints is no answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    arguments = [Path(each) if isinstance(each, str) else each for each in json.loads(given)]
    peer = getattr(import_module(module), name)(*arguments)
    for line in sys.stdin:
        method, rest = json.loads(line)
        print(json.dumps(getattr(peer, method)(*rest)), file=answers, flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
