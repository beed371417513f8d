"""Interface 4.2: accounts and inference requests, which a client asks for by name.

A target declares one public key and one request ID. The account is also tried without.
"""

import re
from collections.abc import Iterator

from conformance.checks.native import (
    judge_contents,
    judge_mapped,
    judge_strict,
    members_of,
    native_get,
)
from conformance.checks.passes import FOUND_SINCE
from conformance.checks.reading import judge_route
from conformance.context import Context
from conformance.editions import FOURTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_int
from conformance.target import CONTENTS

TOO_MANY = 429
# The first edition in which a request is read several times, and accounts are strict JSON.
AGAIN_SINCE, TIMES = 4, 3
_KEY = re.compile(r"0[23][0-9a-fA-F]{64}\Z", re.ASCII)

CONTAINS, SAME = "NT-RULE-072", "NT-RULE-081"
_COMPLETED = "completed"
_RESPONSE = re.compile(r"response|output|text\Z|prompt", re.IGNORECASE)


@requirement("NT-ROUTE-008", "NT-RULE-024", "NT-RULE-027", "NT-RULE-017", "NT-RULE-026")
def native_account(context: Context) -> None:
    """GET the account of the declared public key, and that of another key."""
    if context.target.public_key is None:
        _any_account(context)
        return
    key = context.target.public_key
    answer = native_get(context, "/api/account", {"public_key": key})
    if not judge_route(context, "NT-ROUTE-008", answer, auth=False):
        return
    judge_contents(context, "/api/account", answer)
    if context.edition >= AGAIN_SINCE and "/api/account nonce" in context.target.field_map:
        judge_mapped(context, "/api/account nonce", answer.json_object(), answer)
    values = [
        value
        for path in context.target.field_map.get("/api/account money", ())
        for value in lookup(answer.json_object(), path)
    ]
    if any(value not in (0, "0") for value in values):
        # Nobody has the key to this one, so that it has no money.
        other = native_get(context, "/api/account", {"public_key": _other(key)})
        if context.edition >= AGAIN_SINCE:
            for one in (answer, other):
                judge_strict(context, one)
        same = other.ok and other.json_object() == answer.json_object()
        context.judge("NT-RULE-027", not same, "another key has the same account", answer, other)
        if context.edition >= AGAIN_SINCE and _KEY.match(key):
            _judge_sign(context, key, values, answer)


def _judge_sign(context: Context, key: str, money: list[Json], answer: Answer) -> None:
    """Rule on the key that differs from this one in its sign alone, whose point is the inverse."""
    inverse = {"02": "03", "03": "02"}[key[:2]] + key[2:]
    other = native_get(context, "/api/account", {"public_key": inverse})
    paths = context.target.field_map.get("/api/account money", ())
    found = [value for path in paths for value in lookup(other.json_object() or {}, path)]
    why = f"{inverse} has {brief(found)}, the same as {key}"
    context.judge("NT-RULE-027", not other.ok or found != money, why, answer, other)


def _any_account(context: Context) -> None:
    """Rule on the route with the wallet's own address, if it looks like a key, or another one.

    An account that nobody has may be missing too, but then the route says something else than a
    path that does not exist, at least without any key.
    """
    if context.edition < FOUND_SINCE:
        raise Skipped("the target declares no public_key")
    balance = context.http.call("GET", "/api/v1/wallet/balance", credential=context.target.valid)
    address = (balance.json_object() or {}).get("address") if balance.ok else None
    key = address if isinstance(address, str) and _KEY.match(address) else "02" + "ab" * 32
    answer = native_get(context, "/api/account", {"public_key": key})
    if answer.ok or answer.status in (405, 501):
        if judge_route(context, "NT-ROUTE-008", answer, auth=False):
            judge_contents(context, "/api/account", answer)
        return
    bare, control = native_get(context, "/api/account"), native_get(context, "/api/no-such-path")
    same = {(one.status, one.body) for one in (answer, bare, control)}
    if answer.status == 404 and len(same) == 1:
        context.fails("NT-ROUTE-008", "status 404, as for no route", answer, bare, control)
        return
    raise Skipped(f"the target declares no public_key, and another one gives {answer.status}")


