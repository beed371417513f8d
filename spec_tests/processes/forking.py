"""Processes that start with everything imported.

Importing torch and the node takes seconds of processor time, and many tests start a dozen nodes. So
each process that runs tests keeps one server: a process that has imported all modules, has started
no thread, and forks for each request. The fork gets arguments, environment, folder and output of
its own. From then on it runs the same ``meshnode.cli.main`` as ``python -m meshnode`` does, or
other functions that the test asks for (see ``calls``).

Environment variables that libraries read while they are imported are fixed at the server's start;
there is one server for each combination of them. Tests of the start itself use a fresh process.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import IO, Self

from spec_tests.processes.calls import Call, dump
from spec_tests.processes.calls import run as run_calls

READ_AT_IMPORT = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "OPENBLAS_NUM_THREADS", "PYTHONPATH")
_MOST_BYTES = 1 << 17


@dataclass
class Request:
    """What a server needs to know to start one process."""

    arguments: list[str]
    calls: str
    environment: dict[str, str]
    folder: str


class ForkedProcess:
    """A process that a server forked, with the part of :class:`subprocess.Popen` that tests use."""

    def __init__(self, arguments: Sequence[str], status: socket.socket, stdout: IO[str]) -> None:
        self.args = list(arguments)
        self.stdout = stdout
        self.returncode: int | None = None
        self._status = status
        self.pid = int(status.recv(64))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the output and wait for the end, as a Popen does."""
        self.stdout.close()
        self.wait()

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while the process runs."""
        return self._read(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; return the exit status. Raises TimeoutExpired after ``timeout`` s."""
        status = self._read(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return status

    def _read(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            answer = self._status.recv(64)
            assert answer, "the server of processes ended"
            self.returncode = os.waitstatus_to_exitcode(int(answer))
            self._status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            # It may have ended already, before its server has said so.
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)


class _Client:
    """A server of processes, and the socket through which this process sends it requests."""

    def __init__(self, fixed: Mapping[str, str]) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        inherited = {k: v for k, v in os.environ.items() if k not in READ_AT_IMPORT}
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-u", "-m", __name__, str(theirs.fileno())],
                env={**inherited, **fixed},
                pass_fds=[theirs.fileno()],
                cwd=Path(__file__).parents[2],
            )
        self._lock = threading.Lock()
        atexit.register(self._close)

    def start(self, request: Request, stdout: int, stderr: int) -> socket.socket:
        """Ask for a fork. Returns a socket that receives its PID, and later its wait status."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        message = json.dumps(asdict(request)).encode()
        assert len(message) <= _MOST_BYTES
        with theirs, self._lock:
            socket.send_fds(self._control, [message], [stdout, stderr, theirs.fileno()])
        return ours

    def _close(self) -> None:
        self._control.close()
        self._server.wait()


@cache
def _client(fixed: tuple[tuple[str, str], ...]) -> _Client:
    return _Client(dict(fixed))


def start(
    calls: Sequence[Call],
    arguments: Sequence[str],
    environment: Mapping[str, str],
    stderr: IO[bytes] | None = None,
    folder: str = "",
) -> ForkedProcess:
    """Start a process that makes these calls with these arguments; ``stdout`` is its output.

    ``folder`` is its current folder, by default that of this process.

    Without ``stderr`` the standard error goes where the standard output does.
    """
    reader, writer = os.pipe()
    try:
        errors = writer if stderr is None else stderr.fileno()
        status = _start(calls, arguments, environment, writer, errors, folder)
    finally:
        os.close(writer)
    return ForkedProcess(arguments, status, os.fdopen(reader))


def run(
    calls: Sequence[Call], arguments: Sequence[str], environment: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a process that makes these calls, and return its result with all output.

    Raises TimeoutExpired if it has not ended after ``timeout`` seconds. It is killed then.
    """
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        status = _start(calls, arguments, environment, output.fileno(), errors.fileno())
        process = ForkedProcess(arguments, status, output)
        try:
            process.wait(timeout)
        finally:
            process.kill()
        for file in (output, errors):
            file.seek(0)
        return subprocess.CompletedProcess(
            process.args, process.returncode or 0, output.read(), errors.read()
        )


def _start(
    calls: Sequence[Call],
    arguments: Sequence[str],
    environment: Mapping[str, str],
    stdout: int,
    stderr: int,
    folder: str = "",
) -> socket.socket:
    fixed = tuple((name, environment[name]) for name in READ_AT_IMPORT if name in environment)
    request = Request(list(arguments), dump(calls), dict(environment), folder or os.getcwd())
    return _client(fixed).start(request, stdout, stderr)


def _serve(control: socket.socket) -> Request | None:
    """Fork for each request. Returns the request in the fork, and None when the server ends."""
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    ended, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    children: dict[int, int] = {}
    while True:
        ready = select.select([control.fileno(), ended], [], [])[0]
        if ended in ready:
            os.read(ended, 4096)
            _reap(children)
        if control.fileno() not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(control, _MOST_BYTES, 3)
        if not message:
            return None
        if pid := os.fork():
            stdout, stderr, children[pid] = descriptors
            os.write(children[pid], str(pid).encode())
            os.close(stdout)
            os.close(stderr)
            continue
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, interrupt)
        os.dup2(descriptors[0], 1)
        os.dup2(descriptors[1], 2)
        for descriptor in (control.detach(), ended, wakes, *descriptors, *children.values()):
            os.close(descriptor)
        return Request(**json.loads(message))


def _reap(children: dict[int, int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        descriptor = children.pop(pid)
        # A test that does not wait for this process may have closed its end of the socket.
        with suppress(BrokenPipeError):
            os.write(descriptor, str(status).encode())
        os.close(descriptor)


def _become(request: Request) -> None:
    """Turn this fork into the requested process: environment, folder, arguments, calls."""
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.folder)
    sys.argv = ["meshnode", *request.arguments]
    run_calls(request.calls)


def _import_all() -> None:
    import meshnode.node
    import meshnode.token_command
    import meshnode.train_command
    import meshnode.worker_command  # noqa: F401

    # Exclude all that is imported from garbage collection, so that forks keep sharing its memory.
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    _import_all()
    asked = _serve(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        _become(asked)
