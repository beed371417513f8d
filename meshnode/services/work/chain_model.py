"""Which model a chain is executed with (decision 0155).

The chain's model need not be the one that the node serves: it is the one that the setting
``chain.model`` names, or the default model. A chain that was started with the served model, as all
were before the setting existed, goes on with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from meshnode.domain.chain.canonical import Json, digest
from meshnode.model.documents import ModelUnreadable
from meshnode.model.files import TOKENIZER_FILE, open_files
from meshnode.model.loading import DEFAULT_MODEL
from meshnode.model.manifest import manifest_of

CACHE_FILE = "served-weights.json"


def chain_directory(
    chosen: Path | None,
    served: Path,
    manifest: Mapping[str, Json] | None,
    folder: Path,
    otherwise: Path = DEFAULT_MODEL,
) -> Path:
    """The model directory for a chain with the genesis ``manifest``; None stands for a new chain.

    ``chosen`` is the setting, ``served`` the files of the model that the node serves,
    ``folder`` keeps the hash of its weights, and ``otherwise`` is the answer when the chain has
    neither model. Blocks: reads the small files of both models, and the weights of the served one
    only if these are the same.
    """
    if chosen is not None:
        return chosen
    wanted = None if manifest is None else manifest.get("model")
    if not isinstance(wanted, dict) or served == DEFAULT_MODEL:
        return DEFAULT_MODEL
    default, same = _is(DEFAULT_MODEL, wanted), _is(served, wanted)
    if default and same:
        # Weights that were trained further have the same tokenizer and configuration.
        same = _weights_hash(served, folder) == wanted.get("weights_sha256")
    if same:
        return served
    return DEFAULT_MODEL if default else otherwise


def looks_like(directory: Path, manifest: Mapping[str, Json]) -> bool:
    """Whether the directory's small files are those of the chain with the genesis ``manifest``."""
    wanted = manifest.get("model")
    return isinstance(wanted, dict) and _is(directory, wanted)


def _is(directory: Path, wanted: Mapping[str, Json]) -> bool:
    """Whether the directory's tokenizer and configuration are those of a genesis."""
    try:
        files = open_files(directory)
        tokenizer = hashlib.sha256(files.read(TOKENIZER_FILE) or b"").hexdigest()
        config = digest(files.config().document())
    except (OSError, ModelUnreadable):
        return False
    return (tokenizer, config) == (wanted.get("tokenizer_sha256"), wanted.get("config_sha256"))


def _weights_hash(directory: Path, folder: Path) -> str:
    try:
        files = open_files(directory)
        return manifest_of(files, files.config(), folder / CACHE_FILE).weights_hash
    except (OSError, ModelUnreadable):
        return ""
