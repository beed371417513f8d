"""The chain's model is chosen by the setting, else by what the genesis names (decision 0155)."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from meshnode.domain.chain.canonical import digest
from meshnode.model.files import open_files
from meshnode.model.loading import DEFAULT_MODEL
from meshnode.model.manifest import manifest_of
from meshnode.services.work.chain_model import chain_directory, looks_like
from spec_tests.model.small_models import make_model


def manifest_for(directory: Path, cache: Path) -> dict[str, Any]:
    files = open_files(directory)
    config = files.config()
    return {
        "model": {
            "weights_sha256": manifest_of(files, config, cache).weights_hash,
            "tokenizer_sha256": hashlib.sha256(
                (directory / "tokenizer.json").read_bytes()
            ).hexdigest(),
            "config_sha256": digest(config.document()),
        }
    }


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "other")


def test_a_new_chain_has_the_default_model_whatever_is_served(other: Path, tmp_path: Path) -> None:
    assert chain_directory(None, other, None, tmp_path) == DEFAULT_MODEL
    assert chain_directory(None, DEFAULT_MODEL, None, tmp_path) == DEFAULT_MODEL
    assert chain_directory(other, DEFAULT_MODEL, None, tmp_path) == other


def test_a_chain_that_was_started_with_the_served_model_keeps_it(
    other: Path, tmp_path: Path
) -> None:
    earlier = manifest_for(other, tmp_path / "cache")
    assert chain_directory(None, other, earlier, tmp_path) == other
    assert looks_like(other, earlier)
    assert not looks_like(DEFAULT_MODEL, earlier)


def test_a_chain_of_the_default_model_goes_on_beside_another(other: Path, tmp_path: Path) -> None:
    default = manifest_for(DEFAULT_MODEL, tmp_path / "cache")
    assert chain_directory(None, other, default, tmp_path) == DEFAULT_MODEL
    assert chain_directory(None, DEFAULT_MODEL, default, tmp_path) == DEFAULT_MODEL


def test_weights_decide_between_models_of_one_shape(tmp_path: Path) -> None:
    """A model that was trained further differs from the default one in nothing but its weights."""
    trained = tmp_path / "trained"
    shutil.copytree(DEFAULT_MODEL, trained)
    weights = load_file(trained / "model.safetensors")
    weights["model.norm.weight"] += 1
    save_file(weights, trained / "model.safetensors", metadata={"format": "pt"})
    default = manifest_for(DEFAULT_MODEL, tmp_path / "cache")
    theirs = manifest_for(trained, tmp_path / "cache")
    assert chain_directory(None, trained, default, tmp_path) == DEFAULT_MODEL
    assert chain_directory(None, trained, theirs, tmp_path) == trained


def test_a_chain_of_a_third_model_falls_back(other: Path, tmp_path: Path) -> None:
    third: dict[str, Any] = {"model": {"tokenizer_sha256": "0" * 64}}
    assert chain_directory(None, other, third, tmp_path) == DEFAULT_MODEL
    assert chain_directory(None, other, third, tmp_path, otherwise=other) == other
    assert chain_directory(None, tmp_path / "none", third, tmp_path) == DEFAULT_MODEL
    assert not looks_like(other, {})
