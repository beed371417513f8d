"""Interface 2.3, 4.3 and 7.3: what holds for a pass to one part of a model holds for each part.

A node may hold several parts of a model, and the target declares one of them. The others are found
by the same pass; what their values are is not compared.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Any

from conformance.catalogue import Level, load
from conformance.checks.passes import is_found, pipeline_of, send_forward
from conformance.context import Context
from conformance.findings import Skipped
from conformance.httpwire import Unanswered
from conformance.registry import registered, requirement
from conformance.verdict import Ruling

# So many numbers are tried.
MOST_NUMBERS = 64
# The first part of a model, whose number is one of these, has no previous node.
FIRST_PARTS, BACK = (0, 1), "peer-backward"
# What the checks of these names say holds for each part. They name no number of their own.
AGAIN = (
    "pipeline-pass", "pipeline-ahead", "pipeline-back", "pipeline-batch", "pipeline-byte-order",
    "pipeline-cache", "forward-ids", "passes-crossed", "back-after-refusal", "back-unknown",
    "back-sessions", "back-in-session", BACK,
)  # fmt: skip


def others_served(context: Context) -> list[int]:
    """Return the numbers of other parts that answer to the pass."""
    own = int(pipeline_of(context)["shard"])
    found: list[int] = []
    for number in range(MOST_NUMBERS):
        if number == own:
            continue
        answer: Any = send_forward(context, target_shard=number).message
        if answer is not None and answer.success:
            found.append(number)
    return found


@requirement("PL-FWD-020")
def mixed_shards(context: Context) -> None:
    """Run the checks of the declared pass once more, with other parts that the node serves."""
    if is_found(context):
        raise Skipped("what a pass has to be is not declared")
    others = others_served(context)
    if not others:
        raise Skipped("the node serves one part of the model")
    # The first of them, and the last.
    wrong: list[str] = []
    for number in dict.fromkeys((others[0], others[-1])):
        wrong += _judge_part(context, number)
    context.judge("PL-FWD-020", not wrong, "; ".join(wrong))


def _judge_part(context: Context, number: int) -> list[str]:
    """Run the checks with another part; keep what they find wrong, and return its messages."""
    # Whether it is the last one is not declared, so neither is the loss of its passes.
    pipeline = {**context.target.pipeline, "shard": number, "last": None}
    target = replace(context.target, pipeline=pipeline)
    wrong: list[str] = []
    for name in AGAIN:
        check = registered()[name]
        if not check.needs <= context.target.has | {"callback"}:
            continue
        if name == BACK and number in FIRST_PARTS:
            continue
        beside = context.beside(name, check.proves)
        beside.target = target
        with suppress(Skipped, Unanswered):
            check.run(beside)
        fails = [
            replace(finding, message=f"{finding.message}, at target_shard {number}")
            for finding in beside.findings
            if finding.ruling is Ruling.FAILS
        ]
        context.findings += fails
        must = [finding for finding in fails if load()[finding.requirement].level is Level.MUST]
        wrong += [f"{finding.requirement}: {finding.message}" for finding in must]
    return wrong
