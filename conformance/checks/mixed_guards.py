"""Interface 5: Auth routes with drawn queries, bodies and headers, none of which is a valid token.

Which of several faults of a request is told first is open for a request without any token: it only
must not be served. An invalid token is told before anything that is wrong with the values of a
body; many servers look at a query, or whether a body can be read at all, before that.
"""

import base64
import random
from dataclasses import dataclass, replace
from itertools import product

from conformance.checks.auth import INVENTED, TOO_MANY
from conformance.checks.guards import smallest_bodies
from conformance.checks.node_reads import AUTH_READS
from conformance.checks.reading import ABSENT
from conformance.context import API, Context
from conformance.editions import FOURTH, SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.httprequest import ANONYMOUS, USUAL, Credential, Written
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.strictjson import Json, brief

# So many readings, and changes, are drawn for each kind of header but the usual two.
DRAWS = 8
UNAUTHORIZED = 401
# Far above what any account has.
EXCESS = 1_000_000_000.0
Query = dict[str, object]
QUERIES: tuple[Query, ...] = (
    {"limit": "many"}, {"limit": -1}, {"offset": -1}, {"offset": "last"},
    {"limit": 1, "offset": 1_000_000}, {"limit": 0}, {"fields": "all"}, {"limit": 1, "offset": 1},
)  # fmt: skip
# A token as a password, for a shell.
LONG = 6000
PAIR = "$(printf %s conformance:$TOKEN | base64 -w0)"
# Its first letter in percent encoding, and the rest.
PERCENT = """%$(printf %x "'$TOKEN")${TOKEN#?}"""
# Where other interfaces have a token, or take somebody's word for who he is.
FORGED = "not-a-token-of-this-node"
ELSEWHERE: tuple[Query, ...] = (
    {"token": FORGED, "access_token": FORGED, "auth_token": FORGED, "authorization": FORGED},
    {"api_key": FORGED, "apikey": FORGED, "key": FORGED, "session": FORGED, "user": "admin"},
)
# What turns a guard off in programs under development.
SWITCHES: tuple[Query, ...] = (
    {"debug": 1, "test": 1, "dev": 1, "admin": 1, "internal": 1, "local": 1, "noauth": 1},
    {"debug": "true", "test": "true", "admin": "true", "internal": "true", "auth": "false"},
)
SWITCHED = Written(others=(
    ("X-Debug", "1"), ("X-Test", "1"), ("X-Admin", "true"), ("X-Internal", "true"),
    ("X-Internal-Request", "1"), ("X-Forwarded-Host", "localhost"), ("X-User", "admin"),
))  # fmt: skip
# Without an Origin, which a node may refuse by itself.
OF_BROWSERS = Written(
    accept="text/html,application/xhtml+xml;q=0.9,*/*;q=0.8",
    others=(("User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:128.0)"),),
)
TOKEN_NAMES = ("token", "access_token", "auth_token", "authorization", "api_key", "key")
TRUSTED = Written(others=(
    ("X-API-Key", FORGED), ("X-Auth-Token", FORGED), ("X-Access-Token", FORGED),
    ("Proxy-Authorization", f"Bearer {FORGED}"), ("Cookie", f"token={FORGED}; session={FORGED}"),
    ("X-Forwarded-For", "127.0.0.1"), ("X-Real-IP", "127.0.0.1"),
))  # fmt: skip
# Methods that a route has not.
OTHER_METHODS = ("POST", "PUT", "DELETE", "OPTIONS")
# Headers in which other interfaces have their tokens, and bodies.
OTHER_HEADERS = ("X-API-Key", "X-Auth-Token", "X-Access-Token", "Proxy-Authorization")
TYPES = tuple(Written(content_type=kind) for kind in ("text/plain", "application/octet-stream"))
NO_JSON = b'{"amount": '


@dataclass(frozen=True)
class Asked:
    """A request without its header."""

    method: str
    path: str
    query: Query | None = None
    body: Json = None
    content: bytes | None = None
    written: Written = USUAL

    def __str__(self) -> str:
        """Name it."""
        shown = brief(self.body) if self.body is not None else (self.content or b"").decode()
        shown += ", with forged headers" if self.written.others else ""
        shown += f", as {self.written.content_type}" if self.written in TYPES else ""
        return f"{self.method} {self.path} {self.query or ''} {shown}".rstrip()


