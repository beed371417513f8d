"""Which version of its layers a node serves that holds some of them (decisions 0246, 0247).

The drivers of its pipelines say what is to be served, by two commands (``services.shards.exchange``
has the others):

=======  ==========================================================================================
action   a holder
=======  ==========================================================================================
facts    keeps its layers of a version for serving, and says the hashes of their tensors
serve    loads a version beside those that it computes with, and keeps those that the command names;
         once the driver has ``switched``, begins with it whatever names no weights
=======  ==========================================================================================

Each answer has the hashes of all that the holder computes with now. Loading takes its time: the
driver asks again. Where there is no memory for two versions, one takes the place of the present one
once no driver names that and nothing computes with it.

Invariants: what is served is on the disk before anything begins with it; a version that a driver's
latest command names, and the one that is served, stay in memory; of weights that no driver needs
any more (``domain.training.claims``) only those stay that something still computes with; nothing is
loaded beyond ``resources.max_memory_gb``.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.training.claims import Choice, Claims
from meshnode.domain.training.position import PipelineVersion, version_in
from meshnode.domain.training.serving import OFF
from meshnode.model.anchor_pieces import Unit
from meshnode.model.documents import ModelUnreadable
from meshnode.model.manifest import hash_of_tensors
from meshnode.services.executor import Executor, ServedVersion
from meshnode.services.shards.exchange import facts_in, tensor_messages
from meshnode.services.shards.exchange_messages import SERVING
from meshnode.services.versions.service import spelled
from meshnode.services.wakeup import Wakeup, wait_any
from meshnode.wire import node_pb2 as pb

if TYPE_CHECKING:
    from torch import Tensor

    from meshnode.services.executor.room import Gate
    from meshnode.services.versions.layer_store import LayerFiles, LayerStore
    from meshnode.services.versions.loading import VersionLoader

log = logging.getLogger(__name__)

ACTIONS = SERVING
OWN = ""
"""Stands for this node's own driver."""
FAILED_S = 10.0
"""After this long it is tried again to load what could not be loaded."""
MAX_NAMED = 8
"""Weights that a command may name beside those that are to be served; two are usual."""
MAX_BESIDE = 4
"""Versions in memory: two for each of two drivers. One more waits until one has been freed."""
LOADING = "they are being loaded"
TIGHT = "resources.max_memory_gb leaves too little for two versions there"
_HASH = re.compile(r"[0-9a-f]{64}")

