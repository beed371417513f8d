"""The data folder: whether a node runs in it, who may enter it, and its inventory."""

from __future__ import annotations

import stat
from collections.abc import Iterator

from meshnode.doctor.examination import Examination
from meshnode.doctor.findings import Finding, fault, ok, warning
from meshnode.domain.errors import StartupError
from meshnode.services.inventory import accept_command, known_files, losses_of

CHECK = "data folder"


def check(examination: Examination) -> Iterator[Finding]:
    """Compare the folder with its inventory (decision 0140)."""
    folder = examination.data_dir
    if not folder.exists():
        yield ok(CHECK, f"{folder} is made at the first start")
        return
    if not folder.is_dir():
        yield fault(CHECK, f"{folder} is not a folder", "name another one with --data-dir")
        return
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield warning(CHECK, f"others may enter {folder} (mode {mode:04o})", f"chmod 700 {folder}")
    try:
        known, losses = known_files(folder), losses_of(folder)
    except StartupError as error:
        yield fault(CHECK, str(error))
        return
    if losses:
        yield fault(
            CHECK,
            losses.describe(),
            f"restore it from a backup, or go on without it after: {accept_command(folder)}",
        )
    elif known is None:
        yield ok(CHECK, "has no inventory yet; a start makes it")
    else:
        state = "a node runs in it" if examination.running else "no node runs in it"
        files = "1 file is" if len(known) == 1 else f"{len(known)} files are"
        yield ok(CHECK, f"{files} as in the inventory; {state}")
