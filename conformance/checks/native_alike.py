"""Interface 2.2, 3 and 7.2: native resources beside one another, where their places are declared.

The chain goes on meanwhile, so what comes first in it is read first, and what may have been
replaced in between is read on both sides.
"""

import re
from collections.abc import Iterator

from conformance.checks.native import document_at, mapped, native_get
from conformance.checks.native_documents import ATOMS, entries_of, numbers_of, objects
from conformance.checks.native_identity import NOT_READY
from conformance.checks.native_named import texts_in
from conformance.context import Context
from conformance.editions import SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_int

AMOUNTS, READY, UNREADY = "NT-RULE-129", "NT-RULE-131", "NT-RULE-002"
INDEX, NEWEST, OWN_ID, SPELT = "NT-RULE-132", "NT-RULE-133", "NT-RULE-134", "NT-RULE-135"
ONCE, FILE, EARLIER, HEIGHT = "NT-RULE-136", "NT-RULE-137", "NT-RULE-138", "NT-RULE-139"
# What is an amount or a number of something, wherever the target says that it is.
FIGURES = (
    "/api/network money", "/api/network round", "/api/account money", "/api/validators money",
    "/api/validators power", "/api/inference money", "/api/inference queue",
    "/api/model parameters", "/work/status attempts",
)  # fmt: skip
STATES = ("pending", "completed", "expired")
# No index of blocks, and no second process of a node, is so many blocks behind.
BEHIND = 3
_ARTIFACT = re.compile(r"/artifacts/sha256/([0-9a-f]{64})\Z", re.ASCII)
# What identifies a validator: its keys and its addresses.
_KEY = re.compile(r"[0-9a-fA-F]{40,}\Z", re.ASCII)
_STATE = re.compile(r"(status|state)\Z", re.IGNORECASE)
_TIP = re.compile(r"height|tip|newest|(latest|current)_height", re.IGNORECASE)
_CHAIN = re.compile(r"(reference_)?chain(_?id)?\Z", re.ASCII | re.IGNORECASE)
_ROOT = re.compile(r"root", re.IGNORECASE)


def _needs_sixth(context: Context) -> None:
    if context.edition < SIXTH:
        raise Skipped("later editions ask for it")


def _whole(values: list[Json]) -> list[int]:
    """Return the whole numbers, of which some may be texts."""
    texts = [str(value) for value in values if isinstance(value, str) or is_int(value)]
    return [int(text.partition(".")[0]) for text in texts if ATOMS.match(text.partition(".")[0])]


@requirement(AMOUNTS)
def native_amounts(context: Context) -> None:
    """GET the resources with amounts and numbers."""
    _needs_sixth(context)
    for name in FIGURES:
        path = name.split(" ")[0]
        if name not in context.target.field_map:
            continue
        query: dict[str, object] = {}
        if path == "/api/account":
            query = {"public_key": context.target.public_key or ""}
        answer, document = document_at(context, path, query)
        values = mapped(context, name, document)
        wrong = [
            value
            for value in values
            if (isinstance(value, str) and re.match(r"-|0\d", value) and ATOMS.match(value))
            or (is_int(value) and int(str(value)) < 0)
        ]
        if values:
            context.judge(AMOUNTS, not wrong, f"{name}: {brief(wrong)}", answer)


@requirement(READY, UNREADY, HEIGHT)
def native_readiness(context: Context) -> None:
    """GET the readiness of the network identity, that of /healthz, and the first once more."""
    _needs_sixth(context)
    before, network = document_at(context, "/api/network")
    health = native_get(context, "/healthz")
    after, again = document_at(context, "/api/network")
    _judge_heights(context, _heights(context, network), health, before)
    if "/api/network readiness" not in context.target.field_map:
        return
    told = mapped(context, "/api/network readiness", network)
    if len(told) != 1 or told != mapped(context, "/api/network readiness", again):
        return
    why = f"the network identity says {brief(told)}, and /healthz has status {health.status}"
    shown = (before, health, after)
    if isinstance(told[0], bool) and (health.ok or health.status == 503):
        context.judge(READY, told[0] == health.ok, why, *shown)
    elif isinstance(told[0], str):
        word = re.sub(r"[_-]+", " ", told[0]).strip().lower()
        if word in NOT_READY:
            context.judge(UNREADY, not health.ok, why, *shown)


def _heights(context: Context, network: Json) -> list[int]:
    return _whole(
        lookup(network, context.target.field_map.get("/api/network height", ["height"])[0])
    )


def _judge_heights(context: Context, heights: list[int], health: Answer, network: Answer) -> None:
    """Rule on the height in /healthz, and on that of a page of blocks, if they name one."""
    named = (health.json_object() or {}).get("height")
    if heights and is_int(named):
        why = f"/healthz has the height {named}, and the network had {heights[0]} before"
        held = int(str(named)) + BEHIND >= heights[0]
        context.judge(HEIGHT, held, why, network, health)
    answer, page = document_at(context, "/api/blocks", {"limit": 3})
    listed = numbers_of(context, "/api/blocks height", "height", page)
    tips = {n: v for n, v in (page or {}).items() if _TIP.fullmatch(n) and is_int(v)}
    if listed and tips:
        why = f"a page of blocks has {brief(tips)}, and lists {brief(listed)}"
        held = all(int(str(tip)) + BEHIND >= max(listed) for tip in tips.values())
        context.judge(HEIGHT, held, why, answer)


