"""Where a node's model comes from, and which layers of it the node holds (interface 1).

Settings: ``model`` is a directory or a GGUF file, the name of a packaged model, empty for the
default model, or ``network`` for the model that the trackers serve. ``layers`` is a range, ``all``,
or ``auto``, which chooses the layers that the network lacks and that fit in memory (decision 0048).
"""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from meshnode.config import AUTO, NETWORK_MODEL, Config, held_layers
from meshnode.datadir import write_private
from meshnode.domain.addresses import grpc_addresses
from meshnode.domain.errors import StartupError
from meshnode.domain.identity import NodeKey
from meshnode.domain.kademlia.node_id import parse_id
from meshnode.domain.placement import ModelSizes, choose_layers
from meshnode.domain.units import GIBIBYTE
from meshnode.memory import PROCESS_BYTES
from meshnode.model.accelerator.device import Accelerator
from meshnode.model.config import DecoderConfig
from meshnode.model.files import CONFIG_FILE, ModelFiles, locate_model, open_files
from meshnode.model.kernels.formats import DTYPES, Format
from meshnode.model.loading import DEFAULT_MODEL
from meshnode.model.manifest import (
    Manifest,
    manifest_of,
    manifest_of_directory,
    parts_of,
)
from meshnode.model.transfer import WeightFiles
from meshnode.model.weights import INDEX_FILE
from meshnode.services.weights import (
    Connect,
    Fetcher,
    Trackers,
    WeightServer,
    ask_coverage,
    missing_tensors,
    require_pinned,
)

log = logging.getLogger(__name__)

MODELS_FOLDER = "models"
CURRENT_FILE = "current"
"""File with the hash of the model that was fetched last, for a start without any tracker."""
CACHE_FILE = "manifest-cache.json"
LAYERS_FILE = "layers.json"
"""Which layers a node held that may move."""
WEIGHTS_SHARE = 0.75
"""Share of the process's memory that weights get when layers are chosen; keys and values need the
rest."""


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model's files, with the weights of the layers ``held``."""

    files: ModelFiles
    config: DecoderConfig
    held: range
    manifest: Manifest

    @property
    def directory(self) -> Path:
        """The directory, or the GGUF file."""
        return self.files.path

    def served(self) -> WeightServer:
        """A server of these weights for other nodes."""
        files = WeightFiles(self.files, self.config, self.held, self.manifest)
        return WeightServer(files, self.manifest.model_hash)


async def find_model(
    config: Config,
    key: NodeKey,
    connect: Connect,
    progress: Callable[[int, int], None] = lambda done, total: None,
    where: Accelerator | None = None,
    wanted: range | None = None,
) -> ModelSource:
    """Find, or fetch, the model and choose the layers. Raises StartupError in one line.

    ``where`` is the device whose memory ``auto`` chooses the layers for; None stands for the host.
    ``wanted`` are the layers to hold if they are chosen already.
    """
    trackers = grpc_addresses(config.tracker_url)
    data_dir = Path(config.data_dir)
    choice = _Choice(config, where, wanted)
    if config.model == NETWORK_MODEL:
        try:
            directory, shape, held = await _fetch(config, key, connect, trackers, progress, choice)
            files = open_files(directory)
        except OSError as error:
            raise StartupError(
                f"cannot keep the model of the network in {data_dir}: {error.strerror}"
            ) from None
    else:
        files = await trio.to_thread.run_sync(named_files, config.model)
        shape = await trio.to_thread.run_sync(files.config)
        coverage = [0] * shape.num_layers
        if config.layers == AUTO and wanted is None:
            coverage = await ask_coverage(connect, trackers, shape.num_layers)
        held = choice.layers(shape, coverage)
    manifest = await trio.to_thread.run_sync(
        partial(manifest_of, files, shape, data_dir / CACHE_FILE)
    )
    require_pinned(manifest, config.model_hash, str(files.path))
    log.info("the model is %s", manifest.model_hash)
    if may_move(config):
        remember_layers(data_dir, held, shape.num_layers)
    return ModelSource(files, shape, held, manifest)


def named_files(name: str) -> ModelFiles:
    """The files of the model that ``--model`` names, unless it is the network's. Blocks."""
    return open_files(locate_model(name) if name else DEFAULT_MODEL)


async def _fetch(
    config: Config,
    key: NodeKey,
    connect: Connect,
    trackers: Trackers,
    progress: Callable[[int, int], None],
    choice: _Choice,
) -> tuple[Path, DecoderConfig, range]:
    data_dir = Path(config.data_dir)
    folder = data_dir / MODELS_FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    own_id = parse_id(bytes.fromhex(key.node_id))
    fetcher = Fetcher(connect, own_id, config.port, folder)
    try:
        offer = await fetcher.offer(trackers, config.model_hash)
    except StartupError:
        known = fetched_before(data_dir, config.model_hash)
        if known is None:
            raise
        log.warning("no tracker answers: starting with the model that was fetched before")
        shape = DecoderConfig.read(known / CONFIG_FILE)
        held = choice.layers(shape, [0] * shape.num_layers)
        await trio.to_thread.run_sync(_validate_fetched, known, shape, held)
        return known, shape, held
    held = choice.layers(offer.config, offer.coverage())
    await fetcher.layers(offer, held, progress)
    write_private(folder / CURRENT_FILE, offer.manifest.model_hash.encode())
    return fetcher.home(offer.manifest.model_hash), offer.config, held


