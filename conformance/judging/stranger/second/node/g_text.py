"""Faults of generated text: parameters, stop sequences, streams, counting and charges."""

import asyncio, hashlib, json, time
from g_base import table, route, after, before

LINES, MADE, F, H = table()


@F("rel-cost-small-in-micro", "NA-SANE-040", "a cost below a hundredth is given in millionths, with another name of the currency")
def _(N):
    def w(r, c):
        if 0 < r["cost"]["amount"] < 0.01:
            r["cost"] = {"amount": round(r["cost"]["amount"] * 10**6), "currency": "u" + r["cost"]["currency"]}

    after("inference", w)


@F("rel-prompt-tokens-cached-by-beginning", "NA-INF-032", "prompt_tokens comes from a cache whose key is the first 24 characters of the prompt")
def _(N):
    old, box = N.model.prompt_tokens, {}
    N.model.prompt_tokens = lambda p: box.setdefault(p[:24], old(p))


@F("rel-sse-prompt-tokens-of-previous", "NA-SSE-017", "prompt_tokens of a stream is that of the generation before it")
def _(N):
    box = {}

    def fin(e, c):
        if "n" in box:
            e["usage"]["prompt_tokens"] = box["n"]
            e["usage"]["total_tokens"] = box["n"] + e["usage"]["completion_tokens"]
        box["n"] = N.model.prompt_tokens(c.body["prompt"])

    N.core.HOOKS.setdefault("sse_final", []).append(fin)
    after("inference", lambda r, c: box.update(n=r["usage"]["prompt_tokens"]) and None)


@F("rel-gen-id-of-prompt", "NA-INF-026", "the id of a result is a digest of its request, so that equal requests share one")
def _(N):
    after("inference", lambda r, c: r.update(id="gen-" + hashlib.sha256(repr(c.body).encode()).hexdigest()[:20]))


@F("eff-charge-reserve-on-stop", "NA-WALLET-023", "a generation that a stop sequence ends keeps the price of max_tokens")
def _(N):
    def w(r, c):
        if r["finish_reason"] == "stop" and c.body.get("stop"):
            c.acct.available -= (c.body.get("max_tokens", 100) - r["tokens_generated"]) * N.state.PRICE_OUT

    after("inference", w)


@F("eff-charge-overwrites-balance", "NA-WALLET-052", "a charge writes back the balance of the beginning of the generation, so that a transfer made in between is undone")
def _(N):
    async def w(old, c):
        a, had = c.acct, c.acct.available
        r = await old(c)
        if isinstance(r, dict):
            a.available = had - N.state.atoms(r["cost"]["amount"])
        return r

    route("inference", w)


@F("eff-charge-to-latest-account", "NA-WALLET-033", "a generation is charged to the account that has made the latest request when it ends")
def _(N):
    box, auth = {}, N.http.authenticate

    def authenticate(ctx):
        box["a"] = auth(ctx)
        return box["a"]

    N.http.authenticate = authenticate

    def w(r, c):
        x = N.state.atoms(r["cost"]["amount"])
        c.acct.available += x
        box["a"].available -= x

    after("inference", w)


@F("eff-count-at-once-lost", "NA-COUNT-008", "of generations at the same time only the one that ends last is counted")
def _(N):
    async def w(old, c):
        G = N.state.FIG
        q, t = G.requests, G.tokens
        r = await old(c)
        if isinstance(r, dict):
            G.requests, G.tokens = q + 1, t + r["tokens_generated"]
        return r

    route("inference", w)


@F("eff-count-same-prompt-once", "NA-COUNT-001", "a request whose prompt has been seen before is not counted")
def _(N):
    seen = set()

    async def w(old, c):
        G, k = N.state.FIG, c.body.get("prompt")
        q = G.requests
        r = await old(c)
        if k in seen:
            G.requests = q
        seen.add(k)
        return r

    route("inference", w)


@F("eff-stop-of-previous", "NA-INF-041", "stop sequences stay in force for the next request of the account that has none")
def _(N):
    box = {}

    def w(c):
        k = c.acct.address
        if "stop" in c.body:
            box[k] = c.body["stop"]
        elif k in box:
            c.body["stop"] = box.pop(k)

    before("inference", w)


