"""OpenAI's interface (interface 10): requests of which n, max_tokens, stop and stream are drawn.

What single requests show is judged in `openai_texts.py` and `openai_stream.py`. Here each draw is
asked several times, in one piece and in several, and the answers are compared with each other.

Invariants: the seed of the run decides what is drawn; texts are compared only where temperature 0
gives the same text before and afterwards, and a difference counts only if each of three tries has
it; a draw that the server refuses shows nothing.
"""

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

from conformance.checks import openai
from conformance.checks.effects import letters
from conformance.checks.money import TRIES, Comparison
from conformance.checks.openai_choices import judge_choices, judge_sampled
from conformance.checks.openai_conversation import EARLIER, OPENINGS, judge_conversation
from conformance.checks.openai_said import SAID, Said, Speaker, stops_of
from conformance.checks.openai_stream import Asked
from conformance.checks.openai_texts import CHAT, TEXT
from conformance.context import Context
from conformance.editions import SEVENTH
from conformance.findings import Skipped
from conformance.httpwire import Answer, Unanswered
from conformance.registry import requirement
from conformance.strictjson import Json, brief

# The first edition with these requirements; older ones judge nothing more than they did.
SINCE = 4
COMPARED = tuple(f"OA-MIX-{number:03d}" for number in range(5, 16))
WHOLE, READ, USED, BEHIND, ABSENT_STOP, KEPT, NULLS, DEFAULTS, _, _, SAME = COMPARED
# No model says this.
NEVER = "\u241fnever\u241f"
FEW, MANY = (7, 10), (90, 110)
LONG = 12
# Where in the texts the stop sequences of a draw are.
INSIDE, BEGINNING, NOWHERE = "inside", "beginning", "nowhere"
# More choices than a server might have places for, of a token each.
WIDE = (5, 9)
# At most so many stop sequences are allowed.
MOST_STOPS = 4
# What the description says may be null, and what it says is the same as nothing.
NULL: dict[str, Json] = dict.fromkeys(
    ("n", "stop", "stream", "temperature", "top_p", "presence_penalty", "frequency_penalty")
)
DEFAULT: dict[str, Json] = {
    "n": 1, "stream": False, "temperature": 1, "top_p": 1, "presence_penalty": 0,
    "frequency_penalty": 0,
}  # fmt: skip
AT_ONCE = 4


@requirement(*SAID, *COMPARED, EARLIER, "OA-CHAT-114")
def openai_mixed_chats(context: Context) -> None:
    """POST chats of which the parameters are drawn, in one piece and as streams."""
    draw = _drawing(context)
    said = f"{draw.choice(OPENINGS)}. Please tell me more of this story."
    speaker = Speaker(context, CHAT, {"messages": [{"role": "user", "content": said}]})
    _mix(speaker, draw)
    few = Asked(limit=draw.randint(2, 5), usage=True, newer=True)
    bounded = speaker.stream(few)
    if bounded is not None and bounded.completion_tokens is not None:
        count = bounded.completion_tokens
        why = f"{count} tokens in a stream with max_completion_tokens {few.limit}"
        context.judge("OA-CHAT-114", count <= few.limit, why, bounded.answer)
    judge_conversation(speaker, said)


@requirement(*SAID, *COMPARED)
def openai_mixed_completions(context: Context) -> None:
    """POST completions of which the parameters are drawn, in one piece and as streams."""
    draw = _drawing(context)
    prompt: dict[str, Json] = {"prompt": f"{draw.choice(OPENINGS)}, and"}
    _mix(Speaker(context, TEXT, prompt), draw)


def _drawing(context: Context) -> random.Random:
    if context.edition < SINCE:
        raise Skipped(f"edition {SINCE} is the first that has these requirements")
    return random.Random(context.target.seed)  # noqa: S311 - a draw that can be repeated


def _mix(speaker: Speaker, draw: random.Random) -> None:
    _judge_as_left_out(speaker)
    for place in (INSIDE, BEGINNING, NOWHERE):
        asked = Asked(n=draw.randint(2, 3), limit=draw.randint(*FEW))
        _stop(speaker, draw, asked, place)
    _judge_streamed(speaker, Asked(n=2, limit=draw.randint(*FEW)))
    _judge_streamed(speaker, Asked(limit=draw.randint(*MANY)))
    wide = Asked(n=draw.randint(*WIDE), limit=1)
    speaker.result(wide)
    speaker.stream(replace(wide, usage=True))
    # At the same time, each with something else.
    each = [Asked(n=draw.randint(1, 3), limit=limit) for limit in draw.sample(range(1, 7), AT_ONCE)]
    # A server that has no time for so many shows nothing.
    with suppress(Skipped, Unanswered), ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(speaker.result, each))
    _judge_ids(speaker)
    _judge_prompt_tokens(speaker)


