"""Vocabulary of the corpus, and the pen that chooses from it.

Terms: a *pen* is a seeded source of choices, the only source of randomness in the corpus, so that
a document is a function of its seed; a *character* is someone in a story, with the pronouns that
every later sentence about them must use.
"""

# ruff: noqa: SIM905 - a list of words reads best as a line of words.
from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")

GIRLS = ("Anna Mia Lily Emma Sara Nora Rosa Clara Lucy Ruby Julia Grace Hanna Zoe Amy Eva").split()
BOYS = ("Ben Tom Max Leo Sam Jack Oscar Noah Finn Adam Peter Paul Hugo Omar Ali David").split()
SHE_PETS = "Bella Coco Poppy Luna Willow Hazel Ginger Misty Daisy Pearl".split()
HE_PETS = "Pip Rusty Milo Teddy Biscuit Pebble Socks Toby Button Bruno".split()
ANIMALS = (
    "fox rabbit bear mouse cat dog owl duck frog hedgehog squirrel turtle pig sheep goat horse "
    "lion elephant monkey penguin tiger wolf deer bird donkey crow hen bee snail dragon"
).split()
MORE_ANIMALS = "puppy kitten pony panda whale dinosaur unicorn crocodile robot seal koala".split()
"""Who else may be the hero of a story."""
PEOPLE = (
    "princess she|prince he|king he|queen she|knight he|fisherman he|farmer he|old woman she|"
    "old man he|wizard he|giant he|sailor he|witch she|pirate she|baker she|shepherd he"
).split("|")
ADJECTIVES = "little small young clever kind shy brave curious quiet cheerful lazy gentle".split()
COLOURS = "red blue green yellow white black brown orange purple golden silver pink".split()
THINGS = (
    "ball kite book lantern key bell boat drum hat map box coin scarf basket ring cup feather "
    "clock lamp stone flute umbrella"
).split()
FOODS = (
    "bread|soup|cake|apples|pears|cheese|honey|pancakes|carrots|nuts|berries|cookies|plums|"
    "tomato soup|apple pie|porridge"
).split("|")
PLACES = (
    "in the forest|by the river|on the hill|in the garden|at the beach|in the village|"
    "by the lake|on the farm|in the meadow|at the market|in the old castle|on the island|"
    "in the park|by the sea|near the mountain|under the old bridge|in the valley|at the harbour"
).split("|")
HOMES = (
    "in a small house near the forest|in a village by the river|on a farm at the foot of a hill|"
    "in a cosy cottage under an old oak|in a little town by the sea|in a wooden house on a hill|"
    "at the edge of a deep forest|in a quiet valley between two mountains|"
    "in a tall house in the city|beside a clear blue lake"
).split("|")
WEATHERS = ("sunny|rainy|windy|cloudy|cold|warm|foggy|snowy|bright|stormy|hot|mild").split("|")
TIMES = "morning afternoon evening".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = (
    "January February March April May June July August September October November December"
).split()
SEASONS = "spring summer autumn winter".split()
NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty"
).split()


class Pen:
    """A seeded source of choices."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def pick(self, options: Sequence[T]) -> T:
        """Return one of ``options``, each as likely as the others."""
        return options[int(self.rng.random() * len(options))]

    def some(self, options: Sequence[T], count: int) -> list[T]:
        """Return ``count`` different ``options`` in random order."""
        return self.rng.sample(list(options), count)

    def one(self, text: str) -> str:
        """Return one of the alternatives that ``|`` separates in ``text``."""
        return self.pick(text.split("|"))

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.rng.random() < probability

    def number(self, low: int, high: int) -> int:
        """Return an integer from ``low`` to ``high``, both included."""
        return self.rng.randint(low, high)


@dataclass(frozen=True)
class Character:
    """Someone in a story. ``kind`` is a noun such as ``girl`` or ``fox``."""

    name: str
    kind: str
    he: str
    him: str
    his: str

    @property
    def full(self) -> str:
        """The name as at its first mention: ``Rusty the fox``, but only ``Anna`` for a child."""
        return self.name if self.kind in {"girl", "boy"} else f"{self.name} the {self.kind}"

    @property
    def he_cap(self) -> str:
        """The pronoun at the start of a sentence."""
        return self.he.capitalize()

    @property
    def his_cap(self) -> str:
        """The possessive at the start of a sentence."""
        return self.his.capitalize()


def a(noun: str) -> str:
    """Return ``noun`` with ``a`` or ``an`` before it."""
    return f"an {noun}" if noun[0].lower() in "aeio" or noun.startswith("umb") else f"a {noun}"


def listed(items: Sequence[str]) -> str:
    """Return the items as a list in a sentence: ``a, b and c``."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def upper_first(text: str) -> str:
    """Return ``text`` with its first letter in upper case and the rest unchanged."""
    return text[:1].upper() + text[1:]


def person(pen: Pen, taken: Sequence[str] = ()) -> Character:
    """A child whose name is not among ``taken``."""
    girl = pen.chance(0.5)
    name = pen.pick([n for n in (GIRLS if girl else BOYS) if n not in taken])
    return (
        Character(name, "girl", "she", "her", "her")
        if girl
        else Character(name, "boy", "he", "him", "his")
    )


def animal(pen: Pen, taken: Sequence[str] = (), kind: str | None = None) -> Character:
    """An animal of this ``kind``, or of any not among ``taken``; nor is its name among them."""
    noun = kind or pen.pick([k for k in ANIMALS if k not in taken])
    she = pen.chance(0.5)
    name = pen.pick([n for n in (SHE_PETS if she else HE_PETS) if n not in taken])
    return (
        Character(name, noun, "she", "her", "her")
        if she
        else Character(name, noun, "he", "him", "his")
    )


def grown_up(pen: Pen, role: str) -> Character:
    """Someone with a role, one of ``PEOPLE``."""
    noun, he = role.rsplit(" ", 1)
    if he == "she":
        return Character(pen.pick(GIRLS), noun, "she", "her", "her")
    return Character(pen.pick(BOYS), noun, "he", "him", "his")


def anyone(pen: Pen, taken: Sequence[str] = ()) -> Character:
    """A child or an animal."""
    return person(pen, taken) if pen.chance(0.5) else animal(pen, taken)
