"""The served version on the disk: a choice survives a restart, and nothing unchecked is loaded."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from meshnode.domain.training.agreement import WeightsVersion
from meshnode.model.checkpoint import dump_anchor
from meshnode.model.documents import ModelUnreadable
from meshnode.model.files import open_files
from meshnode.model.kernels.formats import Format, rounded
from meshnode.model.kv import KVCache
from meshnode.model.loading import load_model
from meshnode.model.manifest import manifest_of
from meshnode.model.trained_files import TrainedFiles
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


def exact_in(weight: torch.Tensor, form: Format) -> torch.Tensor:
    """A matrix that a format holds exactly, and no smaller one does."""
    if form is not Format.INT4:
        return rounded(weight, form)
    quants = (weight * 40).round().clamp(-8, 7)
    quants[:, ::32] = -8
    return quants / 64


@pytest.mark.parametrize(
    ("stored", "form"),
    [
        ([Format.FLOAT32], Format.FLOAT32),
        ([Format.BFLOAT16], Format.BFLOAT16),
        ([Format.INT8, Format.BFLOAT16], Format.BFLOAT16),
        ([Format.FLOAT16, Format.BFLOAT16], Format.FLOAT32),
        ([Format.INT8], Format.INT8),
        ([Format.INT4, Format.INT8], Format.INT8),
    ],
)
def test_trained_weights_take_the_memory_that_the_origin_takes(
    directory: Path, tmp_path: Path, stored: list[Format], form: Format
) -> None:
    origin = tmp_path / "origin"
    shutil.copytree(directory, origin)
    tensors = load_file(origin / "model.safetensors")
    for number, (name, tensor) in enumerate(tensors.items()):
        if tensor.dim() == 2:
            tensors[name] = exact_in(tensor, stored[number % len(stored)])
    save_file(tensors, origin / "model.safetensors", metadata={"format": "pt"})
    path, anchor = trained(origin, tmp_path, 1, 1e-4)
    files = TrainedFiles(open_files(origin), path)
    assert files.auto_format is form

    auto, named = (load_model(files, dtype=name) for name in ("auto", form.name.lower()))
    assert auto.weight_bytes == named.weight_bytes
    tokens = torch.arange(20)[None]
    results = [
        each.decoder(tokens, [KVCache.allocate(each.config, 4, 20, each.decoder.cache_dtype)])
        for each in (auto, named)
    ]
    assert torch.equal(*results)
    # Peers compare the class of the setting.
    assert auto.numeric_class == load_model(origin, dtype="auto").numeric_class
    assert anchor.model_hash != TrainedModel(origin).anchor.model_hash
