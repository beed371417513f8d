"""The model: configuration, tokenizer and the names and shapes of its weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from meshnode.config import AUTO, NETWORK_MODEL, held_layers
from meshnode.doctor.examination import Examination
from meshnode.doctor.findings import Finding, fault, ok, warning
from meshnode.domain.errors import StartupError
from meshnode.domain.units import GIBIBYTE
from meshnode.model.config import DecoderConfig, ModelUnreadable
from meshnode.model.loading import CONFIG_FILE, DEFAULT_MODEL, TOKENIZER_FILE
from meshnode.model.manifest import parts_of
from meshnode.model.tokenizer import Tokenizer
from meshnode.model.weights import Checkpoint
from meshnode.services.model_source import fetched_before

CHECK = "model"


def check(examination: Examination) -> Iterator[Finding]:
    """Read what is small, and the headers of what is large."""
    try:
        directory = directory_of(examination)
        if directory is None:
            yield ok(CHECK, "is fetched from the trackers at the first start")
            return
        yield from _examine(examination, directory)
    except (ModelUnreadable, StartupError) as error:
        yield fault(CHECK, str(error), "name a Hugging Face directory with --model")


def directory_of(examination: Examination) -> Path | None:
    """The model's directory; None for the network's model before it was fetched."""
    config = examination.config
    if config.model == NETWORK_MODEL:
        return fetched_before(examination.data_dir, config.model_hash)
    return Path(config.model) if config.model else DEFAULT_MODEL


def held_of(examination: Examination, shape: DecoderConfig) -> range:
    """The layers to hold; all where the node would choose. Raises StartupError."""
    config = examination.config
    held = None if config.layers == AUTO else held_layers(config)
    if held is not None and held.stop > shape.num_layers:
        raise StartupError(f"--layers: the model has layers 0 to {shape.num_layers - 1}")
    return held or range(shape.num_layers)


def _examine(examination: Examination, directory: Path) -> Iterator[Finding]:
    shape = DecoderConfig.read(directory / CONFIG_FILE)
    tokenizer = Tokenizer.read(directory / TOKENIZER_FILE)
    if tokenizer.vocab_size > shape.vocab_size:
        raise ModelUnreadable(f"{directory}: the tokenizer has more tokens than the model")
    held = held_of(examination, shape)
    with Checkpoint(directory) as checkpoint:
        for part in parts_of(shape, held).values():
            checkpoint.validate(part)
    size = 4 * shape.parameters / GIBIBYTE
    yield ok(
        CHECK,
        f"{directory.name}: layers {held.start}-{held.stop - 1} of {shape.num_layers}, "
        f"{size:.2g} GiB of weights as float32, context {shape.context_length}",
    )
    if len(held) < shape.num_layers and not examination.config.tracker_url:
        yield warning(
            CHECK, "holds some layers only, and no tracker is set", "other nodes must hold the rest"
        )
