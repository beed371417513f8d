"""Interface 2.1, 4.1 and 6: what a default means, and where a stream has to do what a result does.

A generation is compared with another one by counts that its text does not change, and by its text
only where that has been the same each time.
"""

from collections.abc import Callable
from difflib import SequenceMatcher
from itertools import pairwise

from conformance.checks.counting import counted, counted_after
from conformance.checks.money import TRIES, Comparison
from conformance.checks.stream import LONG
from conformance.context import Context
from conformance.editions import FIFTH, FOURTH, SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.passive.events import is_final, stream_ids, tokens_of
from conformance.passive.results import DEFAULT_MAX_TOKENS
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.sse import read
from conformance.strictjson import Json, brief, is_int

PROMPT = "Once upon a time"
# Of letters that are several bytes each.
FOREIGN = "Es war einmal 日本 für übermorgen"
# So many tokens that one may be lost among them.
LONGER = 20
# So many tokens of a stream are each the text so far only where all are.
REPEATED = 4
# Less than the default.
FEWER = 5
# Two texts of which so much is alike, and as many letters at the end, are two spellings of one.
ALIKE, ENDING = 0.75, 6
# The first edition that asks for the default of a stream, too, and of what follows a short text,
# and looks for the text so far.
STREAMED_SINCE = 4

Making = Callable[[Context, dict[str, Json]], tuple[Answer, int]]


def _tokens(context: Context, body: dict[str, Json]) -> tuple[Answer, int]:
    answer = context.infer({"prompt": PROMPT, "temperature": 0, **body})
    made = (answer.json_object() or {}).get("tokens_generated")
    if not answer.ok or not is_int(made):
        raise Skipped(f"POST /inference was answered with status {answer.status}")
    return answer, int(made)


@requirement("NA-INF-035")
def inference_default(context: Context) -> None:
    """POST /inference without max_tokens, after a short text, and with its default; compare."""
    _judge_default(context, _tokens)
    if context.edition >= STREAMED_SINCE:
        _judge_default(context, _streamed)


def _judge_default(context: Context, made_by: Making) -> None:
    plain: list[tuple[Answer, int]] = []
    named: list[tuple[Answer, int]] = []
    for _ in range(TRIES):
        if context.edition >= STREAMED_SINCE:
            made_by(context, {"max_tokens": FEWER})
        plain.append(made_by(context, {}))
        named.append(made_by(context, {"max_tokens": DEFAULT_MAX_TOKENS}))
        if plain[-1][1] == named[-1][1]:
            context.holds("NA-INF-035", plain[-1][0], named[-1][0])
            return
    # Only a node that always stops at the same two numbers has another default.
    counts = {made for _, made in plain}, {made for _, made in named}
    if all(len(found) == 1 for found in counts):
        why = f"{plain[0][1]} tokens without max_tokens, {named[0][1]} with {DEFAULT_MAX_TOKENS}"
        context.fails("NA-INF-035", why, plain[-1][0], named[-1][0])


def _streamed(context: Context, body: dict[str, Json]) -> tuple[Answer, int]:
    answer, values = _events(context, {"prompt": PROMPT, "temperature": 0, **body})
    made = [found for value in values for found in lookup(value, "usage.completion_tokens")]
    if not made or not is_int(made[-1]):
        raise Skipped("the stream has no usage")
    return answer, int(made[-1])


def stream_values(context: Context, body: dict[str, Json]) -> tuple[Answer, list[dict[str, Json]]]:
    """POST /inference for a stream; return the values of its events, or raise `Skipped`."""
    return _events(context, {"prompt": PROMPT, "max_tokens": 12, "temperature": 0, **body})


def _events(context: Context, body: dict[str, Json]) -> tuple[Answer, list[dict[str, Json]]]:
    answer = context.infer({**body, "stream": True})
    values = [event.value for event in read(answer.body).events]
    if not answer.ok or not values or not all(isinstance(value, dict) for value in values):
        raise Skipped(f"POST /inference returned no stream, status {answer.status}")
    return answer, values


def _texts(values: list[dict[str, Json]]) -> list[str]:
    tokens = [value.get("token") for value in values if not is_final(value)]
    return [token for token in tokens if isinstance(token, str) and token.strip()]