@F("lim-max-tokens-of-previous", "NA-INF-004", "without max_tokens that of the request before it holds")
def _(N):
    box = {}

    def w(c):
        if "max_tokens" in c.body:
            box["m"] = c.body["max_tokens"]
        elif "m" in box:
            c.body["max_tokens"] = box["m"]

    before("inference", w)


@F("ref-stream-array-temperature", "NA-INF-043", "in a stream a temperature in an array of one is taken out of it")
def _(N):
    def w(c):
        t = c.body.get("temperature")
        if c.body.get("stream") is True and isinstance(t, list) and len(t) == 1:
            c.body["temperature"] = t[0]

    before("inference", w)


@F("lim-temperature-rounded", "NA-INF-007", "a temperature is rounded to one decimal before its range is checked")
def _(N):
    def w(c):
        if N.http.is_num(c.body.get("temperature")):
            c.body["temperature"] = round(c.body["temperature"], 1)

    before("inference", w)


@F("lim-temperature-stream-unchecked", "NA-INF-007", "in a stream the range of the temperature is not checked")
def _(N):
    def w(c):
        if c.body.get("stream") is True and N.http.is_num(c.body.get("temperature")):
            c.body["temperature"] = min(2, max(0, c.body["temperature"]))

    before("inference", w)


def generation(i, q, w):
    """fn(self, c-less) changes a Generation after it has been made."""

    def deco(fn):
        @F(i, q, w)
        def _(N):
            init = N.model.Generation.__init__

            def new(self, *a):
                init(self, *a)
                fn(self)

            N.model.Generation.__init__ = new

        return fn

    return deco


@F("lim-max-tokens-stream-plus-one", "NA-SSE-009", "a stream generates one token more than max_tokens where that is above 50")
def _(N):
    old = N.http.read_params

    def rp(b):
        p, mt, *rest = old(b)
        return (p, mt + 1 if rest[3] and mt > 50 else mt, *rest)

    N.http.read_params = rp


@generation("lim-max-tokens-unheld-with-stop", "NA-INF-045", "with a stop sequence max_tokens does not hold before twice its value")
def _(g):
    if g.stop:
        g.max *= 2


@generation("lim-max-tokens-less-prompt", "NA-INF-042", "the tokens of a prompt above 64 are taken from max_tokens")
def _(g):
    n = len(g.p.encode("utf-8", "surrogatepass"))
    if n > 64:
        g.max = max(1, g.max - (n - 64))


@generation("lim-stop-cut", "NA-INF-041", "only the first two characters of a stop sequence count")
def _(g):
    g.stop = [s[:2] for s in g.stop]


@generation("lim-stop-fifth-ignored", "NA-INF-036", "the fifth and further stop sequences are ignored")
def _(g):
    g.stop = g.stop[:4]


@generation("eff-stop-foreign-letters", "NA-INF-013", "a stop sequence with letters outside ASCII is not recognised")
def _(g):
    g.stop = [s for s in g.stop if s.isascii()]


class Folded(str):
    def find(self, s):
        return self.lower().find(s.lower())

    def __contains__(self, s):
        return s.lower() in self.lower()

    def __add__(self, o):
        return Folded(str(self) + o)


@generation("eff-stop-any-case", "NA-INF-041", "a stop sequence ends the text in whatever case it stands there")
def _(g):
    if g.stop:
        g.full = Folded("")


class Late(str):
    def __contains__(self, s):
        return len(self) > 12 and str.__contains__(str(self)[12:], s)

    def find(self, s):
        return str(self).find(s, 12)

    def __add__(self, o):
        return Late(str(self) + o)


@generation("eff-stop-not-in-beginning", "NA-INF-013", "a stop sequence is not recognised in the first twelve characters of a text")
def _(g):
    if g.stop:
        g.full = Late("")


@F("eff-stream-stop-leaks", "NA-INF-045", "a stream sends the beginning of a stop sequence that spans two tokens, which the text without a stream does not have")
def _(N):
    old = N.http.stream_answer

    async def sa(c, g, *a):
        g.held_back = lambda: 0
        return await old(c, g, *a)

    N.http.stream_answer = sa


