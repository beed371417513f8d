"""JSON objects of a model's files, and typed look-ups in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshnode.domain.errors import StartupError

MAX_FILE_BYTES = 64 << 20
"""The largest small file of a model: vocabularies of 260,000 tokens take 35 MB."""


class ModelUnreadable(StartupError):
    """The model directory cannot be used. One line names the file and the reason."""


def read_document(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises ModelUnreadable."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ModelUnreadable(f"{path}: larger than {MAX_FILE_BYTES >> 20} MiB")
        data = path.read_bytes()
    except FileNotFoundError:
        raise ModelUnreadable(f"{path}: no such file") from None
    except OSError as error:
        raise ModelUnreadable(f"{path}: {error.strerror or 'cannot be read'}") from None
    return parse_document(data, str(path))


def parse_document(data: bytes, where: str) -> dict[str, Any]:
    """The JSON object in ``data``, which is from ``where``. Raises ModelUnreadable."""
    try:
        document = json.loads(data.decode())
    except (ValueError, RecursionError):
        raise ModelUnreadable(f"{where}: not valid JSON") from None
    if not isinstance(document, dict):
        raise ModelUnreadable(f"{where}: not a JSON object")
    return document


def token_ids(document: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """The token ids under ``name``: absent, one, or a list. Raises ModelUnreadable."""
    value = document.get(name)
    values = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(item, int) and not isinstance(item, bool) for item in values):
        raise ModelUnreadable(f"{name} must be a token id or a list of them, not {value!r}")
    return tuple(values)


@dataclass(frozen=True, slots=True)
class Keys:
    """Typed look-ups in a JSON object. A key that holds null counts as absent."""

    document: Mapping[str, Any]
    prefix: str = ""

    def integer(self, name: str, default: int | None = None) -> int:
        """The integer under ``name``. Raises ModelUnreadable."""
        value = self._value(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 1 << 62:
            raise ModelUnreadable(f"{self.prefix}{name} must be an integer, not {value!r}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """The number under ``name``, finite. Raises ModelUnreadable."""
        value = self._value(name, default)
        # An integer may be too large for a float; JSON also lets NaN and Infinity through.
        if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e300:
            raise ModelUnreadable(f"{self.prefix}{name} must be a number, not {value!r}")
        return float(value)

    def optional_number(self, name: str) -> float | None:
        """The number under ``name``, if there is one."""
        return None if self.document.get(name) is None else self.number(name)

    def boolean(self, name: str, *, default: bool = False) -> bool:
        """The truth value under ``name``. Raises ModelUnreadable."""
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise ModelUnreadable(f"{self.prefix}{name} must be true or false, not {value!r}")
        return value

    def _value(self, name: str, default: object) -> object:
        value = self.document.get(name)
        if value is None and default is None:
            raise ModelUnreadable(f"{self.prefix}{name} is missing")
        return default if value is None else value

    def numbers(self, name: str, count: int) -> tuple[float, ...]:
        """The ``count`` numbers of the list under ``name``. Raises ModelUnreadable."""
        values = self.document.get(name)
        if not isinstance(values, list) or len(values) != count:
            raise ModelUnreadable(f"{self.prefix}{name} must be a list of {count} numbers")
        return tuple(Keys({name: value}, self.prefix).number(name) for value in values)

    def integers(self, name: str) -> tuple[int, ...]:
        """The integers of the list under ``name``; none if it is absent. Raises ModelUnreadable."""
        values = self.document.get(name)
        if values is None:
            return ()
        if not isinstance(values, list):
            raise ModelUnreadable(f"{self.prefix}{name} must be a list of integers")
        return tuple(Keys({name: value}, self.prefix).integer(name) for value in values)

    def optional_integer(self, name: str) -> int | None:
        """The integer under ``name``, if there is one."""
        return None if self.document.get(name) is None else self.integer(name)
