"""Interface 5: what a connection has to do with tokens, which is nothing.

Each request shows its token by itself. So a connection that has served a valid token refuses the
next request without one, and one that has refused a request serves the next with a valid token. A
target may end a connection after any answer; what was not answered then shows nothing.
"""

import random
from contextlib import closing, suppress
from urllib.parse import urlsplit

from conformance.catalogue import Effect
from conformance.checks.auth import INVENTED, OPEN_READS
from conformance.checks.guards import smallest_bodies
from conformance.checks.node_reads import AUTH_READS, BALANCE
from conformance.checks.reading import Resource
from conformance.context import API, Context
from conformance.editions import FOURTH, SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.httprequest import ANONYMOUS, Credential
from conformance.httpwire import Answer
from conformance.idle import connection_to
from conformance.registry import requirement
from conformance.strictjson import Json, brief

TRIES = 3
UNAUTHORIZED = 401
# A node may ask to wait, or be busy for a moment.
PERMITTED = (429, 503)
# As a shell makes it of the token.
SWAPPED = """$(printf %s "$TOKEN" | tr 'A-Za-z' 'a-zA-Z')"""
Asked = tuple[str, str, Credential, Json]


def _reading(resource: Resource, credential: Credential) -> Asked:
    return "GET", resource.path, credential, None


def _ask(context: Context, *asked: Asked) -> list[Answer]:
    """Send requests on one connection; every answer is judged as any other."""
    return context.kept([(method, API + path, *rest) for method, path, *rest in asked])


def _ask_alone(context: Context, asked: Asked) -> Answer:
    """Send a request on a connection of its own."""
    method, path, credential, body = asked
    return context.api(method, path, credential=credential, json_body=body)


def _invalid(context: Context, drawn: random.Random) -> Credential:
    """Draw a token that is not valid."""
    expired = [context.target.expired] if context.target.expired_token else []
    return drawn.choice([INVENTED, *expired])


def _swapped(context: Context) -> Credential:
    """Return the valid token with its capitals and small letters exchanged."""
    token = (context.target.token or "").swapcase()
    return Credential(f"Bearer {token}", f"Bearer {SWAPPED}")


def _shown(credential: Credential) -> str:
    return credential.shown or "no header"


@requirement("NA-AUTH-027", "NA-AUTH-028", "NA-AUTH-029")
def connection_reads(context: Context) -> None:
    """GET each Auth route on one connection with and without a valid token, in turn."""
    drawn = random.Random(context.target.seed)  # noqa: S311 - no secret
    valid = context.target.valid
    for resource in drawn.sample(AUTH_READS, len(AUTH_READS)):
        other = drawn.choice(AUTH_READS)
        alike = [_swapped(context)] if context.edition >= FOURTH else []
        for bad in (ANONYMOUS, _invalid(context, drawn), *alike):
            _judge_after_valid(context, [_reading(other, valid), _reading(resource, bad)])
        bad = drawn.choice([ANONYMOUS, _invalid(context, drawn)])
        _judge_after_refusal(context, _reading(other, bad), _reading(resource, valid))
    _judge_accounts(context)


def _judge_after_valid(context: Context, asked: list[Asked], ident: str = "NA-AUTH-027") -> None:
    """Rule on the last request, which has no valid token, after one that has."""
    answers = _ask(context, *asked)
    if len(answers) < len(asked) or not answers[0].ok:
        return
    method, path, bad, _ = asked[-1]
    last = answers[-1]
    if last.ok and _ask_alone(context, asked[-1]).ok:
        # It is served on any connection, which other requirements report.
        return
    served = f"{method} {path} with {_shown(bad)} is served with status {last.status}"
    why = f"{served} on a connection that has served a valid token"
    if last.ok or last.status == UNAUTHORIZED:
        context.judge(ident, not last.ok, why, *answers)


def _judge_after_refusal(context: Context, refused: Asked, good: Asked) -> None:
    """Rule on a request with a valid token, after one that is refused with 401."""
    seen: list[Answer] = []
    for _ in range(TRIES):
        seen = _ask(context, refused, good)
        if len(seen) < 2 or seen[0].status != UNAUTHORIZED:
            return
        if seen[1].status != UNAUTHORIZED:
            context.holds("NA-AUTH-028", *seen)
            return
        if not _ask_alone(context, good).ok:
            return
    path = good[1]
    why = f"GET {path} with a valid token gets 401 on a connection that has refused a request"
    context.fails("NA-AUTH-028", f"{why} with {_shown(refused[2])}", *seen)


