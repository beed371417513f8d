"""``meshnode model``: what training has made, listed and exported."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from meshnode.assembly.shards import TRAINING_FOLDER
from meshnode.config import Config, build_config
from meshnode.domain.errors import InvalidRequest, StartupError
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.training.replica import Persisted
from meshnode.model.trained_model import Anchor, TrainedModel
from meshnode.model_command import run_model_command
from meshnode.services.training.disk import TrainingDisk
from meshnode.services.training.progress import Counts
from spec_tests.model.small_models import make_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


def config_of(folder: Path, model: Path) -> Config:
    return build_config({"data_dir": str(folder), "model": str(model)})


def run(action: str, config: Config, **more: object) -> None:
    run_model_command(argparse.Namespace(action=action, **more), config)


@pytest.fixture
def trained(model: Path, tmp_path: Path) -> Config:
    first = TrainedModel(model).anchor
    weights = {name: tensor + 0.01 for name, tensor in first.weights.items()}
    anchor = Anchor.of(weights, {})
    kept = WeightsVersion(37, anchor.model_hash)
    disk = TrainingDisk(tmp_path / "data" / TRAINING_FOLDER, WeightsVersion(0, first.model_hash))
    disk.save_anchor(anchor, kept)
    disk.save(Persisted(kept, 37), [1.7, 1.5], Counts(steps=18_500))
    return config_of(tmp_path / "data", model)


def test_versions_are_listed(trained: Config, capsys: pytest.CaptureFixture[str]) -> None:
    run("list", trained)
    line = capsys.readouterr().out.splitlines()[1].split()
    assert (line[0], line[2], line[3]) == ("37", "1.5000", "18,500")


def test_transformers_loads_what_is_exported(trained: Config, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run("export", trained, version=None, out=out)
    before = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    after = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    name = "model.norm.weight"
    assert torch.equal(after.state_dict()[name], before.state_dict()[name] + 0.01)
    with pytest.raises(InvalidRequest, match="exists already"):
        run("export", trained, version=37, out=out)


def test_what_there_is_not_is_refused(trained: Config, model: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="version 37 only"):
        run("export", trained, version=36, out=tmp_path / "out")
    with pytest.raises(StartupError, match="no node has trained"):
        run("list", config_of(tmp_path / "elsewhere", model))
    with pytest.raises(StartupError, match="another model"):
        run("list", build_config({"data_dir": trained.data_dir}))
    assert not (tmp_path / "out").exists()
