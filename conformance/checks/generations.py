"""Interface 2.1, 4.1 and 6: stop sequences, streams in the metrics, times and odd prompts."""

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product

from conformance.checks.counting import counted, counted_after
from conformance.checks.effects import stream_values
from conformance.checks.money import TRIES
from conformance.checks.node_sanity import FAILED
from conformance.checks.stream import LONG as LONG_TEXT
from conformance.context import Context
from conformance.editions import FIFTH, FOURTH, SEVENTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_int, is_number

PROMPTS = ("Once upon a time", "The history of the old town begins with", "a b c")
# The first edition in which the piece is also the first of the sequences, a prompt is long,
# texts are longer than the default, and one follows another that a stop sequence has ended.
TURNED_SINCE = 4
# As few tokens, and the part of a long text behind which one stops, at a piece of so many letters.
SHORT, LATE, PIECES = (3, 6, 9), 0.5, (2, 8, 24, 60)
# No model says this.
NEVER = "\u241fnever\u241f"
# Work that takes longer than the smallest step of a clock.
SENTENCE = "Once upon a time there was a node that served a model. "
LONG, FEWER, MANY = 40, 5, 100
# Requests at the same time, and by how many tokens each is longer than another.
AT_ONCE, UNLIKE = 4, 6
# What programs that put texts together by hand get wrong.
TRAPS = (
    'He said "yes"',
    'He said "yes",\nand "no".',
    "one line\nand another\r\n\tone",
    "{0} %s %(x)s ${y} \\n \\",
    "it's <b>bold</b> & more; -- /*",
    "Größe 日本語 🙂",
    "nothing: \0, \ufeff, \u202e",
)
# Prompts of different lengths, of a few tokens whatever a token is.
GROWING, ROOM = ("Hello", "Hello there", "Hello there, my friend"), 40
MORE_ROOM = 110
# The letters of prompts whose tokens leave room, whether a token is a letter or a word; and what is
# less than a token for each that is read.
LENGTHENING, WHOLE_TOKEN = (10, 45, 80, 115, 150), 0.9
# The tokens that were read and written.
Counts = tuple[int, int]
# More stop sequences than a node may have places for.
MANY_STOPS = 20
NO_BOOL: tuple[Json, ...] = ({"on": "yes"}, ["yes", "no"])


@requirement("NA-INF-036")
def inference_stops(context: Context) -> None:
    """Repeat a request with temperature 0, with pieces of its answer among its stop sequences."""
    prompts = PROMPTS + ((SENTENCE * FEWER * 2,) if context.edition >= TURNED_SINCE else ())
    for prompt in prompts:
        body: dict[str, Json] = {"prompt": prompt, "max_tokens": 24, "temperature": 0}
        first = context.infer(body)
        text = (first.json_object() or {}).get("text")
        if not first.ok or not isinstance(text, str) or len(text) < 8:
            continue
        third = len(text) // 3
        pieces = [text[third : third + length] for length in (1, 2, 4)]
        # And one that begins with white space, which a node must not take off.
        pieces += [found[0] for found in [re.search(r"\s\S", text)] if found]
        for number, piece in enumerate(pieces):
            stops: list[Json] = [NEVER, text[-2:], piece]
            if context.edition >= TURNED_SINCE and number % 2:
                # One of the first may be forgotten too, not only one of the last.
                stops.reverse()
            second = context.infer({**body, "stop": stops})
            stopped = (second.json_object() or {}).get("text")
            if second.ok and isinstance(stopped, str):
                _judge(context, [str(stop) for stop in stops], stopped, first, second)
    for most in SHORT if context.edition >= FIFTH else ():
        _judge_piece(context, {"prompt": PROMPTS[0], "max_tokens": most, "temperature": 0}, 0.5)
    if context.edition >= FIFTH:
        body = {"prompt": PROMPTS[0], "max_tokens": LONG_TEXT, "temperature": 0}
        _judge_piece(context, body, LATE)


def _judge_piece(context: Context, body: dict[str, Json], part: float) -> None:
    """Repeat a request, with a piece of its answer that is first behind a part of it to stop at."""
    first = context.infer(body)
    text = (first.json_object() or {}).get("text")
    if not first.ok or not isinstance(text, str):
        return
    piece = _late_piece(text, int(len(text) * part))
    if not piece:
        return
    several = [[piece]]
    if context.edition >= SEVENTH:
        # Behind more of them than a node may have places for, if it takes so many.
        several.append([*(f"\u241f{number}" for number in range(MANY_STOPS)), piece])
    for stops in several:
        second = context.infer({**body, "stop": stops})
        stopped = (second.json_object() or {}).get("text")
        if second.ok and isinstance(stopped, str):
            _judge(context, stops, stopped, first, second)


