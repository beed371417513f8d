"""Decision 0138: training's memory counts, is refused where it does not fit, and is given back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import trio
import trio.testing

from meshnode.config import TrainingConfig, build_config
from meshnode.domain.batching import EngineLimits
from meshnode.domain.errors import InvalidRequest, StartupError
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.training.replica import Persisted
from meshnode.domain.units import GIBIBYTE
from meshnode.memory import private_bytes
from meshnode.model.config import DecoderConfig
from meshnode.model.loading import load_model
from meshnode.model.trained_model import Anchor, TrainedModel
from meshnode.model.training import Batch
from meshnode.services.executor import Executor
from meshnode.services.settings import Settings
from meshnode.services.shards.layer_versions import LayerVersions
from meshnode.services.shards.trained_layers import LAYERS_FILE, TrainedLayers
from meshnode.services.training import memory as module
from meshnode.services.training.disk import TrainingDisk
from meshnode.services.training.footprint import LIBRARIES, TrainingShape
from meshnode.services.training.memory import TrainingMemory
from meshnode.services.training.progress import Counts
from meshnode.services.training.resting import RestingTraining
from spec_tests.model.small_models import make_model, random_tokens
from spec_tests.services.shards.holders import executor_of


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("memory") / "model")


def shape_of(directory: Path, held: range) -> TrainingShape:
    config = DecoderConfig.read(directory / "config.json")
    return TrainingShape(config=config, held=held, sequence=16, graph_bytes=1 << 20)


def training(**values: Any) -> TrainingConfig:
    return replace(build_config({"training.enabled": True}).training, **values)


def settings_in(folder: Path, **values: float) -> Settings:
    flat = {key.replace("__", "."): value for key, value in values.items()}
    return Settings(build_config({"data_dir": str(folder), **flat}), "0" * 40)


class Cache:
    """Stands in for the executor: has a cache of some bytes."""

    def __init__(self, spare_bytes: int) -> None:
        self.spare_bytes = spare_bytes
        self.taken = 0

    def spare_beside(self, user: str) -> int:
        return self.spare_bytes

    def reserve(self, user: str, nbytes: int) -> None:
        self.taken = nbytes


async def test_training_that_does_not_fit_is_refused(directory: Path, tmp_path: Path) -> None:
    shape = shape_of(directory, range(4))
    settings = settings_in(tmp_path, resources__max_memory_gb=1.0)
    spare = shape.needed(training())
    TrainingMemory(settings, Cache(spare), shape)  # type: ignore[arg-type]
    larger = {"training": {"enabled": True, "batch_size": 512}}
    with pytest.raises(InvalidRequest) as caught:
        await settings.patch(larger)
    needed = shape.needed(training(batch_size=512))
    wanted = f"needs {needed / GIBIBYTE:.2f} GiB; resources.max_memory_gb leaves"
    assert wanted in str(caught.value)
    assert not settings.current.training.enabled
    await settings.patch({"training": {"enabled": True}})
    for wrong in (larger, {"resources": {"max_memory_gb": 0.9}}):
        with pytest.raises(InvalidRequest):
            await settings.patch(wrong)
    await settings.patch({"training": {"enabled": False}, "resources": {"max_memory_gb": 0.9}})


async def test_the_cache_gives_up_what_training_takes_until_it_is_freed(
    directory: Path, tmp_path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    returned: list[bool] = []
    monkeypatch.setattr(module, "give_back_memory", lambda: returned.append(True))
    shape, loaded = shape_of(directory, range(4)), True
    settings, cache = settings_in(tmp_path), Cache(1 << 40)
    memory = TrainingMemory(settings, cache, shape)  # type: ignore[arg-type]
    memory.users.append(lambda: loaded)
    await nursery.start(memory.keep)
    assert cache.taken == 0
    for change, taken in (
        ({"enabled": True}, shape.needed(training())),
        ({"batch_size": 16}, shape.needed(training(batch_size=16))),
        ({"enabled": False}, shape.needed(training(batch_size=16))),
    ):
        await settings.patch({"training": change})
        await trio.testing.wait_all_tasks_blocked()
        assert cache.taken == taken
    assert not returned
    # The anchor stays in memory.
    memory.stays = lambda: 7
    loaded = False
    memory.freed()
    with trio.fail_after(60):
        while cache.taken != 7:  # noqa: ASYNC110 - it tells no event
            await trio.sleep(0.001)
    assert returned == [True]


def test_all_is_counted_in_float32_whatever_is_served(directory: Path) -> None:
    shape = shape_of(directory, range(4))
    narrow = load_model(directory, dtype="int8")
    weights = TrainedModel(directory).anchor.weights.values()
    assert shape.copy == sum(tensor.nbytes for tensor in weights) > 2 * narrow.weight_bytes
    # Weights, both moments, anchor and gradients are there at once.
    assert shape.rounds(training()) > 5 * shape.copy
    # Contributions that are not sparse have an outer momentum, and larger messages.
    sparse, dense = (shape.rounds(training(gradients=name)) for name in ("sparse", "float32"))
    assert dense - sparse >= shape.copy
    part = shape_of(directory, range(1, 3))
    assert part.copy < shape.copy / 2
    assert part.needed(training()) == LIBRARIES + part.layers
    assert shape.needed(training()) == LIBRARIES + shape.rounds(training())


def test_a_larger_batch_needs_memory_in_proportion(directory: Path) -> None:
    shape = shape_of(directory, range(4))
    sizes = [shape.rounds(training(batch_size=size)) for size in (1 << 14, 1 << 15, 1 << 16)]
    assert sizes[2] - sizes[1] == 2 * (sizes[1] - sizes[0])


async def test_memory_to_train_for_others_is_taken_when_they_come(
    directory: Path, tmp_path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "give_back_memory", lambda: None)
    shape, settings = shape_of(directory, range(4)), settings_in(tmp_path)
    small, cache = Cache(shape.layers - 1), Cache(shape.layers)
    assert not TrainingMemory(settings, small, shape).make_room()  # type: ignore[arg-type]
    assert small.taken == 0
    memory = TrainingMemory(settings, cache, shape)  # type: ignore[arg-type]
    assert memory.make_room()
    assert cache.taken == shape.layers
    # It is taken once.
    cache.spare_bytes = 0
    assert memory.make_room()
    # A holder of some layers has taken it with training itself.
    part = shape_of(directory, range(2))
    assert TrainingMemory(settings, Cache(0), part).make_room()  # type: ignore[arg-type]


async def test_the_executor_keeps_room_for_one_request(directory: Path) -> None:
    limits = EngineLimits(max_batch=2, max_queue=2, kv_bytes=1 << 22, prefill_chunk=16)
    async with executor_of(load_model(directory), limits) as executor:
        whole = executor.kv_bytes_limit
        executor.reserve("test", executor.spare_bytes // 2)
        assert executor.kv_bytes_limit == whole - executor.spare_bytes // 2
        executor.reserve("test", 1 << 40)
        one = executor.kv_bytes(executor.card.context_length, 4)
        assert executor.kv_bytes_limit == one
        await opened(executor)
        executor.reserve("test", 0)
        assert executor.kv_bytes_limit == whole


async def opened(executor: Executor) -> None:
    """Open a session of the longest context, and close it."""
    (await executor.open_session(range(4), executor.card.context_length)).close()


def test_a_model_that_was_unloaded_goes_on_from_its_anchor(directory: Path) -> None:
    tokens = random_tokens(2, 12)
    batch = Batch(tokens[:, :-1], tokens[:, 1:])
    model, other = TrainedModel(directory), TrainedModel(directory)
    model.inner_step(batch, 1e-2)
    model.unload()
    assert model.shapes == other.shapes
    assert model.validate([batch]).loss == other.validate([batch]).loss
    model.unload()
    # Moments and weights are those of a new start.
    losses = [[one.inner_step(batch, 1e-2).loss for _ in range(2)] for one in (model, other)]
    assert losses[0] == losses[1]


def test_trained_layers_wait_on_the_disk(directory: Path, tmp_path: Path) -> None:
    held = range(1, 3)
    decoder = load_model(directory, held, trainable=True).decoder
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.add_(1.0)
    LayerVersions(TrainedLayers(tmp_path, "a" * 64, held)).pause(decoder)
    again = load_model(directory, held, trainable=True).decoder
    # Weights of another model or of other layers are left alone.
    for other in (
        TrainedLayers(tmp_path, "b" * 64, held),
        TrainedLayers(tmp_path, "a" * 64, range(2)),
    ):
        assert not LayerVersions(other).restore(again)
    file = LayerVersions(TrainedLayers(tmp_path, "a" * 64, held))
    assert file.restore(again)
    for one, two in zip(decoder.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, two)
    assert not file.restore(again)
    (tmp_path / LAYERS_FILE).write_bytes(b"damaged")
    assert not file.restore(again)


def test_what_a_training_that_is_off_has_kept_takes_no_private_memory(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    # Large beside what other threads of this process take meanwhile.
    anchor = Anchor.of({"w": torch.randn(32 << 20, generator=generator)}, {})
    initial, kept = WeightsVersion(0, "0" * 64), WeightsVersion(3, anchor.model_hash)
    disk = TrainingDisk(tmp_path, initial)
    disk.save_anchor(anchor, kept)
    disk.save(Persisted(kept, 3), [], Counts())
    resting = RestingTraining(tmp_path, initial.model_hash)
    before = private_bytes()
    found = resting.anchor({"w": (32 << 20,)})
    assert found is not None
    assert found.weights["w"].sum() == anchor.weights["w"].sum()
    assert private_bytes() - before < anchor.weights["w"].nbytes / 2
    assert torch.equal(found.weights["w"], anchor.weights["w"])
    # Other files are refused as before.
    next(tmp_path.glob("anchor-*")).write_bytes(b"damaged")
    with pytest.raises(StartupError, match="damaged or missing"):
        resting.anchor({"w": (32 << 20,)})
