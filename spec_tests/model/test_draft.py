"""Draft models, and the one that ships (decision 0231)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from meshnode.model.documents import ModelUnreadable
from meshnode.model.draft import (
    DEFAULT_DRAFT,
    NARROW_COPIES,
    NO_DRAFT,
    PIECE,
    DraftModel,
    DraftSession,
    load_draft,
)
from meshnode.model.loading import DEFAULT_MODEL, LoadedModel, load_model
from spec_tests.model.small_models import make_model

MIN_AGREEMENT = 0.7
TOKENS = 48
SESSIONS = 16


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return load_model(DEFAULT_MODEL)


def draft_of(model: LoadedModel, name: str = "", sessions: int = SESSIONS) -> DraftModel:
    draft = load_draft(name, model, DEFAULT_MODEL, "float32", sessions)
    assert draft is not None
    return draft


def session_of(draft: DraftModel, positions: int = 64) -> DraftSession:
    session = draft.session(positions)
    assert session is not None
    return session


def agreement(draft: DraftModel, model: LoadedModel) -> float:
    """How often it proposes what the model finds most likely, in a story of the model's own."""
    tokens = model.tokenizer.encode("Once upon a time")
    session, right = session_of(draft, 512), 0
    with torch.inference_mode():
        for _ in range(TOKENS):
            chosen = int(model.decoder(torch.tensor([tokens]), last_only=True)[0, -1].argmax())
            right += session.propose(tokens, 1) == [chosen]
            tokens.append(chosen)
    return right / TOKENS


def test_the_draft_that_ships_is_small_and_guesses_the_default_models_stories(
    model: LoadedModel,
) -> None:
    assert sum(path.stat().st_size for path in DEFAULT_DRAFT.iterdir()) < 1 << 20
    assert agreement(draft_of(model), model) > MIN_AGREEMENT


@pytest.mark.parametrize("name", NARROW_COPIES)
def test_a_narrow_copy_guesses_what_the_model_itself_says(name: str, model: LoadedModel) -> None:
    assert agreement(draft_of(model, name), model) > MIN_AGREEMENT


def test_a_session_that_goes_back_proposes_what_a_new_one_does(model: LoadedModel) -> None:
    draft = draft_of(model)
    session = session_of(draft)
    text = [0, 17, 301, 44, 9, 120, 8]
    first = session.propose(text, 6)
    assert len(first) == 6
    assert session.propose([*text[:4], 77], 4) == session_of(draft).propose([*text[:4], 77], 4)
    assert session.propose(text, 6) == first
    # The proposals were right, and the text goes on with them.
    grown = [*text, *first[:3]]
    assert session.propose(grown, 3) == session_of(draft).propose(grown, 3)
    # It stops at the end of its room: the last of 64 positions is computed.
    assert len(session_of(draft).propose(list(range(2, 62)), 20)) == 5
    assert session_of(draft).propose(list(range(2, 90)), 20) == []


def test_a_long_text_is_read_piece_by_piece(model: LoadedModel) -> None:
    draft = draft_of(model)
    session = session_of(draft, 256)
    text = [5 + 7 * place % 400 for place in range(3 * PIECE + 9)]
    pieces = 0
    while session.behind(text):
        assert session.read(text) == []
        pieces += 1
    assert pieces == 3
    assert session.propose(text, 6) == session_of(draft, 256).propose(text, 6)
    # What does not fit is never read.
    short = session_of(draft, PIECE // 2)
    assert not short.behind(text)
    assert short.propose(text, 6) == []


def test_the_memory_of_all_sessions_is_bounded(model: LoadedModel) -> None:
    draft = draft_of(model, sessions=2)
    first, second = (session_of(draft, draft.context_length) for _ in range(2))
    assert draft.session(1) is None
    first.close()
    first.close()
    assert first.propose([1, 2, 3], 4) == []
    assert draft.session(draft.context_length) is not None
    assert draft.session(1) is None
    assert len(second.propose([1, 2, 3], 4)) == 4


def test_which_draft_is_loaded(tmp_path: Path, model: LoadedModel) -> None:
    assert load_draft(NO_DRAFT, model, DEFAULT_MODEL, "float32", 1) is None
    assert load_draft("", model, tmp_path, "float32", 1) is None
    other = make_model(tmp_path / "other")
    with pytest.raises(ModelUnreadable, match="needs the vocabulary"):
        load_draft(str(other), model, DEFAULT_MODEL, "float32", 1)
    with pytest.raises(ModelUnreadable, match="int4 needs all layers: "):
        load_draft("int4", model, tmp_path / "missing", "float32", 1)
