"""Header blocks that were read or written before (RFC 7541).

A busy client sends the same header block for each call, and gets the same ones back: a few bytes
that refer to the table of headers. hpack and h2 read and check every header again each time, which
takes a third of the time of a small call. Here the result is remembered for as long as the table
stays as it was.

Values that differ from call to call, such as times, would change the table with every call. So a
name that has had several values is written out each time instead, which leaves the table alone.

Invariants: a block that changes the table is never remembered, and everything is forgotten when the
table changes, so what is returned is what hpack and h2 would have returned. What comes from memory
is shared by several calls and must not be changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar

from h2.stream import H2Stream
from hpack import Decoder

from meshnode.rpc._h2_compat import SmallTableEncoder

Parsed = TypeVar("Parsed")

MAX_BLOCKS = 8
"""Blocks that are remembered for each direction of a connection; with what is made of them, they
take 150 KB at most."""
MAX_NAMES = 64
"""Names of headers of a connection whose values are counted."""
MANY_VALUES = 32
"""A name that has had so many values will have others; there are fewer operations than this."""
MAX_BLOCK_BYTES = 256
MAX_HEADERS = 24
MAX_HEADER_BYTES = 2048
"""Names and values of a block together."""


class KnownHeaders(list[Any]):
    """A header block that was decoded, and what was made of it."""

    __slots__ = ("checked", "parsed")

    def __init__(self, headers: Iterable[Any]) -> None:
        super().__init__(headers)
        self.checked: dict[Any, KnownHeaders] = {}
        """What h2 has made of it, by the flags that it checks it with."""
        self.parsed: dict[Any, Any] = {}
        """What :func:`parsed_once` has made of it, by function."""


class _Table:
    """Whether the table of headers is as it was."""

    def __init__(self) -> None:
        self._first: object = None
        self._state: tuple[Any, ...] = ()

    def has_changed(self, entries: Any, *others: Any) -> bool:
        """Whether it differs from the last time. Entries are added at the front."""
        first = entries[0] if entries else None
        state = (len(entries), *others)
        if first is self._first and state == self._state:
            return False
        self._first, self._state = first, state
        return True


class RememberingDecoder(Decoder):
    """Decodes blocks that it has seen without looking at their headers."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._table = _Table()
        self._known: dict[bytes, KnownHeaders] = {}

    def decode(self, data: bytes, raw: bool = False) -> Any:
        """The headers of a block. Raises what hpack raises."""
        self._forget_if_changed()
        if raw and (known := self._known.get(bytes(data))) is not None:
            return known
        headers: list[Any] = list(super().decode(data, raw))
        if self._forget_if_changed() or not raw or not _is_small(data, headers):
            return headers
        if len(self._known) >= MAX_BLOCKS:
            self._known.clear()
        found = self._known[bytes(data)] = KnownHeaders(headers)
        return found

    def _forget_if_changed(self) -> bool:
        limits = (self.max_allowed_table_size, self.max_header_list_size)
        table = self.header_table
        if not self._table.has_changed(table.dynamic_entries, table.maxsize, *limits):
            return False
        self._known.clear()
        return True


class RememberingEncoder(SmallTableEncoder):
    """Encodes blocks that it has seen without looking them up."""

    def __init__(self) -> None:
        super().__init__()
        self._table = _Table()
        self._known: dict[tuple[Any, ...], bytes] = {}
        self._values: dict[Any, set[int]] = {}
        """Hashes of the values that each name has had, up to ``MANY_VALUES``."""

    def encode(self, headers: Any, huffman: bool = True) -> bytes:
        """The block of these headers."""
        kept = tuple(headers)
        self._forget_if_changed()
        if self._note(kept):
            return super().encode([(*each[:2], self._has_many(each[0])) for each in kept], huffman)
        # The peer must be informed of a new size of the table first.
        if not self.header_table.resized and (known := self._known.get(kept)) is not None:
            return known
        was_resized = self.header_table.resized
        block = super().encode(kept, huffman)
        if not self._forget_if_changed() and not was_resized and _is_small(block, kept):
            if len(self._known) >= MAX_BLOCKS:
                self._known.clear()
            self._known[kept] = block
        return block

    def _note(self, headers: tuple[Any, ...]) -> bool:
        """Note the values; whether one of the names has had many."""
        seen, found = self._values, False
        for each in headers:
            values = seen.get(each[0])
            if values is None:
                if len(seen) < MAX_NAMES:
                    seen[each[0]] = {hash(each[1])}
            elif len(values) >= MANY_VALUES:
                found = True
            else:
                values.add(hash(each[1]))
        return found

    def _has_many(self, name: Any) -> bool:
        return len(self._values.get(name, ())) >= MANY_VALUES

    def _forget_if_changed(self) -> bool:
        table = self.header_table
        if not self._table.has_changed(table.dynamic_entries, table.maxsize):
            return False
        self._known.clear()
        return True


def _is_small(block: bytes, headers: Collection[Any]) -> bool:
    """Whether a block may be remembered."""
    if len(block) > MAX_BLOCK_BYTES or len(headers) > MAX_HEADERS:
        return False
    return sum(len(each[0]) + len(each[1]) for each in headers) <= MAX_HEADER_BYTES


def parsed_once(headers: Any, parse: Callable[[Any], Parsed]) -> Parsed:
    """What ``parse`` makes of an event's headers, or what it returned for the same block before.

    h2 is configured to give headers as text, which its types do not show.
    """
    if not isinstance(headers, KnownHeaders):
        return parse(headers or ())
    if parse not in headers.parsed:
        headers.parsed[parse] = parse(headers)
    found: Parsed = headers.parsed[parse]
    return found


_process: Any = H2Stream._process_received_headers


def _process_once(stream: H2Stream, headers: Any, flags: Any, encoding: Any) -> Any:
    """h2's checks of a header block, whose result is remembered with the block."""
    if not isinstance(headers, KnownHeaders):
        return _process(stream, headers, flags, encoding)
    found = headers.checked.get(flags)
    if found is None:
        found = headers.checked[flags] = KnownHeaders(_process(stream, headers, flags, encoding))
    return found


# Patched on the class itself, since h2 creates the streams.
H2Stream._process_received_headers = _process_once  # type: ignore[method-assign, assignment]