def _stop(speaker: Speaker, draw: random.Random, asked: Asked, place: str) -> None:
    """Ask for texts, then for the same with pieces of them as stop sequences."""
    before = speaker.result(asked)
    if before is None or not any(before.texts):
        return
    drawn = _drawn_stops(draw, before.texts, place)
    compared = Comparison(speaker.context)
    for _ in range(TRIES):
        stopped = speaker.result(replace(asked, stop=drawn))
        after = speaker.result(asked)
        if stopped is None or after is None or not (stopped.formed and after.formed):
            return
        _compare(speaker, compared, Asked(asked.n, stop=drawn), before, stopped, after)
        if compared.clean:
            break
    compared.conclude()
    usage = draw.random() < 0.5
    speaker.stream(replace(asked, stop=drawn, usage=usage, declined=not usage))
    if place == INSIDE and isinstance(drawn, tuple) and speaker.context.edition >= SEVENTH:
        # A text by itself, and no array of them.
        single = next((stop for stop in drawn if stop != NEVER), NEVER)
        speaker.stream(replace(asked, stop=single))


def _drawn_stops(draw: random.Random, texts: tuple[str, ...], place: str) -> str | tuple[str, ...]:
    """Return one stop sequence or several, from this place in the texts."""
    # The first one ends the last text, for a server may look at the first text only.
    chosen = [text for text in reversed(texts) if text][: draw.randint(1, len(texts))]
    if place == NOWHERE:
        found = [near for text in chosen for near in _resembling(draw, text)]
        pieces = [piece for piece in found if not any(piece in text for text in texts)]
    else:
        pieces = [_piece(draw, text, at_start=place == BEGINNING) for text in chosen]
    pieces = [piece for piece in pieces if piece.strip() and "\ufffd" not in piece]
    if len(pieces) == 1 and draw.random() < 0.5:
        return pieces[0]
    stops = [*pieces[: MOST_STOPS - 1], NEVER]
    draw.shuffle(stops)
    return tuple(stops)


