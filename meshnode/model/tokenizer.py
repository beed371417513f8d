"""Text to token ids, and token ids to bytes, from a Hugging Face ``tokenizer.json``.

Terms: a *piece* is the bytes that one token adds to the text. A token may be a fragment of a
character, so pieces are bytes and never strings; ``domain.textstream`` puts them together. Special
tokens (begin and end of text) have empty pieces.

Invariant: the pieces of a text's tokens, concatenated, are that text in UTF-8, after the
tokenizer's normalisation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from meshnode.model.documents import ModelUnreadable, read_document
from meshnode.model.tokenizer_bounds import require_bounded

_FALLBACK_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE_MARK = "\u2581"
"""The character that stands for a space in SentencePiece vocabularies."""


class TokenizerFailed(ValueError):
    """The tokenizer cannot take a text, or cannot be made."""


@contextmanager
def _library_failures() -> Iterator[None]:
    """Turn what the library raises into TokenizerFailed, its panics included.

    A panic is a BaseException. A pattern that backtracks more often than the library allows panics,
    which was a 500 with a traceback in the log for each such prompt.
    """
    try:
        yield
    except (ModelUnreadable, TokenizerFailed, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - the library raises bare Exception
        raise TokenizerFailed(" ".join(str(error).split())) from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise TokenizerFailed("the library panicked: " + " ".join(str(error).split())) from None


class Tokenizer:
    """Turns prompts into tokens, and tokens into bytes. Safe to use from any thread."""

    def __init__(self, backend: Backend, document: Mapping[str, Any] | None = None) -> None:
        """``document`` is what the backend was made from, if that is at hand."""
        # A file may ask for truncation; here a prompt that does not fit is refused instead.
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        document = json.loads(backend.to_str()) if document is None else document
        scheme = _Scheme.of(document.get("decoder"))
        self._pieces = _pieces(backend, scheme)
        # Other schemes may drop text, such as white space, so its length would not be a bound.
        lossless = scheme is _Scheme.BYTE_LEVEL and document.get("normalizer") is None
        self._longest = self._longest_match() if lossless else 0

    @classmethod
    def read(cls, path: Path) -> Tokenizer:
        """Read a ``tokenizer.json``. Raises ModelUnreadable, for what is out of bounds too."""
        return cls.of(read_document(path), str(path))

    @classmethod
    def of(cls, document: Mapping[str, Any], where: str) -> Tokenizer:
        """Make a tokenizer of such a file's object, which is from ``where``, as ``read`` does."""
        try:
            require_bounded(document)
            with _library_failures():
                tokenizer = cls(
                    Backend.from_str(json.dumps(document, ensure_ascii=False)), document
                )
                tokenizer._try_out()
        except (ModelUnreadable, TokenizerFailed) as error:
            raise ModelUnreadable(f"{where}: {error}") from None
        return tokenizer

    def _try_out(self) -> None:
        """Raise ModelUnreadable if the tokens around every prompt are not of the vocabulary."""
        if max(self.encode(""), default=0) >= self.vocab_size:
            raise ModelUnreadable("a token around prompts is not in the vocabulary")

    @property
    def vocab_size(self) -> int:
        """One more than the largest token id."""
        return len(self._pieces)

    def has_vocabulary_of(self, other: Tokenizer) -> bool:
        """Whether each token adds the same bytes to a text as the other's."""
        return self._pieces == other._pieces

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """The token ids of a prompt, with the special tokens that the model expects around it.

        Without ``special``, the text has those that it needs.

        Raises UnicodeError for text that is not Unicode (a lone surrogate), and TokenizerFailed
        for text that the tokenizer cannot take.
        """
        if not text.isascii():
            text.encode()
        return self.encode_part(text, special=special)

    def encode_part(self, text: str, *, special: bool) -> list[int]:
        """The token ids of a part of a long text; ``special`` is for the first part.

        The part is encoded as a batch, because only then does the library let other threads run.
        """
        with _library_failures():
            [encoding] = self._backend.encode_batch([text], add_special_tokens=special)
        ids: list[int] = encoding.ids
        return ids

    def document(self) -> str:
        """The tokenizer as the text of a ``tokenizer.json``."""
        return str(self._backend.to_str())

    def token_id(self, content: str) -> int | None:
        """The id of a token by its content, special or not; None if there is none."""
        token: int | None = self._backend.token_to_id(content)
        return token

    def piece(self, token_id: int) -> bytes:
        """What a token adds to the text. Ids beyond the vocabulary add nothing."""
        # A model's vocabulary is often padded to a round size.
        return self._pieces[token_id] if token_id < len(self._pieces) else b""

    def fewest_tokens(self, text: str) -> int:
        """A lower bound of ``len(encode(text))`` that costs nothing to compute."""
        return len(text) // self._longest if self._longest else 0

    def _longest_match(self) -> int:
        """An upper bound of the characters that one token can stand for; at least 1."""
        contents = (token.content for token in self._backend.get_added_tokens_decoder().values())
        return max((len(text) for text in (*self._pieces, *contents)), default=1) or 1


