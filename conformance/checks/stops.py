"""Interface 4.1: stop sequences at the ends of a text, in its first token and in its last one, and
those with letters beyond ASCII.
"""

import re

from conformance.checks.effects import letters
from conformance.checks.inference import REFUSED
from conformance.checks.money import TRIES
from conformance.context import Context
from conformance.editions import FIFTH, FOURTH, SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.passive.events import tokens_of
from conformance.passive.results import STOPPED, STREAM_STOPPED
from conformance.registry import requirement
from conformance.strictjson import Json, brief

LEFT_ALIKE, STREAMED, ENDS = "NA-INF-053", "NA-INF-056", "NA-INF-013"
MANY, AS_WHOLE = "NA-INF-062", "NA-SSE-027"
# More than one, than four and than eight, and none of them in any text.
NOWHERE = tuple(f"{number}\u241f" for number in range(12))
PROMPT = "Once upon a time"
# So often a text has to end at a sequence of an earlier request.
REPEATS = 3
# Tokens of the texts that are stop sequences afterwards, and how many more may follow then.
SIZES, MORE = (1, 2, 5), 9
# Stop sequences beside other parameters; nearly any text has one of them.
SAMPLED: dict[str, Json] = {
    "temperature": 0.7, "top_p": 0.9, "top_k": 40, "stop": [" ", "e", "a", "o", "."],
}  # fmt: skip
# What a model may go on with in letters beyond ASCII; a replacement character is none.
FOREIGN = (
    "Schreib weiter: süße Äpfel, Öl, größere Körbe",
    "日本語で書いてください。東京は大きな都市です。",
    "Продолжай: Москва — большой город",
    "🙂🙃🙂🙃🙂",
)
BEYOND_ASCII = re.compile("[^\x00-\x7f\ufffd]{1,2}")


