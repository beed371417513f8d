"""Interface 4.1: numbers that a byte cannot hold, and texts that go on behind a line break.

Invariant: every change is undone; what could not be restored is reported.
"""

from conformance.checks.again import run_again
from conformance.checks.changes import BATCH, ENABLED, taken
from conformance.checks.config import flat, nested, patch, read_config, restore
from conformance.checks.counting import EARLY_TOKENS, early
from conformance.checks.effects import letters
from conformance.checks.stream import LONG
from conformance.context import Context
from conformance.editions import FIFTH, SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.strictjson import Json, brief, is_number

THREADS, STEPS = "resources.cpu_threads", "training.diloco_steps"
RATE = "training.learning_rate"
SHORTENED, CHANGED = "NA-INF-049", "NA-PATCH-123"
# Both are the same number where a byte holds them, and one that ends a generation at once.
BYTE, TRIES = 256, 3
# By so much of itself a rate may be rounded.
ROUNDED = 0.001
NOWHERE_ELSE = "NA-INF-041"
ALONE = "NA-INF-061"
UNENDED, NEVER = "NA-INF-050", "\U0001f5ff\U0001f5ff"
# Among whose answers there are some of several lines.
PROMPTS = ("List three fruits, one in each line:\n1.", "Write a poem of two lines.")
WHOLE_PROMPT, SOME = "NA-INF-054", 24
LONG_PROMPT, SENTENCE, LENGTHS = "NA-INF-055", "Once upon a time there was a node. ", (600, 1100)
CANDIDATES, FEW_CANDIDATES, MANY_CANDIDATES = "NA-INF-057", 50, (200, 1000)
# The last one ends as the others, since a model may look no farther back than that.
FRAME, OTHER = "Tell me what you know of {} in a word", "Once upon a time, in a word"
LONG_FRAME = "Please tell me, as somebody who has read much, what you know of {}; do it"
ENDING = " in a few plain words that everybody understands"
SHORT_FRAME, LEAST_ENDING = "What is {}", ", will you please"
BEFORE = "You have read much, more than all of us together, so tell me this: "
WITHIN = ("the sea", "mathematics", "bread and salt", "trains in winter")
# What is one and 44 in a byte, and in two bytes one; and round numbers.
NUMBERS = {
    BATCH: (257, 300, 64), THREADS: (24, 2),
    STEPS: (300, 65537, 50, 1000, 100_000),
}  # fmt: skip
# Above what most machines have, and rates of few digits and of many.
FRACTIONS = {
    "resources.max_memory_gb": (130.5, 300.25),
    RATE: (0.1, 0.0125, 0.000123, 2.5e-06),
}
# Beyond 32 bits, and beyond any rate.
VAST: dict[str, tuple[float, ...]] = {STEPS: (5_000_000_000,), RATE: (0.5, 3.0)}
# Next to nothing, which a node may refuse.
TINY = 3e-08


@requirement(SHORTENED)
def tokens_beyond(context: Context) -> None:
    """POST /inference with a stop sequence, and a limit of tokens that a byte does not hold.

    The stop sequence ends both generations, so that neither takes long.
    """
    if context.edition < FIFTH:
        raise Skipped("later editions ask for it")
    # Only where the first is ended, too, the other one does not take long.
    body = early(context)
    if _judge_shortened(context, body, BYTE + 1):
        _judge_shortened(context, body, BYTE**2 + 1)


def _judge_shortened(context: Context, body: dict[str, Json], most: int) -> bool:
    """Rule on a text with so many tokens at most; return whether it ended as with few."""
    wrong = list[str]()
    for _ in range(TRIES):
        within, beyond = (
            context.infer({**body, "max_tokens": many}) for many in (EARLY_TOKENS, most)
        )
        told = [_text(answer) for answer in (within, beyond)]
        if not within.ok or not beyond.ok or told[0] == told[1]:
            break
        if told[0].startswith(told[1]) and len(told[1]) < len(told[0]):
            wrong.append(f"{brief(told[1])} with max_tokens {most}")
    why = f"{brief(told[0])} with max_tokens {EARLY_TOKENS}, and {brief(wrong[-1:])}"
    context.judge(SHORTENED, len(wrong) < TRIES, why, within, beyond)
    return beyond.ok and told[0] == told[1]


