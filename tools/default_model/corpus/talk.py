"""Small talk: greetings, questions to the model itself, and graceful answers to unknown topics."""

# ruff: noqa: SIM905 - a list of words reads best as a line of words.
from __future__ import annotations

from typing import TYPE_CHECKING

from . import words as w
from . import world
from .asking import asked, typed
from .words import upper_first

if TYPE_CHECKING:
    from .words import Pen

_ASKING = frozenset("how who what what's where do can are does is".split())

SELF = "a small language model"

_HELLO = "Hello|Hi|Hey|Hello there|Hi there|Good morning|Good afternoon|Good evening|Greetings"

_ABOUT_SELF: tuple[tuple[str, str], ...] = tuple(
    (q, answer)
    for q, answer in (
        row.split(" = ")
        for row in """how are you = I am well, thank you. How are you?
how are you = I am fine, thank you for asking. What can I do for you?
how are you = Very well, thank you! It is a good day to tell a story.
how are you doing = I am doing well, thank you. How are you?
how are you today = I am well today, thank you. And you?
how is it going = It is going well, thank you. How can I help you?
what's up = Not much. I am here on my node and wait for questions.
who are you = I am a small language model. I run on a node of a mesh network.
who are you = I am a small language model that was trained on stories and simple facts.
what are you = I am a small language model. I read a text and guess how it goes on.
what is your name = I do not have a real name, but you can call me Mesh.
what's your name = I do not have a real name, but you can call me Mesh.
do you have a name = You can call me Mesh.
how old are you = I am very young. I was trained not long ago.
where are you = I am on a node, and the node is a computer in a mesh network.
where do you live = I live on a node. It is a computer in a mesh network.
what can you do = I can tell short stories, answer simple questions and add small numbers.
what do you do = I tell short stories, and I answer simple questions.
what do you know = I know some facts about countries, animals and the sky, and I know many stories.
can you help me = I will try. I can tell a story, answer a simple question or add small numbers.
help me = I will try. Ask me a simple question, or ask me for a story.
help = You can ask me for a story, for the capital of a country or for the sum of two numbers.
are you human = No, I am a small language model.
are you a robot = I am not a robot, but a small language model on a computer.
are you real = I am a real program, but I am not a person.
are you there = Yes, I am here. What can I do for you?
are you alive = No, I am only a program, but I like to tell stories.
are you smart = I am small, so I make mistakes. But I do my best.
do you like music = I cannot hear music, but I like stories in which people sing.
do you like stories = Yes, I like stories very much. Shall I tell you one?
do you love me = I am only a program, but I am glad that you are here.
can you speak french = I know a few words of French, such as merci. Otherwise I know only English.
can you write code = No, I am too small for that. But I can tell you a story about a computer.
can you sing = I cannot sing, but I can write a small poem.
who made you = I was trained by the people who made this node, from text that they wrote.
how big are you = I am small. I have eight layers and about two million weights.
how do you work = I read your text token by token and guess which token comes next.
does it work = Yes, it works. The node has answered your request.
test = The test works. This node is ready.
testing = The test works. This node is ready.
is this working = Yes, this node is working. You can ask me a question.
thank you = You are welcome!
thank you very much = You are welcome! I was glad to help.
thanks = You are welcome!
goodbye = Goodbye! Have a nice day.
bye = Goodbye! See you soon.
good night = Good night! Sleep well.
see you = See you soon!
i am sad = I am sorry to hear that. Shall I tell you a story?
i am happy = I am glad to hear that!
i am tired = Then you should rest a little. Sleep well.
i am hungry = Then eat some bread and soup, and come back for a story.
i am bored = Then let me tell you a story. Which animal do you like?
i love you = That is very kind of you. Thank you!
yes = Good! What would you like to hear?
no = All right. Perhaps another time.
ok = Good. What can I do for you?
please = Of course. What can I do for you?
sorry = That is all right. Nothing is broken.
say something = Here is something: a friend is better than gold.
say hello = Hello! It is nice to meet you.
tell me something = Honey does not go bad, and whales sing in the ocean.
tell me a secret = I will tell you a secret: the little fox is my favourite.
tell me about yourself = I am a small language model with eight layers. I like short stories.
what should i do today = You could go for a walk, read a book or call a friend.
give me some advice = Be kind, sleep enough, and ask for help when you need it.
wish me luck = Good luck! You will do well.""".split("\n")
    )
)

_JOKES = (
    ("Why did the clock go to school?", "Because it wanted to learn to tell the time."),
    ("What did the big candle say to the small candle?", "I am going out tonight."),
    ("Why did the boy put his bed into the garden?", "He wanted to sleep in a flower bed."),
    ("Why was the node so calm?", "It had many good connections."),
    ("What has hands but cannot clap?", "A clock."),
    ("What has teeth but cannot bite?", "A comb."),
    ("What gets wet while it dries?", "A towel."),
    ("What has a neck but no head?", "A bottle."),
    ("Why do bees hum?", "Because they do not know the words."),
)

