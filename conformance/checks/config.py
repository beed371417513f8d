"""Interface 4.1, PATCH /config: a partial change, its answer, and the keys that it must not change.

Invariant: every change is undone and the result is checked; what could not be restored is reported.
The document does not say which keys can be changed, so a refusal is never a violation.
"""

from typing import Any

from hypothesis import strategies

from conformance.catalogue import fields_of
from conformance.checks.node_reads import CONFIG
from conformance.checks.reading import (
    ABSENT,
    fetch,
    judge_server_error,
    judge_token_refused,
    served,
)
from conformance.context import Context
from conformance.exploration import explore
from conformance.findings import Skipped
from conformance.httpwire import Answer, Unanswered
from conformance.registry import requirement
from conformance.shapes import judge_shape, lookup
from conformance.strategies import subsets
from conformance.strictjson import Json, brief, is_number

# Keys that can be changed a little without harm, unlike identity, ports and tracker.
CHANGEABLE = (
    "training.batch_size",
    "training.learning_rate",
    "training.diloco_steps",
    "resources.max_memory_gb",
    "resources.cpu_threads",
)


def nested(changes: dict[str, Json]) -> dict[str, Json]:
    """Turn dotted paths into the nested object that is sent."""
    body: dict[str, Any] = {}
    for path, value in changes.items():
        *steps, last = path.split(".")
        inner = body
        for step in steps:
            inner = inner.setdefault(step, {})
        inner[last] = value
    return body


def flat(document: Json, prefix: str = "") -> dict[str, Json]:
    """Turn a nested object into dotted paths; arrays and empty objects are values."""
    found: dict[str, Json] = {}
    for key, value in document.items():
        if isinstance(value, dict) and value:
            found.update(flat(value, f"{prefix}{key}."))
        else:
            found[f"{prefix}{key}"] = value
    return found


def read_config(context: Context) -> dict[str, Json]:
    """GET /config; raise `Skipped` if there is no configuration in the answer."""
    answer, document = fetch(context, CONFIG)
    if document is None:
        raise Skipped(f"GET /config returned no configuration, status {answer.status}")
    if context.service.configured is None:
        context.service.configured = document
    return document


def patch(context: Context, body: Json) -> Answer:
    """PATCH /config with the declared token."""
    credential = context.target.valid
    return served(lambda: context.api("PATCH", "/config", credential=credential, json_body=body))


def neighbours(path: str, value: Json) -> list[Json]:
    """Return values near the current one, all of them sensible for the key."""
    if path == "training.learning_rate":
        # With no more digits than any form of a double keeps.
        near = (float(f"{part * value:.12g}") for part in (0.5, 0.75))
        return list(near) if value else [0.001]
    if path == "resources.max_memory_gb":
        return [value + 1, value + 0.5]
    if path == "resources.cpu_threads":
        # Never more threads than now: the node may rightly refuse more.
        return [max(1, value - 1)] if value > 1 else [value]
    return [value + 1, max(1, value - 1)]


def changeable(config: dict[str, Json]) -> dict[str, list[Json]]:
    """Return the values to try for each key that the suite may change."""
    return {
        path: neighbours(path, found[0])
        for path in CHANGEABLE
        if (found := lookup(config, path)) and is_number(found[0])
    }


def _changes(config: dict[str, Json]) -> strategies.SearchStrategy[dict[str, Json]]:
    values = changeable(config)
    if not values:
        raise Skipped("the configuration has none of the keys that the suite would change")
    options = {path: strategies.sampled_from(near) for path, near in values.items()}
    return subsets(options, min_size=1)


_PATCH_IDS = ("NA-PATCH-101", "NA-PATCH-102", "NA-PATCH-103", "NA-PATCH-104", "NA-PATCH-107",
              "NA-PATCH-110", "NA-PATCH-133")  # fmt: skip


@requirement("NA-ROUTE-014", *fields_of("patch"), *_PATCH_IDS)
def config_patch(context: Context) -> None:
    """PATCH generated sets of harmless keys, GET /config after each, and restore all keys."""
    original = read_config(context)
    try:
        explore(
            context,
            _changes(original),
            lambda changes: _try_change(context, changes),
            examples=min(context.target.examples, 10),
        )
    finally:
        restore(context, original)


