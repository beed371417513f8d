"""Switches between versions of the weights while the node serves (decision 0225).

When the nodes that train have agreed on new weights, and ``training.serve`` wants them, they are
loaded and packed beside those that are served, in a thread of low priority. Then every new
generation begins with them; the others end with the version that they began with.

Invariants: the choice is on the disk before anything is generated with it; a version that cannot be
loaded leaves the present one in service; weights beside weights are loaded only within
``resources.max_memory_gb``, otherwise in a moment in which nothing is generated.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import trio

from meshnode.domain.training.serving import OFF, Measured, is_worth_serving
from meshnode.domain.units import GIBIBYTE
from meshnode.model.documents import ModelUnreadable
from meshnode.model.loading import LoadedModel
from meshnode.services.executor import Executor
from meshnode.services.versions.loading import VersionLoader
from meshnode.services.wakeup import Wakeup, wait_any

if TYPE_CHECKING:
    from meshnode.domain.training.agreement import WeightsVersion
    from meshnode.model.anchor_pieces import Unit
    from meshnode.services.versions.store import VersionFiles, VersionStore

log = logging.getLogger(__name__)

LOOK_EVERY_S = 10.0
"""How often a version that has to wait for a peer is looked at."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """The newest weights that the network agreed on, in a file that may be removed soon."""

    measured: Measured
    anchor: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionDependencies:
    """What the switch depends on."""

    executor: Executor
    store: VersionStore
    setting: str
    """``training.serve``."""
    dtype: str
    load: Callable[[VersionFiles], LoadedModel]
    """Loads the held layers of a version. Blocks; raises ModelUnreadable."""
    newest: Callable[[], Candidate | None]
    loss_of: Callable[[WeightsVersion], float | None]
    """The held-out loss of weights, as this node has measured it since the start."""
    dependent: Callable[[], str]
    """A peer whose generations need the weights that are served; empty if there is none."""
    news: Wakeup
    """Set when ``newest`` may give something else."""


class ServedVersions(Protocol):
    """What may be asked of whatever decides what is served."""

    @property
    def setting(self) -> str:
        """``training.serve`` as it is in force."""

    @property
    def served(self) -> VersionFiles:
        """What new generations begin with."""

    @property
    def served_loss(self) -> float | None:
        """Its held-out loss; None if that is not known."""

    @property
    def waiting(self) -> str:
        """Why a newer version is not served yet; empty if none waits."""

    async def piece(self, unit: Unit) -> bytes | None:
        """A piece of trained layers that are served here; None if there is none."""


class VersionSwitch:
    """Handle of the service."""

    def __init__(self, needs: VersionDependencies, served: VersionFiles) -> None:
        """``served`` is what the executor was started with."""
        self.served = served
        """What new generations begin with."""
        self.waiting = ""
        """Why a newer version is not served yet, in words for the operator."""
        self.setting = needs.setting
        self._needs = needs
        self._executor = needs.executor
        self._loader = VersionLoader(needs.executor, needs.load, needs.dtype)
        self._refused: WeightsVersion | None = None
        """The version that could not be loaded; it is not tried again."""

    @property
    def served_loss(self) -> float | None:
        """The held-out loss of what is served; None if it was not measured."""
        measured = self._needs.loss_of(self.served.weights)
        return self.served.loss if measured is None else measured

    async def piece(self, unit: Unit) -> bytes | None:
        """None: training gives the pieces of whole models."""
        return None

    async def run(self) -> None:
        """Switch whenever it is worth it, until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._loader.account)
                while True:
                    news = self._needs.news.next
                    candidate = self._wanted()
                    held_up = self._held_up(candidate)
                    if candidate is None or held_up or not await self._take(candidate):
                        again = trio.current_time() + LOOK_EVERY_S if held_up else math.inf
                        await wait_any(news, deadline=again)
        finally:
            self._loader.close()

    def _wanted(self) -> Candidate | None:
        """The version to switch to, if there is one."""
        newest = self._needs.newest() if self.setting != OFF else None
        if newest is None or newest.measured.weights == self._refused:
            return None
        served = Measured(self.served.weights, self._needs.loss_of(self.served.weights))
        return newest if is_worth_serving(self.setting, served, newest.measured) else None

    def _held_up(self, candidate: Candidate | None) -> bool:
        """Whether a candidate has to wait for nodes that would lose their holders."""
        others = self._needs.dependent() if candidate is not None else ""
        if candidate is None or not others:
            return False
        number = candidate.measured.weights.version
        waiting = f"version {number} waits: {others} holds only some layers, of what is served"
        if waiting != self.waiting:
            log.info("%s", waiting)
        self.waiting = waiting
        return True

    async def _take(self, candidate: Candidate) -> bool:
        """Serve a version. False if it cannot be served, now or ever."""
        weights, store = candidate.measured.weights, self._needs.store
        try:
            await trio.to_thread.run_sync(store.take, candidate.anchor, weights)
            found = await self._loader.blocking(partial(store.read, weights))
            chosen = replace(found, loss=candidate.measured.loss)
            await self._load(chosen)
        except FileNotFoundError:
            # The next round has ended meanwhile; its weights are tried then.
            return False
        except (OSError, ModelUnreadable, ValueError, RuntimeError, MemoryError) as error:
            log.error("version %d cannot be served: %s", weights.version, error)
            self._refused, self.waiting = weights, f"version {weights.version} cannot be served"
            return False
        self.waiting = ""
        return True

    async def _load(self, chosen: VersionFiles) -> None:
        begun = trio.current_time()
        if await self._loader.fits_beside(chosen):
            try:
                version = await self._loader.beside(chosen)
                await trio.to_thread.run_sync(self._needs.store.choose, chosen)
                self._executor.switch(version)
            finally:
                self._loader.reserve()
        else:
            await self._load_alone(chosen)
        before, self.served = self.served, chosen
        log.info(
            "serving version %d (model %s) after version %d: held-out loss %s after %s, %.1f s",
            chosen.weights.version,
            chosen.model_hash[:16],
            before.weights.version,
            spelled(chosen.loss),
            spelled(self._needs.loss_of(before.weights)),
            trio.current_time() - begun,
        )

    async def _load_alone(self, chosen: VersionFiles) -> None:
        """Load a version in place of the present one, while nothing is generated."""
        executor, loader, number = self._executor, self._loader, chosen.weights.version
        spare, more = loader.spare, await loader.more_bytes(chosen)
        if more > spare:
            raise ValueError(
                f"it takes {more / GIBIBYTE:.2f} GiB more than resources.max_memory_gb leaves"
            )
        self.waiting = (
            f"version {number} waits for an idle moment: resources.max_memory_gb leaves "
            f"{max(0, spare) / GIBIBYTE:.2f} GiB, too little for two versions"
        )
        log.info("%s", self.waiting)
        while not executor.untouched:
            await executor.wait_idle()
            await trio.lowlevel.checkpoint()
        with executor.gate.closing():
            keep = partial(self._needs.store.choose, chosen)
            await loader.in_place(chosen, self.served, keep)


def spelled(loss: float | None) -> str:
    """A loss, for the log."""
    return "unknown" if loss is None else f"{loss:.4f}"


async def serve_versions(
    switch: VersionSwitch, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Switch between versions until cancelled."""
    task_status.started()
    await switch.run()
