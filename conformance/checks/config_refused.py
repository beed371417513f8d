"""Interface 4.1, PATCH /config: values of the wrong type, and bodies that are no change at all.

Invariant: every change is undone; what could not be restored is reported.
"""

from conformance.checks.config import (
    CHANGEABLE,
    changeable,
    flat,
    nested,
    patch,
    read_config,
    restore,
)
from conformance.checks.node_reads import CONFIG
from conformance.checks.reading import ABSENT, fetch
from conformance.context import API, Context
from conformance.editions import SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.strictjson import Json, brief, is_number

WRONG = (
    ("training.batch_size", "many"),
    ("training.batch_size", True),
    ("training.learning_rate", "fast"),
    ("training.enabled", "yes"),
    ("resources.cpu_threads", [1]),
)
# What some reader may take for a number, a switch, or nothing at all; since this edition.
LENIENT_SINCE = 4
LENIENT: tuple[tuple[str, Json], ...] = (
    ("training.batch_size", "3"),
    ("training.learning_rate", "0.002"),
    ("training.enabled", "true"),
    ("training.enabled", 1),
    ("training.batch_size", 2.5),
    ("training.batch_size", None),
)


SECTIONS = (b"training", b"resources")
NO_SECTIONS = (b"[1]", b'"many"')
# No reader can take these for their types.
IMPOSSIBLE = {"many", "fast"}
# No object, and no JSON.
UNKNOWN_KEYS = (b'{"no_such_key": null}', b'{"training": {"no_such_key": 1}}')
NO_CHANGES = (b"[1]", b'"many"', b'{"training": {"batch_size": 3}')
WHOLE = ("training.batch_size", "training.diloco_steps", "resources.cpu_threads")
NEGATIVE, NO_CHANGE, FAILS = "NA-PATCH-130", "NA-PATCH-131", "NA-PATCH-132"
SHOWN = "NA-PATCH-104"
TWICE = 2


def _wrong(original: dict[str, Json]) -> tuple[tuple[str, Json], ...]:
    """Return values of other types for each number: words, texts, switches and fractions."""
    found: list[tuple[str, Json]] = []
    for path in CHANGEABLE:
        value = flat(original).get(path)
        if is_number(value):
            found += [(path, "many"), (path, str(value)), (path, True)]
        if path in WHOLE and is_number(value):
            found.append((path, value + 0.5))
    return tuple(one for one in found if one not in (*WRONG, *LENIENT))


@requirement("NA-PATCH-105", "NA-PATCH-106", "NA-PATCH-109", NEGATIVE, NO_CHANGE, FAILS, SHOWN)
def config_patch_refused(context: Context) -> None:
    """PATCH values of the wrong type, which must leave the configuration unchanged."""
    original = read_config(context)
    tried: tuple[tuple[str, Json], ...] = WRONG
    try:
        if context.edition >= LENIENT_SINCE:
            tried += LENIENT
            # So that a key which goes back to where it began is seen.
            near = {path: values[0] for path, values in changeable(original).items()}
            patch(context, nested(near))
        if context.edition >= SIXTH:
            tried += _wrong(original)
        after: dict[str, Json] | None = None
        for path, value in tried:
            # What was read behind the one before is what there is now.
            before = flat(after or read_config(context))
            if path not in before:
                continue
            answer = patch(context, nested({path: value}))
            if answer.status in ABSENT or answer.status == 401:
                raise Skipped(f"PATCH /config was answered with status {answer.status}")
            result = answer.json_object() or {}
            refused = 400 <= answer.status < 500 or result.get("success") is False
            why = f"{path} = {brief(value)} was answered with {answer.status} {brief(result)}"
            impossible = isinstance(value, list) or value in IMPOSSIBLE
            after_answer, after = fetch(context, CONFIG)
            # To a reader null may mean the default.
            moved = value is None and flat(after or {}).get(path) != before[path]
            ident = "NA-PATCH-109" if impossible else "NA-PATCH-105"
            context.judge(ident, refused or moved, why, answer)
            if refused and after is not None:
                now = flat(after)
                other = {key: now.get(key) for key in before if now.get(key) != before[key]}
                context.judge(
                    "NA-PATCH-106", not other, f"changed: {brief(other)}", answer, after_answer
                )
        if context.edition >= LENIENT_SINCE:
            _judge_sections(context, original)
        if context.edition >= SIXTH:
            _judge_negative(context)
            _judge_bodies(context)
        if context.edition >= SEVENTH:
            for path, values in changeable(original).items():
                _judge_zero(context, path, values)
    finally:
        restore(context, original)


