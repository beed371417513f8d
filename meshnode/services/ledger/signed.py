"""The last block that this validator signed: it never signs twice for a height (decision 0071).

CometBFT keeps the same record beside its key. The ledger's file can lose blocks when a backup is
restored or the write-ahead log is damaged; this file still has the height then.

Invariants: the file has mode 0600; a block's height is on the disk before the block is announced; a
damaged file is refused and never replaced.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from meshnode.datadir import write_private
from meshnode.domain.checksums import dump_checked, read_checked
from meshnode.domain.errors import StartupError
from meshnode.services.ledger.database import LEDGER_FILE, StorageRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshnode.services.ledger.records import StoredBlock

SIGNED_FILE = "validator-state.json"
SIGNED_FORMAT = "meshnode-validator-state-v1"


class LastSigned:
    """Height and hash of the last block that was signed, for each chain of this folder."""

    def __init__(self, data_dir: Path) -> None:
        """Read the file, if there is one. Raises StartupError when it cannot be trusted."""
        self._path = data_dir / SIGNED_FILE
        self._chains: dict[str, tuple[int, str]] = {}
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise StartupError(f"cannot read {self._path}: {error.strerror}") from None
        try:
            document = read_checked(text)
            if document["format"] != SIGNED_FORMAT:
                raise ValueError
            for chain_id, signed in document["chains"].items():
                self._chains[chain_id] = int(signed["height"]), str(signed["hash"])
        except (ValueError, TypeError, KeyError, AttributeError):
            raise StartupError(
                f"{self._path} is damaged; restore it: it keeps this validator from signing twice"
            ) from None

    def require(
        self, chain_id: str, height: int, find: Callable[[int], StoredBlock | None]
    ) -> None:
        """Raise StartupError unless the ledger has the block that was signed last.

        The ledger ends at ``height``; ``find`` gives its blocks.
        """
        signed, signed_hash = self._chains.get(chain_id, (0, ""))
        if not signed:
            return
        found = find(signed)
        if found is None or found.hash.hex() != signed_hash:
            raise StartupError(
                f"{self._path.parent / LEDGER_FILE} ends at block {height} without the block "
                f"{signed} that this validator has signed: restore the newer ledger, or fetch the "
                "blocks from a follower with --tracker, and start again"
            )

    def note_at_start(self, chain_id: str, block: StoredBlock) -> None:
        """As :meth:`note`, for a block that was committed just before the process was killed."""
        try:
            self.note(chain_id, block)
        except StorageRefused as refusal:
            raise StartupError(f"{self._path}: {refusal}") from None

    def note(self, chain_id: str, block: StoredBlock) -> None:
        """Record a signed block on the disk. Raises StorageRefused when that fails."""
        noted = {**self._chains, chain_id: (block.height, block.hash.hex())}
        if noted == self._chains:
            return
        chains = {name: {"height": one[0], "hash": one[1]} for name, one in noted.items()}
        document = {"format": SIGNED_FORMAT, "chains": chains}
        try:
            write_private(self._path, dump_checked(document))
        except OSError as error:
            # Clients read this text, so it has the file's name without its path.
            refusal = f"{self._path.name} cannot be written: {error.strerror}"
            raise StorageRefused(refusal) from error
        self._chains = noted
