"""Which device computes, and how much memory it has (decision 0229).

Terms: an *accelerator* is a device that torch computes on through its own operators, with weights
and cache in the device's memory. The processor is none, although it can play one in tests: the code
is the same.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass

import torch

from meshnode.domain.errors import StartupError
from meshnode.domain.units import GIBIBYTE

log = logging.getLogger(__name__)

WORKSPACE_BYTES = GIBIBYTE
"""Device memory that neither weights nor cache get: intermediate results of a step, and what the
libraries of the device need for themselves."""
WEIGHTS_SHARE = 0.75
"""Share of the free memory that weights may take for ``auto``; keys and values need the rest."""
AUTO, CPU = "auto", "cpu"
SIMULATED_VARIABLE = "MESHNODE_SIMULATED_DEVICE"
"""In tests: the processor plays a device with so many GiB of memory."""
_ROWS = {"cuda": 64}
_FEWEST_ROWS = 8
_ITEMS = {"cuda": 64}
_FEWEST_ITEMS = 8


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes of a device's memory."""

    free: int
    total: int

    @property
    def used(self) -> int:
        """What all processes together have taken."""
        return self.total - self.free


NO_DEVICE = DeviceMemory(0, 0)


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A device on which the engine computes."""

    device: torch.device
    name: str
    """What its maker calls it."""
    simulated_bytes: int = 0
    """Memory of a device that the processor plays."""

    @property
    def setting(self) -> str:
        """The device as the setting ``device`` names it."""
        return str(self.device)

    @property
    def kind(self) -> str:
        """What a numeric class says of the device: equal devices give equal bits."""
        return f"{self.device.type} {self.name}".replace("/", "-")

    @property
    def base_rows(self) -> int:
        """The number of rows with which every product and norm is computed (``model.tiles``)."""
        return _ROWS.get(self.device.type, _FEWEST_ROWS)

    @property
    def base_items(self) -> int:
        """The number of pairs of queries and keys that attention computes at once."""
        return _ITEMS.get(self.device.type, _FEWEST_ITEMS)

    def memory(self) -> DeviceMemory:
        """The device's memory now."""
        if self.device.type != "cuda":
            return DeviceMemory(self.simulated_bytes, self.simulated_bytes)
        free, total = torch.cuda.mem_get_info(self.device)
        return DeviceMemory(free, total)

    def weights_budget(self) -> int:
        """Bytes that weights may take, so that a cache for keys and values has room beside them."""
        return int(max(0, self.memory().free - WORKSPACE_BYTES) * WEIGHTS_SHARE)

    def cache_budget(self) -> int:
        """Bytes that a cache may take now, beside what is loaded already."""
        if self.device.type == "cuda":
            # What was freed is kept by torch otherwise, and counts as used.
            torch.cuda.empty_cache()
        return max(0, self.memory().free - WORKSPACE_BYTES)


def find_accelerator(setting: str) -> Accelerator | None:
    """The device that ``--device`` names; None for the processor.

    ``auto`` is the CUDA device with the most free memory, where there is one. Raises StartupError
    for a device that is not there.
    """
    if setting == CPU:
        return None
    if simulated := os.environ.get(SIMULATED_VARIABLE):
        return simulated_device(int(float(simulated) * GIBIBYTE))
    if not torch.cuda.is_available():
        if setting == AUTO:
            return None
        raise StartupError(
            f"--device {setting}: torch finds no CUDA device here; --device cpu serves instead"
        )
    count = torch.cuda.device_count()
    if setting == AUTO:
        return max(map(_cuda, range(count)), key=lambda found: found.memory().free)
    index = int(setting.partition(":")[2] or 0)
    if index >= count:
        raise StartupError(
            f"--device {setting}: torch finds {count} CUDA device(s), cuda:0 to cuda:{count - 1}"
        )
    return _cuda(index)


def simulated_device(nbytes: int) -> Accelerator:
    """The processor in the part of a device with so much memory, for tests without a device."""
    return Accelerator(torch.device("cpu"), "simulated", nbytes)


def _cuda(index: int) -> Accelerator:
    # Sums of 16-bit products are float32 in all their parts.
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    return Accelerator(torch.device("cuda", index), torch.cuda.get_device_name(index))


def choose_device(setting: str, found: Accelerator | None, weight_bytes: int) -> Accelerator | None:
    """The device that computes a model whose held layers take ``weight_bytes``; None: the CPU.

    ``found`` is what :func:`find_accelerator` has found. Only ``auto`` falls back to the CPU; a
    device that was named and has no room raises StartupError. One line in the log says what was
    chosen.
    """
    if found is None:
        log.info("computing on the CPU")
        return None
    budget = found.weights_budget()
    if weight_bytes <= budget:
        log.info("computing on %s (%s)", found.setting, found.name)
        return found
    misfit = (
        f"the weights take {weight_bytes / GIBIBYTE:.2f} GiB, and beside cache and workspace "
        f"there is room for {budget / GIBIBYTE:.2f}"
    )
    if setting == AUTO:
        log.info("computing on the CPU, not on %s (%s): %s", found.setting, found.name, misfit)
        return None
    raise StartupError(
        f"--device {setting}: {misfit}; fewer layers (--layers), a narrower --dtype or "
        "--device cpu would serve"
    )
