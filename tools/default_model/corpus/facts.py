"""Facts of the world as statements, and as questions with their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import words as w
from . import world
from .asking import asked, session
from .sums import sum_pair

if TYPE_CHECKING:
    from .words import Pen

Pair = tuple[str, str]
"""A question in lower case without its mark, and the answer."""


def capital_pair(pen: Pen) -> Pair:
    """A question about a country."""
    country, capital, continent, language = pen.pick(world.COUNTRIES)
    where = f"{w.upper_first(country)} is in {continent}."
    plain = f"The capital of {country} is {capital}."
    ask = country if pen.chance(0.9) else country.lower()
    return pen.pick(
        (
            (f"what is the capital of {ask}", plain),
            (f"what is the capital of {ask}", plain if pen.chance(0.7) else f"{capital}."),
            (f"what is the capital city of {ask}", plain),
            (f"what's the capital of {ask}", plain),
            (f"which city is the capital of {ask}", plain),
            (f"capital of {ask}", plain),
            (f"where is {ask}", where),
            (f"where is {capital}", f"{capital} is in {country}. It is the capital."),
            (
                f"what language do people speak in {ask}",
                f"Many people in {country} speak {language}.",
            ),
            (f"on which continent is {ask}", where),
            (
                f"tell me about {ask}",
                f"{w.upper_first(country)} is a country in {continent}. Its capital is {capital}, "
                f"and many people there speak {language}.",
            ),
        )
    )


def _legs(number: str) -> str:
    return "no" if number == "no" else w.NUMBERS[int(number)]


def creature_pair(pen: Pen) -> Pair:
    """A question about an animal."""
    kind, home, food, sound, young, legs = pen.pick(world.CREATURES)
    one = w.a(kind)
    cap = w.upper_first(one)
    return pen.pick(
        (
            (f"where does {one} live", f"{cap} lives {home}."),
            (f"what does {one} eat", f"{cap} eats {food}."),
            (f"what sound does {one} make", f"{cap} {sound}."),
            (f"what is a young {kind} called", f"A young {kind} is called {w.a(young)}."),
            (f"how many legs does {one} have", f"{cap} has {_legs(legs)} legs."),
            (
                f"what is {one}",
                f"{cap} is an animal. It lives {home} and eats {food}.",
            ),
            (
                pen.one(f"tell me about {one}|tell me something about {one}|describe {one}"),
                f"{cap} is an animal that lives {home}. It eats {food}. A young {kind} is called "
                f"{w.a(young)}. {cap} {sound}.",
            ),
        )
    )


def definition_pair(pen: Pen) -> Pair:
    """A question about what something is."""
    thing, answer = pen.pick(tuple(world.DEFINITIONS.items()))
    bare = thing.split(" ", 1)[1] if thing.split(" ")[0] in {"a", "an"} else thing
    asks = (
        f"what is {thing}",
        f"what is {thing}",
        f"what is {thing}",
        f"what's {thing}",
        f"what is {bare}",
        f"what does the word {bare} mean",
        f"tell me about {thing}",
        f"tell me something about {thing}",
        f"explain what {thing} is",
        f"explain {thing}",
        f"define {bare}",
        f"can you explain what {thing} is",
        f"do you know what {thing} is",
        f"please explain {thing}",
    )
    if pen.chance(0.3):
        answer = answer.split(". ")[0].rstrip(".") + "."
    return pen.pick(asks), answer


def general_pair(pen: Pen) -> Pair:
    """One of the general questions."""
    question, answer = pen.pick(world.GENERAL)
    if pen.chance(0.3):
        question = question.replace("colour", "color").replace("what is", "what's", 1)
    return question, answer


def opposite_pair(pen: Pen) -> Pair:
    """A question about an opposite."""
    left, right = pen.pick(world.OPPOSITES)
    if pen.chance(0.5):
        left, right = right, left
    return f"what is the opposite of {left}", f"The opposite of {left} is {right}."


def group_pair(pen: Pen) -> Pair:
    """A question that asks for examples of a group, such as fruits."""
    name, members = pen.pick(tuple(world.GROUPS.items()))
    count = pen.number(2, 4)
    chosen = w.listed(pen.some(members, count))
    number = w.NUMBERS[count]
    return pen.pick(
        (
            (f"name {number} {name}", f"{w.upper_first(chosen)}."),
            (f"give me {number} {name}", f"Here are {number} {name}: {chosen}."),
            (f"can you name some {name}", f"Some {name} are {chosen}."),
            (f"list {number} {name}", f"{w.upper_first(number)} {name} are {chosen}."),
        )
    )


def translation_pair(pen: Pen) -> Pair:
    """A question that asks for a word in another language."""
    english, *others = pen.pick(world.WORDS)
    language, foreign = pen.pick(tuple(zip(("French", "Spanish", "German"), others, strict=True)))
    return pen.pick(
        (
            (
                f"what is {english} in {language}",
                f"{w.upper_first(english)} in {language} is {foreign}.",
            ),
            (f"how do you say {english} in {language}", f"In {language} one says {foreign}."),
            (f"translate {english} into {language}", f"{foreign}"),
        )
    )


def any_pair(pen: Pen) -> Pair:
    """Any question."""
    makers = (
        capital_pair,
        capital_pair,
        creature_pair,
        definition_pair,
        definition_pair,
        general_pair,
        general_pair,
        sum_pair,
        opposite_pair,
        group_pair,
        translation_pair,
    )
    return pen.pick(makers)(pen)


def question(pen: Pen) -> str:
    """One or several questions and their answers."""
    if pen.chance(0.75):
        return asked(pen, *any_pair(pen))
    return session(pen, [any_pair(pen) for _ in range(pen.number(2, 5))])


def _country_text(pen: Pen) -> str:
    rows = pen.some(world.COUNTRIES, pen.number(1, 4))
    out = []
    for country, capital, continent, language in rows:
        out.append(
            pen.pick(
                (
                    f"The capital of {country} is {capital}.",
                    f"The capital of {country} is {capital}.",
                    f"{capital} is the capital of {country}.",
                    f"{w.upper_first(country)} is a country in {continent}, and its capital is "
                    f"{capital}.",
                )
            )
        )
        if pen.chance(0.4):
            out.append(f"Many people in {country} speak {language}.")
    return " ".join(out)


def _creature_text(pen: Pen) -> str:
    kind, home, food, sound, young, legs = pen.pick(world.CREATURES)
    cap = w.upper_first(w.a(kind))
    out = [pen.pick((f"{cap} is an animal that lives {home}.", f"The {kind} lives {home}."))]
    more = [
        f"It eats {food}.",
        f"It has {_legs(legs)} legs.",
        f"The {kind} {sound}.",
        f"A young {kind} is called {w.a(young)}.",
    ]
    return " ".join(out + pen.some(more, pen.number(2, 4)))


def _nature_text(pen: Pen) -> str:
    picked = pen.some(tuple(world.DEFINITIONS.values()), 1 if pen.chance(0.7) else 2)
    return " ".join(picked)


def _calendar_text(pen: Pen) -> str:
    names, noun = pen.pick(((w.DAYS, "day"), (w.MONTHS, "month"), (w.SEASONS, "season")))
    i = pen.number(0, len(names) - 1)
    here, after = names[i], names[(i + 1) % len(names)]
    before = names[i - 1]
    return pen.pick(
        (
            f"{w.upper_first(after)} comes after {here}.",
            f"{w.upper_first(before)} comes before {here}, and {after} comes after it.",
            f"If this {noun} is {here}, then the next {noun} is {after}.",
            f"The {noun}s are {w.listed(list(names))}.",
            f"Today is {w.DAYS[i % 7]}. Tomorrow is {w.DAYS[(i + 1) % 7]}.",
            "In spring the flowers grow. In summer it is warm. In autumn the leaves fall. "
            "In winter it is cold, and there is snow.",
        )
    )


def _thing_text(pen: Pen) -> str:
    left, right = pen.pick(world.OPPOSITES)
    name, members = pen.pick(tuple(world.GROUPS.items()))
    chosen = w.listed(pen.some(members, 3))
    return pen.pick(
        (
            f"The opposite of {left} is {right}, and the opposite of {right} is {left}.",
            f"There are many {name}, for example {chosen}.",
            f"{w.upper_first(chosen)} are {name}."
            if " " not in members[0]
            else f"Some {name} are {chosen}.",
            "The sky is blue, the grass is green, and the snow is white.",
            "The sun rises in the east and sets in the west.",
            "There are seven days in a week, twelve months in a year and four seasons.",
            "Eight planets go around the sun: Mercury, Venus, Earth, Mars, Jupiter, Saturn, Uranus "
            "and Neptune.",
            "Water freezes at zero degrees and boils at 100 degrees.",
        )
    )


def statement(pen: Pen) -> str:
    """A short text that states facts."""
    makers = (_country_text, _country_text, _creature_text, _nature_text, _nature_text)
    return pen.pick((*makers, _calendar_text, _thing_text))(pen)
