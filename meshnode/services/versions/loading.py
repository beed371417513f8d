"""Loading a version of the weights beside those that are served (decision 0225).

Where there is no memory for both, a version takes the place of the present one in a moment in which
nothing computes with that.

Invariants: weights beside weights are loaded only within ``resources.max_memory_gb``; what a
version took is given back once it has been freed; whenever requests may begin, there is a version
that can compute.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import trio

from meshnode.memory import give_back_memory
from meshnode.model.engine import Engine
from meshnode.model.loading import LoadedModel, packed_bytes
from meshnode.services.executor import Executor, ServedVersion
from meshnode.services.training.low_priority_thread import LowPriorityThread
from meshnode.services.wakeup import Wakeup, wait_any

if TYPE_CHECKING:
    from meshnode.services.versions.store import VersionFiles

log = logging.getLogger(__name__)

Result = TypeVar("Result")
USER = "versions"
"""The name under which a second version reserves memory of the executor."""
AUTO_DTYPE = "auto"


class VersionLoader:
    """Loads versions in a thread of low priority, and counts their memory."""

    def __init__(
        self, executor: Executor, load: Callable[[VersionFiles], LoadedModel], dtype: str
    ) -> None:
        """``load`` loads the held layers of a version; it blocks and raises ModelUnreadable."""
        self._executor = executor
        self._load = load
        self._dtype = dtype
        self._thread = LowPriorityThread()
        self._first_bytes = executor.versions.current.model.weight_bytes
        self._freed = Wakeup()
        executor.versions.changed.append(self._freed.set)

    async def blocking(self, function: Callable[[], Result]) -> Result:
        """Run in the thread what reads weights."""
        return await self._thread(function)

    def close(self) -> None:
        """End the thread. A service that was restarted gets another one."""
        self._thread.close()
        self._thread = LowPriorityThread()

    @property
    def spare(self) -> int:
        """Bytes that versions may take beyond those of the first one."""
        return self._executor.spare_beside(USER)

    async def more_bytes(self, chosen: VersionFiles) -> int:
        """What a version takes beyond the first one, by estimate. Raises ModelUnreadable."""
        return await self._thread(partial(self._expected, chosen)) - self._first_bytes

    async def fits_beside(self, chosen: VersionFiles) -> bool:
        """Whether there is memory for a version beside those that are here."""
        # A device has given all of its memory to weights and cache: no second version fits.
        if self._executor.where is not None:
            return False
        return self._executor.versions.weight_bytes + await self.more_bytes(chosen) <= self.spare

    async def beside(self, chosen: VersionFiles) -> ServedVersion:
        """Load a version beside the others. Call :meth:`reserve` when it is there, or is not."""
        more = self._executor.versions.weight_bytes + await self.more_bytes(chosen)
        self._executor.reserve(USER, max(0, more))
        await self._executor.wait_room()
        return await self.version(chosen)

    async def in_place(
        self, chosen: VersionFiles, present: VersionFiles, keep: Callable[[], None]
    ) -> None:
        """Load a version in place of the present one, and switch to it.

        The caller has closed the gate while nothing was open. ``keep`` is called in a thread
        before the switch. If anything fails, the present version is loaded again.
        """
        executor = self._executor
        more = await self.more_bytes(chosen)
        try:
            executor.versions.current.engine.unload()
            await trio.to_thread.run_sync(give_back_memory)
            self.reserve(more)
            try:
                version = await self.version(chosen)
                await trio.to_thread.run_sync(keep)
            except BaseException:
                # As at a start: from its own files.
                with trio.CancelScope(shield=True):
                    executor.switch(await self.version(present))
                raise
            executor.switch(version)
        finally:
            self.reserve()

    async def version(self, chosen: VersionFiles) -> ServedVersion:
        """Load a version, off the event loop. Raises ValueError if it rounds differently."""
        alike, most_rows = self._executor.versions.current.engine, self._executor.limits.max_batch

        def load() -> ServedVersion:
            model = self._load(chosen)
            engine = Engine(model.decoder, most_rows, alike)
            return ServedVersion(chosen.weights, chosen.model_hash, model.facts, engine)

        version = await self._thread(load)
        if alike.seamless and not version.engine.seamless:
            raise ValueError("it rounds differently from the version that is served")
        return version

    def reserve(self, nbytes: int | None = None) -> None:
        """Reserve what versions take beyond the first one, by default those in memory now."""
        if nbytes is None:
            nbytes = self._executor.versions.weight_bytes - self._first_bytes
        self._executor.reserve(USER, max(0, nbytes))

    async def account(self) -> None:
        """Give the memory of a version back once it has been freed, until cancelled."""
        held = len(self._executor.versions.all)
        while True:
            freed = self._freed.next
            now = len(self._executor.versions.all)
            if now < held:
                await trio.to_thread.run_sync(give_back_memory)
                self.reserve()
                log.info("a version that is no longer served was freed")
            held = now
            await wait_any(freed)

    def _expected(self, chosen: VersionFiles) -> int:
        """What another version will take, by estimate. Blocks. Raises ModelUnreadable."""
        current = self._executor.versions.current.model
        form = chosen.files.auto_format if self._dtype == AUTO_DTYPE else None
        if form is None:
            return current.weight_bytes
        return max(current.weight_bytes, packed_bytes(current.config, current.card.layers, form))
