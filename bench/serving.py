"""A small server program in a process of its own, as a peer to compare a node with."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

WITHIN_S = 60


@contextmanager
def serving(program: str, *arguments: str) -> Iterator[tuple[int, int]]:
    """Run Python source that serves on the port in its first argument; yields port and pid."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", program, str(port), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + WITHIN_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        yield port, process.pid
    finally:
        process.kill()
        process.wait()
