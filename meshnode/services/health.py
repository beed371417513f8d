"""The node's health, for ``GET /health`` and the gRPC health service (interface 2.1 Health).

``checks`` has the document's keys. ``ok`` is healthy; ``absent`` means that the node neither has
nor needs the part; any other word makes the node unhealthy (decision 0004). A further key,
``clock``, is there only while this machine's clock cannot be right (decision 0136).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import trio

from meshnode.supervise import Drain, ServiceBoard

WELL = frozenset({"ok", "absent"})

PROBE_EVERY_S = 5.0
PROBE_STALE_S = 15.0
"""A disk that has not answered for this long counts as failing: three probes missed."""
PROBE_FILE = "health.probe"
PROBE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class HealthReport:
    """Whether the node is fit to be sent work, and each check's word."""

    healthy: bool
    checks: dict[str, str]


class Health:
    """Collects the state of the parts; a report never waits for any of them."""

    def __init__(
        self,
        *,
        drain: Drain,
        services: ServiceBoard,
        device: Callable[[], str],
        peer_count: Callable[[], int],
        tracker_url: str,
        now: Callable[[], float],
        clock: Callable[[], str] = lambda: "",
        uncovered: Callable[[], str] = lambda: "",
    ) -> None:
        """``device``, ``peer_count``, ``clock`` and ``uncovered`` are asked at each report.

        ``now`` is monotonic seconds; ``clock`` says what is wrong with the wall clock, if anything,
        and ``uncovered`` which layers this node would need for an answer and cannot reach.
        """
        self._drain = drain
        self._services = services
        self._device = device
        self._peer_count = peer_count
        self._tracker_url = tracker_url
        self._now = now
        self._clock = clock
        self._uncovered = uncovered
        self._storage = "ok"
        self._probed_at = now()

    def report(self) -> HealthReport:
        """The state of the node now."""
        checks = {
            "gpu": self._device(),
            "network": self._network_state(),
            "storage": self._storage_state(),
            "peers": self._peers_state(),
        }
        healthy = WELL.issuperset(checks.values())
        # Shown only while it is wrong. The node copes, so it stays fit to be sent work.
        if wrong := self._clock():
            checks["clock"] = wrong
        return HealthReport(healthy=healthy, checks=checks)

    def storage_probed(self, state: str) -> None:
        """Record the outcome of a probe of the data folder."""
        self._storage, self._probed_at = state, self._now()

    def _network_state(self) -> str:
        if self._drain.draining:
            return "draining"
        state = self._services.summary()
        return self._uncovered() or state if state in WELL else state

    def _storage_state(self) -> str:
        stale = self._now() - self._probed_at > PROBE_STALE_S
        return "not answering" if stale else self._storage

    def _peers_state(self) -> str:
        # A node without a tracker is a network of one, which is healthy.
        return "ok" if not self._tracker_url or self._peer_count() else "none connected"


async def serve_storage_probe(
    health: Health, data_dir: Path, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Write to the data folder every few seconds, and report the outcome to ``health``."""
    health.storage_probed(await trio.to_thread.run_sync(probe_storage, data_dir))
    task_status.started()
    while True:
        await trio.sleep(PROBE_EVERY_S)
        # A disk may hang for ever, so shutdown abandons the thread instead of waiting for it.
        state = await trio.to_thread.run_sync(probe_storage, data_dir, abandon_on_cancel=True)
        health.storage_probed(state)


def probe_storage(data_dir: Path) -> str:
    """Write and sync a new file; return ``ok`` or the operating system's error text.

    The last probe's file stays until the new one is written. On a full disk, overwriting the old
    file would succeed, since its space is already allocated.
    """
    path, scratch = data_dir / PROBE_FILE, data_dir / f"{PROBE_FILE}.new"
    try:
        handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, os.urandom(PROBE_BYTES))
            os.fsync(handle)
        finally:
            os.close(handle)
        scratch.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            scratch.unlink()
        return error.strerror or "failing"
    return "ok"
