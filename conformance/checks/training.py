"""Interface 2.1 and 4.1: the two training-verification routes."""

import re

from conformance.checks.node_reads import STATUS
from conformance.checks.reading import Resource, add_shape_check, fetch
from conformance.context import Context
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.strictjson import Json, brief, is_int, is_number

GLOBAL = Resource("training-global", "/training/global", "TR-ROUTE-001", auth=False, prefix="/api")
VERIFY = Resource("training-verify", "/training/verify", "TR-ROUTE-002", auth=False, prefix="/api")

# Two routes are compared only while the network stands still.
TRIES = 3
# How far a share may be from what its counts give.
ROUNDED = 0.02
_PERCENTAGE = re.compile(r"\s*\d+([.,]\d+)?\s*%\s*\Z", re.ASCII)


def _global(context: Context, found: dict[str, Json], answer: Answer) -> None:
    context.holds("GEN-015", answer)
    for ident, key in (
        ("TR-RULE-002", "hash_agreement_rate"),
        ("TR-RULE-003", "sync_success_rate"),
    ):
        rate = found.get(key)
        if is_number(rate):
            context.judge(ident, 0 <= rate <= 1, f"{key} is {rate}", answer)
    good, bad, rate = (
        found.get(key) for key in ("successful_syncs", "failed_syncs", "sync_success_rate")
    )
    if is_int(good) and is_int(bad) and is_number(rate) and good + bad > 0:
        # Rates may be rounded for display, so a hundredth is not a contradiction.
        context.judge(
            "TR-RULE-004",
            abs(rate - good / (good + bad)) <= 0.01,
            f"{good} good and {bad} failed syncs, rate {rate}",
            answer,
        )
    least, mean = found.get("global_min_loss"), found.get("global_avg_loss")
    if is_number(least) and is_number(mean):
        why = f"minimum {least}, average {mean}"
        context.judge("TR-RULE-005", least <= mean + 1e-6 * max(1.0, abs(mean)), why, answer)
    _judge_progress(context, found, answer)
    _judge_trend(context, found, answer)
    context.observe("TR-RULE-007", f"loss_trend {brief(found.get('loss_trend'))}", answer)
    keys = (
        "training_verified", "is_converging", "hash_agreement_rate", "sync_success_rate",
        "loss_trend",
    )  # fmt: skip
    context.observe("TR-RULE-008", brief({key: found.get(key) for key in keys}, 160), answer)


def _judge_progress(context: Context, found: dict[str, Json], answer: Answer) -> None:
    """Rule on the progress, as a share or a percentage, where its two counts show it."""
    local = found.get("diloco")
    done, whole, told = (
        (local if isinstance(local, dict) else {}).get(key)
        for key in ("inner_step_count", "inner_steps_total", "progress")
    )
    if is_int(done) and is_int(whole) and is_number(told) and 0 < done < whole:
        share = done / whole
        held = any(abs(told / unit - share) <= ROUNDED for unit in (1, 100))
        why = f"progress is {told}, after {done} of {whole} steps"
        context.judge("TR-RULE-016", held, why, answer)


def _judge_trend(context: Context, found: dict[str, Json], answer: Answer) -> None:
    rate = found.get("hash_agreement_rate")
    if is_number(rate) and rate < 1:
        said = found.get("is_converging")
        why = f"is_converging is {brief(said)} with a hash_agreement_rate of {rate:g}"
        context.judge("TR-RULE-017", said is not True, why, answer)


def _verify(context: Context, found: dict[str, Json], answer: Answer) -> None:
    if isinstance(found.get("reason"), str):
        context.judge("TR-RULE-010", bool(found["reason"].strip()), "reason is empty", answer)
    metrics = found.get("metrics")
    agreement = metrics.get("hash_agreement") if isinstance(metrics, dict) else None
    if found.get("is_working") is True and isinstance(agreement, str):
        context.judge(
            "TR-RULE-006",
            _PERCENTAGE.match(agreement) is not None,
            f"hash_agreement is {brief(agreement)}",
            answer,
        )


