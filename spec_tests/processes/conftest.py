"""Fixtures that several test modules of processes use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from spec_tests.model.small_models import make_model
from spec_tests.processes.pipelines import Network, open_network
from spec_tests.processes.training import TrainingProcesses


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """A driver with the first layer; a test starts the holders of the other layers."""
    with ExitStack() as stack:
        yield open_network(tmp_path_factory.mktemp("pipeline"), stack)


@pytest.fixture(scope="module")
def training_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small random model whose loss falls within a few steps."""
    return make_model(tmp_path_factory.mktemp("model") / "model", initializer_range=0.05)


@pytest.fixture
def processes(tmp_path: Path, training_model: Path) -> Iterator[TrainingProcesses]:
    """Starts nodes that train the small model; all of them end with the test."""
    with ExitStack() as stack:
        yield TrainingProcesses(tmp_path, training_model, stack)
