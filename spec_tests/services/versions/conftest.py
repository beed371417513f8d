"""What the tests of serving layers share."""

from pathlib import Path

import pytest

from meshnode.services.versions import pipeline as versions_of_pipelines
from spec_tests.model.small_models import make_model
from spec_tests.services.versions.layer_pipelines import FIRST, SECOND, Holder, Pipeline


@pytest.fixture(params=[False, True], ids=["own-head", "tied"])
def nodes(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Pipeline:
    """Two holders, whose driver looks often."""
    for name in ("LOOK_EVERY_S", "POLL_S", "RETRY_S", "PAUSED_S"):
        monkeypatch.setattr(versions_of_pipelines, name, 0.02)
    monkeypatch.setattr(versions_of_pipelines, "ANNOUNCED_S", 0.2)
    directory = make_model(tmp_path / "model", tied_head=request.param)
    return Pipeline(
        Holder(directory, tmp_path / "first", FIRST), Holder(directory, tmp_path / "second", SECOND)
    )