@requirement(INDEX)
def native_index(context: Context) -> None:
    """GET the training history, then the network identity, and compare how far they are."""
    _needs_sixth(context)
    listed, document = document_at(context, "/api/training", {"limit": 5})
    rounds = numbers_of(context, "/api/training round", "round", document)
    paths = [p for p in context.target.field_map.get("/api/training progress", ()) if "round" in p]
    reached = _whole([value for path in paths for value in lookup(document, path)])
    identity, network = document_at(context, "/api/network")
    if len(reached) != 1 or not rounds:
        raise Skipped("the history does not tell to which round it has got, or has no update")
    why = f"the index has got to the round {reached[0]}, and lists {brief(rounds)}"
    context.judge(INDEX, reached[0] >= max(rounds), why, listed)
    if "/api/network round" in context.target.field_map:
        current = _whole(mapped(context, "/api/network round", network))
        why = f"the index has got to the round {reached[0]}, and the network to {brief(current)}"
        context.judge(INDEX, not current or reached[0] <= max(current), why, listed, identity)


@requirement(NEWEST)
def native_newest_root(context: Context) -> None:
    """GET the newest update between two readings of the model, and compare their roots."""
    _needs_sixth(context)
    before, model = document_at(context, "/api/model")
    listed, document = document_at(context, "/api/training", {"limit": 1})
    after, again = document_at(context, "/api/model")
    roots = mapped(context, "/api/model roots", model)
    if roots != mapped(context, "/api/model roots", again):
        raise Skipped("the roots of the model change meanwhile")
    numbers = numbers_of(context, "/api/training round", "round", document)
    entries = dict(entries_of(numbers, document))
    if not entries:
        raise Skipped("no update is listed")
    newest = entries[max(entries)]
    own = [v for name, v in _inside(newest) if _ROOT.search(name) and isinstance(v, str)]
    why = f"the newest update has {brief(own)}, and the model {brief(roots)}"
    if own and roots:
        context.judge(NEWEST, bool(set(own) & set(map(str, roots))), why, before, listed, after)


def _inside(entry: Json) -> Iterator[tuple[str, Json]]:
    for one in objects(entry):
        yield from one.items()


@requirement(OWN_ID, SPELT)
def native_own_record(context: Context) -> None:
    """GET the declared request, and read the id and the state in its record."""
    _needs_sixth(context)
    ident = context.target.request_id or ""
    answer, record = document_at(context, "/api/inference/request", {"id": ident})
    named = {
        name: value
        for name, value in (record or {}).items()
        if name in ("id", "request_id") and isinstance(value, str) and len(value) == len(ident)
    }
    if named:
        # What else is called id may be that of another thing.
        why = f"the record of {brief(ident)} has {brief(named)}"
        context.judge(OWN_ID, named.get("request_id", named.get("id")) == ident, why, answer)
    words = [v for n, v in (record or {}).items() if _STATE.match(n) and isinstance(v, str)]
    for word in words:
        if word.strip().lower() in STATES:
            why = f"the state of a request is written {brief(word)}"
            context.judge(SPELT, word in STATES, why, answer)


@requirement(ONCE)
def native_validators_once(context: Context) -> None:
    """GET the validators, of whom nobody is listed twice."""
    _needs_sixth(context)
    answer, document = document_at(context, "/api/validators")
    for rows in (document or {}).values():
        if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
            twice = [row for at, row in enumerate(rows) if row in rows[:at]]
            if context.edition >= SEVENTH:
                named = [[text for text in texts_in(row) if _KEY.match(text)] for row in rows]
                twice += [rows[at] for at, one in enumerate(named) if one and one in named[:at]]
            context.judge(ONCE, not twice, f"listed twice: {brief(twice[:1])}", answer)


@requirement(FILE)
def native_adapter_file(context: Context) -> None:
    """GET the checkpoint, and the artifact whose path, size and digest it names in one object."""
    _needs_sixth(context)
    listed, document = document_at(context, "/api/model/checkpoint.json")
    for one in objects(document):
        paths = [found[1] for v in one.values() if isinstance(v, str) and (found := _match(v))]
        if len(paths) != 1:
            continue
        digest = one.get("sha256")
        if isinstance(digest, str):
            why = f"an artifact of the checkpoint has {brief(digest)} beside its path"
            context.judge(FILE, digest.lower() == paths[0], why, listed)
        sizes = [one[name] for name in ("bytes", "size", "length") if is_int(one.get(name))]
        answer = native_get(context, f"/artifacts/sha256/{paths[0]}") if sizes else None
        if answer is not None and answer.ok:
            why = f"the checkpoint says {brief(sizes)} bytes, and there are {len(answer.body)}"
            context.judge(FILE, len(answer.body) in sizes, why, listed, answer)


def _match(text: str) -> re.Match[str] | None:
    return _ARTIFACT.search(text)


@requirement(EARLIER)
def native_earlier_chain(context: Context) -> None:
    """GET the network, and the declared views of the earlier chain, which is another one."""
    _needs_sixth(context)
    network, document = document_at(context, "/api/network")
    present = {v for n, v in (document or {}).items() if _CHAIN.match(n) and isinstance(v, str)}
    for path in context.target.reference if present else ():
        view, document = document_at(context, path)
        named = {n: v for n, v in (document or {}).items() if _CHAIN.match(n)}
        if named:
            why = f"{path} has {brief(named)}, the present chain"
            held = not present & {str(value) for value in named.values()}
            context.judge(EARLIER, held, why, network, view)