def _judge_sections(context: Context, original: dict[str, Json]) -> None:
    """PATCH what is no section, and a number beyond all others, which no JSON can show again."""
    named = flat(original)
    bodies = [b'{"%s": %s}' % (section, value) for section in SECTIONS for value in NO_SECTIONS]
    if "training.learning_rate" in named:
        bodies.append(b'{"training": {"learning_rate": 1e999}}')
    for body in bodies:
        section = body.split(b'"')[1].decode()
        if not any(path.startswith(f"{section}.") for path in named):
            continue
        answer = context.api("PATCH", "/config", credential=context.target.valid, content=body)
        if answer.status in (*ABSENT, 401):
            return
        result = answer.json_object() or {}
        refused = 400 <= answer.status < 500 or result.get("success") is False
        after_answer, after = fetch(context, CONFIG)
        shown = flat(after or {})
        # Who takes it for the largest number there is, or for none, still shows a number.
        taken = body.endswith(b"1e999}}") and is_number(shown.get("training.learning_rate"))
        why = f"{body.decode()} was answered with {answer.status} {brief(result)}"
        context.judge("NA-PATCH-109", refused or taken, why, answer, after_answer)


def _judge_negative(context: Context) -> None:
    """Rule on numbers below zero, each of which is taken back at once."""
    for path in CHANGEABLE:
        value = flat(read_config(context)).get(path)
        if not is_number(value) or value <= 0:
            continue
        answer = patch(context, nested({path: -value}))
        if answer.status in (*ABSENT, 401) or answer.status >= 500:
            continue
        # What an answer holds is not judged here: the document has no range for what is set.
        shown = context.http.call("GET", f"{API}/config", credential=context.target.valid)
        now = flat(shown.json_object() or {}).get(path)
        taken = is_number(now) and now < 0
        context.judge(NEGATIVE, not taken, f"{path} was set to {now}", answer, shown)
        if now != value:
            patch(context, nested({path: value}))


def _judge_zero(context: Context, path: str, values: list[Json]) -> None:
    """Set a number to 0, and rule on whether it is shown where the change is said to be made.

    A node may have the least number that it takes instead, which does not depend on the one before.
    """
    kept = list[tuple[Answer, Answer]]()
    for value in values[:TWICE]:
        patch(context, nested({path: value}))
        changed = patch(context, nested({path: 0}))
        result = changed.json_object() or {}
        named = result.get("updated")
        made = isinstance(named, list) and path in named and result.get("success") is True
        if not (changed.ok and made and result.get("restart_required") is False):
            return
        shown = context.http.call("GET", f"{API}/config", credential=context.target.valid)
        now = flat(shown.json_object() or {}).get(path)
        if now != value:
            if now == 0:
                context.holds(SHOWN, changed, shown)
            return
        kept.append((changed, shown))
    if len(kept) == TWICE:
        why = f"{path} was set to 0, which is said to be updated, and is {brief(now)} each time"
        context.fails(SHOWN, why, *kept[0], *kept[1])


def _judge_bodies(context: Context) -> None:
    """PATCH what is no object, or no JSON, and keys that nobody knows, which a node may take."""
    control = patch(context, {})
    for body in (*NO_CHANGES, *UNKNOWN_KEYS):
        answer = _send(context, body)
        if answer.status in (*ABSENT, 401, 403):
            return
        why = f"{body.decode()} was answered with status {answer.status}"
        failed = answer.status >= 500 and _send(context, body).status >= 500
        context.judge(FAILS, not failed, why, control, answer)
        if answer.status < 500 and body in NO_CHANGES:
            refused = not answer.ok or (answer.json_object() or {}).get("success") is False
            context.judge(NO_CHANGE, refused, why, control, answer)


def _send(context: Context, body: bytes) -> Answer:
    return context.api("PATCH", CONFIG.path, credential=context.target.valid, content=body)