def _readings() -> list[Asked]:
    return [Asked("GET", one.path, query) for one, query in product(AUTH_READS, QUERIES)]


def _changes(context: Context) -> list[Asked]:
    """Return requests with odd bodies."""
    found = list[Asked]()
    for method, path, body in smallest_bodies(context):
        odd: list[Json] = [{}, {**body, "not_in_the_document": 1}]
        odd += [{key: value for key, value in body.items() if key != one} for one in body]
        odd += [{**body, key: [value]} for key, value in body.items()]
        if context.edition >= SEVENTH:
            # Longer than what servers read at once.
            odd.append({**body, "not_in_the_document": "x" * LONG})
        if "amount" in body:
            odd.append({**body, "amount": EXCESS})
        found += [Asked(method, path, body=one) for one in odd]
        found.append(Asked(method, path, content=NO_JSON))
    return found


def _forged(context: Context, *, switched: bool) -> list[Asked]:
    """Return requests of each route with invented tokens where no node has to look for one.

    Later editions have requests with the switches of other programs, too.
    """
    bare = [Asked("GET", one.path) for one in AUTH_READS]
    bare += [Asked(method, path, body=body) for method, path, body in smallest_bodies(context)]
    later = switched and context.edition >= SIXTH
    queries = (*ELSEWHERE, *SWITCHES) if later else ELSEWHERE
    found = [replace(asked, query=query) for asked, query in product(bare, queries)]
    headers = (TRUSTED, SWITCHED) if later else (TRUSTED,)
    if switched and context.edition >= SEVENTH:
        headers = (*headers, OF_BROWSERS)
    found += [replace(asked, written=written) for asked, written in product(bare, headers)]
    # Whether a body is read as JSON, its type may say.
    changes = [asked for asked in bare if asked.body is not None]
    return found + [replace(asked, written=kind) for asked, kind in product(changes, TYPES)]


def _headers(context: Context) -> dict[str, Credential]:
    """Return headers that are no valid bearer token, by what they are."""
    token = context.target.token or ""
    pair = base64.b64encode(f"conformance:{token}".encode()).decode()
    expired = {"an expired token": context.target.expired} if context.target.expired_token else {}
    return {
        "no header": ANONYMOUS,
        "an invented token": INVENTED,
        **expired,
        "a valid token with the scheme Basic": Credential(f"Basic {token}", "Basic $TOKEN"),
        "a valid token in percent encoding": Credential(
            f"Bearer %{ord(token[:1] or ' '):02x}{token[1:]}", f"Bearer {PERCENT}"
        ),
        "a valid token as a password": Credential(f"Basic {pair}", f"Basic {PAIR}"),
        "a valid token with the scheme Token": Credential(f"Token {token}", "Token $TOKEN"),
        "a valid token without a scheme": Credential(token, "$TOKEN"),
    }


@requirement("NA-AUTH-037", "NA-AUTH-038")
def token_in_query(context: Context) -> None:
    """GET with a valid token in the query, and without a header; HEAD without any token."""
    token = context.target.token or ""
    for resource in AUTH_READS:
        answer = context.http.call("HEAD", f"{API}{resource.path}")
        why = f"HEAD {resource.path} without a token: status {answer.status}"
        if answer.status not in (*ABSENT, TOO_MANY) and answer.status < 500:
            context.judge("NA-AUTH-038", not answer.ok, why, answer)
    for resource, name in product(AUTH_READS, TOKEN_NAMES):
        query: Query = {name: token}
        answer = context.api("GET", resource.path, credential=ANONYMOUS, query=query)
        if answer.status not in (*ABSENT, TOO_MANY) and answer.status < 500:
            why = f"GET {resource.path} with a token in the query as {name}: {answer.status}"
            context.judge("NA-AUTH-037", not answer.ok, why, answer)


