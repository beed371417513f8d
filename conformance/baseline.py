"""A list of known failures, so that a CI stays green until something changes.

Invariant: a baseline stays honest. An entry that passes now, or names no requirement, is stale and
fails the run; an entry that was not exercised is not stale.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from conformance.catalogue import load
from conformance.target import BadConfiguration
from conformance.verdict import Standing


@dataclass(frozen=True)
class Baseline:
    """Known failures: each id with its reason."""

    known: Mapping[str, str]

    def stale(self, exercised: Mapping[str, Standing]) -> dict[str, str]:
        """Return the stale entries and why. `exercised` holds what the run has ruled on."""
        stale: dict[str, str] = {}
        for ident in self.known:
            if ident not in load():
                stale[ident] = "no requirement has this id"
            elif exercised.get(ident) is Standing.PROVED:
                stale[ident] = "it is now proved"
        return stale


def read(path: Path) -> Baseline:
    """Read the table `[known]` of a baseline file."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadConfiguration(f"{path}: {error}") from None
    known = document.get("known", {})
    if set(document) - {"known"} or not isinstance(known, dict):
        raise BadConfiguration(
            f"{path}: must contain exactly one table, [known], of ids and reasons"
        )
    if not all(isinstance(reason, str) for reason in known.values()):
        raise BadConfiguration(f"{path}: each id needs a reason, which is a string")
    return Baseline(known)


def write(violated: Iterable[tuple[str, str]]) -> str:
    """Return the text of a baseline with these ids and reasons."""
    lines = [
        "# Known failures. An entry that passes fails the run: remove it then.",
        "[known]",
        *(f"{json.dumps(ident)} = {json.dumps(reason)}" for ident, reason in violated),
    ]
    return "\n".join(lines) + "\n"
