"""The weights of a model: from files into a decoder and back (Hugging Face layout).

Terms: a *checkpoint* is all the weights of a model, in one or several files. Safetensors files are
read here, GGUF files in ``model.gguf_weights``.

Invariants: files are mapped into memory and only the tensors asked for are read; nothing is ever
unpickled; any fault of the files is reported as one ``ModelUnreadable`` line.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from threading import RLock
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from meshnode.model.decoder import Decoder
from meshnode.model.documents import ModelUnreadable, read_document
from meshnode.model.kernels.formats import Format, Quantised
from meshnode.model.naming import Part, decoder_parameters

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

MAPPED_BYTES = 32 << 20
"""About as much of a file stays mapped at most; a mapped page that was read counts as memory."""
_FLOATS = {torch.float32, torch.float16, torch.bfloat16}


class Checkpoint(ABC):
    """The open files of a checkpoint. A context manager; tensors outlive it."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Open nothing yet: each file is opened when one of its tensors is first requested."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close the files."""
        self._stack.close()

    def parameter(self, parts: list[Part]) -> Tensor:
        """The parts, joined along their rows, as a new float32 tensor. Raises ModelUnreadable."""
        stacked = torch.empty(sum(part.shape[0] for part in parts), *parts[0].shape[1:])
        sizes = [part.shape[0] for part in parts]
        for part, rows in zip(parts, torch.split(stacked, sizes), strict=True):
            self.copy(part, rows)
        return stacked

    @abstractmethod
    def copy(self, part: Part, out: Tensor) -> None:
        """Write a tensor to ``out``, which has its shape, as float32. Raises ModelUnreadable."""

    @abstractmethod
    def rows(self, part: Part, first: int, stop: int) -> Tensor:
        """Rows ``first`` to ``stop`` of a tensor, in its stored type. Raises ModelUnreadable."""

    def stored(self, part: Part, first: int, stop: int, form: Format) -> Quantised | None:
        """Rows as :func:`quantise` would make them, if the file has them so; None if not."""
        return None

    def release(self) -> None:  # noqa: B027 - not every kind of file has something to give back
        """Give back the memory of what was read; no tensor that shares it is used any more."""

    @abstractmethod
    def validate(self, part: Part) -> None:
        """Raise ModelUnreadable unless the tensor is there in its shape. Reads only headers."""


class SafetensorsCheckpoint(Checkpoint):
    """One safetensors file, or several with an index. Several threads may read from it."""

    _single: Path
    _index: Path
    _where: dict[str, Path] | None
    _files: dict[Path, Any]
    _unreleased: int
    _turn: RLock

    def __init__(self, directory: Path) -> None:
        """Find the files. Raises ModelUnreadable."""
        self._prepare(directory / SINGLE_FILE, directory / INDEX_FILE)
        if self._index.exists() and not self._single.exists():
            self._where = _weight_map(self._index)
        elif not self._single.exists():
            pickled = any(directory.glob("*.bin")) or any(directory.glob("*.pt"))
            hint = "; pickled weights are never read, convert them first" if pickled else ""
            raise ModelUnreadable(f"{self._single}: no such file{hint}")

    def _prepare(self, single: Path, index: Path) -> None:
        super().__init__()
        self._files, self._unreleased, self._where = {}, 0, None
        # A file must not be closed between its opening and a look into it.
        self._turn = RLock()
        self._single, self._index = single, index

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """A checkpoint that is one file of any name. Raises ModelUnreadable."""
        if not path.is_file():
            raise ModelUnreadable(f"{path}: no such file")
        found = cls.__new__(cls)
        found._prepare(path, path)
        return found

    def copy(self, part: Part, out: Tensor) -> None:
        """Write a tensor to ``out``, which has its shape, as float32. Raises ModelUnreadable."""
        out.copy_(self._read(part))
        self._count(out)

    def rows(self, part: Part, first: int, stop: int) -> Tensor:
        """Rows ``first`` to ``stop`` of a tensor, in its stored type. Raises ModelUnreadable."""
        rows = self._read(part)[first:stop].contiguous()
        self._count(rows)
        return rows

    def _count(self, read: Tensor) -> None:
        # What is in use keeps its part of a closed file mapped.
        with self._turn:
            self._unreleased += read.nbytes
            if self._unreleased > MAPPED_BYTES:
                self.release()

    def release(self) -> None:
        """Give back the memory of what was read: a mapped page counts until its file is closed."""
        with self._turn:
            self._stack.close()
            self._files.clear()
            self._unreleased = 0

    def validate(self, part: Part) -> None:
        """Raise ModelUnreadable unless the tensor is there in its shape. Reads only headers."""
        with self._turn:
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
        with self._turn:
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


class StoredRows:
    """A matrix of a checkpoint, its parts joined along their rows."""

    def __init__(self, checkpoint: Checkpoint, parts: list[Part]) -> None:
        """Nothing is read yet. Raises ModelUnreadable if a part is missing."""
        for part in parts:
            checkpoint.validate(part)
        self._checkpoint, self._parts = checkpoint, parts
        self.outputs = sum(part.shape[0] for part in parts)
        self.inputs = parts[0].shape[1]

    def read(self, first: int, stop: int) -> Tensor:
        """Rows ``first`` to ``stop``, float32. Raises ModelUnreadable."""
        found = [self._checkpoint.rows(*piece).float() for piece in self._pieces(first, stop)]
        return found[0] if len(found) == 1 else torch.cat(found)

    def stored(self, first: int, stop: int, form: Format) -> Quantised | None:
        """Rows ``first`` to ``stop`` as :class:`Rows` says. Raises ModelUnreadable."""
        found = []
        for piece in self._pieces(first, stop):
            held = self._checkpoint.stored(*piece, form)
            if held is None:
                return None
            found.append(held)
        return found[0] if len(found) == 1 else Quantised.joined(found)

    def _pieces(self, first: int, stop: int) -> Iterator[tuple[Part, int, int]]:
        """The parts in which these rows are, and their places there."""
        offset = 0
        for part in self._parts:
            begin, end = max(first - offset, 0), min(stop - offset, part.shape[0])
            if begin < end:
                yield part, begin, end
            offset += part.shape[0]


Loaded = Callable[[int | None, Mapping[str, StoredRows]], None]


def load_weights(
    decoder: Decoder,
    checkpoint: Checkpoint,
    loaded: Loaded = lambda index, stored: None,
    *,
    by_rows: bool = False,
) -> None:
    """Load the weights into a decoder made on the meta device. Raises ModelUnreadable.

    ``loaded`` is called with the index among the held layers of each layer that is complete, and
    then with None for the rest. With ``by_rows`` it also gets what reads the matrices, by the names
    of their parameters, and these stay on the meta device.
    """
    parameters = list(decoder_parameters(decoder.config, decoder.held))
    # Embedding and head come last, so that they are not there twice while layers are packed.
    parameters.sort(key=lambda parameter: _layer_of(parameter[0]) is None)
    rest: dict[str, StoredRows] = {}
    for layer, group in groupby(parameters, key=lambda parameter: _layer_of(parameter[0])):
        weights: dict[str, Tensor] = {}
        stored: dict[str, StoredRows] = {}
        for name, parts in group:
            if _shares_embedding(decoder, name):
                continue
            if by_rows and len(parts[0].shape) == 2:
                stored[name] = StoredRows(checkpoint, parts)
            else:
                weights[name] = checkpoint.parameter(parts)
        decoder.load_state_dict(weights, assign=True, strict=False)
        weights.clear()
        if layer is None:
            rest = stored
        else:
            loaded(layer, stored)
            checkpoint.release()
    decoder.tie_head()
    loaded(None, rest)
    checkpoint.release()


def _layer_of(name: str) -> int | None:
    return int(name.split(".")[1]) if name.startswith("layers.") else None


def save_weights(decoder: Decoder, directory: Path) -> None:
    """Write the held layers' weights as a Hugging Face checkpoint, in float32."""
    save_file(checkpoint_tensors(decoder), directory / SINGLE_FILE, metadata={"format": "pt"})


def checkpoint_tensors(decoder: Decoder) -> dict[str, Tensor]:
    """Copies of an unpacked decoder's weights, float32, by their checkpoint names."""
    return {name: view.clone() for name, view in checkpoint_views(decoder).items()}


def checkpoint_views(decoder: Decoder) -> dict[str, Tensor]:
    """An unpacked decoder's weights, float32, by their checkpoint names; they follow its steps."""
    own = dict(decoder.named_parameters(remove_duplicate=False))
    tensors: dict[str, Tensor] = {}
    for name, parts in decoder_parameters(decoder.config, decoder.held):
        rows = torch.split(own[name].detach(), [part.shape[0] for part in parts])
        tensors |= {part.name: row for part, row in zip(parts, rows, strict=True)}
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
