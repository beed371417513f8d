"""Fixtures that several test modules of the client use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spec_tests.client.user import Client, paying_client


@pytest.fixture
def client(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Client]:
    """A command-line client whose account has money, with a gateway of its own."""
    with paying_client(tmp_path, capsys, monkeypatch) as client:
        yield client
