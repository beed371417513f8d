"""Decision 0138: training's memory counts, is refused where it does not fit, and is given back."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import trio
import trio.testing

from meshnode.config import build_config
from meshnode.domain.batching import EngineLimits
from meshnode.domain.errors import InvalidRequest
from meshnode.domain.units import GIBIBYTE
from meshnode.model.loading import load_model
from meshnode.model.trained_model import TrainedModel
from meshnode.model.training import Batch
from meshnode.services.executor import Executor
from meshnode.services.settings import Settings
from meshnode.services.shards.layer_versions import LayerVersions
from meshnode.services.shards.trained_layers import LAYERS_FILE, TrainedLayers
from meshnode.services.training import memory as module
from meshnode.services.training.memory import TrainingMemory, TrainingShape
from spec_tests.model.small_models import make_model, random_tokens
from spec_tests.services.shards.holders import executor_of


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("memory") / "model")


def shape_of(directory: Path, held: range) -> TrainingShape:
    model = load_model(directory, held)
    return TrainingShape(
        config=model.decoder.config,
        held=held,
        weight_bytes=model.weight_bytes,
        sequence=16,
        graph_bytes=1 << 20,
    )


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
    spare = shape.needed(8)
    TrainingMemory(settings, Cache(spare), shape)  # type: ignore[arg-type]
    larger = {"training": {"enabled": True, "batch_size": 512}}
    with pytest.raises(InvalidRequest) as caught:
        await settings.patch(larger)
    wanted = f"needs {shape.needed(512) / GIBIBYTE:.2f} GiB; resources.max_memory_gb leaves"
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
        ({"enabled": True}, shape.needed(8)),
        ({"batch_size": 16}, shape.needed(16)),
        ({"enabled": False}, shape.needed(16)),
    ):
        await settings.patch({"training": change})
        await trio.testing.wait_all_tasks_blocked()
        assert cache.taken == taken
    assert not returned
    loaded = False
    memory.freed()
    with trio.fail_after(60):
        while cache.taken:  # noqa: ASYNC110 - it tells no event
            await trio.sleep(0.001)
    assert returned == [True]


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
