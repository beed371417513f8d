"""Text to token ids and token ids to bytes, from a Hugging Face ``tokenizer.json``.

Terms: a *piece* is the bytes that one token adds to the text. A byte-level token may be a fragment
of a character, so pieces are bytes and never strings; ``domain.textstream`` puts them together.

Invariant: the concatenated pieces of a text's tokens, decoded as UTF-8, are that text (byte-level
vocabularies), or what ``tokenizers`` itself decodes (vocabularies with byte fallback).
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer as Backend

from meshnode.model.config import ModelUnreadable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_BYTE_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_WORD_BOUNDARY = "\u2581"