def _judge_accounts(context: Context) -> None:
    """Rule on the accounts of two tokens that are read in turn on one connection."""
    if context.target.second_token is None:
        return
    tokens = (context.target.valid, context.target.second)
    alone = _addresses([_ask_alone(context, _reading(BALANCE, token)) for token in tokens])
    if None in alone or alone[0] == alone[1]:
        return
    turns = [*tokens, *tokens]
    answers = _ask(context, *(_reading(BALANCE, token) for token in turns))
    found, expected = _addresses(answers), (alone + alone)[: len(answers)]
    why = f"two accounts in turn on one connection have the addresses {brief(found)}"
    if len(answers) > 1 and None not in found:
        context.judge("NA-AUTH-029", found == expected, f"{why}, not {brief(expected)}", *answers)


def _addresses(answers: list[Answer]) -> list[Json]:
    return [(answer.json_object() or {}).get("address") for answer in answers]


@requirement("NA-AUTH-030")
def connection_writes(context: Context) -> None:
    """POST and PATCH without a valid token on a connection that has served one."""
    drawn = random.Random(context.target.seed)  # noqa: S311 - no secret
    for method, path, body in smallest_bodies(context):
        good = _reading(drawn.choice(AUTH_READS), context.target.valid)
        for bad in (ANONYMOUS, _invalid(context, drawn)):
            asked: list[Asked] = [good, (method, path, bad, body)]
            _judge_after_valid(context, asked, "NA-AUTH-030")


# -- after other requests --------------------------------------------------------------------------

# Far above what any account has.
EXCESS = 1_000_000_000.0


def _refusals(context: Context, own: Json) -> list[tuple[str, str, Json]]:
    """Return requests that are refused for another reason than their token."""
    found: list[tuple[str, str, Json]] = [
        ("POST", "/wallet/send", {"to": own, "amount": EXCESS, "memo": "conformance"}),
        ("POST", "/wallet/stake", {"amount": EXCESS, "duration_days": 30}),
        ("POST", "/wallet/unstake", {}),
        ("POST", "/inference", {"prompt": "Hello", "max_tokens": 1, "temperature": 2.5}),
        ("GET", "/no-such-route-of-the-document", None),
        ("GET", "/inference", None),
    ]
    if context.target.allows(Effect.MUTATE):
        found.append(("PATCH", "/config", []))
    return found


@requirement("NA-AUTH-031")
def token_after_refusals(context: Context) -> None:
    """GET drawn Auth routes after requests with the same token that are refused for their body."""
    drawn = random.Random(context.target.seed)  # noqa: S311 - no secret
    token = context.target.second
    control = context.api("GET", BALANCE.path, credential=token)
    if not control.ok:
        raise Skipped(f"the token is answered with status {control.status}")
    own = (control.json_object() or {}).get("address")
    requests = _refusals(context, own)
    for method, path, body in drawn.sample(requests, len(requests)):
        _judge_after_other(context, (method, path, token, body), drawn.choice(AUTH_READS))


def _judge_after_other(context: Context, asked: Asked, resource: Resource) -> None:
    """Rule on a reading after a request that is refused, with the same token."""
    method, path, token, body = asked
    for _ in range(TRIES):
        refused = context.api(method, path, credential=token, json_body=body)
        if refused.status == UNAUTHORIZED or refused.ok:
            return
        first, again = (context.api("GET", resource.path, credential=token) for _ in range(2))
        if first.ok:
            context.holds("NA-AUTH-031", refused, first)
            return
        if first.status != UNAUTHORIZED or not again.ok:
            return
    why = f"after {method} {path} with status {refused.status} the same token gets 401"
    context.fails("NA-AUTH-031", f"{why} for GET {resource.path}, and then {again.status}",
                  refused, first, again)  # fmt: skip


# So many requests of one kind in a row.
IN_A_ROW = 5
REPEATED = "NA-ROUTE-035"


