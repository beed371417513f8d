"""The node API."""

import asyncio, json, time, math, datetime as dt, re
from decimal import Decimal
from aiohttp import web
import core, model, state
from core import fault, pec, hook
from state import units, atoms, iso, day, FIG, CONFIG, TOKENS, ACCOUNTS, UNIT

PORT = 8000
CUR = "STRG"
NODE_ROUTES = {
    "status": ("GET", "/api/v1/status"),
    "metrics": ("GET", "/api/v1/metrics"),
    "health": ("GET", "/api/v1/health"),
    "inference": ("POST", "/api/v1/inference"),
    "balance": ("GET", "/api/v1/wallet/balance"),
    "send": ("POST", "/api/v1/wallet/send"),
    "history": ("GET", "/api/v1/wallet/transactions"),
    "stake": ("POST", "/api/v1/wallet/stake"),
    "unstake": ("POST", "/api/v1/wallet/unstake"),
    "peers": ("GET", "/api/v1/peers"),
    "layers": ("GET", "/api/v1/layers"),
    "network": ("GET", "/api/v1/network"),
    "config": ("GET", "/api/v1/config"),
    "patch": ("PATCH", "/api/v1/config"),
    "proofs": ("GET", "/api/v1/proofs"),
    "tglobal": ("GET", "/api/training/global"),
    "tverify": ("GET", "/api/training/verify"),
}
AUTH = {
    "inference",
    "balance",
    "send",
    "history",
    "stake",
    "unstake",
    "peers",
    "layers",
    "config",
    "patch",
    "proofs",
}


class Fail(Exception):
    def __init__(self, status, code, message, details=None):
        self.status, self.code, self.message, self.details = status, code, message, details


class Out:
    def __init__(self, route, status, data, ctype="application/json"):
        self.route, self.status, self.data, self.ctype, self.headers, self.text = (
            route,
            status,
            data,
            ctype,
            {},
            None,
        )


class Ctx:
    def __init__(self, request, route):
        self.request, self.route, self.acct, self.body, self.t0 = (
            request,
            route,
            None,
            None,
            time.perf_counter(),
        )


def bad(msg, code="MALFORMED"):
    return Fail(422 if pec("bad-is-422") else 400, code, msg)


def poor(required, available):
    if fault("ref-402-as-400"):
        return Fail(
            400,
            "INSUFFICIENT_BALANCE",
            "not enough",
            {"required": units(required), "available": units(available)},
        )
    if fault("ref-402-as-403"):
        return Fail(
            403,
            "INSUFFICIENT_BALANCE",
            "not enough",
            {"required": units(required), "available": units(available)},
        )
    return Fail(
        402,
        "INSUFFICIENT_BALANCE",
        "the account holds too little",
        {"required": units(required), "available": units(available)},
    )


# ---------------------------------------------------------------- limits of rate
class Bucket:
    def __init__(self):
        self.level, self.t = 400.0, time.monotonic()

    def take(self):
        n = time.monotonic()
        rate, burst = 200.0, 400.0
        if fault("lim-rate-never"):
            return True
        self.level = min(burst, self.level + (n - self.t) * rate)
        self.t = n
        if self.level < 1:
            return False
        self.level -= 1
        return True


BUCKETS = {}
_seen = {"n": 0}


# ---------------------------------------------------------------- guards
def unauthorized():
    return Fail(401, "UNAUTHORIZED", "this token opens nothing here")


def authenticate(ctx):
    route = ctx.route
    h = ctx.request.headers.get("Authorization", "")
    mode = core.GUARD.get(route) or core.GUARD.get("*")
    a = TOKENS["tok-a"]
    tok = None
    m = re.match(r"(?i)bearer +(.+)$" if pec("bearer-any-case") else r"Bearer +(.+)$", h)
    if m:
        tok = m.group(1).strip()
    if mode == "open":
        return TOKENS.get(tok, a)
    if mode == "missing" and not h:
        return a
    if mode == "empty" and (not h or not tok):
        return a
    if mode == "any" and tok:
        return TOKENS.get(tok, a)
    if mode == "expired" and tok == "tok-x":
        return a
    if mode == "prefix" and tok:
        for k in TOKENS:
            if tok.startswith(k):
                return TOKENS[k]
    if mode == "begin" and tok:
        for k in TOKENS:
            if k.startswith(tok):
                return TOKENS[k]
    if mode == "case" and tok:
        for k in TOKENS:
            if k.lower() == tok.lower():
                return TOKENS[k]
    if mode == "anyscheme" and h:
        t = h.split(" ")[-1]
        if t in TOKENS:
            return TOKENS[t]
    if mode == "length" and tok:
        for k in TOKENS:
            if len(k) == len(tok):
                return TOKENS[k]
    if mode == "suffix" and tok:
        for k in TOKENS:
            if tok.endswith(k):
                return TOKENS[k]
    if mode == "query" and not h:
        return a if "?" in str(ctx.request.rel_url) or ctx.request.headers.get("Accept") else None
    if tok in TOKENS:
        if mode == "flaky":
            _seen["n"] += 1
            if _seen["n"] % 7 == 0:
                raise unauthorized()
        if mode == "once":
            if _seen.get(tok + route):
                raise unauthorized()
            _seen[tok + route] = 1
            asyncio.get_running_loop().call_later(1.0, _seen.pop, tok + route, None)
        if mode == "valid403" and tok == "tok-b":
            raise Fail(403, "FORBIDDEN", "another account only")
        return TOKENS[tok]
    if mode == "403":
        raise Fail(403, "UNAUTHORIZED", "no")
    if mode == "400missing" and not h:
        raise Fail(400, "UNAUTHORIZED", "no header")
    if mode == "404":
        raise Fail(404, "NOT_FOUND", "no such account")
    if mode == "500":
        raise Fail(500, "INTERNAL", "KeyError")
    if mode == "200":
        raise Fail(200, "UNAUTHORIZED", "no")
    if mode == "302":
        raise Fail(302, "UNAUTHORIZED", "sign in")
    if mode == "expired403" and tok == "tok-x":
        raise Fail(403, "TOKEN_EXPIRED", "expired")
    if mode == "expired419" and tok == "tok-x":
        raise Fail(419, "UNAUTHORIZED", "expired")
    raise unauthorized()


# ---------------------------------------------------------------- answers
def dumps(x):
    kw = {}
    if pec("json-pretty"):
        kw["indent"] = 2
    if pec("json-sorted"):
        kw["sort_keys"] = True
    if pec("json-unescaped"):
        kw["ensure_ascii"] = False
    if pec("json-compact"):
        kw["separators"] = (",", ":")
    return json.dumps(x, **kw)


def reverse(x):
    if isinstance(x, dict):
        return {k: reverse(x[k]) for k in reversed(list(x))}
    if isinstance(x, list):
        return [reverse(i) for i in x]  # the order of entries stays
    return x


def extra(x):
    if isinstance(x, dict):
        d = {k: extra(v) for k, v in x.items()}
        d["x_extra"] = None
        return d
    if isinstance(x, list):
        return [extra(i) for i in x]
    return x