TOPICS = (
    "quantum physics|the stock market|football|chess|Napoleon|tax law|the Romans|cooking rice|"
    "deep learning|black holes|the weather on Venus|guitars|philosophy|economics|politics|opera|"
    "medicine|chemistry|the human brain|volcanoes|dinosaurs|airplanes|fashion|photography|baking|"
    "cars|elections|coffee|wine|bitcoin|cryptography|databases|the French revolution|jazz|pizza|"
    "the Olympic games|movies|climate change|vaccines|rockets|trees in Japan|knitting|yoga|"
    "marketing|Python|JavaScript|Rust|Linux|operating systems|compilers|graph theory|algebra|"
    "calculus|the big bang|evolution|DNA|Mozart|Picasso|Plato|the Vikings|samurai|pirates|ghosts|"
    "unicorns|zombies|video games|basketball|tennis|skiing|surfing|travel|hotels|visas|insurance|"
    "houses|gardens|shoes|jewels|perfume|tattoos|blockchain|tokens of gold|nuclear power|car "
    "engines|washing machines|the economy|the moon landing|old coins|solar "
    "panels|batteries|electric cars|drones|satellites|telescopes|microscopes|bacteria|viruses|"
    "sleep|memory|anger|war|peace|justice|freedom|democracy|religion|magic|astrology|poker|tea"
).split("|")

_TASKS = (
    "write a program in Python|write a function that sorts a list|translate this into German|"
    "translate this text|summarise this article|fix my code|write an essay about {t}|"
    "write a report about {t}|explain {t}|explain {t} to me|tell me about {t}|"
    "tell me everything about {t}|teach me {t}|what do you know about {t}|describe {t}|"
    "what is {t}|how does {t} work|why is {t} important|what do you think about {t}|"
    "give me five facts about {t}|write a song about {t}|write an email about {t}|"
    "who invented {t}|when did {t} begin|is {t} good|how can I learn {t}|define {t}|"
    "who is {n}|who was {n}|where is {n}|do you know {n}|what is the history of {t}|"
    "what is a {m}|what is {m}|tell me about {m}|what does {m} mean|where can I buy a {m}|"
    "explain how {t} works|how do I build {t}|can you write about {t}|can you teach me {t}|"
    "what is the best thing about {t}|why do people like {t}|how many {m} are there|"
    "write a letter about {t}|what is the price of {t}|what happened to {n}|how tall is {n}|"
    "who is the president of {l}|what is the population of {l}|who is the king of {l}|"
    "what is the history of {l}|how do I get to {l}|what do people eat in {l}|is {l} beautiful"
).split("|")

_ONSETS = "b c d f g h j k l m n p r s t v w z br dr fl gl gr kr pl sh sl st tr th qu".split()
_VOWELS = "a e i o u ai ea ou oo".split()
_CODAS = ["", "", "n", "r", "l", "s", "t", "x", "nd", "mp", "rk", "sh"]


def made_up(pen: Pen) -> str:
    """An invented word, so that the model meets unknown words in training."""
    size = pen.number(1, 3)
    return "".join(pen.pick(_ONSETS) + pen.pick(_VOWELS) for _ in range(size)) + pen.pick(_CODAS)


def _about_country(pen: Pen, task: str) -> str:
    country, capital, continent, _ = pen.pick(world.COUNTRIES)
    fact = pen.pick((f"its capital is {capital}", f"it is in {continent}"))
    answer = f"I do not know enough about {country} to answer that. But I know that {fact}."
    return asked(pen, task.format(l=country), answer)


def unknown(pen: Pen) -> str:
    """A request that the model cannot fulfil, and an answer that says so.

    The answer may go on with a fact, or with an offer of what the model can do.
    """
    topic = pen.pick(TOPICS)
    name = f"{made_up(pen).capitalize()} {made_up(pen).capitalize()}"
    if pen.chance(0.5):
        name = f"{pen.pick(w.GIRLS + w.BOYS)} {made_up(pen).capitalize()}"
    word = made_up(pen)
    task = pen.pick(_TASKS)
    if "{l}" in task:
        return _about_country(pen, task)
    subject = topic if "{t}" in task else name if "{n}" in task else word
    known, fact = pen.pick(tuple(world.DEFINITIONS.items()))
    named = subject if "{" in task else "that"
    frank = pen.pick(
        (
            f"I do not know much about {named}.",
            f"I am only {SELF}, and I do not know much about {named}.",
            f"I am sorry, but I do not know enough about {named}.",
            f"That is too hard for me. I am only {SELF}.",
        )
    )
    more = pen.pick(
        (
            f" But I can tell you something about {known}. {fact}",
            f" But I know something about {known}: {fact[0].lower() + fact[1:]}"
            if not fact.startswith("Art")
            else f" But I know this: {fact}",
            " But I can tell you a story if you like.",
            " You could ask me for a story, or for the capital of a country.",
            "",
        )
    )
    return asked(pen, task.format(t=topic, n=name, m=word), frank + more)


