"""Hypothesis profiles, and the fixtures that many test modules use.

``HYPOTHESIS_PROFILE=deep`` runs thousands of examples of each property.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from meshnode.model.loading import LoadedModel

# Machines are shared and noisy, so how long an example takes is never a failure.
_COMMON: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dev", max_examples=60, **_COMMON)
settings.register_profile("ci", max_examples=60, derandomize=True, **_COMMON)
settings.register_profile("deep", max_examples=3000, **_COMMON)
# As the node sets it: idle threads of torch must not spin while others need the processors.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.fixture(scope="session", autouse=True)
def _blocks_follow_soon() -> Iterator[None]:
    """Shorten the shortest time between two blocks from 0.1 s to 0.01 s."""
    from meshnode.services.ledger import solo

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solo, "INTERVAL_S", 0.01)
        yield


# The fixtures import torch themselves, because torch reads the variable that is set above.


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of four layers, which no test changes."""
    from spec_tests.model.small_models import make_model

    return make_model(tmp_path_factory.mktemp("small") / "model")


@pytest.fixture(scope="module")
def model(directory: Path) -> LoadedModel:
    """The same model without an end-of-text token, so that texts are as long as tests ask for."""
    from meshnode.model.loading import load_model

    return replace(load_model(directory), eos_token_ids=frozenset())


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Make torch compute in one thread for the length of a test."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
