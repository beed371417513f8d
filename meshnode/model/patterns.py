"""Which regular expressions of a tokenizer are run (decision 0139).

A tokenizer's file may bring regular expressions, and the library matches them by backtracking: one
that can divide the same text in many ways takes time that grows exponentially with the prompt. Here
a pattern is read, not run.

Terms: a part is *ambiguous* if it can match texts of several lengths, or has alternatives. A part
that is *atomic* or *possessive* never tries a second way.

Invariant: in a pattern that passes, nothing ambiguous is repeated, so the time to match at one
place is bounded by a power of the text's length, whose exponent is MAX_UNBOUNDED.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_CHARS = 8192
MAX_UNBOUNDED = 4
"""Most repeats without a limit that follow one another. Patterns of known models have three."""
MAX_COUNT = 1000
"""The largest limit of a repeat, and of repeats inside one another, multiplied."""
MAX_GROUPS_DEEP = 32

_COUNT = re.compile(r"\{(\d{1,9})?(,)?(\d{1,9})?\}")
_GROUP = re.compile(r"\((?:\?(?::|=|!|<=|<!|<[A-Za-z_]\w*>|[ims]*(?:-[ims]+)?:))?(?!\?)", re.ASCII)
_ATOMIC = "(?>"
_FLAGS = re.compile(r"\(\?[ims]*(?:-[ims]+)?\)", re.ASCII)
_PROPERTY = re.compile(r"\\[pPx]\{[^{}]{1,64}\}")
_POSIX = re.compile(r"\[:\^?[a-z]{1,16}:\]")


class PatternRefused(ValueError):
    """The pattern could take too long, or has syntax that is not known here."""


@dataclass(slots=True)
class _Shape:
    """What is known of a part."""

    ambiguous: bool = False
    unbounded: int = 0
    """Repeats without a limit that follow one another, in the worst alternative."""
    count: int = 1
    """The largest product of limits inside."""


def require_bounded_pattern(pattern: str) -> None:
    """Raise PatternRefused unless the pattern's time is bounded."""
    if len(pattern) > MAX_CHARS:
        raise PatternRefused(f"a pattern of more than {MAX_CHARS} characters")
    reader = _Reader(pattern)
    shape = reader.alternatives(0)
    if reader.at < len(pattern):
        raise PatternRefused("a group that is closed and was not opened")
    if shape.unbounded > MAX_UNBOUNDED:
        raise PatternRefused(f"more than {MAX_UNBOUNDED} repeats without a limit in a row")


class _Reader:
    """Reads a pattern in the syntax of Oniguruma for Ruby, from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def alternatives(self, depth: int) -> _Shape:
        """Read up to the end of the group, or of the pattern."""
        if depth > MAX_GROUPS_DEEP:
            raise PatternRefused("groups nested too deeply")
        shape = self._sequence(depth)
        while self._skip("|"):
            other = self._sequence(depth)
            shape.ambiguous = True
            shape.unbounded = max(shape.unbounded, other.unbounded)
            shape.count = max(shape.count, other.count)
        return shape

    def _sequence(self, depth: int) -> _Shape:
        whole = _Shape()
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            part = self._repeated(self._part(depth))
            whole.ambiguous |= part.ambiguous
            whole.unbounded += part.unbounded
            whole.count = max(whole.count, part.count)
        return whole

    def _part(self, depth: int) -> _Shape:
        """Read one character, class or group."""
        character = self.text[self.at]
        if character == "\\":
            self._escape()
        elif character == "[":
            self._class(0)
        elif character == "(":
            return self._group(depth)
        elif character in "*+?":
            raise PatternRefused("a repeat of nothing")
        else:
            self.at += 1
        return _Shape()

    def _group(self, depth: int) -> _Shape:
        flags = _FLAGS.match(self.text, self.at)
        if flags:
            self.at = flags.end()
            return _Shape()
        atomic = self._skip(_ATOMIC)
        if not atomic:
            opening = _GROUP.match(self.text, self.at)
            if not opening:
                raise PatternRefused("a group of an unknown kind")
            self.at = opening.end()
        shape = self.alternatives(depth + 1)
        if not self._skip(")"):
            raise PatternRefused("a group that is not closed")
        shape.ambiguous &= not atomic
        return shape

    def _repeated(self, part: _Shape) -> _Shape:
        """Read the repeat that follows a part, if there is one."""
        limits = self._limits()
        if limits is None:
            return part
        least, most = limits
        # Behind a count in braces, a plus is another repeat, of what was counted: one of a single
        # character or class is the same as a plain repeat.
        counted = self.text[self.at - 1] == "}"
        possessive = self._skip("+")
        if possessive and counted:
            most, possessive = None, False
        elif not possessive:
            self._skip("?")
        if self._limits() is not None:
            raise PatternRefused("a repeat of a repeat")
        if part.ambiguous and most != 1:
            raise PatternRefused("a repeat of what can itself match in several ways")
        count = part.count * (most or least or 1)
        if count > MAX_COUNT:
            raise PatternRefused(f"a repeat of more than {MAX_COUNT}")
        return _Shape(
            ambiguous=part.ambiguous or (least != most and not possessive),
            unbounded=part.unbounded + (most is None),
            count=count,
        )

    def _limits(self) -> tuple[int, int | None] | None:
        """Read a repeat: the least and the most; None if there is none."""
        for sign, limits in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._skip(sign):
                return limits
        match = _COUNT.match(self.text, self.at)
        if not match or not (match[1] or match[3]):
            return None
        self.at = match.end()
        least = int(match[1] or 0)
        most = int(match[3]) if match[3] else None if match[2] else least
        if max(least, most or 0) > MAX_COUNT:
            raise PatternRefused(f"a repeat of more than {MAX_COUNT}")
        return least, most

    def _escape(self) -> None:
        found = _PROPERTY.match(self.text, self.at)
        if found:
            self.at = found.end()
            return
        following = self.text[self.at + 1 : self.at + 2]
        # References and calls repeat what a group has matched, or its pattern.
        if not following or following in "gk123456789":
            raise PatternRefused("a reference to a group")
        self.at += 2

    def _class(self, depth: int) -> None:
        """Read a class in brackets; classes may contain others."""
        if depth > MAX_GROUPS_DEEP:
            raise PatternRefused("classes nested too deeply")
        self.at += 1
        self._skip("^")
        # A bracket that comes first stands for itself.
        self._skip("]")
        while not self._skip("]"):
            if self.at >= len(self.text):
                raise PatternRefused("a class that is not closed")
            posix = _POSIX.match(self.text, self.at)
            if posix:
                self.at = posix.end()
            elif self.text[self.at] == "[":
                self._class(depth + 1)
            elif self.text[self.at] == "\\":
                self._escape()
            else:
                self.at += 1

    def _skip(self, text: str) -> bool:
        found = self.text.startswith(text, self.at)
        self.at += len(text) * found
        return found
