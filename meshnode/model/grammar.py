"""Completions that are values of a JSON Schema, by the library llguidance (decision 0160).

The library is an extra: without it, a request for such a completion is refused by name. It bounds
what a schema may cost: the size of a grammar, and the work for one step. It fetches nothing.

Invariant: whatever a schema holds, the outcome is a constraint or InvalidRequest.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from meshnode.domain.errors import InvalidRequest, Unsupported
from meshnode.model.sampler import Constraint, NoTokenPossible
from meshnode.model.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable

FIELD = "json_schema"
"""The field of the request that failures name."""
EXTRA = "structured"
"""The extra of this project that brings the library."""
MAX_SCHEMA_CHARS = 64 * 1024
MAX_REASON_CHARS = 120
LIMITS = {
    "initial_lexer_fuel": 1_000_000,
    "step_lexer_fuel": 200_000,
    "step_max_items": 50_000,
    # Each state takes some 2 kB, and a generation keeps its own.
    "max_lexer_states": 20_000,
    "max_grammar_size": 200_000,
    "verbose_errors": False,
}
"""About 20 ms to compile and 15 ms for a step, at the most."""
STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""Small models that may write white space write nothing else for ever."""


class Grammars:
    """Compiles schemas for the vocabulary of one model. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer, eos_token_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._eos = eos_token_ids
        self._vocabularies: dict[frozenset[int], Any] = {}
        self._lock = threading.Lock()

    def compile(self, schema: str, end_tokens: frozenset[int] = frozenset()) -> Constraint:
        """A constraint for one completion, which ends with one of the end tokens.

        Raises InvalidRequest for a schema that the library does not know or that is too complex,
        and Unsupported without the library.
        """
        try:
            from llguidance import LLMatcher, LLParserLimits
        except ImportError:
            extra = f"pip install 'meshnode[{EXTRA}]'"
            raise Unsupported(FIELD, f"needs a library that is not there: {extra}") from None
        if len(schema) > MAX_SCHEMA_CHARS:
            raise InvalidRequest(FIELD, f"must be at most {MAX_SCHEMA_CHARS} characters")
        vocabulary = self._vocabulary(self._eos | end_tokens)
        try:
            grammar = LLMatcher.grammar_from_json_schema(schema, overrides=STYLE)  # type: ignore[arg-type]
            limits = LLParserLimits(**LIMITS)  # type: ignore[arg-type]
            matcher = LLMatcher(vocabulary, grammar, log_level=0, limits=limits)
        except ValueError as error:
            raise _refused(str(error)) from None
        if matcher.is_error():
            raise _refused(matcher.get_error())
        return _Matching(matcher, self._tokenizer.vocab_size)

    def _vocabulary(self, ends: frozenset[int]) -> Any:
        """The vocabulary as the library wants it, made once."""
        if not ends:
            raise Unsupported(FIELD, "is not possible: this model has no token that ends a text")
        from llguidance import LLTokenizer

        with self._lock:
            if ends not in self._vocabularies:
                size = self._tokenizer.vocab_size
                self._vocabularies[ends] = LLTokenizer(
                    self._tokenizer.document(), n_vocab=size, eos_token=_within(ends, size)
                )
            return self._vocabularies[ends]


class _Matching:
    """A :class:`~meshnode.model.sampler.Constraint` of one completion."""

    def __init__(self, matcher: Any, vocab_size: int) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size
        self._mask = np.zeros((vocab_size + 31) // 32, dtype=np.uint32)

    def allowed(self) -> Tensor:
        self._matcher.unsafe_compute_mask_ptr(self._mask.ctypes.data, self._mask.nbytes)
        if self._matcher.is_error():
            raise NoTokenPossible(self._matcher.get_error())
        bits = np.unpackbits(self._mask.view(np.uint8), bitorder="little")[: self._vocab_size]
        ids = torch.from_numpy(bits.nonzero()[0])
        if not len(ids):
            raise NoTokenPossible("the schema allows no further token")
        return ids

    def accept(self, token: int) -> None:
        self._matcher.consume_token(token)


def _within(ends: Iterable[int], size: int) -> list[int]:
    return sorted(token for token in ends if token < size)


def _refused(reason: str) -> InvalidRequest:
    line = " ".join(reason.split())[:MAX_REASON_CHARS]
    return InvalidRequest(FIELD, f"cannot be kept to: {line}")
