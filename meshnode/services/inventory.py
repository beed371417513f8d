"""The inventory of the data folder: no start with something missing that was there (interface 1).

Terms as in :mod:`meshnode.domain.inventory`. A *secret* is a file that holds a private key or a
bearer token (decision 0140).

Invariants: the inventory lists a file only after the file is complete and on the disk, so a kill at
any moment leaves a folder that starts; nothing here changes any file but the inventory, except
:func:`accept_folder`, which an operator asks for.
"""

from __future__ import annotations

import logging
import os
import shlex
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import trio

from meshnode.datadir import sync_folder, write_private
from meshnode.domain.checksums import FileDamaged, read_checked
from meshnode.domain.errors import StartupError
from meshnode.domain.inventory import (
    Inventory,
    Losses,
    dump_inventory,
    extend,
    find_losses,
    read_inventory,
)
from meshnode.domain.keyfile import KeyFileDamaged, key_file_names
from meshnode.services.keystore import ACCOUNTS_FOLDER, KEY_FILE, TOKEN_FILE
from meshnode.services.ledger.database import LEDGER_FILE
from meshnode.services.ledger.signed import SIGNED_FILE, LastSigned
from meshnode.services.ledger.validator_key import VALIDATOR_FILE, load_or_create_validator_key
from meshnode.services.signer.journal import JOURNAL_FILE, check_journal
from meshnode.services.tokens import TOKENS_FILE
from meshnode.services.work.sponsoring import JOURNAL_FILE as SPONSOR_FILE

log = logging.getLogger(__name__)

INVENTORY_FILE = "inventory.json"
LOOK_EVERY_S = 5.0
"""How long a new file may be unlisted. Each look costs a few calls of the file system."""
LAST_LOOK_S = 2.0
"""Time for the last look: a disk that hangs must not keep the node from stopping."""
TRACKED = (
    KEY_FILE,
    VALIDATOR_FILE,
    SIGNED_FILE,
    LEDGER_FILE,
    JOURNAL_FILE,
    TOKENS_FILE,
    SPONSOR_FILE,
)
"""Files whose loss is noticed, besides those of the accounts. ``operator.token`` and
``settings.json`` are not among them: removing these is how an operator has them made anew."""
CHAIN_FILES: tuple[tuple[str, Callable[[Path], object]], ...] = (
    (VALIDATOR_FILE, load_or_create_validator_key),
    (SIGNED_FILE, LastSigned),
    (JOURNAL_FILE, check_journal),
)
"""Files with a function that raises StartupError if they are damaged; it changes no file that is
there."""


def accept_command(data_dir: Path) -> str:
    """What an operator runs to take the folder as it is."""
    return f"meshnode doctor --accept --data-dir {shlex.quote(str(data_dir))}"


def present_files(data_dir: Path) -> dict[str, str]:
    """The tracked files of a folder. Raises StartupError if the folder cannot be read."""
    try:
        present = {name: "" for name in TRACKED if (data_dir / name).exists()}
        accounts = data_dir / ACCOUNTS_FOLDER
        if accounts.is_dir():
            found = (name for name in os.listdir(accounts) if _is_account(name))
            present |= {f"{ACCOUNTS_FOLDER}/{name}": "" for name in found}
        if KEY_FILE in present:
            present[KEY_FILE] = _node_public_key(data_dir / KEY_FILE)
        if VALIDATOR_FILE in present:
            present[VALIDATOR_FILE] = _validator_public_key(data_dir / VALIDATOR_FILE)
    except OSError as error:
        raise StartupError(f"cannot read the data folder {data_dir}: {error.strerror}") from None
    return present