def _piece(draw: random.Random, text: str, *, at_start: bool) -> str:
    start = 0 if at_start else draw.randrange(len(text) // 4, len(text))
    return text[start : start + draw.randint(1, 4)]


def _resembling(draw: random.Random, text: str) -> list[str]:
    """Return what only a reader finds in a text who ignores capitals, spaces or what a dot is."""
    start = draw.randrange(max(len(text) // 2, 1))
    piece = text[start : start + 4]
    return [piece.swapcase(), f"{piece[:2]}.{piece[3:]}", f"{piece.strip()} \n"]


def _judge_ids(speaker: Speaker) -> None:
    """Rule on the ids of all answers, also of those to the same body."""
    seen: dict[Json, tuple[bool, Answer]] = {}
    for _, streamed, said in speaker.heard:
        if not isinstance(said.id, str):
            continue
        earlier, first = seen.setdefault(said.id, (streamed, said.answer))
        both = earlier and streamed and speaker.kind.of == "CHAT"
        ident = "OA-STREAM-005" if both else speaker.kind.ident(102)
        shown = (said.answer,) if first is said.answer else (first, said.answer)
        why = f"two answers have the id {brief(said.id)}"
        speaker.context.judge(ident, len(shown) == 1, why, *shown)


def _compare(
    speaker: Speaker, compared: Comparison, asked: Asked, before: Said, stopped: Said, after: Said
) -> None:
    """Note what the stop sequences have done to each text, and to the texts that follow."""
    stops = stops_of(asked)
    shown = (before.answer, stopped.answer, after.answer)
    behind, early, kept = list[str](), list[str](), list[str]()
    for whole, text, again in zip(before.texts, stopped.texts, after.texts, strict=False):
        ends = whole.startswith(again) and whole.startswith(stops, len(again))
        if again == text and ends:
            kept.append(f"{brief(whole)}, and {brief(again)} after a request with {brief(stops)}")
        if again != whole:
            continue
        found = [at for stop in stops if (at := whole.find(stop)) >= 0]
        left = whole[: min(found)] if found else whole
        more, lacks = text.removeprefix(left), left.removeprefix(text)
        # A text that contains the sequence violates another sentence.
        there = any(stop in text for stop in stops)
        if found and not there and text.startswith(left) and _is_more(more, stops):
            behind.append(f"{brief(text)} of {brief(whole)} with the stop sequences {brief(stops)}")
        if not found and whole.startswith(text) and _is_more(lacks, stops):
            early.append(f"{brief(text)} of {brief(whole)}, which has none of {brief(stops)}")
    if before.texts == after.texts:
        compared.note(BEHIND, not behind, "; ".join(behind), *shown)
        compared.note(ABSENT_STOP, not early, "; ".join(early), *shown)
        _note_reasons(speaker, compared, asked, before, stopped)
    if kept or before.texts == after.texts:
        compared.note(KEPT, not kept, "; ".join(kept), *shown)


def _is_more(rest: str, stops: tuple[str, ...]) -> bool:
    """Return whether a rest is text, and not the beginning of a sequence that was awaited."""
    return bool(rest.strip()) and not any(stop.startswith(rest) for stop in stops)


def _note_reasons(
    speaker: Speaker, compared: Comparison, asked: Asked, before: Said, stopped: Said
) -> None:
    """Note why texts have ended that a stop sequence has ended in their first half."""
    wrong = []
    for whole, text, reason in zip(before.texts, stopped.texts, stopped.reasons, strict=False):
        ends = [at + len(stop) for stop in stops_of(asked) if (at := whole.find(stop)) >= 0]
        # In a text of a word or two the maximum may be reached at the same time.
        ended = ends and len(whole) >= LONG and min(ends) <= len(whole) // 2
        other = isinstance(reason, str) and reason != "stop"
        if ended and other and len(text) < len(whole) // 2 and whole.startswith(text):
            wrong.append(f"finish_reason {brief(reason)} after {brief(text)} of {brief(whole)}")
    compared.note(speaker.kind.ident(111), not wrong, "; ".join(wrong), stopped.answer)


def _judge_streamed(speaker: Speaker, asked: Asked) -> None:
    """Ask for the same with a stream and without, in turn; compare the texts and their usage."""
    plain, compared = speaker.result(asked), Comparison(speaker.context)
    if plain is None:
        return
    _judge_length(speaker, asked, plain)
    for _ in range(TRIES):
        streamed = speaker.stream(replace(asked, usage=True))
        if streamed is None or not (plain.formed and streamed.formed):
            return
        exact = speaker.context.edition >= SEVENTH
        alike = _note_streamed(compared, asked, plain, streamed, exact=exact)
        same = plain.texts == streamed.texts
        if not alike or (exact and not same):
            again = speaker.result(asked)
            if again is None or (again.texts, again.completion_tokens) != (
                plain.texts, plain.completion_tokens,
            ):  # fmt: skip
                return
        if exact:
            why = f"{brief(streamed.texts)} as a stream, and {brief(plain.texts)} without one"
            compared.note(SAME, same, why, plain.answer, streamed.answer)
        if compared.clean:
            break
    compared.conclude()


def _note_streamed(
    compared: Comparison, asked: Asked, plain: Said, streamed: Said, *, exact: bool
) -> bool:
    """Note how a stream differs from the same answer without one; return whether it does not.

    If it is to be `exact`, its pieces have the white space between words, too.
    A stream that says itself that it has fewer tokens may be another computation.
    """
    shown = (plain.answer, streamed.answer)
    pairs = [*zip(plain.texts, streamed.texts, strict=True)]
    lost = [
        (whole, text)
        for whole, text in pairs
        if _is_put_together_wrongly(whole, text) or (exact and _has_lost_blanks(whole, text))
    ]
    why = "; ".join(f"{brief(text)} as a stream of {brief(whole)}" for whole, text in lost)
    counts = (plain.completion_tokens, streamed.completion_tokens)
    if not lost or (counts[1] in (None, counts[0]) and plain.reasons == streamed.reasons):
        compared.note(WHOLE, not lost, why, *shown)
    known = all(counts) and counts[0] <= asked.n * asked.limit
    equal = not known or counts[0] == counts[1]
    if known and plain.texts == streamed.texts:
        why = f"completion_tokens is {counts[1]} in the stream, and {counts[0]} without it"
        compared.note(USED, equal, why, *shown)
    return equal and not lost


def _is_put_together_wrongly(whole: str, text: str) -> bool:
    """Return whether two texts differ by pieces that are lost, doubled or in another place.

    Other texts may be another computation, which nothing forbids.
    """
    one, other = letters(whole), letters(text)
    if one == other:
        return False
    longer, shorter = (one, other) if len(one) > len(other) else (other, one)
    every = iter(longer)
    return sorted(one) == sorted(other) or all(letter in every for letter in shorter)


def _has_lost_blanks(whole: str, text: str) -> bool:
    """Return whether two texts differ by the white space between their words alone."""
    return letters(whole) == letters(text) and whole.split() != text.split()


def _judge_length(speaker: Speaker, asked: Asked, said: Said) -> None:
    """Rule on a longer text that has ended with length: whether the maximum is reached.

    A model may have no room for more; then a longer prompt leaves still less.
    """
    ident, count = speaker.kind.ident(109), said.completion_tokens
    if said.reasons != ("length",) or count is None or asked.n > 1:
        return
    if count >= asked.limit:
        speaker.context.holds(ident, said.answer)
        return
    longer = Speaker(speaker.context, speaker.kind, _lengthened(speaker.kind.asked))
    other = longer.result(asked)
    if other is None or other.reasons != ("length",) or other.prompt_tokens == said.prompt_tokens:
        return
    why = f"{count} tokens with max_tokens {asked.limit}, also where the prompt is longer"
    held = other.completion_tokens != count
    if not held:
        speaker.context.fails(ident, why, said.answer, other.answer)


def _lengthened(prompt: dict[str, Json]) -> dict[str, Json]:
    """Return the same prompt after another one."""
    if "prompt" in prompt:
        return {"prompt": f"{' '.join(OPENINGS)} {prompt['prompt']}"}
    message = prompt["messages"][0]
    return {"messages": [{**message, "content": f"{' '.join(OPENINGS)} {message['content']}"}]}


def _judge_as_left_out(speaker: Speaker) -> None:
    """Ask with parameters that are null, or have their defaults, after the same without them."""
    asked = Asked(limit=2)
    plain = speaker.result(asked)
    if plain is None:
        raise Skipped("a plain request is refused")
    body = {"model": openai.model_of(speaker.context), **speaker.kind.asked}
    for ident, more in ((NULLS, NULL), (DEFAULTS, DEFAULT)):
        answer = openai.generate(
            speaker.context, speaker.kind.path, {**body, "max_tokens": asked.limit, **more}
        )
        if answer.status in openai.NOT_NOW:
            continue
        document = answer.json_object()
        choices = (document or {}).get("choices")
        listed = [*choices] if isinstance(choices, list) else [*plain.texts]
        same = document is not None and len(listed) == len(plain.texts)
        why = f"status {answer.status} with {brief(more, 200)}: {brief(document)}"
        speaker.context.judge(ident, answer.ok and same, why, plain.answer, answer)
    if speaker.context.edition >= SEVENTH:
        judge_choices(speaker)
        judge_sampled(speaker)


def _judge_prompt_tokens(speaker: Speaker) -> None:
    """Rule on the tokens of the prompt, which is the same in all that was asked."""
    plain = {
        said.prompt_tokens
        for asked, streamed, said in speaker.heard
        if asked.n == 1 and not asked.stop and not streamed
    }
    if len(plain) > 1 and None not in plain and speaker.context.edition >= SEVENTH:
        counted = sorted(count for count in plain if count is not None)
        shown = [said.answer for _, _, said in speaker.heard[:2]]
        speaker.context.fails(READ, f"one prompt has {brief(counted)} prompt_tokens", *shown)
    if len(plain) != 1 or None in plain:
        return
    ordinary = plain.pop()
    for asked, streamed, said in speaker.heard:
        how = f"n {asked.n}, max_tokens {asked.limit}, stop {brief(asked.stop)}"
        how += " as a stream" if streamed else ""
        why = f"prompt_tokens is {brief(said.prompt_tokens)} with {how}, else {brief(ordinary)}"
        if said.prompt_tokens is not None:
            speaker.context.judge(READ, said.prompt_tokens == ordinary, why, said.answer)
