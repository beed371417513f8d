"""The wallet's journal: charges and transactions, on disk before they count (interface 2.1, 4.1).

A text file of lines, each a checksum and a JSON array of records. The first line names the chain:
money never moves between chains, so another chain's journal is set aside (decision 0084).

Invariants: a record counts if and only if it is durable; what is written together is one line, so a
crash in the middle of it loses all of it; only the last line may lack its end, and any other damage
is refused; the file's size depends on what is open, not on what has ever happened.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import zlib
from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from pathlib import Path

import trio

from meshnode.datadir import write_private
from meshnode.domain.errors import StartupError, Unavailable
from meshnode.domain.spending import AccountBook, Record, decode_record, encode_record

log = logging.getLogger(__name__)

JOURNAL_FILE = "wallet.journal"
FORMAT = "meshnode-wallet-journal-v1"
COMPACT_AT = 1 << 20
"""Bytes above which the file is rewritten, if it has also grown fourfold since it last was. That is
some thousands of charges."""
LAST_WRITE_S = 5.0
"""Time limit for writing the records that are posted while the node stops."""
_BEGUN_LINE = re.compile(rb"[0-9a-f]{0,8}(?:(?<=[0-9a-f]{8}) .*)?\Z", re.DOTALL)
"""What a write that was cut short can leave behind the last whole line. Zeros are something else:
they are what a disk gives back for lost pages."""


class JournalEntry:
    """A record on its way to the disk."""

    def __init__(self, record: Record, then: Callable[[], None]) -> None:
        self.record = record
        self.then = then
        self.ended = trio.Event()
        self.failed = False

    async def wait(self) -> None:
        """Wait until the record is durable. Raises Unavailable if it could not be written."""
        await self.ended.wait()
        if self.failed:
            raise Unavailable("the wallet's journal cannot be written")


class Journal:
    """Owner of the file and of the :class:`AccountBook` that it describes."""

    def __init__(self, data_dir: Path, chain_id: str) -> None:
        """Read the file. Raises a one-line StartupError if it is damaged or unusable."""
        self.accounts = AccountBook()
        self._path = data_dir / JOURNAL_FILE
        self._chain_id = chain_id
        # Not a channel: bounded by the generations and requests in progress, which are bounded.
        self._waiting: list[JournalEntry] = []
        self._posted = trio.Event()
        self._size = 0
        self._least = 0
        self.broken = False
        """Whether writing is impossible until the node is restarted."""
        try:
            self._load()
        except OSError as error:
            raise StartupError(f"cannot use {self._path}: {error.strerror}") from None

    def post(self, record: Record, then: Callable[[], None] = lambda: None) -> JournalEntry:
        """Queue a record without waiting. ``then`` is called once it is durable, or is lost.

        A record that contradicts the earlier ones is a bug in the caller and ends the service.
        """
        entry = JournalEntry(record, then)
        self._waiting.append(entry)
        self._posted.set()
        return entry

    async def append(self, record: Record) -> None:
        """Queue a record and wait until it is durable. Raises Unavailable if the disk fails."""
        await self.post(record).wait()

    async def serve(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Write what is posted until cancelled; what was posted by then is still written."""
        task_status.started()
        try:
            while True:
                await self._posted.wait()
                await self._write_waiting()
        finally:
            with trio.move_on_after(LAST_WRITE_S, shield=True):
                await self._write_waiting()

    async def _write_waiting(self) -> None:
        """Write all queued records as one line, with one sync."""
        self._posted = trio.Event()
        entries = list(self._waiting)
        if not entries:
            return
        records = [entry.record for entry in entries]
        failed = self.broken or not await trio.to_thread.run_sync(self._append_line, records)
        # Only now: a cancellation on the way into the thread must leave the entries in place.
        del self._waiting[: len(entries)]
        for entry in entries:
            entry.failed = failed
            if not failed:
                self.accounts.apply(entry.record)
            entry.then()
            entry.ended.set()
        if self._size > max(COMPACT_AT, 4 * self._least):
            await trio.to_thread.run_sync(self._compact)

    def _append_line(self, records: list[Record]) -> bool:
        line = _line([encode_record(record) for record in records])
        try:
            # Without a descriptor, nothing is written and nothing has to be mended.
            file = self._path.open("r+b", buffering=0)
        except OSError as error:
            log.error("cannot open %s: %s", self._path, error.strerror)
            return False
        with file:
            return self._written(file, line)

    def _written(self, file: FileIO, line: bytes) -> bool:
        try:
            file.seek(self._size)
            if file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
        except OSError as error:
            log.error("cannot write %s: %s", self._path, error.strerror)
            self._cut(file)
            return False
        self._size += len(line)
        return True

    def _cut(self, file: FileIO) -> None:
        """Truncate a half-written line, so that the next line does not continue it."""
        try:
            file.truncate(self._size)
            os.fsync(file.fileno())
        except OSError as error:
            log.error("cannot mend %s: %s; restart the node", self._path, error.strerror)
            self.broken = True

    def _compact(self) -> None:
        try:
            self._replace()
        except OSError as error:
            # Both files hold the same records. It is not certain which of them is in place now.
            log.warning("cannot shorten %s: %s", self._path, error.strerror)
            with suppress(OSError):
                self._size = self._path.stat().st_size

    def _replace(self) -> None:
        records = [encode_record(record) for record in self.accounts.snapshot()]
        data = _line([{"format": FORMAT, "chain_id": self._chain_id}])
        if records:
            data += _line(records)
        write_private(self._path, data)
        self._size = self._least = len(data)

    def _load(self) -> None:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            self._replace()
            return
        try:
            lines, end = _intact_lines(data)
        except ValueError:
            raise self._damaged() from None
        if self._belongs_elsewhere(lines.pop(0), data):
            end = 0
            lines = []
        try:
            for line in lines:
                for value in line:
                    self.accounts.apply(decode_record(value))
        except (ValueError, TypeError, KeyError):
            raise self._damaged() from None
        if end == 0:
            self._replace()
        elif end < len(data):
            log.warning("the last line of %s is incomplete, as after a crash", self._path)
            os.truncate(self._path, end)
        self._size = max(end, self._size)

    def _belongs_elsewhere(self, header: list[dict[str, object]], data: bytes) -> bool:
        if len(header) != 1 or header[0].get("format") != FORMAT:
            raise self._damaged()
        other = header[0].get("chain_id")
        if other == self._chain_id:
            return False
        aside = self._path.with_name(f"{self._path.name}.{zlib.crc32(str(other).encode()):08x}")
        log.warning("%s is of another chain: kept as %s", self._path, aside.name)
        # Copied and then replaced: were it renamed, a kill in between would leave no journal, which
        # the next start takes for a loss (decision 0140).
        write_private(aside, data)
        return True

    def _damaged(self) -> StartupError:
        return damaged_journal(self._path)


