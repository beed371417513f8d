"""The versions of the model that the executor computes with (decision 0225).

Terms: a *version* is the weights of one round of training, or those that the node was started with.
The *current* version is the one that new generations and sessions begin with. Another one is in
memory *beside* it as long as somebody uses it: the generations and sessions that began with it, and
whoever retains it for those that may still come from other nodes (decision 0246).

Invariants: a generation, and a peer's session, computes with one version from its first position to
its last; the current version is never freed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from meshnode.domain.errors import LayerNotHeld
from meshnode.domain.training.agreement import WeightsVersion

if TYPE_CHECKING:
    from meshnode.model.engine import Engine
    from meshnode.model.loading import ModelFacts


MAX_SEEN = 64
"""Proofs name what computed them for as long as claims are open: minutes."""


@dataclass(slots=True, eq=False)
class ServedVersion:
    """Weights in memory, with the engine that computes with them."""

    weights: WeightsVersion
    """The round that made them and their hash; version 0 is what the node was started with."""
    model_hash: str
    """The hash of the model with these weights, which peers are told (decision 0139)."""
    model: ModelFacts = field(repr=False)
    engine: Engine = field(repr=False)
    users: int = 0
    """Generations and sessions that have begun with it and have not ended."""


class Versions:
    """The current version, and those beside it."""

    def __init__(self, first: ServedVersion) -> None:
        self.current = first
        self.seen: dict[str, None] = {first.model_hash: None}
        """The model hashes of the latest versions that were current, oldest first."""
        self.switches = 0
        """How often another version became the current one."""
        self.changed: list[Callable[[], None]] = []
        """Each is called after a switch, and after a version was freed."""
        self._beside: list[ServedVersion] = []

    @property
    def all(self) -> tuple[ServedVersion, ...]:
        """Those in memory, the current one first."""
        return (self.current, *self._beside)

    @property
    def hashes(self) -> tuple[str, ...]:
        """The model hashes of those in memory, the current one's first."""
        return tuple(each.model_hash for each in self.all)

    @property
    def weight_bytes(self) -> int:
        """The memory that the weights of all of them take."""
        return sum(each.model.weight_bytes for each in self.all)

    def find(self, model_hash: str) -> ServedVersion:
        """The version with this hash; the current one if it is empty. Raises LayerNotHeld."""
        if not model_hash:
            return self.current
        for each in self.all:
            if each.model_hash == model_hash:
                return each
        raise LayerNotHeld(f"the weights of model {model_hash[:16]} are not served here now")

    def retain(self, version: ServedVersion) -> None:
        """Note that a generation or a session begins with a version."""
        version.users += 1

    def release(self, version: ServedVersion) -> None:
        """Note that a generation or a session that began with it has ended."""
        version.users -= 1
        self._free()

    def switch(self, version: ServedVersion) -> None:
        """Let everything that begins from now on begin with ``version``."""
        self._beside = [each for each in self._beside if each is not version]
        self._beside.insert(0, self.current)
        self.current = version
        self._see(version)
        self.switches += 1
        self._free()
        self._tell()

    def add(self, version: ServedVersion) -> None:
        """Compute with ``version`` too, for whoever names it. The caller has retained it."""
        self._beside.append(version)
        self._see(version)
        self._tell()

    def _see(self, version: ServedVersion) -> None:
        self.seen.pop(version.model_hash, None)
        self.seen[version.model_hash] = None
        while len(self.seen) > MAX_SEEN:
            del self.seen[next(iter(self.seen))]

    def _free(self) -> None:
        kept = [each for each in self._beside if each.users]
        if len(kept) < len(self._beside):
            for each in self._beside:
                if not each.users:
                    each.engine.unload()
            self._beside = kept
            self._tell()

    def _tell(self) -> None:
        for tell in self.changed:
            tell()
