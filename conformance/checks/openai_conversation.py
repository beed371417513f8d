"""OpenAI's interface (interface 10): the messages before the last one of a chat."""

from conformance.checks.openai_said import Said, Speaker
from conformance.checks.openai_stream import Asked
from conformance.editions import SEVENTH
from conformance.strictjson import Json, brief

COUNTED, EARLIER = "OA-MIX-013", "OA-MIX-016"
OPENINGS = (
    "Once upon a time there was a little girl",
    "The history of the old town begins with a river",
    "Early in the morning the two brothers went down to the lake",
)
LONG = 12


def judge_conversation(speaker: Speaker, said: str) -> None:
    """Ask once more after two other messages, which are then a part of the prompt."""
    alone = speaker.result(Asked(limit=1))
    after = _talk(speaker, f"{OPENINGS[0]}. Do you know this story?", said, Asked(limit=1))
    if alone is None or after is None:
        return
    counts = (alone.prompt_tokens, after.prompt_tokens)
    if counts[0] is not None and counts[1] is not None:
        why = f"prompt_tokens is {counts[0]} for one message, {counts[1]} with two before it"
        speaker.context.judge(COUNTED, counts[1] > counts[0], why, alone.answer, after.answer)
    if speaker.context.edition >= SEVENTH:
        _judge_earlier(speaker, said)


def _judge_earlier(speaker: Speaker, said: str) -> None:
    """Rule on chats that differ in their first or in their last message, with temperature 0.

    A small model may say the same to some of them. It does not to all that begin otherwise, and
    never to those that end otherwise, if it reads what is said before.
    """
    asked = Asked(limit=LONG)
    firsts = [f"{opening}. Do you know this story?" for opening in OPENINGS]
    begun = [_talk(speaker, first, said, asked) for first in firsts]
    ended = [_talk(speaker, firsts[0], f"{opening}. Go on.", asked) for opening in OPENINGS]
    texts = [one.texts for one in (*begun, *ended) if one is not None]
    if len(texts) < len(begun) + len(ended) or not all(map(any, texts)):
        return
    begins, ends = set(texts[: len(begun)]), set(texts[len(begun) :])
    if len(ends) == len(ended):
        why = f"chats that begin with {brief(firsts)} have one text: {brief(texts[0])}"
        shown = [one.answer for one in begun if one is not None]
        speaker.context.judge(EARLIER, len(begins) > 1, why, *shown)


def _talk(speaker: Speaker, first: str, last: str, asked: Asked) -> Said | None:
    """Ask in a chat of three messages."""
    messages: list[Json] = [
        {"role": "user", "content": first},
        {"role": "assistant", "content": "Yes, I do."},
        {"role": "user", "content": last},
    ]
    return Speaker(speaker.context, speaker.kind, {"messages": messages}).result(asked)