def _try_change(context: Context, changes: dict[str, Json]) -> None:
    before = flat(read_config(context))
    answer = patch(context, nested(changes))
    if answer.status in ABSENT:
        context.fails("NA-ROUTE-014", f"the route does not exist: status {answer.status}", answer)
        raise Skipped(f"PATCH /config was answered with status {answer.status}")
    if answer.status == 401 or answer.status >= 500:
        if answer.status == 401:
            judge_token_refused(context, "NA-ROUTE-014", answer)
        else:
            judge_server_error(context, "NA-ROUTE-014", answer)
        raise Skipped(f"PATCH /config was answered with status {answer.status}")
    result = answer.json_object()
    if answer.ok and result is None:
        context.wrong("NA-ROUTE-014", "the answer is not a JSON object", answer)
        return
    if 300 <= answer.status < 400:
        context.wrong("NA-ROUTE-014", f"a redirect, status {answer.status}", answer)
        return
    if not answer.ok or result is None:
        context.observe("NA-PATCH-107", f"{sorted(changes)}: status {answer.status}", answer)
        return
    context.holds("NA-ROUTE-014", answer)
    judge_shape(context, "patch", result, answer)
    context.observe(
        "NA-PATCH-107",
        f"{sorted(changes)}: restart_required {brief(result.get('restart_required'))}",
        answer,
    )
    after_answer, after_document = fetch(context, CONFIG)
    after = flat(after_document or {})
    if result.get("success") is False and after:
        done = {path: value for path, value in changes.items() if before.get(path) != value}
        changed = [path for path, value in done.items() if after.get(path) == value]
        why = f"success is false, but changed: {changed}"
        context.judge("NA-PATCH-110", not changed, why, answer, after_answer)
    if result.get("success") is not True or not after:
        return
    context.holds("NA-PATCH-110", answer, after_answer)
    _judge_updated(context, before, changes, result, answer)
    moved = {
        path: after.get(path)
        for path in before
        if path not in changes and after.get(path) != before[path]
    }
    context.judge(
        "NA-PATCH-103", not moved, f"not sent, but changed: {brief(moved)}", answer, after_answer
    )
    if result.get("restart_required") is False:
        wrong = {
            path: after.get(path) for path, value in changes.items() if after.get(path) != value
        }
        context.judge(
            "NA-PATCH-104",
            not wrong,
            f"sent {brief(changes)}, afterwards {brief(wrong)}",
            answer,
            after_answer,
        )


def _judge_updated(
    context: Context,
    before: dict[str, Json],
    changes: dict[str, Json],
    result: dict[str, Json],
    answer: Answer,
) -> None:
    updated = result.get("updated")
    if not isinstance(updated, list) or not all(isinstance(path, str) for path in updated):
        return
    changed = {path for path, value in changes.items() if before.get(path) != value}
    missing = sorted(changed - set(updated))
    if changed:
        context.judge(
            "NA-PATCH-101", not missing, f"updated is {brief(updated)}, lacks {missing}", answer
        )
    surplus = sorted(set(updated) - set(changes))
    context.judge("NA-PATCH-102", not surplus, f"updated names {surplus}", answer)


def restore(context: Context, original: dict[str, Json]) -> None:
    """Restore the changed keys, and report those that could not be restored."""
    wanted = flat(original)
    left: dict[str, Json] = {}
    try:
        # The second round checks whether the first one worked.
        for _ in range(2):
            current = flat(read_config(context))
            left = {
                path: current.get(path)
                for path in CHANGEABLE
                if path in wanted and current.get(path) != wanted[path]
            }
            if not left:
                return
            patch(context, nested({path: wanted[path] for path in left}))
        current = flat(read_config(context))
        left = {path: current.get(path) for path in left if current.get(path) != wanted[path]}
    except (Skipped, Unanswered) as reason:
        context.residue.append(f"configuration: unknown, since {reason}")
        return
    if left:
        before = {path: wanted[path] for path in left}
        context.residue.append(f"configuration: {brief(left)} instead of {brief(before)}")