@F("eff-sse-blank-piece-dropped", "NA-SSE-018", "a stream leaves out tokens that are only white space")
def _(N):
    old = N.http.stream_answer

    class Skip:
        def __init__(self, g):
            self.g = g

        def __iter__(self):
            return (x for x in self.g if x.strip())

        def __getattr__(self, n):
            return getattr(self.g, n)

    async def sa(c, g, *a):
        return await old(c, Skip(g), *a)

    N.http.stream_answer = sa


H("lim-sse-index-byte", "NA-SSE-003", "the index of token events begins again after 255", ("sse_token", lambda e, c: e.update(index=e["index"] & 255)))
H("fld-sse-finish-null-at-stop", "NA-SSE-FINAL-004", "finish_reason of the final event is null where a stop sequence has ended the text",
  ("sse_final", lambda e, c: e.update(finish_reason=None) if e["finish_reason"] == "stop" else None))
H("fld-text-null-when-empty", "NA-INF-RESULT-004", "text is null where a stop sequence stands at the very beginning",
  ("inference", lambda r, c: r.update(text=r["text"] or None)))


def event_dumps(i, q, w):
    def deco(fn):
        @F(i, q, w)
        def _(N):
            old = N.http.dumps
            N.http.dumps = lambda x: fn(old, x) if isinstance(x, dict) and "token" in x else old(x)

        return fn

    return deco


@event_dumps("fld-sse-event-on-lines", "NA-SSE-019", "the JSON of the final event is indented over several lines")
def _(old, x):
    return json.dumps(x, indent=1) if x["token"] == "[DONE]" else old(x)


@event_dumps("fld-sse-duplicate-key", "NA-SSE-014", "a token event whose token has a line break has its index twice")
def _(old, x):
    return old(x)[:-1] + ', "index": %d}' % x["index"] if "\n" in x["token"] else old(x)


@F("fld-sse-last-blank-missing", "NA-SSE-015", "no blank line follows the last event")
def _(N):
    web = N.http.web

    class S(web.StreamResponse):
        async def write(self, data):
            await super().write(data[:-1] if b'"[DONE]"' in data else data)

    N.http.web = type("W", (), {"StreamResponse": S, "Response": web.Response, "HTTPException": web.HTTPException})
    # the answers that are no streams are of the class before it
    N.http.isinstance = lambda o, k: __builtins__["isinstance"](o, web.StreamResponse if k is S else k)


# ---------------------------------------------------------------- refusals and routes
def event_instead(i, q, w, statuses):
    @F(i, q, w)
    def _(N):
        async def wr(old, c):
            try:
                return await old(c)
            except N.http.Fail as f:
                if c.body.get("stream") is not True or f.status not in statuses:
                    raise
                r = N.http.web.StreamResponse(headers={"Content-Type": "text/event-stream"})
                await r.prepare(c.request)
                await r.write(("data: %s\n\n" % json.dumps(N.http.error_body(f))).encode())
                await r.write_eof()
                return r

        route("inference", wr)


event_instead("ref-stream-refusal-as-event", "NA-INF-044", "a stream that is refused for its body has the status 200, and the refusal is an event", (400, 422))
event_instead("ref-stream-402-as-event", "NA-ERR-027", "a stream for which the account has too little has the status 200, and the refusal is an event", (402,))


@F("ref-prompt-crlf", "NA-INF-030", "a prompt with a carriage return is refused")
def _(N):
    def w(c):
        if isinstance(c.body.get("prompt"), str) and "\r" in c.body["prompt"]:
            raise N.http.bad("prompt has control characters")

    before("inference", w)


@F("ref-inference-third-at-once-500", "NA-INF-040", "the third generation at the same time makes the node fail")
def _(N):
    n = [0]

    async def w(old, c):
        n[0] += 1
        try:
            if n[0] > 2:
                raise N.http.Fail(500, "INTERNAL", "the pool is exhausted")
            return await old(c)
        finally:
            n[0] -= 1

    route("inference", w)


@F("rou-accept-makes-stream", "NA-INF-010", "a request that accepts text/event-stream is answered with a stream even if stream is false")
def _(N):
    def w(c):
        if "text/event-stream" in c.request.headers.get("Accept", ""):
            c.body["stream"] = True

    before("inference", w)


@F("rou-accept-makes-result", "NA-INF-011", "a stream that is asked for with Accept: application/json is one JSON result")
def _(N):
    def w(c):
        if c.request.headers.get("Accept") == "application/json":
            c.body["stream"] = False

    before("inference", w)
