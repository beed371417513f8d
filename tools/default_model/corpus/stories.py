"""Short stories with a state: who, where, which thing, what went wrong and how it ended.

Every sentence is drawn from the state of its story, so that names, pronouns, things, colours and
places agree from the first sentence to the last. A *plot* turns a ``Stage`` into sentences; the
opening and the ending are shared by all plots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import words as w
from .plots import PLOTS
from .stage import Stage

if TYPE_CHECKING:
    from .plots import Plot
    from .words import Character, Pen


_ROLE_NOUNS = frozenset(role.rsplit(" ", 1)[0] for role in w.PEOPLE)


def _hero(pen: Pen, kind: str | None, name: str | None) -> Character:
    roll = pen.number(0, 19)
    role = next((r for r in w.PEOPLE if r.rsplit(" ", 1)[0] == kind), None)
    if role is not None or (kind is None and roll < 2):
        hero = w.grown_up(pen, role or pen.pick(w.PEOPLE))
    elif kind in ("girl", "boy") or (kind is None and roll < 11):
        hero = w.person(pen)
        while kind and hero.kind != kind:
            hero = w.person(pen)
    else:
        hero = w.animal(pen, kind=kind)
    if name is None:
        return hero
    if name in w.SHE_PETS or name in w.GIRLS:
        return w.Character(name, hero.kind, "she", "her", "her")
    return w.Character(name, hero.kind, "he", "him", "his")


def stage(pen: Pen, kind: str | None = None, name: str | None = None, **fixed: str) -> Stage:
    """Return a stage whose hero is of ``kind`` and is called ``name``, if these are given.

    ``fixed`` may name the ``friend_kind`` (an animal) and the ``thing``.
    """
    hero = _hero(pen, kind, name)
    if "friend_kind" in fixed:
        friend = w.animal(pen, (hero.name,), fixed["friend_kind"])
    else:
        friend = w.anyone(pen, (hero.name, hero.kind))
    third = w.anyone(pen, (hero.name, hero.kind, friend.name, friend.kind))
    return Stage(
        hero,
        friend,
        third,
        fixed.get("thing", pen.pick(w.THINGS)),
        pen.pick(w.COLOURS),
        pen.pick(w.FOODS),
        pen.pick(w.PLACES),
        pen.pick(w.HOMES),
        pen.pick(w.WEATHERS),
        pen.pick(w.TIMES),
        pen.pick(("old", "poor", "kind", "wise"))
        if hero.kind in _ROLE_NOUNS and not hero.kind.startswith("old ")
        else pen.pick(w.ADJECTIVES),
    )


def opening(pen: Pen, s: Stage, plot: Plot) -> list[str]:
    """Sentences that say who the hero is, where the hero lives and what the hero likes."""
    h = s.hero
    who = w.a(f"{s.adjective} {h.kind}")
    first = pen.pick(
        (
            f"Once upon a time, there was {who} named {h.name}.",
            f"Once upon a time, there was {who} named {h.name}.",
            f"Once upon a time there lived {who} called {h.name}.",
            f"Once upon a time, {who} named {h.name} lived {s.home}.",
            f"Once upon a time, {s.place}, there lived {who} named {h.name}.",
            f"There once was {who} named {h.name}.",
            f"Long ago, {who} named {h.name} lived {s.home}.",
            f"{h.name} was {who}.",
            f"{h.name} was {who} who lived {s.home}.",
            f"One day, {who} named {h.name} woke up early.",
            f"In the morning, {who} named {h.name} woke up and looked out of the window.",
            f"It was a {s.weather} {s.time}, and {who} named {h.name} was at home.",
            f"This is the story of {who} named {h.name}.",
            f"The {s.adjective} {h.kind} was called {h.name}.",
            f"A {s.adjective} {h.kind} named {h.name} lived {s.home}.",
        )
    )
    if first.startswith("A ") and s.adjective[0] in "aeiou":
        first = "An " + first[2:]
    out = [first]
    if " lived " not in first and pen.chance(0.6):
        out.append(f"{h.he_cap} lived {s.home}.")
    if pen.chance(0.7):
        more = [
            f"{h.name} loved to play {s.place}.",
            f"Every {s.time}, {h.name} went for a walk {s.place}.",
            f"Everybody liked {h.name}, because {h.he} was so kind.",
            f"Most of all, {h.he} liked to eat {s.food}.",
            f"{h.name} always wanted to learn new things.",
        ]
        if plot.friends:
            more += [
                f"{h.he_cap} had a good friend, {w.a(s.friend.kind)} named {s.friend.name}.",
                f"{h.his_cap} best friend was {w.a(s.friend.kind)} named {s.friend.name}.",
            ]
        if plot.owner:
            more += [f"{h.he_cap} had {w.a(s.colour + ' ' + s.thing)} that {h.he} loved."] * 3
        out.append(pen.pick(more))
    return out


def ending(pen: Pen, s: Stage, plot: Plot) -> list[str]:
    """Sentences that say how the day ends, and often what the hero has learned."""
    h, f = s.hero, s.friend
    out = [
        pen.pick(
            (
                f"{h.name} was very happy.",
                f"{h.name} and {f.name} were very happy.",
                f"From that day on, {h.name} and {f.name} were the best of friends.",
                f"That night, {h.name} went to bed with a smile.",
                f"In the evening, they sat together and ate {s.food}.",
                f"Then {h.name} and {f.name} walked home together, and the stars came out.",
                f"When {h.name} came home, {h.he} told the whole story.",
                f"{h.name} never forgot that day.",
            )
        )
    ]
    if pen.chance(0.45):
        out.append(f"{h.name} had learned that {pen.one(plot.morals)}.")
    if pen.chance(0.35):
        out.append(
            pen.one("The end.|And they lived happily ever after.|And that is the end of the story.")
        )
    return out


def story(pen: Pen, kind: str | None = None, name: str | None = None, **fixed: str) -> str:
    """One story in one to three paragraphs."""
    s, plot = stage(pen, kind, name, **fixed), pen.pick(PLOTS)
    while "thing" in fixed and not plot.thing:
        plot = pen.pick(PLOTS)
    begin, middle, end = opening(pen, s, plot), plot.tell(pen, s), ending(pen, s, plot)
    gap = pen.pick(("\n\n", " ", "\n\n"))
    cut = len(middle) // 2
    if pen.chance(0.5):
        return gap.join((" ".join(begin), " ".join(middle), " ".join(end)))
    return gap.join((" ".join(begin + middle[:cut]), " ".join(middle[cut:] + end)))


_TALES = "a story|a story|a short story|a bedtime story|a little story|a tale"
_HEROES = (*w.ANIMALS, *w.ANIMALS, *w.MORE_ANIMALS, *sorted(_ROLE_NOUNS), "girl", "boy")


def _topic(pen: Pen) -> tuple[str, str]:
    """A topic for a story, such as ``a fox``, and a story about it."""
    roll = pen.number(0, 19)
    kind = pen.pick(_HEROES)
    if roll < 9:
        return w.a(kind), story(pen, kind)
    if roll < 11:
        return w.a(f"{pen.pick(w.ADJECTIVES)} {kind}"), story(pen, kind)
    if roll < 14:
        she = pen.chance(0.5)
        if kind in w.ANIMALS or kind in w.MORE_ANIMALS:
            name = pen.pick(w.SHE_PETS if she else w.HE_PETS)
        else:
            kind = "girl" if she else "boy"
            name = pen.pick(w.GIRLS if she else w.BOYS)
        who = pen.pick((f"{w.a(kind)} {pen.one('named|called')} {name}", f"{name} the {kind}"))
        return who, story(pen, kind, name)
    if roll < 17:
        friend = pen.pick([k for k in w.ANIMALS if k != kind])
        return f"{w.a(kind)} and {w.a(friend)}", story(pen, kind, friend_kind=friend)
    thing = pen.pick(w.THINGS)
    return w.a(pen.one(f"{thing}|{thing}|magic {thing}")), story(pen, thing=thing)


def asked_story(pen: Pen) -> str:
    """A request for a story about someone or something, and the story."""
    about, text = _topic(pen)
    verb = pen.one("Tell me|Tell me|Write|Write me|Give me|Please tell me|Can you tell me|I want")
    ask = f"{verb} {pen.one(_TALES)} about {about}"
    if pen.chance(0.15):
        ask = f"{pen.one('A story|Story|A tale')} about {about}"
    ask += "?" if ask.startswith("Can") else pen.one(".|.|||!|:")
    if pen.chance(0.25):
        ask = ask[0].lower() + ask[1:]
    lead = "" if pen.chance(0.8) else pen.one("Here is a story for you. |Of course! |Yes. ")
    return f"{ask}{pen.one(chr(10) + '|' + chr(10) * 2 + '| ')}{lead}{text}"


def any_story(pen: Pen) -> str:
    """A request for some story, and the story."""
    ask = pen.one(
        "Tell me a story.|Tell me a story|tell me a story|Write a story.|Write a story|"
        "write a short story|Can you tell me a story?|I want to hear a story.|Story time!|"
        "A story, please.|Tell me another story.|Please tell me a bedtime story."
    )
    return f"{ask}\n{'' if pen.chance(0.7) else pen.one('Of course! |Gladly. ')}{story(pen)}"