@requirement("NA-INF-013", "NA-INF-018")
def inference_stop(context: Context) -> None:
    """Repeat a request with temperature 0, with a piece of its answer as a stop sequence."""
    body: dict[str, Json] = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}
    first = context.infer(body)
    text = (first.json_object() or {}).get("text")
    if not first.ok or not isinstance(text, str) or len(text) < 4:
        raise Skipped("no text to take a stop sequence from")
    # A piece from the middle, and one that begins with white space.
    stops = [text[len(text) // 2 : len(text) // 2 + 2]]
    stops += [found[0] for found in [re.search(r"(?<=\S)\s\S", text)] if found]
    if context.edition >= FOURTH:
        # Pieces that lie across tokens, wherever those begin.
        middle = len(text) // 2
        stops += [text[middle + 1 : middle + 3], text[middle : middle + 3]]
        # And one with which the text would begin, so that there is none.
        stops.append(text[:2])
    for stop in stops:
        second = context.infer({**body, "stop": [stop]})
        stopped = (second.json_object() or {}).get("text")
        if second.ok and isinstance(stopped, str):
            # The document does not say whether the sequence itself belongs to the text.
            position = stopped.find(stop)
            context.judge(
                "NA-INF-013",
                position < 0 or position + len(stop) == len(stopped),
                f"{brief(stopped)} continues after {brief(stop)}",
                first,
                second,
            )
            if context.edition >= FOURTH and stop in text:
                _judge_without(context, body, text, (stop, second))


def _judge_without(
    context: Context, body: dict[str, Json], text: str, stopped: tuple[str, Answer]
) -> None:
    """Generate without a stop sequence, after one with: the text must not end at that one."""
    stop, answer = stopped
    ends = text.find(stop)
    # With the sequence itself or without it.
    cut = {text[:ends], text[: ends + len(stop)]} - {text}
    shown: list[Answer] = []
    held = False
    while not held and len(shown) < REPEATS:
        shown.append(context.infer(body))
        held = not shown[-1].ok or (shown[-1].json_object() or {}).get("text") not in cut
    why = f"without a stop sequence the text ends at {brief(stop)}, which an earlier request named"
    context.judge("NA-INF-018", held, why, answer, *shown)


@requirement(LEFT_ALIKE, STREAMED, STOPPED, STREAM_STOPPED, ENDS, MANY, AS_WHOLE)
def stops_left(context: Context) -> None:
    """POST /inference for a few tokens; then with their text as a stop sequence, and for more."""
    if context.edition < FIFTH:
        raise Skipped("later editions ask for it")
    for size in SIZES:
        plain, text = _text(context, {"max_tokens": size})
        sequence = text.strip()
        if not plain.ok or not sequence:
            continue
        wrong, shown = "", [plain]
        for _ in range(TRIES):
            last, ended = _text(context, {"max_tokens": size, "stop": [sequence]})
            early, cut = _text(context, {"max_tokens": size + MORE, "stop": [sequence]})
            shown = [plain, last, early]
            # A model that has another text each time has another one here, too.
            unlike = {letters(ended), letters(cut)} == {"", letters(sequence)}
            if not last.ok or not early.ok or not unlike:
                wrong = ""
                break
            wrong = f"{brief(ended)} of {size} tokens, and {brief(cut)} of more"
        why = f"with {brief(sequence)} as a stop sequence a text is {wrong}"
        context.judge(LEFT_ALIKE, not wrong, why, *shown)
        if context.edition >= SIXTH:
            _judge_streamed(context, sequence, {"max_tokens": size + MORE})
    if context.edition >= SIXTH:
        # Each answer is judged by itself.
        for stream in (False, True):
            context.infer({"prompt": PROMPT, "max_tokens": 12, "stream": stream, **SAMPLED})
    if context.edition >= SEVENTH:
        for prompt in FOREIGN:
            _judge_foreign(context, prompt)
        _judge_many(context)


def _judge_many(context: Context) -> None:
    """Rule on more and more stop sequences, where one of them is accepted."""
    one, _ = _text(context, {"max_tokens": 1, "stop": [NOWHERE[0]]})
    for many in (5, len(NOWHERE)):
        answer, _ = _text(context, {"max_tokens": 1, "stop": list(NOWHERE[:many])})
        if one.ok and (answer.ok or answer.status in REFUSED):
            why = f"{many} stop sequences are answered with status {answer.status}"
            context.judge(MANY, answer.ok, why, one, answer)


def _judge_foreign(context: Context, prompt: str) -> None:
    """Rule on a stop sequence of letters beyond ASCII, if the text has any."""
    fields: dict[str, Json] = {"prompt": prompt, "max_tokens": 16}
    plain, text = _text(context, fields)
    found = BEYOND_ASCII.search(text)
    if found is None:
        return
    stream = context.infer({"prompt": prompt, "temperature": 0, **fields, "stream": True})
    sent = "".join(map(str, tokens_of(stream))).removeprefix(prompt)
    _, again = _text(context, fields)
    if stream.ok and text == again and len(sent) >= len(text):
        why = f"the stream has {brief(sent)}, the result {brief(text)}"
        context.judge(AS_WHOLE, BEYOND_ASCII.search(sent) is not None, why, plain, stream)
    ended, cut = _text(context, {**fields, "stop": [found[0]]})
    if ended.ok:
        # The document does not say whether the sequence itself belongs to the text.
        held = found[0] not in cut.removesuffix(found[0])
        why = f"{brief(cut)} continues after {brief(found[0])}"
        context.judge(ENDS, held, why, plain, ended)


def _judge_streamed(context: Context, sequence: str, fields: dict[str, Json]) -> None:
    """Rule on a stop sequence that only a stream, or only a result, leaves in the text."""
    fields |= {"stop": [sequence]}
    for turn in range(TRIES):
        plain, text = _text(context, fields)
        stream = context.infer({"prompt": PROMPT, "temperature": 0, **fields, "stream": True})
        sent = "".join(map(str, tokens_of(stream))).removeprefix(PROMPT)
        again, later = _text(context, fields)
        if not plain.ok or not stream.ok or text != later:
            # A model may have another text each time.
            return
        # What else makes the two unlike is judged elsewhere.
        unlike = {letters(text), letters(sent)} == {"", letters(sequence)}
        if not unlike or turn == TRIES - 1:
            why = f"with {brief(sequence)} as a stop sequence a result has {brief(text)}"
            context.judge(STREAMED, not unlike, f"{why}, a stream {brief(sent)}", again, stream)
            return


def _text(context: Context, fields: dict[str, Json]) -> tuple[Answer, str]:
    """Return an answer and its text, without the prompt that some nodes repeat in it."""
    body: dict[str, Json] = {"prompt": PROMPT, "temperature": 0, **fields}
    answer = context.infer(body)
    text = (answer.json_object() or {}).get("text")
    return answer, text.removeprefix(str(body["prompt"])) if isinstance(text, str) else ""
