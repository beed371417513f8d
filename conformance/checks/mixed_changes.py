"""Interface 4.1: several changes of the configuration in one request.

Which keys can be changed is not shown. So only keys count that the node has just changed each by
itself. Invariant: every change is undone; what could not be restored is reported.
"""

import random

from conformance.checks.changes import taken
from conformance.checks.config import changeable, flat, nested, patch, read_config, restore
from conformance.context import Context
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.strictjson import Json, brief, is_number

DRAWS = 4
RATE, SMALL = "training.learning_rate", 0.00003
MEMORY, FINE, ROUNDED = "resources.max_memory_gb", 0.37, 0.005


@requirement("NA-PATCH-121", "NA-PATCH-106", "NA-PATCH-104", "NA-PATCH-004")
def mixed_changes(context: Context) -> None:
    """PATCH keys each by itself, then drawn sets of them at once, and read them with each token."""
    original = read_config(context)
    source = random.Random(context.target.seed)  # noqa: S311
    before = flat(original)
    try:
        alone = {
            path: (values[0], answer)
            for path, values in changeable(original).items()
            if values[0] != before.get(path)
            and taken(answer := patch(context, nested({path: values[0]})))
        }
        restore(context, original)
        if len(alone) < 2:
            raise Skipped("fewer than two keys are changed by themselves")
        _make_odd(context, before)
        _judge_fine(context, before)
        restore(context, original)
        _judge_kept(context, before, [(path, alone[path][0]) for path in sorted(alone)[:2]])
        restore(context, original)
        for _ in range(DRAWS):
            paths = source.sample(sorted(alone), source.randint(2, len(alone)))
            values = {path: source.choice((alone[path][0], before[path])) for path in paths}
            _judge(context, values, [alone[path][1] for path in paths])
    finally:
        restore(context, original)


def _make_odd(context: Context, before: dict[str, Json]) -> None:
    """Change nothing, and a rate to a small one; of every answer it is judged what it holds."""
    patch(context, {})
    if RATE in before and patch(context, nested({RATE: SMALL})).ok:
        read_config(context)


def _judge_fine(context: Context, before: dict[str, Json]) -> None:
    """Rule on an amount of memory with two decimals, which a node may keep in other units."""
    now = before.get(MEMORY)
    if not is_number(now):
        return
    fine = round(float(now) + FINE, 2)
    made = patch(context, nested({MEMORY: fine}))
    result = made.json_object() or {}
    if taken(made) and result.get("restart_required") is False:
        found = flat(read_config(context)).get(MEMORY)
        near = is_number(found) and abs(found - fine) < ROUNDED
        why = f"{MEMORY} was set to {fine}, and is {brief(found)}"
        context.judge("NA-PATCH-104", near, why, made)


def _judge_kept(context: Context, before: dict[str, Json], near: list[tuple[str, Json]]) -> None:
    """Rule on the good key of a refused change, after the next one, which does not name it."""
    (path, value), (other, good) = near
    refused = patch(context, nested({path: value, other: [good]}))
    if taken(refused) or flat(read_config(context)).get(path) != before.get(path):
        # Whether it is refused, and changes nothing at once, is said by other checks.
        return
    made = patch(context, nested({other: good}))
    found = flat(read_config(context)).get(path)
    why = f"{path} = {brief(value)} was refused beside another key, and is {brief(found)} after"
    context.judge("NA-PATCH-106", found != value, f"{why} the next change", refused, made)


def _judge(context: Context, values: dict[str, Json], shown: list[Answer]) -> None:
    """Rule on several keys in one change, each of which was changed by itself."""
    answer = patch(context, nested(values))
    if answer.status >= 500:
        return
    why = f"{brief(nested(values))} is answered with status {answer.status}, each alone is made"
    if not context.judge("NA-PATCH-121", taken(answer), why, *shown, answer):
        return
    if (answer.json_object() or {}).get("restart_required") is False:
        now = flat(read_config(context))
        wrong = {path: now.get(path) for path, value in values.items() if now.get(path) != value}
        why = f"{brief(nested(values))} is made, and then there is {brief(wrong)}"
        context.judge("NA-PATCH-121", not wrong, why, answer)
