"""Calls of tools in the text that a model generates (decision 0160).

Models write calls in several ways. Recognised are ``<tool_call>{...}</tool_call>``, any number of
them, and a text that is one JSON object from its first character on. In both the object has a
``name`` and ``arguments`` or ``parameters``. A forced call (``domain.chat_rules``) is the object
alone, or only the arguments.

Invariants, however a text is split into pieces: the deltas are the same in sum; text that turns out
to be no call of a tool that the client offered comes out as content, to the character; content that
is certain is not withheld.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

BEGIN = "<tool_call>"
END = "</tool_call>"


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """Text for the reader."""

    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """The beginning of a call if it has a name; further arguments of it otherwise."""

    index: int
    arguments: str
    name: str = ""


Delta = ContentDelta | CallDelta


class ToolCallParser:
    """Finds the calls in one completion."""

    def __init__(
        self,
        names: Collection[str] = (),
        *,
        only_calls: bool = False,
        named: str = "",
        parallel: bool = True,
    ) -> None:
        """``names`` are those of the tools; none means that all text is content.

        With ``only_calls`` the text is one call's object, with ``named`` the arguments of a call
        of this tool. Without ``parallel``, calls after the first are dropped.
        """
        self._names = frozenset(names)
        self._named = named
        self._parallel = parallel
        self._pending = ""
        self._in_call = False
        # Whether the text may still be one object; unknown until its first character.
        self._is_object: bool | None = True if only_calls else None
        self.calls = 0
        """How many calls have begun."""

    def push(self, text: str) -> list[Delta]:
        """Take some text; return what is certain now."""
        if not text:
            return []
        if self._named:
            begun, self.calls = self.calls, 1
            return [CallDelta(0, text, "" if begun else self._named)]
        if not self._names:
            return [ContentDelta(text)]
        self._pending += text
        if self._is_object is None and self._pending.lstrip():
            self._is_object = self._pending.lstrip().startswith("{")
        return [] if self._is_object is not False else self._scan()

    def finish(self) -> list[Delta]:
        """The text has ended: return what was withheld."""
        pending, self._pending = self._pending, ""
        if not pending:
            return []
        if self._is_object:
            call = self._call(pending)
            return [ContentDelta(pending)] if call is None else call
        return [ContentDelta(BEGIN + pending if self._in_call else pending)]

    def _scan(self) -> list[Delta]:
        deltas: list[Delta] = []
        while True:
            marker = END if self._in_call else BEGIN
            before, found, after = self._pending.partition(marker)
            if not found:
                break
            self._pending = after
            if self._in_call:
                call = self._call(before)
                deltas += [ContentDelta(BEGIN + before + END)] if call is None else call
                # Models put line breaks between their calls.
                if call is not None:
                    self._pending = self._pending.lstrip("\n")
            elif before and not (self.calls and not before.strip()):
                deltas.append(ContentDelta(before))
            self._in_call = not self._in_call
        if not self._in_call:
            certain = len(self._pending) - _overlap(self._pending, BEGIN)
            if self.calls and not self._pending[:certain].strip():
                return deltas
            if certain:
                deltas.append(ContentDelta(self._pending[:certain]))
                self._pending = self._pending[certain:]
        return deltas

    def _call(self, text: str) -> list[Delta] | None:
        """The call that a text spells; None if it spells none."""
        try:
            value: Any = json.loads(text)
        except (ValueError, RecursionError):
            return None
        name = value.get("name") if isinstance(value, dict) else None
        if not isinstance(name, str) or name not in self._names:
            return None
        arguments = value.get("arguments", value.get("parameters", {}))
        if isinstance(arguments, str):
            spelled = arguments
        elif isinstance(arguments, dict):
            spelled = json.dumps(arguments, ensure_ascii=False)
        else:
            return None
        if self.calls and not self._parallel:
            return []
        self.calls += 1
        return [CallDelta(self.calls - 1, spelled, name)]


def _overlap(text: str, marker: str) -> int:
    """Length of the longest end of ``text`` that is a proper beginning of ``marker``."""
    longest = min(len(text), len(marker) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(marker[:n])), 0)
