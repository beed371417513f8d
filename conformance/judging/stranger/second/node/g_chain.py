"""Faults of the native API."""

import asyncio, base64, json, re
from g_base import table, nroute, swap

LINES, MADE, F, H = table()


# ---------------------------------------------------------------- pages of blocks and updates
@F("rel-blocks-page-cached-by-limit", "NT-PAGE-007", "the newest page of blocks is kept for its limit, so that later blocks are not in it")
def _(N):
    box = {}

    async def w(old, r):
        if "before" in r.query:
            return await old(r)
        k = r.query.get("limit")
        if k not in box:
            box[k] = await old(r)
        return box[k]

    nroute("n_blocks", w)


def page(i, q, w, name, fn):
    @F(i, q, w)
    def _(N):
        def f(old, items, keyname, r, fid):
            L = old(items, keyname, r, fid)
            if keyname != name:
                return L
            x = fn(list(L), items, r, lambda k: int(r.query[k]) if r.query.get(k, "").isdigit() else None)
            return L if x is None else x

        swap(N.native, "page_of", f)


page("lim-blocks-before-above-tip", "NT-PAGE-004", "a before above the tip gives an empty list of blocks", "height",
     lambda L, items, r, q: [] if (q("before") or 0) > len(items) + 1 else None)
page("lim-blocks-before-zero", "NT-PAGE-002", "a before of 0 is taken as if it were left out", "height",
     lambda L, items, r, q: items[::-1][: q("limit") or 20] if q("before") == 0 else None)
page("lim-updates-before-one", "NT-PAGE-003", "a before of 1 is taken as if it were left out in the training history", "round",
     lambda L, items, r, q: items[::-1][: q("limit") or 20] if q("before") == 1 else None)
page("rel-blocks-long-page-gap", "NT-PAGE-010", "a page of more than 32 blocks leaves out the 33rd", "height", lambda L, items, r, q: L[:32] + L[33:])
page("rel-updates-single-is-second", "NT-PAGE-008", "a page of one update without before has the update before the newest", "round",
     lambda L, items, r, q: items[-2:-1] if q("limit") == 1 and q("before") is None else None)
page("rel-updates-roots-of-previous", "NT-PAGE-011", "with before the updates have the roots of the update before them", "round",
     lambda L, items, r, q: [dict(x, root_before=y["root_before"], root_after=y["root_after"]) for x, y in zip(L, L[1:] + L[-1:])] if q("before") is not None else None)
page("rel-blocks-last-of-page-twice", "NT-PAGE-009", "a page of exactly 50 blocks ends with the same block twice", "height",
     lambda L, items, r, q: L[:-1] + L[-2:-1] if q("limit") == 50 else None)
page("rel-blocks-hash-on-long-page", "NT-PAGE-011", "on a page of more than 25 blocks hashes are shortened to 16 digits", "height",
     lambda L, items, r, q: [dict(b, hash=b["hash"][:16]) for b in L] if len(L) > 25 else None)


@F("rou-block-newest-missing", "NT-RULE-036", "the newest block cannot be read by its height until there is another above it")
def _(N):
    async def w(old, r):
        if r.match_info["height"] == str(len(N.native.CHAIN.blocks)):
            raise N.native.NFail(404, "not indexed yet")
        return await old(r)

    nroute("n_block", w)


@F("rel-block-prompt-redacted", "NT-RULE-052", "signed inference requests in a block have no prompt")
def _(N):
    async def w(old, r):
        b = await old(r)
        return dict(b, transactions=[dict(t, prompt="[redacted]") if "prompt" in t else t for t in b["transactions"]])

    nroute("n_block", w)


@F("rel-record-prompt-first-word", "NT-RULE-054", "the record of a request has only the first word of its prompt")
def _(N):
    async def w(old, r):
        q = await old(r)
        return dict(q, prompt=q["prompt"].split(" ")[0])

    nroute("n_request", w)


# ---------------------------------------------------------------- accounts, requests, identities
@F("rel-account-liquid-without-locked", "2.2: the liquid total of both", "liquid_atoms is what can be spent less what is locked")
def _(N):
    async def w(old, r):
        d = await old(r)
        return dict(d, liquid_atoms=str(int(d["spendable_atoms"]) - int(d["locked_atoms"])))

    nroute("n_account", w)


@F("rel-account-parity-ignored", "NT-RULE-027", "keys that differ only in beginning with 02 and 03 have the same account")
def _(N):
    async def w(old, r):
        d = await old(r)
        for k, a in N.native.CHAIN.accounts.items():
            if k[2:] == d["public_key"][2:] and k != d["public_key"]:
                return {"public_key": k, "spendable_atoms": str(a["spendable"]), "locked_atoms": str(a["locked"]), "liquid_atoms": str(a["spendable"] + a["locked"]), "next_nonce": a["nonce"]}
        return d

    nroute("n_account", w)


