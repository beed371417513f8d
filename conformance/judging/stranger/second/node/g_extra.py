"""More faults, of several areas."""

import json
from g_base import table, route, after, before, nroute, op, swap

LINES, MADE, F, H = table()


# ---------------------------------------------------------------- routes
@F("rou-healthz-500-between-blocks", "NT-RULE-001", "/healthz answers 500 while a transaction waits for its block")
def _(N):
    async def w(old, r):
        if N.native.CHAIN.pool:
            raise N.native.NFail(500, "the index is locked")
        return await old(r)

    nroute("n_healthz", w)


@F("rou-artifact-missing-after-miss", "NT-ROUTE-014", "after an unknown digest was asked for no artifact is found any more")
def _(N):
    miss = []

    async def w(old, r):
        if miss:
            raise N.native.NFail(404, "no such file")
        try:
            return await old(r)
        except N.native.NFail:
            miss.append(1)
            raise

    nroute("n_artifact", w)


def more_routes(i, q, w, fn):
    @F(i, q, w)
    def _(N):
        old = N.native.routes

        def routes(app):
            fn(N, app)
            old(app)

        N.native.routes = routes


def login(N, app):
    async def f(r):
        from aiohttp import web

        return web.Response(status=302, headers={"Location": r.query.get("next", "/join")})

    app.router.add_get("/login", f)


more_routes("rou-login-next", "NT-RULE-010", "/login with a query parameter next redirects there instead of to /join", login)
more_routes("rou-wallet-other-path-balance", "NA-ERR-017", "a path below /wallet that does not exist is answered with the balance",
            lambda N, app: app.router.add_get("/api/v1/wallet/{tail:.+}", N.http.endpoint("balance", N.http.HANDLERS["balance"])))
# ---------------------------------------------------------------- guards
def reading(i, q, w, take):
    @F(i, q, w)
    def _(N):
        def f(old, ctx):
            t = take(ctx)
            return N.state.TOKENS[t] if t in N.state.TOKENS else old(ctx)

        swap(N.http, "authenticate", f)


reading("gua-token-in-cookie", "NA-AUTH-033", "a valid token is taken from the cookie token", lambda c: c.request.cookies.get("token"))
reading("gua-proofs-page-open", "NA-AUTH-033", "GET /proofs with a limit needs no token",
        lambda c: "tok-a" if c.route == "proofs" and "limit" in c.request.query and not c.request.headers.get("Authorization") else None)


@F("gua-connection-changes-config", "NA-AUTH-030", "PATCH /config without a header is served on a connection that has served a valid token")
def _(N):
    box = {}

    def w(old, ctx):
        k = id(ctx.request.transport)
        if ctx.route == "patch" and "Authorization" not in ctx.request.headers and k in box:
            return box[k]
        box[k] = old(ctx)
        return box[k]

    swap(N.http, "authenticate", w)


@F("gua-same-token-at-once-refused", "NA-AUTH-032", "of requests of one token at the same time all but the first yield 401")
def _(N):
    busy = set()
    import asyncio

    for n in ("balance", "history"):

        async def w(old, c):
            k = c.acct.address
            if k in busy:
                raise N.http.unauthorized()
            busy.add(k)
            try:
                await asyncio.sleep(0.03)
                return await old(c)
            finally:
                busy.discard(k)

        route(n, w)


# ---------------------------------------------------------------- figures
@F("eff-count-refused-takes-back", "NA-SANE-026", "a generation that is refused lowers requests_total by one")
def _(N):
    async def w(old, c):
        try:
            return await old(c)
        except N.http.Fail:
            N.state.FIG.requests -= 1
            raise

    route("inference", w)


@F("rel-gradients-accepted-per-layer", "NA-SANE-015", "gradients_accepted counts layers, gradients_submitted messages, so that more can be accepted than submitted")
def _(N):
    async def f(old, d):
        r = await old(d)
        if r["accepted"]:
            N.state.FIG.grads_ok += len(d["layer_gradients"]) - 1
        return r

    op("GossipGradient", f)


H("rel-total-ms-truncated", "NA-INF-024", "total_ms is cut to whole milliseconds while inference_ms is not, so that it can be below it",
  ("inference", lambda r, c: r["timing"].update(total_ms=float(int(r["timing"]["total_ms"])))))
H("rel-history-amount-four-decimals", "NA-WALLET-053", "amounts are rounded to four decimals in the history",
  ("history", lambda r, c: [e.update(amount=round(e["amount"], 4)) for e in r["transactions"]] and None))


@F("fld-json-nan-while-off", "GEN-010", "training.loss of the network statistics is NaN while training is switched off")
def _(N):
    after("network", lambda r, c: None if N.state.CONFIG["training.enabled"] else r["training"].update(loss=float("nan")))


@F("rel-network-layers-after-change", "NA-SANE-021", "after a change of max_memory_gb architecture.layers is the number of layers that the node holds")
def _(N):
    box = []
    after("patch", lambda r, c: box.append(1) if "resources.max_memory_gb" in r["updated"] else None)
    after("network", lambda r, c: r["architecture"].update(layers=len(N.model.HELD)) if box else None)


# ---------------------------------------------------------------- native
def previous(i, q, w, name, param, missing):
    @F(i, q, w)
    def _(N):
        box = {}

        async def f(old, r):
            try:
                d = await old(r)
            except N.native.NFail:
                d = None
            if d is None or missing(N, d):
                if box:
                    return box["d"]
                if d is None:
                    return await old(r)
            box["d"] = d
            return d

        nroute(name, f)


previous("rel-account-unknown-is-previous", "NT-RULE-059", "a key without an account is answered with the account that was read before", "n_account", "public_key",
         lambda N, d: d["public_key"] not in N.native.CHAIN.accounts)
previous("rel-request-unknown-is-previous", "NT-RULE-061", "an id that is not known is answered with the request that was read before", "n_request", "id", lambda N, d: False)


@F("ref-work-result-unsigned", "NT-RULE-053", "/work/result does not check the signature of a message, /work/poll does")
def _(N):
    async def w(old, r):
        v = N.native.verify
        N.native.verify = lambda *a: True
        try:
            return await old(r)
        finally:
            N.native.verify = v

    nroute("n_result", w)


@F("lim-request-32-characters-prompt", "NT-RULE-054", "the record of a broadcast request has only the first 32 characters of its prompt")
def _(N):
    async def w(old, r):
        q = await old(r)
        return dict(q, prompt=q["prompt"][:32])

    nroute("n_request", w)
