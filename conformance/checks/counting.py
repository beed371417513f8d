"""Interface 2.1: what the metrics count of generations.

Others may use the target at the same time, so a count that is too high proves nothing by itself.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from conformance.checks import wallet
from conformance.checks.money import TRIES, Comparison, eventually
from conformance.checks.node_reads import METRICS
from conformance.checks.reading import fetch
from conformance.checks.stream import LONG, LONG_SINCE
from conformance.context import Context
from conformance.editions import SEVENTH
from conformance.findings import Skipped
from conformance.httprequest import Credential
from conformance.httpwire import Answer
from conformance.registry import Pauses, requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_int, is_number

EARLY_TOKENS = 24
# What nearly any text of so many tokens ends at.
ENDED, STOPS = 12, (" ", "e", "a", "o", ".")
# Requests of each account at the same time.
AT_ONCE = 2
# How long a metric may lag.
SETTLED_S = 1.0
# requests_total, tokens_generated, and the answer that has them.
Figures = tuple[float, float, Answer]


@requirement("NA-COUNT-001", "NA-COUNT-002", "NA-COUNT-003")
def inference_counted(context: Context) -> None:
    """POST /inference, and read the metrics before and after it."""
    _judge_counts(context, 3, context.target.valid)
    if context.edition >= LONG_SINCE:
        _judge_counts(context, LONG, context.target.valid)
        if context.target.second_token is not None:
            _judge_counts(context, 3, context.target.second)
    if context.edition >= SEVENTH:
        _judge_counts(context, ENDED, context.target.valid, {"stop": list(STOPS)})


def _judge_counts(
    context: Context, most: int, account: Credential, fields: dict[str, Json] | None = None
) -> None:
    """Rule on the figures around generations of so many tokens, for an account.

    The ``fields`` are those that their bodies have besides.
    """
    compared, first = Comparison(context), counted(context)
    steps: list[tuple[float, float, float]] = []
    for _ in range(TRIES):
        before = counted(context)
        body: dict[str, Json] = {"prompt": "Hello", "max_tokens": most, **(fields or {})}
        answer = context.infer(body, credential=account)
        result = answer.json_object() or {}
        made = result.get("tokens_generated")
        if not answer.ok or not is_number(made):
            raise Skipped(f"POST /inference was answered with status {answer.status}")
        after = counted_after(context, before, tokens=bool(made))
        asked, tokens = after[0] - before[0], after[1] - before[1]
        shown = (before[2], answer, after[2])
        compared.note("NA-COUNT-001", asked >= 1, f"requests_total rose by {asked:g}", *shown)
        compared.note("NA-COUNT-002", tokens >= made,
                      f"tokens_generated rose by {tokens:g} for {made}", *shown)  # fmt: skip
        steps.append((asked, tokens, float(made)))
        if most == LONG and (asked, tokens) == (1, made):
            # Long ones take long; one that is right is enough.
            break
    compared.conclude()
    if context.edition >= LONG_SINCE:
        # Others may use the target too, which only adds.
        come_to(context, lambda: counted(context)[0] - first[0] >= len(steps))
        last = counted(context)
        why = f"of {len(steps)} requests {last[0] - first[0]:g} are counted"
        context.judge("NA-COUNT-001", last[0] - first[0] >= len(steps), why, first[2], last[2])
    # Others may use the target too, but not always by the same factor.
    requests = {asked for asked, _, _ in steps}
    tokens_each = {tokens / many for _, tokens, many in steps if many}
    wrong = [found for found in (requests, tokens_each) if len(found) == 1 and found != {1.0}]
    why = f"each request is counted as {requests}, each token as {tokens_each}"
    context.judge("NA-COUNT-003", not wrong, why, answer)


# How far an average may be below what the run's own generations took, and above the slowest ones.
FAR_BELOW, CLOSE = 1 / 20, 0.99


@requirement("NA-SANE-042", "NA-SANE-043")
def inference_latency(context: Context) -> Pauses:
    """POST /inference several times, and compare the latencies of the metrics with its timing."""
    took_ms, answers = 0.0, list[Answer]()
    for most in (1, EARLY_TOKENS, 1, 1):
        answer = context.infer({"prompt": "Hello", "max_tokens": most})
        found = lookup(answer.json_object() or {}, "timing.inference_ms") if answer.ok else []
        if not found or not is_number(found[0]):
            raise Skipped(f"POST /inference has no timing, status {answer.status}")
        took_ms += found[0]
        answers.append(answer)
    yield SETTLED_S
    answer, document = fetch(context, METRICS)
    figures = [
        lookup(document, f"inference.{key}")
        for key in ("requests_total", "avg_latency_ms", "p99_latency_ms")
    ]
    if not all(found and is_number(found[0]) for found in figures):
        raise Skipped("the metrics have no latencies")
    total, average, slowest = (float(found[0]) for found in figures)
    if average > 0 and slowest > 0:
        why = f"avg_latency_ms is {average:g}, p99_latency_ms {slowest:g}"
        context.judge("NA-SANE-042", slowest >= average * CLOSE, why, answer)
    if average > 0 and total >= len(answers):
        why = f"avg_latency_ms is {average:g} for {total:g} requests; {len(answers)} of these"
        why = f"{why} took {took_ms:g} ms by their own timing.inference_ms"
        held = average * total >= took_ms * FAR_BELOW
        context.judge("NA-SANE-043", held, why, *answers, answer)


@requirement("NA-COUNT-008")
def inference_counted_at_once(context: Context) -> None:
    """POST /inference several times at the same moment, and read the metrics around it."""
    compared = Comparison(context)
    for _ in range(TRIES):
        before, answers = counted(context), _answered_at_once(context)
        made = [(answer.json_object() or {}).get("tokens_generated") for answer in answers]
        tokens = sum(int(count) for count in made if is_int(count))
        seen = [before]
        held = come_to(context, partial(_has_risen, context, seen, len(answers), tokens))
        asked, grown = seen[-1][0] - before[0], seen[-1][1] - before[1]
        why = f"tokens_generated by {grown:g} for {tokens}"
        why = f"requests_total rose by {asked:g} for {len(answers)} at the same time, {why}"
        compared.note("NA-COUNT-008", held, why, before[2], *answers, seen[-1][2])
        if held:
            break
    compared.conclude()


def _answered_at_once(context: Context) -> list[Answer]:
    """Ask for generations of both accounts at the same time; all of them have to be served."""

    def ask(account: Credential) -> Answer:
        return context.infer({"prompt": "Hello", "max_tokens": EARLY_TOKENS}, credential=account)

    accounts = (context.target.valid, context.target.second) * AT_ONCE
    many = len(accounts)
    with context.http.gate.holding(many), ThreadPoolExecutor(many) as pool:
        answers = list(pool.map(ask, accounts))
    served = [answer for answer in answers if answer.ok]
    if len(served) < len(answers):
        raise Skipped(f"of {len(answers)} requests at the same time {len(served)} are served")
    return answers


def _has_risen(context: Context, seen: list[Figures], asked: int, tokens: int) -> bool:
    """Read the figures once more; return whether they have risen by so much since the first."""
    seen.append(counted(context))
    return seen[-1][0] - seen[0][0] >= asked and seen[-1][1] - seen[0][1] >= tokens


@requirement("NA-COUNT-007", "NA-COUNT-001")
def inference_counted_early(context: Context) -> None:
    """POST /inference that ends early at a stop sequence, and read the metrics around it."""
    body = early(context)
    risen: list[float] = []
    compared = Comparison(context)
    for _ in range(TRIES):
        before = counted(context)
        answer = context.infer(body)
        made = (answer.json_object() or {}).get("tokens_generated")
        if not answer.ok or not is_number(made) or made >= EARLY_TOKENS:
            raise Skipped(f"the generation did not end early, status {answer.status}")
        after = counted_after(context, before, tokens=bool(made))
        risen.append(after[1] - before[1])
        asked = after[0] - before[0]
        why = f"requests_total rose by {asked:g}, for a generation that a stop sequence ends"
        compared.note("NA-COUNT-001", asked >= 1, why, before[2], answer, after[2])
    compared.conclude()
    # Others may use the target too, but hardly for the same number of tokens each time.
    why = f"{made} tokens of at most {EARLY_TOKENS} were generated, {brief(risen)} counted"
    wrong = len(set(risen)) == 1 and risen[0] != made
    context.judge("NA-COUNT-007", not wrong, why, before[2], answer, after[2])


def early(context: Context) -> dict[str, Json]:
    """Return a body whose generation ends early, at a piece of the text that it would have."""
    body: dict[str, Json] = {
        "prompt": "Once upon a time", "max_tokens": EARLY_TOKENS, "temperature": 0,
    }  # fmt: skip
    text = (context.infer(body).json_object() or {}).get("text")
    if not isinstance(text, str) or len(text) < 8:
        raise Skipped("no text to take a stop sequence from")
    at = len(text) // 4
    return {**body, "stop": [text[at : at + 2]]}


def counted_after(context: Context, before: Figures, *, tokens: bool) -> Figures:
    """Return the figures once they have risen, or the latest ones."""
    seen = [before]

    def arrived() -> bool:
        seen.append(counted(context))
        return seen[-1][0] > before[0] and (seen[-1][1] > before[1] or not tokens)

    come_to(context, arrived)
    return seen[-1]


def come_to(context: Context, hold: Callable[[], bool]) -> bool:
    """Return whether the metrics come to it; each wait in vain makes the next one shorter."""
    memory, longest_s = context.service.heard.memory, wallet.LISTED_WITHIN_S
    held = eventually(hold, max(longest_s / 2**memory.uncounted, min(longest_s, SETTLED_S)))
    memory.uncounted = 0 if held else memory.uncounted + 1
    return held


def counted(context: Context) -> Figures:
    """Return the figures of the metrics; raise `Skipped` without them."""
    answer, document = fetch(context, METRICS)
    found = [lookup(document, f"inference.{key}") for key in ("requests_total", "tokens_generated")]
    if not all(values and is_number(values[0]) for values in found):
        raise Skipped("the metrics have no figures")
    return float(found[0][0]), float(found[1][0]), answer
