"""Content-addressed files for nodes that join (interface 4.2: ``/artifacts/sha256/<hex>``).

Terms: an *artifact* is a sequence of bytes with its SHA-256. Only *listed* artifacts are served; an
artifact is listed once its hash was verified. Small ones are kept in memory; files stay where they
are.

Invariants: artifacts are found only by a listed hash, so no name from a client ever reaches the
file system; a file that has changed since it was listed is no longer served.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from meshnode.domain.errors import StartupError

log = logging.getLogger(__name__)

MANIFEST_FILE = "manifest.json"
MANIFEST_FORMAT = "meshnode-artifacts-v1"
MAX_MANIFEST_BYTES = 1 << 20
READ_BYTES = 1 << 20

_SHA256 = re.compile(r"[0-9a-f]{64}")
_Identity = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Artifact:
    """One listed artifact. ``data`` or ``path`` holds its bytes."""

    sha256: str
    size: int
    name: str
    """What a person calls it; not part of its address."""
    data: bytes | None = None
    path: Path | None = None
    identity: _Identity | None = None


class Artifacts:
    """The artifacts that this node serves."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._listed: dict[str, Artifact] = {}

    def listed(self) -> list[Artifact]:
        """All artifacts, in the order in which they were listed."""
        return list(self._listed.values())

    def add(self, name: str, data: bytes) -> Artifact:
        """List bytes, such as the genesis."""
        sha256 = hashlib.sha256(data).hexdigest()
        return self._list(Artifact(sha256, len(data), name, data=data))

    async def take_in(self, path: Path, expected: str | None = None) -> Artifact:
        """List a file. Raises StartupError if it is unreadable or its hash is not ``expected``."""
        try:
            found = await trio.to_thread.run_sync(partial(_hash_file, path))
        except OSError as error:
            raise StartupError(f"cannot read the artifact {path}: {error.strerror}") from None
        if expected is not None and found.sha256 != expected:
            raise StartupError(f"the artifact {path} is not the one that its manifest lists")
        return self._list(found)

    async def take_in_all(self, paths: Iterable[Path]) -> None:
        """List files one by one; those that cannot be read are left out."""
        for path in paths:
            try:
                await self.take_in(path)
            except StartupError as error:
                log.warning("not mirrored: %s", error)

    async def take_in_manifest(self, directory: Path) -> int:
        """List the files that ``manifest.json`` in ``directory`` names. Returns how many.

        Its form is ``{"format": "meshnode-artifacts-v1", "artifacts": [{"path", "sha256",
        "size"}]}``, with paths inside the directory. Raises StartupError for an invalid manifest,
        and for any file that differs from it: one wrong file makes the whole mirror suspect.
        """
        entries = await trio.to_thread.run_sync(_read_manifest, directory)
        for path, sha256, size in entries:
            artifact = await self.take_in(path, sha256)
            if artifact.size != size:
                raise StartupError(f"the artifact {path} does not have the size that is listed")
        return len(entries)

    def find(self, sha256: str) -> Artifact | None:
        """The listed artifact with this hash, if it can be served now."""
        artifact = self._listed.get(sha256)
        if artifact is None or artifact.path is None:
            return artifact
        try:
            unchanged = _identity(os.stat(artifact.path)) == artifact.identity
        except OSError:
            unchanged = False
        if unchanged:
            return artifact
        # Its bytes may no longer have that hash.
        log.warning("the artifact %s has changed on disk: not served any more", artifact.name)
        del self._listed[sha256]
        return None

    def _list(self, artifact: Artifact) -> Artifact:
        return self._listed.setdefault(artifact.sha256, artifact)


def _hash_file(path: Path) -> Artifact:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        before = _identity(os.fstat(file.fileno()))
        while chunk := file.read(READ_BYTES):
            digest.update(chunk)
            size += len(chunk)
        after = _identity(os.fstat(file.fileno()))
    if before != after:
        raise OSError(0, "it changes while it is read")
    return Artifact(digest.hexdigest(), size, path.name, path=path, identity=after)


def _identity(found: os.stat_result) -> _Identity:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _read_manifest(directory: Path) -> list[tuple[Path, str, int]]:
    path = directory / MANIFEST_FILE
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(MAX_MANIFEST_BYTES))
        if document["format"] != MANIFEST_FORMAT:
            raise ValueError("unknown format")
        return [_entry(directory, entry) for entry in document["artifacts"]]
    except OSError as error:
        raise StartupError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise StartupError(f"{path} is no manifest of artifacts") from None


def _entry(directory: Path, entry: dict[str, object]) -> tuple[Path, str, int]:
    name, sha256, size = entry["path"], entry["sha256"], entry["size"]
    if not isinstance(name, str) or not isinstance(sha256, str) or type(size) is not int:
        raise TypeError("a member has the wrong type")
    path = (directory / name).resolve()
    # Links are resolved first, because the file itself must be inside the directory.
    if not _SHA256.fullmatch(sha256) or not path.is_relative_to(directory.resolve()):
        raise ValueError("not a listed file of this directory")
    return path, sha256, size