@requirement("NA-AUTH-051")
def token_elsewhere(context: Context) -> None:
    """GET and POST with a valid token in other headers, in a cookie or in the body."""
    if context.edition < SIXTH:
        raise Skipped("later editions ask for it")
    token = context.target.token or ""
    pairs = ", ".join(f"{name}={token}" for name in TOKEN_NAMES).replace(",", ";")
    headers = [*((name, token) for name in OTHER_HEADERS), ("Cookie", pairs)]
    written = Written(others=tuple(headers))
    asked = [Asked("GET", one.path, written=written) for one in AUTH_READS]
    if context.edition >= SEVENTH:
        # One by itself, as it is and as a header would have it.
        cookies = [f"{name}={form}{token}" for name in TOKEN_NAMES for form in ("", "Bearer%20")]
        ways = [Written(others=(("Cookie", cookie),)) for cookie in cookies]
        asked += [Asked("GET", AUTH_READS[0].path, written=way) for way in ways]
    for method, path, body in smallest_bodies(context):
        named: dict[str, Json] = dict.fromkeys(TOKEN_NAMES, token)
        asked.append(Asked(method, path, body={**body, **named}))
    for one in asked:
        answer = _ask(context, one, ANONYMOUS)
        if answer.status not in (*ABSENT, TOO_MANY) and answer.status < 500:
            where = "other headers" if one.body is None else "the body"
            why = f"{one.method} {one.path} with a token in {where}: status {answer.status}"
            context.judge("NA-AUTH-051", not answer.ok, why, answer)


@requirement("NA-AUTH-050")
def guards_elsewhere(context: Context) -> None:
    """GET paths nearly those of Auth routes, and use other methods there, without a valid token.

    What is answered with success has to be the resource to count: a server may have a page of its
    own for any other path.
    """
    if context.edition < SIXTH:
        raise Skipped("later editions ask for it")
    for resource in AUTH_READS:
        control = context.api("GET", resource.path, credential=context.target.valid)
        shown = control.json_object() if control.ok else None
        if not shown:
            continue
        asked = [(method, API + resource.path, ANONYMOUS) for method in OTHER_METHODS]
        asked += [("GET", path, ANONYMOUS) for path in _nearly(API + resource.path)]
        asked.append(("GET", f"{API}{resource.path}/", INVENTED))
        for method, path, credential in asked:
            answer = context.http.call(method, path, credential=credential)
            found = answer.json_object() if answer.ok else None
            served = found is not None and shown.keys() <= found.keys()
            why = f"{method} {path} with {credential.shown or 'no header'} is served"
            context.judge("NA-AUTH-050", not served, why, control, answer)


def _nearly(path: str) -> tuple[str, ...]:
    """Return paths that a server may take for this one."""
    at = path.rindex("/") + 1
    folder, name = path[:at], path[at:]
    return (
        f"{path}/", f"{API}/{path.removeprefix(API)}", f"{folder}%{ord(name[0]):02x}{name[1:]}",
        path.upper(), folder + name.upper(), folder + name.title(), f"{folder}./{name}",
        f"{folder}x/../{name}", f"{path};x=1", f"{path}.json", f"{path}%20", f"/{path}",
    )  # fmt: skip


@requirement("NA-AUTH-033", "NA-AUTH-034", "NA-AUTH-023")
def mixed_guards(context: Context) -> None:
    """GET, POST and PATCH with drawn queries and bodies, and with headers that are no token."""
    source = random.Random(context.target.seed)  # noqa: S311
    readings, changes = _readings(), _changes(context)
    for name, credential in _headers(context).items():
        usual = credential in (ANONYMOUS, INVENTED)
        drawn = changes if usual else source.sample(changes, min(DRAWS, len(changes)))
        asks = readings if credential == context.target.expired else source.sample(readings, DRAWS)
        if usual and context.edition >= FOURTH:
            asks += _forged(context, switched=credential is ANONYMOUS)
        for asked in (*asks, *drawn):
            answer = _ask(context, asked, credential)
            if answer.status in (*ABSENT, TOO_MANY) or answer.status >= 500:
                continue
            why = f"{asked} with {name}: status {answer.status}"
            context.judge("NA-AUTH-033", not answer.ok, why, answer)
            if credential is INVENTED and not answer.ok:
                ident = "NA-AUTH-034" if asked.body is None else "NA-AUTH-023"
                context.judge(ident, answer.status == UNAUTHORIZED, why, answer)


def _ask(context: Context, asked: Asked, credential: Credential) -> Answer:
    return context.api(
        asked.method, asked.path, credential=credential, query=asked.query, json_body=asked.body,
        content=asked.content, written=asked.written,
    )  # fmt: skip
