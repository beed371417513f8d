"""Fixtures that several test modules of the ledger use."""

from __future__ import annotations

import pytest

from meshnode.services.ledger import follower


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten a follower's pauses between questions, for tests that do not measure them."""
    monkeypatch.setattr(follower.Backoff, "pause_s", lambda self: 0.01)
    monkeypatch.setattr(follower.run_follower, "__defaults__", (0.01,))
