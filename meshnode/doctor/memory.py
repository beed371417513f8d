"""Memory: what the weights need, and what the machine and its control group leave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil

from meshnode.doctor.examination import Examination
from meshnode.doctor.findings import Finding, fault, ok, warning
from meshnode.doctor.model import files_of, held_of
from meshnode.domain.errors import StartupError
from meshnode.domain.units import GIBIBYTE
from meshnode.memory import PROCESS_BYTES
from meshnode.model.accelerator.device import AUTO, find_accelerator
from meshnode.model.kernels.formats import DTYPES, Format

CHECK = "memory"
_GROUP = Path("/sys/fs/cgroup")


def check(examination: Examination) -> Iterator[Finding]:
    """Compare the need with what is available. A node that runs has its memory already."""
    available = min([psutil.virtual_memory().available, *_left_in_group()])
    allowed = int(examination.config.resources.max_memory_gb * GIBIBYTE)
    weights = _weights(examination)
    try:
        where = find_accelerator(examination.config.device)
    except StartupError as error:
        yield fault(CHECK, str(error), "set device to cpu or auto")
        return
    if where is not None and weights:
        form = DTYPES[examination.config.dtype] or Format.FLOAT32
        taken, room = int(weights * form.bits / 32), where.weights_budget()
        if taken <= room or examination.running:
            yield ok(CHECK, f"weights {taken / GIBIBYTE:.2g} GiB on {where.setting} ({where.name})")
            weights = 0
        elif examination.config.device != AUTO:
            text = f"weights {taken / GIBIBYTE:.2g} GiB, room on {where.setting} for"
            action = "hold fewer layers: --layers, or --device cpu"
            yield fault(CHECK, f"{text} {room / GIBIBYTE:.2g}", action)
            return
    text = (
        f"{available / GIBIBYTE:.1f} GiB available; weights {weights / GIBIBYTE:.2g} GiB, "
        f"at most {allowed / GIBIBYTE:.3g} in all (resources.max_memory_gb)"
    )
    least = weights + PROCESS_BYTES
    if least > allowed:
        yield fault(CHECK, text, "raise resources.max_memory_gb, or hold fewer layers: --layers")
    elif examination.running:
        yield ok(CHECK, text)
    elif least > available:
        yield fault(CHECK, text, "free memory, or hold fewer layers: --layers")
    elif allowed > available:
        yield warning(CHECK, text, "under load the node may run out: lower resources.max_memory_gb")
    else:
        yield ok(CHECK, text)


def _weights(examination: Examination) -> int:
    """Bytes of the held layers' weights; 0 where the model cannot be read."""
    try:
        files = files_of(examination)
        if files is None:
            return 0
        shape = files.config()
        held = held_of(examination, shape)
    except StartupError:
        # The check of the model reports it.
        return 0
    tables = (held.start == 0) + (held.stop == shape.num_layers)
    weights = len(held) * shape.layer_parameters + tables * shape.vocab_size * shape.hidden_size
    return 4 * weights


def _left_in_group() -> list[int]:
    """Bytes that the control group still allows; nothing where there is no limit."""
    try:
        most = int((_GROUP / "memory.max").read_text())
        used = int((_GROUP / "memory.current").read_text())
    except (OSError, ValueError):
        return []
    return [max(0, most - used)]
