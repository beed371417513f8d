"""Training text is read in pieces, so that other tasks of the node can run (interface 2.1)."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.model import data
from meshnode.model.data import TokenData
from meshnode.model.loading import DEFAULT_MODEL
from meshnode.model.tokenizer import Tokenizer

LENGTH = 8
END = 1


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.read(DEFAULT_MODEL / "tokenizer.json")


@given(st.text(alphabet="ab \n\u00e9", max_size=200), st.integers(1, 20))
def test_pieces_are_short_and_make_up_the_text(text: str, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data, "PIECE_CHARS", most)
        pieces = list(data._pieces(text))
    assert "".join(pieces) == text
    assert all(len(piece) <= most for piece in pieces)
    assert all(pieces[:-1])


def test_pieces_end_after_a_line_or_else_after_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "PIECE_CHARS", 8)
    text = "one\n\ntwo three fourteen!"
    assert list(data._pieces(text)) == ["one\n\n", "two ", "three ", "fourteen", "!"]


def test_a_folder_is_its_files_in_order_cut_into_rows(tmp_path: Path, tokenizer: Tokenizer) -> None:
    for name, text in (("b.txt", "The second story. " * 40), ("a.txt", "Once upon a time. " * 40)):
        (tmp_path / name).write_text(text)
    (tmp_path / "c.bin").write_bytes(b"not a text")
    found = TokenData.of_folder(tmp_path, tokenizer, LENGTH, END)
    tokens = [
        *tokenizer.encode("Once upon a time. " * 40),
        END,
        *tokenizer.encode("The second story. " * 40),
        END,
    ]
    rows = [tokens[at : at + LENGTH] for at in range(0, len(tokens) - LENGTH + 1, LENGTH)]
    held_out = rows[:: min(50, len(rows))]
    assert found.validation.tolist() == held_out
    # Held-out rows are not trained on, not even where the same text occurs again.
    assert found.train.tolist() == [row for row in rows if row not in held_out]


def test_a_long_file_gets_its_special_tokens_once(tmp_path: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / "a.txt").write_text("Once upon a time there was a mesh.\n" * 2000)
    found = TokenData.of_folder(tmp_path, tokenizer, LENGTH, None)
    begins = tokenizer.encode("")
    assert len(begins) == 1
    every = [*found.train.flatten().tolist(), *found.validation.flatten().tolist()]
    assert every.count(begins[0]) == 1
