"""Interface 2.1 and 4.1: how the figures of one inference result go together."""

from collections.abc import Sequence

from conformance.editions import SEVENTH, SIXTH
from conformance.findings import Findings
from conformance.httpwire import Answer
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_int, is_number, last_place

STOPPED, STREAM_STOPPED = "NA-INF-013", "NA-SSE-016"
IDS = frozenset(f"NA-INF-{number:03d}" for number in (3, 4, 13, 22, 23, 24, 25, 33, 34))
IDS |= {STREAM_STOPPED}
DEFAULT_MAX_TOKENS = 100
# So many tokens are not all without text; and how far two clocks of one machine may differ.
SURELY_TEXT, SLACK_MS = 8, 100


def judge_result(findings: Findings, limit: Json, result: dict[str, Json], answer: Answer) -> None:
    """Rule on the relations in one result; its request had `limit` as max_tokens, None for none."""
    generated = result.get("tokens_generated")
    if is_int(generated) and is_int(limit):
        findings.judge(
            "NA-INF-003",
            generated <= limit,
            f"tokens_generated is {generated} with max_tokens {limit}",
            answer,
        )
    elif is_int(generated) and limit is None:
        held, why = generated <= DEFAULT_MAX_TOKENS, f"{generated} tokens without max_tokens"
        findings.judge("NA-INF-004", held, why, answer)
    usage = result.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    prompt, completion, total = (
        usage.get(key) for key in ("prompt_tokens", "completion_tokens", "total_tokens")
    )
    if is_int(prompt) and is_int(completion) and is_int(total):
        findings.judge(
            "NA-INF-022", total == prompt + completion, f"usage is {brief(usage)}", answer
        )
    if is_int(generated) and is_int(completion):
        findings.judge(
            "NA-INF-023",
            generated == completion,
            f"tokens_generated {generated}, completion_tokens {completion}",
            answer,
        )
    generated_text = result.get("text")
    if is_int(generated) and generated >= SURELY_TEXT and isinstance(generated_text, str):
        why = f"text is empty with {generated} tokens"
        findings.judge("NA-INF-033", bool(generated_text), why, answer)
    timing = result.get("timing")
    times = [
        lookup({"timing": timing}, f"timing.{key}_ms") for key in ("queue", "inference", "total")
    ]
    if all(found and is_number(found[0]) for found in times):
        queue, inference, whole = (found[0] for found in times)
        took_ms = answer.exchange.took_ms
        why = f"total_ms is {whole}, the answer took {took_ms:.0f} ms"
        findings.judge("NA-INF-034", whole <= took_ms * 1.1 + SLACK_MS, why, answer)
        findings.judge(
            "NA-INF-024",
            # Each may be measured and rounded for itself.
            min(queue, inference) >= 0
            and whole >= max(queue, inference) - _slack(findings, (queue, inference, whole)),
            f"timing is {brief(timing)}",
            answer,
        )
    amount, currency = lookup(result, "cost.amount"), lookup(result, "cost.currency")
    if amount and currency and is_number(amount[0]) and isinstance(currency[0], str):
        findings.judge(
            "NA-INF-025",
            amount[0] >= 0 and bool(currency[0].strip()),
            f"cost is {brief(result['cost'])}",
            answer,
        )


def _slack(findings: Findings, times: Sequence[float]) -> float:
    """How much less the whole may be than its parts, by what is shown of them, in ms."""
    if findings.edition < SEVENTH:
        return 1.0
    return min(1.0, max(map(last_place, times)) + max(times) / 10)


def judge_stopped(
    findings: Findings, ident: str, body: dict[str, Json], text: Json, answer: Answer
) -> None:
    """Rule on the text for a body; a stop sequence may belong to its text, or be taken out."""
    stops = body.get("stop")
    if findings.edition < SIXTH or not isinstance(stops, list) or not isinstance(text, str):
        return
    # Some nodes repeat the prompt.
    own = text.removeprefix(str(body.get("prompt")))
    for stop in (one for one in stops if isinstance(one, str) and one):
        before, found, behind = own.partition(stop)
        why = f"{brief(before + found + behind)} continues after {brief(stop)}"
        findings.judge(ident, not behind, why, answer)
