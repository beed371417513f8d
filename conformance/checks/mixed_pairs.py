"""Interface 4.1, 4.2, 5 and 7.1: each request directly behind each other one.

What a node keeps of a request, a header, an account, a part of an answer, shows in the one that
follows. So requests of all kinds, good ones and others, are made in an order in which each kind
follows each other one. Each has the status that it has behind itself, and what only its own account
or prompt can bring about.
"""

import random
import time
from collections.abc import Callable, Sequence
from functools import partial

from conformance.checks.auth import INVENTED
from conformance.checks.node_reads import AUTH_READS, BALANCE, HEALTH, METRICS, NETWORK, STATUS
from conformance.checks.wallet import EXCESS
from conformance.context import Context
from conformance.editions import FIFTH
from conformance.findings import Skipped
from conformance.httpwire import ANONYMOUS, Answer
from conformance.registry import requirement
from conformance.strictjson import Json, brief

ALIKE, LAYER = "NA-ROUTE-019", "NA-PROOFS-032"
TRIES = 3
# For so long pairs are made: some seconds more than most nodes take for all of them.
PAIRS_S = 4.0
# The statuses of a node that is too busy, or has nothing more to spend.
OTHERWISE = (402, 429, 503)
UNPAID = "a transfer of more than there is"
BODY: dict[str, Json] = {"prompt": "Once upon a time", "max_tokens": 1, "temperature": 0}
# What costs something, and how much of what is left all of them may cost.
COSTLY, PART = ("a generation", "a stream"), 0.05
Ask = Callable[[], Answer]


def every_pair(names: Sequence[str], source: random.Random) -> list[str]:
    """Return names in an order in which each follows each other one, and itself, just once."""
    left = {name: source.sample(names, len(names)) for name in names}
    way, walk = [names[0]], list[str]()
    while way:
        if left[way[-1]]:
            way.append(left[way[-1]].pop())
        else:
            walk.append(way.pop())
    return walk[::-1]


def _requests(context: Context) -> dict[str, Ask]:
    """Return how each request is made, by a name for it."""
    api, http, target = context.api, context.http, context.target
    found: dict[str, Ask] = {
        f"GET {one.path}": partial(api, "GET", one.path, credential=target.valid)
        for one in AUTH_READS
    }
    found |= {
        f"GET {one.path}": partial(api, "GET", one.path) for one in (STATUS, METRICS, NETWORK)
    }
    if target.second_token is not None:
        found["GET a second balance"] = partial(api, "GET", BALANCE.path, credential=target.second)
    for name, reader in (("no token", ANONYMOUS), ("an invented token", INVENTED)):
        found[f"GET {BALANCE.path} with {name}"] = partial(
            api, "GET", BALANCE.path, credential=reader
        )
    infer = partial(api, "POST", "/inference", credential=target.valid)
    return found | {
        "GET the newest transaction": partial(
            api, "GET", "/wallet/transactions", credential=target.valid, query={"limit": 1}
        ),
        "GET no route": partial(http.call, "GET", "/api/v1/no-such-route-of-the-document"),
        "GET /api/training/global": partial(api, "GET", "/training/global", prefix="/api"),
        "GET /api/network": partial(http.call, "GET", "/api/network"),
        "GET no block": partial(http.call, "GET", "/api/block/none"),
        "GET health": partial(api, "GET", HEALTH.path),
        "a generation": partial(context.infer, BODY),
        "a stream": partial(context.infer, {**BODY, "stream": True}),
        "a generation without a prompt": partial(infer, json_body={"max_tokens": 3}),
        "a body that is no JSON": partial(infer, content=b"{"),
        "a transfer without a receiver": partial(
            api, "POST", "/wallet/send", credential=target.valid, json_body={"amount": 1}
        ),
        UNPAID: partial(
            api,
            "POST",
            "/wallet/send",
            credential=target.valid,
            json_body={"to": "nobody", "amount": float(EXCESS) * EXCESS, "memo": ""},
        ),
        "an unstake of too much": partial(
            api,
            "POST",
            "/wallet/unstake",
            credential=target.valid,
            json_body={"amount": float(EXCESS) * EXCESS},
        ),
        "a change of nothing known": partial(
            api, "PATCH", "/config", credential=target.valid, json_body={"no_such_key": None}
        ),
    }


def _shown(name: str, answer: Answer) -> tuple[int, Json]:
    """Return the status of an answer, and what is the same in each answer to such a request."""
    document = answer.json_object() or {}
    return answer.status, document.get("address") if "balance" in name and answer.ok else None


@requirement(ALIKE, LAYER)
def mixed_pairs(context: Context) -> None:
    """Send requests of each kind directly behind those of each other kind."""
    if context.edition < FIFTH:
        raise Skipped("later editions ask for it")
    requests = _requests(context)
    usual: dict[str, tuple[int, Json]] = {}
    left = context.budget.left
    for name, ask in requests.items():
        first, again = (_shown(name, ask()) for _ in range(2))
        busy = first[0] in OTHERWISE and name != UNPAID
        if first == again and not busy and first[0] < 500:
            usual[name] = again
    # Each has been made twice, and would be once behind each other one.
    if (left - context.budget.left) * len(usual) / 2 > PART * left:
        usual = {name: shown for name, shown in usual.items() if name not in COSTLY}
    if len(usual) < 2:
        raise Skipped("hardly a request is answered alike twice")
    source = random.Random(context.target.seed)  # noqa: S311
    ends, before = time.monotonic() + PAIRS_S, ""
    last: Answer | None = None
    for name in every_pair(list(usual), source):
        answer = requests[name]()
        if _shown(name, answer) != usual[name] and answer.status not in OTHERWISE and before:
            _judge(context, requests, (before, name), usual[name])
        before, last = name, answer
        if time.monotonic() > ends:
            break
    if last is not None:
        context.holds(ALIKE, last)


def _judge(
    context: Context, requests: dict[str, Ask], pair: tuple[str, str], usual: tuple[int, Json]
) -> None:
    """Make two requests once more, one behind the other; it has to be otherwise each time."""
    before, name = pair
    for _ in range(TRIES):
        first, answer = requests[before](), requests[name]()
        if _shown(name, answer) == usual or answer.status in OTHERWISE:
            return
    alone = [requests[name]() for _ in range(2)][-1]
    if _shown(name, alone) != usual:
        raise Skipped(f"{name} is answered with {brief([*_shown(name, alone)])} meanwhile")
    why = f"{name} behind {before}: {brief([*_shown(name, answer)])}, and else {brief([*usual])}"
    context.fails(ALIKE, why, first, answer, alone)
