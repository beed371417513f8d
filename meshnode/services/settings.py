"""The settings in force, and their changes by ``PATCH /config`` (interface 2.1, 4.1).

One owner for the Config: others read ``current`` whenever they need a value, and see a live change
at once. A change is applied wholly or not at all, and it is on the disk before it is in force.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import trio

from meshnode.config import (
    BY_KEY,
    SETTINGS,
    Change,
    Config,
    Setting,
    Value,
    build_config,
    flatten,
    nest,
    validate_value,
    values_of,
)
from meshnode.datadir import write_private
from meshnode.domain.errors import InvalidRequest, Unavailable
from meshnode.domain.units import GIBIBYTE
from meshnode.services.wakeup import Wakeup
from meshnode.sources import PERSISTED, read_persisted

log = logging.getLogger(__name__)

CACHE_AT_LEAST = 1 << 20
"""Bytes for keys and values, besides the weights: enough for a short text with a small model."""


@dataclass(frozen=True, slots=True)
class PatchResult:
    """The answer to ``PATCH /config``: dotted paths, and whether a restart is needed."""

    updated: list[str]
    restart_required: bool


class LiveSettings(Protocol):
    """Settings that may change while a service runs."""

    @property
    def current(self) -> Config:
        """The configuration in force."""

    @property
    def changed(self) -> Wakeup:
        """Set after each change."""


class Settings:
    """Owner of the configuration in force."""

    def __init__(self, config: Config, node_id: str) -> None:
        """Start from ``config``; ``node_id`` is shown in the document and cannot be changed."""
        self.current = config
        self.changed = Wakeup()
        self.checks: list[Callable[[Config], None]] = []
        """Each raises InvalidRequest for a configuration that this node cannot have."""
        self._node_id = node_id
        self._least_memory_gb = CACHE_AT_LEAST / GIBIBYTE
        self._file = Path(config.data_dir) / PERSISTED
        self._persisted = read_persisted(self._file)
        self._writing = trio.Lock()

    def require_memory(self, taken_bytes: int) -> None:
        """Refuse lower limits of memory from now on: the node could not start again with them.

        ``taken_bytes`` is what weights and process need.
        """
        self._least_memory_gb = (taken_bytes + CACHE_AT_LEAST) / GIBIBYTE

    def document(self) -> dict[str, object]:
        """The document's Configuration (interface 2.1), exactly its keys."""
        values = values_of(self.current)
        shown = {s.key: values[s.key] for s in SETTINGS if s.change is not Change.HIDDEN}
        return {"node_id": self._node_id, "grpc_port": self.current.grpc_port, **nest(shown)}

    async def patch(self, body: Mapping[str, object]) -> PatchResult:
        """Apply the changeable keys of ``body``.

        A key that cannot be changed may be sent back with its current value. InvalidRequest names
        the first key that is unknown, unchangeable or out of range; Unavailable says that the disk
        refused. Nothing is applied then.
        """
        async with self._writing:
            changes = self._validate(flatten(body))
            if changes:
                changed = build_config({**values_of(self.current), **changes})
                for check in self.checks:
                    check(changed)
                persisted = {**self._persisted, **changes}
                data = json.dumps(nest(persisted), indent=2, sort_keys=True).encode()
                # Not abandoned on cancel, so that the file and the settings in force stay the same.
                try:
                    await trio.to_thread.run_sync(write_private, self._file, data)
                except OSError as error:
                    log.warning("cannot write %s: %s", self._file, error.strerror)
                    raise Unavailable("the change could not be saved") from None
                self._persisted = persisted
                self.current = changed
                self.changed.set()
        restart = any(BY_KEY[key].change is Change.RESTART for key in changes)
        return PatchResult(updated=list(changes), restart_required=restart)

    def _validate(self, flat: Mapping[str, object]) -> dict[str, Value]:
        fixed = {"node_id": self._node_id, "grpc_port": self.current.grpc_port}
        now = values_of(self.current)
        changes: dict[str, Value] = {}
        for key, value in flat.items():
            setting = BY_KEY.get(key)
            if key in fixed or (setting and setting.change is Change.NEVER):
                if type(value) is bool or value != fixed.get(key, now.get(key)):
                    raise InvalidRequest(key, "cannot be changed while the node runs")
            elif setting is None or setting.change is Change.HIDDEN:
                raise InvalidRequest(key, "is not a setting that can be changed")
            else:
                changes[key] = validate_value(setting, value)
        memory = changes.get("resources.max_memory_gb", self._least_memory_gb)
        if float(memory) < self._least_memory_gb:
            reason = (
                f"must be at least {self._least_memory_gb:.3g}: the weights and the process need it"
            )
            raise InvalidRequest("resources.max_memory_gb", reason)
        return changes


def configuration_schema() -> dict[str, Any]:
    """The Configuration in JSON Schema (interface 2.1): each setting as its row describes it."""
    shown = [setting for setting in SETTINGS if setting.change is not Change.HIDDEN]
    schema = _object_schema(shown, required=True)
    more = {
        "node_id": {"type": "string"},
        "grpc_port": {"type": "integer", "minimum": 1, "maximum": 65535},
    }
    schema["properties"] |= more
    schema["required"] += list(more)
    return schema


def patch_schema() -> dict[str, Any]:
    """The body of ``PATCH /config`` in JSON Schema: the settings that can be changed."""
    changeable = (Change.LIVE, Change.RESTART)
    return _object_schema([each for each in SETTINGS if each.change in changeable], required=False)


def _object_schema(settings: Iterable[Setting], *, required: bool) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for setting in settings:
        group, _, name = setting.key.rpartition(".")
        (tree.setdefault(group, {}) if group else tree)[name] = setting
    return _tree_schema(tree, required)


def _tree_schema(tree: Mapping[str, Any], required: bool) -> dict[str, Any]:
    properties = {
        name: value.schema() if isinstance(value, Setting) else _tree_schema(value, required)
        for name, value in tree.items()
    }
    return {
        "type": "object",
        "properties": properties,
        **({"required": list(properties)} if required else {}),
        "additionalProperties": False,
    }
