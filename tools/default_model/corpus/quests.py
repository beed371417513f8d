"""Plots in which something happens to the hero: a stage in, sentences out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import words as w

if TYPE_CHECKING:
    from .stage import Stage
    from .words import Pen


def _meet(pen: Pen, s: Stage) -> str:
    """The hero meets the friend."""
    h, f = s.hero, s.friend
    return pen.pick(
        (
            f"On the way, {h.name} met {w.a(f.kind)} named {f.name}.",
            f"Then {h.he} saw {w.a(f.kind)}. It was {f.name}.",
            f"Just then, {w.a(f.kind)} named {f.name} came along.",
            f"{w.upper_first(w.a(f.kind))} named {f.name} sat {s.place}.",
        )
    )


def _thanks(pen: Pen, giver: str, taker: str) -> str:
    return pen.pick(
        (
            f'"Thank you, {giver}!" said {taker}.',
            f'"Thank you so much," said {taker}. "You are a good friend."',
            f'"You are so kind, {giver}," said {taker}.',
            f"{taker} thanked {giver} and gave {giver} a big hug.",
        )
    )


def lost(pen: Pen, s: Stage) -> list[str]:
    """A thing is lost, looked for and found."""
    h, f = s.hero, s.friend
    thing = f"{s.colour} {s.thing}"
    where = pen.one(
        "under a big tree|behind a stone|under the bed|in the tall grass|on top of a rock|"
        "next to the well|behind the door|in a bird's nest"
    )
    return [
        pen.one("One day,|One morning,|Yesterday,") + f" {h.name} could not find {h.his} {thing}.",
        pen.pick(
            (
                f"{h.he_cap} looked everywhere, but the {s.thing} was gone.",
                f"{h.he_cap} looked under the table and behind the chair, but it was not there.",
                f"{h.name} was sad and began to cry.",
            )
        ),
        _meet(pen, s),
        f'"Why are you so sad?" asked {f.name}.',
        f'"I have lost my {thing}," said {h.name}.',
        pen.pick(
            (
                f'"Do not worry," said {f.name}. "I will help you to look for it."',
                f'"Let us look for it together," said {f.name}.',
            )
        ),
        pen.pick(
            (
                f"They looked {s.place}, and they looked at home.",
                "They looked here and they looked there.",
                "They searched for a long time.",
            )
        ),
        f"At last, {f.name} saw something {s.colour} {where}.",
        f'It was the {s.thing}! "Here it is!" {f.he} called.',
        _thanks(pen, f.name, h.name),
    ]


def fear(pen: Pen, s: Stage) -> list[str]:
    """A noise in the night turns out to be harmless."""
    h, f = s.hero, s.friend
    noise = pen.one("a strange noise|a loud noise|a soft knock|a deep howl|a scratching sound")
    return [
        f"One {pen.one('night|dark night|evening')}, {h.name} heard {noise}.",
        pen.pick(
            (
                f"{h.he_cap} was afraid and hid under {h.his} blanket.",
                f"{h.his_cap} heart beat very fast.",
                f'"Who is there?" whispered {h.name}, but nobody answered.',
            )
        ),
        f'Then {h.he} thought, "I must be brave."',
        f"{h.he_cap} took a {pen.one('lamp|lantern|candle')} and opened the door very slowly.",
        f"Outside stood {w.a(f.kind)}. {f.he_cap} was {pen.one('wet and cold|very cold|all wet')}.",
        f'"My name is {f.name}," said the {f.kind}. '
        + pen.one(
            '"I am lost, and I cannot find my way home."|"It is so cold outside. May I come in?"|'
            '"I did not want to scare you."'
        ),
        f'{h.name} laughed. "Come in," {h.he} said. "It is warm in here."',
        f"{h.he_cap} gave {f.name} {pen.one('a warm blanket|a cup of tea|a bowl of soup')} "
        f"and some {s.food}.",
        _thanks(pen, h.name, f.name),
        f"After that, {h.name} was not afraid of the dark any more.",
    ]


def help_up(pen: Pen, s: Stage) -> list[str]:
    """The friend is in trouble, and the hero helps."""
    h, f = s.hero, s.friend
    trouble, rescue = pen.pick(
        (
            ("had fallen into a deep hole", f"found a long rope and pulled {f.name} out"),
            ("was stuck in the mud", f"took a long branch and pulled {f.name} out"),
            ("had hurt a foot and could not walk", f"made a small cart and took {f.name} home"),
            ("was caught in a net", f"cut the net with a sharp stone and {f.name} was free"),
            ("was stuck in a tree", f"brought a ladder and helped {f.name} down"),
        )
    )
    return [
        f"One {s.weather} {s.time}, {h.name} was walking {s.place}.",
        pen.pick(
            (
                f'Suddenly {h.he} heard a voice. "Help! Help!" it called.',
                f"Then {h.he} heard someone cry.",
            )
        ),
        f"{h.he_cap} ran to see what it was.",
        f"There was {w.a(f.kind)} named {f.name} who {trouble}.",
        f'"Please help me," said {f.name}.',
        f'"I will help you," said {h.name}.',
        pen.one("At first it did not work.|It was not easy.|It took a long time."),
        f"Then {h.name} had an idea. {h.he_cap} {rescue}.",
        _thanks(pen, h.name, f.name),
        pen.pick(
            (
                f'"If you ever need help, call me," said {f.name}.',
                f"{f.name} gave {h.name} {w.a(s.colour + ' ' + s.thing)} as a present.",
            )
        ),
    ]


def trip(pen: Pen, s: Stage) -> list[str]:
    """A walk to a place, a meeting, a discovery."""
    h, f = s.hero, s.friend
    goal, sight = pen.pick(
        (
            ("the top of the hill", "the whole valley, with its fields and its little houses"),
            ("the sea", "big waves and a white ship far away"),
            ("the old tower", "a hundred birds that lived under the roof"),
            ("the end of the rainbow", "a field full of flowers in all colours"),
            ("the deep forest", "a clear pond in which the moon was shining"),
            ("the island", "a small door in a rock, and behind it an old map"),
        )
    )
    return [
        f"One {s.weather} day, {h.name} decided to go to {goal}.",
        f"{h.he_cap} packed some {s.food} and {w.a(s.thing)} and set off.",
        _meet(pen, s),
        f'"Where are you going?" asked {f.name}.',
        f'"I am going to {goal}," said {h.name}. "Do you want to come with me?"',
        f'"Yes, please!" said {f.name}, and so they went on together.',
        pen.pick(
            (
                "They crossed a river and climbed over a wall.",
                "They walked and walked until their feet were tired.",
                f"On the way they sang songs and ate the {s.food}.",
                f"It began to rain, but {f.name} knew a dry cave where they could wait.",
            )
        ),
        f"When they arrived, they saw {sight}.",
        pen.pick(
            (
                f'"It is so beautiful," said {h.name}.',
                f'"I have never seen anything like it," said {f.name}.',
            )
        ),
        "They stayed until the sun went down.",
    ]


def race(pen: Pen, s: Stage) -> list[str]:
    """A race that is won by patience, or given up for a friend."""
    h, f, t = s.hero, s.friend, s.third
    out = [
        f"One day there was a big race {s.place}.",
        f"{h.name}, {f.full} and {t.full} wanted to win.",
        f'"I am the fastest," said {t.name}. "You will never win."',
        f'"{pen.one("We will see|I will do my best|Let us just run")}," said {h.name}.',
        "One, two, three, and off they ran!",
    ]
    if pen.chance(0.5):
        return [
            *out,
            f"{t.name} was far ahead, and so {t.he} lay down under a tree and fell asleep.",
            f"{h.name} was slow, but {h.he} did not stop.",
            f"When {t.name} woke up, {h.name} was already there.",
            f'"Slow and steady wins the race," said {f.name}, and everyone laughed.',
        ]
    return [
        *out,
        f"{h.name} was in front. Then {h.he} heard a cry. {f.name} had fallen down.",
        f"{h.name} stopped and went back. " + f'"Are you all right?" {h.he} asked.',
        f'"My foot hurts," said {f.name}, and so {h.name} helped {f.him} to the end.',
        f"{t.name} won the race, but everyone cheered for {h.name}.",
    ]


def wish(pen: Pen, s: Stage) -> list[str]:
    """A magic thing grants a wish."""
    h, f = s.hero, s.friend
    want, got = pen.pick(
        (
            ("to fly", "flew over the roofs like a bird"),
            ("to be as tall as a tree", "grew until the houses looked like toys"),
            ("to talk with the stars", "heard the stars sing all night"),
            ("to see the sea", "stood on a white beach"),
            ("to understand the birds", "understood every word that the birds said"),
        )
    )
    return [
        f"One day, {h.name} found an old {s.thing} {s.place}.",
        f"It was {s.colour}, and it began to {pen.one('shine|glow|hum')} in the dark.",
        f'"I am a magic {s.thing}," it said. "You have one wish."',
        f'"I wish {want}," said {h.name}.',
        f"At once {h.he} {got}.",
        pen.pick(
            (
                f"It was wonderful, but after a while {h.name} missed {h.his} friend {f.name}.",
                f"At first it was fun, but soon {h.he} felt alone without {f.name}.",
            )
        ),
        f'"Now I want to go home," said {h.name}, and the {s.thing} brought {h.him} back.',
        f'{f.full} was waiting at the door. "Where have you been?" {f.he} asked.',
        f"{h.name} told {f.him} everything, and they laughed until it was dark.",
    ]


def node(pen: Pen, s: Stage) -> list[str]:
    """A story about a small computer in a mesh."""
    h, f = s.hero, s.friend
    return [
        f"{h.name} had a small {s.colour} computer. It was a node in a big mesh.",
        f'One {s.time}, the node said, "I am lonely. I have only one layer of the model."',
        f'"Do not worry," said {h.name}. "I will ask {f.full} to start a node, too."',
        f"{f.name} started a second node, and {s.third.name} started a third one.",
        "The nodes found each other and said hello. Each of them held some layers.",
        f'"Now we can answer questions together," said the node of {f.name}.',
        pen.one(
            "When one node went to sleep, another one took over its work.|"
            "They sent numbers to each other, fast as the wind.|"
            "Together they wrote a long story about the stars."
        ),
    ]
