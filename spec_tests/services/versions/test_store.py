"""The served version on the disk: a choice survives a restart, and nothing unchecked is loaded."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from meshnode.domain.training.agreement import WeightsVersion
from meshnode.model.checkpoint import dump_anchor
from meshnode.model.documents import ModelUnreadable
from meshnode.model.files import open_files
from meshnode.model.loading import load_model
from meshnode.model.manifest import manifest_of
from meshnode.model.trained_model import Anchor, TrainedModel
from meshnode.services.model_source import ModelSource
from meshnode.services.versions.store import VersionStore


def source_of(directory: Path, folder: Path) -> ModelSource:
    files = open_files(directory)
    config = files.config()
    manifest = manifest_of(files, config, folder / "cache.json")
    return ModelSource(files, config, range(config.num_layers), manifest)


def trained(directory: Path, folder: Path, version: int, shift: float) -> tuple[Path, Anchor]:
    """An anchor whose weights are all a little higher than the model's, and its file."""
    weights = {n: t + shift for n, t in TrainedModel(directory).anchor.weights.items()}
    velocity = {name: torch.zeros_like(tensor) for name, tensor in weights.items()}
    anchor = Anchor.of(weights, velocity)
    path = folder / f"anchor-{version}.safetensors"
    path.write_bytes(dump_anchor(anchor, version))
    return path, anchor


def test_what_was_chosen_is_served_after_a_restart(directory: Path, tmp_path: Path) -> None:
    store = VersionStore(tmp_path, source_of(directory, tmp_path))
    assert store.chosen() is store.origin
    path, anchor = trained(directory, tmp_path, 4, 0.01)
    weights = WeightsVersion(4, anchor.model_hash)
    store.take(path, weights)
    path.unlink()
    found = replace(store.read(weights), loss=2.5)
    store.choose(found)

    again = VersionStore(tmp_path, source_of(directory, tmp_path)).chosen()
    assert (again.weights, again.loss) == (weights, 2.5)
    assert again.model_hash == found.model_hash != store.origin.model_hash
    assert again.manifest.files == store.origin.manifest.files
    tensors = again.tensors(store.origin.files.config())
    assert all(torch.equal(tensors[name], each) for name, each in anchor.weights.items())
    assert load_model(again.files).card.name == store.origin.files.name


def test_only_the_chosen_version_stays_on_the_disk(directory: Path, tmp_path: Path) -> None:
    store = VersionStore(tmp_path, source_of(directory, tmp_path))
    for number in (1, 2):
        path, anchor = trained(directory, tmp_path, number, number / 100)
        weights = WeightsVersion(number, anchor.model_hash)
        store.take(path, weights)
        chosen = store.read(weights)
        store.choose(chosen)
        assert store.files(chosen.model_hash) is chosen.files
    assert len(list(store.folder.glob("version-*"))) == 1
    assert store.files(store.origin.model_hash) is store.origin.files
    assert store.files("0" * 64) is None


def test_other_weights_than_were_noted_are_not_served(directory: Path, tmp_path: Path) -> None:
    store = VersionStore(tmp_path, source_of(directory, tmp_path))
    path, anchor = trained(directory, tmp_path, 4, 0.01)
    weights = WeightsVersion(4, anchor.model_hash)
    store.take(path, weights)
    store.choose(store.read(weights))
    (kept,) = store.folder.glob("version-*")
    other, _ = trained(directory, tmp_path, 5, 0.02)
    kept.unlink()
    kept.write_bytes(other.read_bytes())
    with pytest.raises(ModelUnreadable, match="other weights"):
        store.read(weights)
    assert store.chosen() is store.origin


@pytest.mark.parametrize("damage", ["", "[]", '{"format": "meshnode-served-v9"}', "{"])
def test_a_damaged_choice_is_not_followed(directory: Path, tmp_path: Path, damage: str) -> None:
    store = VersionStore(tmp_path, source_of(directory, tmp_path))
    store.folder.mkdir()
    (store.folder / "served.json").write_text(damage)
    assert store.chosen() is store.origin


def test_a_choice_belongs_to_the_model_that_was_trained(directory: Path, tmp_path: Path) -> None:
    store = VersionStore(tmp_path, source_of(directory, tmp_path))
    path, anchor = trained(directory, tmp_path, 4, 0.01)
    weights = WeightsVersion(4, anchor.model_hash)
    store.take(path, weights)
    store.choose(store.read(weights))
    choice = json.loads((store.folder / "served.json").read_text())
    choice["origin"] = "0" * 64
    (store.folder / "served.json").write_text(json.dumps(choice))
    assert store.chosen() is store.origin
