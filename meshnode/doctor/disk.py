"""Room and permission to write where the data folder is."""

from __future__ import annotations

import os
from collections.abc import Iterator

from meshnode.doctor.examination import Examination
from meshnode.doctor.findings import Finding, fault, ok, warning
from meshnode.domain.units import GIBIBYTE

CHECK = "disk"
LITTLE = GIBIBYTE
TOO_LITTLE = 64 << 20
"""A ledger, its log and a rewrite of the journal need tens of megabytes."""
ADVICE = "make room, or name another folder with --data-dir"


def check(examination: Examination) -> Iterator[Finding]:
    """Look at the file system of the folder, or of the first of its parents that exists."""
    folder = examination.data_dir
    there = next(one for one in (folder, *folder.parents) if one.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        yield fault(CHECK, f"{there} cannot be written to by this user", ADVICE)
        return
    found = os.statvfs(there)
    free = found.f_bavail * found.f_frsize
    text = f"{free / GIBIBYTE:.1f} GiB free at {there}"
    if free < TOO_LITTLE:
        yield fault(CHECK, f"{free >> 20} MiB free at {there}", ADVICE)
    elif found.f_files and found.f_favail < 1000:
        yield fault(CHECK, f"{found.f_favail} more files fit at {there}", ADVICE)
    elif free < LITTLE:
        yield warning(CHECK, text, ADVICE)
    else:
        yield ok(CHECK, text)