def _late_piece(text: str, least: int) -> str:
    """Return a piece that is in the text, but not in so many of its letters; or nothing."""
    for size, at in product(PIECES, range(least, len(text))):
        piece = text[at : at + size]
        if at + size < len(text) and text.find(piece) >= least:
            return piece
    # A text that repeats itself has none that is short.
    piece = text[len(text) // 8 : least + len(text) // 4]
    return piece if text.find(piece) > 0 else ""


def _judge(context: Context, stops: list[str], text: str, *shown: Answer) -> None:
    """Rule on the text: whichever sequence comes first ends it, with or without the sequence."""
    found = [(text.find(stop), stop) for stop in stops if stop in text]
    behind = [stop for at, stop in found if at + len(stop) < len(text)]
    why = f"{brief(text)} continues after {brief(behind)}, of {brief(stops)}"
    context.judge("NA-INF-036", not behind, why, *shown)


@requirement("NA-INF-041")
def inference_stops_exactly(context: Context) -> None:
    """Repeat a request with stop sequences that its text resembles, but that are not in it."""
    body: dict[str, Json] = {"prompt": PROMPTS[0], "max_tokens": 24, "temperature": 0}
    first = context.infer(body)
    text = (first.json_object() or {}).get("text")
    if not first.ok or not isinstance(text, str) or len(text) < 8:
        raise Skipped("no text to take a stop sequence from")
    for stop in _resembling(text):
        seen: list[tuple[Answer, float, Answer, float]] = []
        for _ in range(TRIES):
            whole, ended = context.infer(body), context.infer({**body, "stop": [stop]})
            results = [one.json_object() or {} for one in (whole, ended)]
            made = [each.get("tokens_generated") for each in results]
            counts = [float(count) for count in made if is_int(count)]
            there = any(stop in str(each.get("text")) for each in results)
            if len(counts) < len(results) or there:
                break
            seen.append((whole, counts[0], ended, counts[1]))
            if counts[1] >= counts[0]:
                break
        # Only generations that are always as long show what ended one of them.
        same = len({length for _, length, _, _ in seen}) == 1
        if same and len(seen) == TRIES and all(less < length for _, length, _, less in seen):
            whole, length, ended, less = seen[-1]
            why = f"{less:g} of {length:g} tokens with {brief(stop)}, which is not in the text"
            context.fails("NA-INF-041", why, whole, ended)
        elif seen and seen[-1][3] >= seen[-1][1]:
            context.holds("NA-INF-041", seen[-1][0], seen[-1][2])
    if context.edition >= TURNED_SINCE:
        _judge_after_stop(context, body, text[len(text) // 3 :][:3], body)
    if context.edition >= FOURTH:
        # It may be left until the next request that has any.
        none: dict[str, Json] = {**body, "stop": []}
        _judge_after_stop(context, body, text[len(text) // 3 :][:3], none)


def _judge_after_stop(
    context: Context, body: dict[str, Json], stop: str, then: dict[str, Json]
) -> None:
    """Rule on a text without stop sequences that follows one that a sequence has ended.

    ``then`` is what is asked next, to see how long the text is.
    """
    seen: list[tuple[int, int, int]] = []
    for _ in range(TRIES):
        bodies = ({**body, "stop": [stop]}, body, then)
        shown = [context.infer(each) for each in bodies]
        made = [(answer.json_object() or {}).get("tokens_generated") for answer in shown]
        ended, after, whole = (int(count) if is_int(count) else 0 for count in made)
        if not 0 < ended < whole or after > ended:
            break
        seen.append((ended, after, whole))
    else:
        if len({*seen}) == 1:
            why = (
                f"{seen[0][1]} tokens after a text that {brief(stop)} has ended, then {seen[0][2]}"
            )
            context.fails("NA-INF-041", why, *shown)


def _resembling(text: str) -> list[str]:
    """Return sequences that only a lenient reader finds in the text, or looks for elsewhere."""
    third = len(text) // 3
    piece = text[third : third + 3]
    found = [f"{piece[0]}.{piece[2]}", piece.swapcase(), f"{piece.strip()} \n\t"]
    # A sequence in the prompt is not in the text.
    found.append(PROMPTS[0][:6])
    return [stop for stop in found if stop.strip() and stop not in text]


@requirement("NA-COUNT-006")
def stream_counted_once(context: Context) -> None:
    """POST /inference with a stream, and read the metrics before and after it."""
    steps: list[tuple[float, float, float]] = []
    shown: Answer | None = None
    for _ in range(TRIES):
        before = counted(context)
        shown, values = stream_values(context, {"max_tokens": 3})
        used = [found for value in values for found in lookup(value, "usage.completion_tokens")]
        made = float(used[-1]) if used and is_int(used[-1]) else 0.0
        after = counted_after(context, before, tokens=bool(made))
        steps.append((after[0] - before[0], after[1] - before[1], made))
    if shown is None:
        raise Skipped("there was no stream")
    # Others may use the target too, but not always by the same factor.
    requests = {asked for asked, _, _ in steps}
    each = {tokens / many for _, tokens, many in steps if many}
    # What is not counted at all is reported by requirements of its own.
    wrong = [found for found in (requests, each) if len(found) == 1 and min(found) > 1.0]
    why = f"each stream is counted as {requests}, each of its tokens as {each}"
    context.judge("NA-COUNT-006", not wrong, why, shown)


@requirement("NA-INF-037")
def inference_timing(context: Context) -> None:
    """POST /inference for many tokens of a long prompt; its total time covers its parts."""
    most = LONG_TEXT if context.edition >= TURNED_SINCE else MANY
    for many in (LONG, LONG, FEWER, 1):
        # How long a prompt may be is not said.
        answer = context.infer({"prompt": SENTENCE * many, "max_tokens": most})
        if 400 <= answer.status < 500 and many > 1:
            continue
        found = [
            lookup(answer.json_object() or {}, f"timing.{key}_ms")
            for key in ("queue", "inference", "total")
        ]
        if not answer.ok or not all(part and is_number(part[0]) for part in found):
            raise Skipped(f"POST /inference returned no timing, status {answer.status}")
        queue, inference, whole = (float(part[0]) for part in found)
        # Each may be rounded for itself, as coarsely as it is written.
        slack = 1.0 if any(part == round(part) for part in (inference, whole)) else 0.1
        held = whole >= max(queue, inference) * 0.98 - slack
        why = f"queue_ms {queue:g}, inference_ms {inference:g}, total_ms {whole:g}"
        context.judge("NA-INF-037", held, why, answer)


@requirement("NA-INF-038")
def inference_any_prompt(context: Context) -> None:
    """POST /inference with a plain prompt, and with prompts that a program may trip over."""
    body: dict[str, Json] = {"prompt": "Hello", "max_tokens": 1}
    control = context.infer(body)
    if not control.ok:
        raise Skipped(f"POST /inference was answered with status {control.status}")
    for prompt in TRAPS:
        answers = [context.infer({**body, "prompt": prompt})]
        if answers[0].status in FAILED:
            answers.append(context.infer({**body, "prompt": prompt}))
        why = f"status {answers[-1].status} to the prompt {brief(prompt)}"
        held = answers[-1].status not in FAILED
        context.judge("NA-INF-038", held, why, control, *answers)


@requirement("NA-INF-039")
def inference_stream_type(context: Context) -> None:
    """POST /inference with a stream that no reader can take for true or false."""
    body: dict[str, Json] = {"prompt": "Hello", "max_tokens": 1}
    control = context.infer({**body, "stream": False})
    if not control.ok:
        raise Skipped(f"POST /inference was answered with status {control.status}")
    for value in NO_BOOL:
        answer = context.infer({**body, "stream": value})
        why = f"stream {brief(value)} was served"
        context.judge("NA-INF-039", not answer.ok, why, control, answer)


@requirement("NA-INF-042")
def inference_room(context: Context) -> None:
    """POST /inference with prompts of different lengths and the same maximum of tokens."""
    answers, few = _made_of(context, GROWING)
    # A text may end anywhere by itself, but not each time where both together are as many.
    sums = {read + written for read, written in few}
    why = f"with max_tokens {ROOM} read and written are {brief(few)}, which always add up"
    context.judge("NA-INF-042", len(sums) > 1 or max(sums) > ROOM, why, *answers)
    if context.edition >= FIFTH:
        answers, used = _made_of(context, GROWING[1:], MORE_ROOM)
        why = f"with max_tokens {MORE_ROOM} read and written are {brief(used)}"
        both = {read + written for read, written in used}
        context.judge("NA-INF-042", both != {MORE_ROOM}, why, *answers)
    if context.edition >= TURNED_SINCE:
        answers, used = _made_of(context, [(SENTENCE * FEWER)[:end] for end in LENGTHENING])
        why = f"with max_tokens {ROOM} read and written are {brief(used)}, a line that falls"
        context.judge("NA-INF-042", not _is_falling(used), why, *answers)
        # Where nothing is left it does not fall any more.
        some = sorted(pair for pair in {*few, *used} if pair[1])
        if context.edition >= SEVENTH and len(some) > len(GROWING):
            why = f"with max_tokens {ROOM} read and written are {brief(some)}, a line that falls"
            context.judge("NA-INF-042", not _is_falling(some), why, *answers)


def _made_of(
    context: Context, prompts: Sequence[str], room: int = ROOM
) -> tuple[list[Answer], list[Counts]]:
    """Return the answers to prompts, and how many tokens were read and written for each."""
    answers, used = list[Answer](), list[Counts]()
    for prompt in prompts:
        answer = context.infer({"prompt": prompt, "max_tokens": room, "temperature": 0})
        answers.append(answer)
        usage = (answer.json_object() or {}).get("usage") if answer.ok else None
        told = usage if isinstance(usage, dict) else {}
        read, written = told.get("prompt_tokens"), told.get("completion_tokens")
        if not isinstance(read, int) or not isinstance(written, int):
            raise Skipped(f"prompt_tokens and completion_tokens are {brief([read, written])}")
        used.append((read, written))
    if len({read for read, _ in used}) < len(used):
        raise Skipped(f"the prompts have as many tokens as each other: {brief(used)}")
    return answers, used


def _is_falling(used: list[Counts]) -> bool:
    """Return whether each token that is read leaves less room by the same share of a token.

    Where a whole token less is written for each that is read, a model has no room for both.
    """
    (first, most), (last, least) = used[0], used[-1]
    slope = (most - least) / (last - first)
    line = [most - slope * (read - first) for read, _ in used]
    straight = all(abs(at - written) < 1 for at, (_, written) in zip(line, used, strict=True))
    return straight and most - least >= len(used) and slope < WHOLE_TOKEN


@requirement("NA-INF-040", "NA-AUTH-022", "NA-INF-023")
def inference_at_once(context: Context) -> None:
    """POST /inference several times at the same moment, after one by itself."""
    body: dict[str, Json] = {"prompt": PROMPTS[0], "max_tokens": 24}
    control = context.infer(body)
    if not control.ok:
        raise Skipped(f"POST /inference was answered with status {control.status}")

    def ask(_: int) -> Answer:
        return context.infer(body)

    def ask_for(tokens: int) -> Answer:
        return context.infer({**body, "max_tokens": tokens})

    failed, refused = list[Answer](), list[Answer]()
    for _ in range(TRIES):
        with context.http.gate.holding(AT_ONCE), ThreadPoolExecutor(AT_ONCE) as pool:
            answers = list(pool.map(ask, range(AT_ONCE)))
        # A node that is busy says so, with another status.
        wrong = [answer for answer in answers if answer.status in (401, *FAILED)]
        if not wrong:
            context.holds("NA-INF-040", control, *answers)
            # Each has figures of its own, which are judged as in every answer.
            with context.http.gate.holding(AT_ONCE), ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(ask_for, range(1, AT_ONCE * UNLIKE, UNLIKE)))
            return
        refused += [answer for answer in wrong if answer.status == 401]
        failed += [answer for answer in wrong if answer.status != 401]
    shown = f"of {AT_ONCE} requests at the same time, {TRIES} times"
    if len(failed) >= TRIES:
        why = f"{shown}: {len(failed)} end with {failed[-1].status}"
        context.fails("NA-INF-040", why, control, *failed[:2])
    if len(refused) >= TRIES and ask(0).ok:
        context.fails("NA-AUTH-022", f"{shown}: {len(refused)} end with 401", control, *refused[:2])
