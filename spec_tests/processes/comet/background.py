"""What a test of faults does beside them, in a thread."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Background(ABC):
    """Runs until it is stopped."""

    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Run in a thread."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait for the end."""
        self._stop.set()
        assert self._thread is not None
        self._thread.join()

    @abstractmethod
    def _run(self) -> None:
        """Go on until ``_stop`` is set."""
