"""Small arithmetic and counting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import words as w
from .asking import asked, session

if TYPE_CHECKING:
    from .words import Pen


def _operands(pen: Pen) -> tuple[int, int]:
    high = 5 if pen.chance(0.35) else 10 if pen.chance(0.8) else 12
    return pen.number(0, high), pen.number(0, high)


def sum_pair(pen: Pen) -> tuple[str, str]:
    """A question for a sum, a difference or a product, and the answer."""
    x, y = _operands(pen)
    roll = pen.number(0, 9)
    if roll < 6:
        word, sign, result = "plus", "+", x + y
    elif roll < 9:
        x, y = max(x, y), min(x, y)
        word, sign, result = "minus", "-", x - y
    else:
        word, sign, result = "times", "*", x * y
    spelled = pen.chance(0.15) and result <= 20
    a, b, c = (w.NUMBERS[n] if spelled else str(n) for n in (x, y, result if spelled else 0))
    c = c if spelled else str(result)
    ask = pen.pick(
        (
            f"what is {a} {word} {b}",
            f"what is {a} {word} {b}",
            f"what is {x} {sign} {y}",
            f"how much is {a} {word} {b}",
            f"what's {x} {sign} {y}",
            f"{x} {sign} {y}",
            f"{x}{sign}{y}",
        )
    )
    if any(symbol in ask for symbol in "+-*"):
        a, b, c, word = str(x), str(y), str(result), sign if pen.chance(0.4) else word
    equals = "=" if word in "+-*" else "is"
    return ask, f"{a} {word} {b} {equals} {c}." if pen.chance(0.85) else f"{c}."


def _equations(pen: Pen) -> str:
    lines = []
    gap = "" if pen.chance(0.3) else " "
    for _ in range(pen.number(1, 6)):
        x, y = _operands(pen)
        lines.append(
            f"{x} + {y} = {x + y}".replace(" ", gap)
            if pen.chance(0.6)
            else f"{x + y} - {y} = {x}".replace(" ", gap)
        )
    return "\n".join(lines)


def _spoken(pen: Pen) -> str:
    x, y = _operands(pen)
    if x + y > 20:
        x, y = x % 10, y % 10
    a, b, c = w.NUMBERS[x], w.NUMBERS[y], w.NUMBERS[x + y]
    return pen.pick(
        (
            f"{w.upper_first(a)} plus {b} is {c}.",
            f"{x} plus {y} is {x + y}.",
            f"If you add {x} and {y}, you get {x + y}.",
            f"{w.upper_first(c)} minus {a} is {b}.",
        )
    )


def _counting(pen: Pen) -> str:
    start = 1 if pen.chance(0.6) else pen.number(2, 20)
    step = 1 if pen.chance(0.7) else pen.pick((2, 5, 10))
    start = step if step > 1 else start
    numbers = [str(start + step * i) for i in range(pen.number(5, 12))]
    end = int(numbers[-1])
    line = ", ".join(numbers)
    if step == 1 and end <= 20 and pen.chance(0.3):
        line = ", ".join(w.NUMBERS[int(n)] for n in numbers)
    if pen.chance(0.4):
        return w.upper_first(line) + "."
    way = "" if step == 1 else f" in steps of {step}"
    ask = pen.one("Count|count|Please count|Can you count")
    goal = w.NUMBERS[end] if end <= 20 and pen.chance(0.5) else str(end)
    span = f"to {goal}" if start == 1 else f"from {start} to {end}"
    mark = "?" if ask.startswith("Can") else pen.one(".||!")
    return f"{ask} {span}{way}{mark}\n{w.upper_first(line)}."


def _word_problem(pen: Pen) -> str:
    who = w.person(pen)
    x, y = pen.number(1, 9), pen.number(1, 9)
    item = pen.one("apples|books|coins|pears|balls|nuts|stamps|eggs|pencils|flowers")
    if pen.chance(0.55):
        deed, total = pen.one(f"gets {y} more|finds {y} more|buys {y} more"), x + y
    else:
        x, y = max(x, y) + 1, min(x, y)
        deed, total = pen.one(f"gives {y} away|loses {y}|gives {y} to a friend"), x - y
    noun = item if total != 1 else item[:-1]
    have = item if x != 1 else item[:-1]
    return (
        f"{who.name} has {x} {have}. {who.he_cap} {deed}. How many {item} does {who.he} have now?"
        f"\n{who.name} has {total} {noun} now."
    )


def drill(pen: Pen) -> str:
    """Many small sums in one document."""
    pairs = []
    for _ in range(pen.number(3, 9)):
        x, y = pen.number(0, 9), pen.number(0, 9)
        if pen.chance(0.4):
            x, y = pen.number(1, 5), pen.number(1, 5)
        word, sign, result = ("plus", "+", x + y)
        if pen.chance(0.35):
            x, y = x + y, x
            word, sign, result = ("minus", "-", x - y)
        pairs.append((x, y, word, sign, result))
    form = pen.number(0, 4)
    if form == 0:
        return "\n".join(f"{x} {sign} {y} = {result}" for x, y, _, sign, result in pairs)
    if form == 1:
        return " ".join(f"{x} {word} {y} is {result}." for x, y, word, _, result in pairs)
    if form == 2:
        return "\n".join(f"{x}{sign}{y}={result}" for x, y, _, sign, result in pairs)
    return session(
        pen,
        [
            (
                pen.one(
                    f"what is {x} {word} {y}|what is {x} {sign} {y}|how much is {x} {word} {y}"
                ),
                f"{x} {word} {y} is {result}.",
            )
            for x, y, word, sign, result in pairs
        ],
    )


def arithmetic(pen: Pen) -> str:
    """A document about numbers."""
    roll = pen.number(0, 9)
    if roll < 4:
        return asked(pen, *sum_pair(pen))
    if roll == 4:
        return session(pen, [sum_pair(pen) for _ in range(pen.number(2, 6))])
    return pen.pick((_equations, _spoken, _counting, _word_problem, _word_problem))(pen)
