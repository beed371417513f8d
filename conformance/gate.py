"""Requests of several threads that go at the same moment.

A thread that is the first to run has its answer before the last one has connected, on a machine
that is busy. So each connects, and waits until all have.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection

# So long one waits for the others; one of them may have no connection.
WITHIN_S = 2.0


class Gate:
    """Open, unless it holds requests until there are as many as go together."""

    def __init__(self) -> None:
        """Begin open."""
        self._lock = threading.Lock()
        self._missing = 0
        self._open = threading.Event()
        self._open.set()

    @contextmanager
    def holding(self, many: int) -> Iterator[None]:
        """Hold requests until there are so many; those that come later pass."""
        self._missing = many
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    def wait(self, connection: HTTPConnection) -> None:
        """Wait for the others, with the connection open. Raises `OSError` if there is none."""
        if self._open.is_set():
            return
        try:
            if connection.sock is None:
                connection.connect()
        finally:
            with self._lock:
                self._missing -= 1
                if self._missing <= 0:
                    self._open.set()
        self._open.wait(WITHIN_S)
