"""Interface 4.2, 5 and 7.2: what the native API does not have, and whom it need not know.

How a native resource is refused is not specified. So what is judged is that nothing is served in
place of what does not exist, and that nobody makes a node fail with it.
"""

import hashlib
import json
from itertools import product

from conformance.checks.auth import INVENTED
from conformance.checks.native import native_get
from conformance.checks.native_named import texts_in
from conformance.checks.node_sanity import FAILED
from conformance.context import Context
from conformance.editions import SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, brief

FAILS, NO_BLOCK, NO_KEY, CAPITALS = "NT-RULE-140", "NT-RULE-141", "NT-RULE-142", "NT-RULE-143"
NO_PATH, ONLY_READ, TOKEN = "NT-RULE-144", "NT-RULE-145", "NT-RULE-146"
OTHER_KEY, OTHER_ID, LONGER = "NT-RULE-027", "NT-RULE-147", "NT-RULE-148"
Query = dict[str, object]
NO_HEIGHTS = ("none", "-1", "0", "2x")
# As programs write numbers that JSON and paths do not have, and what 32 bits keep of as 2.
# Above most chains; where a block is there it may be served.
ABOVE = ("1000007", "2000000011")
NOT_TWO = ("0x2", str(2**32 + 2))
ODD: tuple[tuple[str, Query], ...] = (
    *((f"/api/block/{name}", {}) for name in (*NO_HEIGHTS, "1.5")),
    ("/api/account", {}), ("/api/account", {"public_key": "none"}),
    ("/api/inference/request", {}), ("/api/inference/request", {"id": ""}),
    ("/api/blocks", {"limit": "none"}), ("/api/blocks", {"before": "none"}),
    ("/api/training", {"limit": "none"}), ("/api/training", {"before": "none"}),
    ("/api/blocks", {"limit": -1}), ("/api/blocks", {"before": -1}),
    ("/artifacts/sha256/none", {}),
)  # fmt: skip
# Bodies that are no call, of which JSON-RPC has errors of its own.
NO_CALLS = (b"", b"{", b"[]", b"null", b'"x"', b"{}", b'{"jsonrpc":"2.0","id":1,"method":5}')
UNKNOWN = "no-such-route-of-the-document"
ABSENT_PATHS = (f"/api/{UNKNOWN}", f"/network/{UNKNOWN}.json", f"/work/{UNKNOWN}")
READ_ONLY = ("/api/network", "/api/blocks", "/api/validators", "/api/model")
MONEY = "/api/account money"


def _needs_sixth(context: Context) -> None:
    if context.edition < SIXTH:
        raise Skipped("later editions ask for it")


@requirement(FAILS, NO_BLOCK)
def native_odd(context: Context) -> None:
    """GET resources by what is no height, key, id or number, and POST to /rpc what is no call."""
    _needs_sixth(context)
    for path, query in ODD:
        answer = native_get(context, path, query)
        # It was read twice where it failed at first.
        why = f"GET {path} with {brief(query)}: status {answer.status}"
        context.judge(FAILS, answer.status not in FAILED, why, answer)
        name = path.removeprefix("/api/block/")
        if name in NO_HEIGHTS and answer.ok:
            found = _heights(context, answer)
            why = f"{path} has the block of the height {brief(found)}"
            context.judge(NO_BLOCK, found in ([], [name]), why, answer)
        elif name in NO_HEIGHTS and answer.status < 500:
            context.holds(NO_BLOCK, answer)
    if context.edition >= SEVENTH:
        for name in NOT_TWO:
            answer = native_get(context, f"/api/block/{name}")
            found = _heights(context, answer) if answer.ok else []
            why = f"/api/block/{name} has the block of the height {brief(found)}"
            context.judge(NO_BLOCK, found in ([], [name]), why, answer)
        for name in ABOVE:
            answer = native_get(context, f"/api/block/{name}")
            why = f"GET /api/block/{name}: status {answer.status}"
            context.judge(FAILS, answer.status not in FAILED, why, answer)
    for content in NO_CALLS:
        answers = [context.http.call("POST", "/rpc", content=content) for _ in range(2)]
        # An engine answers a bad call so, and says what is wrong with it.
        failed = [one for one in answers if one.status in FAILED and not _says_why(one)]
        why = f"POST /rpc with {brief(content.decode())}: status {answers[-1].status} twice"
        context.judge(FAILS, len(failed) < len(answers), why, *answers)


def _says_why(answer: Answer) -> bool:
    return bool((answer.json_object() or {}).get("error")) and "jsonrpc" in (
        answer.json_object() or {}
    )


def _heights(context: Context, answer: Answer) -> list[str]:
    """Return the height of a block that was served, as a text."""
    paths = context.target.field_map.get("/api/block height", ("height",))
    return [str(value) for path in paths for value in lookup(answer.json_object(), path)]


