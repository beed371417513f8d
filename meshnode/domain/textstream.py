"""From token pieces to text: whole characters, without stop strings (interface 4.1 and 6).

Terms: a *piece* is the bytes that one token adds; text is *withheld* while it may turn out to be
the beginning of a stop string, or of a character.

Invariants, however the same bytes are split into pieces: the emitted texts, concatenated, are the
same; they end just before the stop string that is completed first (the longest one, if the same
character completes several); no part of it is emitted, and nothing before it is lost. Bytes that
are not valid UTF-8 become U+FFFD.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class TextStream:
    """Assembles the text of one generation."""

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._matchers = [_Matcher(text) for text in stop]
        self._withheld = ""
        self.stopped = False
        """Whether a stop string has been completed. Nothing is emitted after that."""

    def push(self, piece: bytes) -> str:
        """Add a token's bytes. Returns the text that is now certain, which may be empty."""
        return self._emit(self._decoder.decode(piece))

    def finish(self) -> str:
        """Return the withheld text, when a generation ends without a stop string."""
        text = self._emit(self._decoder.decode(b"", final=True)) + self._withheld
        self._withheld = ""
        return "" if self.stopped else text

    def _emit(self, text: str) -> str:
        if self.stopped:
            return ""
        pending = self._withheld + text
        for end in range(len(self._withheld) + 1, len(pending) + 1):
            matched = max((m.advance(pending[end - 1]) for m in self._matchers), default=0)
            if matched:
                self.stopped, self._withheld = True, ""
                return pending[: end - matched]
        certain = len(pending) - max((m.length for m in self._matchers), default=0)
        self._withheld = pending[certain:]
        return pending[:certain]


class _Matcher:
    """Knuth-Morris-Pratt matching: how much of ``pattern`` the text so far ends with."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._borders = _borders(pattern)
        self.length = 0
        """Length of the longest proper prefix of the pattern with which the text ends."""

    def advance(self, character: str) -> int:
        """Read one character. Returns the pattern's length if this completes it, else 0."""
        while self.length and self._pattern[self.length] != character:
            self.length = self._borders[self.length - 1]
        if self._pattern[self.length] == character:
            self.length += 1
        if self.length < len(self._pattern):
            return 0
        self.length = self._borders[-1]
        return len(self._pattern)


def _borders(pattern: str) -> list[int]:
    """For each prefix, the length of its longest proper prefix that is also its suffix."""
    borders = [0] * len(pattern)
    length = 0
    for end in range(1, len(pattern)):
        while length and pattern[length] != pattern[end]:
            length = borders[length - 1]
        if pattern[length] == pattern[end]:
            length += 1
        borders[end] = length
    return borders
