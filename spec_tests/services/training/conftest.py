"""Fixtures that several test modules of training use."""

from __future__ import annotations

from pathlib import Path

import pytest

from spec_tests.model.small_models import make_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small random model."""
    return make_model(tmp_path_factory.mktemp("model"))
