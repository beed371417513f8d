"""Interface 4.1, 4.2, 5 and 7.1: each request directly behind each other one.

What a node keeps of a request, a header, an account, a part of an answer, shows in the one that
follows; and a connection may be left with what a refusal has not read. So requests of all kinds,
good ones and others, are made in an order in which each kind follows each other one, and on one
connection for as long as the node keeps it. Each has the status that it has by itself, and what
only its own account can bring about.
"""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

from conformance.catalogue import Effect
from conformance.checks.auth import INVENTED
from conformance.checks.config import nested, patch, read_config
from conformance.checks.node_reads import AUTH_READS, BALANCE, HEALTH, METRICS, NETWORK, STATUS
from conformance.checks.wallet import EXCESS
from conformance.context import API, Context
from conformance.editions import FIFTH, SIXTH
from conformance.findings import Skipped
from conformance.httpbody import UNENDED
from conformance.httprequest import ANONYMOUS, Credential
from conformance.httpwire import Answer, Unanswered
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, brief

ALIKE, ENDS = "NA-ROUTE-019", "NA-SSE-022"
TRIES = 3
# For so long pairs are made: some seconds more than most nodes take for all of them.
PAIRS_S = 4.0
# The statuses of a node that is too busy, or has nothing more to spend.
OTHERWISE = (402, 429, 503)
UNPAID = "a transfer of more than there is"
BODY: dict[str, Json] = {"prompt": "Once upon a time", "max_tokens": 1, "temperature": 0}
LACKING: dict[str, Json] = {"max_tokens": 3}
# What costs something, and how much of what is left all of them may cost.
COSTLY, PART = ("a generation", "a stream"), 0.05
BATCH = "training.batch_size"
# So many are sent before their answers are looked at.
IN_A_ROW = 40


@dataclass(frozen=True)
class Asked:
    """A request, with its whole path; a body of bytes is sent as it is."""

    method: str
    path: str
    account: Credential = ANONYMOUS
    body: Json | bytes = None

    @property
    def streams(self) -> bool:
        """Whether it asks for a stream."""
        return isinstance(self.body, dict) and self.body.get("stream") is True


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


def _requests(context: Context) -> dict[str, Asked]:
    """Return the requests, by a name for each."""
    valid, second = context.target.valid, context.target.second
    balance = API + BALANCE.path
    # What one account alone may ask for is soon more than a node lets it.
    readers = cycle((valid, second) if context.edition >= SIXTH else (valid,))
    found = {
        f"GET {one.path}": Asked("GET", API + one.path, reader)
        for one, reader in zip(AUTH_READS, readers, strict=False)
    }
    found |= {f"GET {one.path}": Asked("GET", API + one.path) for one in (STATUS, METRICS, NETWORK)}
    if context.target.second_token is not None:
        found["GET a second balance"] = Asked("GET", balance, second)
    for name, reader in (("no token", ANONYMOUS), ("an invented token", INVENTED)):
        found[f"GET {BALANCE.path} with {name}"] = Asked("GET", balance, reader)
        found[f"a generation with {name}"] = Asked("POST", f"{API}/inference", reader, BODY)
    excess = float(EXCESS) * EXCESS
    sent: dict[str, Json] = {"to": "nobody", "amount": excess, "memo": ""}
    found |= {
        "GET the newest transaction": Asked("GET", f"{API}/wallet/transactions?limit=1", valid),
        "GET no route": Asked("GET", f"{API}/no-such-route-of-the-document"),
        "GET /api/training/global": Asked("GET", "/api/training/global"),
        "GET /api/network": Asked("GET", "/api/network"),
        "GET no block": Asked("GET", "/api/block/none"),
        "GET health": Asked("GET", API + HEALTH.path),
        "a generation": Asked("POST", f"{API}/inference", valid, BODY),
        "a stream": Asked("POST", f"{API}/inference", valid, {**BODY, "stream": True}),
        "a generation without a prompt": Asked("POST", f"{API}/inference", valid, LACKING),
        "a body that is no JSON": Asked("POST", f"{API}/inference", valid, b"{"),
        "a transfer without a receiver": Asked("POST", f"{API}/wallet/send", valid, {"amount": 1}),
        UNPAID: Asked("POST", f"{API}/wallet/send", valid, sent),
        "an unstake of too much": Asked("POST", f"{API}/wallet/unstake", valid, {"amount": excess}),
        "a change of nothing known": Asked("PATCH", f"{API}/config", valid, {"no_such_key": None}),
    }
    return found | _change(context)


