"""What a data folder held before, compared with what it holds now (decision 0140).

Terms: a *tracked* file is one whose loss costs money, identity or the guard against signing twice;
the *inventory* lists the tracked files that a folder has had, each with its *identity*: the public
key that a key file names, or nothing for a file whose contents change all the time.

Invariant: a file that is there and not listed is no loss, so a node that is killed between making
a file and listing it finds nothing wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from meshnode.domain.checksums import FileDamaged, dump_checked, read_checked

FORMAT = "meshnode-inventory-v1"

Inventory = Mapping[str, str]
"""Identities by the names of files, relative to the data folder."""


@dataclass(frozen=True, slots=True)
class Losses:
    """How a folder falls short of its inventory."""

    missing: tuple[str, ...]
    """Files that were there and are not."""
    replaced: tuple[str, ...]
    """Files that are there with another identity."""

    def __bool__(self) -> bool:
        """Whether anything is lost."""
        return bool(self.missing or self.replaced)

    def describe(self) -> str:
        """One clause for the operator, such as ``key.json was here and is missing``."""
        clauses = []
        if self.missing:
            verbs = "was here and is missing", "were here and are missing"
            clauses.append(f"{_names(self.missing)} {verbs[len(self.missing) > 1]}")
        if self.replaced:
            verbs = "is not the one that was here", "are not those that were here"
            clauses.append(f"{_names(self.replaced)} {verbs[len(self.replaced) > 1]}")
        return "; ".join(clauses)


def find_losses(known: Inventory, present: Inventory) -> Losses:
    """Compare the inventory with the files that are there."""
    return Losses(
        missing=tuple(sorted(known.keys() - present.keys())),
        replaced=tuple(
            name
            for name, identity in sorted(known.items())
            if identity and present.get(name) and present[name] != identity
        ),
    )


def extend(known: Inventory, present: Inventory) -> dict[str, str]:
    """The inventory with the files that are new. An identity that is known stays."""
    return {**present, **{name: one or present.get(name, "") for name, one in known.items()}}


def dump_inventory(inventory: Inventory) -> bytes:
    """The inventory's file."""
    return dump_checked({"format": FORMAT, "files": dict(sorted(inventory.items()))})


def read_inventory(data: bytes) -> dict[str, str]:
    """The inverse of :func:`dump_inventory`. Raises FileDamaged."""
    document = read_checked(data)
    files = document.get("files")
    if document.get("format") != FORMAT or not isinstance(files, dict):
        raise FileDamaged("not an inventory")
    if not all(isinstance(identity, str) for identity in files.values()):
        raise FileDamaged("not an inventory")
    return files


def _names(names: tuple[str, ...]) -> str:
    shown = [*names[:3], *([f"{len(names) - 3} more"] if len(names) > 3 else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
