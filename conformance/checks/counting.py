"""Interface 2.1: what the metrics count of generations.

Others may use the target at the same time, so a count that is too high proves nothing by itself.
"""

from conformance.checks.money import TRIES, Comparison, eventually
from conformance.checks.node_reads import METRICS
from conformance.checks.reading import fetch
from conformance.checks.stream import LONG, LONG_SINCE
from conformance.context import Context
from conformance.findings import Skipped
from conformance.httpwire import Answer, Credential
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_number

EARLY_TOKENS = 24
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


def _judge_counts(context: Context, most: int, account: Credential) -> None:
    """Rule on the figures around generations of so many tokens, for an account."""
    compared, first = Comparison(context), counted(context)
    steps: list[tuple[float, float, float]] = []
    for _ in range(TRIES):
        before = counted(context)
        answer = context.infer({"prompt": "Hello", "max_tokens": most}, credential=account)
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
        eventually(lambda: counted(context)[0] - first[0] >= len(steps))
        last = counted(context)
        why = f"of {len(steps)} requests {last[0] - first[0]:g} are counted"
        context.judge("NA-COUNT-001", last[0] - first[0] >= len(steps), why, first[2], last[2])
    # Others may use the target too, but not always by the same factor.
    requests = {asked for asked, _, _ in steps}
    tokens_each = {tokens / many for _, tokens, many in steps if many}
    wrong = [found for found in (requests, tokens_each) if len(found) == 1 and found != {1.0}]
    why = f"each request is counted as {requests}, each token as {tokens_each}"
    context.judge("NA-COUNT-003", not wrong, why, answer)


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

    eventually(arrived)
    return seen[-1]


def counted(context: Context) -> Figures:
    """Return the figures of the metrics; raise `Skipped` without them."""
    answer, document = fetch(context, METRICS)
    found = [lookup(document, f"inference.{key}") for key in ("requests_total", "tokens_generated")]
    if not all(values and is_number(values[0]) for values in found):
        raise Skipped("the metrics have no figures")
    return float(found[0][0]), float(found[1][0]), answer
