"""Interface 4.2: native resources that are read directly behind one another, and at the same time.

What is read does not change: blocks below the end of the chain, pages that end there, the genesis,
and accounts and requests as long as they stay the same alone. Each is what it is by itself, on a
connection of its own and on one with the others.
"""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from urllib.parse import urlencode

from conformance.checks.mixed_pairs import every_pair
from conformance.checks.native import native_get
from conformance.checks.native_documents import numbers_of, read
from conformance.context import Context
from conformance.editions import SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.httprequest import ANONYMOUS
from conformance.httpwire import Answer
from conformance.registry import requirement

ITSELF, SERVED = "NT-RULE-149", "NT-RULE-175"
BUSY = TOO_MANY, UNAVAILABLE = 429, 503
LARGE = "/api/blocks?limit=100"
PAGE, TRIES, ROUNDS, FEW = 12, 3, 2, 8
# So many are read on one connection, and others for so long.
KEPT, LONG_S = 24, 0.3
# A key that nobody has, but for whoever has drawn it.
UNUSED = "02" + "5" * 64


def _asked(context: Context) -> list[str]:
    """Return the paths of what does not change, each with its query."""
    _, document = read(context, "/api/blocks", {"limit": PAGE})
    heights = sorted(numbers_of(context, "/api/blocks height", "height", document))
    found = [f"/api/block/{height}" for height in heights[:3]]
    if len(heights) > 5:
        queries = ({"limit": limit, "before": heights[4]} for limit in (2, 3))
        found += [f"/api/blocks?{urlencode(query)}" for query in queries]
    _, document = read(context, "/api/training", {"limit": PAGE})
    rounds = sorted(numbers_of(context, "/api/training round", "round", document))
    if len(rounds) > 5:
        found.append(f"/api/training?{urlencode({'limit': 4, 'before': rounds[4]})}")
    target = context.target
    for key in (target.public_key, UNUSED if target.public_key else None):
        if key:
            found.append(f"/api/account?{urlencode({'public_key': key})}")
    if target.request_id:
        found.append(f"/api/inference/request?{urlencode({'id': target.request_id})}")
    return [*found, "/network/genesis.json", "/api/validators"]


@requirement(ITSELF, SERVED)
def native_at_once(context: Context) -> None:
    """GET resources that do not change: alone, in turn on one connection, and all at once."""
    if context.edition < SIXTH:
        raise Skipped("later editions ask for it")
    alone: dict[str, Answer] = {}
    for path in _asked(context):
        first, again = native_get(context, path), context.http.call("GET", path)
        if first.status == again.status and first.body == again.body and first.status < 500:
            alone[path] = again
    if len({answer.body for answer in alone.values()}) < 2:
        raise Skipped("no two resources are the same each time they are read")
    wrong: dict[str, list[tuple[str, Answer]]] = {}
    for _ in range(TRIES):
        found = _others(context, alone)
        if not found:
            break
        for path, other in found.items():
            wrong.setdefault(path, []).append(other)
    seen = {path: others for path, others in wrong.items() if len(others) > 1}
    for path, others in seen.items():
        how, answer = others[-1]
        why = f"GET {path} {how} has another answer than alone, {len(others)} times"
        context.fails(ITSELF, why, alone[path], answer)
    if not seen:
        context.holds(ITSELF, *list(alone.values())[:2])
    if context.edition >= SEVENTH:
        _judge_served(context)


def _judge_served(context: Context) -> None:
    """Rule on a few reads that are refused when they come together, and not alone."""
    paths = [LARGE] * FEW
    for _ in range(TRIES * ROUNDS):
        with context.http.gate.holding(len(paths)), ThreadPoolExecutor(len(paths)) as pool:
            answers = list(pool.map(lambda path: context.http.call("GET", path), paths))
        alone = [context.http.call("GET", path) for path in paths]
        if any(answer.status == TOO_MANY for answer in answers) or not all(one.ok for one in alone):
            # So many in a second are too many, or what is refused is so alone, too.
            return
        refused = [answer for answer in answers if answer.status == UNAVAILABLE]
        if refused:
            break
    why = f"{len(refused)} of {len(paths)} reads at the same time have status {UNAVAILABLE}"
    context.judge(SERVED, not refused, why, *(refused or answers)[:2])


def _others(context: Context, alone: dict[str, Answer]) -> dict[str, tuple[str, Answer]]:
    """Return what was answered otherwise than alone, with how it was asked for."""
    names, found = list(alone), dict[str, tuple[str, Answer]]()
    source = random.Random(context.target.seed)  # noqa: S311 - no secret
    order = every_pair(names, source)
    kept = context.http.kept([("GET", path, ANONYMOUS, None) for path in order[:KEPT]])
    for path, answer in zip(order, kept, strict=False):
        _note(context, found, alone, (path, "behind others on a connection", answer))
    ends = time.monotonic() + LONG_S
    for before, path in pairwise(order[len(kept) - 1 :]):
        answer = context.http.call("GET", path)
        _note(context, found, alone, (path, f"behind {before}", answer))
        if time.monotonic() > ends:
            break
    for _ in range(ROUNDS):
        source.shuffle(names)
        with context.http.gate.holding(len(names)), ThreadPoolExecutor(len(names)) as pool:
            answers = list(pool.map(lambda path: context.http.call("GET", path), names))
        for path, answer in zip(names, answers, strict=True):
            _note(context, found, alone, (path, "at the same time as others", answer))
    return found


def _note(
    context: Context,
    found: dict[str, tuple[str, Answer]],
    alone: dict[str, Answer],
    seen: tuple[str, str, Answer],
) -> None:
    """Note an answer that is not the one alone, which is read again: it may have changed."""
    path, how, answer = seen
    # It may be too much at once.
    if answer.body == alone[path].body or answer.status in BUSY:
        return
    now = context.http.call("GET", path)
    if now.body == alone[path].body:
        found[path] = how, answer
    else:
        alone[path] = now
