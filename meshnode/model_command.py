"""``meshnode model``: the weights that a node's training has made (interface 2.3: checkpoints).

Reads the data folder of a node, which may be running; changes nothing there. A node that holds some
of the layers has kept these alone (decision 0201); an export joins them with those in the data
folders of the other nodes of its pipeline, or copies of these.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import safetensors.torch
from safetensors import safe_open

from meshnode.assembly.shards import TRAINING_FOLDER
from meshnode.config import NETWORK_MODEL, Config
from meshnode.datadir import write_private
from meshnode.domain.errors import InvalidRequest, StartupError
from meshnode.domain.training.position import PipelineVersion
from meshnode.model.files import (
    CONFIG_FILE,
    TOKENIZER_CONFIG_FILE,
    ModelFiles,
    locate_model,
    open_files,
)
from meshnode.model.joined_layers import Weights, joined
from meshnode.model.loading import DEFAULT_MODEL
from meshnode.model.manifest import FILES, Manifest, manifest_of
from meshnode.services.model_source import CACHE_FILE, CURRENT_FILE, MODELS_FOLDER
from meshnode.services.shards.trained_layers import kept_files
from meshnode.services.training.resting import RestingTraining
from meshnode.services.versions.store import FOLDER

WEIGHTS_FILE = "model.safetensors"
COPIED = (*FILES, TOKENIZER_CONFIG_FILE)


def run_model_command(options: argparse.Namespace, config: Config) -> None:
    """Carry out one action and print its outcome. Raises InvalidRequest or StartupError."""
    data_dir = Path(config.data_dir)
    folder = data_dir / TRAINING_FOLDER
    if not folder.is_dir():
        raise StartupError(f"no node has trained in {data_dir}")
    files = open_files(_model(config, data_dir))
    manifest = manifest_of(files, files.config(), data_dir / CACHE_FILE)
    layers = _kept(data_dir, manifest)
    if options.action == "list":
        # Of a node that has trained both ways, the rounds of whole nodes are shown below.
        _list_layers(layers)
        _list(RestingTraining(folder, manifest.weights_hash), manifest)
    elif options.join or layers:
        parts = [layers, *(_kept_in(path, manifest) for path in options.join or ())]
        _export_layers(parts, files, manifest, options)
    else:
        _export(RestingTraining(folder, manifest.weights_hash), files, manifest, options)


def _model(config: Config, data_dir: Path) -> Path:
    if config.model == NETWORK_MODEL:
        models = data_dir / MODELS_FOLDER
        try:
            return models / (models / CURRENT_FILE).read_text().strip()
        except OSError:
            raise StartupError(f"no model was fetched into {data_dir}") from None
    return locate_model(config.model) if config.model else DEFAULT_MODEL


def _list(resting: RestingTraining, manifest: Manifest) -> None:
    kept, counts = resting.kept, resting.saved.counts
    print(f"{'version':>7}  {'hash':16}  {'held-out loss':>13}  {'steps':>9}")
    if kept.version:
        loss, steps = f"{resting.validation_loss:.4f}", f"{counts.steps:,}"
        print(f"{kept.version:>7}  {kept.model_hash[:16]}  {loss:>13}  {steps:>9}")
    print(f"{0:>7}  {manifest.weights_hash[:16]}  {'-':>13}  {0:>9}  as the node was started with")


def _export(
    resting: RestingTraining, files: ModelFiles, manifest: Manifest, options: argparse.Namespace
) -> None:
    version = resting.kept.version if options.version is None else options.version
    if version != resting.kept.version or not version:
        raise InvalidRequest(
            "--version", f"this node has trained version {resting.kept.version} only"
        )
    shapes = {name: facts.shape for name, facts in manifest.tensors.items()}
    anchor = resting.anchor(shapes)
    if anchor is None:
        raise StartupError(f"the weights of version {version} are gone")
    _write(options.out, files, anchor.weights)
    print(f"written: {options.out}, version {version}, weights {anchor.model_hash}")


def _kept(data_dir: Path, manifest: Manifest) -> dict[PipelineVersion, Path]:
    """The versions of layers in a data folder: those that are trained, and those served."""
    folders = (data_dir / FOLDER, data_dir / TRAINING_FOLDER)
    return {
        version: path
        for folder in folders
        for version, path in kept_files(folder, manifest.model_hash).items()
    }


def _kept_in(data_dir: Path, manifest: Manifest) -> dict[PipelineVersion, Path]:
    """The versions of layers in another node's data folder. Raises StartupError."""
    found = _kept(data_dir, manifest)
    if not found:
        raise StartupError(f"no layers of this model were trained in {data_dir}")
    return found


def _list_layers(layers: Mapping[PipelineVersion, Path]) -> None:
    for version, path in sorted(layers.items(), reverse=True):
        with safe_open(path, framework="pt") as file:
            held = file.metadata()["layers"]
        print(f"version {version} of layers {held}, trained in a pipeline")


def _export_layers(
    parts: Sequence[Mapping[PipelineVersion, Path]],
    files: ModelFiles,
    manifest: Manifest,
    options: argparse.Namespace,
) -> None:
    """Write what a pipeline has learned, from the folders of its nodes."""
    shared = [v for v in parts[0] if all(v in others for others in parts)]
    if options.version is not None:
        shared = [version for version in shared if version.number == options.version]
    if not shared:
        raise InvalidRequest("--join", "the folders have no version of the pipeline in common")
    version = max(shared)
    weights, changes = joined([part[version] for part in parts])
    missing = sorted(manifest.tensors.keys() - weights.keys())
    if missing:
        raise InvalidRequest(
            "--join",
            f"{missing[0]} is in none of the folders: name the data folders of the nodes that "
            "hold the other layers",
        )
    _write(options.out, files, weights, changes)
    print(f"written: {options.out}, version {version} of {len(parts)} nodes")


def _write(
    out: Path,
    files: ModelFiles,
    tensors: Weights,
    changes: Mapping[str, object] = MappingProxyType({}),
) -> None:
    """Write a model's directory. Raises InvalidRequest or StartupError."""
    try:
        out.mkdir(parents=True)
        for name in COPIED:
            data = files.read(name)
            if data is not None and name == CONFIG_FILE and changes:
                data = json.dumps({**json.loads(data), **changes}, indent=2).encode()
            if data is not None:
                write_private(out / name, data)
        weights = {name: tensor.contiguous() for name, tensor in tensors.items()}
        # "format" tells transformers which library wrote the file.
        data = safetensors.torch.save(weights, {"format": "pt"})
        write_private(out / WEIGHTS_FILE, data)
    except FileExistsError:
        raise InvalidRequest("--out", f"{out} exists already") from None
    except OSError as error:
        raise StartupError(f"cannot write {out}: {error.strerror}") from None