@requirement(REPEATED)
def reads_after_many(context: Context) -> None:
    """GET each route of the node API after several requests in a row that are refused alike."""
    if context.edition < SIXTH:
        raise Skipped("later editions ask for it")
    token = context.target.valid
    requests: list[Asked] = [
        ("GET", "/no-such-route-of-the-document", token, None),
        ("GET", BALANCE.path, INVENTED, None),
        ("GET", "/wallet/send", token, None),
    ]
    if context.target.allows(Effect.SPEND):
        requests.append(("POST", "/inference", token, {"max_tokens": 1}))
    reads = [*OPEN_READS, *AUTH_READS]
    served = [each for each in reads if context.api("GET", each.path, credential=token).ok]
    for asked in requests:
        _repeat(context, asked)
        for resource in served:
            answer = context.api("GET", resource.path, credential=token)
            if _is_read(answer):
                context.holds(REPEATED, answer)
            else:
                _judge_after_many(context, asked, resource)


def _repeat(context: Context, asked: Asked) -> Answer:
    return [_ask_alone(context, asked) for _ in range(IN_A_ROW)][-1]


def _is_read(answer: Answer) -> bool:
    return answer.ok or answer.status in PERMITTED


def _judge_after_many(context: Context, asked: Asked, resource: Resource) -> None:
    """Rule on a reading after several refusals, where the next one is served each time."""
    for _ in range(TRIES):
        refused = _repeat(context, asked)
        first, again = (
            context.api("GET", resource.path, credential=context.target.valid) for _ in range(2)
        )
        if _is_read(first) or not again.ok:
            return
    why = f"after {IN_A_ROW} of {asked[0]} {asked[1]}, with status {refused.status}, GET"
    why = f"{why} {resource.path} has status {first.status}, and then {again.status}"
    context.fails(REPEATED, why, refused, first, again)


# -- connections that end --------------------------------------------------------------------------

SAID, BODILESS = "NA-ROUTE-038", "NA-ROUTE-039"
# So many requests go over one connection.
BOTH, SOME, MOST = 2, 4096, 65536


@requirement(SAID)
def connections_ended(context: Context) -> None:
    """GET a route behind each of several refusals on its connection, which may say that it ends."""
    if context.edition < SEVENTH:
        raise Skipped("later editions ask for it")
    token = context.target.second
    good = _reading(BALANCE, token)
    kept = _ask(context, good, good)
    if len(kept) < BOTH or not all(answer.ok for answer in kept):
        raise Skipped("a connection is ended after what is served, too")
    own = (kept[0].json_object() or {}).get("address")
    bad: list[Asked] = [
        (method, path, token, body) for method, path, body in _refusals(context, own)
    ]
    for asked in [_reading(BALANCE, ANONYMOUS), *bad]:
        _judge_end(context, asked, good)


def _judge_end(context: Context, refused: Asked, good: Asked) -> None:
    """Rule on a connection behind a refusal: whether it is kept, or says that it is not."""
    for _ in range(TRIES):
        answers = _ask(context, refused, good)
        if not answers or answers[0].ok:
            return
        if len(answers) == BOTH or "close" in answers[0].header("Connection").lower():
            context.holds(SAID, *answers)
            return
    method, path = refused[:2]
    why = f"the connection ends behind {method} {path} with status {answers[0].status}"
    context.fails(SAID, f"{why}, {TRIES} times, and no answer has Connection: close", *answers)


@requirement(BODILESS)
def heads_answered(context: Context) -> None:
    """HEAD open routes, each on a connection of its own that ends behind the answer."""
    if context.edition < SEVENTH:
        raise Skipped("later editions ask for it")
    for resource in OPEN_READS:
        path = f"{API}{resource.path}"
        answer = context.http.call("HEAD", path)
        if not answer.ok:
            continue
        bodies = [_behind_head(context, path) for _ in range(2)]
        why = f"behind the header of an answer to HEAD {path} there is {brief(bodies[0])}"
        context.judge(BODILESS, not all(bodies), why, answer)


def _behind_head(context: Context, path: str) -> bytes:
    """Return what comes behind the header, which a client takes for the next answer."""
    parts, got = urlsplit(context.target.url), b""
    if context.http.idle is not None:
        # A target may serve one connection at a time.
        context.http.idle.close()
    connection = connection_to(parts, context.target.timeout_s)
    lines = (f"HEAD {parts.path}{path} HTTP/1.1", f"Host: {parts.netloc}", "Connection: close")
    with suppress(OSError), closing(connection):
        connection.connect()
        connection.sock.sendall("\r\n".join([*lines, "", ""]).encode())
        while len(got) < MOST and (more := connection.sock.recv(SOME)):
            got += more
    return got.partition(b"\r\n\r\n")[2]
