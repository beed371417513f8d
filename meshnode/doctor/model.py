"""The model: configuration, tokenizer and the names and shapes of its weights."""

from __future__ import annotations

from collections.abc import Iterator

from meshnode.config import AUTO, NETWORK_MODEL, held_layers
from meshnode.doctor.examination import Examination
from meshnode.doctor.findings import Finding, fault, ok, warning
from meshnode.domain.errors import StartupError
from meshnode.domain.units import GIBIBYTE
from meshnode.model.config import DecoderConfig
from meshnode.model.documents import ModelUnreadable
from meshnode.model.files import ModelFiles, open_files
from meshnode.model.manifest import known_manifest, parts_of
from meshnode.services.model_source import CACHE_FILE, fetched_before, named_files

CHECK = "model"


def check(examination: Examination) -> Iterator[Finding]:
    """Read what is small, and the headers of what is large."""
    try:
        files = files_of(examination)
        if files is None:
            yield ok(CHECK, "is fetched from the trackers at the first start")
            return
        yield from _examine(examination, files)
    except (ModelUnreadable, StartupError) as error:
        yield fault(CHECK, str(error), "name a Hugging Face directory or a GGUF file with --model")


def files_of(examination: Examination) -> ModelFiles | None:
    """The model's files; None for the network's model before it was fetched."""
    config = examination.config
    if config.model == NETWORK_MODEL:
        fetched = fetched_before(examination.data_dir, config.model_hash)
        return open_files(fetched) if fetched else None
    return named_files(config.model)


def held_of(examination: Examination, shape: DecoderConfig) -> range:
    """The layers to hold; all where the node would choose. Raises StartupError."""
    config = examination.config
    held = None if config.layers == AUTO else held_layers(config)
    if held is not None and held.stop > shape.num_layers:
        raise StartupError(f"--layers: the model has layers 0 to {shape.num_layers - 1}")
    return held or range(shape.num_layers)


def _examine(examination: Examination, files: ModelFiles) -> Iterator[Finding]:
    shape, tokenizer = files.config(), files.tokenizer()
    if tokenizer.vocab_size > shape.vocab_size:
        raise ModelUnreadable(f"{files.path}: the tokenizer has more tokens than the model")
    held = held_of(examination, shape)
    with files.checkpoint() as checkpoint:
        for part in parts_of(shape, held).values():
            checkpoint.validate(part)
    yield from _compare(examination, files)
    size = 4 * shape.parameters / GIBIBYTE
    yield ok(
        CHECK,
        f"{files.name}: layers {held.start}-{held.stop - 1} of {shape.num_layers}, "
        f"{size:.2g} GiB of weights as float32, context {shape.context_length}",
    )
    if len(held) < shape.num_layers and not examination.config.tracker_url:
        yield warning(
            CHECK, "holds some layers only, and no tracker is set", "other nodes must hold the rest"
        )


def _compare(examination: Examination, files: ModelFiles) -> Iterator[Finding]:
    """Whether the nodes of the network were started with this model, whatever version they serve.

    Only after a first start, which has left the hash in the data folder: the weights are not read.
    """
    manifest = known_manifest(files, examination.data_dir / CACHE_FILE)
    if manifest is None:
        return
    for reply in examination.replies:
        if reply.origin_hash not in ("", manifest.model_hash):
            yield warning(
                CHECK,
                f"{reply.node.name} was started with another model, {reply.origin_hash[:16]}; "
                f"this one is {manifest.model_hash[:16]}",
                "nodes share layers and train together only if they were started with one model",
            )
