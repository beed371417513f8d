"""Measures the event loop's time by client address, and lets clients wait for their turn.

The rules are in ``domain/processor_time.py`` (decision 0141). Each connection is served in a
context that names the time of its address, and tasks inherit their context, so every step of a task
that a client has caused can be counted. This is done only while the node computes for somebody.

Addresses of this machine have all time, because a reverse proxy is one of them (decision 0124).

Invariant: what a connection reads in its turn is accounted for before the next connection of the
same address has its turn, except for work that goes on in threads or waits for something.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TypeVar

import trio

from meshnode.domain.connections import is_here
from meshnode.domain.processor_time import AddressTime, ProcessorTime, part_of
from meshnode.domain.shares import Requester

LOOK_EVERY_S = 0.1
KEPT_S = 1.0
"""How long the node counts as busy after it was: between two requests it is idle for a moment."""

Rivals = Callable[[], Collection[Requester]]
"""Those for whom the node computes now, or is going to."""

Result = TypeVar("Result")

_whose: ContextVar[AddressTime | None] = ContextVar("whose", default=None)


class Turns(trio.abc.Instrument):
    """The turns of all clients of this node."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """``clock`` measures the steps of tasks, in seconds."""
        self.rivals: Collection[Requester] = ()
        self._clock = clock
        self._time = ProcessorTime()
        self._running: AddressTime | None = None
        self._begun = 0.0
        self._queues: dict[str, trio.Lock] = {}

    def of(self, ip: str) -> ClientTurns:
        """The turns of a connection of this address; empty if the address is not known."""
        if not ip or is_here(ip):
            return ClientTurns(self, None)
        return ClientTurns(self, self._time.of(ip, trio.current_time()))

    def wait_s(self, address: AddressTime) -> float:
        """Seconds until the address may use more time."""
        part, now = part_of(address.key, self.rivals), trio.current_time()
        if part is None:
            address.forgive(now)
            return 0.0
        return address.wait_s(part, now)

    @asynccontextmanager
    async def queue(self, address: AddressTime) -> AsyncIterator[None]:
        """Wait behind other connections of the address; they take turns in this order."""
        lock = self._queues.setdefault(address.key, trio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():
                self._queues.pop(address.key, None)

    async def watch(
        self, rivals: Rivals, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Keep up to date for whom the node computes, and measure while it does; never returns."""
        task_status.started()
        until = 0.0
        try:
            while True:
                now = trio.current_time()
                if found := rivals():
                    if not self.rivals:
                        trio.lowlevel.add_instrument(self)
                    self.rivals, until = found, now + KEPT_S
                elif self.rivals and now > until:
                    self._stop()
                await trio.sleep(LOOK_EVERY_S)
        finally:
            if self.rivals:
                self._stop()

    def begin(self, address: AddressTime | None) -> None:
        """Count the rest of the step that runs now; None for a client that never waits."""
        if self.rivals:
            self._running, self._begun = address, self._clock()

    def _stop(self) -> None:
        self.rivals = ()
        self._running = None
        trio.lowlevel.remove_instrument(self)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Begin to measure."""
        self._running = task.context.get(_whose)
        if self._running is not None:
            self._begun = self._clock()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count the step."""
        if self._running is not None:
            self._running.used_s += self._clock() - self._begun
            self._running = None


class ClientTurns:
    """The turns of one connection."""

    def __init__(self, turns: Turns, address: AddressTime | None) -> None:
        """``address`` is None for a client that never waits."""
        self._turns = turns
        self._address = address

    def enter(self) -> None:
        """Count what the running task does from now on, and the tasks that it starts."""
        _whose.set(self._address)
        self._turns.begin(self._address)

    async def wait(self, left: Callable[[], bool] = lambda: False) -> bool:
        """Wait until the address may use more time. The caller goes on without a checkpoint.

        False if the client has ``left`` meanwhile: then nothing need be done for it, and the next
        connection has its turn at once. A client that need not wait is not looked at.
        """
        if self._address is not None and self._turns.rivals:
            async with self._turns.queue(self._address):
                # Let tasks run that the connection before this one has started.
                await trio.lowlevel.checkpoint()
                if left():
                    return False
                # Once: waking up takes time too.
                await trio.sleep(self._turns.wait_s(self._address))
                return not left()
        return True


def counted(function: Callable[[], Result]) -> Callable[[], Result]:
    """``function``, for a thread that works for the running task; its processor time is counted."""
    address = _whose.get()
    if address is None:
        return function

    def run() -> Result:
        begun = time.thread_time()
        try:
            return function()
        finally:
            # Two threads that do this at the same moment lose the time of one of them, at worst.
            address.used_s += time.thread_time() - begun

    return run


def count_no_more() -> None:
    """Count nothing of the running task from now on, nor of the tasks that it starts.

    For work that is shared out by other rules, such as a generation.
    """
    _whose.set(None)
