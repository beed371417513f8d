"""Which weights a model has, and their digest (interface 2.3: ``model_hash``, WeightRequest).

Terms: the *manifest* lists every tensor of a model by its checkpoint name, with its shape and the
SHA-256 of its values; the *model hash* is the SHA-256 of the manifest's lines in name order, so it
stands for all weights, and any part of them can be checked against it (decision 0047).

Invariant: values are hashed as row-major little-endian float32, so a model has one hash whatever
type its files store.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from meshnode.model.config import DecoderConfig, ModelUnreadable
from meshnode.model.naming import Part, decoder_parameters
from meshnode.model.weights import Checkpoint

MANIFEST_FILE = "manifest.json"
FORMAT = "meshnode-manifest-v1"


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """One tensor: ``sha256`` is of its float32 values, 64 lowercase hex characters."""

    name: str
    shape: tuple[int, ...]
    sha256: str

    @property
    def line(self) -> bytes:
        """The tensor's line in the text that the model hash covers."""
        return f"{self.name} {'x'.join(map(str, self.shape))} {self.sha256}\n".encode()


@dataclass(frozen=True)
class Manifest:
    """All tensors of a model."""

    tensors: Mapping[str, TensorFacts]

    @cached_property
    def model_hash(self) -> str:
        """64 lowercase hex characters."""
        lines = (self.tensors[name].line for name in sorted(self.tensors))
        return hashlib.sha256(b"".join(lines)).hexdigest()

    def document(self) -> dict[str, Any]:
        """The manifest as JSON. :func:`read_manifest` is the inverse."""
        facts = [self.tensors[name] for name in sorted(self.tensors)]
        tensors = [{"name": f.name, "shape": list(f.shape), "sha256": f.sha256} for f in facts]
        return {"format": FORMAT, "model_hash": self.model_hash, "tensors": tensors}

    def check(self, name: str, tensor: Tensor) -> None:
        """Raise ModelUnreadable unless ``tensor`` matches the manifest's entry for ``name``."""
        facts = self.tensors.get(name)
        if facts is None or facts != tensor_facts(name, tensor):
            raise ModelUnreadable(f"tensor {name} is not the one that the model's hash stands for")


def tensor_facts(name: str, tensor: Tensor) -> TensorFacts:
    """Hash the values of ``tensor``, of any float type."""
    values = tensor.detach().to(torch.float32).contiguous()
    if sys.byteorder == "big":  # pragma: no cover - no such machine is supported by torch's wheels
        raise ModelUnreadable("weights are hashed on little-endian machines only")
    digest = hashlib.sha256(values.numpy().data).hexdigest()
    return TensorFacts(name, tuple(tensor.shape), digest)


def manifest_of_tensors(tensors: Iterable[tuple[str, Tensor]]) -> Manifest:
    """The manifest of weights in memory, by their checkpoint names."""
    return Manifest({name: tensor_facts(name, tensor) for name, tensor in tensors})


def parts_of(config: DecoderConfig, held: range | None = None) -> dict[str, Part]:
    """The checkpoint's tensors for the layers ``held`` (all by default), by name."""
    layers = range(config.num_layers) if held is None else held
    return {part.name: part for _, parts in decoder_parameters(config, layers) for part in parts}


def manifest_of_directory(directory: Path, config: DecoderConfig, cache: Path) -> Manifest:
    """The manifest of a model directory. ``cache`` saves reading a large model at each start.

    A directory that came from the network brings the manifest with it. Raises ModelUnreadable.
    """
    if (directory / MANIFEST_FILE).exists():
        return read_manifest((directory / MANIFEST_FILE).read_bytes())
    files = sorted((*directory.glob("*.safetensors"), *directory.glob("*.safetensors.index.json")))
    stats = [(file, file.stat()) for file in files]
    identity = [[str(file.resolve()), stat.st_size, stat.st_mtime_ns] for file, stat in stats]
    try:
        known = json.loads(cache.read_bytes())
        if known["identity"] == identity:
            return read_manifest(json.dumps(known["manifest"]).encode())
    except (OSError, ValueError, KeyError, TypeError, ModelUnreadable):
        # Without a usable cache, the files themselves are read.
        known = None
    with Checkpoint(directory) as checkpoint:
        wanted = parts_of(config).values()
        manifest = manifest_of_tensors((p.name, checkpoint.parameter([p])) for p in wanted)
    document = {"identity": identity, "manifest": manifest.document()}
    # Without it the files are read again next time.
    with contextlib.suppress(OSError), _open_private(cache) as file:
        json.dump(document, file)
    return manifest


def _open_private(path: Path) -> IO[str]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8")


def read_manifest(data: bytes) -> Manifest:
    """Parse a manifest. Raises ModelUnreadable if it is invalid or does not match its hash."""
    try:
        document = json.loads(data)
        tensors = [
            TensorFacts(str(t["name"]), tuple(int(n) for n in t["shape"]), str(t["sha256"]))
            for t in document["tensors"]
        ]
        manifest = Manifest({facts.name: facts for facts in tensors})
        sound = document["format"] == FORMAT and document["model_hash"] == manifest.model_hash
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        sound = False
    if not sound:
        raise ModelUnreadable("the manifest of the weights is damaged")
    return manifest