@F("rel-account-02-refused", "NT-RULE-060", "public keys that begin with 02 are refused")
def _(N):
    async def w(old, r):
        if r.query.get("public_key", "").startswith("02"):
            raise N.native.NFail(400, "public_key is a compressed key")
        return await old(r)

    nroute("n_account", w)


@F("rel-request-id-prefix", "NT-RULE-028", "an id that is only the beginning of an id is answered with that request")
def _(N):
    async def w(old, r):
        i = r.query.get("id", "")
        if len(i) > 2 and i not in N.native.CHAIN.requests:
            for k, q in N.native.CHAIN.requests.items():
                if k.startswith(i):
                    return {a: b for a, b in q.items() if a != "fresh"}
        return await old(r)

    nroute("n_request", w)


@F("rel-checkpoint-round-of-served", "NT-RULE-058", "the round of the checkpoint is that of the adapter that is served, one behind the newest update")
def _(N):
    async def w(old, r):
        d = await old(r)
        return dict(d, round=d["round"] - 1)

    nroute("n_checkpoint", w)


@F("rel-inference-genesis-reencoded", "NT-RULE-043", "the genesis digest of the inference information is that of the genesis with sorted keys")
def _(N):
    async def w(old, r):
        return dict(await old(r), genesis_sha256=N.native.sha(N.native.canon(N.native.GENESIS)))

    nroute("n_inference", w)


@F("rel-dataset-reencoded", "NT-RULE-056", "the data set is written anew when it is served, with the same content and another digest")
def _(N):
    async def w(old, r):
        return N.native.canon(json.loads(await old(r)))

    nroute("n_dataset", w)


@F("rel-reference-lists-present", "NT-RULE-045", "the blocks of the earlier chain begin with a block of the present chain")
def _(N):
    async def w(old, r):
        d = await old(r)
        if r.match_info["tail"].strip("/") == "blocks":
            b = N.native.CHAIN.blocks[100]
            d = {"listed": [{"height": b["height"], "hash": b["hash"]}] + d["listed"]}
        return d

    nroute("n_ref", w)


@F("fld-refund-of-older-missing", "NT-RULE-062", "records of requests that expired more than 20 blocks ago have no refund")
def _(N):
    async def w(old, r):
        q = await old(r)
        if q["state"] == "expired" and q["expires_at_height"] < len(N.native.CHAIN.blocks) - 20:
            q = {k: v for k, v in q.items() if k != "refund"}
        return q

    nroute("n_request", w)


@F("lim-native-expired-16", "LIM-008", "of the latest 128 finished jobs only the latest 16 that expired can be looked up")
def _(N):
    async def w(old, r):
        q = await old(r)
        ex = [i for i in N.native.CHAIN.done if N.native.CHAIN.requests[i]["state"] == "expired"]
        if q["state"] == "expired" and q["request_id"] not in ex[-16:]:
            raise N.native.NFail(404, "no such request")
        return q

    nroute("n_request", w)


# ---------------------------------------------------------------- money
@F("fld-native-zero-number", "NT-RULE-029", "native amounts of zero are JSON numbers, all others decimal strings")
def _(N):
    swap(N.native, "A", lambda old, n: 0 if str(n) == "0" else old(n))


@F("fld-native-big-exponent", "NT-RULE-011", "native amounts above 2^53 are written with an exponent")
def _(N):
    swap(N.native, "A", lambda old, n: repr(float(n)) if int(n) > 2**53 else old(n))


# ---------------------------------------------------------------- /rpc and signed transactions
@F("rel-rpc-block-of-hundred", "NT-RULE-057", "the method block gives for a height above 100 the block 100 below it")
def _(N):
    R = N.native.RPC
    old = R["block"]
    R["block"] = lambda p: old(dict(p, height=int(p["height"]) - 100 if int(p["height"]) > 100 else p["height"])) if p.get("height") else old(p)


@F("rou-rpc-job-missing", "NT-RULE-044", "abci_query serves the path /jobs and not /job")
def _(N):
    R = N.native.RPC
    old = R["abci_query"]
    R["abci_query"] = lambda p: old(dict(p, path="/none") if p.get("path") == "/job" else p)


@F("ref-abci-private-path", "NT-RULE-005", "abci_query with the path /node/key answers with a private key")
def _(N):
    R = N.native.RPC
    old = R["abci_query"]
    R["abci_query"] = lambda p: {"response": {"code": 0, "value": base64.b64encode(b'{"priv_key":"5a"}').decode()}} if p.get("path") == "/node/key" else old(p)


