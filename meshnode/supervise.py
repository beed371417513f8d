"""Supervision: restarts of failed services, and the reaction to stop signals.

A service is ``async def serve_x(..., *, task_status)``; it reports readiness through
``task_status.started`` and runs until it is cancelled. A service that returns before that has
failed. A failed service is started again within the budget of its ``Restarts``, if it has one;
after that ``ServiceFailed`` goes up the nursery tree and ends the node. A shortage of descriptors
takes nothing from the budget, because it passes (decision 0126).

Only the value of the first start is passed on. A service that may be restarted therefore does not
create its handle: the caller creates it beforehand, and each start uses the same one.

The states of the node::

    running  --SIGTERM, SIGINT-->  draining  --streams ended, or deadline-->  stopped (status 0)
    draining --second signal-->    gone at once (status 128 + signal)
    any      --ServiceFailed-->    stopped (status 1)
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

import trio

from meshnode.domain.errors import StartupError
from meshnode.domain.shortage import shortage_in

log = logging.getLogger(__name__)


class Service(Protocol):
    """Anything that ``nursery.start`` can start."""

    async def __call__(self, *, task_status: trio.TaskStatus[Any]) -> None:
        """Run until cancelled, after ``task_status.started(value)``."""


Supervisor = Callable[..., Awaitable[None]]
""":func:`supervise` with the node's board and randomness; takes a name and a service."""


class ServiceFailed(Exception):
    """A service has ended for good. The message names it."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"service {name} {reason}")
        self.name = name


@dataclass(frozen=True, slots=True)
class Restarts:
    """How often a stateless service may fail: ``budget`` times within ``window_s`` seconds."""

    budget: int = 4
    window_s: float = 60.0
    first_pause_s: float = 0.1
    longest_pause_s: float = 5.0

    def pause(self, failures: int, jitter: float) -> float:
        """Seconds to wait after the ``failures``-th failure; ``jitter`` is between 0 and 1."""
        longest = min(self.first_pause_s * 2.0 ** min(failures, 64) / 2, self.longest_pause_s)
        return longest * (0.5 + 0.5 * jitter)


NO_RESTARTS = Restarts(budget=0)


WELL = frozenset({"ok", "starting"})


class ServiceBoard:
    """The states of all services, which :func:`supervise` sets and the health checks read."""

    def __init__(self) -> None:
        """Start without any service."""
        self._states: dict[str, str] = {}

    def set(self, name: str, state: str) -> None:
        """Note the state of a service: ``ok``, ``starting``, ``restarting`` or ``stopped``."""
        self._states[name] = state

    def summary(self) -> str:
        """``ok``, or the first service that has failed, and its state.

        A service that starts for the first time is not a failure. The node listens once everything
        it needs has started; what may start later, such as a slow chain, reports its own readiness.
        """
        ill = (f"{name} {state}" for name, state in self._states.items() if state not in WELL)
        return next(ill, "ok")


class Drain:
    """Whether the node is stopping. A drain begins once and is never revoked."""

    def __init__(self) -> None:
        """Start without draining."""
        self._begun = trio.Event()

    @property
    def draining(self) -> bool:
        """Whether new work is to be refused."""
        return self._begun.is_set()

    def begin(self) -> None:
        """Start draining; a second call changes nothing."""
        self._begun.set()

    async def wait_begun(self) -> None:
        """Wait until the drain has begun."""
        await self._begun.wait()


async def watch_signals(
    drain: Drain, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Begin the drain at the first SIGTERM or SIGINT, and end the process at the second."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            name = signal.Signals(number).name
            if drain.draining:
                log.warning("second signal (%s): ending at once", name)
                logging.shutdown()
                # Every file of the node survives a kill -9, so nothing needs to be tidied here,
                # and nothing that hangs can delay the operator.
                os._exit(128 + number)
            log.info("%s: draining", name)
            drain.begin()


async def supervise(
    name: str,
    service: Service,
    *,
    board: ServiceBoard,
    random: Callable[[], float],
    restarts: Restarts = NO_RESTARTS,
    may_end: Callable[[], bool] = lambda: False,
    task_status: trio.TaskStatus[Any] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run ``service`` until it is cancelled, starting it again within its restart budget.

    Passes on the first ``task_status.started`` only: with ``restarts``, the handle is created
    beforehand and works again once ``service`` runs again. A failure before the first start is not
    retried: StartupError is passed on unchanged, anything else as ServiceFailed. A return is a
    failure unless ``may_end()``.
    """
    failures: list[float] = []
    started = _FirstStart(task_status, board, name)
    while True:
        board.set(name, "restarting" if started.done else "starting")
        try:
            await service(task_status=started)
        except StartupError as failure:
            if not started.done:
                raise
            if restarts.budget and (shortage := shortage_in(failure)):
                await _wait_out(name, shortage, board, restarts)
                continue
            log.exception("service %s cannot start again", name)
        except Exception as failure:
            # The consequence of a service's crash is decided only here.
            if started.done and restarts.budget and (shortage := shortage_in(failure)):
                await _wait_out(name, shortage, board, restarts)
                continue
            log.exception("service %s crashed", name)
        else:
            if may_end():
                board.set(name, "stopped")
                return
            log.error("service %s returned", name)
        now = trio.current_time()
        failures = [*(at for at in failures if now - at < restarts.window_s), now]
        if not started.done or len(failures) > restarts.budget:
            board.set(name, "stopped")
            log.critical("service %s failed for good; the node ends", name)
            raise ServiceFailed(name, "failed for good")
        board.set(name, "restarting")
        await trio.sleep(restarts.pause(len(failures), random()))


async def _wait_out(name: str, shortage: str, board: ServiceBoard, restarts: Restarts) -> None:
    """Wait before a start that needs descriptors."""
    board.set(name, f"waits: {shortage}")
    log.warning("service %s was stopped by a shortage (%s); starting it again", name, shortage)
    await trio.sleep(restarts.longest_pause_s)


class _FirstStart:
    """Reports every start to the board, and the first one to the nursery."""

    def __init__(self, outer: trio.TaskStatus[Any], board: ServiceBoard, name: str) -> None:
        self._outer = outer
        self._board = board
        self._name = name
        self.done = False

    def started(self, value: Any = None) -> None:
        self._board.set(self._name, "ok")
        if not self.done:
            self.done = True
            self._outer.started(value)
