"""How questions are put and answers set apart: the wordings that all question makers share."""

# ruff: noqa: SIM905 - a list of words reads best as a line of words.
from __future__ import annotations

from typing import TYPE_CHECKING

from .words import upper_first

if TYPE_CHECKING:
    from .words import Pen


_COMMANDS = frozenset(
    "tell explain define describe write give list name translate summarise fix teach please help "
    "say test testing recite capital wish".split()
)


def typed(pen: Pen, question: str) -> str:
    """``question`` (lower case, no mark) as people type it: with and without capital and mark."""
    command = question.split(" ", 1)[0] in _COMMANDS
    good, sloppy = (".", "||.|!") if command else ("?", "?||??| ?")
    if pen.chance(0.78):
        return upper_first(question) + (good if pen.chance(0.8) else "")
    return question + pen.one(sloppy)


def asked(pen: Pen, question: str, answer: str) -> str:
    """A question and its answer, set apart in one of the usual ways."""
    text = typed(pen, question)
    return pen.pick(
        (
            f"{text}\n{answer}",
            f"{text}\n{answer}",
            f"{text}\n\n{answer}",
            f"{text} {answer}",
            f"Q: {text}\nA: {answer}",
            f"Q: {text}\nA: {answer}",
            f"Question: {text}\nAnswer: {answer}",
            f"User: {text}\nAssistant: {answer}",
        )
    )


def session(pen: Pen, pairs: list[tuple[str, str]]) -> str:
    """Several questions and answers in one document, all set apart in the same way."""
    ask, reply, gap = pen.pick(
        (
            ("Q: ", "A: ", "\n\n"),
            ("Q: ", "A: ", "\n"),
            ("User: ", "Assistant: ", "\n"),
            ("Question: ", "Answer: ", "\n\n"),
        )
    )
    return gap.join(f"{ask}{typed(pen, q)}\n{reply}{answer}" for q, answer in pairs)
