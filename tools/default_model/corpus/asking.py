"""The forms in which all question makers write a question and its answer."""

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
    """Return ``question`` as people type it: with or without a capital and a mark at the end.

    The argument is in lower case and has no mark.
    """
    command = question.split(" ", 1)[0] in _COMMANDS
    good, sloppy = (".", "||.|!") if command else ("?", "?||??| ?")
    if pen.chance(0.78):
        return upper_first(question) + (good if pen.chance(0.8) else "")
    return question + pen.one(sloppy)


def asked(pen: Pen, question: str, answer: str) -> str:
    """Return a question and its answer in one of the usual forms, such as ``Q:`` and ``A:``."""
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
    """Return several questions with their answers, all in the same form."""
    ask, reply, gap = pen.pick(
        (
            ("Q: ", "A: ", "\n\n"),
            ("Q: ", "A: ", "\n"),
            ("User: ", "Assistant: ", "\n"),
            ("Question: ", "Answer: ", "\n\n"),
        )
    )
    return gap.join(f"{ask}{typed(pen, q)}\n{reply}{answer}" for q, answer in pairs)