add_shape_check(
    GLOBAL,
    "GEN-015",
    *(f"TR-RULE-{number:03d}" for number in (2, 3, 4, 5, 7, 8, 16, 17)),
    extra=_global,
)
add_shape_check(VERIFY, "TR-RULE-006", "TR-RULE-010", extra=_verify)


@requirement("TR-RULE-001")
def training_agreement(context: Context) -> None:
    """Compare hash_agreement_rate with is_working, sampled A, B, A."""
    before_answer, before = fetch(context, GLOBAL)
    answer, verify = fetch(context, VERIFY)
    after_answer, after = fetch(context, GLOBAL)
    if before is None or verify is None or after is None:
        raise Skipped("one of the two training-verification routes returned no object")
    rates = [before.get("hash_agreement_rate"), after.get("hash_agreement_rate")]
    if not isinstance(verify.get("is_working"), bool):
        raise Skipped("is_working is no bool, which TR-VERIFY-002 reports")
    apart = all(is_number(rate) and rate < 1 for rate in rates)
    # The document rules only on a target that neither converges nor agrees to 100%.
    if apart and before.get("is_converging") is after.get("is_converging") is False:
        context.judge(
            "TR-RULE-001",
            verify.get("is_working") is False,
            f"hash_agreement_rate is {rates[0]}, is_working is {brief(verify.get('is_working'))}",
            before_answer,
            answer,
            after_answer,
        )


@requirement("TR-RULE-014", "TR-RULE-030")
def training_relations(context: Context) -> None:
    """Compare the quick verification with the global one, sampled A, B, A."""
    for _ in range(TRIES):
        before_answer, before = fetch(context, GLOBAL)
        answer, verify = fetch(context, VERIFY)
        _, after = fetch(context, GLOBAL)
        if before is None or verify is None or after is None:
            raise Skipped("one of the two training-verification routes returned no object")
        keys = ("loss_trend", "is_converging", "hash_agreement_rate")
        if any(before.get(key) != after.get(key) for key in keys):
            continue
        wrong: list[str] = []
        metrics = verify.get("metrics")
        trend = metrics.get("loss_trend") if isinstance(metrics, dict) else None
        shown_trend = before.get("loss_trend")
        if isinstance(trend, str) and isinstance(shown_trend, str):
            wrong += (
                []
                if trend == shown_trend
                else [f"loss_trend is {brief(trend)} and {brief(before['loss_trend'])}"]
            )
        agreement = metrics.get("hash_agreement") if isinstance(metrics, dict) else None
        rate = before.get("hash_agreement_rate")
        shown = _share(agreement)
        if shown is not None and is_number(rate) and abs(shown - rate) > 0.01:
            wrong.append(f"hash agreement is {brief(agreement)} and {rate}")
        context.judge("TR-RULE-014", not wrong, "; ".join(wrong), before_answer, answer)
        return


def _share(text: Json) -> float | None:
    """Return the share that a percentage means, or None if it is none."""
    if not isinstance(text, str) or not _PERCENTAGE.match(text):
        return None
    return float(text.strip().rstrip("%").strip().replace(",", ".")) / 100


@requirement("TR-RULE-015")
def training_local(context: Context) -> None:
    """Compare the node_id of the global verification's local part with that of the status."""
    status_answer, status = fetch(context, STATUS)
    answer, found = fetch(context, GLOBAL)
    local = found.get("local") if found else None
    ids = [
        holder.get("node_id") if isinstance(holder, dict) else None for holder in (status, local)
    ]
    if all(isinstance(ident, str) and ident for ident in ids):
        # One of them may be shortened for display.
        one, other = sorted((str(ident).rstrip(".\u2026") for ident in ids), key=len)
        why = f"node_id {brief(ids)}"
        held = bool(one) and other.startswith(one)
        context.judge("TR-RULE-015", held, why, status_answer, answer)