def check_journal(data_dir: Path) -> None:
    """Raise StartupError unless the file's lines are whole, without changing it."""
    path = data_dir / JOURNAL_FILE
    try:
        _intact_lines(path.read_bytes())
    except OSError as error:
        raise StartupError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise damaged_journal(path) from None


def damaged_journal(path: Path) -> StartupError:
    """The error for a journal that cannot be trusted."""
    return StartupError(f"{path} is damaged; restore it, or move it away")


def _intact_lines(data: bytes) -> tuple[list[list[dict[str, object]]], int]:
    """The lines, and the offset where they end; ValueError if the data is damaged.

    A last line that a crash cut short is ignored.
    """
    found: list[list[dict[str, object]]] = []
    end = 0
    while stop := data.find(b"\n", end) + 1:
        value = _parse(data[end : stop - 1])
        if value is None:
            raise ValueError("a line's checksum does not match")
        found.append(value)
        end = stop
    if not found or not _BEGUN_LINE.match(data, end):
        # A new file has its first line from the start, so this one has lost what it held.
        raise ValueError("lines are missing")
    return found, end


def _line(values: list[dict[str, object]]) -> bytes:
    text = json.dumps(values, separators=(",", ":")).encode("ascii")
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _parse(line: bytes) -> list[dict[str, object]] | None:
    checksum, _, text = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(text):
        return None
    value = json.loads(text)
    return [dict(one) for one in value]
