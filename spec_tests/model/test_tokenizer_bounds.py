"""What a tokenizer's file may ask for, and what the library's failures become (decision 0139)."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, pre_tokenizers

from meshnode.model import tokenizer as adapter
from meshnode.model.documents import ModelUnreadable
from meshnode.model.files import TOKENIZER_FILE
from meshnode.model.loading import DEFAULT_MODEL
from meshnode.model.tokenizer_bounds import require_bounded
from spec_tests.model.small_models import byte_level_backend

SOUND: dict[str, Any] = json.loads(byte_level_backend().to_str())


def changed(change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    document = copy.deepcopy(SOUND)
    change(document)
    return document


def part(section: str, value: object) -> dict[str, Any]:
    return changed(lambda document: document.update({section: value}))


def vocabulary(**tokens: int) -> dict[str, Any]:
    return changed(lambda document: document["model"]["vocab"].update(tokens))


def added(count: int = 1, **values: Any) -> dict[str, Any]:
    token = {"id": 1, "content": "x", "special": False, **values}
    return changed(lambda document: document.update(added_tokens=[token] * count))


def template(*ids: int) -> dict[str, Any]:
    specials = {"X": {"id": "X", "ids": list(ids), "tokens": ["X"] * len(ids)}}
    around = [{"SpecialToken": {"id": "X", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    post = {"type": "TemplateProcessing", "single": around, "pair": [], "special_tokens": specials}
    return part("post_processor", post)


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {"type": "ByteLevel"}
    for _ in range(depth):
        value = {"type": "Sequence", "pretokenizers": [value]}
    return part("pre_tokenizer", value)


def replace(content: str, times: int = 1, **pattern: str) -> dict[str, Any]:
    one = {"type": "Replace", "pattern": pattern or {"String": "a"}, "content": content}
    return part("normalizer", {"type": "Sequence", "normalizers": [one] * times})


def split(pattern: str) -> dict[str, Any]:
    return part("pre_tokenizer", {"type": "Split", "pattern": {"Regex": pattern}})


def charsmap(longest: int) -> dict[str, Any]:
    table = (4).to_bytes(4, "little") + bytes(4) + b"a\0" + b"b" * longest + b"\0"
    text = base64.b64encode(table).decode()
    return part("normalizer", {"type": "Precompiled", "precompiled_charsmap": text})


@pytest.mark.parametrize(
    "document",
    [
        SOUND,
        json.loads((DEFAULT_MODEL / TOKENIZER_FILE).read_text()),
        added(70_000),
        template(0, 1),
        nested(5),
        replace("\u2581", 1, String=" "),
        replace("\u2581", 1, Regex=" {2,}"),
        charsmap(33),
        split(r"\p{L}+"),
    ],
    ids=lambda _: "",
)
def test_what_models_ask_for_is_allowed(document: dict[str, Any]) -> None:
    require_bounded(document)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (vocabulary(z=2**32 - 1), "an id above"),
        (vocabulary(**{"z" * 2000: 1}), "a token of more"),
        (added(80_001), "added tokens"),
        (added(id=2**32 - 1), "id above"),
        (added(content="x" * 2000), "an added token of more"),
        (template(2**32 - 1), "special tokens around a prompt"),
        (template(*[1] * 1000), "special tokens around a prompt"),
        (nested(60), "nested deeper"),
        (part("normalizer", {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 99}), "parts"),
        (replace("a" * 1000), "a text of more"),
        (replace("aa", 24), "times as long"),
        (replace("aa", String=""), "times as long"),
        (replace("a" * 200, 2, Regex="a"), "times as long"),
        (charsmap(5000), "times as long"),
        (split("(a+)+$"), "a pattern has a repeat of what can itself match in several ways"),
        (changed(lambda d: d["model"].update(max_input_chars_per_word=10**6)), "words of more"),
        (part("normalizer", {"type": "Precompiled", "precompiled_charsmap": "?"}), "known form"),
        (part("normalizer", {"type": "Replace"}), "known form"),
        (part("model", None), "known form"),
        (part("added_tokens", 7), "known form"),
        ({}, "known form"),
    ],
    ids=lambda _: "",
)
def test_what_would_exhaust_a_node_is_refused(document: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelUnreadable, match=reason):
        require_bounded(document)


def read(folder: Path, document: dict[str, Any]) -> adapter.Tokenizer:
    path = folder / TOKENIZER_FILE
    path.write_text(json.dumps(document))
    return adapter.Tokenizer.read(path)


def test_a_token_around_prompts_must_be_of_the_vocabulary(tmp_path: Path) -> None:
    with pytest.raises(ModelUnreadable, match="not in the vocabulary"):
        read(tmp_path, template(1000))


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / TOKENIZER_FILE).open("wb") as file:
        file.truncate(65 << 20)
    with pytest.raises(ModelUnreadable, match="larger than 64 MiB"):
        adapter.Tokenizer.read(tmp_path / TOKENIZER_FILE)


def test_a_panic_of_the_library_refuses_a_prompt() -> None:
    """The library panics, with a BaseException, when a pattern backtracks too often."""
    backend: Tokenizer = byte_level_backend()
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("(a|a)+$"), "isolated")
    with pytest.raises(BaseException, match="retry-limit") as panic:
        backend.encode("a" * 40 + "b")
    assert not isinstance(panic.value, Exception)
    with pytest.raises(adapter.TokenizerFailed, match="panicked"):
        adapter.Tokenizer(backend).encode("a" * 40 + "b")


def test_a_text_without_a_token_refuses_a_prompt(tmp_path: Path) -> None:
    model = {"type": "Unigram", "unk_id": None, "vocab": [["a", -1.0]], "byte_fallback": False}
    tokenizer = read(tmp_path, changed(lambda d: d.update(model=model, added_tokens=[])))
    assert tokenizer.encode("aa") == [0, 0]
    with pytest.raises(adapter.TokenizerFailed, match="unk_id"):
        tokenizer.encode("b")
