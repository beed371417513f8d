"""The record of all exchanges with the target, one JSON object a line.

Invariants: exchanges are numbered from 1 in the order in which they are recorded; the record is
redacted; bodies longer than `SHOWN_BYTES` are cut, and the record says so.
"""

import json
import threading
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

from conformance.secrecy import Redactor

# Enough for any answer that a person would read; weights and checkpoints are longer.
SHOWN_BYTES = 16 * 1024


@dataclass(frozen=True)
class Exchange:
    """One request, its response, and a command that sends it again."""

    number: int
    check: str
    kind: str
    at_s: float
    took_ms: float
    request: dict[str, Any]
    response: dict[str, Any] | None
    fault: str | None
    reproduce: str


def shown(body: bytes) -> dict[str, Any]:
    """Return a body for the record: as text if possible, and cut if it is long."""
    return {
        "text": body[:SHOWN_BYTES].decode("utf-8", "backslashreplace"),
        "bytes": len(body),
        "cut": len(body) > SHOWN_BYTES,
    }


class Journal:
    """The record of a run: in memory, and in a JSONL file if there is one."""

    def __init__(self, redactor: Redactor, path: Path | None = None) -> None:
        """Open the file, if any; `close` it at the end."""
        self.exchanges: list[Exchange] = []
        self._redactor = redactor
        self._file: IO[str] | None = path.open("w", encoding="utf-8") if path else None
        self._began = time.monotonic()
        self._lock = threading.Lock()

    def write(
        self,
        *,
        check: str,
        kind: str,
        began: float,
        request: dict[str, Any],
        response: dict[str, Any] | None,
        fault: str | None,
        reproduce: str,
    ) -> Exchange:
        """Record one exchange that began at `began` (monotonic seconds) and just ended."""
        now = time.monotonic()
        draft = Exchange(
            number=0,
            check=check,
            kind=kind,
            at_s=round(began - self._began, 4),
            took_ms=round((now - began) * 1000, 2),
            request=self._redactor.value(request),
            response=self._redactor.value(response),
            fault=self._redactor.text(fault) if fault else None,
            reproduce=self._redactor.command(reproduce),
        )
        with self._lock:
            exchange = replace(draft, number=len(self.exchanges) + 1)
            self.exchanges.append(exchange)
            if self._file:
                self._file.write(json.dumps(asdict(exchange), ensure_ascii=False) + "\n")
                self._file.flush()
        return exchange

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._file:
            self._file.close()
            self._file = None