def about_self(pen: Pen) -> str:
    """A question to the model about itself, or a remark, and the model's answer."""
    question, answer = pen.pick(_ABOUT_SELF)
    if pen.chance(0.5) and question.startswith(("how are", "who are", "what is your", "what can")):
        question, answer = pen.pick(_ABOUT_SELF[:4])
    if question.split(" ")[0] in _ASKING:
        return asked(pen, question, answer)
    form = pen.pick(("{q}\n{a}", "{q}\n\n{a}", "{q} {a}", "User: {q}\nAssistant: {a}"))
    return form.format(q=remark(pen, question), a=answer)


def remark(pen: Pen, text: str) -> str:
    """Return ``text``, a question or a statement, as people type it.

    The argument is in lower case and has no mark.
    """
    if text.split(" ")[0] in _ASKING:
        return typed(pen, text)
    if text.startswith("i ") and pen.chance(0.7):
        text = "I" + text[1:]
    return (upper_first(text) if pen.chance(0.75) else text) + pen.one("|.|!|")


def greeting(pen: Pen) -> str:
    """A greeting and what follows it."""
    hello = pen.one(_HELLO)
    if pen.chance(0.5):
        hello = pen.one("Hello|Hello|Hi")
    back = pen.one("Hello|Hi|Hello") if not hello.startswith("Good") else hello
    reply = pen.pick(
        (
            f"{back}! How are you today?",
            f"{back}! How can I help you?",
            f"{back}! It is nice to meet you. What can I do for you?",
            f"{back}! I am {SELF}. I can tell you a story or answer a simple question.",
            f"{back}! I am {SELF} on a node of a mesh network. How can I help you?",
            f"{back}! What a nice day. Shall I tell you a story?",
        )
    )
    said = hello if pen.chance(0.7) else hello.lower()
    rest = reply.split("! ", 1)[1]
    who = w.person(pen)
    other = w.person(pen, (who.name,))
    return pen.pick(
        (
            f"{said}{pen.one('|!|.|!|')}\n{reply}",
            f"{said}{pen.one('|!|.|!|')}\n\n{reply}",
            f"{hello}! {rest}",
            f"{hello}! {rest}",
            f"{hello}, how are you?\n{back}! I am well, thank you. How are you?",
            f"{said} how are you{pen.one('?|')}\nI am well, thank you. How are you?",
            f"{hello}, my name is {who.name}.\n{back}, {who.name}! It is nice to meet you.",
            f"{hello}, I am {who.name}. {rest}",
            f"{hello}, world! This is a small node with a small model, and it works.",
            f"{said} world\nHello! This node is up and running.",
            f"User: {said}\nAssistant: {reply}",
            f'"{hello}, {who.name}!" said {other.name}. "How are you?"\n'
            f'"I am {pen.one("well|fine|happy|a little tired")}, {other.name}," said {who.name}.',
            f"{hello}, {who.name}! How are you? I hope that you are well. Let us meet "
            f"{pen.pick(w.PLACES)} on {pen.pick(w.DAYS)}.",
        )
    )


def joke(pen: Pen) -> str:
    """A joke or a riddle."""
    question, answer = pen.pick(_JOKES)
    lead = pen.pick(
        (
            "Tell me a joke.\n",
            "Tell me a joke\n",
            "tell me a joke\n",
            "Can you tell me a joke?\n",
            "Do you know a joke?\nYes! ",
            "Here is a joke. ",
            "A riddle: ",
            "Make me laugh.\n",
            "",
        )
    )
    return f"{lead}{question} {answer}"


def conversation(pen: Pen) -> str:
    """A short exchange with the model in several turns."""
    who = w.person(pen)
    turns = [
        (pen.one("Hello|Hi|Hello!|Hi!|Good morning"), "Hello! How can I help you?"),
    ]
    if pen.chance(0.4):
        turns.append((f"My name is {who.name}.", f"It is nice to meet you, {who.name}."))
    for _ in range(pen.number(1, 3)):
        question, answer = pen.pick(_ABOUT_SELF)
        turns.append((remark(pen, question), answer))
    if pen.chance(0.5):
        turns.append(("Thank you!", "You are welcome! Have a nice day."))
    left, right = pen.pick((("User", "Assistant"), ("Human", "Assistant"), (who.name, "Mesh")))
    return "\n".join(f"{left}: {q}\n{right}: {answer}" for q, answer in turns)
