"""Structured log lines on standard error, for people or for machines.

A line has a time (ISO 8601, UTC), a level, the logger's name, a message and any fields passed as
``extra={"fields": {...}}``. Tokens, keys and prompts are never passed to a logger.

Invariant: a record begins one line, whatever others have put into its message; as text, its
traceback follows indented.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

_NOISY = ("hypercorn.error", "hypercorn.access", "purerpc", "quart.app", "quart.serving")


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {record.levelname.lower():8} {record.name}: "
        line += _visible(record.getMessage())
        for name, value in _fields(record).items():
            line += f" {name}={json.dumps(value, default=str)}"
        if record.exc_info:
            for part in self.formatException(record.exc_info).split("\n"):
                line += f"\n  {_visible(part)}"
        return line


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


def set_up_logging(log_format: str) -> None:
    """Send this process's log to standard error, as ``text`` or ``json``."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if log_format == "json" else _TextFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO)
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)


def _visible(text: str) -> str:
    """``text`` with escapes for line breaks, and for all else that cannot be printed."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def _time(record: logging.LogRecord) -> str:
    time = datetime.fromtimestamp(record.created, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields = getattr(record, "fields", None)
    return fields if isinstance(fields, dict) else {}
