"""Other kinds of text: introductions, letters, recipes, weather, poems, scenes, mesh how-tos."""

# ruff: noqa: SIM905 - a list of words reads best as a line of words.
from __future__ import annotations

from typing import TYPE_CHECKING

from . import words as w
from .verses import poem

if TYPE_CHECKING:
    from .words import Pen

JOBS = "teacher doctor farmer sailor baker painter gardener writer pilot carpenter".split()
HOBBIES = (
    "read books|play chess|swim in the lake|bake bread|paint pictures|play the piano|ride my "
    "bicycle|work in the garden|watch the stars|sing in a choir|go for long walks|cook for friends"
).split("|")


def introduction(pen: Pen) -> str:
    """Somebody tells about themselves."""
    me = w.person(pen)
    child = pen.chance(0.5)
    age = pen.number(6, 12) if child else pen.number(24, 70)
    hobby, second = pen.some(HOBBIES, 2)
    start = pen.pick((f"My name is {me.name}", f"My name is {me.name}", f"I am {me.name}"))
    if pen.chance(0.3):
        start = pen.pick((f"Hello, my name is {me.name}", f"Hi, I am {me.name}"))
    body = [f"{start}. I am {age} years old, and I live {pen.pick(w.HOMES)}."]
    if pen.chance(0.3):
        body = [f"{start}, and I live {pen.pick(w.HOMES)}."]
    body.append(
        f"I go to school in the village, and I like {pen.one('music|numbers|animals|books')} best."
        if child
        else f"I am {w.a(pen.pick(JOBS))}, and I like my work."
    )
    pet = w.animal(pen, kind=pen.one("cat|dog|rabbit|horse|bird"))
    friend = w.person(pen, (me.name,))
    body.append(
        pen.pick(
            (
                f"In my free time I like to {hobby}.",
                f"I like to {hobby}, and I also like to {second}.",
                f"I have {w.a(pet.kind)} named {pet.name}. {pet.he_cap} is very "
                f"{pen.one('clever|lazy|kind|curious')}.",
                f"My best friend is called {friend.name}. {friend.he_cap} is very "
                f"{pen.one('kind|clever|funny|brave')}.",
                f"My favourite colour is {pen.pick(w.COLOURS)}, and I like to eat "
                f"{pen.pick(w.FOODS)}.",
            )
        )
    )
    return " ".join(body)


def letter(pen: Pen) -> str:
    """A letter from one friend to another."""
    to = w.person(pen)
    writer = w.person(pen, (to.name,))
    food = pen.pick(w.FOODS)
    news = pen.pick(
        (
            f"Yesterday we went for a walk {pen.pick(w.PLACES)}, and we saw "
            f"{w.a(pen.pick(w.ANIMALS))}.",
            f"Last week I learned to {pen.pick(HOBBIES).replace('my ', 'a ')}.",
            f"I have a new {pen.pick(w.COLOURS)} {pen.pick(w.THINGS)}, and I play with it every "
            "day.",
            f"My {pen.one('mother|father|grandmother|grandfather')} and I baked {food}.",
        )
    )
    ask = pen.pick(
        (
            f"Would you like to visit me on {pen.pick(w.DAYS)}? We could eat {food} together.",
            f"Please come and see me in {pen.pick(w.MONTHS)}.",
            "When will you come and see me?",
            "Please write back soon and tell me what you are doing.",
        )
    )
    lead = pen.one(
        f"How are you? I am well.|Thank you for your letter.|I hope that you are well.|"
        f"It is {pen.pick(w.WEATHERS)} here today."
    )
    close = pen.one("Your friend|With love|Best wishes|Yours")
    head = "" if pen.chance(0.8) else pen.one("Write a letter.\n|Write a letter to a friend.\n")
    return f"{head}Dear {to.name},\n\n{lead} {news} {ask}\n\n{close},\n{writer.name}"


def recipe(pen: Pen) -> str:
    """How to make a dish; the steps use everything that the list names."""
    dish, items, steps = pen.pick(
        (
            (
                "pancakes",
                ("two eggs", "a cup of flour", "a cup of milk", "some butter"),
                "Mix the eggs, the flour and the milk. Heat the butter in a pan. Pour in a little "
                "of the mix and bake it on both sides. Eat the pancakes with honey.",
            ),
            (
                "tomato soup",
                ("six tomatoes", "an onion", "some salt", "a litre of water"),
                "Cut the tomatoes and the onion. Boil them in the water for twenty minutes. Add "
                "the salt, stir well, and serve the soup hot.",
            ),
            (
                "bread",
                ("three cups of flour", "a cup of water", "some yeast", "a spoon of salt"),
                "Mix the flour, the water, the yeast and the salt. Let the dough rest for an hour. "
                "Bake it in a hot oven until it is brown.",
            ),
            (
                "tea",
                ("a cup of water", "a spoon of tea leaves", "a little honey"),
                "Boil the water. Pour it over the tea leaves and wait for three minutes. Add the "
                "honey and enjoy the tea.",
            ),
            (
                "fruit salad",
                ("two apples", "a banana", "an orange", "a spoon of honey"),
                "Wash the apples. Cut the apples, the banana and the orange into small pieces. "
                "Add the honey and mix everything.",
            ),
            (
                "apple pie",
                ("four apples", "two cups of flour", "some butter", "some sugar"),
                "Make a dough from the flour and the butter. Cut the apples and put them on the "
                "dough. Add the sugar and bake the pie for forty minutes.",
            ),
        )
    )
    ask = pen.pick(
        (
            f"How do I make {dish}?",
            f"How do you make {dish}?",
            f"How to make {dish}",
            f"Give me a recipe for {dish}.",
            f"A recipe for {dish}",
            f"how to make {dish}",
            f"Recipe: {dish}",
        )
    )
    if pen.chance(0.25):
        return f"To make {dish}, you need {w.listed(items)}. {steps}"
    if pen.chance(0.4):
        lines = "\n".join(f"- {item}" for item in items)
        return f"{ask}\n\nYou need:\n{lines}\n\n{steps}"
    return f"{ask}\nYou need {w.listed(items)}. {steps}"