Fetch = Callable[[pb.LayerCommand], Awaitable["Mapping[str, Tensor] | None"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderDependencies:
    """What the serving of layers depends on."""

    executor: Executor
    store: LayerStore
    loader: VersionLoader
    setting: str
    """``training.serve``."""
    trained: Callable[[PipelineVersion], Path]
    """The file in which training keeps the held layers of a version."""
    fetch: Fetch | None = None
    """Fetches the layers that a command names from other nodes."""


class LayerServing:
    """Handle of the service."""

    def __init__(self, needs: HolderDependencies, served: LayerFiles) -> None:
        """``served`` is what the executor was started with."""
        self.served = served
        """What begins with no other weights."""
        self.waiting = ""
        """Why a version is not in memory that is to be, in words for the operator."""
        self.setting = needs.setting
        self.chosen_by = OWN
        """The driver that has chosen what is served."""
        self.decided: Callable[[], int] | None = None
        """On a node that drives, the number of the newest version that it decides about itself."""
        self._needs = needs
        self._executor = needs.executor
        self._retained: dict[str, ServedVersion] = {}
        self._here: dict[str, LayerFiles] = {served.model_hash: served}
        self._wanted: pb.LayerCommand | None = None
        """The latest command to serve weights that are not in memory."""
        self._news = Wakeup()
        self._claims = Claims()
        self._tight = False
        """Whether ``waiting`` is for want of memory."""
        self._failed_at = -math.inf
        self._failed_with: frozenset[str] = frozenset()
        """What drivers needed when it failed."""
        self._replaced: ServedVersion | None = None
        """The version in whose place another one is being loaded."""
        self._one = trio.Lock()

    @property
    def origin(self) -> LayerFiles:
        """What the node was started with."""
        return self._needs.store.origin

    @property
    def served_loss(self) -> float | None:
        """The held-out loss of what is served, as its driver has measured it."""
        return self.served.loss

    @property
    def here(self) -> Mapping[str, LayerFiles]:
        """The versions in memory, by their model hashes."""
        return self._here

    @property
    def hashes(self) -> tuple[str, ...]:
        """Of all that the node computes with now."""
        return self._executor.versions.hashes

    @property
    def in_use(self) -> set[str]:
        """Hashes of the weights that something here computes with, beside those served."""
        versions = self._executor.versions
        return {
            each.model_hash
            for each in versions.all
            if each is not versions.current
            and each.users > (each is self._retained.get(each.model_hash))
        }

    @property
    def untouched(self) -> bool:
        """Whether nothing here computes, or is about to."""
        current = self._executor.versions.current
        users = current.users - (current is self._retained.get(current.model_hash))
        return self._executor.untouched and not users and not self.in_use

    @property
    def gate(self) -> Gate:
        """Lets generations begin here, or wait."""
        return self._executor.gate

    async def run(self) -> None:
        """Load what is to be served, until cancelled."""
        loader = self._needs.loader
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(loader.account)
                while True:
                    news = self._news.next
                    if (wanted := self._wanted) is not None:
                        await self._bring(wanted)
                        if self._wanted is wanted:
                            self._wanted = None
                        continue
                    self._retain()
                    await wait_any(news, deadline=self._claims.next_end(trio.current_time()))
        finally:
            loader.close()

    async def answer(self, command: pb.LayerCommand, driver: str = OWN) -> pb.LayerAnswer:
        """Do what a driver asks. Raises InvalidRequest and OSError."""
        async with self._one:
            if self.setting == OFF:
                return pb.LayerAnswer(model_hashes=self.hashes, waits="training.serve is off there")
            if command.action == "facts":
                return await self._facts(command)
            return await self._serve(command, driver)

    async def piece(self, unit: Unit) -> bytes | None:
        """Rows of a tensor of trained weights in memory here; None if there are none."""
        for files in self._here.values():
            if files.version.number and files.weights == unit.weights:
                read = partial(self._needs.store.piece, files, unit)
                try:
                    return await trio.to_thread.run_sync(read)
                except (OSError, ModelUnreadable):
                    return None
        return None

    async def _facts(self, command: pb.LayerCommand) -> pb.LayerAnswer:
        version, store = version_in(command.version), self._needs.store
        answer = pb.LayerAnswer(model_hashes=self.hashes)
        try:
            if not store.has(version):
                take = partial(store.take, self._needs.trained(version), version)
                await trio.to_thread.run_sync(take)
            facts = await self._needs.loader.blocking(partial(store.facts, version))
        except (FileNotFoundError, ModelUnreadable) as problem:
            log.info("version %s is not here to be served: %s", version, problem)
            answer.missing = f"version {version}"
            return answer
        needed = {version, self.served.version, *(one.version for one in self._here.values())}
        await trio.to_thread.run_sync(store.tidy, needed)
        answer.tensors.extend(tensor_messages(facts))
        return answer

    async def _serve(self, command: pb.LayerCommand, driver: str) -> pb.LayerAnswer:
        wanted = command.model_hash
        hashes = {wanted, *command.digests}
        if len(hashes) > MAX_NAMED or not all(map(_HASH.fullmatch, hashes)):
            raise InvalidRequest("model_hash", "must be the hashes of a few models")
        now = trio.current_time()
        choice = Choice(version_in(command.version).number, wanted)
        self._claims.take(driver, hashes, now, choice if command.switched else None)
        # A claim ends some day.
        self._news.set()
        # Before anything is let go of: what was staged and is served now stays.
        self._retain()
        if wanted in self.hashes and command.switched and self._obeys(driver, choice, now):
            await self._begin_with(wanted, driver)
        self._retain()
        answer = pb.LayerAnswer(model_hashes=self.hashes)
        if wanted not in self.hashes:
            answer.waits = LOADING
            needed = self._claims.needed(now)
            if self.waiting and now - self._failed_at < FAILED_S and needed == self._failed_with:
                answer.waits, answer.tight = self.waiting, self._tight
            elif self._wanted is None:
                self.waiting = ""
                self._wanted = command
                self._news.set()
        return answer

    def _obeys(self, driver: str, choice: Choice, now: float) -> bool:
        """Whether a driver's choice becomes that of this node (decision 0247)."""
        if driver == OWN:
            return True
        if self.decided is not None:
            return choice.number > max(self.decided(), self.served.version.number)
        return self._claims.prevails(driver, choice, now)

    async def _begin_with(self, model_hash: str, driver: str) -> None:
        """Begin whatever names no weights with those of a version in memory."""
        chosen = self._here.get(model_hash)
        if chosen is None or self.served.model_hash == model_hash:
            return
        before = self.served
        await trio.to_thread.run_sync(self._needs.store.choose, chosen)
        version = self._executor.versions.find(model_hash)
        if version is not self._executor.versions.current:
            self._executor.switch(version)
        self.served, self.chosen_by, self.waiting = chosen, driver, ""
        log.info(
            "serving version %d (model %s) after version %d: held-out loss %s",
            chosen.weights.version,
            chosen.model_hash[:16],
            before.weights.version,
            spelled(chosen.loss),
        )

    def _retain(self) -> None:
        """Keep the weights in memory that a driver needs, and no others that nobody uses."""
        hashes = self._claims.needed(trio.current_time())
        versions = self._executor.versions
        for version in versions.all:
            if version.model_hash in hashes and version is not self._replaced:
                self._keep(version)
        for model_hash in self._retained.keys() - hashes:
            versions.release(self._retained.pop(model_hash))
        self._here = {h: files for h, files in self._here.items() if h in versions.hashes}

    def _keep(self, version: ServedVersion) -> None:
        if version.model_hash not in self._retained:
            self._executor.versions.retain(version)
            self._retained[version.model_hash] = version

    async def _bring(self, command: pb.LayerCommand) -> None:
        """Load the weights that a command names, or say why not."""
        self._tight = False
        try:
            self.waiting = await self._load(command)
        except InvalidRequest as error:
            self.waiting = str(error)
        except (OSError, ModelUnreadable, ValueError, RuntimeError, MemoryError) as error:
            log.error("version %s cannot be served: %s", command.version, error)
            self.waiting = f"version {command.version} cannot be loaded there"
        self._failed_at = trio.current_time()
        self._failed_with = self._claims.needed(self._failed_at)

    async def _load(self, command: pb.LayerCommand) -> str:
        """Load weights. Returns why that has to wait; empty if they are in memory."""
        store, loader = self._needs.store, self._needs.loader
        version = version_in(command.version)
        facts = facts_in(list(command.tensors))
        loss = command.held_out_loss if command.HasField("held_out_loss") else None
        if not store.has(version) and not await self._find(version, command):
            return f"version {version} is not there"
        read = partial(store.read, version, facts, command.model_hash, loss)
        chosen = await loader.blocking(read)
        if len(self.hashes) >= MAX_BESIDE:
            return "one more version waits until another has been freed there"
        if not await loader.fits_beside(chosen):
            return await self._load_in_place(chosen)
        try:
            loaded = await loader.beside(chosen)
            # The driver may have changed its mind meanwhile.
            self._here[loaded.model_hash] = chosen
            self._keep(loaded)
            self._executor.versions.add(loaded)
        finally:
            loader.reserve()
        log.info("version %s is here beside what is served", version)
        return ""

    async def _load_in_place(self, chosen: LayerFiles) -> str:
        """Load weights in place of the present ones. Returns why that has to wait, or ""."""
        executor, loader = self._executor, self._needs.loader
        more = await loader.more_bytes(chosen)
        if more > loader.spare:
            return f"it takes {more >> 20} MiB more than resources.max_memory_gb leaves there"
        self._tight = True
        present = executor.versions.current
        needed = self._claims.needed(trio.current_time()) - {chosen.model_hash}
        if needed & {*self.hashes} or len(self.hashes) > 1:
            return TIGHT
        if not self.untouched:
            return f"{TIGHT}, which waits for an idle moment"
        before = self._here.get(present.model_hash, self.served)
        with executor.gate.closing():
            self._replaced = present
            try:
                await loader.in_place(chosen, before, lambda: None)
            finally:
                self._replaced = None
        self._tight = False
        self._here[chosen.model_hash] = chosen
        self._retain()
        log.info("version %s is here in place of version %s", chosen.version, before.version)
        return ""

    async def _find(self, version: PipelineVersion, command: pb.LayerCommand) -> bool:
        """Get the layers of a version from training or from other nodes."""
        store = self._needs.store
        try:
            path = self._needs.trained(version)
            await trio.to_thread.run_sync(partial(store.take, path, version))
        except FileNotFoundError:
            return await self._fetch(version, command)
        return True

    async def _fetch(self, version: PipelineVersion, command: pb.LayerCommand) -> bool:
        store, fetch = self._needs.store, self._needs.fetch
        facts = facts_in(list(command.tensors))
        wanted = pb.LayerCommand(
            version=command.version,
            model_hash=hash_of_tensors(facts),
            tensors=tensor_messages(store.held_of(facts)),
            nodes=command.nodes,
        )
        tensors = await fetch(wanted) if fetch is not None and command.nodes else None
        if tensors is None:
            return False
        await trio.to_thread.run_sync(partial(store.save, tensors, version))
        log.info("version %s came from other nodes", version)
        return True


async def serve_layers(
    serving: LayerServing, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Load what is to be served until cancelled."""
    task_status.started()
    await serving.run()
