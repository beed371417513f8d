"""Where the layers of a pipeline are in their training (interface 2.3; decision 0201).

Terms: a *version* of a pipeline's weights is what all of its holders have kept under one name, each
of its own layers; its *number* counts the rounds. A *position* is a version and the steps since. A
*place* is what the driver says with a message that steps: the position that it steps from, the
*origin* of the version while some holder may lack that, and whether to go *back* to the version as
it was kept, or to *adopt* the position with whatever weights a holder has.

Invariants: version 0, the model's own weights, has no name and is never gone back to; a place is
read from at most ``MAX_CHARS`` characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from meshnode.domain.errors import InvalidRequest, MeshnodeError

PLACE = "training-place"
"""Metadata of a message that steps."""
VERSIONS = "training-versions"
"""Metadata of the answer of a holder that is elsewhere: the versions that it has."""
NONE = "none"
MISSED = 2
"""Steps that a holder may have missed, or taken alone, and still goes on with the others."""
MAX_CHARS = 160
MAX_NUMBER = 10**9 - 1
MAX_VERSIONS = 4
NAME_CHARS = 16
"""Of a version's name; for one that several pipelines have, those of the model's hash."""

_VERSION = r"(\d{1,9})(?:-([0-9a-f]{16}))?"
_PLACE = re.compile(rf"{_VERSION}:(\d{{1,9}})(?: from {_VERSION}:(\d{{1,9}}))?(?: (back|adopt))?")


@dataclass(frozen=True, slots=True, order=True)
class PipelineVersion:
    """A version by its number, and a name that its driver has chosen at random."""

    number: int = 0
    name: str = ""
    """16 hex characters; empty for version 0."""

    def __str__(self) -> str:
        """As it is sent."""
        return f"{self.number}-{self.name}" if self.name else str(self.number)


@dataclass(frozen=True, slots=True)
class Position:
    """Steps after a version."""

    version: PipelineVersion = PipelineVersion()
    steps: int = 0

    def __str__(self) -> str:
        """As it is sent."""
        return f"{self.version}:{self.steps}"

    @property
    def next(self) -> Position:
        """The position after one more step."""
        return replace(self, steps=self.steps + 1)

    def is_near(self, other: Position) -> bool:
        """Whether the same version lies behind both, and few steps between them."""
        return self.version == other.version and abs(self.steps - other.steps) <= MISSED


@dataclass(frozen=True, slots=True)
class Place:
    """What the driver says of a step."""

    position: Position = Position()
    origin: Position | None = None
    """Where the version comes from: a holder that is still there keeps it under its name."""
    back: bool = False
    adopt: bool = False

    def __str__(self) -> str:
        """As it is sent and signed."""
        origin = "" if self.origin is None else f" from {self.origin}"
        return f"{self.position}{origin}{' back' * self.back}{' adopt' * self.adopt}"


class Elsewhere(MeshnodeError):
    """The layers of a holder are not at the place of a message. Nothing was computed."""

    def __init__(self, position: Position, versions: Sequence[PipelineVersion]) -> None:
        super().__init__(f"the layers here are at {position}")
        self.versions = tuple(versions)


def place_in(text: str) -> Place | None:
    """A place from metadata; None if there is none. Raises InvalidRequest."""
    if not text:
        return None
    found = _PLACE.fullmatch(text) if len(text) <= MAX_CHARS and text.isascii() else None
    if found is None:
        raise InvalidRequest(PLACE, "must be VERSION:STEPS [from VERSION:STEPS] [back or adopt]")
    number, name, steps, old_number, old_name, old_steps, mode = found.groups()
    origin = None
    if old_number is not None:
        origin = Position(_version(old_number, old_name), int(old_steps))
    position = Position(_version(number, name), int(steps))
    return Place(position, origin, back=mode == "back", adopt=mode == "adopt")


def versions_text(versions: Iterable[PipelineVersion]) -> str:
    """Versions as metadata, which must not be empty."""
    return " ".join(map(str, versions)) or NONE


def versions_in(text: str) -> tuple[PipelineVersion, ...]:
    """The versions in a holder's answer. Raises InvalidRequest."""
    if text == NONE:
        return ()
    words = text.split(" ", MAX_VERSIONS) if len(text) <= MAX_CHARS and text.isascii() else [""]
    found = [re.fullmatch(_VERSION, word) for word in words]
    if len(words) > MAX_VERSIONS or not all(found):
        raise InvalidRequest(VERSIONS, f"must be at most {MAX_VERSIONS} versions")
    return tuple(_version(*one.groups()) for one in found if one is not None)


def version_in(text: str) -> PipelineVersion:
    """The version in a command. Raises InvalidRequest."""
    found = re.fullmatch(_VERSION, text) if len(text) <= MAX_CHARS and text.isascii() else None
    if found is None:
        raise InvalidRequest("version", "must be NUMBER-NAME, or 0")
    return _version(*found.groups())


def common_version(
    own: Iterable[PipelineVersion], others: Iterable[Sequence[PipelineVersion]]
) -> PipelineVersion | None:
    """The newest version that this node and all the others have; None if there is none."""
    lists = list(others)
    shared = [one for one in own if one.number and all(one in versions for versions in lists)]
    return max(shared, default=None)


def _version(number: str, name: str | None) -> PipelineVersion:
    if bool(int(number)) != bool(name):
        raise InvalidRequest(PLACE, "versions above 0 have a name, and 0 has none")
    return PipelineVersion(int(number), name or "")
