"""The checks, in the order of the report: one line each, to add one or to take one out."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from meshnode.doctor import (
    clock,
    data_folder,
    descriptors,
    disk,
    files,
    keys,
    memory,
    model,
    ports,
    reachability,
    settings,
    tls,
    versions,
)
from meshnode.doctor.examination import Examination
from meshnode.doctor.findings import Finding

Check = Callable[[Examination], Iterable[Finding]]

CHECKS: tuple[Check, ...] = (
    versions.check,
    settings.check,
    data_folder.check,
    keys.check,
    tls.check,
    files.check,
    disk.check,
    ports.check,
    descriptors.check,
    model.check,
    memory.check,
    reachability.check,
    clock.check,
)


def examine(examination: Examination) -> list[Finding]:
    """All findings."""
    return [finding for check in CHECKS for finding in check(examination)]
