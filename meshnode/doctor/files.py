"""Tokens, what was signed, charges and the ledger: whether the files are whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from meshnode.doctor.examination import Examination
from meshnode.doctor.findings import Finding, fault, ok
from meshnode.domain.errors import StartupError
from meshnode.services.inventory import CHAIN_FILES
from meshnode.services.ledger.database import LEDGER_FILE
from meshnode.services.tokens import TOKENS_FILE, TokenStore

CHECK = "files"
_SQLITE = b"SQLite format 3\0"


def check(examination: Examination) -> Iterator[Finding]:
    """Read each file as the node would, without changing it."""
    folder = examination.data_dir
    whole = []
    for name, read in (*CHAIN_FILES, (TOKENS_FILE, TokenStore), (LEDGER_FILE, _check_ledger)):
        if not (folder / name).exists():
            continue
        try:
            read(folder)
        except StartupError as error:
            yield fault(CHECK, str(error))
        else:
            whole.append(name)
    if whole:
        yield ok(CHECK, f"{', '.join(whole)}: readable")


def _check_ledger(folder: Path) -> None:
    """Look at the first bytes only: the node checks all of the ledger at each start."""
    path = folder / LEDGER_FILE
    try:
        with path.open("rb") as file:
            begins = file.read(len(_SQLITE))
    except OSError as error:
        raise StartupError(f"cannot read {path}: {error.strerror}") from None
    if begins != _SQLITE:
        raise StartupError(f"{path} is not a database; restore it from a backup")
