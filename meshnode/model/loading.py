"""A model directory in Hugging Face's layout, loaded as a whole or by layers (interface 1).

``config.json`` gives the shape, ``tokenizer.json`` the vocabulary, safetensors the weights, and
``generation_config.json``, where there is one, further end-of-text tokens.

Invariants: only what the held layers need is read; weights are float32 in memory, whatever they
are on disk; an unusable directory ends as one ``ModelUnreadable`` line that names the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from meshnode.domain.generation import ModelCard
from meshnode.model.config import DecoderConfig, ModelUnreadable, read_document, token_ids
from meshnode.model.decoder import Decoder
from meshnode.model.linear import pack
from meshnode.model.tokenizer import Tokenizer
from meshnode.model.weights import Checkpoint, load_weights, save_weights

ASSETS = Path(__file__).parent.parent / "assets"
DEFAULT_MODEL = ASSETS / "default"
"""The model that ships with the package."""

CONFIG_FILE = "config.json"
TOKENIZER_FILE = "tokenizer.json"
GENERATION_FILE = "generation_config.json"
CHAT_FILES = ("chat_template.jinja", "tokenizer_config.json")
"""Files that say how a conversation becomes a prompt."""

BYTES_PER_WEIGHT = 4


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model, or the held layers of one, ready to compute."""

    card: ModelCard
    tokenizer: Tokenizer
    decoder: Decoder
    eos_token_ids: frozenset[int]
    """The tokens that end a text."""
    weight_bytes: int
    """Memory that the weights take."""


def load_model(
    directory: Path,
    layers: Sequence[int] | None = None,
    *,
    threads: int = 0,
    trainable: bool = False,
) -> LoadedModel:
    """Load the ``layers`` (ascending and contiguous; all by default) of a model directory.

    ``threads`` sets how many threads torch computes with, in the whole process; 0 leaves that to
    torch. Weights are packed for inference unless the model is to be ``trainable``. Blocks for as
    long as the disk takes. Raises ModelUnreadable.
    """
    if threads > 0:
        torch.set_num_threads(threads)
    if not directory.is_dir():
        raise ModelUnreadable(f"{directory}: no such directory")
    config = DecoderConfig.read(directory / CONFIG_FILE)
    tokenizer = Tokenizer.read(directory / TOKENIZER_FILE)
    if tokenizer.vocab_size > config.vocab_size:
        raise ModelUnreadable(
            f"{directory}: the tokenizer has {tokenizer.vocab_size} tokens, "
            f"the model only {config.vocab_size}"
        )
    eos_token_ids = frozenset((*config.eos_token_ids, *_generation_eos(directory)))
    decoder = _load_decoder(directory, config, _held(layers, config.num_layers))
    if not trainable:
        decoder.requires_grad_(requires_grad=False)
        pack(decoder)
    return LoadedModel(
        card=_card(directory, decoder),
        tokenizer=tokenizer,
        decoder=decoder,
        eos_token_ids=eos_token_ids,
        weight_bytes=_weight_bytes(decoder),
    )


def save_model(directory: Path, decoder: Decoder, tokenizer_file: Path) -> None:
    """Write an unpacked decoder of all layers as a directory that ``load_model`` reads."""
    directory.mkdir(parents=True, exist_ok=True)
    decoder.config.write(directory / CONFIG_FILE)
    save_weights(decoder, directory)
    (directory / TOKENIZER_FILE).write_bytes(tokenizer_file.read_bytes())


def _load_decoder(directory: Path, config: DecoderConfig, held: range) -> Decoder:
    with torch.device("meta"):
        decoder = Decoder(config, held)
    try:
        with Checkpoint(directory) as checkpoint:
            load_weights(decoder, checkpoint)
    except (MemoryError, RuntimeError) as error:
        # torch raises RuntimeError when an allocation fails.
        if isinstance(error, RuntimeError) and "alloc" not in str(error):
            raise
        raise ModelUnreadable(f"{directory}: the model does not fit in memory") from None
    return decoder


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


def _generation_eos(directory: Path) -> tuple[int, ...]:
    path = directory / GENERATION_FILE
    if not path.exists():
        return ()
    try:
        return token_ids(read_document(path), "eos_token_id")
    except ModelUnreadable as error:
        raise ModelUnreadable(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None


def _weight_bytes(decoder: Decoder) -> int:
    """Memory of the held weights. Once packed, a tied head is a second copy of the embedding."""
    config = decoder.config
    tables = decoder.is_first + decoder.is_last
    weights = len(decoder.held) * config.layer_parameters
    return BYTES_PER_WEIGHT * (weights + tables * config.vocab_size * config.hidden_size)


def _card(directory: Path, decoder: Decoder) -> ModelCard:
    config = decoder.config
    layer_bytes = config.layer_parameters * BYTES_PER_WEIGHT
    return ModelCard(
        name=directory.resolve().name,
        num_layers=config.num_layers,
        hidden_dim=config.hidden_size,
        vocab_size=config.vocab_size,
        context_length=config.context_length,
        parameters=config.parameters,
        layers=tuple(decoder.held),
        layer_bytes=dict.fromkeys(decoder.held, layer_bytes),
    )
