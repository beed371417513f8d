"""Everyday episodes in the past tense, about any subject: I, we, she, a teacher, Anna.

An episode names its subject once and continues with the right pronoun; the things that it mentions
are chosen once and stay the same.
"""

# ruff: noqa: SIM905 - a list of words reads best as a line of words.
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import words as w

if TYPE_CHECKING:
    from .words import Pen


@dataclass(frozen=True)
class _Subject:
    first: str
    he: str
    him: str
    his: str


_GOODS = "bread|milk|apples|flowers|a newspaper|cheese|eggs|honey|tea|a cake|some fish".split("|")
_SHOPS = "store|market|shop|bakery|village|supermarket|harbour".split("|")
_ROLES = (
    "man he|woman she|teacher she|doctor he|farmer he|sailor he|baker he|girl she|boy he|child she|"
    "king he|queen she|old man he|old woman she|student she|painter she|neighbour he|gardener he|"
    "captain he|young woman she|young man he|engineer she|musician he|nurse she|driver he|poet she"
)

# {S} subject, {he} {him} {his} pronouns, {they} {them} with the friend, {x} goods, {t} thing,
# {c} colour, {p} place, {f} a friend, {a} an animal, {food}, {shop}.
_EPISODES = tuple(
    """\
{S} went to the {shop} to buy {x}. It cost only a few coins. On the way home {he} met {f}, and \
{they} talked for a while.
{S} went to the store to buy {x}, but the store was closed. So {he} went to {f} and asked for \
help. "Take some of mine," said {f}.
{S} wanted to buy {x}, but {he} had no money. Then {he} found a coin on the ground. {He} gave it \
back to the woman who had lost it, and she thanked {him}.
{S} found {t} {p}. {He} took it home and cleaned it. The next day {he} gave it to {f}.
{S} lost {his} key and could not open the door. {He} looked in every pocket. At last {f} found \
the key under the mat.
{S} woke up early and opened the window. The air was fresh, and the birds sang. {He} made some \
tea and sat down to read.
{S} woke up late and had to hurry. {He} forgot {his} hat and {his} bag. When {he} arrived, \
everyone laughed, and then {he} laughed, too.
{S} took the train to the city. From the window {he} saw fields, rivers and a castle. In the city \
{he} visited {f}.
{S} missed the bus and had to walk. It took an hour, but the sun shone, and {he} enjoyed every \
step.
{S} wrote a letter to {f}. {He} wrote about the weather, about the garden and about {a}. A week \
later an answer came.
{S} baked a cake for {f}. {He} mixed flour, eggs and sugar, and put it into the oven. It smelled \
wonderful, and everyone wanted a piece.
{S} cooked soup for dinner. {He} cut carrots and onions and added some salt. After dinner {he} \
washed the dishes.
{S} played chess with {f}. {They} played for two hours, and {f} won. "Next time I will win," {he} \
said.
{S} learned to play the piano. At first it sounded terrible, but {he} practised every day. Now \
people come to listen.
{S} read a book about the sea. {He} read until midnight. Then {he} dreamed of ships and islands.
{S} planted a tree in the garden. Every year it grew a little. Now {he} can sit in its shade.
{S} painted the door {c}. It took all day. In the evening the whole street came to look at it.
{S} built a small house of wood. {f} helped {him}. When it was ready, {they} sat inside and drank \
tea.
{S} repaired the old bicycle. {He} cleaned the chain and changed a wheel. Then {he} rode to the \
lake and swam.
{S} saw {a} {p}. It looked at {him} and did not run away. {He} stood very still and smiled.
{S} heard a noise in the garden. It was only {a} that looked for food. {He} gave it some bread.
{S} opened the box with great care. Inside lay {t} and an old letter. The letter said that it \
once belonged to a sailor.
{S} opened the door and looked outside. There stood {f} with {t}. "This is for you," said {f}.
{S} started a new job. The work was hard, but the people were kind. After a month {he} knew \
everything.
{S} started a node on an old computer. It printed an address and a token. {He} sent it a \
question, and the answer came at once.
{S} asked the computer a question. It thought for a moment. Then it wrote a short and friendly \
answer, word by word.
{S} went for a walk {p}. It began to rain, but {he} had an umbrella. Later the sun came out, and \
there was a rainbow.
{S} went to the beach with {f}. {They} built a castle of sand and looked for shells. The water \
was cold, but {they} swam anyway.
{S} went to school and learned about the planets. {He} learned that Jupiter is the largest. At \
home {he} told everyone about it.
{S} went to the doctor because {his} foot hurt. The doctor looked at it and smiled. "You only \
need some rest," she said.
{S} visited {his} grandmother. {They} ate {food} and looked at old pictures. "Come back soon," \
she said.
{S} looked at the stars. There were so many that nobody could count them. One of them fell, and \
{he} made a wish.
{S} looked out of the window. Snow covered the roofs, and the street was quiet. {He} put on a \
warm coat and went out.
{S} sat down under a tree and ate {food}. {a} came closer and closer. {He} shared the food with \
it.
{S} said that it was time to go. Nobody wanted to leave. So {they} stayed for one more song.
{S} said nothing for a long time. Then {he} began to laugh. "What a strange day," {he} said.
{S} told {f} a secret. {f} promised to keep it. {They} have been good friends ever since.
{S} had a dream about {a} that could talk. It told {him} where to find {t}. In the morning {he} \
looked, and there it was.
{S} had an idea. {He} wanted to make a map of the whole village. {f} helped {him}, and it took \
{them} all summer.
{S} had {t} that nobody else wanted. {He} took good care of it. One day it turned out to be very \
old and full of stories.
{S} worked all day in the garden. In the evening {he} was tired but happy. {He} ate {food} and \
went to bed early.
{S} thought about the sea. {He} had never seen it. So one day {he} packed a bag and set off.
{S} thought that nobody would come to the party. But at six o'clock {f} stood at the door, and \
behind {f} stood all the others.
{S} decided to learn something new every day. On the first day {he} learned to bake bread. On the \
second day {he} learned to sew.
{S} lived alone in a big house. One evening {a} came to the door. From that day on {he} was not \
alone any more.
{S} tried to catch the wind with {t}. Of course it did not work. But it was great fun.
{S} could not sleep. {He} counted sheep until one hundred. Then {he} got up and drank some milk.
{S} felt sad, and did not know why. Then {f} came and told a funny story. Soon everyone \
laughed.""".split("\n")
)


