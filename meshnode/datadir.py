"""The data folder: private files that survive a crash, and a lock for a single node.

Invariants: every file is readable by its owner only (mode 0600, the folder 0700); a file is
replaced whole or not at all, and is on the disk when :func:`write_private` returns.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from meshnode.domain.errors import StartupError


def make_private(folder: Path) -> None:
    """Create ``folder`` and its missing parents, accessible to their owner only."""
    for one in (*reversed(folder.parents), folder):
        one.mkdir(mode=0o700, exist_ok=True)


def write_private(path: Path, data: bytes) -> None:
    """Replace the file's contents by ``data``, durably and atomically. OSError if that fails."""
    write_private_parts(path, [data])


def write_private_parts(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Like :func:`write_private`, with contents in parts, which are never in memory together."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def keep_file(path: Path, target: Path) -> None:
    """Have a file under a second name, if it is not there yet. ``path`` may be removed afterwards.

    Raises OSError.
    """
    if target.exists():
        return
    try:
        os.link(path, target)
    except FileNotFoundError:
        raise
    except OSError:
        # Not every file system has links.
        partial = target.with_suffix(".part")
        shutil.copyfile(path, partial)
        partial.replace(target)


def sync_folder(folder: Path) -> None:
    """Make the folder's entries durable, not only the contents of its files."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


LOCK_FILE = "lock"


class DataDirLock:
    """Held while a node runs, so that two nodes never write to one folder."""

    def __init__(self, folder: Path) -> None:
        """Create ``folder`` if it is missing, and lock it. Raises StartupError if that fails."""
        try:
            make_private(folder)
            self._handle = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StartupError(f"cannot use the data folder {folder}: {error.strerror}") from None
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._handle)
            raise StartupError(f"another node is using the data folder {folder}") from None

    def release(self) -> None:
        """Release the lock."""
        os.close(self._handle)
