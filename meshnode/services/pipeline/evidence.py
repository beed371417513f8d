"""Signed statements about holders that gave false results, kept for others to read (decision 0211).

Invariants: the file has at most ``KEPT`` statements of bounded size, the latest; a file that is
missing or damaged is begun anew, since nothing depends on it.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path

import trio

from meshnode.datadir import write_private
from meshnode.domain.chain.canonical import JsonLimits, encode, parse
from meshnode.domain.chain.errors import Rejected
from meshnode.domain.spot_checks import Contradiction, open_statement, sign_contradiction

log = logging.getLogger(__name__)

EVIDENCE_FILE = "contradictions.jsonl"
KEPT = 256
MAX_LINE, MAX_DEPTH = 16384, 8
"""Bytes and nesting of a statement."""


class Evidence:
    """The statements of this node."""

    def __init__(self, data_dir: Path, seed: str, clock: Callable[[], float] = time.time) -> None:
        """Statements are signed with the key of ``seed``; ``clock`` gives their time."""
        self._path = data_dir / EVIDENCE_FILE
        self._seed = seed
        self._clock = clock
        self._lines: deque[bytes] = deque(read_lines(self._path), maxlen=KEPT)

    async def note(self, found: Contradiction) -> None:
        """Sign a statement and write it to the file; a full disk loses it, which the log says."""
        statement = sign_contradiction(found, self._seed, int(self._clock()))
        self._lines.append(encode(statement))
        data = b"".join(line + b"\n" for line in self._lines)
        try:
            await trio.to_thread.run_sync(partial(write_private, self._path, data))
        except OSError as error:
            log.error("cannot write %s: %s", self._path, error.strerror)


def read_lines(path: Path) -> list[bytes]:
    """The valid statements in a file, each as one line; none if there is no file."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return []
    return [line for line in lines[-KEPT:] if _is_valid(line)]


def _is_valid(line: bytes) -> bool:
    try:
        open_statement(parse(line, JsonLimits(MAX_LINE, MAX_DEPTH)))
    except (Rejected, ValueError):
        return False
    return True