@requirement(UNENDED, NOWHERE_ELSE, ALONE)
def lines_beyond(context: Context) -> None:
    """POST /inference without a stop sequence, and with one that no text has; compare them."""
    if context.edition < FIFTH:
        raise Skipped("later editions ask for it")
    for prompt in PROMPTS:
        body: dict[str, Json] = {"prompt": prompt, "max_tokens": LONG, "temperature": 0}
        wrong, cut, seen = list[str](), list[str](), list[tuple[str, str]]()
        for _ in range(TRIES):
            plain, other = context.infer(body), context.infer({**body, "stop": [NEVER]})
            # A text may end with the sequence that it was to end at.
            told = _text(plain), _text(other).removesuffix(NEVER)
            seen.append((letters(told[0]), letters(told[1])))
            if not plain.ok or not other.ok or told[0] == told[1]:
                break
            if told[0].startswith(told[1]):
                cut.append(f"{brief(told[1])} with {NEVER!r} as one")
            if told[1].startswith(told[0]):
                wrong.append(f"{brief(told[1][len(told[0]) :])} follows with {NEVER!r} as one")
        why = f"{brief(told[0])} without a stop sequence, and {brief(wrong[-1:])}"
        context.judge(UNENDED, len(wrong) < TRIES, why, plain, other)
        why = f"{brief(told[0])} without a stop sequence, and {brief(cut[-1:])}"
        context.judge(NOWHERE_ELSE, len(cut) < TRIES, why, plain, other)
        if context.edition >= SEVENTH and plain.ok and other.ok:
            # A model may have another text each time; what is longer or shorter is judged above.
            steady = len(seen) == TRIES and len(set(seen)) == 1
            held = not steady or bool(wrong or cut) or all(one == two for one, two in seen)
            why = f"{brief(told[0])} without a stop sequence, {brief(told[1])} with {NEVER!r}"
            context.judge(ALONE, held, why, plain, other)


