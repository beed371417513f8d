"""Interface 4.1: changes of the configuration that are partial, mixed, or shown elsewhere.

Invariant: every change is undone; what could not be restored is reported.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from conformance.checks.auth import INVENTED, OPEN_READS
from conformance.checks.config import (
    changeable,
    flat,
    nested,
    patch,
    read_config,
    restore,
)
from conformance.checks.money import eventually
from conformance.checks.node_reads import AUTH_READS, STATUS
from conformance.checks.reading import fetch, resource_ids
from conformance.context import Context
from conformance.editions import FIFTH, FOURTH, SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import Pauses, requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_int

BATCH, ENABLED = "training.batch_size", "training.enabled"
TRAINS_NOT = "TR-SAME-005"
# The first edition that looks whether it has changed.
SHOWN_SINCE = 4
TRIES = 4
SECTIONS = ("training", "resources")
# As long as a node might take to come back to what it had.
A_WHILE_S, LONGER_S = 4.5, 7.0
# No reader can take it for the type of the key.
BAD = ("resources.cpu_threads", "many")


def taken(answer: Answer) -> bool:
    """Return whether a change of the configuration is made."""
    return answer.ok and (answer.json_object() or {}).get("success") is True


def _refused(answer: Answer) -> bool:
    inside = (answer.json_object() or {}).get("success") is False
    return 400 <= answer.status < 500 or (answer.ok and inside)


def _moved(before: Mapping[str, Json], after: Mapping[str, Json]) -> dict[str, Json]:
    return {key: after.get(key) for key in before if after.get(key) != before[key]}


@requirement("NA-PATCH-114", "NA-PATCH-119")
def config_partial(context: Context) -> None:
    """PATCH single keys with the values that they have, then keys of their kind with theirs."""
    current = flat(read_config(context))
    values = {key: v for key, v in current.items() if key.split(".")[0] in SECTIONS}
    near = [key for key in values if key in changeable(read_config(context))]
    if not near or len(values) < 2:
        raise Skipped("the configuration has none of the keys that the suite would change")
    for one in near if context.edition >= SHOWN_SINCE else near[:1]:
        _judge_single(context, values, one, [key for key in near if key != one])


def _judge_single(
    context: Context, values: Mapping[str, Json], one: str, others: list[str]
) -> None:
    """Rule on a change of one key; one that is refused may be taken together with others."""
    single = patch(context, nested({one: values[one]}))
    if taken(single):
        context.holds("NA-PATCH-114", single)
        context.holds("NA-PATCH-119", single)
        return
    dotted = patch(context, {one: values[one]})
    if taken(dotted) and _refused(single):
        why = f"{one} is taken as a dotted key, and refused with status {single.status} as nested"
        context.fails("NA-PATCH-119", why, single, dotted)
    if not _refused(single):
        return
    pairs = [{one: values[one], key: values[key]} for key in others]
    for together in (dict(values), *(pairs if context.edition >= SHOWN_SINCE else ())):
        whole = patch(context, nested(together))
        if taken(whole):
            with_others = f"with {len(together) - 1} others: {whole.status}"
            why = f"{one} alone: status {single.status}; {with_others}"
            context.fails("NA-PATCH-114", why, single, whole)
            return


@requirement("NA-PATCH-115", "NA-PATCH-109")
def config_mixed(context: Context) -> None:
    """PATCH a good value together with a bad one, before it and behind it."""
    original = read_config(context)
    near = [
        (path, values[0])
        for path, values in changeable(original).items()
        if path.startswith("training.") and flat(original).get(path) != values[0]
    ]
    if not near:
        raise Skipped("the configuration has none of the keys that the suite would change")
    try:
        pairs = [(near[0], BAD), (BAD, near[0])]
        if context.edition >= FOURTH and len(near) > 1:
            # A reader may sort the keys, and take part after part.
            bad = [(path, BAD[1]) for path, _ in (near[0], near[-1])]
            pairs += [(near[0], bad[1]), (near[-1], bad[0])]
        for pair in pairs:
            before = flat(read_config(context))
            answer = patch(context, nested(dict(pair)))
            wrong = next(path for path, value in pair if value == BAD[1])
            if context.edition >= SHOWN_SINCE and taken(answer):
                # It may take a part of a change, if it says which one.
                updated = (answer.json_object() or {}).get("updated")
                told = isinstance(updated, list) and wrong not in updated
                why = f"{brief(nested(dict(pair)))} was taken, with updated {brief(updated)}"
                context.judge("NA-PATCH-109", told, why, answer)
            if not _refused(answer):
                continue
            moved = _moved(before, flat(read_config(context)))
            why = f"{brief(nested(dict(pair)))} was refused, and changed {brief(moved)}"
            context.judge("NA-PATCH-115", not moved, why, answer)
    finally:
        restore(context, original)


@requirement(
    "NA-PATCH-101",
    "NA-PATCH-104",
    "NA-PATCH-116",
    "NA-PATCH-122",
    TRAINS_NOT,
    *resource_ids("status"),
    *resource_ids("training-global"),
)
def config_enabled(context: Context) -> None:
    """PATCH training.enabled to its opposite, compare the status, and turn it back."""
    found = lookup(read_config(context), ENABLED)
    if not found or not isinstance(found[0], bool):
        raise Skipped("the configuration has no training.enabled")
    changed = patch(context, nested({ENABLED: not found[0]}))
    try:
        if context.edition >= FOURTH and (taken(changed) or _refused(changed)):
            same = patch(context, nested({ENABLED: found[0]}))
            why = f"{not found[0]}: status {changed.status}; {found[0]}: status {same.status}"
            why = f"{ENABLED} is changed to {why}"
            # A node may have nothing to train on. It can end what it has begun.
            was = lookup(context.service.configured or {}, ENABLED)
            # Or it was on when the run began, and has been switched off since.
            off = context.edition >= FIFTH and was == [True] and not found[0] and taken(same)
            if taken(changed) or (found[0] and taken(same)) or off:
                both = not _refused(changed) and not _refused(same)
                context.judge("NA-PATCH-122", both, why, changed, same)
            if taken(changed) and taken(same):
                changed = patch(context, nested({ENABLED: not found[0]}))
        result = changed.json_object() or {}
        if not taken(changed) or result.get("restart_required") is not False:
            raise Skipped(f"training.enabled is not changed at once, status {changed.status}")
        updated = result.get("updated")
        if context.edition >= SIXTH and isinstance(updated, list):
            # What is not listed may not have been changed.
            listed = ENABLED in updated
            made = listed or lookup(read_config(context), ENABLED) == [not found[0]]
            why = f"{ENABLED} is changed to {not found[0]}, and updated is {brief(updated)}"
            if made:
                context.judge("NA-PATCH-101", listed, why, changed)
        if context.edition >= SHOWN_SINCE and updated == [ENABLED]:
            shown = lookup(read_config(context), ENABLED)
            why = f"{ENABLED} was changed to {not found[0]}, and is {brief(shown)}"
            context.judge("NA-PATCH-104", shown != found, why, changed)
        _compare(context, changed)
        if context.edition >= SHOWN_SINCE:
            _judge_beside(context, current=not found[0])
            # Whatever an answer holds is judged, whichever check asked for it.
            for path in ("/training/global", "/training/verify"):
                context.api("GET", path, prefix="/api")
            for path in ("/metrics", "/network", "/health"):
                context.api("GET", path)
        if context.edition >= SEVENTH and found[0]:
            _judge_ended(context, changed)
    finally:
        patch(context, nested({ENABLED: found[0]}))
        if lookup(read_config(context), ENABLED) != found:
            context.residue.append(f"configuration: {ENABLED} is not {found[0]} again")


def _judge_ended(context: Context, changed: Answer) -> None:
    """Rule on whether a node trains whose training was switched off."""
    seen: list[tuple[Answer, list[Json]]] = []

    def has_ended() -> bool:
        answer = context.api("GET", "/training/global", prefix="/api")
        seen.append((answer, lookup(answer.json_object() or {}, "local.is_training")))
        return seen[-1][1] != [True]

    held, (answer, trains) = eventually(has_ended, LONGER_S), seen[-1]
    if trains:
        why = f"{ENABLED} is false, and local.is_training {brief(trains[0])}"
        context.judge(TRAINS_NOT, held, why, changed, answer)


def _judge_beside(context: Context, *, current: bool) -> None:
    """Rule on a change of the same key beside another one, which keeps its value."""
    size = lookup(read_config(context), BATCH)
    if size:
        for value in (not current, current):
            changed = patch(context, nested({ENABLED: value, BATCH: size[0]}))
            if taken(changed):
                _compare(context, changed)


def _is_made_at_once(context: Context, path: str, value: Json) -> bool:
    answer = patch(context, nested({path: value}))
    made = (answer.json_object() or {}).get("restart_required") is False
    return taken(answer) and made


@requirement("NA-PATCH-118")
def config_at_once(context: Context) -> None:
    """PATCH several keys at the same moment, each in a request of its own; all are changed."""
    original = read_config(context)
    try:
        near = {
            path: values[0]
            for path, values in changeable(original).items()
            if flat(original).get(path) != values[0] and _is_made_at_once(context, path, values[0])
        }
        if len(near) < 2:
            raise Skipped("fewer than two keys are changed at once")
        bodies = [nested({path: value}) for path, value in near.items()]
        lost: list[tuple[list[str], list[Answer]]] = []
        for _ in range(TRIES):
            restore(context, original)
            many, gate = len(bodies), context.http.gate
            with gate.holding(many), ThreadPoolExecutor(many) as pool:
                answers = list(pool.map(partial(patch, context), bodies))
            results = [answer.json_object() or {} for answer in answers]
            if not all(map(taken, answers)) or any(one.get("restart_required") for one in results):
                raise Skipped("not each of these changes is made at once")
            now = flat(read_config(context))
            lost.append(([path for path, value in near.items() if now.get(path) != value], answers))
        wrong = [(paths, answers) for paths, answers in lost if paths]
        # Somebody else may change a key meanwhile, but not each time.
        if len(wrong) > 1:
            paths, answers = wrong[-1]
            why = f"of {len(bodies)} changes at a time {paths} are not there, {len(wrong)} times"
            context.fails("NA-PATCH-118", why, *answers)
        elif not wrong:
            context.holds("NA-PATCH-118", *lost[-1][1])
    finally:
        restore(context, original)


@requirement("NA-AUTH-024")
def config_unauthorised(context: Context) -> None:
    """PATCH training.batch_size to another value with an invented token, and read it again."""
    found = lookup(read_config(context), BATCH)
    if not found or not is_int(found[0]):
        raise Skipped(f"the configuration has no {BATCH}")
    other = int(found[0]) + 1
    try:
        body = nested({BATCH: other})
        answer = context.api("PATCH", "/config", credential=INVENTED, json_body=body)
        after = lookup(read_config(context), BATCH)
        # Somebody else may change it meanwhile, but hardly to this value.
        why = f"{BATCH} was {found[0]}, is {brief(after)} after a PATCH with {answer.status}"
        if not answer.ok:
            context.judge("NA-AUTH-024", after != [other], why, answer)
    finally:
        if lookup(read_config(context), BATCH) == [other]:
            patch(context, nested({BATCH: found[0]}))


@requirement("NA-PATCH-117")
def config_kept(context: Context) -> Pauses:
    """PATCH training.batch_size to another value, and read it again after a while."""
    found = lookup(read_config(context), BATCH)
    if not found or not is_int(found[0]):
        raise Skipped(f"the configuration has no {BATCH}")
    other = int(found[0]) + 1
    try:
        answer = patch(context, nested({BATCH: other}))
        if not taken(answer) or lookup(read_config(context), BATCH) != [other]:
            raise Skipped(f"a change of {BATCH} is not in force at once")
        for resource in (*OPEN_READS, *AUTH_READS) if context.edition >= SEVENTH else ():
            fetch(context, resource)
            shown = lookup(read_config(context), BATCH)
            why = f"{BATCH} was {found[0]}, then {other}, and is {brief(shown)} again"
            why = f"{why} behind GET {resource.path}"
            context.judge("NA-PATCH-117", shown != found, why, answer)
        a_while_s = A_WHILE_S if context.edition < FIFTH else LONGER_S
        yield a_while_s
        after = lookup(read_config(context), BATCH)
        # Somebody else may change it meanwhile, but hardly to the value that it had.
        why = f"{BATCH} was {found[0]}, then {other}, and is {brief(after)} after {a_while_s:g} s"
        context.judge("NA-PATCH-117", after != found, why, answer)
    finally:
        patch(context, nested({BATCH: found[0]}))
        if lookup(read_config(context), BATCH) != found:
            context.residue.append(f"configuration: {BATCH} is not {found[0]} again")


def _compare(context: Context, changed: Answer) -> None:
    shown = lookup(read_config(context), ENABLED)
    answer, status = fetch(context, STATUS)
    again = lookup(read_config(context), ENABLED)
    here = lookup(status, ENABLED)
    if status is not None and here and isinstance(here[0], bool) and shown == again:
        why = f"training.enabled is {shown} in the configuration, and {here} in the status"
        context.judge("NA-PATCH-116", here == shown, why, changed, answer)
