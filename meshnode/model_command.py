"""``meshnode model``: the weights that a node's training has made (interface 2.3: checkpoints).

Reads the data folder of a node, which may be running; changes nothing there.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import safetensors.torch

from meshnode.assembly.shards import TRAINING_FOLDER
from meshnode.config import NETWORK_MODEL, Config
from meshnode.datadir import write_private
from meshnode.domain.errors import InvalidRequest, StartupError
from meshnode.model.files import TOKENIZER_CONFIG_FILE, ModelFiles, locate_model, open_files
from meshnode.model.loading import DEFAULT_MODEL
from meshnode.model.manifest import FILES, Manifest, manifest_of
from meshnode.services.model_source import CACHE_FILE, CURRENT_FILE, MODELS_FOLDER
from meshnode.services.training.resting import RestingTraining

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
    resting = RestingTraining(folder, manifest.weights_hash)
    if options.action == "list":
        _list(resting, manifest)
    else:
        _export(resting, files, manifest, options)


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
    try:
        options.out.mkdir(parents=True)
        for name in COPIED:
            data = files.read(name)
            if data is not None:
                write_private(options.out / name, data)
        weights = {name: tensor.contiguous() for name, tensor in anchor.weights.items()}
        # "format" tells transformers which library wrote the file.
        data = safetensors.torch.save(weights, {"format": "pt"})
        write_private(options.out / WEIGHTS_FILE, data)
    except FileExistsError:
        raise InvalidRequest("--out", f"{options.out} exists already") from None
    except OSError as error:
        raise StartupError(f"cannot write {options.out}: {error.strerror}") from None
    print(f"written: {options.out}, version {version}, weights {anchor.model_hash}")