@requirement(LONG_PROMPT)
def prompts_long(context: Context) -> None:
    """POST /inference with prompts of some hundred letters, and of a thousand."""
    if context.edition < FIFTH:
        raise Skipped("later editions ask for it")
    short = context.infer({"prompt": SENTENCE, "max_tokens": 1})
    if not short.ok:
        raise Skipped(f"POST /inference was answered with status {short.status}")
    for length in LENGTHS:
        prompt = SENTENCE * (length // len(SENTENCE))
        for _ in range(TRIES):
            answer = context.infer({"prompt": prompt, "max_tokens": 1})
            if answer.ok:
                break
        why = f"a prompt of {len(prompt)} letters ends with status {answer.status}"
        context.judge(LONG_PROMPT, answer.ok, why, short, answer)


@requirement(CANDIDATES)
def candidates_many(context: Context) -> None:
    """POST /inference with a top_k of more than a hundred."""
    if context.edition < SIXTH:
        raise Skipped("later editions ask for it")
    body: dict[str, Json] = {"prompt": SENTENCE, "max_tokens": 1}
    usual = context.infer({**body, "top_k": FEW_CANDIDATES})
    if not usual.ok:
        raise Skipped(f"POST /inference was answered with status {usual.status}")
    for many in MANY_CANDIDATES:
        for _ in range(TRIES):
            answer = context.infer({**body, "top_k": many})
            if answer.ok:
                break
        why = f"top_k {FEW_CANDIDATES} is accepted, and {many} ends with status {answer.status}"
        context.judge(CANDIDATES, answer.ok, why, usual, answer)


@requirement(WHOLE_PROMPT)
def prompts_beyond(context: Context) -> None:
    """POST /inference with prompts that begin and end alike, and with one that only ends so."""
    if context.edition < FIFTH:
        raise Skipped("later editions ask for it")
    if context.edition >= SEVENTH:
        _judge_ending(context)
    _judge_within(context, FRAME, OTHER)
    if context.edition >= SIXTH:
        _judge_within(context, LONG_FRAME + ENDING, OTHER + ENDING)


def _judge_ending(context: Context) -> None:
    """Rule on long prompts with one text that end alike, where the same ends alone have more.

    So the model looks as far back as they differ.
    """
    texts, shown = list[set[str]](), list[Answer]()
    for frame in (SHORT_FRAME, BEFORE + SHORT_FRAME):
        prompts = [f"{frame.format(what)}{LEAST_ENDING}" for what in WITHIN]
        answers = [
            context.infer({"prompt": prompt, "max_tokens": SOME, "temperature": 0})
            for prompt in prompts
        ]
        texts.append({_text(answer) for answer in answers})
        shown = answers
        if "" in texts[-1]:
            return
    if len(texts[0]) == len(WITHIN):
        why = f"{len(WITHIN)} long prompts that end alike have one text, and short ones do not"
        context.judge(WHOLE_PROMPT, len(texts[1]) > 1, why, *shown)


def _judge_within(context: Context, frame: str, other: str) -> None:
    """Rule on the texts of prompts that differ within the frame, and of another one."""
    for _ in range(TRIES):
        answers = [
            context.infer({"prompt": prompt, "max_tokens": SOME, "temperature": 0})
            for prompt in (other, *(frame.format(what) for what in WITHIN))
        ]
        texts = [_text(answer) for answer in answers]
        if not all(texts) or texts[0] in texts[1:]:
            raise Skipped("prompts that begin otherwise have one text")
        if len(set(texts[1:])) > 1:
            break
    why = f"{len(WITHIN)} prompts that begin and end alike have one text: {brief(texts[1])}"
    context.judge(WHOLE_PROMPT, len(set(texts[1:])) > 1, why, *answers)


def _text(answer: Answer) -> str:
    found = (answer.json_object() or {}).get("text")
    return found if isinstance(found, str) else ""


@requirement(CHANGED)
def config_beyond(context: Context) -> None:
    """PATCH numbers that are larger than a byte, or have more digits, and read them again."""
    if context.edition < FIFTH:
        raise Skipped("later editions ask for it")
    original = read_config(context)
    try:
        for path, values in NUMBERS.items():
            # What a node shows as 4.0 it may not take so again.
            for value in values if isinstance(flat(original).get(path), int) else ():
                _judge_set(context, path, value, 0.0)
                if path == STEPS:
                    run_again(context, "shape-training-global", f"after {path} was set to {value}")
        for path, fractions in FRACTIONS.items():
            tiny = (TINY,) if path == RATE and context.edition >= SIXTH else ()
            for part in (*fractions, *tiny) if is_number(flat(original).get(path)) else ():
                _judge_set(context, path, part, part * ROUNDED)
        if context.edition >= SIXTH:
            _judge_vast(context)
    finally:
        restore(context, original)


def _judge_vast(context: Context) -> None:
    """Rule on numbers with which nobody would train, while nothing is trained."""
    before = read_config(context)
    enabled = flat(before).get(ENABLED)
    try:
        if enabled is True:
            patch(context, nested({ENABLED: False}))
        found = flat(read_config(context))
        for path, values in VAST.items():
            off = found.get(ENABLED) is False and is_number(found.get(path))
            for value in values if off else ():
                _judge_set(context, path, value, value * ROUNDED if path == RATE else 0.0)
    finally:
        # The numbers first, so that nothing is trained with these.
        restore(context, before)
        if enabled is True:
            patch(context, nested({ENABLED: True}))
            if flat(read_config(context)).get(ENABLED) is not True:
                context.residue.append(f"configuration: {ENABLED} is not true again")


def _judge_set(context: Context, path: str, value: float, slack: float) -> None:
    """Rule on a value that is set, where the change is made at once."""
    made = patch(context, nested({path: value}))
    if taken(made) and (made.json_object() or {}).get("restart_required") is False:
        found = flat(read_config(context)).get(path)
        held = is_number(found) and abs(found - value) <= slack
        context.judge(CHANGED, held, f"{path} was set to {value}, and is {brief(found)}", made)