def weather(pen: Pen) -> str:
    """A weather report."""
    sky, sun, advice = pen.pick(
        (
            ("sunny", "The sky is clear", "It is a good day for a walk."),
            ("rainy", "Dark clouds cover the sky", "Do not forget your umbrella."),
            ("windy", "A strong wind blows from the west", "Hold on to your hat."),
            ("cold", "There is ice on the road", "Wear a warm coat."),
            ("snowy", "Snow will fall all day", "The children can build a snowman."),
            ("foggy", "You can hardly see the trees", "Please drive slowly."),
            ("hot", "The sun shines all day", "Drink a lot of water."),
        )
    )
    degrees = {"sunny": 22, "rainy": 14, "windy": 12, "cold": 0, "snowy": -3, "foggy": 8, "hot": 31}
    value = degrees[sky] + pen.number(-2, 2)
    day = pen.pick(w.DAYS)
    unit = "degree" if abs(value) == 1 else "degrees"
    warm = f"about {value} {unit}" if value >= 0 else f"about {-value} {unit} below zero"
    start = pen.pick(
        (
            f"The weather today is {sky}.",
            f"The weather on {day} will be {sky}.",
            f"Today it is {sky}.",
            f"Weather report for {day}: it will be {sky}.",
            f"On {day} it was {sky}.",
        )
    )
    if "was" in start:
        return f"{start} It was {warm}. Nobody wanted to go home before the evening."
    tomorrow = pen.pick([x for x in w.WEATHERS if x != sky])
    return f"{start} {sun}, and it is {warm}. {advice}" + (
        f" Tomorrow it will be {tomorrow}." if pen.chance(0.5) else ""
    )


