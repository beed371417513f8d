"""OpenAI's interface (interface 10): the number of choices changes nothing of a text.

Only texts with temperature 0 that are the same each time are compared.
"""

from dataclasses import dataclass

from conformance.checks import openai
from conformance.checks.money import TRIES
from conformance.checks.openai_said import Speaker
from conformance.checks.openai_texts import choices_of, strings
from conformance.httpwire import Answer
from conformance.strictjson import Json, brief

DEFAULT = "OA-MIX-012"
LIMIT = 10
# Without a temperature, with its default, and with the least one.
SAMPLED: tuple[dict[str, Json], ...] = {}, {"temperature": 1}, {"temperature": 0}


@dataclass(frozen=True)
class Texts:
    """The texts of an answer, and why they end."""

    answer: Answer
    texts: list[str]
    reasons: list[str]


def judge_choices(speaker: Speaker) -> None:
    """Rule on the text with temperature 0 where one choice is named, and on those of three."""
    turns = list[list[Texts]]()
    for _ in range(TRIES):
        turns.append([_texts(speaker, more) for more in ({}, {"n": 1}, {"n": 3}, {})])
        plain, named, three, again = turns[-1]
        # A model may have another text each time.
        if not all(one.texts for one in turns[-1]) or plain.texts != again.texts:
            return
    context, kind = speaker.context, speaker.kind
    unlike = all(turn[1].texts != turn[0].texts for turn in turns)
    why = f"with n 1 the text is {brief(named.texts)}, and {brief(plain.texts)} without n"
    context.judge(DEFAULT, not unlike, why, plain.answer, named.answer)
    cut = all(_is_cut(turn[0], turn[2]) for turn in turns)
    why = f"with n 3 and finish_reason length the texts are {brief(three.texts)}"
    why = f"{why}, and {brief(plain.texts)} with n 1 and the same max_tokens"
    context.judge(kind.ident(109), not cut, why, plain.answer, three.answer)


def judge_sampled(speaker: Speaker) -> None:
    """Rule on texts that are always the same without a temperature, and otherwise with its default.

    Either those with the default are others each time, or those without are those of 0.
    """
    seen = set[str]()
    for _ in range(2):
        plain, named, greedy = ([_sampled(speaker, one) for _ in range(TRIES)] for one in SAMPLED)
        texts, defaults, least = (
            {text for one in some for text in one.texts} for some in (plain, named, greedy)
        )
        seen |= texts
        unlike = len(texts) == 1 and not texts & defaults
        # A model may say the same each time, and a server may refuse it.
        if not unlike or not defaults or (len(defaults) < TRIES and texts != least):
            return
    why = f"without a temperature there is always the text {brief(sorted(seen))}, and with"
    why = f"{why} temperature 1 {brief(sorted(defaults))}"
    speaker.context.judge(DEFAULT, len(seen) > 1, why, plain[0].answer, named[0].answer)


def _sampled(speaker: Speaker, more: dict[str, Json]) -> Texts:
    return _texts(speaker, {"temperature": None, **more})


def _texts(speaker: Speaker, more: dict[str, Json]) -> Texts:
    """Ask with temperature 0; without any texts if the server refuses it."""
    body = {"model": openai.model_of(speaker.context), **speaker.kind.asked, **more}
    body = {"temperature": 0, **body, "max_tokens": LIMIT}
    body = {name: value for name, value in body.items() if value is not None}
    answer = openai.generate(speaker.context, speaker.kind.path, body)
    choices = choices_of(answer.json_object() or {}) if answer.ok else []
    return Texts(answer, strings(choices, speaker.kind.text), strings(choices, "finish_reason"))


def _is_cut(plain: Texts, others: Texts) -> bool:
    """Whether all of several texts end for their length before the same text by itself does."""
    if {*plain.reasons, *others.reasons} != {"length"}:
        return False
    whole = plain.texts[0]
    return all(text and whole.startswith(text) and text != whole for text in others.texts)
