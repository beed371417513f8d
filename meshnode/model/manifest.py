"""What a model consists of, and its digest (interface 2.3: ``model_hash``, WeightRequest).

Terms: the *manifest* lists every tensor of a model by its checkpoint name, with its shape and the
SHA-256 of its values, and every small file that changes an answer, with its SHA-256. The *weights
hash* is the SHA-256 of the tensors' lines in name order; the *model hash* is that of the weights
hash and the files' lines. So it stands for the whole model, and any part can be checked against it
(decisions 0047, 0139).

Invariant: values are hashed as row-major little-endian float32, so weights have one hash whatever
type their files store.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from meshnode.model.config import DecoderConfig
from meshnode.model.documents import ModelUnreadable
from meshnode.model.files import (
    CHAT_FILES,
    CONFIG_FILE,
    GENERATION_FILE,
    TOKENIZER_FILE,
    DirectoryFiles,
    ModelFiles,
    open_files,
)
from meshnode.model.naming import Part, decoder_parameters
from meshnode.model.side_by_side import side_by_side

MANIFEST_FILE = "manifest.json"
FORMAT = "meshnode-manifest-v2"
WEIGHTS_ONLY_FORMAT = "meshnode-manifest-v1"
"""The format of earlier versions, whose model hash was the weights hash."""
MAX_BYTES = 16 << 20
"""A hundred thousand tensors; large models have a few thousand."""
FILES = (CONFIG_FILE, TOKENIZER_FILE, GENERATION_FILE, *CHAT_FILES)
"""The small files that a model hash covers, where they exist."""
REQUIRED_FILES = frozenset({CONFIG_FILE, TOKENIZER_FILE})

HASHED_AT_ONCE = 2
"""Tensors that are in memory at a time while a model's files are read."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


class WeightsOnly(ModelUnreadable):
    """A manifest of an earlier version, which covers neither tokenizer nor configuration."""

    def __init__(self) -> None:
        super().__init__(
            "its manifest covers neither tokenizer nor configuration: that node runs an earlier "
            "version"
        )


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
    """All tensors of a model, and the small files that change its answers."""

    tensors: Mapping[str, TensorFacts]
    files: Mapping[str, str]
    """SHA-256 by the names of the files."""

    @cached_property
    def weights_hash(self) -> str:
        """64 lowercase hex characters."""
        return hash_of_tensors(self.tensors)

    @cached_property
    def model_hash(self) -> str:
        """64 lowercase hex characters."""
        lines = [FORMAT, f"weights {self.weights_hash}"]
        lines += [f"{name} {digest}" for name, digest in sorted(self.files.items())]
        return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()

    def document(self) -> dict[str, Any]:
        """The manifest as JSON. :func:`read_manifest` is the inverse."""
        facts = [self.tensors[name] for name in sorted(self.tensors)]
        return {
            "format": FORMAT,
            "model_hash": self.model_hash,
            "weights_hash": self.weights_hash,
            "files": dict(sorted(self.files.items())),
            "tensors": [{"name": f.name, "shape": [*f.shape], "sha256": f.sha256} for f in facts],
        }

    def check(self, name: str, tensor: Tensor) -> None:
        """Raise ModelUnreadable unless ``tensor`` matches the manifest's entry for ``name``."""
        facts = self.tensors.get(name)
        if facts is None or facts != tensor_facts(name, tensor):
            raise ModelUnreadable(f"tensor {name} is not the one that the model's hash stands for")

    def check_file(self, name: str, data: bytes) -> None:
        """Raise ModelUnreadable unless ``data`` is the file that the manifest lists."""
        if hashlib.sha256(data).hexdigest() != self.files.get(name):
            raise ModelUnreadable(f"{name} is not the one that the model's hash stands for")

    def check_files(self, directory: Path) -> None:
        """Raise ModelUnreadable unless the directory has exactly the files of the manifest."""
        found = file_digests(DirectoryFiles(directory))
        for name in FILES:
            if found.get(name) != self.files.get(name):
                raise ModelUnreadable(
                    f"{directory / name} is not the one that the model's hash stands for"
                )


def hash_of_tensors(tensors: Mapping[str, TensorFacts]) -> str:
    """The weights hash: 64 lowercase hex characters."""
    lines = (tensors[name].line for name in sorted(tensors))
    return hashlib.sha256(b"".join(lines)).hexdigest()


def file_digests(files: ModelFiles) -> dict[str, str]:
    """The SHA-256 of each covered file that the model has. Raises ModelUnreadable."""
    found = {name: files.read(name) for name in FILES}
    return {n: hashlib.sha256(data).hexdigest() for n, data in found.items() if data is not None}


def tensor_facts(name: str, tensor: Tensor) -> TensorFacts:
    """Hash the values of ``tensor``, of any float type."""
    values = tensor.detach().to(torch.float32).contiguous()
    if sys.byteorder == "big":  # pragma: no cover - no such machine is supported by torch's wheels
        raise ModelUnreadable("weights are hashed on little-endian machines only")
    digest = hashlib.sha256(values.numpy().data).hexdigest()
    return TensorFacts(name, tuple(tensor.shape), digest)


