"""Faults of tokens, connections and error bodies."""

import asyncio, base64, time, urllib.parse
from g_base import table, route, after, before, swap

LINES, MADE, F, H = table()
E = "Authorization"


def conn(ctx):
    return id(ctx.request.transport)


def token(ctx):
    h = ctx.request.headers.get(E, "")
    return h[7:].strip() if h.startswith("Bearer ") else None


@F("gua-connection-remembers-token", "NA-AUTH-027", "a request without a header is served on a connection that has served a valid token")
def _(N):
    box = {}

    def w(old, ctx):
        k = conn(ctx)
        if E not in ctx.request.headers and k in box:
            return box[k]
        box[k] = old(ctx)
        return box[k]

    swap(N.http, "authenticate", w)


@F("gua-connection-keeps-refusing", "NA-AUTH-028", "a connection on which a token was refused refuses valid ones as well")
def _(N):
    box = set()

    def w(old, ctx):
        if conn(ctx) in box:
            raise N.http.unauthorized()
        try:
            return old(ctx)
        except N.http.Fail:
            box.add(conn(ctx))
            raise

    swap(N.http, "authenticate", w)


@F("gua-connection-keeps-account", "NA-AUTH-029", "the account of the first valid token on a connection is used for the valid tokens that follow")
def _(N):
    box = {}

    def w(old, ctx):
        return box.setdefault(conn(ctx), old(ctx))

    swap(N.http, "authenticate", w)


@F("gua-account-shared-at-once", "NA-AUTH-026", "requests at the same moment share the account of the latest token")
def _(N):
    box = {}

    def w(old, ctx):
        box["a"] = old(ctx)
        return box["a"]

    swap(N.http, "authenticate", w)

    async def bal(old, c):
        await asyncio.sleep(0.03)
        c.acct = box["a"]
        return await old(c)

    route("balance", bal)


@F("gua-history-query-before-token", "NA-AUTH-034", "GET /wallet/transactions checks its query before the token, so that a wrong limit with an invalid token yields 400")
def _(N):
    def w(old, ctx):
        if ctx.route == "history":
            N.http.query_int(ctx, "limit", 1)
            N.http.query_int(ctx, "offset", 1)
        return old(ctx)

    swap(N.http, "authenticate", w)


@F("gua-refused-after-bad-body", "NA-AUTH-031", "the request after one that was refused with 400 needs another login and yields 401")
def _(N):
    box = {}

    def w(old, ctx):
        if box.pop(token(ctx), None):
            raise N.http.unauthorized()
        return old(ctx)

    swap(N.http, "authenticate", w)
    for n in ("send", "stake", "inference", "patch"):

        async def f(old, c):
            try:
                return await old(c)
            except N.http.Fail as e:
                if e.status == 400:
                    box[token(c)] = 1
                raise

        route(n, f)


@F("gua-lockout-after-three", "NA-AUTH-022", "after three refused tokens within a second a valid one from the same address is refused too")
def _(N):
    box = []

    def w(old, ctx):
        n = time.monotonic()
        box[:] = [t for t in box if n - t < 1]
        if len(box) >= 3:
            raise N.http.unauthorized()
        try:
            return old(ctx)
        except N.http.Fail:
            box.append(n)
            raise

    swap(N.http, "authenticate", w)


def reading(i, q, w, take):
    """Another place or form in which a token is taken."""

    @F(i, q, w)
    def _(N):
        def f(old, ctx):
            t = take(ctx)
            return N.state.TOKENS[t] if t in N.state.TOKENS else old(ctx)

        swap(N.http, "authenticate", f)


def basic(ctx):
    h = ctx.request.headers.get(E, "")
    try:
        return base64.b64decode(h[6:]).decode().split(":", 1)[1] if h.startswith("Basic ") else None
    except Exception:
        return None


reading("gua-basic-password", "NA-AUTH-033", "a valid token is taken as the password of the scheme Basic", basic)
reading("gua-token-in-query", "NA-AUTH-033", "a valid token is taken from the query parameter access_token", lambda c: c.request.query.get("access_token"))
reading("gua-list-of-tokens", "NA-AUTH-033", "of several tokens with commas the last is taken", lambda c: (token(c) or "").split(",")[-1].strip() if "," in (token(c) or "") else None)
reading("gua-token-percent-decoded", "NA-AUTH-021", "a token is decoded from percent signs before it is compared", lambda c: urllib.parse.unquote(token(c) or ""))
reading("gua-expired-with-history-offset", "NA-AUTH-002", "an expired token reads the further pages of the history",
        lambda c: "tok-a" if token(c) == "tok-x" and c.route == "history" and "offset" in c.request.query else None)


@F("gua-expired-stream", "NA-AUTH-018", "an expired token is served with a stream")
def _(N):
    async def rb(ctx):
        return await old_rb(ctx)

    old_rb = N.http.read_body

    def w(old, ctx):
        if token(ctx) == "tok-x" and ctx.route == "inference":
            return N.state.TOKENS["tok-a"]
        return old(ctx)

    swap(N.http, "authenticate", w)

    def b(c):
        if token(c) == "tok-x" and c.body.get("stream") is not True:
            raise N.http.unauthorized()

    before("inference", b)


# ---------------------------------------------------------------- error bodies
@F("fld-401-details-null", "NA-ERR-004", "details of a 401 is null")
def _(N):
    swap(N.http, "error_body", lambda old, f: {"error": dict(old(f)["error"], details=None)} if f.status == 401 else old(f))


def fail(i, q, w, fn):
    H(i, q, w, ("fail", fn))


def limited(o, f):
    if f.status == 429:
        o.status = 503


def fraction(o, f):
    if f.status == 429:
        o.data["error"]["details"]["retry_after"] = 0.5


def html(o, f):
    if f.status in (401, 402):
        o.ctype = "text/html"


def message(o, f):
    if f.status == 402:
        o.data["error"]["message"] = {"text": f.message}


fail("ref-429-status-503", "NA-ERR-028", "too many requests yield 503 with the code RATE_LIMITED", limited)
fail("ref-429-retry-fraction", "NA-ERR-007", "retry_after of a 429 has a fraction", fraction)
fail("rou-type-html-of-refusals", "GEN-012", "the JSON body of a 401 or 402 has the Content-Type text/html", html)
fail("ref-402-message-object", "NA-ERR-003", "message of a 402 is an object", message)


@F("ref-429-second-without-body", "NA-ERR-001", "the second 429 in a row has no body")
def _(N):
    box = {"n": 0}

    def h(o, c):
        if o.status == 429:
            box["n"] += 1
            if box["n"] > 1:
                o.text = ""

    N.core.HOOKS.setdefault("out:*", []).append(h)