def _change(context: Context) -> dict[str, Asked]:
    """Return a change of a value to itself, if the node takes one."""
    size = lookup(read_config(context), BATCH) if context.target.allows(Effect.MUTATE) else []
    body = nested({BATCH: size[0]}) if size else {}
    if not body or not patch(context, body).ok:
        return {}
    return {"a change": Asked("PATCH", f"{API}/config", context.target.valid, body)}


def _shown(name: str, answer: Answer) -> tuple[int, Json]:
    """Return the status of an answer, and what is the same in each answer to such a request."""
    document = answer.json_object() or {}
    return answer.status, document.get("address") if "balance" in name and answer.ok else None


def _send(context: Context, asked: Sequence[Asked]) -> list[Answer]:
    """Send requests on one connection; return the answers of those that it was kept for."""
    try:
        answers = context.kept([(one.method, one.path, one.account, one.body) for one in asked])
    except Unanswered as reason:
        if asked[0].streams and reason.why.startswith(UNENDED):
            why = f"on a connection that may be kept: {reason.why}"
            context.fails(ENDS, why, reason)
        raise
    if not answers:
        # The node asks to wait.
        return [_alone(context, asked[0])]
    for one, answer in zip(asked, answers, strict=False):
        if answer.ok and one.path.endswith("/inference"):
            context.budget.charge_stream(1)
    return answers


def _alone(context: Context, asked: Asked) -> Answer:
    """Send a request on a connection of its own, and wait where the node asks for it."""
    body = asked.body
    if asked.path.endswith("/inference") and asked.account == context.target.valid and body == BODY:
        return context.infer(body)
    content, document = (body, None) if isinstance(body, bytes) else (None, body)
    return context.http.call(
        asked.method, asked.path, credential=asked.account, json_body=document, content=content,
        timeout_s=context.target.inference_timeout_s,
    )  # fmt: skip


@requirement(ALIKE, ENDS)
def mixed_pairs(context: Context) -> None:
    """Send requests of each kind directly behind those of each other kind, on one connection."""
    if context.edition < FIFTH:
        raise Skipped("later editions ask for it")
    requests = _requests(context)
    usual: dict[str, tuple[int, Json]] = {}
    left = context.budget.left
    for name, asked in requests.items():
        first, again = (_shown(name, _alone(context, asked)) for _ in range(2))
        busy = first[0] in OTHERWISE and name != UNPAID
        if first == again and not busy and first[0] < 500:
            usual[name] = again
    # Each has been made twice, and would be once behind each other one.
    if (left - context.budget.left) * len(usual) / 2 > PART * left:
        usual = {name: shown for name, shown in usual.items() if name not in COSTLY}
    if len(usual) < 2:
        raise Skipped("hardly a request is answered alike twice")
    source = random.Random(context.target.seed)  # noqa: S311
    answers = list[Answer]()
    walk, ends, before = every_pair(list(usual), source), time.monotonic() + PAIRS_S, ""
    while walk and time.monotonic() < ends:
        answers = _send(context, [requests[name] for name in walk[:IN_A_ROW]])
        for name, answer in zip(walk, answers, strict=False):
            if before and _shown(name, answer) != usual[name] and answer.status not in OTHERWISE:
                _judge(context, requests, (before, name), usual[name])
            before = name
        walk = walk[len(answers) :]
    context.holds(ALIKE, answers[-1])


def _judge(
    context: Context, requests: dict[str, Asked], pair: tuple[str, str], usual: tuple[int, Json]
) -> None:
    """Make two requests once more, one behind the other; it has to be otherwise each time."""
    before, name = pair
    for _ in range(TRIES):
        answers = _send(context, [requests[before], requests[name]])
        if len(answers) == 1:
            answers += _send(context, [requests[name]])
        if _shown(name, answers[1]) == usual or answers[1].status in OTHERWISE:
            return
    alone = [_alone(context, requests[name]) for _ in range(2)][-1]
    if _shown(name, alone) != usual:
        raise Skipped(f"{name} is answered with {brief([*_shown(name, alone)])} meanwhile")
    shown = brief([*_shown(name, answers[1])])
    why = f"{name} behind {before}: {shown}, and else {brief([*usual])}"
    context.fails(ALIKE, why, *answers, alone)