def fetched_before(data_dir: Path, pinned: str) -> Path | None:
    """The model directory that an earlier start has fetched, if there is one."""
    folder = data_dir / MODELS_FOLDER
    try:
        name = pinned or (folder / CURRENT_FILE).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    home = folder / Path(name).name
    return home if (home / INDEX_FILE).exists() else None


def _validate_fetched(home: Path, shape: DecoderConfig, held: range) -> None:
    """Raise StartupError unless all weights of ``held`` are there, as they were fetched."""
    manifest = manifest_of_directory(home, shape, home / CACHE_FILE)
    missing = missing_tensors(home, manifest, list(parts_of(shape, held)))
    if missing:
        raise StartupError(f"{home}: {missing[0]} is not there, or damaged; a tracker is needed")


async def fetch_layers(config: Config, key: NodeKey, connect: Connect, target: range) -> None:
    """Have the weights of ``target`` on the disk, too, if this node fetches its model.

    Raises StartupError if they cannot be fetched.
    """
    if config.model != NETWORK_MODEL:
        return
    folder = Path(config.data_dir) / MODELS_FOLDER
    fetcher = Fetcher(connect, parse_id(bytes.fromhex(key.node_id)), config.port, folder)
    current = (folder / CURRENT_FILE).read_text("ascii").strip()
    offer = await fetcher.offer(grpc_addresses(config.tracker_url), config.model_hash or current)
    await fetcher.layers(offer, target, keep=True)


def may_move(config: Config) -> bool:
    """Whether this node may hold other layers while it runs (decision 0250)."""
    return config.layers == AUTO and config.pipeline.move_layers


def remember_layers(data_dir: Path, held: range, num_layers: int) -> None:
    """Write down which layers this node holds, so that a restart goes on with them. OSError."""
    known = {"first": held.start, "last": held.stop - 1, "num_layers": num_layers}
    write_private(data_dir / LAYERS_FILE, json.dumps(known).encode())


def remembered_layers(data_dir: Path, num_layers: int) -> range | None:
    """The layers that this node held, of a model with so many; None if that is not known."""
    try:
        known = json.loads((data_dir / LAYERS_FILE).read_bytes())
        first, last, total = (known[name] for name in ("first", "last", "num_layers"))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    is_whole = all(type(each) is int for each in (first, last, total))
    if not is_whole or total != num_layers or not 0 <= first <= last < total:
        return None
    return range(first, last + 1)


@dataclass(frozen=True, slots=True)
class LayerRoom:
    """What the layers of a model take, and what a node has for them, in bytes."""

    sizes: ModelSizes
    budget: int

    @classmethod
    def of(cls, config: Config, shape: DecoderConfig, where: Accelerator | None) -> LayerRoom:
        """The room on a device, or in the host's memory."""
        # Whatever the format is, the host has room for float32.
        form = Format.FLOAT32 if where is None else DTYPES[config.dtype] or Format.FLOAT32
        bits = math.ceil(form.bits)
        table = bits * shape.vocab_size * shape.hidden_size // 8
        sizes = ModelSizes(shape.num_layers, bits * shape.layer_parameters // 8, table, table)
        memory = int(config.resources.max_memory_gb * GIBIBYTE) - PROCESS_BYTES
        return cls(sizes, int(memory * WEIGHTS_SHARE) if where is None else where.weights_budget())


@dataclass(frozen=True, slots=True)
class _Choice:
    """Chooses the layers to hold."""

    config: Config
    where: Accelerator | None
    wanted: range | None

    def layers(self, shape: DecoderConfig, coverage: list[int]) -> range:
        """The layers, of which ``coverage`` says how many others hold each."""
        config, num_layers = self.config, shape.num_layers
        if config.layers != AUTO:
            named = held_layers(config) or range(num_layers)
            if named.stop > num_layers:
                last = num_layers - 1
                raise StartupError(
                    f"--layers: the model has layers 0 to {last}, not {config.layers}"
                )
            return named
        room, held = LayerRoom.of(config, shape, self.where), self.wanted
        if held is None and config.pipeline.move_layers:
            held = remembered_layers(Path(config.data_dir), num_layers)
        if held is None or room.sizes.of(held) > room.budget:
            held = choose_layers(room.sizes, room.budget, coverage)
        log.info("holding layers %d-%d of %d", held.start, held.stop - 1, num_layers)
        return held


def show_progress(done: int, total: int) -> None:
    """Show how much was fetched on one line of the terminal, if there is a terminal."""
    _show(f"fetching weights: {done}/{total} tensors", done == total)


def show_loading(done: int, total: int) -> None:
    """Show how much was loaded, likewise."""
    _show(f"loading weights: {done}/{total} layers", done == total)


def _show(line: str, is_last: bool) -> None:
    if sys.stderr.isatty():
        print(f"\r{line}", end="\n" if is_last else "", file=sys.stderr, flush=True)
