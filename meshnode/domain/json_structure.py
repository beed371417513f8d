"""How deep and how large a JSON text is, before it is parsed (decisions 0024, 0055, 0130).

Terms: *tokens* are strings, brackets, commas and colons. Every value but the outermost follows an
opening bracket, a comma or a colon of its own, so the number of tokens bounds the number of values,
and with it the memory and the time that the parser takes.

Invariant: no character is looked at more than a few times, whatever the text is.
"""

from __future__ import annotations

import re

# A string, closed or not. Possessive, and it matches from every quote, so that a hostile text
# cannot make it backtrack; runs without a backslash are one step.
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
_BRACKETS = re.compile(_STRING + r"|[\[\]{}]", re.DOTALL)
_TOKENS = re.compile(_STRING + r"|[\[\]{},:]", re.DOTALL)


class TooNested(Exception):
    """The text is nested too deeply, from ``character`` on."""

    def __init__(self, character: int) -> None:
        super().__init__(character)
        self.character = character


class TooManyTokens(Exception):
    """The text has too many tokens."""


def check_structure(text: str, depth: int, tokens: int | None = None) -> None:
    """Raise TooNested above ``depth`` levels, or TooManyTokens if ``tokens`` is given."""
    # Most texts have no more opening brackets than levels are allowed, whatever is in strings.
    if tokens is None and text.count("[") + text.count("{") <= depth:
        return
    level = 0
    for count, match in enumerate((_BRACKETS if tokens is None else _TOKENS).finditer(text)):
        if tokens is not None and count >= tokens:
            raise TooManyTokens
        first = text[match.start()]
        if first in "[{":
            level += 1
            if level > depth:
                raise TooNested(match.start())
        elif first in "]}":
            level -= 1