def _subject(pen: Pen) -> _Subject:
    roll = pen.number(0, 9)
    if roll < 3:
        return _Subject("I", "I", "me", "my")
    if roll == 3:
        return _Subject("We", "we", "us", "our")
    if roll == 4:
        return pen.pick((_Subject("She", "she", "her", "her"), _Subject("He", "he", "him", "his")))
    if roll == 5:
        return _Subject(pen.one("They|The children|My friends"), "they", "them", "their")
    if roll < 8:
        who = w.person(pen)
        return _Subject(who.name, who.he, who.him, who.his)
    noun, he = pen.one(_ROLES).rsplit(" ", 1)
    first = pen.pick((f"The {noun}", f"The {noun}", w.upper_first(w.a(noun))))
    return _Subject(first, he, *(("her", "her") if he == "she" else ("him", "his")))


def episode(pen: Pen) -> str:
    """One episode, which often begins with a time, such as ``Yesterday``."""
    s = _subject(pen)
    template = pen.pick(_EPISODES)
    when = pen.pick(
        (
            "Yesterday ",
            "One day ",
            "Last week ",
            "This morning ",
            "Today ",
            "In the morning ",
            "In the evening ",
            "Last summer ",
            f"On {pen.pick(w.DAYS)} ",
            "One evening ",
        )
    )
    first = s.first
    if pen.chance(0.5):
        lower = first.startswith(("The ", "A ", "An ", "We", "She", "He", "They", "My "))
        known = first in w.GIRLS or first in w.BOYS
        first = when + (first[0].lower() + first[1:] if lower and not known else first)
    friend = w.person(pen, (s.first,))
    text = template.format(
        S="\0",
        He=s.he if s.he == "I" else s.he.capitalize(),
        he=s.he,
        him=s.him,
        his=s.his,
        x=pen.pick(_GOODS),
        t=w.a(f"{pen.pick(w.COLOURS)} {pen.pick(w.THINGS)}"),
        c=pen.pick(w.COLOURS),
        p=pen.pick(w.PLACES),
        f=friend.name,
        they="we" if s.he in {"I", "we"} else "they",
        They="We" if s.he in {"I", "we"} else "They",
        them="us" if s.he in {"I", "we"} else "them",
        a="\1",
        food=pen.pick(w.FOODS),
        shop=pen.pick(_SHOPS),
    )
    noun = w.a(pen.pick(w.ANIMALS))
    text = text.replace(". \1", ". " + w.upper_first(noun)).replace("\1", noun)
    text = text.replace("\0", first)
    if pen.chance(0.25):
        text += pen.one(
            " It was a good day.| That was the best part of the week.| Then it was time for bed.|"
            " Sometimes life is like that.| And nobody ever forgot it."
        )
    return text
