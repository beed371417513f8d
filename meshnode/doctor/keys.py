"""Key files and the operator's token: whole, openable, and for their owner alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from meshnode.doctor.examination import Examination
from meshnode.doctor.findings import Finding, fault, ok, warning
from meshnode.domain.errors import StartupError
from meshnode.domain.identity import node_id_of
from meshnode.domain.keyfile import KeyFileError, PassphraseNeeded, key_file_names, read_key_file
from meshnode.services.inventory import exposed_secrets
from meshnode.services.keystore import (
    ACCOUNTS_FOLDER,
    KEY_FILE,
    PASSPHRASE_VARIABLE,
    TOKEN_FILE,
    load_or_create_token,
)

CHECK = "keys"
RESTORE = "restore it from a backup; never remove a key file whose money you want"


def check(examination: Examination) -> Iterator[Finding]:
    """Look at every key without showing any."""
    folder, passphrase = examination.data_dir, examination.passphrase
    for path, mode in exposed_secrets(folder):
        yield fault(CHECK, f"{path} may be opened by others (mode {mode:04o})", f"chmod 600 {path}")
    if (folder / KEY_FILE).exists():
        yield from _node_key(folder / KEY_FILE, passphrase)
        accounts = sorted((folder / ACCOUNTS_FOLDER).glob("[!.]*.json"))
        broken = [found for path in accounts for found in _problem(path, passphrase)]
        yield from broken
        if accounts and not broken:
            yield ok(CHECK, f"{len(accounts)} keys of accounts can be read")
    if (folder / TOKEN_FILE).exists():
        try:
            load_or_create_token(folder)
        except StartupError as error:
            yield fault(CHECK, str(error))


def _node_key(path: Path, passphrase: str) -> Iterator[Finding]:
    problems = list(_problem(path, passphrase))
    yield from problems
    if not problems:
        _, public_key, sealed = key_file_names(path.read_bytes())
        state = "sealed with a passphrase" if sealed else "not sealed"
        yield ok(CHECK, f"{path.name} of the node {node_id_of(public_key)}, {state}")


def _problem(path: Path, passphrase: str) -> Iterator[Finding]:
    try:
        read_key_file(path.read_bytes(), passphrase or None)
    except PassphraseNeeded:
        yield warning(
            CHECK, f"{path} is sealed and was not opened", f"set {PASSPHRASE_VARIABLE} to check it"
        )
    except OSError as error:
        yield fault(CHECK, f"{path} cannot be read: {error.strerror}")
    except KeyFileError as error:
        yield fault(CHECK, f"{path}: {error}", RESTORE)
