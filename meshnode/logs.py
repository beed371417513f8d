"""Log lines on standard error, for people or for machines.

A line has a time, a level, the logger's name, a message, and any fields passed as
``extra={"fields": {...}}``. On a terminal it is short: the local time of day, the level in a colour
(unless ``NO_COLOR`` is set or ``TERM`` is ``dumb``), the logger's short name, and a message that is
folded at the terminal's width. Elsewhere the time is ISO 8601 in UTC and nothing is folded or
coloured. With ``json`` a line is one object, which has the full name of the logger.

Tokens, keys and prompts are never passed to a logger.

Invariant: a record starts exactly one line, even if its message has line breaks; in text, all
further lines of the record are indented.
"""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
import sys
import textwrap
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache

_NOISY = ("hypercorn.error", "hypercorn.access", "purerpc", "quart.app", "quart.serving")
_LAYERS = frozenset({"meshnode", "services", "edges", "assembly", "domain"})
"""Packages that name a module's layer instead of its subject."""
_COLOURS = {
    logging.DEBUG: "2",
    logging.INFO: "32",
    logging.WARNING: "33",
    logging.ERROR: "31",
    logging.CRITICAL: "1;31",
}
"""Colours of the levels: dim, green, yellow, red, bold red."""
_DIM = "2"
MAX_KEPT_CHARS = 1000
_MIN_WIDTH = 40
"""Columns; a narrower terminal folds lines by itself."""


class _TextFormatter(logging.Formatter):
    """Formats a record for log files: one line, and the lines of a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        time = _time(record)
        line = f"{time} {record.levelname.lower():8} {short_name(record.name)}: {_text(record)}"
        return line + "".join(f"\n  {part}" for part in _traceback(self, record))


class _TerminalFormatter(logging.Formatter):
    """Formats a record for a terminal: folded, and perhaps coloured."""

    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        level, name = f"{record.levelname.lower():7}", f"{short_name(record.name)}:"
        margin = " " * len(f"{time} {level} ")
        head = f"{margin}{name} "
        # Long words, such as keys and paths, stay whole, so that they can be copied.
        folded = textwrap.wrap(
            _text(record),
            max(_MIN_WIDTH, shutil.get_terminal_size().columns),
            initial_indent=" " * len(head),
            subsequent_indent=margin,
            break_long_words=False,
            break_on_hyphens=False,
        )
        painted = [
            self._painted(time, _DIM),
            self._painted(level, _COLOURS.get(record.levelno, "")),
            self._painted(name, _DIM),
            "\n".join(folded)[len(head) :],
        ]
        return " ".join(painted) + "".join(f"\n  {part}" for part in _traceback(self, record))

    def _painted(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colour and colour else text


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def set_up_logging(log_format: str, environ: Mapping[str, str] = os.environ) -> None:
    """Send this process's log to standard error, as ``text`` or ``json``."""
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        handler.setFormatter(_JsonFormatter())
    elif sys.stderr.isatty():
        plain = bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb"
        handler.setFormatter(_TerminalFormatter(colour=not plain))
    else:
        handler.setFormatter(_TextFormatter())
    # No line shows these, and each record would ask for all of them.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO)
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)


class RecentRecords(logging.Handler):
    """Keeps the latest records, for the operator who looks at the node's page."""

    def __init__(self, room: int = 1000) -> None:
        super().__init__()
        self._records: deque[dict[str, object]] = deque(maxlen=room)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record; its message is cut where it is very long."""
        entry: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": short_name(record.name),
            "message": _visible(record.getMessage())[:MAX_KEPT_CHARS],
        }
        if fields := _fields(record):
            entry["fields"] = {name: str(value)[:MAX_KEPT_CHARS] for name, value in fields.items()}
        self._records.append(entry)

    def latest(self, most: int) -> list[dict[str, object]]:
        """The latest records, oldest first."""
        return list(self._records)[-most:]


def keep_recent_records() -> None:
    """Begin to keep the latest records of this process's log."""
    logging.getLogger().addHandler(RecentRecords())


def recent_records(most: int) -> list[dict[str, object]]:
    """The latest records of this process's log, oldest first; none if they are not kept."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, RecentRecords):
            return handler.latest(most)
    return []


@lru_cache(256)
def short_name(logger: str) -> str:
    """The subject of a logger: ``ledger`` for ``meshnode.services.ledger.solo``."""
    parts = [part for part in logger.split(".") if part not in _LAYERS]
    return parts[0] if parts else logger


def _text(record: logging.LogRecord) -> str:
    """The message and its fields, on one line."""
    fields = (
        f" {name}={json.dumps(value, default=str)}" for name, value in _fields(record).items()
    )
    return _visible(record.getMessage()) + "".join(fields)


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    if not record.exc_info:
        return []
    return [_visible(part) for part in formatter.formatException(record.exc_info).split("\n")]


def _visible(text: str) -> str:
    """``text`` with escapes for line breaks and all other unprintable characters."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def _time(record: logging.LogRecord) -> str:
    second = math.floor(record.created)
    return f"{_second(second)}.{math.floor(1000 * (record.created - second)):03}Z"


@lru_cache(4)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat().removesuffix("+00:00")


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields = getattr(record, "fields", None)
    return fields if isinstance(fields, dict) else {}
