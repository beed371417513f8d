"""The state of one story: who is in it, where it happens and which thing it is about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .words import Character


@dataclass(frozen=True)
class Stage:
    """What the sentences of one story agree on."""

    hero: Character
    friend: Character
    third: Character
    thing: str
    colour: str
    food: str
    place: str
    home: str
    weather: str
    time: str
    adjective: str
