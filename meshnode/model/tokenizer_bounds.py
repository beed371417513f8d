"""What a ``tokenizer.json`` may ask of this node (decision 0139).

The file may come from a stranger, and the library that runs it trusts it: it multiplies texts, and
matches any regular expression. So the file is read here before the library gets it.

Invariant: a file that passes makes no text more than MAX_GROWTH times as long, and takes time that
grows with a small power of the text's length.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from meshnode.model.documents import ModelUnreadable
from meshnode.model.patterns import PatternRefused, require_bounded_pattern

MAX_VOCABULARY = 1 << 22
"""Tokens, and the largest id; the largest known vocabularies have a quarter of a million."""
MAX_ADDED = 80_000
"""Added tokens. Models that speak have one for each of 65,536 sounds."""
MAX_TOKEN_CHARS = 1024
"""Longest token; known ones have 256 characters at most."""
MAX_WORD_CHARS = 1000
"""Longest word that a WordPiece model looks at; the usual limit is 100."""
MAX_PARTS = 64
"""Parts of normalizer, pre-tokenizer, post-processor and decoder."""
MAX_DEPTH = 16
MAX_TEXT_CHARS = 256
"""Longest text that a part adds or replaces."""
MAX_GROWTH = 256
"""How many times as long the normalizer and the pre-tokenizer may make a text."""
MAX_SPECIAL_IDS = 256
"""Most tokens that the post-processor puts around a prompt."""

_SECTIONS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
_TEXTS = ("content", "prepend", "replacement", "prefix", "suffix", "unk_token")


def require_bounded(document: Mapping[str, Any]) -> None:
    """Raise ModelUnreadable unless the tokenizer keeps the bounds."""
    try:
        _check_model(document.get("model"))
        _check_added(document.get("added_tokens"))
        parts = [part for name in _SECTIONS for part in _parts(document.get(name), 0)]
        if len(parts) > MAX_PARTS:
            raise ModelUnreadable(f"more than {MAX_PARTS} parts")
        for part in parts:
            _check_part(part)
        growth = math.prod(_growth(part) for part in parts)
        if growth > MAX_GROWTH:
            raise ModelUnreadable(f"it makes texts more than {MAX_GROWTH} times as long")
    except (TypeError, ValueError, AttributeError, KeyError):
        raise ModelUnreadable("not a tokenizer of a known form") from None


def _check_model(model: Any) -> None:
    vocabulary = model.get("vocab") or {}
    if isinstance(vocabulary, Mapping):
        tokens: Sequence[str] | Mapping[str, Any] = vocabulary
        largest = max(vocabulary.values(), default=0)
    else:
        tokens = [entry[0] for entry in vocabulary]
        largest = len(tokens)
    if max(len(tokens), largest) > MAX_VOCABULARY:
        raise ModelUnreadable(f"more than {MAX_VOCABULARY} tokens, or an id above that")
    if max(map(len, tokens), default=0) > MAX_TOKEN_CHARS:
        raise ModelUnreadable(f"a token of more than {MAX_TOKEN_CHARS} characters")
    if (model.get("max_input_chars_per_word") or 0) > MAX_WORD_CHARS:
        raise ModelUnreadable(f"words of more than {MAX_WORD_CHARS} characters")


def _check_added(added: Any) -> None:
    tokens = added or []
    if len(tokens) > MAX_ADDED:
        raise ModelUnreadable(f"more than {MAX_ADDED} added tokens")
    if max((token["id"] for token in tokens), default=0) > MAX_VOCABULARY:
        raise ModelUnreadable(f"an added token with an id above {MAX_VOCABULARY}")
    if max((len(token["content"]) for token in tokens), default=0) > MAX_TOKEN_CHARS:
        raise ModelUnreadable(f"an added token of more than {MAX_TOKEN_CHARS} characters")


def _parts(value: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    """The objects of a section that have a type, from the outside in."""
    if depth > MAX_DEPTH:
        raise ModelUnreadable(f"parts nested deeper than {MAX_DEPTH}")
    if isinstance(value, Mapping):
        if "type" in value:
            yield value
        for member in value.values():
            yield from _parts(member, depth + 1)
    elif isinstance(value, list):
        # The tokens around a prompt are lists of plain numbers.
        for member in value:
            if isinstance(member, Mapping | list):
                yield from _parts(member, depth + 1)


def _check_part(part: Mapping[str, Any]) -> None:
    if any(len(str(part.get(name) or "")) > MAX_TEXT_CHARS for name in _TEXTS):
        raise ModelUnreadable(f"a text of more than {MAX_TEXT_CHARS} characters")
    pattern = part.get("pattern")
    if isinstance(pattern, Mapping) and "Regex" in pattern:
        try:
            require_bounded_pattern(str(pattern["Regex"]))
        except PatternRefused as refusal:
            raise ModelUnreadable(f"a pattern has {refusal}") from None
    specials = part.get("special_tokens")
    if isinstance(specials, Mapping):
        ids = [one for special in specials.values() for one in special["ids"]]
        uses = len(part.get("single") or ()) + len(part.get("pair") or ())
        if max(len(ids), uses) > MAX_SPECIAL_IDS or max(ids, default=0) > MAX_VOCABULARY:
            raise ModelUnreadable("more or larger special tokens around a prompt than allowed")


def _growth(part: Mapping[str, Any]) -> int:
    """How many times as long a part can make a text."""
    kind = part["type"]
    if kind == "Replace":
        content, literal = str(part["content"]), part["pattern"].get("String")
        if literal == "":
            return MAX_GROWTH + 1
        # A regular expression can match nothing at all, between any two characters.
        longer = len(content) + 1 if literal is None else math.ceil(len(content) / len(literal))
        return max(1, longer)
    if kind == "Precompiled":
        return _longest_replacement(str(part["precompiled_charsmap"]))
    return 1


def _longest_replacement(charsmap: str) -> int:
    """The most bytes that SentencePiece's table puts in place of a character.

    The table is the size of a trie, the trie, and the replacements with a zero byte after each.
    """
    data = base64.b64decode(charsmap, validate=True)
    replacements = data[4 + int.from_bytes(data[:4], "little") :]
    return max(1, *map(len, replacements.split(b"\0")))
