"""Which device computes, with a torch.cuda that is not there."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from meshnode.domain.errors import ComputationFailed, Overloaded, StartupError
from meshnode.domain.units import GIBIBYTE
from meshnode.model.accelerator.device import (
    SIMULATED_VARIABLE,
    WORKSPACE_BYTES,
    DeviceMemory,
    choose_device,
    find_accelerator,
)
from meshnode.model.accelerator.matrix import BLOCK_BYTES, DeviceMatrix
from meshnode.model.accelerator.pool import KVPool, PoolEmpty
from meshnode.model.documents import ModelUnreadable
from meshnode.model.failures import reported
from meshnode.model.files import open_files
from meshnode.model.kernels.formats import Format
from meshnode.model.loading import expected_bytes, load_model
from spec_tests.model.accelerator.devices import DEVICE
from spec_tests.model.small_models import small_config


class FakeCuda:
    """Two cards, of which the second has more free memory."""

    free = (3 * GIBIBYTE, 9 * GIBIBYTE)

    def mem_get_info(self, device: torch.device) -> tuple[int, int]:
        return self.free[device.index or 0], 16 * GIBIBYTE

    def get_device_name(self, index: int) -> str:
        return f"Card/{index}"


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SIMULATED_VARIABLE, raising=False)
    fake = FakeCuda()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "mem_get_info", fake.mem_get_info)
    monkeypatch.setattr(torch.cuda, "get_device_name", fake.get_device_name)


def test_without_a_device_the_cpu_computes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(SIMULATED_VARIABLE, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert find_accelerator("auto") is None
    assert find_accelerator("cpu") is None
    with pytest.raises(StartupError, match="--device cuda:1: torch finds no CUDA device here"):
        find_accelerator("cuda:1")
    with caplog.at_level(logging.INFO):
        assert choose_device("auto", None, 0) is None
    assert caplog.messages == ["computing on the CPU"]


@pytest.mark.usefixtures("cards")
def test_a_device_is_found_with_its_name_and_memory() -> None:
    assert find_accelerator("cpu") is None
    auto, first, second = (find_accelerator(each) for each in ("auto", "cuda", "cuda:1"))
    assert auto == second
    assert first is not None
    assert second is not None
    assert (first.setting, second.setting) == ("cuda:0", "cuda:1")
    assert second.kind == "cuda Card-1"
    assert second.memory() == DeviceMemory(9 * GIBIBYTE, 16 * GIBIBYTE)
    assert second.memory().used == 7 * GIBIBYTE
    assert second.weights_budget() == 6 * GIBIBYTE
    assert second.cache_budget() == 9 * GIBIBYTE - WORKSPACE_BYTES
    with pytest.raises(StartupError, match=r"torch finds 2 CUDA device\(s\), cuda:0 to cuda:1"):
        find_accelerator("cuda:2")


@pytest.mark.usefixtures("cards")
def test_auto_falls_back_to_the_cpu_and_a_named_device_does_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = find_accelerator("auto")
    with caplog.at_level(logging.INFO):
        assert choose_device("auto", found, 6 * GIBIBYTE) == found
        assert choose_device("auto", found, 7 * GIBIBYTE) is None
    room = "the weights take 7.00 GiB, and beside cache and workspace there is room for 6.00"
    assert caplog.messages == [
        "computing on cuda:1 (Card/1)",
        f"computing on the CPU, not on cuda:1 (Card/1): {room}",
    ]
    with pytest.raises(StartupError, match=f"--device cuda: {room}; fewer layers"):
        choose_device("cuda", found, 7 * GIBIBYTE)


def test_no_memory_on_the_device_is_not_a_failure_of_the_node() -> None:
    for error in (torch.OutOfMemoryError("CUDA out of memory"), PoolEmpty("3 blocks")):
        assert isinstance(reported(error), Overloaded)
    assert isinstance(reported(RuntimeError("no kernel")), ComputationFailed)


def test_a_model_that_does_not_fit_says_what_would_serve(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(DeviceMatrix, "__init__", full)
    wanted = "does not fit in the 1.0 GiB of cpu; fewer layers .* or --device cpu would serve"
    with pytest.raises(ModelUnreadable, match=wanted):
        load_model(directory, where=DEVICE)


class CountingRows:
    """A matrix that notes how much is read of it at once."""

    outputs, inputs = 40_000, 512

    def __init__(self) -> None:
        self.most = 0

    def read(self, first: int, stop: int) -> torch.Tensor:
        rows = torch.full((stop - first, self.inputs), 0.5)
        self.most = max(self.most, rows.nbytes)
        return rows

    def stored(self, first: int, stop: int, form: Format) -> None:
        return None


def test_weights_go_to_the_device_a_block_at_a_time() -> None:
    rows = CountingRows()
    matrix = DeviceMatrix(rows, Format.BFLOAT16, torch.device("meta"))
    assert 0 < rows.most <= BLOCK_BYTES < rows.outputs * rows.inputs * 4
    assert matrix.nbytes == rows.outputs * rows.inputs * 2
    assert {part.device.type for part in matrix._parts} == {"meta"}
    pool = KVPool(small_config(), 2, torch.bfloat16, torch.device("meta"))
    pool.provide(10 * pool.block_bytes)
    assert pool.storage.device.type == "meta"


@pytest.mark.parametrize("dtype", ["auto", "float32", "bfloat16", "int8", "int4"])
def test_what_a_model_will_take_is_known_before(directory: Path, dtype: str) -> None:
    files = open_files(directory)
    loaded = load_model(directory, dtype=dtype, where=DEVICE)
    expected = expected_bytes(files, range(4), dtype)
    assert 0.85 * loaded.weight_bytes < expected <= 1.05 * loaded.weight_bytes
    assert loaded.numeric_class.startswith("cpu simulated/")
    part = expected_bytes(files, range(2), dtype)
    assert part < expected
