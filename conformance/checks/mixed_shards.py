"""Interface 2.3, 4.3 and 7.3: what holds for a pass to one part of a model holds for each part.

A node may hold several parts of a model, and the target declares one of them. The others are found
by the same pass; what their values are is not compared.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from conformance.checks.again import run_again, told_of
from conformance.checks.mixed_ids import turned
from conformance.checks.mixed_passes import output_of
from conformance.checks.passes import is_found, layers_of, pipeline_of, send_forward
from conformance.context import Context
from conformance.editions import FIFTH
from conformance.findings import Skipped
from conformance.registry import requirement
from conformance.strictjson import brief
from conformance.verdict import Finding

# So many numbers are tried.
MOST_NUMBERS = 64
# The first part of a model, whose number is one of these, has no previous node.
FIRST_PARTS, BACK = (0, 1), "peer-backward"
CHANGED = "PL-FWD-025"
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


@requirement("PL-FWD-020", "PL-FWD-021", CHANGED)
def mixed_shards(context: Context) -> None:
    """Run the checks of the declared pass once more, with other parts that the node serves."""
    if context.edition < FIFTH:
        # What it finds is scored by other requirements, too.
        raise Skipped("later editions ask for it")
    if is_found(context):
        raise Skipped("what a pass has to be is not declared")
    others = others_served(context)
    _judge_held(context, others)
    with suppress(Skipped):
        _judge_changed(context, others)
    if not others:
        raise Skipped("the node serves one part of the model")
    # The first of them, and the last.
    for number in dict.fromkeys((others[0], others[-1])):
        wrong = told_of(_run_at(context, number, AGAIN))
        context.judge("PL-FWD-020", not wrong, wrong)
    # And one between, from which gradients go back to another.
    for number in [one for one in others[1:-1] if one not in FIRST_PARTS][:1]:
        wrong = told_of(_run_at(context, number, (BACK,)))
        context.judge("PL-FWD-020", not wrong, wrong)


def _judge_changed(context: Context, others: list[int]) -> None:
    """Rule on the hidden states that each part makes of two tensors: not the same ones."""
    tensors = turned(context)
    for number in (int(pipeline_of(context)["shard"]), *others):
        replies = [send_forward(context, target_shard=number, hidden_states=one) for one in tensors]
        outputs = [output_of(reply) for reply in replies]
        if all(outputs):
            why = f"target_shard {number} answers with the hidden states that came in"
            context.judge(CHANGED, outputs != tensors, why, *replies)


def _judge_held(context: Context, others: list[int]) -> None:
    """Rule on a layer that the node lists as its own, and that no pass finds.

    The numbers may be those of parts. They are those of layers where most of the layers are found,
    and one of them has a number that so few parts would not have.
    """
    held, own = set(layers_of(context).held), int(pipeline_of(context)["shard"])
    found, missing = held & {own, *others}, sorted(held - {own, *others})
    if len(found) > len(missing) and max(found) > len(held):
        replies = [send_forward(context, target_shard=layer) for layer in missing]
        gone = [one for one in replies if one.code == "NOT_FOUND"]
        why = f"the layers {sorted(held)} are listed as its own, and no pass finds {brief(missing)}"
        context.judge("PL-FWD-021", not gone, why, *gone)


def _run_at(context: Context, number: int, names: Iterable[str]) -> list[Finding]:
    """Run the checks with another part."""
    # Whether it is the last one is not declared, so neither is the loss of its passes, nor how many
    # entries its cache has, but that there is one.
    declared = context.target.pipeline
    pipeline = {**declared, "shard": number, "last": None}
    if "past_entries" in declared:
        pipeline["past_entries"] = bool(declared["past_entries"])
    target, wrong = replace(context.target, pipeline=pipeline), list[Finding]()
    for name in names:
        if name != BACK or number not in FIRST_PARTS:
            wrong += run_again(context, name, f"at target_shard {number}", target)
    return wrong
