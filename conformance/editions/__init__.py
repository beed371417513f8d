"""Editions: which requirements a run scores, how binding each is, and to which profile it belongs.

An edition is a file `N.txt` beside this module, with one line `ID LEVEL PROFILE` for each
requirement. It never changes once it has been released: a claim made with an edition stays true.
The lines of editions 1 and 2 end with the level; `profiles.txt` has the profiles of their
requirements. A requirement that an edition does not have is *not scored* by it: its checks run and
are reported, and fail nothing. The next edition scores it.

The *draft* is the next edition as it would be frozen today: the whole catalogue. A run may ask for
it by its number, to be judged by what is new; a claim with it lasts until the edition is frozen.

A check may become more exact within an edition only where it could not have failed a conforming
target; what judges an answer more strictly asks for the edition of the run (`Findings.edition`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

from conformance.catalogue import (
    CatalogueError,
    Level,
    Origin,
    Profile,
    Requirement,
    load,
)

EDITIONS = (1, 2, 3, 4, 5, 6)
CURRENT = EDITIONS[-1]
DRAFT = CURRENT + 1
# The edition in which most checks that are older became stricter.
FOURTH = 4
# The edition in which checks run again for other accounts and other parts of a model.
FIFTH = 5
# The edition in which what a run has seen is compared over all its answers.
SIXTH = 6
# The edition in which forms of texts, pages and headers are judged that few programs trip over.
SEVENTH = 7
# Those whose files have no profiles.
WITHOUT_PROFILES = (1, 2)


@dataclass(frozen=True)
class Scored:
    """What an edition says of one requirement."""

    level: Level
    profile: Profile


@cache
def scored(edition: int) -> Mapping[str, Scored]:
    """Return what the edition, or the draft, says of every requirement that it scores."""
    if edition == DRAFT:
        return {
            item.id: Scored(item.level, item.profile)
            for item in load().values()
            if item.origin is not Origin.SILENT
        }
    older = dict(_words("profiles.txt", 1)) if edition in WITHOUT_PROFILES else {}
    found: dict[str, Scored] = {}
    for ident, words in _words(f"{edition}.txt", 1 if older else 2):
        profile = older[ident] if older else words[1:]
        try:
            found[ident] = Scored(Level(words[0]), Profile(profile[0]))
        except ValueError as error:
            raise CatalogueError(f"{edition}.txt: {ident}: {error}") from None
    return found


def _words(name: str, count: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the first word of each line of a file with the others, of which there are `count`."""
    text = (resources.files("conformance") / "editions" / name).read_text(encoding="utf-8")
    seen: set[str] = set()
    for number, line in enumerate(text.splitlines(), 1):
        ident, *words = line.split(" ")
        if len(words) != count:
            raise CatalogueError(f"{name}:{number}: {len(words)} words after {ident!r}")
        if ident in seen:
            raise CatalogueError(f"{name}:{number}: {ident} occurs twice")
        seen.add(ident)
        yield ident, tuple(words)


@cache
def levels(edition: int) -> Mapping[str, Level]:
    """Return the level of every requirement that the edition, or the draft, scores."""
    return {ident: item.level for ident, item in scored(edition).items()}


def as_scored(requirement: Requirement, edition: int) -> Requirement | None:
    """Return the requirement as the edition has it, or None if the edition does not score it."""
    found = scored(edition).get(requirement.id) if edition >= requirement.since else None
    if found is None:
        return None
    if (found.level, found.profile) == (requirement.level, requirement.profile):
        return requirement
    return replace(requirement, level=found.level, profile=found.profile)
