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
from meshnode.domain.training.position import PipelineVersion, Place, Position
from meshnode.domain.training.replica import Persisted
from meshnode.model.files import open_files
from meshnode.model.loading import load_model
from meshnode.model.manifest import manifest_of
from meshnode.model.trained_model import Anchor, TrainedModel
from meshnode.model.weights import checkpoint_tensors
from meshnode.model_command import run_model_command
from meshnode.services.shards.trained_layers import TrainedLayers
from meshnode.services.training.disk import TrainingDisk
from meshnode.services.training.progress import Counts
from spec_tests.model.small_models import make_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


def config_of(folder: Path, model: Path) -> Config:
    return build_config({"data_dir": str(folder), "model": str(model)})


def run(action: str, config: Config, **more: object) -> None:
    run_model_command(argparse.Namespace(**{"action": action, "join": None, **more}), config)


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


HALVES = (range(2), range(2, 4))


def write_layers(model: Path, folder: Path, held: range, number: int, shift: float) -> None:
    """What a node has on its disk that has trained these layers in a pipeline."""
    files = open_files(model)
    manifest = manifest_of(files, files.config(), folder.parent / "cache.json")
    disk = TrainedLayers(folder / TRAINING_FOLDER, manifest.model_hash, held)
    decoder = load_model(model, held, trainable=True).decoder
    tensors = {name: tensor + shift for name, tensor in checkpoint_tensors(decoder).items()}
    version = PipelineVersion(number, f"{number:016x}")
    origin = PipelineVersion(number - 1, f"{number - 1:016x}")
    disk.keep(tensors, Place(Position(version), Position(origin, 9)))


@pytest.mark.parametrize("tied", [False, True])
def test_what_a_pipeline_learned_is_joined(
    tied: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = make_model(tmp_path / "model", tied_head=tied)
    first, second = tmp_path / "first", tmp_path / "second"
    # The first node has kept a round that the second one has not.
    for number, shift in ((1, 0.01), (2, 0.5)):
        write_layers(model, first, HALVES[0], number, shift)
    write_layers(model, second, HALVES[1], 1, 0.02)
    config = config_of(first, model)
    run("list", config)
    assert "of layers 0-1, trained in a pipeline" in capsys.readouterr().out
    out = tmp_path / "out"
    run("export", config, version=None, out=out, join=[second])
    assert "version 1-0000000000000001 of 2 nodes" in capsys.readouterr().out
    before = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).state_dict()
    after = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).state_dict()
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        late = any(part in name for part in ("layers.2.", "layers.3.", "model.norm", "lm_head"))
        assert torch.equal(after[name], tensor + (0.02 if late else 0.01)), name
    loaded = load_model(out).decoder
    assert loaded.config.tied_head is False


def test_a_part_that_lacks_is_named(model: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    write_layers(model, first, HALVES[0], 1, 0.01)
    config, out = config_of(first, model), tmp_path / "out"
    with pytest.raises(InvalidRequest, match="is in none of the folders"):
        run("export", config, version=None, out=out)
    with pytest.raises(StartupError, match="no layers of this model were trained"):
        run("export", config, version=None, out=out, join=[second])
    write_layers(model, second, HALVES[1], 2, 0.01)
    with pytest.raises(InvalidRequest, match="no version of the pipeline in common"):
        run("export", config, version=None, out=out, join=[second])
    assert not out.exists()
