"""The rules of an inference request (interface 4.1, "POST /inference body").

Terms: *fields* is the decoded request, keyed by the document's parameter names; HTTP and gRPC share
these rules, so that the same request is accepted or refused on both.

Invariants: a request that passes has exactly the types of :class:`GenerationRequest`; a request
that fails names the first offending field, in the document's order, and never quotes its value.
Keys that the document does not define are ignored, and :func:`ignored_keys` names them. A parameter
that is present must have a value: ``null`` is refused rather than read as the default
(decision 0023).
"""

from __future__ import annotations

import difflib
import math
from typing import TYPE_CHECKING

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.generation import (
    DEFAULT_MAX_TOKENS,
    DEFAULT_TEMPERATURE,
    DEFAULT_TOP_K,
    DEFAULT_TOP_P,
    GenerationRequest,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_PROMPT_BYTES = 1024 * 1024
"""Longest prompt in UTF-8 bytes; the model's context is far shorter and checked by the executor."""
MAX_COUNT = 2**31 - 1
"""Largest ``max_tokens`` and ``top_k``: what the gRPC messages can carry."""
MAX_SEED = 2**63 - 1
MAX_TEMPERATURE = 2.0
MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 256

MAX_WARNINGS = 8
"""The most unknown keys that an answer names; it only counts the others."""
MAX_KEY_CHARS = 40
"""Longest part of an unknown key that an answer repeats."""

PARAMETERS = ("prompt", "max_tokens", "temperature", "top_p", "top_k", "stop", "seed", "stream")
"""The document's names, in its order."""

_ABSENT = object()


def generation_request(fields: Mapping[str, object]) -> GenerationRequest:
    """Turn decoded fields into a request.

    Raises :class:`InvalidRequest` with the field and the reason. ``stream`` belongs to the edge and
    is read by :func:`wants_stream`.
    """
    return GenerationRequest(
        prompt=_prompt(fields),
        max_tokens=_integer(fields, "max_tokens", DEFAULT_MAX_TOKENS, 1, MAX_COUNT),
        temperature=_number(fields, "temperature", DEFAULT_TEMPERATURE, MAX_TEMPERATURE),
        top_p=_number(fields, "top_p", DEFAULT_TOP_P, 1.0),
        top_k=_integer(fields, "top_k", DEFAULT_TOP_K, 0, MAX_COUNT),
        stop=_stop(fields),
        seed=_integer(fields, "seed", 0, 0, MAX_SEED) if "seed" in fields else None,
    )


def wants_stream(fields: Mapping[str, object]) -> bool:
    """Whether the caller asked for server-sent events. Default false."""
    value = _optional(fields, "stream")
    if value is _ABSENT:
        return False
    if not isinstance(value, bool):
        raise InvalidRequest("stream", "must be true or false")
    return value


def ignored_keys(fields: Mapping[str, object]) -> list[str]:
    """A sentence for each key that no rule reads, with the parameter that was probably meant.

    The sentences are bounded in number and length, and have only printable characters
    (decision 0115).
    """
    unknown = [key for key in fields if key not in PARAMETERS]
    warnings = [_ignored(key) for key in unknown[:MAX_WARNINGS]]
    if len(unknown) > MAX_WARNINGS:
        warnings.append(f"{len(unknown) - MAX_WARNINGS} more unknown parameters were ignored")
    return warnings


def _ignored(key: str) -> str:
    shown = "".join(char if char.isprintable() else "?" for char in key[:MAX_KEY_CHARS])
    shown += "…" if len(key) > MAX_KEY_CHARS else ""
    meant = difflib.get_close_matches(key[:MAX_KEY_CHARS].lower(), PARAMETERS, n=1)
    hint = f"; did you mean {meant[0]}?" if meant else ""
    return f"the unknown parameter '{shown}' was ignored{hint}"


def _optional(fields: Mapping[str, object], name: str) -> object:
    value = fields.get(name, _ABSENT)
    if value is None:
        raise InvalidRequest(name, "must not be null; leave it out to use the default")
    return value


def _prompt(fields: Mapping[str, object]) -> str:
    prompt = fields.get("prompt", _ABSENT)
    if prompt is _ABSENT:
        raise InvalidRequest("prompt", "is required")
    if not isinstance(prompt, str):
        raise InvalidRequest("prompt", "must be a string")
    if not prompt:
        raise InvalidRequest("prompt", "must not be empty")
    # A character takes at least one byte, so the longest prompts are refused before encoding.
    if len(prompt) > MAX_PROMPT_BYTES or len(_utf8(prompt, "prompt")) > MAX_PROMPT_BYTES:
        raise InvalidRequest("prompt", f"must be at most {MAX_PROMPT_BYTES} bytes of UTF-8")
    return prompt


def _integer(fields: Mapping[str, object], name: str, default: int, low: int, high: int) -> int:
    value = _optional(fields, name)
    if value is _ABSENT:
        return default
    # JSON has one number type, so 1.0 is an integer value; a bool is an int only in Python.
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(name, "must be an integer")
    if not low <= value <= high:
        raise InvalidRequest(name, f"must be from {low} to {high}")
    return value


def _number(fields: Mapping[str, object], name: str, default: float, high: float) -> float:
    value = _optional(fields, name)
    if value is _ABSENT:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequest(name, "must be a number")
    # The range is tested before the conversion: an integer may be too large for a float.
    if not (0 <= value <= high) or not math.isfinite(value):
        raise InvalidRequest(name, f"must be from 0 to {high:g}")
    return float(value)


def _stop(fields: Mapping[str, object]) -> tuple[str, ...]:
    value = _optional(fields, "stop")
    if value is _ABSENT:
        return ()
    if not isinstance(value, list | tuple):
        raise InvalidRequest("stop", "must be an array of strings")
    if len(value) > MAX_STOP_STRINGS:
        raise InvalidRequest("stop", f"must have at most {MAX_STOP_STRINGS} strings")
    for index, text in enumerate(value):
        name = f"stop[{index}]"
        if not isinstance(text, str):
            raise InvalidRequest(name, "must be a string")
        if not text:
            raise InvalidRequest(name, "must not be empty")
        if len(text) > MAX_STOP_CHARS:
            raise InvalidRequest(name, f"must be at most {MAX_STOP_CHARS} characters")
        _utf8(text, name)
    return tuple(value)


def _utf8(text: str, name: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        # JSON escapes can spell half of a surrogate pair, which is not a character.
        raise InvalidRequest(name, "must be valid Unicode: it has a lone surrogate") from None
