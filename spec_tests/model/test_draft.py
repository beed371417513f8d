"""Draft models, and the one that ships (decision 0231)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from meshnode.model.documents import ModelUnreadable
from meshnode.model.draft import DEFAULT_DRAFT, NO_DRAFT, load_draft
from meshnode.model.loading import DEFAULT_MODEL, load_model
from spec_tests.model.small_models import make_model

MIN_AGREEMENT = 0.7
TOKENS = 48


def test_the_draft_that_ships_is_small_and_guesses_the_default_models_stories() -> None:
    assert sum(path.stat().st_size for path in DEFAULT_DRAFT.iterdir()) < 1 << 20
    model = load_model(DEFAULT_MODEL)
    draft = load_draft("", model, DEFAULT_MODEL, "float32")
    assert draft is not None
    tokens = model.tokenizer.encode("Once upon a time")
    session, right = draft.session(512), 0
    with torch.inference_mode():
        for _ in range(TOKENS):
            chosen = int(model.decoder(torch.tensor([tokens]), last_only=True)[0, -1].argmax())
            right += session.propose(tokens, 1) == [chosen]
            tokens.append(chosen)
    assert right / TOKENS > MIN_AGREEMENT


def test_a_session_that_goes_back_proposes_what_a_new_one_does() -> None:
    draft = load_draft("", load_model(DEFAULT_MODEL), DEFAULT_MODEL, "float32")
    assert draft is not None
    session = draft.session(64)
    text = [0, 17, 301, 44, 9, 120, 8]
    first = session.propose(text, 6)
    assert len(first) == 6
    assert session.propose([*text[:4], 77], 4) == draft.session(64).propose([*text[:4], 77], 4)
    assert session.propose(text, 6) == first
    # The proposals were right, and the text goes on with them.
    grown = [*text, *first[:3]]
    assert session.propose(grown, 3) == draft.session(64).propose(grown, 3)
    # It stops at the end of its room: the last of 64 positions is computed.
    assert len(draft.session(64).propose(list(range(2, 62)), 20)) == 5
    assert draft.session(64).propose(list(range(2, 90)), 20) == []


def test_which_draft_is_loaded(tmp_path: Path) -> None:
    model = load_model(DEFAULT_MODEL)
    assert load_draft(NO_DRAFT, model, DEFAULT_MODEL, "float32") is None
    assert load_draft("", model, tmp_path, "float32") is None
    other = make_model(tmp_path / "other")
    with pytest.raises(ModelUnreadable, match="needs the vocabulary"):
        load_draft(str(other), model, DEFAULT_MODEL, "float32")
