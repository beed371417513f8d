"""The executor's memory for keys and values, and who may begin now (decisions 0138, 0225)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import trio

from meshnode.domain.batching import EngineLimits, Scheduler


class Reservations:
    """What others take of the memory for keys and values, or of the host's beside a device."""

    def __init__(
        self, scheduler: Scheduler[Any], limits: EngineLimits, longest: Callable[[], int]
    ) -> None:
        """``longest`` gives the bytes of the longest request, which are always left."""
        self._scheduler = scheduler
        self._limits = limits
        self._longest = longest
        self._taken: dict[str, int] = {}

    @property
    def spare(self) -> int:
        """The most bytes that all users together may have."""
        if self._limits.beside_bytes is not None:
            return self._limits.beside_bytes
        return self._limits.kv_bytes - self._longest()

    def spare_beside(self, user: str) -> int:
        """The part of ``spare`` that others than ``user`` have not taken."""
        return self.spare - sum(nbytes for name, nbytes in self._taken.items() if name != user)

    def take(self, user: str, nbytes: int) -> None:
        """Take memory for a user, in place of what it had; 0 gives it back."""
        self._taken[user] = nbytes
        if self._limits.beside_bytes is not None:
            return
        whole = self._limits.kv_bytes
        left = max(whole - sum(self._taken.values()), whole - self.spare, 0)
        self._scheduler.limits = replace(self._scheduler.limits, kv_bytes=left)


class Gate:
    """Lets requests begin, or wait while another version is loaded in place of the present one."""

    def __init__(self) -> None:
        self.entering = 0
        """Requests that have passed and are not in the queue yet."""
        self._open = trio.Event()
        self._open.set()
        self._closing = 0

    async def wait(self) -> None:
        """Wait until requests may begin. Whoever returns from it begins before it can close."""
        await trio.lowlevel.checkpoint()
        while self.closed:
            await self._open.wait()

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Count a request that has passed, until it is in the queue."""
        self.entering += 1
        try:
            yield
        finally:
            self.entering -= 1

    @property
    def closed(self) -> bool:
        """Whether requests wait."""
        return not self._open.is_set()

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Let requests wait until nobody closes the gate any more."""
        if not self._closing:
            self._open = trio.Event()
        self._closing += 1
        try:
            yield
        finally:
            self._closing -= 1
            if not self._closing:
                self._open.set()
