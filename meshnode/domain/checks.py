"""Rules for the values of settings. Each rule checks a value and describes itself in JSON Schema.

The table of settings uses them, and so does its part of the OpenAPI document.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol


class Check(Protocol):
    """A rule for the values of a setting."""

    def __call__(self, value: Any, /) -> str | None:
        """Why the value is refused; None if it is not."""

    def keywords(self) -> dict[str, Any]:
        """The rule in JSON Schema."""


@dataclass(frozen=True, slots=True)
class Anything:
    """Accepts every value of the setting's type."""

    def __call__(self, _: Any) -> str | None:
        """Why the value is refused; None if it is not."""
        return None

    def keywords(self) -> dict[str, Any]:
        """The rule in JSON Schema."""
        return {}


@dataclass(frozen=True, slots=True)
class Between:
    """Accepts numbers from ``low`` to ``high``."""

    low: int
    high: int

    def __call__(self, value: Any) -> str | None:
        """Why the value is refused; None if it is not."""
        inside = self.low <= value <= self.high
        return None if inside else f"must be between {self.low} and {self.high}"

    def keywords(self) -> dict[str, Any]:
        """The rule in JSON Schema."""
        return {"minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True)
class AboveZero:
    """Accepts numbers above zero, up to ``high``."""

    high: int

    def __call__(self, value: Any) -> str | None:
        """Why the value is refused; None if it is not."""
        return None if 0 < value <= self.high else f"must be above 0 and at most {self.high}"

    def keywords(self) -> dict[str, Any]:
        """The rule in JSON Schema."""
        return {"exclusiveMinimum": 0, "maximum": self.high}


@dataclass(frozen=True, slots=True)
class Matches:
    """Accepts texts that match ``pattern`` as a whole. ``reason`` describes them."""

    pattern: str
    reason: str

    def __call__(self, value: Any) -> str | None:
        """Why the value is refused; None if it is not."""
        return None if re.fullmatch(self.pattern, str(value)) else self.reason

    def keywords(self) -> dict[str, Any]:
        """The rule in JSON Schema."""
        anchored = self.pattern.startswith("^")
        pattern = self.pattern if anchored else f"^(?:{self.pattern})$"
        return {"pattern": pattern, "description": self.reason}


@dataclass(frozen=True, slots=True)
class LayerRange:
    """Accepts one of some words, a layer N, or layers FIRST-LAST in ascending order."""

    words: tuple[str, ...]

    def __call__(self, value: Any) -> str | None:
        """Why the value is refused; None if it is not."""
        found = re.fullmatch(self._pattern, str(value))
        if not found:
            words = ", ".join(f"'{word}'" for word in self.words)
            return f"must be {words}, N or FIRST-LAST"
        first, last = found.groups()
        if last is not None and int(first) > int(last):
            return f"must be FIRST-LAST: {first} comes after {last}"
        return None

    def keywords(self) -> dict[str, Any]:
        """The rule in JSON Schema, which cannot express the order."""
        return {"pattern": f"^(?:{self._pattern})$"}

    @property
    def _pattern(self) -> str:
        return "|".join(self.words) + "|([0-9]{1,4})(?:-([0-9]{1,4}))?"
