"""``tokenizers`` encodes text; each token stands for bytes, not for a broken string."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers
from tokenizers import Tokenizer as Backend
from tokenizers.processors import TemplateProcessing

from meshnode.model.documents import ModelUnreadable
from meshnode.model.tokenizer import Tokenizer
from spec_tests.model.small_models import END_OF_TEXT, VOCAB_SIZE, byte_level_backend

BYTE_LEVEL = Tokenizer(byte_level_backend())


def spell(tokenizer: Tokenizer, text: str) -> bytes:
    return b"".join(tokenizer.piece(token) for token in tokenizer.encode(text))


def sentencepiece_backend() -> Backend:
    """A tokenizer like Llama 2's, with marked spaces and tokens for bytes that have no other."""
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    letters = ["\u2581", "a", "b", "c", "\u2581a", "é"]
    vocabulary = {token: i for i, token in enumerate(["<unk>", "<s>", *byte_tokens, *letters])}
    backend = Backend(
        models.BPE(vocabulary, [("\u2581", "a")], byte_fallback=True, unk_token="<unk>")
    )
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.add_special_tokens(["<s>"])
    backend.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return backend


@given(st.text())
def test_the_pieces_of_a_text_are_the_text(text: str) -> None:
    if "<|end|>" not in text:
        assert spell(BYTE_LEVEL, text) == text.encode()


@given(st.text())
def test_the_lower_bound_of_a_text_holds(text: str) -> None:
    assert BYTE_LEVEL.fewest_tokens(text) <= len(BYTE_LEVEL.encode(text))


def test_the_lower_bound_is_worth_having() -> None:
    assert BYTE_LEVEL.fewest_tokens("x" * 10_000) > 100


def test_special_tokens_are_read_and_not_spelled() -> None:
    assert BYTE_LEVEL.encode("<|end|>") == [END_OF_TEXT]
    assert BYTE_LEVEL.piece(END_OF_TEXT) == b""


def test_added_tokens_that_are_not_special_are_text() -> None:
    backend = byte_level_backend()
    backend.add_tokens([AddedToken("<tool é>", special=False)])
    assert spell(Tokenizer(backend), "a <tool é> b") == "a <tool é> b".encode()


def test_ids_beyond_the_vocabulary_add_nothing() -> None:
    assert BYTE_LEVEL.vocab_size <= VOCAB_SIZE
    assert BYTE_LEVEL.piece(10**6) == b""


@given(st.text(st.sampled_from("abc é🙂\n")))
def test_sentencepiece_vocabularies_spell_bytes_and_spaces(text: str) -> None:
    tokenizer = Tokenizer(sentencepiece_backend())
    # The space that the normaliser prepends is kept, since generated texts continue prompts.
    assert spell(tokenizer, text) == (f" {text}".encode() if text else b"")
    assert tokenizer.fewest_tokens(text) == 0


def test_a_beginning_of_text_is_added_where_the_model_expects_it() -> None:
    assert Tokenizer(sentencepiece_backend()).encode("a")[0] == 1


def test_a_lone_surrogate_is_not_text() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        BYTE_LEVEL.encode("\ud800")


def test_truncation_and_padding_in_the_file_are_ignored(tmp_path: Path) -> None:
    backend = byte_level_backend()
    backend.enable_truncation(4)
    backend.enable_padding(length=8)
    path = tmp_path / "tokenizer.json"
    backend.save(str(path))
    assert json.loads(path.read_text())["truncation"] is not None
    tokenizer = Tokenizer.read(path)
    assert tokenizer.encode("hello world, hello") == BYTE_LEVEL.encode("hello world, hello")


def test_an_unknown_spelling_is_refused(tmp_path: Path) -> None:
    backend = byte_level_backend()
    backend.decoder = decoders.WordPiece()
    path = tmp_path / "tokenizer.json"
    backend.save(str(path))
    with pytest.raises(ModelUnreadable, match="unsupported token decoder: WordPiece"):
        Tokenizer.read(path)