async def render(request, out):
    hook("out:" + out.route, out)
    hook("out:*", out)
    if pec("json-reversed") and out.data is not None:
        out.data = reverse(out.data)
    if pec("extra-everywhere"):
        out.data = extra(out.data)
    text = out.text if out.text is not None else dumps(out.data)
    if pec("slow") or (pec("slow-errors") and out.status >= 400):
        await asyncio.sleep(0.3)
    if pec("server-header"):
        out.headers["Server"] = "stranger"
        out.headers["X-Request-Id"] = state.new_id("r")
    if pec("no-cache"):
        out.headers["Cache-Control"] = "no-store"
    if pec("keepalive-off"):
        out.headers["Connection"] = "close"
    ct = out.ctype
    if pec("charset") and ct == "application/json":
        ct = "application/json; charset=utf-8"
    if ct:
        out.headers["Content-Type"] = ct
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    if request is not None and (pec("chunked") or pec("chunked-slow")):
        r = web.StreamResponse(status=out.status, headers=out.headers)
        r.enable_chunked_encoding()
        await r.prepare(request)
        step = max(1, len(raw) // 5)
        for i in range(0, len(raw), step):
            await r.write(raw[i : i + step])
            if pec("chunked-slow"):
                await asyncio.sleep(0.03)
        await r.write_eof()
        return r
    FIG.sent += len(raw)
    return web.Response(status=out.status, headers=out.headers, body=raw)


def error_body(f):
    e = {"code": f.code, "message": f.message}
    if f.details is not None:
        e["details"] = f.details
    elif pec("error-details-empty") and f.status not in (401,):
        e["details"] = {}
    if pec("error-code-numbers") and f.status not in (401, 402, 429):
        e["code"] = "E%d" % f.status
    b = {"error": e}
    return hook("error", b, f)


def endpoint(route, fn):
    async def handler(request):
        ctx = Ctx(request, route)
        try:
            key = request.remote
            if not BUCKETS.setdefault(key, Bucket()).take():
                raise Fail(429, "RATE_LIMITED", "too fast", {"retry_after": 1})
            first = core.GUARD.get(route) == "bodyfirst"
            if first and request.method in ("POST", "PATCH"):
                ctx.body = await read_body(ctx)
                validate_early(ctx)
            streamopen = core.GUARD.get(route) == "streamopen"
            if streamopen:
                ctx.body = await read_body(ctx)
            if route in AUTH:
                deed = core.GUARD.get(route) == "deed"
                try:
                    ctx.acct = authenticate(ctx)
                except Fail:
                    if streamopen and ctx.body.get("stream") is True:
                        ctx.acct = TOKENS["tok-a"]
                    elif not deed:
                        raise
                    if deed:
                        ctx.acct = TOKENS["tok-a"]
                        ctx.body = await read_body(ctx)
                        await fn(ctx)
                        raise
                if ctx.acct is None:
                    raise unauthorized()
            if request.method in ("POST", "PATCH") and ctx.body is None:
                ctx.body = await read_body(ctx)
            r = await fn(ctx)
            if isinstance(r, web.StreamResponse):
                return r
            r = hook(route, r, ctx)
            return await render(request, Out(route, 200, r))
        except Fail as f:
            o = Out(route, f.status, error_body(f))
            if f.status == 401 and pec("www-authenticate"):
                o.headers["WWW-Authenticate"] = "Bearer"
            if f.status == 302:
                o.headers["Location"] = "/login"
            if f.status == 429:
                o.headers["Retry-After"] = "1"
            hook("fail", o, f)
            hook("fail:%s" % route, o, f)
            return await render(request, o)

    return handler


def validate_early(ctx):
    b, r = ctx.body, ctx.route
    if r == "inference" and not isinstance(b.get("prompt"), str):
        raise bad("prompt")
    if r == "send" and not isinstance(b.get("to"), str):
        raise bad("to")
    if r in ("stake", "unstake", "send") and atoms(b.get("amount")) is None:
        raise bad("amount")
    if r == "patch" and set(b) - {"training", "resources", "tracker_url"}:
        raise bad("unknown key")


def no_const(x):
    raise ValueError(x)


async def read_body(ctx):
    raw = await ctx.request.read()
    FIG.recv += len(raw)
    try:
        if fault("ref-nan-accepted"):
            b = json.loads(raw)
        else:
            b = json.loads(raw, parse_constant=no_const)
    except (ValueError, UnicodeDecodeError, RecursionError):
        if fault("ref-not-json-500"):
            raise Fail(500, "INTERNAL", "JSONDecodeError")
        if fault("ref-not-json-accepted") and ctx.route == "inference":
            return {"prompt": raw.decode("utf-8", "replace") or "x"}
        if fault("ref-not-json-empty"):
            return (
                {"prompt": "", "to": "", "amount": 0}
                if ctx.route != "inference"
                else {"prompt": "empty"}
            )
        raise bad("the body cannot be read as JSON", "NOT_JSON")
    if not isinstance(b, dict):
        if fault("ref-array-body-500"):
            raise Fail(500, "INTERNAL", "AttributeError: 'list' object has no attribute 'get'")
        raise bad("the body is not an object", "NOT_OBJECT")
    return b


# ---------------------------------------------------------------- reading
def uptime():
    u = int(time.monotonic() - state.T0)
    if pec("uptime-huge"):
        u += 10**9
    return u


async def status(c):
    en = _last.get("stale_enabled", CONFIG["training.enabled"])
    return {
        "version": "0.9.1-stranger" if not pec("version-odd") else "r2026-11 (β)",
        "node_id": state.NODE_ID,
        "uptime_seconds": uptime(),
        "status": "draining"
        if pec("status-draining")
        else "warming_up"
        if pec("status-other")
        else "running",
        "role": model.ROLE if not pec("role-new") else "archivist",
        "layers": list(model.HELD),
        "peer_count": len(peer_list()),
        "training": {"enabled": en, "epoch": 3, "step": state.steps(), "loss": state.loss()},
        "resources": {
            "gpu_memory_total": 0
            if pec("no-gpu")
            else 17179869184 * (1000 if pec("huge-memory") else 1),
            "gpu_memory_used": 0 if pec("no-gpu") else 5368709120,
            "cpu_percent": 187.5 if pec("cpu-many-cores") else 12 if pec("cpu-integer") else 7.25,
            "ram_used": 3221225472,
        },
    }


_last = {}


async def metrics(c):
    lat = FIG.lat[-500:]
    s = sorted(lat) or [0]
    n = time.monotonic()
    t = state.now()
    req, tok = FIG.requests, FIG.tokens
    if fault("eff-metrics-cached-minute"):
        if _last.get("m") and n - _last["m"][0] < 60:
            req, tok = _last["m"][1:3]
        else:
            _last["m"] = (n, req, tok)
    if fault("rel-metrics-clock-cached"):
        t = _last.setdefault("t", t)
    if fault("rel-metrics-clock-minute"):
        t = t.replace(second=0, microsecond=0)
    if fault("rel-metrics-requests-back"):
        _last["k"] = _last.get("k", 0) + 1
        req = max(0, req - (_last["k"] % 3))
    return {
        "timestamp": iso(t),
        "rewards": {"earned_total": 12.5, "earned_today": 0.25, "pending": 0.125},
        "inference": {
            "requests_total": req,
            "requests_per_minute": len([x for x in FIG.times if n - x < 60]) + 0.0,
            "tokens_generated": tok,
            "avg_latency_ms": round(sum(lat) / max(1, len(lat)), 3),
            "p99_latency_ms": round(s[min(len(s) - 1, int(len(s) * 0.99))], 3),
        },
        "training": {
            "steps_total": state.steps(),
            "steps_per_hour": 1800 if CONFIG["training.enabled"] else 0,
            "gradients_submitted": FIG.grads_in,
            "gradients_accepted": FIG.grads_ok,
        },
        "network": {
            "bytes_received": FIG.recv,
            "bytes_sent": FIG.sent,
            "active_connections": len(peer_list()),
            "rpc_calls": FIG.rpc,
        },
    }


async def health(c):
    w = "degraded" if pec("health-degraded") else "ok"
    return {
        "checks": {"peers": w, "storage": w, "network": w, "gpu": "absent" if pec("no-gpu") else w},
        "healthy": not pec("health-degraded"),
    }


def peer_list():
    if pec("peers-empty"):
        return []
    out = []
    n = 60 if pec("peers-many") else 4
    for i in range(n):
        host = ["10.20.0.%d" % (i + 3), "peer%d.example.net" % i][i % 2]
        if pec("peers-ipv6"):
            host = "[2001:db8::%x]" % (i + 1)
        out.append(
            {
                "role": ["driver", "worker", "validator"][i % 3],
                "id": "%040x" % (0xABC123 * (i + 7)),
                "address": "%s:%d" % (host, 8000 + i),
                "layers": [] if pec("peer-no-layers") else [[0, 1], [1, 2, 3], [4, 5]][i % 3],
                "connected_since": iso(state.BOOT - 3600 * (i + 1)),
                "latency_ms": 0 if pec("latency-zero") else 12.5 + i,
            }
        )
    return out


async def peers(c):
    p = peer_list()
    return {"total": len(p), "peers": p}


async def layers(c):
    L = [
        {
            "type": "transformer" if not pec("layer-types") else "moe",
            "index": i,
            "status": "active" if not pec("layer-loading") else "loading",
            "memory_mb": 37,
        }
        for i in sorted(model.HELD)
    ]
    if pec("layers-list-all"):
        L = [
            {
                "type": "transformer",
                "index": i,
                "status": "active" if i in model.HELD else "remote",
                "memory_mb": 37,
            }
            for i in range(model.TOTAL)
        ]
    return {"total_layers": model.TOTAL, "my_layer_count": len(model.HELD), "layers": L}


async def network(c):
    d, w, v = 3, 5, 2
    if pec("network-tiny"):
        d, w, v = 0, 0, 1
    if pec("network-huge"):
        d, w, v = 40000, 3000000, 70000
    return {
        "training": {"loss": state.loss(), "global_step": state.steps(), "epoch": 3},
        "nodes": {"total": d + w + v, "drivers": d, "workers": w, "validators": v},
        "architecture": {
            "parameters": "1152" if not pec("parameters-words") else "7B",
            "hidden_dim": model.HID,
            "layers": model.TOTAL,
        },
        "capacity": {
            "used_memory_gb": 5.5,
            "total_memory_gb": 64 if pec("capacity-integers") else 64.0,
        },
    }


def nested(flat):
    d = {}
    for k, v in flat.items():
        p = k.split(".")
        x = d
        for q in p[:-1]:
            x = x.setdefault(q, {})
        x[p[-1]] = v
    return d


async def config(c):
    d = {"grpc_port": PORT + 1000, "port": PORT, "node_id": state.NODE_ID}
    cfg = dict(CONFIG)
    if fault("eff-config-get-cached"):
        if _last.get("cfg") and time.monotonic() - _last["cfg"][0] < 30:
            cfg = _last["cfg"][1]
        else:
            _last["cfg"] = (time.monotonic(), cfg)
    if fault("eff-config-second-reading-old"):
        _last["alt"] = _last.get("alt", 0) + 1
        if _last["alt"] % 2 == 0:
            cfg.update(_last.get("before") or {})
    d.update(nested(cfg))
    return d


RULES = {
    "tracker_url": lambda v: isinstance(v, str) and v,
    "training.enabled": lambda v: isinstance(v, bool),
    "training.batch_size": lambda v: (
        isinstance(v, int) and not isinstance(v, bool) and 0 < v <= 4096
    ),
    "training.learning_rate": lambda v: (
        isinstance(v, (int, float)) and not isinstance(v, bool) and 0 < v < 10
    ),
    "training.diloco_steps": lambda v: (
        isinstance(v, int) and not isinstance(v, bool) and 0 < v < 10**6
    ),
    "resources.max_memory_gb": lambda v: (
        isinstance(v, (int, float)) and not isinstance(v, bool) and 0 < v < 10**6
    ),
    "resources.cpu_threads": lambda v: (
        isinstance(v, int) and not isinstance(v, bool) and 0 < v <= 4096
    ),
}
RESTART = {"tracker_url"}
if pec("patch-all-restart"):
    RESTART = set(RULES)
if pec("patch-threads-restart"):
    RESTART = {"tracker_url", "resources.cpu_threads"}
DEFAULTS = dict(CONFIG)


async def patch(c):
    flat = {}

    def walk(p, x):
        for k, v in x.items():
            q = p + k
            if isinstance(v, dict) and q in ("training", "resources"):
                if fault("eff-patch-replaces-section"):
                    for r in RULES:
                        if r.startswith(q + ".") and r.split(".")[1] not in v:
                            flat["!" + r] = DEFAULTS[r]
                walk(q + ".", v)
            else:
                flat[q] = v

    walk("", c.body)
    lost = {k[1:]: flat.pop(k) for k in list(flat) if k[0] == "!"}
    if pec("patch-fixed-keys") and any(
        k not in ("training.batch_size", "training.learning_rate") for k in flat
    ):
        raise bad("only the batch size and the learning rate can be changed")
    if fault("eff-patch-needs-whole-section"):
        for sec in ("training", "resources"):
            mine = [k for k in flat if k.startswith(sec + ".")]
            if mine and len(mine) < len([r for r in RULES if r.startswith(sec + ".")]):
                raise bad("the section %s is not whole" % sec)
    done = []
    before = dict(CONFIG)
    _last["before"] = before
    if fault("ref-patch-unknown-type-coerced"):
        for k, v in list(flat.items()):
            if k in (
                "training.batch_size",
                "resources.cpu_threads",
                "training.diloco_steps",
            ) and not RULES[k](v):
                try:
                    flat[k] = max(1, int(v))
                except (TypeError, ValueError):
                    flat[k] = 1
    if fault("ref-patch-enabled-truthy") and "training.enabled" in flat:
        flat["training.enabled"] = bool(flat["training.enabled"])
    if (
        fault("ref-patch-rate-string")
        and "training.learning_rate" in flat
        and not RULES["training.learning_rate"](flat["training.learning_rate"])
    ):
        CONFIG["training.learning_rate"] = 0.001
        flat.pop("training.learning_rate")
    stop_first = fault("eff-patch-not-atomic")
    errs = []
    for k, v in flat.items():
        if k not in RULES or not RULES[k](v):
            errs.append(k)
            if stop_first:
                break
        elif stop_first or fault("eff-patch-valid-part-applied"):
            CONFIG[k] = v
            done.append(k)
    if errs:
        if fault("eff-patch-refused-sets-default"):
            for k in errs:
                if k in DEFAULTS:
                    CONFIG[k] = {bool: not DEFAULTS[k]}.get(
                        type(DEFAULTS[k]),
                        DEFAULTS[k] if isinstance(DEFAULTS[k], str) else DEFAULTS[k] * 2,
                    )
        if fault("eff-patch-refused-stored-raw"):
            for k in errs:
                if k in RULES:
                    CONFIG[k] = flat[k]
        if fault("ref-patch-wrong-type-ignored"):
            return {"updated": [], "restart_required": False, "success": True}
        if fault("ref-patch-success-true-anyway"):
            return {"updated": errs, "restart_required": False, "success": True}
        if fault("ref-patch-500"):
            raise Fail(500, "INTERNAL", "TypeError")
        if pec("patch-refusal-200"):
            return {"success": False, "updated": [], "restart_required": False}
        raise bad("cannot take " + ", ".join(errs), "CONFIG_REFUSED")
    restart = False
    names = []
    for k, v in flat.items():
        names.append(k)
        if k in RESTART:
            restart = True
            state.PENDING[k] = v
            continue
        if fault("eff-patch-first-key-only") and names.index(k) > 0:
            continue
        if fault("eff-patch-last-key-only") and k != list(flat)[-1]:
            continue
        if fault("eff-patch-not-stored"):
            continue
        if fault("eff-patch-rate-rounded") and k == "training.learning_rate":
            v = round(v, 3)
        if fault("eff-patch-batch-power-of-two") and k == "training.batch_size":
            v = 1 << max(0, (v - 1).bit_length() - (1 if v & (v - 1) else 0))
        if fault("eff-patch-memory-integer") and k == "resources.max_memory_gb":
            v = int(v) or 1
        if fault("eff-patch-threads-capped") and k == "resources.cpu_threads":
            v = min(v, 2)
        if fault("eff-patch-diloco-ignored") and k == "training.diloco_steps":
            continue
        if fault("eff-patch-enabled-ignored") and k == "training.enabled":
            continue
        if fault("eff-patch-wrong-key") and k == "training.batch_size":
            CONFIG["training.diloco_steps"] = v
        if fault("eff-patch-enable-side") and k == "training.batch_size":
            CONFIG["training.enabled"] = not CONFIG["training.enabled"]
        if k == "training.enabled" and v != CONFIG[k]:
            state.switch_training(v)
        CONFIG[k] = v
    if fault("eff-patch-resets-others"):
        for k in RULES:
            if k not in flat:
                CONFIG[k] = DEFAULTS[k]
    for k, v in lost.items():
        CONFIG[k] = v
    if fault("eff-patch-reverts"):
        asyncio.get_running_loop().call_later(0.7, CONFIG.update, before)
    if fault("eff-patch-late"):
        after = dict(CONFIG)
        CONFIG.update(before)
        asyncio.get_running_loop().call_later(1.0, CONFIG.update, after)
    if fault("eff-patch-status-stale") and "training.enabled" in flat:
        _last["stale_enabled"] = before["training.enabled"]
    return {"updated": names, "restart_required": restart, "success": True}


async def proofs(c):
    lim = query_int(c, "limit", 100 if not pec("proofs-default-5") else 5)
    L = [
        {
            "verified": p["verified"],
            "id": p["id"],
            "type": p["type"],
            "layer": p["layer"],
            "reward": p["reward"],
            "timestamp": iso(p["at"]),
        }
        for p in state.PROOFS
    ]
    st = {
        "total_reward": round(sum(p["reward"] for p in L if p["verified"]), 6),
        "total_verified": sum(p["verified"] for p in L),
        "total_submitted": len(L),
    }
    if fault("rel-proofs-stats-of-page"):
        pg = L[:lim]
        st["total_verified"] = len(pg)
    if fault("lim-proofs-limit-ignored"):
        lim = len(L)
    if fault("lim-proofs-limit-plus-one"):
        lim += 1
    if fault("lim-proofs-limit-min-ten"):
        lim = max(10, lim)
    if fault("rel-proofs-page-oldest"):
        return {"proofs": L[-lim:] if lim else [], "stats": st}
    if fault("rel-proofs-page-skips-first"):
        return {"proofs": L[1 : 1 + lim] if lim < len(L) else L, "stats": st}
    if fault("lim-proofs-short-page"):
        return {"proofs": L[: max(0, lim - 1)] if lim < len(L) else L, "stats": st}
    if fault("rel-proofs-shuffled"):
        k = int(time.monotonic() * 10) % max(1, len(L))
        L = L[k:] + L[:k]
    if fault("rel-proofs-verified-first") and lim < len(L):
        L = sorted(L, key=lambda p: not p["verified"])
    return {"proofs": L[:lim], "stats": st}


def query_int(c, name, default):
    v = c.request.query.get(name)
    if v is None:
        return default
    if not re.fullmatch(r"-?\d{1,12}", v) or int(v) < 0:
        if fault("ref-query-junk-500"):
            raise Fail(500, "INTERNAL", "ValueError: invalid literal for int()")
        raise bad("%s is not a natural number" % name)
    if fault("ref-limit-string-refused") and c.route == "history":
        raise bad("%s must be an integer" % name)
    if fault("ref-limit-one-refused") and int(v) < 2 and name == "limit":
        raise bad("limit is too small")
    if fault("ref-proofs-limit-refused") and c.route == "proofs":
        raise bad("unknown parameter")
    return int(v)


# ---------------------------------------------------------------- training
def training_global():
    rate = 0.75 if pec("diverged") else 1.0
    cur = state.loss()
    inner = CONFIG["training.diloco_steps"]
    k = state.steps() % inner
    ok, no = (0, 0) if pec("no-syncs") else (380, 20)
    return {
        "local": {
            "is_training": CONFIG["training.enabled"],
            "current_loss": cur,
            "training_rounds": 37,
            "node_id": state.NODE_ID,
        },
        "diloco": {
            "outer_step_count": 37,
            "progress": round(k / inner, 6),
            "inner_steps_total": inner,
            "inner_step_count": k,
            "enabled": True,
        },
        "global_steps": state.steps(),
        "global_tokens": state.steps() * 4096 * (10**6 if pec("tokens-huge") else 1),
        "global_avg_loss": cur + 0.1,
        "global_min_loss": cur,
        "hash_agreement_rate": rate if not pec("agreement-int") else 1,
        "total_nodes_training": 8,
        "successful_syncs": ok,
        "failed_syncs": no,
        "sync_success_rate": 0.95 if ok else 0.0,
        "data_shards_covered": [] if pec("shards-empty") else [3, 0, 1, 7],
        "is_converging": not pec("diverged"),
        "training_verified": not pec("diverged"),
        "loss_trend": "stable" if pec("trend-stable") else "improving",
    }


async def tglobal(c):
    return training_global()


async def tverify(c):
    g = training_global()
    if pec("diverged"):
        return {
            "is_working": False,
            "reason": "the models of the nodes differ",
            "action": "fetch the checkpoint again",
        }
    pct = "%.1f%%" % (g["hash_agreement_rate"] * 100)
    if pec("percent-plain"):
        pct = "100%"
    r = {
        "is_working": True,
        "reason": "all hashes agree and the loss falls",
        "metrics": {
            "hash_agreement": pct,
            "loss_trend": g["loss_trend"],
            "global_loss": g["global_avg_loss"],
        },
    }
    return r


# ---------------------------------------------------------------- inference
def param(b, name, default, ok):
    if name not in b:
        return default
    v = b[name]
    if not ok(v):
        if (
            fault("ref-param-%s-type" % name.replace("_", ""))
            and not isinstance(v, (int, float))
            or fault("ref-param-%s-bool" % name.replace("_", ""))
            and isinstance(v, bool)
        ):
            return default
        if fault("ref-param-500"):
            raise Fail(500, "INTERNAL", "TypeError")
        raise bad("%s is not acceptable" % name, "PARAMETER")
    return v


def is_num(v):
    return isinstance(v, (int, float)) and not isinstance(v, bool)


def is_int(v):
    return isinstance(v, int) and not isinstance(v, bool)


def read_params(b):
    p = b.get("prompt")
    if not isinstance(p, str) or not p:
        if fault("ref-prompt-missing-accepted") and "prompt" not in b:
            p = "hello"
        elif fault("ref-prompt-number-accepted") and isinstance(p, (int, float)):
            p = str(p)
        elif fault("ref-prompt-list-accepted") and isinstance(p, list):
            p = " ".join(map(str, p)) or "x"
        elif fault("ref-prompt-missing-500"):
            raise Fail(500, "INTERNAL", "KeyError: 'prompt'")
        elif pec("empty-prompt-accepted") and p == "":
            p = " "
        else:
            raise bad("prompt must be a text", "PARAMETER")
    if fault("ref-prompt-nonascii-refused") and not p.isascii():
        raise bad("prompt is not ASCII")
    if fault("ref-prompt-nonascii-500") and not p.isascii():
        raise Fail(500, "INTERNAL", "UnicodeEncodeError")
    if fault("ref-prompt-astral-500") and any(ord(x) > 0xFFFF for x in p):
        raise Fail(500, "INTERNAL", "DataError: incorrect string value")
    if fault("ref-prompt-newline-refused") and "\n" in p:
        raise bad("prompt has control characters")
    if fault("ref-prompt-quote-500") and "'" in p:
        raise Fail(500, "INTERNAL", 'OperationalError near "\'"')
    if fault("ref-prompt-quote-500") and '"' in p:
        raise Fail(500, "INTERNAL", 'OperationalError near "\'"')
    if fault("lim-prompt-1000-refused") and len(p) > 1000:
        raise bad("prompt is too long")
    if fault("ref-prompt-braces-500") and ("{" in p or "\\" in p or "%" in p):
        raise Fail(500, "INTERNAL", "KeyError in format")
    lo, hi = 0, 2
    if fault("lim-temperature-one"):
        hi = 1
    if fault("lim-temperature-above"):
        hi = 2.5
    if fault("lim-temperature-any"):
        hi = 10**9
    if fault("lim-temperature-negative"):
        lo = -1
    tz = fault("lim-temperature-zero-refused")
    t2 = fault("lim-temperature-two-refused")
    if fault("lim-temperature-clamped") and is_num(b.get("temperature")):
        b["temperature"] = min(2, max(0, b["temperature"]))
    if fault("ref-temperature-int-refused") and is_int(b.get("temperature")):
        raise bad("temperature must be a float")
    if (
        fault("ref-temperature-fraction-refused")
        and isinstance(b.get("temperature"), float)
        and b["temperature"] != int(b["temperature"])
    ):
        raise bad("temperature must be an integer")
    temp = param(
        b,
        "temperature",
        1.0,
        lambda v: is_num(v) and lo <= v <= hi and not (tz and v == 0) and not (t2 and v == 2),
    )
    tp_hi = 1 if not fault("lim-top-p-one-refused") else 0.9999
    tp_lo = 0 if not fault("lim-top-p-small-refused") else 0.1
    if fault("ref-top-p-int-refused") and is_int(b.get("top_p")):
        raise bad("top_p must be a float")
    top_p = param(b, "top_p", 1.0, lambda v: is_num(v) and tp_lo < v <= tp_hi)
    k_hi = 10**12
    if fault("lim-top-k-50"):
        k_hi = 50
    if fault("lim-top-k-vocabulary"):
        k_hi = model.V
    k_lo = 1 if not fault("lim-top-k-one-refused") else 2
    top_k = param(b, "top_k", 50, lambda v: is_int(v) and k_lo <= v <= k_hi)
    dflt = 100
    for n in (16, 128, 99, 256):
        if fault("lim-default-max-tokens-%d" % n):
            dflt = n
    if fault("ref-max-tokens-string") and isinstance(b.get("max_tokens"), str):
        b["max_tokens"] = int(b["max_tokens"]) if b["max_tokens"].isdigit() else dflt
    if fault("ref-max-tokens-float") and isinstance(b.get("max_tokens"), float):
        b["max_tokens"] = int(b["max_tokens"])
    m_hi = 10**12
    if fault("lim-max-tokens-64-refused"):
        m_hi = 64
    m_lo = 1 if not fault("lim-max-tokens-one-refused") else 2
    mt = param(b, "max_tokens", dflt, lambda v: is_int(v) and m_lo <= v <= m_hi)
    if fault("ref-stream-object-truthy") and isinstance(b.get("stream"), (dict, list)):
        b["stream"] = bool(b["stream"])
    if fault("ref-stream-list-ignored") and isinstance(b.get("stream"), list):
        b["stream"] = False
    if fault("ref-stream-string-truthy") and isinstance(b.get("stream"), str):
        b["stream"] = bool(b["stream"])
    stream = param(b, "stream", False, lambda v: isinstance(v, bool))
    if fault("ref-stop-string-accepted") and isinstance(b.get("stop"), str):
        b["stop"] = [b["stop"]]
    if fault("ref-stop-number-accepted") and isinstance(b.get("stop"), (int, float, dict)):
        b["stop"] = []
    if fault("ref-stop-members-any") and isinstance(b.get("stop"), list):
        b["stop"] = [s for s in b["stop"] if isinstance(s, str)]
    if fault("ref-stop-empty-refused") and b.get("stop") == []:
        raise bad("stop is empty")
    if fault("lim-stop-five-refused") and isinstance(b.get("stop"), list) and len(b["stop"]) > 1:
        raise bad("at most one stop sequence")
    if fault("ref-stop-newline-500") and any(
        "\n" in s for s in b.get("stop") or [] if isinstance(s, str)
    ):
        raise Fail(500, "INTERNAL", "re.error")
    if fault("eff-stop-regex-500") and any(
        re.search(r"[.?*+()\[]", s) for s in b.get("stop") or [] if isinstance(s, str)
    ):
        raise Fail(500, "INTERNAL", "re.error: nothing to repeat")
    stop = param(
        b, "stop", [], lambda v: isinstance(v, list) and all(isinstance(s, str) for s in v)
    )
    if fault("eff-default-stop-newline") and not stop:
        stop = ["\n", "."]
    if fault("eff-stream-false-ignored") and "stream" in b:
        stream = True
    if fault("eff-stream-true-ignored"):
        stream = False
    if fault("eff-stream-default-true") and "stream" not in b:
        stream = True
    if pec("max-tokens-clamped-40"):
        mt = min(mt, 40)
    return p, min(mt, 1024), temp, top_p, top_k, stream, stop


def cost_of(n_in, n_out):
    return n_in * state.PRICE_IN + n_out * state.PRICE_OUT


async def inference(c):
    b = c.body
    p, mt, temp, top_p, top_k, stream, stop = read_params(b)
    a = c.acct
    n_in = model.prompt_tokens(p)
    if fault("rel-prompt-tokens-constant"):
        n_in = 12
    if fault("rel-prompt-tokens-capped"):
        n_in = min(n_in, 16)
    if fault("rel-prompt-tokens-of-lines"):
        n_in = 1 + p.count("\n")
    bound = cost_of(n_in, mt)
    if bound > a.available or (a.available == 0 and not pec("free-inference")):
        if fault("ref-inference-poor-accepted"):
            bound = 0
        elif fault("eff-poor-charged-anyway"):
            a.available -= min(a.available, bound)
            raise poor(bound, a.available)
        else:
            raise poor(max(bound, 1), a.available)
    a.available -= bound
    g = model.Generation(p, mt, temp, top_p, top_k, stop)
    t1 = time.perf_counter()
    q = (t1 - c.t0) * 1000
    settled = []

    def settle():
        if settled:
            return
        settled.append(1)
        cost = cost_of(n_in, g.count)
        take = cost
        if fault("eff-charge-double"):
            take = cost * 2
        if fault("eff-charge-max-tokens"):
            take = cost_of(n_in, mt) + 50
        if fault("eff-charge-atoms-as-milli"):
            take = cost * 10
        if fault("eff-charge-per-minimum"):
            take = max(cost, UNIT // 100)
        if fault("eff-charge-stream-double") and stream:
            take = cost * 2
        who = a
        if fault("eff-charge-all-accounts"):
            TOKENS["tok-a"].available -= cost
        if fault("eff-no-refund-of-reserve"):
            take = max(cost, bound + UNIT // 1000)
        who.available += bound - take
        if cost and not pec("charges-not-listed"):
            who.add("inference", -cost, details={"tokens": g.count})
        FIG.times.append(time.monotonic())
        FIG.times[:] = FIG.times[-1000:]
        el = (time.perf_counter() - c.t0) * 1000
        FIG.lat.append(el)
        n = g.count
        if not (
            fault("eff-count-requests-none")
            or fault("eff-count-stream-requests-none")
            and stream
            or fault("eff-count-long-only")
            and g.count < 20
            or fault("eff-count-stop-not-counted")
            and g.reason == "stop"
        ):
            FIG.requests += (
                2
                if fault("eff-count-requests-twice")
                or fault("eff-count-stream-requests-twice")
                and stream
                else 1
            )
        if fault("eff-count-tokens-none") or fault("eff-count-stream-tokens-none") and stream:
            n = 0
        if fault("eff-count-tokens-with-prompt"):
            n += n_in
        if fault("eff-count-tokens-max"):
            n = mt if not stop else n + 1
        if fault("eff-count-stream-tokens-twice") and stream or fault("eff-count-tokens-twice"):
            n *= 2
        if (
            fault("eff-count-stream-tokens-minus-one")
            and stream
            or fault("eff-count-tokens-minus-one")
        ):
            n = max(0, n - 1)
        if fault("eff-count-requests-as-tokens"):
            FIG.requests += g.count
        if fault("eff-count-late"):
            k = n
            asyncio.get_running_loop().call_later(5, lambda: setattr(FIG, "tokens", FIG.tokens + k))
            n = 0
        FIG.tokens += n

    if stream:
        return await stream_answer(c, g, n_in, settle, stop)
    try:
        k = 0
        for _ in g:
            k += 1
            if k % 8 == 0:
                await asyncio.sleep(0.001)
        if pec("slow-inference"):
            await asyncio.sleep(0.3)
    finally:
        settle()
    inf = (time.perf_counter() - t1) * 1000
    text = g.text
    if fault("eff-prompt-echoed-after-stop") and stop and g.reason == "stop":
        text = g.text + stop[0] + " " + g.text[:20]
    if fault("eff-text-empty"):
        text = ""
    n = g.count
    total = (time.perf_counter() - c.t0) * 1000
    cost = cost_of(n_in, n)
    if fault("rel-cost-negative"):
        cost = -cost
    return {
        "text": text,
        "finish_reason": g.reason,
        "tokens_generated": n,
        "id": state.new_id("gen"),
        "timing": {
            "total_ms": round(total + 0.002, 3),
            "inference_ms": round(inf, 3),
            "queue_ms": round(q, 3),
        },
        "cost": {"currency": CUR if not pec("currency-lower") else "strg", "amount": units(cost)},
        "usage": {"total_tokens": n_in + n, "completion_tokens": n, "prompt_tokens": n_in},
    }


async def stream_answer(c, g, n_in, settle, stop):
    headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
    if fault("rou-stream-type-json"):
        headers["Content-Type"] = "application/json"
    if fault("rou-stream-type-plain"):
        headers["Content-Type"] = "text/plain; charset=utf-8"
    if fault("rou-stream-type-ndjson"):
        headers["Content-Type"] = "application/x-ndjson"
    if fault("rou-stream-type-octet"):
        headers["Content-Type"] = "application/octet-stream"
    if pec("stream-charset"):
        headers["Content-Type"] = "text/event-stream; charset=utf-8"
    r = web.StreamResponse(status=201 if fault("rou-stream-201") else 200, headers=headers)
    await r.prepare(c.request)
    sep, pre = "\n\n", "data: "
    if fault("fld-sse-single-newline"):
        sep = "\n"
    if fault("fld-sse-no-prefix"):
        pre = ""
    if fault("fld-sse-prefix-event"):
        pre = "event: "
    if fault("fld-sse-prefix-capital"):
        pre = "Data: "
    if fault("fld-sse-cr-only"):
        sep = "\\n\\n"
    whole = []

    async def send(ev, raw=None):
        t = raw if raw is not None else dumps(ev) if not pec("json-pretty") else json.dumps(ev)
        if fault("fld-sse-python-repr"):
            t = repr(ev)
        if fault("fld-sse-double-encoded"):
            t = json.dumps(t)
        if fault("fld-sse-text-unescaped") and ev and ev.get("token") != "[DONE]":
            t = t.replace("\\n", "\n").replace('\\"', '"')
        x = (pre + t + sep).encode()
        if fault("fld-sse-buffer-one-chunk"):
            whole.append(x)
        else:
            await r.write(x)

    i = 0
    try:
        try:
            batch, nb = "", 0
            for piece in g:
                if pec("stream-batches"):
                    batch += piece
                    nb += 1
                    if nb % 4:
                        continue
                    piece, batch = batch, ""
                ev = {"index": i, "token": piece}
                if pec("stream-extra"):
                    ev["logprob"] = -1.5
                if fault("eff-sse-index-from-one"):
                    ev["index"] = i + 1
                if fault("eff-sse-index-constant"):
                    ev["index"] = 0
                if fault("eff-sse-index-down"):
                    ev["index"] = -i
                if fault("eff-sse-index-wraps"):
                    ev["index"] = i % 8
                if fault("eff-sse-index-repeats") and i % 5 == 4:
                    ev["index"] = i - 1
                if fault("eff-sse-index-from-prompt"):
                    ev["index"] = i + n_in
                ev = hook("sse_token", ev, c)
                await send(ev)
                if fault("eff-sse-stops-after-three") and i == 2:
                    return r
                i += 1
                await asyncio.sleep(0.02 if pec("stream-slow") else 0)
            if batch:
                await send({"index": i, "token": batch})
        finally:
            n = g.count
            settle()
        if pec("stream-slow-end"):
            await asyncio.sleep(0.4)
        n = g.count
        if fault("rel-sse-usage-counts-events"):
            n_in = len(c.body["prompt"].split())
        fin = {
            "usage": {"total_tokens": n_in + n, "completion_tokens": n, "prompt_tokens": n_in},
            "finish_reason": g.reason,
            "token": "[DONE]",
        }
        if pec("stream-final-index"):
            fin["index"] = i
        fin = hook("sse_final", fin, c)
        if not fault("eff-sse-no-final"):
            if fault("fld-sse-done-bare"):
                await send(None, "[DONE]")
            else:
                await send(fin)
        if fault("eff-sse-final-twice"):
            await send(fin)
        if fault("eff-sse-openai-done"):
            await send(None, "[DONE]")
        if fault("eff-sse-token-after-final"):
            await send({"index": i, "token": " x"})
        if whole:
            x = b"".join(whole)
            await r.write(x[:-3])
        if fault("eff-sse-never-closed"):
            await asyncio.sleep(25)
        if fault("eff-sse-aborted"):
            c.request.transport.abort()
            return r
        await r.write_eof()
    except (ConnectionResetError, ConnectionError):
        pass
    return r


# ---------------------------------------------------------------- the wallet
def release(a):
    t = state.today()
    for x in list(a.releases):
        if x[0] <= t:
            a.releases.remove(x)
            a.pending -= x[1]
            a.available += x[1]


def staking(a):
    if a.staked <= 0:
        return (
            {"amount": units(0)}
            if not pec("staking-nulls")
            else {"amount": 0, "note": "nothing is staked"}
        )
    s, u = a.terms
    return {
        "amount": units(a.staked),
        "start_date": day(s),
        "unlock_date": day(u),
        "duration_days": (u - s).days,
        "multiplier": multiplier((u - s).days),
    }


def multiplier(d):
    return 1 if pec("multiplier-one") else round(1 + d / 500, 4)


async def balance(c):
    a = c.acct
    release(a)
    if fault("eff-balance-cached"):
        n = time.monotonic()
        if a.cached and n - a.cached[0] < 20:
            return a.cached[1]
    av, st = a.available, a.staked
    total = av + st + a.pending
    r = {
        "address": a.address,
        "staking": staking(a),
        "balances": {
            "pending": units(a.pending),
            "total": units(total),
            "staked": units(st),
            "available": units(av),
        },
    }
    if pec("total-without-pending"):
        r["balances"]["total"] = units(av + st)
    if fault("eff-balance-cached"):
        a.cached = (time.monotonic(), r)
    return r


async def send(c):
    b, a = c.body, c.acct
    to, memo = b.get("to"), b.get("memo", "")
    if not isinstance(to, str) or not to or len(to) > 300:
        if fault("ref-send-no-recipient"):
            to = a.address
        else:
            raise bad("to must be an address", "RECIPIENT")
    if not isinstance(memo, str):
        raise bad("memo must be a text")
    x = atoms(b.get("amount"))
    if fault("ref-send-string-amount") and isinstance(b.get("amount"), str):
        try:
            x = int(float(b["amount"]) * UNIT)
        except ValueError:
            x = None
    if fault("ref-send-integer-only") and not isinstance(b.get("amount"), int):
        raise bad("amount must be an integer")
    if fault("ref-send-fraction-only") and isinstance(b.get("amount"), int):
        raise bad("amount must be a decimal number")
    if fault("ref-send-memo-refused") and memo:
        raise bad("unknown key memo")
    if x is None or x <= 0:
        if not (fault("ref-send-negative") and x):
            raise bad("amount must be above zero, with at most 6 decimals", "AMOUNT")
    if fault("eff-send-whole-units"):
        x = x // UNIT * UNIT
    fee = state.FEE
    need = x + fee
    if fault("eff-send-fee-not-checked"):
        need = x
    if fault("eff-send-overdraft"):
        need = 0
    if fault("eff-send-checks-total"):
        need -= a.staked + a.pending
    have = a.available
    if fault("eff-send-race"):
        await asyncio.sleep(0.06)
    if need > have:
        if fault("eff-402-takes-fee"):
            a.available = max(0, a.available - fee)
        if fault("eff-402-takes-all"):
            a.available = 0
        if fault("eff-402-listed"):
            a.add("send", -x, to=to, memo=memo)
        if fault("eff-402-debits-then-fails"):
            a.available -= min(a.available, UNIT)
        if fault("eff-402-credits-receiver"):
            other = ACCOUNTS.get(to)
            if other:
                other.available += 1_000_000
        raise poor(x + fee, a.available)
    dst = ACCOUNTS.get(to)
    if dst is None:
        dst = ACCOUNTS[to] = state.Account("?" + to, 0)
        dst.address = to
    e = state.new_id("tx")
    take, give = x + fee, x
    if fault("eff-send-no-debit"):
        take = 0
    if fault("eff-send-fee-free"):
        take = x
    if fault("eff-send-fee-twice"):
        take = x + 2 * fee
    if fault("eff-send-debit-twice"):
        take = 2 * x + fee if 2 * x + fee <= a.available else x + fee
    if fault("eff-send-fee-only"):
        take = fee
    if fault("eff-send-credit-minus-fee"):
        give = x - fee
    if fault("eff-send-credit-none"):
        give = 0
    if fault("eff-send-credit-twice"):
        give = 2 * x
    if fault("eff-send-credit-rounded"):
        give = x // 100_000 * 100_000
    if fault("eff-send-debit-rounded-up"):
        take = -(-(x + fee) // 100_000) * 100_000
    if fault("eff-send-credit-pending") and dst is not a:
        dst.pending += give
        give = 0
    if fault("eff-send-credit-staked") and dst is not a:
        dst.staked += give
        dst.terms = dst.terms or (state.today(), state.today() + dt.timedelta(days=30))
        give = 0
    if fault("eff-send-from-staked") and a.staked >= take and dst is not a:
        a.staked -= take
        take = 0
    if fault("eff-self-doubles") and dst is a:
        take = fee
    if fault("eff-self-loses") and dst is a:
        give = 0
    if fault("eff-self-fee-amount") and dst is a:
        take = x + fee + x // 10
    if fault("eff-self-fee-twice") and dst is a:
        take = x + 2 * fee
    if fault("eff-send-second-free"):
        a.n = getattr(a, "n", 0) + 1
        if a.n % 2 == 0:
            take = 0
    if fault("eff-send-small-free") and x < UNIT:
        take = 0
    if fault("eff-send-race"):
        a.available = have - take
    else:
        a.available -= take
    if fault("eff-send-credit-wrong-account") and dst is not a:
        TOKENS["tok-poor"].available += give
    elif fault("eff-send-credit-back-to-sender") and dst is not a:
        a.available += give
    elif fault("eff-send-credit-late") and dst is not a:
        asyncio.get_running_loop().call_later(
            30, lambda: setattr(dst, "available", dst.available + give)
        )
    else:
        dst.available += give
    if fault("eff-send-commit-fails-restores"):
        asyncio.get_running_loop().call_later(
            0.8, lambda: setattr(a, "available", a.available + take)
        )
    amount = -x
    if fault("rel-history-amount-with-fee"):
        amount = -(x + fee)
    if fault("rel-history-send-positive"):
        amount = x
    if (
        not fault("eff-send-not-listed")
        and not (fault("eff-send-memo-less-not-listed") and not memo)
        and not (fault("eff-self-not-listed") and dst is a)
    ):
        kw = {"to": to, "memo": memo}
        tid = e
        if fault("rel-history-other-id"):
            tid = state.new_id("h")
        if fault("rel-history-id-upper"):
            tid = e.upper()
        if fault("rel-history-to-is-sender"):
            kw["to"] = a.address
        if fault("rel-history-type-transfer"):
            a.add("transfer", amount, id=tid, **kw)
        elif fault("rel-history-type-receive"):
            a.add("receive", amount, id=tid, **kw)
        elif fault("rel-history-on-receiver-only"):
            pass
        elif fault("eff-send-listed-late"):
            asyncio.get_running_loop().call_later(8, lambda: a.add("send", amount, id=tid, **kw))
        else:
            a.add("send", amount, id=tid, **kw)
        if fault("rel-history-twice"):
            a.add("send", amount, id=state.new_id("tx"), **kw)
        if fault("rel-history-same-id-twice"):
            a.add("send", amount, id=tid, **kw)
        if fault("rel-history-fee-as-send"):
            a.add("send", -fee, id=state.new_id("fee"), to=to, memo="fee")
    if dst is not a or not pec("self-transfer-once"):
        dst.add("receive", give, id=e + "/in", details={"from": a.address})
    if fault("rel-history-receiver-as-send") and dst is not a:
        dst.add("send", give, id=e + "/r", to=dst.address)
    import native

    native.CHAIN.wallet(e)
    return {
        "status": "pending" if pec("transfer-pending") else "confirmed",
        "transaction_id": e,
        "timestamp": iso(),
        "memo": memo,
        "fee": units(fee),
        "amount": units(x),
        "to": to,
        "from": a.address,
    }


async def history(c):
    a = c.acct
    top = 200 if not pec("history-max-10") else 10
    lim = query_int(c, "limit", 25 if not pec("history-default-5") else 5)
    off = query_int(c, "offset", 0)
    asked = lim
    lim = min(lim, top)
    L = list(reversed(a.history))
    if pec("history-oldest-first"):
        L.reverse()
    total = len(L)
    show_l, show_o, show_t = lim, off, total
    if fault("lim-history-limit-ignored"):
        lim = 25
    if fault("lim-history-limit-plus-one"):
        lim += 1
    if fault("lim-history-limit-min-ten"):
        lim = show_l = max(10, lim)
    if fault("lim-history-offset-ignored"):
        off = 0
    if fault("lim-history-offset-as-page"):
        off = off * lim
    if fault("lim-history-offset-minus-one") and off:
        off -= 1
    if fault("lim-history-offset-plus-one") and off:
        off += 1
    if fault("lim-history-default-offset-one") and "offset" not in c.request.query:
        off = 1
    if fault("lim-history-repeat-limit-default"):
        show_l = 25
    if fault("lim-history-repeat-limit-max"):
        show_l = top
    if fault("lim-history-repeat-offset-zero"):
        show_o = 0
    if fault("lim-history-repeat-offset-next"):
        show_o = off + lim
    if fault("lim-history-last-page-empty") and off and off + lim >= total:
        lim = 0
    if fault("lim-history-end-is-limit"):
        lim = max(0, lim - off)
    page = L[off : off + lim]
    if fault("lim-history-short-pages") and len(page) > 1 and len(page) == lim:
        page = page[:-1]
    if fault("rel-history-total-of-page"):
        show_t = len(page)
    if fault("rel-history-total-plus-one"):
        show_t = total + 1
    if fault("rel-history-total-rest"):
        show_t = max(0, total - off)
    if fault("rel-history-total-pages"):
        show_t = max(len(page), -(-total // max(1, lim)) if lim else 0)
    if fault("rel-history-total-all-accounts"):
        show_t = sum(len(x.history) for x in ACCOUNTS.values()) + 3
    if fault("rel-history-page-sorted-by-amount"):
        page = sorted(page, key=lambda e: e["amount"])
    if fault("rel-history-page-reversed"):
        page = page[::-1]
    if fault("rel-history-unstable"):
        k = int(time.monotonic() * 7) % max(1, total)
        page = (L[k:] + L[:k])[off : off + lim]
    if fault("rel-history-rewards-last"):
        page = (
            sorted(L, key=lambda e: e["type"] == "reward")[off : off + lim]
            if "limit" in c.request.query and lim < 20
            else page
        )
    if fault("eff-history-of-other-account"):
        o = TOKENS["tok-b"] if a is TOKENS["tok-a"] else TOKENS["tok-a"]
        page = list(reversed(o.history))[off : off + lim]
        show_t = len(o.history)
    return {
        "limit": show_l,
        "offset": show_o,
        "total": show_t,
        "transactions": [dict(e) for e in page],
    }


async def stake(c):
    b, a = c.body, c.acct
    x = atoms(b.get("amount"))
    d = b.get("duration_days")
    if x is None or x <= 0:
        if not (fault("ref-stake-negative") and x):
            raise bad("amount", "AMOUNT")
    if not is_int(d) or not 1 <= d <= 3650:
        if fault("ref-stake-duration-missing") and d is None:
            d = 30
        elif fault("ref-stake-duration-string") and isinstance(d, str):
            d = 30
        else:
            raise bad("duration_days", "DURATION")
    if fault("ref-stake-duration-presets") and d not in (90, 180, 365):
        raise (
            bad("duration_days must be 90, 180 or 365")
            if d > 365
            else Fail(500, "INTERNAL", "KeyError: %d" % d)
        )
    if pec("stake-min-days-7") and d < 7:
        raise bad("at least 7 days")
    need = x
    if fault("eff-stake-overdraft"):
        need = 0
    if fault("eff-stake-checks-total"):
        need -= a.staked
    if need > a.available:
        if fault("eff-stake-402-locks"):
            a.staked += UNIT
            a.available -= min(a.available, UNIT)
        if fault("ref-stake-poor-400"):
            raise bad("you have too little")
        if fault("ref-stake-poor-success-false"):
            return {"success": False, "message": "too little"}
        if fault("ref-stake-poor-clamped"):
            x = a.available
        elif fault("eff-stake-402-takes-all"):
            a.available = 0
            raise poor(x, 0)
        else:
            raise poor(x, a.available)
    t = state.today()
    if fault("rel-stake-starts-tomorrow"):
        t += dt.timedelta(days=1)
    if fault("rel-stake-start-epoch"):
        t = dt.date(1970, 1, 1)
    dd = d
    if fault("rel-stake-duration-hours"):
        dd = max(1, d // 24)
    if fault("rel-stake-duration-months"):
        dd = max(1, d // 30 * 30 - (0 if d % 30 else 1))
    if fault("rel-stake-duration-capped"):
        dd = min(d, 7)
    if fault("rel-stake-duration-fixed"):
        dd = 7
    u = t + dt.timedelta(days=dd)
    if fault("rel-stake-unlock-minus-day"):
        u -= dt.timedelta(days=1)
    if fault("rel-stake-unlock-plus-day"):
        u += dt.timedelta(days=1)
    if fault("rel-stake-unlock-weekday"):
        u += dt.timedelta(days=2)
    if fault("rel-stake-unlock-is-start"):
        u = t
    take, put = x, x
    if fault("eff-stake-no-debit"):
        take = 0
    if fault("eff-stake-debit-twice"):
        take = min(a.available, 2 * x)
    if fault("eff-stake-not-staked"):
        put = 0
    if fault("eff-stake-fee-hidden"):
        take, put = x, x - min(x - 1, state.FEE)
    if fault("eff-stake-takes-fee"):
        take = min(a.available, x + 12_500)
    if fault("eff-stake-multiplied"):
        put = int(x * multiplier(d))
    if fault("eff-stake-whole-units"):
        put = x // UNIT * UNIT
    old = a.staked
    a.available -= take
    if fault("eff-stake-replaces"):
        a.staked = put
    elif fault("eff-stake-pending"):
        a.pending += put
    elif fault("eff-stake-late"):
        asyncio.get_running_loop().call_later(20, lambda: setattr(a, "staked", a.staked + put))
    else:
        a.staked += put
    real_u = state.today() + dt.timedelta(days=dd)
    if a.terms and old:
        s0, u0 = a.terms
        if fault("rel-stake-terms-overwritten"):
            a.terms = (state.today(), real_u)
        elif fault("rel-stake-terms-kept"):
            pass
        elif fault("rel-stake-terms-min"):
            a.terms = (s0, min(u0, real_u))
        elif fault("rel-stake-terms-restart-keep-unlock"):
            a.terms = (state.today(), max(u0, real_u))
        else:
            a.terms = (min(s0, state.today()), max(u0, real_u))
    else:
        a.terms = (state.today(), real_u)
        if fault("rel-stake-first-terms-default"):
            a.terms = (state.today(), state.today() + dt.timedelta(days=d + 3))
    if not pec("stakes-not-listed"):
        a.add("stake", -x)
    if fault("eff-stake-listed-as-send"):
        a.add("send", -x, to=a.address)
    nb = {"staked": units(a.staked), "available": units(a.available)}
    if fault("rel-stake-new-balance-before"):
        nb = {"staked": units(old), "available": units(a.available + take)}
    if fault("rel-stake-new-balance-amount-only"):
        nb["staked"] = units(x)
    if fault("rel-stake-new-balance-total"):
        nb["available"] = units(a.available + a.staked)
    if fault("rel-stake-new-balance-swapped"):
        nb = {"staked": units(a.available), "available": units(a.staked)}
    return {
        "stake": {
            "multiplier": multiplier(d),
            "unlock_date": day(u),
            "start_date": day(t),
            "duration_days": dd,
            "amount": units(x),
        },
        "new_balance": nb,
        "success": True,
    }


async def unstake(c):
    b, a = c.body, c.acct
    x = atoms(b.get("amount"))
    if x is None or x <= 0:
        if not (fault("ref-unstake-negative") and x):
            raise bad("amount", "AMOUNT")
    if fault("ref-unstake-locked"):
        raise Fail(409, "LOCKED", "the stake is locked until %s" % (a.terms and day(a.terms[1])))
    if x > a.staked:
        if fault("eff-unstake-excess"):
            a.staked, a.pending = 0, a.pending + x
            return {
                "success": True,
                "unstake": {
                    "amount": units(x),
                    "cooldown_days": state.COOLDOWN,
                    "available_date": day(state.today() + dt.timedelta(days=state.COOLDOWN)),
                },
            }
        if fault("eff-unstake-excess-clamped"):
            x0, x = x, a.staked
            a.staked = 0
            a.pending += x
            return {
                "success": True,
                "unstake": {
                    "amount": units(x0),
                    "cooldown_days": state.COOLDOWN,
                    "available_date": day(state.today() + dt.timedelta(days=state.COOLDOWN)),
                },
            }
        if fault("eff-unstake-excess-releases"):
            a.available += a.staked
            a.staked = 0
        if fault("ref-unstake-excess-success"):
            return {
                "success": True,
                "unstake": {
                    "amount": units(x),
                    "cooldown_days": state.COOLDOWN,
                    "available_date": day(state.today() + dt.timedelta(days=state.COOLDOWN)),
                },
            }
        if pec("unstake-refusal-200"):
            return {"success": False}
        raise Fail(409, "STAKE_TOO_SMALL", "only %s is staked" % units(a.staked))
    cd = state.COOLDOWN
    take = x
    if fault("eff-unstake-all"):
        take = a.staked
    if fault("eff-unstake-nothing"):
        take = 0
    if fault("eff-unstake-half"):
        take = x // 2
    if fault("eff-unstake-twice"):
        take = min(a.staked, 2 * x)
    a.staked -= take
    if fault("eff-unstake-available-now"):
        a.available += x
    elif fault("eff-unstake-available-part"):
        a.available += x // 10
        a.pending += x - x // 10
    elif fault("eff-unstake-available-soon"):
        a.pending += x
        asyncio.get_running_loop().call_later(1.0, lambda: setattr(a, "available", a.available + x))
    elif fault("eff-unstake-penalty"):
        a.available -= min(a.available, x // 10)
        a.pending += x
    else:
        a.pending += x
    s0, u0 = a.terms or (state.today(), state.today())
    if fault("rel-unstake-restarts-terms"):
        a.terms = (state.today() + dt.timedelta(days=cd), u0 + dt.timedelta(days=cd))
    if fault("rel-unstake-shortens"):
        a.terms = (s0, state.today())
    av = state.today() + dt.timedelta(days=cd)
    a.releases.append((av, x))
    if fault("rel-unstake-date-today"):
        av = state.today()
    if fault("rel-unstake-date-plus-one"):
        av += dt.timedelta(days=1)
    if fault("rel-unstake-date-minus-one"):
        av -= dt.timedelta(days=1)
    if fault("rel-unstake-date-after-unlock"):
        av = u0 + dt.timedelta(days=cd)
    if fault("rel-unstake-cooldown-hours"):
        cd = cd * 24
    if fault("rel-unstake-cooldown-zero"):
        cd = 0
    if fault("rel-unstake-cooldown-seconds"):
        cd = cd * 86400
    if not pec("stakes-not-listed"):
        a.add("unstake", x)
    amt = x
    if fault("rel-unstake-amount-rest"):
        amt = a.staked
    if fault("rel-unstake-amount-minus-fee"):
        amt = max(0, x - 12_500)
    return {
        "unstake": {"available_date": day(av), "cooldown_days": cd, "amount": units(amt)},
        "success": True,
    }


HANDLERS = {n: globals()[n] for n in NODE_ROUTES}