@requirement(NO_KEY, CAPITALS, OTHER_KEY)
def native_odd_keys(context: Context) -> None:
    """GET accounts by keys that are cut, longer, or none, and by the same key in capitals."""
    _needs_sixth(context)
    key = context.target.public_key or ""
    usual = native_get(context, "/api/account", {"public_key": key})
    money = _money(context, usual)
    if all(value in (0, "0") for value in money):
        raise Skipped("the account of the declared key has no money")
    length = len(key)
    # Two digits less, or more, may be a key of another kind.
    for odd in ("", "none", key[:-4], f"{key}0000", "zz" * (length // 2), key[: length // 2]):
        query: Query = {"public_key": odd} if odd else {}
        answer = native_get(context, "/api/account", query)
        if answer.ok and _money(context, answer) == money:
            why = f"{brief(odd)} has the account of {key}"
            context.fails(OTHER_KEY, why, usual, answer)
        elif answer.status < 500:
            why = f"{brief(odd)} is no key, and has the account {brief(answer.body)}"
            context.judge(NO_KEY, not (answer.ok and _money(context, answer)), why, answer)
    if key.upper() != key.lower():
        other = native_get(context, "/api/account", {"public_key": _turned(key)})
        again = native_get(context, "/api/account", {"public_key": key})
        if _money(context, again) == money:
            shown = _money(context, other) if other.ok else money
            why = f"{key} has {brief(money)}, and in other letters {brief(shown)}"
            context.judge(CAPITALS, shown == money, why, usual, other)
            if context.edition >= SEVENTH:
                why = f"{key} in other letters: status {other.status}"
                context.judge(CAPITALS, other.status not in FAILED, why, usual, other)


def _turned(key: str) -> str:
    return key.upper() if key != key.upper() else key.lower()


def _money(context: Context, answer: Answer) -> list[Json]:
    document = answer.json_object() if answer.ok else None
    return [v for path in context.target.field_map[MONEY] for v in lookup(document, path)]


@requirement(OTHER_ID)
def native_odd_ids(context: Context) -> None:
    """GET requests by ids that are longer than the declared one, or missing."""
    _needs_sixth(context)
    ident = context.target.request_id or ""
    usual = native_get(context, "/api/inference/request", {"id": ident})
    if not usual.ok:
        raise Skipped("the declared request is not found")
    texts = sorted(texts_in(usual.json_object()))
    for odd in (None, "", f"{ident}0", f"{ident}-", f" {ident}"):
        answer = native_get(context, "/api/inference/request", {} if odd is None else {"id": odd})
        # What white space around an id means is not said.
        if answer.ok and odd != f" {ident}":
            same = sorted(texts_in(answer.json_object())) == texts
            why = f"{brief(odd)} has the record of {brief(ident)}"
            context.judge(OTHER_ID, not same, why, usual, answer)
        elif answer.status < 500:
            context.holds(OTHER_ID, answer)


@requirement(LONGER)
def native_odd_digests(context: Context) -> None:
    """GET artifacts by what is longer than a digest, and by one that nothing has."""
    _needs_sixth(context)
    digest = (context.target.artifact or "").lower()
    for name in (f"{digest}0", f"{digest}00", "0" * len(digest)):
        answer = native_get(context, f"/artifacts/sha256/{name}")
        if answer.ok and answer.media_type != "text/html":
            why = f"/artifacts/sha256/{name} has {len(answer.body)} bytes"
            context.fails(LONGER, why, answer)
        elif answer.status < 500:
            context.holds(LONGER, answer)
    if context.edition >= SEVENTH:
        # There may be a list of all of them.
        answer = native_get(context, "/artifacts/sha256/")
        own = hashlib.sha256(answer.body).hexdigest()
        # Bytes that are served under their own digest, too, are an artifact and no list.
        found = answer.ok and native_get(context, f"/artifacts/sha256/{own}").body == answer.body
        why = f"/artifacts/sha256/ has the artifact {own}"
        context.judge(LONGER, not found, why, answer)


@requirement(NO_PATH, ONLY_READ, TOKEN)
def native_other_requests(context: Context) -> None:
    """GET paths that do not exist, write to what is read, and read with a token of nobody."""
    _needs_sixth(context)
    for path in ABSENT_PATHS:
        answer = native_get(context, path)
        context.judge(NO_PATH, not answer.ok, f"GET {path}: status {answer.status}", answer)
    for path, method in product(READ_ONLY, ("POST", "DELETE")):
        content = json.dumps({"conformance": 1}).encode()
        answer = context.http.call(method, path, content=content)
        why = f"{method} {path}: status {answer.status}"
        context.judge(ONLY_READ, not answer.ok, why, answer)
    for path in READ_ONLY:
        answer = context.http.call("GET", path, credential=INVENTED)
        if answer.status in (401, 403) or answer.ok:
            why = f"GET {path} with a token that nobody has: status {answer.status}"
            context.judge(TOKEN, answer.ok, why, answer)
