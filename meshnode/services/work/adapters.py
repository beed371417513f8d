"""The adapters of a chain's rounds, on the disk by their root (decisions 0061 and 0088).

Invariants: a file whose adapter does not have the root in its name counts as missing; a disk that
refuses a write stops nothing, since every adapter can be recomputed from the rounds before it.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from pathlib import Path

from meshnode.datadir import write_private
from meshnode.domain.chain.canonical import JsonLimits, encode, parse
from meshnode.domain.chain.errors import MalformedJson
from meshnode.domain.errors import StartupError
from meshnode.model.adapter import Adapter, InvalidTensor

log = logging.getLogger(__name__)

FOLDER = "adapters"
REMEMBERED = 64
"""Adapters in memory: the latest, the served one, and one for each pending job. Each takes some
5 KB for the default model."""
_LIMITS = JsonLimits(size=16 << 20, depth=4)
"""An adapter for a hidden size of 100,000 takes 4 MB."""


class AdapterStore:
    """All adapters that were ever made here. Its methods may be called from any thread."""

    def __init__(self, folder: Path, hidden: int) -> None:
        """Use ``adapters`` in ``folder``. Raises StartupError if that is impossible."""
        self.initial = Adapter.initial(hidden)
        self._hidden = hidden
        self._folder = folder / FOLDER
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StartupError(f"cannot use {self._folder}: {error.strerror}") from None
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Adapter] = OrderedDict()

    def find(self, root: str) -> Adapter | None:
        """The adapter with this root; None if it is neither in memory nor readable on the disk."""
        if root == self.initial.root:
            return self.initial
        with self._lock:
            adapter = self._known.get(root)
        if adapter is None:
            adapter = self._read(root)
            if adapter is not None:
                self._remember(adapter)
        return adapter

    def save(self, adapter: Adapter) -> None:
        """Keep an adapter, on the disk too unless the write fails."""
        self._remember(adapter)
        try:
            if self._read(adapter.root) is None:
                write_private(self._path(adapter.root), encode(adapter.document()))
        except OSError as error:
            log.warning("cannot keep the adapter %s: %s", adapter.root, error.strerror)

    def _read(self, root: str) -> Adapter | None:
        path = self._path(root)
        try:
            adapter = Adapter.read(parse(path.read_bytes(), _LIMITS), self._hidden)
        except FileNotFoundError:
            return None
        except (OSError, MalformedJson, InvalidTensor) as error:
            log.warning("%s cannot be used: %s", path, error)
            return None
        if adapter.root != root:
            log.warning("%s holds another adapter than its name says", path)
            return None
        return adapter

    def _path(self, root: str) -> Path:
        return self._folder / f"{root}.json"

    def _remember(self, adapter: Adapter) -> None:
        with self._lock:
            self._known[adapter.root] = adapter
            self._known.move_to_end(adapter.root)
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