def facts_of_tensors(tensors: Iterable[tuple[str, Tensor]]) -> dict[str, TensorFacts]:
    """The facts of weights in memory, by their checkpoint names."""
    return {name: tensor_facts(name, tensor) for name, tensor in tensors}


def parts_of(config: DecoderConfig, held: range | None = None) -> dict[str, Part]:
    """The checkpoint's tensors for the layers ``held`` (all by default), by name."""
    layers = range(config.num_layers) if held is None else held
    return {part.name: part for _, parts in decoder_parameters(config, layers) for part in parts}


def manifest_of_directory(path: Path, config: DecoderConfig, cache: Path) -> Manifest:
    """The manifest of a model's directory or GGUF file, as :func:`manifest_of` makes it."""
    return manifest_of(open_files(path), config, cache)


def manifest_of(files: ModelFiles, config: DecoderConfig, cache: Path) -> Manifest:
    """The manifest of a model. ``cache`` saves reading a large model at each start.

    A directory that came from the network brings the manifest with it. Raises ModelUnreadable.
    """
    digests = file_digests(files)
    kept = files.path / MANIFEST_FILE
    if kept.exists():
        try:
            manifest = read_manifest(kept.read_bytes())
        except WeightsOnly:
            return Manifest(_tensors(json.loads(kept.read_bytes())), digests)
        manifest.check_files(files.path)
        return manifest
    identity = _identity(files)
    tensors = _cached(identity, cache)
    if tensors is not None:
        return Manifest(tensors, digests)
    with files.checkpoint() as checkpoint:
        wanted = parts_of(config).values()

        def read(part: Part) -> TensorFacts:
            return tensor_facts(part.name, checkpoint.parameter([part]))

        found = side_by_side(read, wanted, HASHED_AT_ONCE)
        tensors = {facts.name: facts for facts in found}
    manifest = Manifest(tensors, digests)
    document = {"identity": identity, "manifest": manifest.document()}
    # Without it the files are read again next time.
    with contextlib.suppress(OSError), _open_private(cache) as file:
        json.dump(document, file)
    return manifest


def known_manifest(files: ModelFiles, cache: Path) -> Manifest | None:
    """The manifest of a model without reading its weights; None if that takes reading them.

    Writes nothing. Raises ModelUnreadable for damaged small files.
    """
    digests, kept = file_digests(files), files.path / MANIFEST_FILE
    tensors = None if kept.exists() else _cached(_identity(files), cache)
    if tensors is not None:
        return Manifest(tensors, digests)
    try:
        return read_manifest(kept.read_bytes())
    except (OSError, WeightsOnly):
        return None


def _identity(files: ModelFiles) -> list[list[str | int]]:
    """What tells the weights of a model apart from others without reading them."""
    stats = [(file, file.stat()) for file in files.weight_files()]
    return [[str(file.resolve()), stat.st_size, stat.st_mtime_ns] for file, stat in stats]


def _cached(identity: list[list[str | int]], cache: Path) -> dict[str, TensorFacts] | None:
    """What the cache has of these files; None if they must be read."""
    try:
        known = json.loads(cache.read_bytes())
        return _tensors(known["manifest"]) if known["identity"] == identity else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError, ModelUnreadable):
        return None


def _open_private(path: Path) -> IO[str]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8")


def read_manifest(data: bytes) -> Manifest:
    """Parse a manifest. Raises ModelUnreadable if it is invalid or does not match its hashes.

    WeightsOnly is raised for a sound manifest of an earlier version.
    """
    if len(data) > MAX_BYTES:
        raise _damaged()
    try:
        document = json.loads(data)
        tensors = _tensors(document)
        if document["format"] == WEIGHTS_ONLY_FORMAT:
            raise WeightsOnly
        files = {str(name): str(digest) for name, digest in document["files"].items()}
        manifest = Manifest(tensors, files)
        sound = document["format"] == FORMAT and document["model_hash"] == manifest.model_hash
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _damaged() from None
    known = REQUIRED_FILES <= files.keys() <= set(FILES)
    if not sound or not known or not all(map(_SHA256.fullmatch, files.values())):
        raise _damaged()
    return manifest


def _tensors(document: Any) -> dict[str, TensorFacts]:
    """The tensors of a manifest of either format. Raises ModelUnreadable, or as JSON raises."""
    try:
        facts = [
            TensorFacts(str(t["name"]), tuple(int(n) for n in t["shape"]), str(t["sha256"]))
            for t in document["tensors"]
        ]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        raise _damaged() from None
    tensors = {one.name: one for one in facts}
    names = {FORMAT: "weights_hash", WEIGHTS_ONLY_FORMAT: "model_hash"}
    if document[names[document["format"]]] != hash_of_tensors(tensors):
        raise _damaged()
    return tensors


def _damaged() -> ModelUnreadable:
    return ModelUnreadable("the manifest of the weights is damaged")