def _pieces(backend: Backend, scheme: _Scheme) -> list[bytes]:
    """The piece of every token id, in order."""
    vocabulary = backend.get_vocab(with_added_tokens=True)
    added = backend.get_added_tokens_decoder()
    pieces = [b""] * (max(vocabulary.values(), default=-1) + 1)
    spelt = {token: token_id for token, token_id in vocabulary.items() if token_id not in added}
    for token_id, piece in zip(spelt.values(), scheme.spell_all(list(spelt)), strict=True):
        pieces[token_id] = piece
    for token, token_id in vocabulary.items():
        if token_id in added and not added[token_id].special:
            pieces[token_id] = token.encode()
    return pieces


class _Scheme(Enum):
    """How the strings of a vocabulary spell bytes."""

    BYTE_LEVEL = "ByteLevel"
    """Every byte has a printable character that stands for it."""
    SENTENCEPIECE = "Metaspace"
    """Plain text with a mark for the space; bytes without a token are written ``<0xFF>``."""

    @classmethod
    def of(cls, decoder: Mapping[str, Any] | None) -> _Scheme:
        """The scheme that the file's ``decoder`` section describes. Raises ModelUnreadable."""
        kinds = {part["type"] for part in (decoder or {}).get("decoders", [decoder or {}]) if part}
        if "ByteLevel" in kinds:
            return cls.BYTE_LEVEL
        if kinds & {"ByteFallback", "Metaspace"}:
            return cls.SENTENCEPIECE
        raise ModelUnreadable(f"unsupported token decoder: {', '.join(sorted(kinds)) or 'none'}")

    def spell_all(self, tokens: Sequence[str]) -> Iterator[bytes]:
        """The bytes of each token of the vocabulary."""
        joined = "".join(tokens)
        if self is not _Scheme.BYTE_LEVEL or not _BYTE_OF.keys() >= set(joined):
            yield from map(self.spell, tokens)
            return
        # Each character is a byte, so all of them can be translated at once, which is faster.
        data, start = joined.translate(_LATIN_1_OF).encode("latin-1"), 0
        for token in tokens:
            yield data[start : start + len(token)]
            start += len(token)

    def spell(self, token: str) -> bytes:
        """The bytes of one token of the vocabulary."""
        if self is _Scheme.BYTE_LEVEL:
            if _BYTE_OF.keys() >= set(token):
                return token.translate(_LATIN_1_OF).encode("latin-1")
            # A character that stands for no byte stands for itself.
            return b"".join(_BYTE_OF.get(character, character.encode()) for character in token)
        match = _FALLBACK_BYTE.fullmatch(token)
        return bytes.fromhex(match[1]) if match else token.replace(_SPACE_MARK, " ").encode()


def _byte_of() -> dict[str, bytes]:
    """Which byte each character of a byte-level vocabulary stands for.

    Printable Latin-1 bytes are themselves; the others take the characters from U+0100 on, in order.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(0x100) if byte not in printable]
    return {
        **{chr(byte): bytes([byte]) for byte in printable},
        **{chr(0x100 + place): bytes([byte]) for place, byte in enumerate(others)},
    }


_BYTE_OF = _byte_of()
_LATIN_1_OF = {ord(character): byte[0] for character, byte in _BYTE_OF.items()}
