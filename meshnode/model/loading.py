"""A model's files, loaded as a whole or by layers (interface 1).

Invariants: only what the held layers need is read; weights are in memory in the format that was
asked for, whatever they are on disk, and packed layer by layer; unusable files end as one
``ModelUnreadable`` line that names the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import torch
from torch import nn

from meshnode.domain.generation import ModelCard
from meshnode.domain.units import GIBIBYTE
from meshnode.model.accelerator.device import Accelerator
from meshnode.model.accelerator.matrix import DeviceEmbedding, DeviceHead, DeviceMatrix
from meshnode.model.config import DecoderConfig
from meshnode.model.decoder import Decoder
from meshnode.model.documents import ModelUnreadable
from meshnode.model.files import (
    CHAT_FILES,
    CONFIG_FILE,
    GENERATION_FILE,
    TOKENIZER_FILE,
    ChatFormat,
    ModelFiles,
    open_files,
)
from meshnode.model.kernels.formats import DTYPES, Format, chosen
from meshnode.model.kernels.fused import PackedEmbedding, PackedMatrix
from meshnode.model.kernels.library import Matrix
from meshnode.model.linear import Packing
from meshnode.model.naming import decoder_parameters
from meshnode.model.numerics import numeric_class
from meshnode.model.tokenizer import Tokenizer
from meshnode.model.weights import StoredRows, load_weights, save_weights

ASSETS = Path(__file__).parent.parent / "assets"
DEFAULT_MODEL = ASSETS / "default"
"""The model that ships with the package."""

BYTES_PER_WEIGHT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What is known of a loaded model, without its weights."""

    card: ModelCard
    config: DecoderConfig
    tokenizer: Tokenizer
    eos_token_ids: frozenset[int]
    """The tokens that end a text."""
    weight_bytes: int
    """Memory that the weights take."""
    chat_format: ChatFormat
    numeric_class: str = ""
    """What its bits depend on, besides the weights (``model.numerics``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel(ModelFacts):
    """A model, or the held layers of one, ready to compute."""

    decoder: Decoder

    @property
    def facts(self) -> ModelFacts:
        """The same without the weights, for those who must not keep these in memory."""
        return ModelFacts(**{one.name: getattr(self, one.name) for one in fields(ModelFacts)})


def load_model(
    model: Path | ModelFiles,
    layers: Sequence[int] | None = None,
    *,
    threads: int = 0,
    trainable: bool = False,
    dtype: str = "float32",
    where: Accelerator | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> LoadedModel:
    """Load the ``layers`` (ascending and contiguous; all by default) of a model.

    ``model`` is a directory in Hugging Face's layout, a GGUF file, or the files of either.

    ``threads`` sets how many threads torch computes with, in the whole process; 0 leaves that to
    torch. Weights are packed for inference, in the format ``dtype`` (a key of ``DTYPES``), unless
    the model is to be ``trainable``. They are put on the device ``where`` as they are read, if it
    is not the CPU; a model that is trainable never is. ``progress`` is told how many of the layers
    are loaded. Blocks for as long as the disk takes. Raises ModelUnreadable.
    """
    if threads > 0:
        torch.set_num_threads(threads)
    files = model if isinstance(model, ModelFiles) else open_files(model)
    config, tokenizer = files.config(), files.tokenizer()
    if tokenizer.vocab_size > config.vocab_size:
        raise ModelUnreadable(
            f"{files.path}: the tokenizer has {tokenizer.vocab_size} tokens, "
            f"the model only {config.vocab_size}"
        )
    eos_token_ids = frozenset((*config.eos_token_ids, *files.generation_eos()))
    held = _held(layers, config.num_layers)
    try:
        decoder = _load_decoder(files, config, held, None if trainable else dtype, where, progress)
        found = "" if trainable else numeric_class(dtype, where)
    except (MemoryError, RuntimeError) as error:
        # torch raises RuntimeError when an allocation in the host's memory fails.
        if isinstance(error, RuntimeError) and "alloc" not in str(error):
            raise
        raise ModelUnreadable(f"{files.path}: {_misfit(where)}") from None
    return LoadedModel(
        card=_card(files.name, decoder),
        config=config,
        tokenizer=tokenizer,
        decoder=decoder,
        eos_token_ids=eos_token_ids,
        weight_bytes=_weight_bytes(decoder),
        chat_format=files.chat_format(),
        numeric_class=found,
    )


def save_model(directory: Path, decoder: Decoder, tokenizer: Path | ModelFiles) -> None:
    """Write an unpacked decoder of all layers as a directory that ``load_model`` reads.

    ``tokenizer`` is a ``tokenizer.json``, or a model's files, whose chat template and tokens that
    end a text are written too.
    """
    directory.mkdir(parents=True, exist_ok=True)
    decoder.config.write(directory / CONFIG_FILE)
    save_weights(decoder, directory)
    if isinstance(tokenizer, Path):
        (directory / TOKENIZER_FILE).write_bytes(tokenizer.read_bytes())
        return
    for name in (TOKENIZER_FILE, GENERATION_FILE, *CHAT_FILES):
        data = tokenizer.read(name)
        if data is not None:
            (directory / name).write_bytes(data)


def _load_decoder(
    files: ModelFiles,
    config: DecoderConfig,
    held: range,
    dtype: str | None,
    where: Accelerator | None,
    progress: Callable[[int, int], None],
) -> Decoder:
    """The decoder, packed in the format ``dtype``; unpacked and trainable without one."""
    with torch.device("meta"):
        decoder = Decoder(config, held)
    with files.checkpoint() as checkpoint:
        if dtype is None:
            load_weights(decoder, checkpoint)
            return decoder
        decoder.requires_grad_(requires_grad=False)
        form = DTYPES[dtype]
        packing = Packing(decoder, files.auto_format if form is None else form, where=where)

        def loaded(index: int | None, stored: Mapping[str, StoredRows]) -> None:
            if index is None:
                packing.finish(stored)
            else:
                packing.layer(index, stored)
                progress(index + 1, len(held))

        load_weights(decoder, checkpoint, loaded, by_rows=packing.by_rows)
    return decoder


def _misfit(where: Accelerator | None) -> str:
    if where is None:
        return "the model does not fit in memory"
    total = where.memory().total / GIBIBYTE
    return (
        f"the model does not fit in the {total:.1f} GiB of {where.setting}; fewer layers "
        "(--layers), a narrower --dtype or --device cpu would serve"
    )


def expected_bytes(files: ModelFiles, layers: Sequence[int], dtype: str) -> int:
    """What the weights of these layers will take, by estimate. Blocks. Raises ModelUnreadable.

    Without a format, the first matrix of the layers stands for all.
    """
    config, form = files.config(), DTYPES[dtype]
    form = files.auto_format if form is None else form
    if form is None:
        parameters = decoder_parameters(config, range(layers[0], layers[-1] + 1))
        matrices = (parts for _, parts in parameters if len(parts[0].shape) == 2)
        with files.checkpoint() as checkpoint:
            form = chosen(StoredRows(checkpoint, next(matrices)), None)
    return packed_bytes(config, layers, form)


def _held(layers: Sequence[int] | None, num_layers: int) -> range:
    if layers is None:
        return range(num_layers)
    if not layers:
        raise ModelUnreadable("no layers to load")
    held = range(layers[0], layers[0] + len(layers))
    if list(layers) != list(held):
        raise ModelUnreadable("layers must be ascending and without gaps")
    if held.start < 0 or held.stop > num_layers:
        raise ModelUnreadable(f"the model has layers 0 to {num_layers - 1} only")
    return held


def _weight_bytes(decoder: Decoder) -> int:
    """Memory of the held weights.

    Packed for torch's operators, a tied head is a second copy of the embedding.
    """
    config = decoder.config
    if decoder.fused is not None:
        matrices = {id(m): m for m in map(_matrix, (decoder.embedding, decoder.head)) if m}
        return sum(decoder.fused.layer_bytes) + sum(each.nbytes for each in matrices.values())
    tables = decoder.is_first + decoder.is_last
    weights = len(decoder.held) * config.layer_parameters
    return BYTES_PER_WEIGHT * (weights + tables * config.vocab_size * config.hidden_size)


def packed_bytes(config: DecoderConfig, layers: Sequence[int], form: Format) -> int:
    """Memory of these layers' weights in compiled kernels or on a device, in a format."""
    ends = (0 in layers) + (config.num_layers - 1 in layers)
    tables = min(ends, 1) if config.tied_head else ends
    weights = len(layers) * config.layer_parameters
    return int(form.bits / 8 * (weights + tables * config.vocab_size * config.hidden_size))


def _matrix(table: nn.Module | None) -> Matrix | DeviceMatrix | None:
    packed = PackedEmbedding | PackedMatrix | DeviceEmbedding | DeviceHead
    return table.matrix if isinstance(table, packed) else None


def _card(name: str, decoder: Decoder) -> ModelCard:
    config = decoder.config
    fused, one = decoder.fused, config.layer_parameters * BYTES_PER_WEIGHT
    layer_bytes = fused.layer_bytes if fused else [one] * len(decoder.held)
    return ModelCard(
        name=name,
        num_layers=config.num_layers,
        hidden_dim=config.hidden_size,
        vocab_size=config.vocab_size,
        context_length=config.context_length,
        parameters=config.parameters,
        layers=tuple(decoder.held),
        layer_bytes=dict(zip(decoder.held, layer_bytes, strict=True)),
    )