@F("ref-rpc-batch-open", "NT-RULE-005", "calls in an array go past the list of allowed methods")
def _(N):
    async def w(old, r):
        try:
            m = json.loads(await r.read())
        except ValueError:
            return await old(r)
        if not isinstance(m, list):
            return await old(r)
        out = []
        for c in m:
            f = N.native.RPC.get(c.get("method"))
            out.append({"jsonrpc": "2.0", "id": c.get("id"), "result": f(c.get("params") or {}) if f else {"n_peers": "4", "listening": True}})
        return out

    nroute("n_rpc", w)


def cast(i, q, w, fn):
    """Replaces broadcast_tx_sync: fn(N, old, p, t)."""

    @F(i, q, w)
    def _(N):
        R = N.native.RPC
        old = R["broadcast_tx_sync"]

        def f(p):
            try:
                t = json.loads(base64.b64decode(p.get("tx", "")))
            except ValueError:
                return old(p)
            return fn(N, old, p, t) if isinstance(t, dict) else old(p)

        R["broadcast_tx_sync"] = f


def forced(N, old, p, t, **kw):
    """Accepts a transaction whatever its signature, with changed parts."""
    v = N.native.verify
    N.native.verify = lambda *a: True
    try:
        return old({"tx": base64.b64encode(json.dumps(dict(t, **kw)).encode()).decode()})
    finally:
        N.native.verify = v


def signed(N, t):
    x = {k: v for k, v in t.items() if k != "signature"}
    return N.native.verify(str(t.get("payer", "")), N.native.canon(x), str(t.get("signature", "")))


@F("ref-broadcast-signature-cached", "NT-RULE-046", "a signature that was valid once is taken with any content")
def _(N):
    seen = set()

    def w(old, k, msg, sig):
        ok = old(k, msg, sig) or (k, sig) in seen
        if ok:
            seen.add((k, sig))
        return ok

    swap(N.native, "verify", w)


@F("ref-work-empty-signature", "NT-RULE-039", "a worker message with an empty signature is taken")
def _(N):
    swap(N.native, "verify", lambda old, k, msg, sig: sig == "" or old(k, msg, sig))


cast("ref-broadcast-other-chain", "NT-RULE-047", "a request that is signed for another chain is accepted",
     lambda N, old, p, t: forced(N, old, p, t, chain="stranger-7") if signed(N, t) and isinstance(t.get("chain"), str) else old(p))


def replay(N, old, p, t):
    a = N.native.CHAIN.accounts.get(t.get("payer"))
    if a and signed(N, t) and isinstance(t.get("nonce"), int) and t["nonce"] == a["nonce"] - 1:
        return forced(N, old, p, t, nonce=a["nonce"])
    return old(p)


cast("ref-broadcast-again-charged", "NT-RULE-051", "a request that is broadcast once more is accepted and paid again", replay)


def kept(key):
    def fn(N, old, p, t):
        a = N.native.CHAIN.accounts.get(t.get("payer"))
        had = dict(a) if a else None
        r = old(p)
        if r["code"] == 0 and had:
            if key == "nonce":
                a["nonce"] = had["nonce"]
            else:
                a["spendable"], a["locked"] = had["spendable"], had["locked"]
        return r

    return fn


cast("eff-broadcast-nonce-kept", "NT-RULE-049", "an accepted request does not change the next nonce", kept("nonce"))
cast("eff-broadcast-nothing-locked", "NT-RULE-050", "an accepted request neither takes nor locks its price", kept("money"))


def hash_id(N, old, p, t):
    r = old(p)
    if r.get("request_id"):
        C = N.native.CHAIN
        q = C.requests.pop(r["request_id"])
        q["request_id"] = r["hash"].lower()
        C.requests[q["request_id"]] = q
        C.pool[-1]["request_id"] = q["request_id"]
        r["request_id"] = q["request_id"]
    return r


cast("rel-request-id-is-hash", "NT-RULE-040", "the id of a request is the hash of its transaction", hash_id)


def past(N, old, p, t):
    h = t.get("expires_at_height")
    r = old(p)
    if r.get("request_id") and isinstance(h, int) and h <= len(N.native.CHAIN.blocks):
        N.native.CHAIN.requests[r["request_id"]]["expires_at_height"] = 10**9
    return r


cast("eff-expired-completed", "NT-RULE-048", "a request that is past its expiry when it is broadcast is completed", past)


# ---------------------------------------------------------------- old routes
@F("rou-register-post-registers", "NT-RULE-042", "POST to a legacy registration endpoint registers an account, other methods yield 410")
def _(N):
    old = N.native.routes

    def routes(app):
        async def reg(r):
            from aiohttp import web

            return web.json_response({"account": "acc-1", "api_key": "k-1"}, status=201)

        app.router.add_post("/api/accounts/register", reg)
        old(app)

    N.native.routes = routes