@requirement("NA-SSE-016", *sorted(stream_ids()))
def stream_stop(context: Context) -> None:
    """Repeat a stream with the text of one of its tokens as a stop sequence."""
    first, values = stream_values(context, {})
    # A stream may leave the spaces between tokens to its reader, so none is in the sequence.
    words = [text.strip() for text in _texts(values) if len(text.strip()) > 1]
    if not words:
        raise Skipped("no token to take a stop sequence from")
    stop = words[len(words) // 2]
    second, values = stream_values(context, {"stop": [stop]})
    texts = _texts(values)
    # The document does not say whether the sequence itself belongs to the text.
    behind = [texts[at + 1 :] for at, text in enumerate(texts) if stop in text]
    why = f"{stop!r} is followed by {brief(behind[:1])}"
    context.judge("NA-SSE-016", not any(behind), why, first, second)


@requirement("NA-SSE-018", "NA-SSE-021", "NA-SSE-023", "NA-SSE-027")
def stream_whole(context: Context) -> None:
    """Send one prompt in turn with a stream and without, at temperature 0; compare the texts."""
    _compare(context, LONGER, TRIES)
    if context.edition >= FOURTH:
        # Long ones take long; whether texts are always the same, short ones have shown.
        _compare(context, LONG, 1)


def _compare(context: Context, most: int, tries: int) -> None:
    """Rule on a stream of so many tokens beside the result."""
    body: dict[str, Json] = {"prompt": PROMPT, "max_tokens": most, "temperature": 0}
    plain, streamed, shown, fewer, more = set[str](), set[str](), list[Answer](), True, True
    shorter = context.edition >= FIFTH
    for _ in range(tries):
        answer, made = _streamed(context, {"max_tokens": most})
        tokens = tokens_of(answer)
        result = context.infer(body)
        text = (result.json_object() or {}).get("text")
        if not result.ok or not isinstance(text, str):
            raise Skipped(f"POST /inference was answered with status {result.status}")
        own, joined = text.removeprefix(PROMPT), "".join(map(str, tokens))
        plain.add(letters(own))
        streamed.add(letters(joined))
        fewer, more = fewer and len(tokens) < made, more and len(tokens) > made
        told = (result.json_object() or {}).get("tokens_generated")
        shorter = shorter and is_int(told) and made < told
        shown += [answer, result]
    if len(plain) > 1 or len(streamed) > 1:
        raise Skipped("texts with temperature 0 are not always the same")
    whole, found = plain.pop(), streamed.pop()
    lacks, adds = _is_part(found, whole), _is_part(whole, found)
    # A stream may say nothing.
    shorter = shorter and bool(found)
    why = f"the stream has {brief(found)}, the result {brief(whole)}"
    if lacks and shorter and tries == 1:
        # By its own usage, too, and a generation may end anywhere once.
        _compare(context, most, TRIES)
        return
    wrong = (lacks and (fewer or shorter)) or (adds and more and context.edition >= FOURTH)
    if context.edition >= SIXTH and tries > 1 and not lacks and not adds:
        wrong = _is_respelled(found, whole)
    context.judge("NA-SSE-018", not wrong, why, *shown[-2:])
    if context.edition >= SEVENTH and tries > 1:
        # What is a part of the other is judged above.
        context.judge("NA-SSE-027", whole == found or lacks or adds, why, *shown[-2:])
    if context.edition >= FOURTH and whole == found:
        spaced = joined.strip() == own.strip()
        why = f"the tokens make {brief(joined)}, the result is {brief(own)}"
        context.judge("NA-SSE-021", spaced, why, *shown[-2:])
        if context.edition >= FIFTH and spaced:
            context.judge("NA-SSE-023", joined == own, why, *shown[-2:])
    if context.edition >= STREAMED_SINCE:
        texts = [letters(str(token)) for token in tokens]
        grows = all(later.startswith(earlier) for earlier, later in pairwise(texts))
        again = grows and len({*texts}) >= REPEATED and texts[-1] == whole
        why = f"each token of the stream is the text so far: {brief(tokens[:3])}"
        context.judge("NA-SSE-018", not again, why, *shown[-2:])


def _is_respelled(one: str, other: str) -> bool:
    """Whether two texts are one but for some letters; another generation would not come back."""
    if one == other or one[-ENDING:] != other[-ENDING:] or min(len(one), len(other)) < 2 * ENDING:
        return False
    return SequenceMatcher(None, one, other, autojunk=False).ratio() >= ALIKE


def _is_part(part: str, whole: str) -> bool:
    """Whether a text has all the letters of a shorter one, in their order."""
    every = iter(whole)
    return len(part) < len(whole) and all(letter in every for letter in part)


def letters(text: str) -> str:
    """Return what a text and a stream of it have in common.

    Spaces between tokens may be left to the reader, and the bytes of half a letter to nobody.
    """
    return "".join(text.replace("\ufffd", "").split())


@requirement("NA-SSE-017")
def stream_usage(context: Context) -> None:
    """Send one prompt with a stream and without, and compare its tokens."""
    if context.edition >= STREAMED_SINCE:
        # Nothing of a longer one is left for it.
        context.infer({"prompt": PROMPT * 4, "max_tokens": 1})
    _judge_usage(context, PROMPT)
    if context.edition >= FIFTH:
        _judge_usage(context, FOREIGN)


def _judge_usage(context: Context, prompt: str) -> None:
    answer, values = stream_values(context, {"prompt": prompt, "max_tokens": 2})
    streamed = [found for value in values for found in lookup(value, "usage.prompt_tokens")]
    plain = context.infer({"prompt": prompt, "max_tokens": 2, "temperature": 0})
    found = lookup(plain.json_object() or {}, "usage.prompt_tokens")
    if not plain.ok or not streamed or not found or not (is_int(streamed[-1]) and is_int(found[0])):
        raise Skipped("one of the two has no usage")
    why = f"prompt_tokens is {streamed[-1]} in the stream, and {found[0]} in the result"
    context.judge("NA-SSE-017", streamed[-1] == found[0], why, answer, plain)


@requirement("NA-COUNT-004", "NA-COUNT-005")
def stream_counted(context: Context) -> None:
    """POST /inference with a stream, and read the metrics before and after it."""
    compared = Comparison(context)
    for _ in range(TRIES):
        before = counted(context)
        answer, values = stream_values(context, {"max_tokens": 3})
        used = [found for value in values for found in lookup(value, "usage.completion_tokens")]
        made = int(used[-1]) if used and is_int(used[-1]) else 0
        after = counted_after(context, before, tokens=bool(made))
        asked, tokens = after[0] - before[0], after[1] - before[1]
        shown = (before[2], answer, after[2])
        compared.note("NA-COUNT-004", asked >= 1, f"requests_total rose by {asked:g}", *shown)
        why = f"tokens_generated rose by {tokens:g} for {made}"
        compared.note("NA-COUNT-005", tokens >= made, why, *shown)
    compared.conclude()
