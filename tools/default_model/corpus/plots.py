"""Plots in which the hero sets out to do something, and the table of all plots.

A plot maps a stage to the sentences between opening and ending.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import words as w
from .quests import fear, help_up, lost, node, race, trip, wish

if TYPE_CHECKING:
    from .stage import Stage
    from .words import Pen


def share(pen: Pen, s: Stage) -> list[str]:
    """The hero does not want to share, and then does."""
    h, f = s.hero, s.friend
    return [
        f"One day, {h.name} had {pen.one('plenty of|a lot of|some')} {s.food}.",
        f"{f.full} came by and said, "
        + pen.one('"I am so hungry. May I have some?"|"That smells so good!"|"May I try a bit?"'),
        f'"No," said {h.name}. "{pen.one("This is all mine|I want to eat it alone")}."',
        f"{f.name} was sad and went away.",
        pen.pick(
            (
                f"{h.name} sat down to eat, but it did not taste good.",
                f"{h.name} ate and ate, but {h.he} felt lonely.",
            )
        ),
        f'"It is no fun to eat alone," {h.he} thought.',
        f"So {h.he} ran after {f.name}. "
        + f'"I am sorry," {h.he} said. "Please come back. We can share."',
        f"{f.name} smiled, and they sat down {s.place} and ate the {s.food} together.",
        pen.one("It tasted better than ever before.|Now it tasted wonderful.|They laughed a lot."),
    ]


def build(pen: Pen, s: Stage) -> list[str]:
    """The friends make something; the first try fails."""
    h, f = s.hero, s.friend
    made, fault, better = pen.pick(
        (
            ("a boat", "it sank", "it floated on the water like a duck"),
            ("a tree house", "the roof fell down", "it was strong and dry"),
            ("a kite", "it did not fly", "it flew high above the trees"),
            ("a bridge", "it broke", "it held even when they jumped on it"),
            ("a snowman", "his head fell off", "he stood there with a big smile"),
            ("a cart", "a wheel came off", "it rolled down the hill like the wind"),
        )
    )
    return [
        f'One day, {h.name} said to {h.his} friend {f.name}, "Let us make {made}!"',
        f'"{pen.one("What a good idea|Yes, let us do it|That will be fun")}," said {f.name}.',
        f"They took {pen.one('wood and nails|paper and string|what they could find|old boxes')} "
        "and worked all day.",
        f"But when {made.replace('a ', 'the ', 1)} was ready, {fault}.",
        f'{h.name} was {pen.one("sad|angry")}. "It will never work," {h.he} said.',
        f'"Let us try again," said {f.name}. "'
        + pen.one("We will do better this time|We only need to be patient|I know what to change")
        + '."',
        f"So they tried again, and {s.third.full} came to help.",
        f"This time, {better}.",
        pen.one('"We did it!" they shouted.|They danced with joy.|They were so proud.'),
    ]


def garden(pen: Pen, s: Stage) -> list[str]:
    """A seed needs patience."""
    h, f = s.hero, s.friend
    plant = pen.one("a sunflower|an apple tree|a pumpkin|a rose|a carrot|a bean")
    noun = plant.split(" ", 1)[1]
    return [
        f"One day in spring, {h.name} found a small seed {s.place}.",
        f'"What will it become?" {h.he} asked {f.full}.',
        f'"Put it into the ground and give it water," said {f.name}. "Then you will see."',
        f"So {h.name} planted the seed and gave it water every {s.time}.",
        pen.one(
            "The first day nothing happened. The second day nothing happened.|"
            "A week went by, but there was nothing to see.|"
            "It rained, and the sun shone, but nothing grew."
        ),
        f'"{pen.one("It will never grow|Maybe the seed is asleep")}," said {h.name}.',
        f'"Be patient," said {f.name}.',
        "Then, one morning, there was a tiny green leaf.",
        f"The leaf grew and grew, and in summer it was {plant}.",
        f"It was the biggest {noun} {pen.one('in the village|that anyone had ever seen|of all')}.",
    ]


def truth(pen: Pen, s: Stage) -> list[str]:
    """Something is broken, and the hero tells the truth."""
    h, f = s.hero, s.friend
    return [
        f"One {s.time}, {h.name} played with the {s.colour} {s.thing} of {f.full}.",
        pen.one("Suddenly it fell down and broke.|Then it fell on the floor and broke in two."),
        f"{h.name} was afraid that {f.name} would be angry.",
        pen.pick(
            (
                f"First {h.he} wanted to hide it {pen.one('under the bed|in the garden')}.",
                f"First {h.he} wanted to run away.",
            )
        ),
        f'But then {h.he} thought, "It is better to tell the truth."',
        f'So {h.he} went to {f.name} and said, "I am sorry. I broke your {s.thing}."',
        f"{f.name} was quiet for a moment. Then {f.he} smiled.",
        f'"Thank you for telling me," said {f.name}. "We can mend it together."',
        f"They took some {pen.one('glue|string|wood and glue')}, and soon the {s.thing} was "
        f"{pen.one('as good as new|whole again')}.",
    ]


def weather(pen: Pen, s: Stage) -> list[str]:
    """A rainy or snowy day becomes a good one."""
    h, f = s.hero, s.friend
    bad, cheer = pen.pick(
        (
            ("It rained and rained", "jumped into all the puddles"),
            ("It was cold, and snow lay on the ground", "made a big snowman"),
            ("The wind blew, and the leaves danced in the air", "let a kite fly"),
            ("It was so hot that nobody wanted to move", "swam in the cool lake"),
        )
    )
    return [
        f"{bad}.",
        f'"What can I do on such a day?" {h.name} asked.',
        f"{h.he_cap} looked out of the window and sighed.",
        f"Then there was a knock at the door. It was {f.name}, {w.a(f.kind)} from next door.",
        f'"Come out and play!" said {f.name}.',
        f'"In this weather?" asked {h.name}.',
        f'"Of course," said {f.name}. "There is no bad weather for friends."',
        f"So they went out and {cheer}.",
        f"Afterwards they went inside, ate {s.food} and told each other stories.",
    ]


def gift(pen: Pen, s: Stage) -> list[str]:
    """A birthday, and what to give."""
    h, f, t = s.hero, s.friend, s.third
    return [
        f"It was the birthday of {f.full}, and {h.name} wanted to give {f.him} a present.",
        f'But {h.name} had no money. "What can I give {f.him}?" {h.he} asked {t.name}.',
        f'"{pen.one("Make something yourself|Give what you love|A gift need not cost money")}," '
        f"said {t.full}.",
        f"So {h.name} took some {s.colour} {pen.one('paint|paper|wool|wood')} and made "
        f"{w.a(s.thing)}.",
        f"In the {s.time}, all the friends met {s.place} for the party. They ate {s.food}, "
        "and there was music.",
        f"When {f.name} saw the {s.colour} {s.thing}, {f.his} eyes grew big.",
        f'"Did you make this for me?" {f.he} asked. "It is the best present of all!"',
    ]


def learn(pen: Pen, s: Stage) -> list[str]:
    """Learning to do something takes practice."""
    h, f = s.hero, s.friend
    skill = pen.one("swim|read|dance|sing|ride a bicycle|bake bread|climb|play the flute|paint")
    return [
        f"{h.name} wanted to learn to {skill}, but {h.he} did not know how.",
        f'So {h.he} went to {f.full}. "Can you teach me to {skill}?" {h.he} asked.',
        f'"{pen.one("Of course|Gladly|Yes, I can")}," said {f.name}. '
        '"But you will have to practise every day."',
        f"On {pen.pick(w.DAYS)}, {h.name} tried for the first time, and it went wrong.",
        f'"I cannot do it," said {h.name}.',
        f'"Not yet," said {f.name}. "Try again tomorrow."',
        f"{h.name} tried again the next day, and the day after that.",
        f"Then one {s.time}, {h.he} could do it. {h.name} could {skill}!",
        f'"I knew that you would learn it," said {f.name}.',
    ]


@dataclass(frozen=True)
class Plot:
    """The middle of a story, and what its opening, ending and choice of words must respect."""

    tell: Callable[[Pen, Stage], list[str]]
    morals: str
    """What the hero may have learned, as alternatives."""
    friends: bool = False
    """The hero knows the friend from the beginning."""
    owner: bool = False
    """The thing belongs to the hero from the beginning."""
    thing: bool = False
    """The thing matters, so that the story can be said to be about it."""


_HELP = "it is good to ask for help|two can find more than one|a friend is better than gold"
_KIND = "it is good to help others|kindness comes back|a friend is better than gold"

PLOTS = (
    Plot(lost, _HELP, owner=True, thing=True),
    Plot(lost, _HELP, owner=True, thing=True),
    Plot(fear, "being brave does not mean never being afraid|the dark is full of friends"),
    Plot(share, "sharing makes everyone happy|it is no fun to eat alone", friends=True),
    Plot(help_up, _KIND),
    Plot(build, "one should never give up|it is good to try again", friends=True),
    Plot(trip, "the way is as good as the goal|the world is big and beautiful"),
    Plot(garden, "good things take time|it pays to be patient", friends=True),
    Plot(
        truth, "it is best to tell the truth|friends forgive each other", friends=True, thing=True
    ),
    Plot(race, "winning is not everything|it is best not to boast", friends=True),
    Plot(weather, "every day can be a good day|the best games need only a friend"),
    Plot(gift, "the best gifts come from the heart", friends=True, thing=True),
    Plot(
        wish,
        "home is the best place of all|a friend is better than magic",
        friends=True,
        thing=True,
    ),
    Plot(learn, "practice helps|one should never give up", friends=True),
    Plot(node, "many small nodes can do great things", friends=True),
)