@requirement("NT-RULE-058")
def native_checkpoint_round(context: Context) -> None:
    """GET the newest updates, then the training adapter, which is no older."""
    updates = native_get(context, "/api/training", {"limit": MANY_UPDATES})
    adapter = native_get(context, "/api/model/checkpoint.json")
    known, own = ([
        value for name, value in members_of(answer.json_object() if answer.ok else None)
        if name == "round" and is_int(value)
    ] for answer in (updates, adapter))  # fmt: skip
    if not known or len(own) != 1:
        raise Skipped(f"rounds are {brief(known[:3])} of updates, {brief(own)} of the adapter")
    why = f"the adapter is of round {brief(own[0])}, the newest update of {max(known)}"
    context.judge("NT-RULE-058", own[0] >= max(known), why, updates, adapter)


def _other(text: str) -> str:
    """Return a value of the same form that names nothing."""
    return text[:-8] + ("0badc0de" if not text.endswith("0badc0de") else "deadbeef")


# A page of the history of the accepted updates that has the newest, whichever comes first.
MANY_UPDATES = 100
# What the document calls a job that is not done.
PENDING = "pending"


def _read_again(context: Context, answer: Answer) -> None:
    """Read the declared request several times more; it may end meanwhile, but it stays a record."""
    query: dict[str, object] = {"id": context.target.request_id}
    again = [native_get(context, "/api/inference/request", query) for _ in range(TIMES)]
    gone = [one.status for one in again if 400 <= one.status < 500 and one.status != TOO_MANY]
    why = f"a request that was there a moment ago: status {brief(gone)}"
    context.judge("NT-ROUTE-011", len(gone) < TIMES, why, answer, *again)
    if context.edition >= FOURTH:
        records = [one.json_object() for one in (answer, *again) if one.ok]
        if records and all(_COMPLETED in _states(record) for record in records):
            texts = [set(responses(record)) for record in records]
            why = f"the texts of a completed request change: {brief([sorted(t) for t in texts])}"
            context.judge(SAME, len(set(map(frozenset, texts))) == 1, why, answer, *again)


def _states(record: Json) -> set[str]:
    return {text.lower() for text in texts_in(record)}


def responses(record: Json) -> Iterator[str]:
    """Yield the texts of a record under names that a response, or its text, would have."""
    for name, value in members_of(record):
        if _RESPONSE.search(name):
            yield from texts_in(value)


@requirement("NT-ROUTE-011", "ST-003", "NT-RULE-024", "NT-RULE-028", "NT-RULE-041", SAME)
def native_request(context: Context) -> None:
    """GET the declared inference request, which was made recently."""
    answer = native_get(context, "/api/inference/request", {"id": context.target.request_id})
    if judge_route(context, "NT-ROUTE-011", answer, auth=False):
        context.holds("ST-003", answer)
        if context.edition >= AGAIN_SINCE:
            _read_again(context, answer)
        judge_contents(context, "/api/inference/request", answer)
        query: dict[str, object] = {"id": _other(context.target.request_id or "")}
        other = native_get(context, "/api/inference/request", query)
        same = other.ok and other.body == answer.body
        context.judge("NT-RULE-028", not same, "another id has the same record", answer, other)
        ident = context.target.request_id or ""
        for part in (
            {ident[:-1], ident[: len(ident) // 2]} if context.edition >= AGAIN_SINCE else ()
        ):
            begun = native_get(context, "/api/inference/request", {"id": part})
            why = f"{brief(part)}, the beginning of the id, has the same record"
            held = not begun.ok or begun.body != answer.body
            context.judge("NT-RULE-028", held, why, answer, begun)
        if context.edition >= AGAIN_SINCE:
            waits = other.ok and PENDING in (text.lower() for text in texts_in(other.json_object()))
            why = f"an id that nobody has: {brief(other.json_object())}"
            context.judge("NT-RULE-041", not waits, why, other)


def texts_in(document: Json) -> Iterator[str]:
    """Yield the texts in a document, without the names of its fields."""
    if isinstance(document, str):
        yield document
    inner = document.values() if isinstance(document, dict) else document
    for value in inner if isinstance(document, dict | list) else ():
        yield from texts_in(value)


@requirement(CONTAINS)
def native_contents(context: Context) -> None:
    """GET each native resource of whose contents the target declares where they are."""
    declared = {
        path: [f"{path} {name}" for name in names if f"{path} {name}" in context.target.field_map]
        for path, names in CONTENTS.items()
    }
    if not any(declared.values()):
        raise Skipped("[target.field_map] declares no contents")
    for path, names in declared.items():
        answer = native_get(context, path) if names else None
        if answer is not None and answer.ok:
            for name in names:
                judge_mapped(context, name, answer.json_object(), answer, CONTAINS)