def known_files(data_dir: Path) -> dict[str, str] | None:
    """The inventory of a folder; None for a folder without one. Raises StartupError."""
    path = data_dir / INVENTORY_FILE
    try:
        return read_inventory(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StartupError(f"cannot read {path}: {error.strerror}") from None
    except FileDamaged:
        raise StartupError(
            f"{path} is damaged; if nothing else is missing, have a new one made: "
            f"{accept_command(data_dir)}"
        ) from None


def losses_of(data_dir: Path) -> Losses:
    """What the folder lacks of its inventory. Raises StartupError for a damaged inventory."""
    return find_losses(known_files(data_dir) or {}, present_files(data_dir))


def exposed_secrets(data_dir: Path) -> list[tuple[Path, int]]:
    """The secrets that other users of this machine may open, each with its mode."""
    exposed = []
    for path in _secrets(data_dir):
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:
            # The service that reads the file reports the error.
            continue
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            exposed.append((path, mode))
    return exposed


def require_whole(data_dir: Path) -> None:
    """Raise StartupError, in one line, unless the folder has everything that it had before.

    It is raised too if others may open a secret. Files that belong to the chain are read: the chain
    comes up late, and a damaged file would otherwise end a node that already serves.
    """
    exposed = exposed_secrets(data_dir)
    if exposed:
        path, mode = exposed[0]
        rest = f" (and {len(exposed) - 1} more)" if len(exposed) > 1 else ""
        raise StartupError(
            f"{path}{rest} may be opened by others (mode {mode:04o}): run chmod 600 {path}, or "
            f"for all of them: {accept_command(data_dir)}"
        )
    losses = losses_of(data_dir)
    if losses:
        raise StartupError(
            f"{data_dir}: {losses.describe()}; restore it from a backup, or go on without it "
            f"after: {accept_command(data_dir)}"
        )
    for name, read in CHAIN_FILES:
        if (data_dir / name).exists():
            read(data_dir)


@dataclass(slots=True)
class InventoryKeeper:
    """Lists new files in the inventory. One at a time for a folder, while its lock is held."""

    data_dir: Path
    failing: bool = False

    def look(self) -> bool:
        """Add the files that are new; whether the inventory is on the disk. Blocks."""
        try:
            known = known_files(self.data_dir)
            wanted = extend(known or {}, present_files(self.data_dir))
            if wanted != known:
                write_inventory(self.data_dir, wanted)
        except (OSError, StartupError) as error:
            if not self.failing:
                log.warning("the inventory of %s is not kept: %s", self.data_dir, error)
            self.failing = True
            return False
        self.failing = False
        return True


async def serve_inventory(
    data_dir: Path, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """List new files of the folder every few seconds, and once more at the end."""
    keeper = InventoryKeeper(data_dir)
    await trio.to_thread.run_sync(keeper.look)
    task_status.started()
    try:
        while True:
            await trio.sleep(LOOK_EVERY_S)
            await trio.to_thread.run_sync(keeper.look, abandon_on_cancel=True)
    finally:
        with trio.move_on_after(LAST_LOOK_S, shield=True):
            await trio.to_thread.run_sync(keeper.look, abandon_on_cancel=True)


def write_inventory(data_dir: Path, inventory: Inventory) -> None:
    """Replace the inventory. Raises OSError."""
    accounts = data_dir / ACCOUNTS_FOLDER
    if accounts.is_dir():
        # The entries of the folder are listed only once they are durable.
        sync_folder(accounts)
    write_private(data_dir / INVENTORY_FILE, dump_inventory(inventory))


def accept_folder(data_dir: Path) -> tuple[str, ...]:
    """Take the folder as it is: its files are the inventory, and its secrets private.

    Returns one line for each change. Raises StartupError. The caller holds the folder's lock.
    """
    try:
        known = known_files(data_dir)
    except StartupError:
        known = None
        changes = [f"{INVENTORY_FILE} was damaged and is made anew"]
    else:
        changes = [] if known is not None else [f"{INVENTORY_FILE} is made"]
    present = present_files(data_dir)
    losses = find_losses(known or {}, present)
    changes += [f"{name} is no longer expected" for name in losses.missing]
    changes += [f"{name} is another one than before" for name in losses.replaced]
    try:
        for path, mode in exposed_secrets(data_dir):
            path.chmod(0o600)
            changes.append(f"{path.relative_to(data_dir)} had mode {mode:04o} and has 0600")
        if present != known:
            write_inventory(data_dir, present)
    except OSError as error:
        raise StartupError(f"cannot write to {data_dir}: {error.strerror}") from None
    return tuple(changes)


def _secrets(data_dir: Path) -> Iterator[Path]:
    for name in (KEY_FILE, VALIDATOR_FILE, TOKEN_FILE):
        yield data_dir / name
    accounts = data_dir / ACCOUNTS_FOLDER
    try:
        names = sorted(os.listdir(accounts))
    except OSError:
        return
    for name in names:
        if _is_account(name):
            yield accounts / name


def _is_account(name: str) -> bool:
    """Whether this is a finished key file: a draft begins with a dot."""
    return name.endswith(".json") and not name.startswith(".")


def _node_public_key(path: Path) -> str:
    """The public key in a key file; empty for a damaged file, which the keystore refuses."""
    try:
        return key_file_names(path.read_bytes())[1]
    except KeyFileDamaged:
        return ""


def _validator_public_key(path: Path) -> str:
    try:
        return str(read_checked(path.read_bytes()).get("public_key", ""))
    except FileDamaged:
        return ""