def scene(pen: Pen) -> str:
    """An everyday phrase, perhaps followed by one or two sentences that are not about it."""
    c, other = w.person(pen), w.animal(pen)
    colour, thing, food = pen.pick(w.COLOURS), pen.pick(w.THINGS), pen.pick(w.FOODS)
    place, time, day = pen.pick(w.PLACES), pen.pick(w.TIMES), pen.pick(w.DAYS)
    first = pen.pick(
        (
            "In the morning the sun rose over the hills, and the birds began to sing.",
            "In the morning, the first thing that I do is to open the window.",
            f"In the morning, {c.name} got up early and made breakfast.",
            f"In the morning I drink a cup of tea and eat {food}.",
            "In the evening the lights went on in all the houses.",
            f"In the evening, {c.name} sat by the fire and read a book.",
            "In the night it was quiet, and only the owl was awake.",
            f"The sun was shining, and {c.name} went for a walk {place}.",
            "The sun rises in the east. In the morning it is low, and at noon it is high.",
            "The sun went down behind the mountain, and the sky turned red and golden.",
            "The sun is warm today, and the flowers open.",
            "The moon was full, and its light lay on the water like silver.",
            f"The {colour} {thing} stood on the table, and nobody knew whose it was.",
            f"The {other.kind} sat {place} and looked at the sky.",
            f"The {other.kind} was {pen.one('hungry|tired|curious')}, so it went to look for food.",
            f"The old man had {w.a(colour + ' ' + thing)}, and he took good care of it.",
            "The children ran down the road and laughed.",
            "The wind blew through the trees, and the leaves began to fall.",
            "The sea was calm, and a white ship sailed to the west.",
            f"The cat lay on the {colour} blanket and purred.",
            f"The dog barked when {c.name} came home.",
            "The door was open, but there was nobody at home.",
            "The best day of the week is the day on which you meet a friend.",
            f"Today is {day}. {c.name} has no school and can stay in bed.",
            f"Today was a good day. I met a friend, and we ate {food}.",
            f"Yesterday {c.name} found {w.a(colour + ' ' + thing)} {place}.",
            f"Last night I had a dream. I could fly, and below me I saw {w.a(other.kind)}.",
            f"There is {w.a(colour + ' ' + thing)} {place}. It belongs to {c.name}.",
            f"There was a knock at the door. Outside stood {w.a(other.kind)}.",
            f"It is {pen.pick(w.WEATHERS)} today, and {c.name} wants to play outside.",
            f"It was a dark night, and {c.name} could not sleep.",
            f"I like {food} because they taste so good."
            if food.endswith("s")
            else f"I like {food} because it tastes so good.",
            f"I think that {w.a(other.kind)} would be a good friend.",
            f"I have a {pen.one('brother|sister')}. We like to play {place}.",
            f"I want to go for a walk {place}. The air is fresh there.",
            f"When {c.name} was small, {c.he} lived {pen.pick(w.HOMES)}.",
            "When it rains, the frogs are happy and the cats stay at home.",
            f"If I had a boat, I would sail to an island and look for {w.a(thing)}.",
            f"{c.name} opened the box. Inside there was {w.a(colour + ' ' + thing)}.",
            f"She opened the door and saw {w.a(other.kind)} with {w.a(colour + ' ' + thing)}.",
            f"He took his {thing} and went {place.replace('in the', 'into the', 1)}.",
            f"We went for a walk {place} and ate {food}.",
            f"They lived {pen.pick(w.HOMES)}, and they were happy there.",
            f"My {pen.one('mother|father|grandmother')} has {w.a(thing)} that is very old.",
            f"My favourite {pen.one(f'colour is {colour}|animal is the {other.kind}')}.",
            f"This is {w.a(colour + ' ' + thing)}. {c.name} bought it at the market.",
            f"A {other.kind} came to the house every {time}.".replace("A owl", "An owl").replace(
                "A elephant", "An elephant"
            ),
            "Every morning the baker bakes fresh bread, and the whole street smells of it.",
            "People like to sit together and tell stories.",
            "Good friends help each other.",
            "Life is like a river. It flows, and it never stands still.",
        )
    )
    second = pen.pick(
        (
            f"It was a {pen.one('quiet|beautiful|long')} day {place}.",
            f"Then {w.a(other.kind)} came along, and everyone was surprised.",
            f"Nobody spoke, but everyone was {pen.one('happy|glad|calm')}.",
            "It was a day like many others, and yet it was a good one.",
            "After a while the bells of the village began to ring.",
            "That is how it should be.",
        )
    )
    third = pen.pick(
        (
            f"Later there was {food}, and a warm fire.",
            "In the end, everything was well.",
            "And tomorrow will be another day.",
            "Then it grew dark, and the first stars came out.",
            "Sometimes small things make the greatest joy.",
        )
    )
    return " ".join([first, second, third][: pen.number(1, 3)])


_MESH = (
    (
        "start a node",
        "Install the package, then run python -m meshnode. The node prints its address, "
        "its token and a line that you can try.",
    ),
    (
        "stop a node",
        "Press Ctrl and C once. The node finishes the answers that it has begun, and then it "
        "stops.",
    ),
    (
        "see whether a node is well",
        "Ask for /api/v1/health. If the answer says healthy, the node is well.",
    ),
    (
        "ask the model a question",
        "Send a POST request to /api/v1/inference with a prompt and your token. The answer "
        "comes back as JSON.",
    ),
    (
        "join a network",
        "Start your node with the address of a tracker. It will find the other nodes and take "
        "over some layers.",
    ),
    (
        "get a token",
        "The node writes a token when it starts for the first time. You can also issue a new one "
        "with meshnode token issue.",
    ),
    (
        "share the layers of a model",
        "Start each node with a range of layers, such as 0-3 and 4-7. Together they hold the "
        "whole model.",
    ),
    (
        "plant a seed",
        "Put the seed into the soil, give it water every day, and wait. Soon you will see a green "
        "leaf.",
    ),
    (
        "draw a cat",
        "First draw a circle for the head. Then add two ears, two eyes and a smile. At last draw "
        "the body and a long tail.",
    ),
    (
        "fall asleep",
        "Put away your work, make the room dark, and breathe slowly. Think of a quiet lake.",
    ),
    (
        "make a friend",
        "Smile, say hello, and listen well. Share what you have, and be kind.",
    ),
    (
        "learn a language",
        "Read a little every day, listen to songs, and do not be afraid to make mistakes.",
    ),
    (
        "stay healthy",
        "Eat fruit and vegetables, sleep enough, and go outside every day.",
    ),
)


def how_to(pen: Pen) -> str:
    """How to do something, above all with a node of the mesh."""
    task, steps = pen.pick(_MESH)
    ask = pen.pick(
        (
            f"How do I {task}?",
            f"How can I {task}?",
            f"how do i {task}",
            f"How to {task}",
            f"What must I do to {task}?",
            f"Explain how to {task}.",
        )
    )
    if pen.chance(0.2):
        return f"This is how to {task}. {steps}"
    sep = pen.one("\n|\n\n| |\n")
    if pen.chance(0.25):
        parts = [p.rstrip(".") + "." for p in steps.split(". ")]
        steps = "\n".join(f"{i}. {p}" for i, p in enumerate(parts, 1))
        sep = "\n"
    return f"{ask}{sep}{steps}"


__all__ = ["how_to", "introduction", "letter", "poem", "recipe", "scene", "weather"]
