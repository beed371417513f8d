"""Weights in safetensors files: one file, or several with an index (Hugging Face layout).

Terms: a *checkpoint* is all the weights of a model, in one or several files.

Invariants: files are mapped into memory and only the tensors asked for are read; nothing is ever
unpickled; any fault of the files is reported as one ``ModelUnreadable`` line.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from meshnode.model.config import ModelUnreadable, read_document
from meshnode.model.decoder import Decoder
from meshnode.model.naming import Part, decoder_parameters

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

_FLOATS = {torch.float32, torch.float16, torch.bfloat16}


class Checkpoint:
    """The open files of a checkpoint. A context manager; tensors outlive it."""

    def __init__(self, directory: Path) -> None:
        """Find the files. Raises ModelUnreadable."""
        self._stack = ExitStack()
        self._files: dict[Path, Any] = {}
        self._where: dict[str, Path] | None = None
        self._single = directory / SINGLE_FILE
        self._index = directory / INDEX_FILE
        if self._index.exists() and not self._single.exists():
            self._where = _weight_map(self._index)
        elif not self._single.exists():
            pickled = any(directory.glob("*.bin")) or any(directory.glob("*.pt"))
            hint = "; pickled weights are never read, convert them first" if pickled else ""
            raise ModelUnreadable(f"{self._single}: no such file{hint}")

    def __enter__(self) -> Self:
        """Open nothing yet: each file is opened when one of its tensors is first requested."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close the files."""
        self._stack.close()

    def parameter(self, parts: list[Part]) -> Tensor:
        """The parts, joined along their rows, as a new float32 tensor. Raises ModelUnreadable."""
        if len(parts) == 1:
            return self._read(parts[0]).to(torch.float32, copy=True)
        # torch.cat converts and copies in one operation, so no part is in memory twice.
        stacked = torch.empty(sum(p.shape[0] for p in parts), *parts[0].shape[1:])
        return torch.cat([self._read(part) for part in parts], out=stacked)

    def rows(self, part: Part, first: int, stop: int) -> Tensor:
        """Rows ``first`` to ``stop`` of a tensor, in its stored type. Raises ModelUnreadable."""
        return self._read(part)[first:stop].contiguous()

    def validate(self, part: Part) -> None:
        """Raise ModelUnreadable unless the tensor is there in its shape. Reads only headers."""
        path, file = self._file_of(part)
        try:
            shape = tuple(file.get_slice(part.name).get_shape())
        except SafetensorError:
            raise ModelUnreadable(f"{path}: tensor {part.name} is missing") from None
        self._require_shape(path, part, shape)

    def _file_of(self, part: Part) -> tuple[Path, Any]:
        path = self._single if self._where is None else self._where.get(part.name)
        if path is None:
            raise ModelUnreadable(f"{self._index}: tensor {part.name} is in no file")
        return path, self._open(path)

    def _read(self, part: Part) -> Tensor:
        path, file = self._file_of(part)
        try:
            tensor: Tensor = file.get_tensor(part.name)
        except SafetensorError:
            raise ModelUnreadable(f"{path}: tensor {part.name} is missing") from None
        if tensor.dtype not in _FLOATS:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise ModelUnreadable(f"{path}: tensor {part.name} has the unsupported type {kind}")
        self._require_shape(path, part, tuple(tensor.shape))
        return tensor

    def _require_shape(self, path: Path, part: Part, shape: tuple[int, ...]) -> None:
        if shape != part.shape:
            raise ModelUnreadable(
                f"{path}: tensor {part.name} has shape {list(shape)}, "
                f"the configuration says {list(part.shape)}"
            )

    def _open(self, path: Path) -> Any:
        if path not in self._files:
            try:
                self._files[path] = self._stack.enter_context(safe_open(path, framework="pt"))
            except FileNotFoundError:
                raise ModelUnreadable(f"{path}: no such file") from None
            except OSError as error:
                reason = error.strerror or "cannot be read"
                raise ModelUnreadable(f"{path}: {reason}") from None
            except SafetensorError as error:
                reason = " ".join(str(error).split())
                raise ModelUnreadable(f"{path}: not a whole safetensors file ({reason})") from None
        return self._files[path]


def load_weights(decoder: Decoder, checkpoint: Checkpoint) -> None:
    """Load the weights into a decoder made on the meta device. Raises ModelUnreadable."""
    weights = {
        name: checkpoint.parameter(parts)
        for name, parts in decoder_parameters(decoder.config, decoder.held)
        if not _shares_embedding(decoder, name)
    }
    decoder.load_state_dict(weights, assign=True, strict=False)
    decoder.tie_head()


def save_weights(decoder: Decoder, directory: Path) -> None:
    """Write the held layers' weights as a Hugging Face checkpoint, in float32."""
    save_file(checkpoint_tensors(decoder), directory / SINGLE_FILE, metadata={"format": "pt"})


def checkpoint_tensors(decoder: Decoder) -> dict[str, Tensor]:
    """Copies of an unpacked decoder's weights, float32, by their checkpoint names."""
    own = dict(decoder.named_parameters(remove_duplicate=False))
    tensors: dict[str, Tensor] = {}
    for name, parts in decoder_parameters(decoder.config, decoder.held):
        rows = torch.split(own[name].detach(), [part.shape[0] for part in parts])
        tensors |= {part.name: row.clone() for part, row in zip(parts, rows, strict=True)}
    return tensors


@torch.no_grad()
def set_checkpoint_tensors(decoder: Decoder, tensors: Mapping[str, Tensor]) -> None:
    """The inverse of :func:`checkpoint_tensors`, in place. Needs all names and right shapes."""
    own = dict(decoder.named_parameters(remove_duplicate=False))
    for name, parts in decoder_parameters(decoder.config, decoder.held):
        own[name].copy_(torch.cat([tensors[part.name] for part in parts]))


def _shares_embedding(decoder: Decoder, name: str) -> bool:
    tied = decoder.config.tied_head and decoder.embedding is not None
    return tied and name == "head.weight"


def _weight_map(index: Path) -> dict[str, Path]:
    names = read_document(index).get("weight_map")
    if not isinstance(names, dict):
        raise ModelUnreadable(f"{index}: weight_map is missing")
    for name, file in names.items():
        # An index must not name a file outside its own folder.
        if not isinstance(file, str) or Path(file).name != file:
            raise ModelUnreadable(f"{index}: {name} is not in a file of this folder")
    return {name: index.parent / file for name, file in names.items()}
