"""Editions: which requirements a run scores, and how binding each one is.

An edition is a file `N.txt` beside this module, with one line `ID LEVEL` for each requirement. It
never changes once it has been released: a claim made with an edition stays true. A requirement that
an edition does not have is *not scored* by it: its checks run and are reported, and fail nothing.
The next edition scores it.

The *draft* is the next edition as it would be frozen today: the whole catalogue. A run may ask for
it by its number, to be judged by what is new; a claim with it lasts until the edition is frozen.

A check may become more exact within an edition only where it could not have failed a conforming
target; what judges an answer more strictly asks for the edition of the run (`Findings.edition`).
"""

from collections.abc import Mapping
from functools import cache
from importlib import resources

from conformance.catalogue import CatalogueError, Level, Origin, load

EDITIONS = (1, 2)
CURRENT = EDITIONS[-1]
DRAFT = CURRENT + 1


@cache
def levels(edition: int) -> Mapping[str, Level]:
    """Return the level of every requirement that the edition, or the draft, scores."""
    if edition == DRAFT:
        scored = (item for item in load().values() if item.origin is not Origin.SILENT)
        return {item.id: item.level for item in scored}
    path = resources.files("conformance") / "editions" / f"{edition}.txt"
    found: dict[str, Level] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        ident, _, level = line.partition(" ")
        if ident in found:
            raise CatalogueError(f"{edition}.txt:{number}: {ident} occurs twice")
        try:
            found[ident] = Level(level)
        except ValueError:
            raise CatalogueError(f"{edition}.txt:{number}: no level {level!r}") from None
    return found
