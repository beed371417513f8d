"""The node API under /api/v1, and the two routes of the training verification."""
import asyncio
import hashlib
import html
import json
import math
import re
import time

from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

import faults
import model
import peculiar
import state
from state import ATOMS, CONFIG, METRICS, Refused, stamp, unit
from switches import on, pec


def dumps(obj):
    if pec("pec-json-indent"):
        return json.dumps(obj, indent=2)
    if pec("pec-json-ascii-off"):
        return json.dumps(obj, ensure_ascii=False)
    if pec("pec-json-sorted"):
        return json.dumps(obj, sort_keys=True)
    return json.dumps(obj, separators=(",", ":"))


def reply(name, obj, status=200):
    obj = faults.mutate(name, obj)
    obj = peculiar.mutate(name, obj)
    kind = "application/json"
    if pec("pec-charset"):
        kind = "application/json; charset=utf-8"
    if on("fld-content-type-text"):
        kind = "text/plain"
    text = dumps(obj)
    if on("t-fld-duplicate-key") and name == "inference":
        text = text.replace('{"id":', '{"id":"","id":', 1)
    return Response(text.encode("utf-8"), status, media_type=kind)


def failure(e):
    error = {"code": e.code, "message": e.message}
    if e.details is not None:
        error["details"] = e.details
    status = e.status
    body = {"error": error}
    if status == 402:
        if on("ref-402-as-400"):
            status = 400
        if on("ref-402-as-403"):
            status = 403
        body = faults.mutate("error402", body)
        body = peculiar.mutate("error402", body)
    elif status == 401 and on("n-fld-401-empty-body") and e is NO_HEADER:
        return Response(b"", 401)
    elif status == 401:
        if on("ref-401-as-403"):
            status = 403
        body = faults.mutate("error401", body)
        body = peculiar.mutate("error401", body)
    else:
        if on("ref-invalid-as-500") and status in (400, 422):
            status = 500
        if on("ref-invalid-as-200") and status == 400:
            status = 200
        if pec("pec-422") and status == 400:
            status = 422
        body = faults.mutate("error", body)
    res = Response(dumps(body).encode(), status, media_type="application/json")
    if e.status == 401 and pec("pec-www-authenticate"):
        res.headers["WWW-Authenticate"] = 'Bearer realm="node"'
    return res


def bad(message):
    return Refused(400, "INVALID_REQUEST", message)


UNAUTHORIZED = Refused(401, "UNAUTHORIZED", "the token is unknown or has expired")
NO_HEADER = Refused(401, "UNAUTHORIZED", "the token is unknown or has expired")
_remembered = [None]
_expired_seen = set()
_proofs_read = [False]
_balance_read = [None]
_last_account = [None]


_by_connection = {}
_refused_connections = set()
_lock = [0, 0.0]
_logged_out = set()
_serving = []


def auth(request, route):
    header = request.headers.get("authorization")
    wire_ = tuple(request.client) if request.client else None
    if on("t-gua-connection-account") and wire_ in _by_connection:
        return _by_connection[wire_]
    if on("t-gua-connection-refused") and wire_ in _refused_connections:
        raise UNAUTHORIZED
    if on("t-gua-lockout") and time.time() < _lock[1]:
        raise UNAUTHORIZED
    if on("t-gua-while-serving") and header is None and _serving:
        return _serving[-1]
    if on("t-gua-scheme-basic") and re.match(r"(?i)basic +\S+$", header or ""):
        return state.A
    if on("gua-" + route):
        m = re.match(r"(?i)bearer +(\S+)$", header or "")
        return state.TOKENS.get(m.group(1) if m else "", state.A)
    if on("gua-missing-header") and header is None:
        return state.A
    if on("gua-query-token") and "token" in request.query_params or on("gua-query-token") and "access_token" in request.query_params:
        return state.TOKENS.get(request.query_params.get("token") or request.query_params.get("access_token"), state.A)
    if header is None and on("n-gua-remembered") and _remembered[0] is not None:
        return _remembered[0]
    if on("n-gua-second-page") and route == "transactions" and request.query_params.get("offset", "0") != "0":
        m = re.match(r"(?i)bearer +(\S+)$", header or "")
        return state.TOKENS.get(m.group(1) if m else "", state.A)
    if on("n-gua-proofs-after") and route == "proofs" and _proofs_read[0]:
        return state.A
    if on("n-gua-content-type") and request.method == "POST" and not request.headers.get("content-type", "").startswith("application/json"):
        m = re.match(r"(?i)bearer +(\S+)$", header or "")
        return state.TOKENS.get(m.group(1) if m else "", state.A)
    if header is None:
        raise NO_HEADER
    if on("n-gua-empty-bearer") and header.strip().lower() == "bearer":
        return state.A
    if on("n-ref-token-bytes-500") and not header.isascii():
        raise Refused(500, "INTERNAL", "UnicodeEncodeError: ordinal not in range(128)")
    m = re.match(r"(?i)bearer +(\S+)$", header)
    if on("gua-any-scheme"):
        m = re.match(r"(?:\S+ +)?(\S+)$", header)
    if not m:
        raise UNAUTHORIZED
    token = m.group(1)
    if on("ref-token-once-refused") and _last_account[0] == "refused":
        _last_account[0] = None
        raise UNAUTHORIZED
    if on("gua-expired") and token in state.EXPIRED:
        return state.EXPIRED[token]
    if on("gua-expired-writes") and token in state.EXPIRED and request.method != "GET":
        return state.EXPIRED[token]
    if on("n-gua-expired-second-time") and token in state.EXPIRED:
        if token in _expired_seen:
            return state.EXPIRED[token]
        _expired_seen.add(token)
    if on("n-gua-token-contains"):
        for t, a in state.TOKENS.items():
            if t in token:
                return a
    if on("n-gua-long-token") and len(token) > 256:
        return state.A
    if on("n-gua-null-token") and token in ("null", "undefined"):
        return state.A
    if on("gua-any-token"):
        return state.TOKENS.get(token, state.A)
    if on("gua-token-prefix"):
        for t, a in state.TOKENS.items():
            if token.startswith(t):
                return a
    if on("gua-token-case"):
        token = token.lower()
    if on("t-gua-first-letter"):
        token = next((t for t in state.TOKENS if len(t) == len(token) and t[1:] == token[1:]), token)
    if on("t-gua-bad-body-logs-out") and token in _logged_out:
        _logged_out.discard(token)
        raise UNAUTHORIZED
    acct = state.TOKENS.get(token)
    if acct is None:
        _last_account[0] = "refused"
        if on("t-gua-connection-refused"):
            _refused_connections.add(wire_)
        _lock[0] += 1
        if _lock[0] >= 3:
            _lock[:] = [0, time.time() + 3]
        if on("ref-500-unknown-token") and token not in state.EXPIRED:
            raise Refused(500, "INTERNAL", "KeyError: " + repr(token))
        if on("ref-404-expired-token") and token in state.EXPIRED:
            raise Refused(404, "NOT_FOUND", "no such account")
        raise UNAUTHORIZED
    if on("rel-token-b-reads-a") and request.method == "GET":
        return state.A
    _lock[0] = 0
    if on("t-gua-connection-account"):
        _by_connection[wire_] = acct
    state.release(acct)
    _remembered[0] = acct
    return acct


def _no_constant(text):
    raise ValueError(text)


async def body_of(request):
    raw = await request.body()
    if len(raw) > 4 << 20:
        raise Refused(413, "TOO_LARGE", "the body is too large")
    if on("t-ref-charset-415") and ";" in request.headers.get("content-type", ""):
        raise Refused(415, "UNSUPPORTED_MEDIA_TYPE", "the body is not application/json")
    if on("t-ref-chunked-411") and "content-length" not in request.headers:
        raise Refused(411, "LENGTH_REQUIRED", "the length of the body is missing")
    if on("t-ref-body-space") and raw[:1].isspace():
        raise bad("the body is not JSON")
    try:
        data = json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        if on("ref-not-json-accepted"):
            return {"prompt": raw.decode("utf-8", "replace")}
        if on("ref-not-json-500"):
            raise Refused(500, "INTERNAL", "json.decoder.JSONDecodeError")
        raise bad("the body is not JSON")
    if not isinstance(data, dict):
        if on("t-ref-body-array-500"):
            raise Refused(500, "INTERNAL", "AttributeError: 'list' object has no attribute 'get'")
        raise bad("the body is not an object")
    return data


def is_number(v):
    return isinstance(v, (int, float)) and not isinstance(v, bool) and abs(v) < 1e300


def is_int(v):
    return is_number(v) and v == int(v)


def money(data, key="amount"):
    v = data.get(key)
    if on("ref-amount-string") and isinstance(v, str):
        try:
            v = float(v)
        except ValueError:
            pass
    if on("ref-amount-list") and isinstance(v, list) and v:
        v = v[0]
    if key not in data:
        if on("ref-send-no-amount"):
            return ATOMS
        raise bad("%s is missing" % key)
    if not is_number(v) or abs(v) > 1e15:
        raise bad("%s is not a number" % key)
    exact = v * ATOMS
    atoms = int(round(exact))
    if abs(exact - atoms) > 1e-3 + 1e-9 * abs(exact):
        raise bad("%s has more than six decimals" % key)
    if atoms <= 0 and not (on("ref-amount-negative") and atoms < 0):
        raise bad("%s is not above 0" % key)
    if on("n-num-amount-truncated"):
        atoms = int(exact)
    if on("n-ref-amount-int") and isinstance(v, int):
        raise bad("%s is not a decimal number" % key)
    if on("ref-amount-integers-only") and isinstance(v, float):
        raise bad("%s is not an integer" % key)
    return atoms


def query_int(request, name, default):
    text = request.query_params.get(name)
    if on("t-ref-query-encoded"):
        text = dict(p.partition("=")[::2] for p in request.url.query.split("&")).get(name)
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]{1,9}", text):
        if on("ref-limit-500"):
            raise Refused(500, "INTERNAL", "ValueError: invalid literal for int()")
        raise bad("%s is not a number of entries" % name)
    return int(text)


_reloaded = [0.0]
_metrics_read = [0.0, None]


async def status(request):
    age = time.time() - state.STARTED
    if on("t-eff-uptime-resets"):
        age = time.time() - max(state.STARTED, _reloaded[0])
    if on("n-num-uptime-epoch"):
        age = time.time()
    if on("num-uptime-ms"):
        age *= 1000
    if on("eff-uptime-still"):
        age = 17
    if on("eff-uptime-per-minute"):
        age = age // 60 * 60
    mine = model.MY_LAYERS
    enabled = CONFIG["training"]["enabled"]
    if on("rel-status-enabled-fixed"):
        enabled = True
    return reply("status", {
        "node_id": state.NODE_ID, "version": state.VERSION, "uptime_seconds": int(age), "status": "running", "role": "validator",
        "layers": list(mine), "peer_count": len(state.PEERS),
        "training": {"enabled": enabled, "epoch": 3, "step": 21000, "loss": model.LOSS},
        "resources": {"gpu_memory_used": 3221225472, "gpu_memory_total": 8589934592, "cpu_percent": 12.5, "ram_used": 1288490188}})


async def metrics(request):
    if on("t-eff-metrics-cached"):
        if time.time() - _metrics_read[0] > 10:
            _metrics_read[:] = [time.time(), METRICS.shown()]
        return reply("metrics", _metrics_read[1])
    return reply("metrics", METRICS.shown())


async def health(request):
    if on("t-gua-health-needs"):
        auth(request, "health")
    return reply("health", {"healthy": True, "checks": {"gpu": "ok", "network": "ok", "storage": "ok", "peers": "ok"}})


PARAMETERS = ("max_tokens", "temperature", "top_p", "top_k", "stream", "stop")


def parameters(data):
    data = dict(data)
    if on("t-eff-body-order") and "prompt" in data:
        keys = list(data)
        data = {k: data[k] for k in keys[keys.index("prompt"):]}
    if on("t-ref-bool-number"):
        for k in ("max_tokens", "temperature", "top_p", "top_k"):
            if isinstance(data.get(k), bool):
                data[k] = int(data[k])
    if on("t-lim-stream-default") and data.get("stream") is True and "max_tokens" not in data:
        data["max_tokens"] = 128
    if "prompt" not in data:
        if on("ref-prompt-optional"):
            data["prompt"] = "Hello"
        else:
            raise bad("prompt is missing")
    if on("ref-prompt-any-type") and not isinstance(data["prompt"], str):
        data["prompt"] = str(data["prompt"])
    if not isinstance(data["prompt"], str) or not data["prompt"]:
        raise bad("prompt is not a text")
    if on("ref-prompt-ascii") and not data["prompt"].isascii():
        raise bad("prompt has characters that are not supported")
    if on("ref-prompt-quotes-500") and ('"' in data["prompt"] or "\n" in data["prompt"]):
        raise Refused(500, "INTERNAL", "the prompt could not be encoded")
    if on("ref-only-prompt") and "max_tokens" not in data:
        raise bad("max_tokens is missing")
    if on("ref-parameter-lists"):
        for k in ("max_tokens", "temperature", "top_p", "top_k"):
            if isinstance(data.get(k), (list, dict)):
                data.pop(k)
    if on("ref-max-tokens-text"):
        for k in ("max_tokens", "top_k"):
            if isinstance(data.get(k), str):
                try:
                    data[k] = int(data[k])
                except ValueError:
                    data.pop(k)
    if on("ref-stream-truthy") and "stream" in data:
        data["stream"] = bool(data["stream"])
    if on("ref-stop-text") and isinstance(data.get("stop"), str):
        data["stop"] = [data["stop"]]
    if on("ref-stop-empty") and data.get("stop") == []:
        raise bad("stop is empty")
    if on("ref-top-p-one") and data.get("top_p") == 1:
        raise bad("top_p is not below 1")
    top = 1 if on("lim-temperature-one") else 100 if on("lim-temperature-free") else 2
    low = -100 if on("lim-temperature-negative") else 1e-9 if on("lim-temperature-zero") else 0
    if on("n-lim-default-last"):
        if "max_tokens" in data:
            _last_given["max_tokens"] = data["max_tokens"]
        elif "max_tokens" in _last_given:
            data["max_tokens"] = _last_given["max_tokens"]
    if on("n-eff-stop-leaks"):
        if "stop" in data:
            _last_given["stop"] = data["stop"]
        elif "stop" in _last_given:
            data["stop"] = _last_given["stop"]
    if on("n-lim-prompt-cut"):
        data["prompt"] = data["prompt"][:1000]
    m = data.get("max_tokens", 256 if on("lim-default-256") else 16 if on("lim-default-16") else 100)
    if not is_int(m) or m < 0:
        raise bad("max_tokens is not a number of tokens")
    if m > 4096:
        raise bad("max_tokens is above 4096")
    t = data.get("temperature", 1.0)
    if on("n-lim-temperature-two") and t == 2:
        raise bad("temperature is not below 2")
    if on("n-ref-temperature-int") and "temperature" in data and isinstance(t, int):
        raise bad("temperature is not a decimal number")
    if on("n-lim-stream-temperature") and data.get("stream") is True and is_number(t):
        t = min(max(t, low), top)
    if on("t-lim-temperature-rounded") and is_number(t):
        t = round(t)
    if not is_number(t) or not low <= t <= top:
        raise bad("temperature is not a number from 0 to 2")
    p = data.get("top_p", 1.0)
    if not is_number(p) or not 0 < p <= 1:
        raise bad("top_p is not a number above 0 and at most 1")
    if on("t-lim-top-p-tenth") and p < 0.1:
        raise bad("top_p is too low")
    k = data.get("top_k", 50)
    if not is_int(k) or k < 1:
        raise bad("top_k is not a positive number")
    if on("t-lim-top-k-one") and k <= 1:
        raise bad("top_k is not above 1")
    if on("lim-top-k-vocabulary") and k > 50:
        raise bad("top_k is above 50")
    stream = data.get("stream", bool(on("rel-stream-default")))
    if on("n-ref-stream-false") and stream is False and "stream" in data:
        stream = True
    if not isinstance(stream, bool):
        raise bad("stream is neither true nor false")
    stop = data.get("stop", [])
    if not isinstance(stop, list) or not all(isinstance(s, str) and s for s in stop):
        raise bad("stop is not an array of texts")
    m = int(m)
    if on("n-lim-max-zero-default") and m == 0:
        m = 100
    if on("n-lim-stream-max-plus-one") and stream:
        m += 1
    if on("lim-max-tokens-plus-one"):
        m += 1
    if on("lim-max-tokens-ignored"):
        m = 100
    if on("lim-max-tokens-32"):
        m = min(m, 32)
    if on("lim-max-less-prompt"):
        m = max(1, m - model.prompt_tokens(data["prompt"]))
    return data["prompt"], m, stop, stream


_serial = [0]
_last_given = {}
_texts = {}
_streamed = set()
_last_usage = [None]


async def inference(request):
    began = time.time()
    if on("ref-body-before-token"):
        data = await body_of(request)
        parameters(data)
        acct = auth(request, "inference")
    elif on("gua-stream") and re.search(rb'"stream"\s*:\s*true', await request.body()):
        data = await body_of(request)
        acct = state.A
    else:
        acct = auth(request, "inference")
        data = await body_of(request)
    try:
        prompt, most, stop, stream = parameters(data)
    except Refused as e:
        if on("ref-stream-error-event") and data.get("stream") is True:
            return Response(b'data: {"error":{"code":"INVALID_REQUEST","message":"bad request"}}\n\n', 200, media_type="text/event-stream")
        raise e
    if on("ref-stream-not-served"):
        stream = False
    if on("t-ref-busy-503"):
        if METRICS.generating >= 2:
            raise Refused(503, "RATE_LIMITED", "too many generations", {"retry_after": 1})
        METRICS.generating += 1
        try:
            await asyncio.sleep(0.25)
        finally:
            METRICS.generating -= 1
    if on("t-lim-max-shared"):
        _last_given["most"] = most
        await asyncio.sleep(0.15)
        most = _last_given["most"]
    if on("t-gua-while-serving"):
        _serving.append(acct)
        await asyncio.sleep(0.25)
        _serving.remove(acct)
    counted = METRICS.requests, METRICS.tokens
    if on("t-eff-count-race"):
        await asyncio.sleep(0.15)
        METRICS.requests, METRICS.tokens = counted
    parts, used, reason = model.generate(prompt, most, stop)
    if on("n-eff-inference-cache"):
        parts, used, reason = _texts.setdefault(prompt, (parts, used, reason))
    if on("eff-stream-stop-ignored") and stream:
        parts, used, reason = model.generate(prompt, most, [])
    if pec("pec-slow"):
        await asyncio.sleep(0.15)
    known = model.prompt_tokens(prompt)
    cost = known * state.PRICE_PROMPT + used * state.PRICE_TOKEN
    billed = cost
    if on("eff-charged-for-maximum"):
        billed = known * state.PRICE_PROMPT + most * state.PRICE_TOKEN
    if on("t-eff-stopped-free") and stop and reason == "stop":
        billed = 0
    if on("eff-charged-more"):
        billed = cost * 3
    if on("eff-stream-charged-tenfold") and stream:
        billed = cost * 10
    try:
        if not (on("eff-stream-free") and stream):
            state.charge(acct, billed)
    except Refused as e:
        if on("ref-stream-402-event") and stream:
            body = json.dumps({"error": {"code": e.code, "message": e.message, "details": e.details}})
            return Response(("data: %s\n\n" % body).encode(), 200, media_type="text/event-stream")
        if on("n-ref-402-as-429"):
            raise Refused(429, "RATE_LIMITED", "too many requests", {"retry_after": 60})
        raise e
    stopped = bool(stop) and reason == "stop"
    if on("n-eff-count-stopped-none") and stopped:
        pass
    elif on("n-eff-count-second-none") and acct is not state.A:
        METRICS.count(0)
    elif not (on("eff-count-stream-none") and stream):
        METRICS.count(most if on("eff-count-asked") else used if not (on("eff-count-stream-tokens") and stream) else 0)
        if on("eff-count-stream-twice") and stream:
            METRICS.count(used)
    usage = {"prompt_tokens": known, "completion_tokens": used, "total_tokens": known + used}
    _serial[0] += 1
    rid = "inf-%d-%s" % (_serial[0], hashlib.sha256(("%s/%s" % (_serial[0], state.STARTED)).encode()).hexdigest()[:12])
    if on("t-rel-inference-id-second"):
        rid = "inf-%d" % time.time()
    if on("t-rel-stream-prompt-words") and stream:
        words = len(prompt.split())
        usage = {"prompt_tokens": words, "completion_tokens": used, "total_tokens": words + used}
    if on("t-rel-cost-no-prompt"):
        cost = used * state.PRICE_TOKEN
    if on("rel-inference-same-id"):
        rid = "inf-" + hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    if on("n-eff-stream-second-empty") and stream:
        if prompt in _streamed:
            parts = []
        _streamed.add(prompt)
    if on("n-rel-final-usage-previous"):
        before, _last_usage[0] = _last_usage[0], usage
        if stream and before is not None:
            usage = before
    if stream:
        return streamed(parts, used, reason, usage)
    floor = lambda seconds: math.floor(seconds * 1000000) / 1000
    total = floor(time.time() - began)
    METRICS.latencies.append(total)
    queue = floor(0.00001 if total > 0.02 else 0.0)
    inner = max(0.0, math.floor((total - queue) * 1000) / 1000)
    return reply("inference", {
        "id": rid, "text": "".join(parts), "tokens_generated": used, "finish_reason": reason, "usage": usage,
        "cost": {"amount": unit(cost), "currency": state.CURRENCY},
        "timing": {"queue_ms": queue, "inference_ms": inner, "total_ms": total}})


_next_index = [0]
_streaming = [None]


def streamed(parts, used, reason, usage):
    parts = list(parts)
    if on("eff-stream-last-token-lost") and len(parts) > 1:
        parts.pop()
    if on("t-eff-stream-first-twice"):
        parts[:1] *= 2
    if on("t-rel-index-goes-on"):
        first, _next_index[0] = _next_index[0], _next_index[0] + len(parts)
    if on("eff-stream-stripped"):
        parts = [p.strip() for p in parts]
    if on("eff-stream-whole-text-each"):
        parts = ["".join(parts[:i + 1]) for i in range(len(parts))]
    if pec("pec-stream-pairs"):
        parts = ["".join(parts[i:i + 2]) for i in range(0, len(parts), 2)]
    if on("n-eff-stream-64"):
        parts = parts[:64]
    events = []
    for i, p in enumerate(parts):
        events.append(faults.mutate("token", {"token": p, "index": i % 32 if on("n-rel-token-index-restarts") else first + i if on("t-rel-index-goes-on") else i}))
    last = faults.mutate("final", {"token": "[DONE]", "finish_reason": reason, "usage": usage})
    if on("fld-stream-final-missing"):
        last = None
    if on("eff-stream-order") and len(events) > 3:
        events[1], events[2] = events[2], events[1]
    if last is not None:
        events.append(last)
    if on("eff-stream-after-final"):
        events.append({"token": "", "index": len(parts)})

    def line(e):
        if isinstance(e, str):
            return "data: %s\n\n" % e
        e = peculiar.mutate("event", e)
        if on("t-fld-sse-repr"):
            return "data: %s\n\n" % (e,)
        text = dumps(e) if not pec("pec-json-indent") else json.dumps(e)
        if on("fld-stream-multi-line"):
            text = json.dumps(e, indent=1)
            return "data: %s\n\n" % text.replace("\n", "\ndata: ")
        if on("fld-stream-no-blank"):
            return "data: %s\n" % text
        if on("fld-stream-event-name"):
            return "%s\n\n" % text
        return "data: %s\n\n" % text

    if on("fld-stream-openai-done"):
        events.append("[DONE]")

    _streaming[0] = events

    async def run():
        for n, e in enumerate(events):
            if on("t-eff-stream-shared"):
                await asyncio.sleep(0.004)
                e = _streaming[0][n] if n < len(_streaming[0]) - 1 and n < len(events) - 1 else e
            text = line(e)
            if on("t-fld-stream-last-no-blank") and n == len(events) - 1:
                text = text[:-1]
            yield text.encode("utf-8")
            if n % 16 == 0:
                await asyncio.sleep(0)
            if pec("pec-stream-slow") and n < 40:
                await asyncio.sleep(0.01)

    kind = "text/event-stream"
    if on("fld-stream-type-json"):
        kind = "application/json"
    if on("fld-stream-type-plain"):
        kind = "text/plain"
    headers = {"cache-control": "no-cache"}
    res = StreamingResponse(run(), 200, headers=headers)
    res.headers["content-type"] = kind + ("; charset=utf-8" if pec("pec-stream-charset") else "")
    return res


async def wallet_balance(request):
    if on("n-gua-balance-shared"):
        if _balance_read[0] is not None and time.time() - _balance_read[0][0] < 2 and request.headers.get("authorization"):
            return reply("balance", _balance_read[0][1])
        acct = auth(request, "balance")
        _balance_read[0] = (time.time(), state.balance(acct))
    acct = auth(request, "balance")
    if on("t-gua-balance-race"):
        _last_given["account"] = acct
        await asyncio.sleep(0.06)
        acct = _last_given["account"]
    return reply("balance", state.balance(acct))


async def wallet_send(request):
    acct = auth(request, "send")
    data = await body_of(request)
    to = data.get("to")
    if "to" not in data and on("ref-send-no-to"):
        to = state.B.address
    if not isinstance(to, str) or not to.strip() or len(to) > 256:
        raise bad("to is not an address")
    if on("ref-send-unknown-to") and to not in state.ACCOUNTS:
        raise Refused(404, "NOT_FOUND", "no such address")
    memo = data.get("memo", "")
    if "memo" not in data and on("ref-send-memo-needed"):
        raise bad("memo is missing")
    if not isinstance(memo, str) or len(memo) > 4096:
        if on("ref-memo-any-type") and not isinstance(memo, str):
            memo = str(memo)
        else:
            raise bad("memo is not a text")
    if on("n-ref-memo-emoji-500") and any(ord(ch) > 0xffff for ch in memo):
        raise Refused(500, "INTERNAL", "UnicodeEncodeError")
    if on("n-rel-memo-leaks"):
        if memo:
            _last_given["memo"] = memo
        else:
            memo = _last_given.get("memo", "")
    amount = money(data)
    if on("ref-self-refused") and to == acct.address:
        raise bad("a transfer to oneself")
    if on("rel-memo-ascii"):
        memo = memo.encode("ascii", "replace").decode()
    if on("rel-memo-trimmed"):
        memo = memo[:16]
    if on("rel-memo-lower"):
        memo = memo.lower()
    if on("t-eff-memo-html"):
        memo = html.escape(memo)
    if on("t-eff-send-race"):
        had = acct.available
        await asyncio.sleep(0.15)
        acct.available = had
    if on("t-eff-send-check-early") and acct.available >= amount + state.FEE:
        await asyncio.sleep(0.15)
        data["checked"] = True
    shown = state.send(acct, to, amount, memo, data)
    return reply("send", shown)


def entry(e):
    out = {"id": e["id"], "type": e["type"], "amount": unit(e["amount"]), "timestamp": stamp(e["at"])}
    for k in ("details", "to", "from", "memo"):
        if k in e:
            out[k] = e[k]
    if "fee" in e:
        out["fee"] = unit(e["fee"])
    if on("n-rel-reward-amount") and e["type"] == "reward":
        out["amount"] = round(out["amount"], 1)
    if on("t-rel-history-to-short") and len(out.get("to", "")) > 16:
        out["to"] = out["to"][:8] + "..." + out["to"][-5:]
    if on("fld-history-no-details"):
        out.pop("details", None)
    if on("fld-history-no-proof-id") and "details" in out:
        out["details"] = {"role": out["details"]["role"]}
    if on("fld-history-role-null") and "details" in out:
        out["details"] = dict(out["details"], role=None)
    if on("fld-history-recipient") and "to" in out:
        out["recipient"] = out.pop("to")
    if on("num-history-epoch"):
        out["timestamp"] = int(e["at"])
    if on("num-history-amount-text"):
        out["amount"] = str(out["amount"])
    if on("fld-history-tx-hash"):
        out["tx_id"] = out.pop("id")
    if on("num-history-future"):
        out["timestamp"] = stamp(e["at"] + 86400 * 3)
    if on("rel-history-unknown-proofs") and "details" in out:
        out["details"] = dict(out["details"], proof_id="p-" + out["id"][-8:])
    return out


_reads = [0]


_lists = {}


async def wallet_transactions(request):
    if on("t-gua-limit-before-token"):
        query_int(request, "limit", 20), query_int(request, "offset", 0)
    acct = auth(request, "transactions")
    if on("t-eff-history-cached") and (acct.address, request.url.query) in _lists:
        return reply("transactions", _lists[(acct.address, request.url.query)])
    limit = query_int(request, "limit", 50 if pec("pec-default-limit-50") else 20)
    offset = query_int(request, "offset", 0)
    if on("t-lim-query-order") and list(request.query_params.keys())[:2] == ["offset", "limit"]:
        limit, offset = offset, limit
    if on("t-ref-offset-404") and offset >= len(acct.history) and offset:
        raise Refused(404, "NOT_FOUND", "there is no such page")
    if limit > 10000:
        raise bad("limit is above 10000")
    entries = list(acct.history)
    if not pec("pec-history-oldest-first"):
        entries.reverse()
    _reads[0] += 1
    if on("eff-history-unordered"):
        n = _reads[0] % 3
        entries = entries[n:] + entries[:n]
    take, skip, said_limit, said_offset = limit, offset, limit, offset
    if on("lim-limit-ignored"):
        take = 20
    if on("lim-limit-one-more"):
        take = limit + 1
    if on("lim-limit-zero-all") and limit == 0:
        take = 20
    if on("lim-limit-ten"):
        take = min(limit, 10)
    if on("lim-offset-ignored"):
        skip = 0
    if on("lim-offset-pages"):
        skip = offset * limit
    if on("lim-offset-one-based"):
        skip = max(0, offset - 1)
    if on("lim-offset-without-limit") and "limit" not in request.query_params:
        skip = 0
    if on("lim-default-offset-one") and "offset" not in request.query_params:
        skip = 1
    if on("lim-offset-says-zero"):
        said_offset = 0
    if on("lim-limit-says-default"):
        said_limit = 20
    if on("n-lim-offset-clamped"):
        skip = min(skip, max(0, len(entries) - 1))
    if on("n-lim-limit-over-total") and take > len(entries):
        take = 0
    if on("t-lim-history-forty"):
        skip, take = min(skip, 40), max(0, min(take, 40 - skip))
    page = entries[skip:skip + take]
    if on("lim-page-reversed"):
        page.reverse()
    total = len(entries)
    if on("rel-total-is-page"):
        total = len(page)
    if on("rel-total-plus-one"):
        total += 1
    if on("rel-total-frozen"):
        total = 44 if acct is state.A else 8
    shown = {"transactions": [entry(e) for e in page], "total": total, "limit": said_limit, "offset": said_offset}
    _lists[(acct.address, request.url.query)] = shown
    if len(_lists) > 1000:
        _lists.clear()
    return reply("transactions", shown)


async def wallet_stake(request):
    try:
        acct = auth(request, "stake")
    except Refused:
        if on("t-eff-401-stakes") and request.headers.get("authorization", "").split(" ")[-1] in state.EXPIRED:
            data = await body_of(request)
            state.stake(state.A, money(data), int(data["duration_days"]))
        raise
    data = await body_of(request)
    amount = money(data)
    days = data.get("duration_days")
    if days is None and on("ref-stake-no-days"):
        days = 30
    if on("ref-stake-days-text") and isinstance(days, str):
        days = int(days) if days.isdigit() else days
    if on("t-ref-stake-days-fraction") and is_number(days):
        days = int(days)
    if on("t-eff-stake-400-takes") and (not is_int(days) or not 1 <= days <= 3650):
        acct.available -= min(amount, acct.available)
    if not is_int(days) or not 1 <= days <= 3650:
        raise bad("duration_days is not a number of days from 1 to 3650")
    return reply("stake", state.stake(acct, amount, int(days)))


async def wallet_unstake(request):
    acct = auth(request, "unstake")
    data = await body_of(request)
    return reply("unstake", state.unstake(acct, money(data)))


async def peers(request):
    auth(request, "peers")
    out = [{"id": p["id"], "address": p["address"], "role": p["role"], "layers": p["layers"], "latency_ms": p["latency_ms"],
            "connected_since": stamp(2 * state.STARTED - p["since"] if on("t-rel-peers-since-future") else p["since"])} for p in state.PEERS]
    return reply("peers", {"peers": out, "total": len(out)})


_layers = []


async def layers(request):
    auth(request, "layers")
    out = [{"index": i, "type": "transformer", "memory_mb": 48, "status": "active"} for i in model.MY_LAYERS]
    if on("t-eff-layers-grow"):
        _layers.extend(out)
        out = list(_layers)
    if pec("pec-all-layers"):
        out = [{"index": i, "type": "transformer", "memory_mb": 48, "status": "active" if i in model.MY_LAYERS else "remote"}
               for i in range(model.TOTAL_LAYERS)]
    return reply("layers", {"layers": out, "total_layers": model.TOTAL_LAYERS, "my_layer_count": len(model.MY_LAYERS)})


async def network(request):
    if on("n-gua-network-needs"):
        auth(request, "network")
    roles = [p["role"] for p in state.PEERS] + ["validator"]
    return reply("network", {
        "nodes": {"total": len(roles), "drivers": roles.count("driver"), "workers": roles.count("worker"), "validators": roles.count("validator")},
        "architecture": {"layers": model.TOTAL_LAYERS, "hidden_dim": model.HIDDEN, "parameters": str(model.PARAMS)},
        "capacity": {"total_memory_gb": 96.0, "used_memory_gb": 41.5},
        "training": {"epoch": 3, "global_step": 21000, "loss": model.LOSS}})


def configuration():
    return {"node_id": state.NODE_ID, "port": state.PORT, "grpc_port": state.PORT + 1000, "tracker_url": CONFIG["tracker_url"],
            "training": dict(CONFIG["training"]), "resources": dict(CONFIG["resources"])}


async def config_get(request):
    auth(request, "config")
    return reply("config", configuration())


def positive_int(most):
    return lambda v: is_int(v) and 1 <= v <= most


RULES = {
    "tracker_url": lambda v: isinstance(v, str) and re.match(r"(https?|wss?)://\S+$", v) is not None,
    "training.enabled": lambda v: isinstance(v, bool),
    "training.batch_size": positive_int(1 << 20),
    "training.learning_rate": lambda v: is_number(v) and 0 < v <= 10,
    "training.diloco_steps": positive_int(10000000),
    "resources.max_memory_gb": lambda v: is_number(v) and 0 < v <= 1000000,
    "resources.cpu_threads": positive_int(4096),
}


async def config_patch(request):
    if on("ref-patch-token-late"):
        data = await body_of(request)
        await change(data)
        auth(request, "patch")
        return reply("patch", {"success": True, "updated": [], "restart_required": False})
    if on("n-gua-patch-empty"):
        data = await body_of(request)
        if not data:
            return await change(data)
    auth(request, "patch")
    return await change(await body_of(request))


async def change(data):
    changes = []
    for key, value in data.items():
        if key in ("training", "resources"):
            if not isinstance(value, dict):
                raise bad("%s is not an object" % key)
            for inner, v in value.items():
                changes.append((key + "." + inner, v))
        else:
            if on("ref-patch-dotted") and "." in key:
                changes.append((key, value))
                continue
            if "." in key:
                raise bad("%s is not a key" % key)
            changes.append((key, value))
    if on("ref-patch-needs-all") and len(changes) < 2:
        raise bad("the configuration is not complete")
    if on("ref-patch-one-key") and len(changes) > 1:
        raise bad("only one key can be changed at a time")
    if on("t-eff-patch-race"):
        had = json.loads(json.dumps(CONFIG))
        await asyncio.sleep(0.15)
        CONFIG.update(had)
    before = {"training": dict(CONFIG["training"]), "resources": dict(CONFIG["resources"]), "tracker_url": CONFIG["tracker_url"]}

    def put(path, v):
        part, _, name = path.partition(".")
        if name:
            if RULES[path] is not RULES["training.enabled"] and is_int(v) and path.split(".")[1] in ("batch_size", "diloco_steps", "cpu_threads"):
                v = int(v)
            CONFIG[part][name] = v
        else:
            CONFIG[part] = v

    for path, v in changes:
        rule = RULES.get(path)
        if rule is None:
            if on("ref-patch-unknown-ok"):
                continue
            raise bad("%s cannot be changed" % path)
        if on("n-ref-patch-falsy") and not v:
            raise bad("%s has no value" % path)
        if on("t-ref-patch-null") and v is None:
            continue
        if on("t-ref-patch-same") and (CONFIG[path] if path in CONFIG else CONFIG[path.split(".")[0]].get(path.split(".")[1])) == v:
            raise bad("nothing to change")
        if on("ref-patch-text-number") and isinstance(v, str) and path in ("training.batch_size", "resources.cpu_threads", "training.diloco_steps"):
            put(path, v)
            continue
        if on("ref-patch-any-type") and not rule(v):
            put(path, v)
            continue
        if on("ref-patch-lists-ignored") and isinstance(v, (list, dict)):
            continue
        if not rule(v):
            if on("ref-patch-success-false"):
                put(path, v)
                return reply("patch", {"success": False, "updated": [], "restart_required": False})
            raise bad("%s cannot have this value" % path)
        if on("eff-patch-half"):
            put(path, v)
    if on("eff-patch-resets") and any(p.startswith("training.") for p, _ in changes):
        CONFIG["training"].update(batch_size=32, learning_rate=0.0003, diloco_steps=500)
    if on("n-eff-patch-shallow") and isinstance(data.get("resources"), dict):
        CONFIG["resources"] = {"max_memory_gb": 16.0, "cpu_threads": 4}
    for n, (path, v) in enumerate(changes):
        if path not in RULES:
            continue
        if on("n-eff-patch-once"):
            if path in _changed:
                continue
            _changed.append(path)
        if on("eff-patch-none") or (on("eff-patch-first-only") and n) or (on("eff-patch-false-lost") and v is False):
            continue
        if on("t-ref-patch-null") and v is None:
            CONFIG.pop(path, None) if path in CONFIG else CONFIG[path.split(".")[0]].pop(path.split(".")[1], None)
            continue
        if on("t-eff-patch-url-slash") and path == "tracker_url" and not v.endswith("/"):
            v += "/"
        if on("t-eff-patch-power") and path == "training.batch_size":
            v = 1 << (int(v).bit_length() - 1)
        if on("eff-patch-float-lost") and path == "training.learning_rate":
            v = round(v, 3)
        if on("eff-patch-memory-int") and path == "resources.max_memory_gb":
            v = int(v)
        if on("eff-patch-late"):
            state.later(4.0, lambda path=path, v=v: put(path, v))
        else:
            put(path, v)
    if on("eff-patch-reverts"):
        state.later(3.0, lambda: CONFIG.update({k: dict(b) if isinstance(b, dict) else b for k, b in before.items()}))
    _reloaded[0] = time.time()
    updated = [p for p, _ in changes]
    if on("n-rel-updated-grows"):
        _changed.extend(p for p in updated if p not in _changed)
        updated = list(_changed)
    if on("fld-updated-leaf-names"):
        updated = [p.split(".")[-1] for p in updated]
    if on("fld-updated-top-names"):
        updated = sorted({p.split(".")[0] for p in updated})
    if on("fld-updated-slashes"):
        updated = [p.replace(".", "/") for p in updated]
    if on("rel-updated-all"):
        updated = sorted(RULES)
    if on("rel-updated-empty"):
        updated = []
    return reply("patch", {"success": True, "updated": updated, "restart_required": False})


_proof_limit = [None]
_changed = []


async def proofs(request):
    if on("t-gua-limit-before-token"):
        query_int(request, "limit", 50)
    auth(request, "proofs")
    _proofs_read[0] = True
    limit = query_int(request, "limit", 25 if pec("pec-proofs-25") else 50)
    if limit > 10000:
        raise bad("limit is above 10000")
    if on("t-lim-proofs-limit-one") and limit <= 1:
        limit = 50
    if on("lim-proofs-ignored"):
        limit = 50
    if on("lim-proofs-one-more"):
        limit += 1
    if on("lim-proofs-sticky"):
        _proof_limit[0] = limit = limit if _proof_limit[0] is None else min(limit, _proof_limit[0])
    rows = list(state.PROOFS)
    if on("lim-proofs-last") and limit < len(rows):
        rows = rows[-limit:]
    _reads[0] += 1
    if on("eff-proofs-unordered"):
        n = _reads[0] % 4
        rows = rows[n:] + rows[:n]
    page = rows[:limit]
    out = [{"id": p["id"], "type": p["type"], "layer": p["layer"], "timestamp": stamp(p["at"]), "verified": p["verified"], "reward": unit(p["reward"])} for p in page]
    ok = [p for p in state.PROOFS if p["verified"]]
    return reply("proofs", {"proofs": out, "stats": {"total_submitted": len(state.PROOFS), "total_verified": len(ok),
                                                     "total_reward": unit(sum(p["reward"] for p in ok))}})


GOOD, FAILED = 120, 3


async def training_global(request):
    if on("n-gua-global-needs"):
        auth(request, "global")
    if on("t-rou-training-off-404") and not CONFIG["training"]["enabled"]:
        raise Refused(404, "NOT_FOUND", "there is no training")
    apart = on("t-rel-verify-diverged")
    steps = CONFIG["training"]["diloco_steps"]
    total = steps if is_int(steps) else 500
    done = min(185, total)
    return reply("global", {
        "global_avg_loss": 2.3125, "global_min_loss": 2.1875, "hash_agreement_rate": 0.8 if apart else 1.0, "total_nodes_training": 5, "successful_syncs": GOOD,
        "failed_syncs": FAILED, "sync_success_rate": round(GOOD / (GOOD + FAILED), 6), "global_steps": 21000, "global_tokens": 86016000,
        "data_shards_covered": [0, 1, 2, 5], "is_converging": not apart, "training_verified": True, "loss_trend": "improving",
        "local": {"node_id": state.NODE_ID, "training_rounds": 42, "current_loss": model.LOSS, "is_training": CONFIG["training"]["enabled"]},
        "diloco": {"enabled": True, "inner_step_count": done, "inner_steps_total": total, "progress": done // total if on("t-num-progress-int") else round(done / total, 6), "outer_step_count": 42}})


async def training_verify(request):
    if on("t-rou-training-off-404") and not CONFIG["training"]["enabled"]:
        raise Refused(404, "NOT_FOUND", "there is no training")
    return reply("verify", {"is_working": True, "reason": "the loss is falling" if on("t-rel-verify-diverged") else "all nodes have the same model and the loss is falling",
                            "metrics": {"loss_trend": "improving", "hash_agreement": "80.0%" if on("t-rel-verify-diverged") else "100.0%", "global_loss": 2.3125}})


def guarded(fn):
    async def run(request):
        METRICS.open += 1
        try:
            return await fn(request)
        except Refused as e:
            if on("t-gua-bad-body-logs-out") and e.status == 400:
                _logged_out.add(request.headers.get("authorization", "").split(" ")[-1])
            return failure(e)
        finally:
            METRICS.open -= 1
    return run


V1 = "/api/v1"
TABLE = [("GET", V1 + "/status", status), ("GET", V1 + "/metrics", metrics), ("GET", V1 + "/health", health), ("POST", V1 + "/inference", inference),
         ("GET", V1 + "/wallet/balance", wallet_balance), ("POST", V1 + "/wallet/send", wallet_send), ("GET", V1 + "/wallet/transactions", wallet_transactions),
         ("POST", V1 + "/wallet/stake", wallet_stake), ("POST", V1 + "/wallet/unstake", wallet_unstake), ("GET", V1 + "/peers", peers),
         ("GET", V1 + "/layers", layers), ("GET", V1 + "/network", network), ("GET", V1 + "/config", config_get), ("PATCH", V1 + "/config", config_patch),
         ("GET", V1 + "/proofs", proofs), ("GET", "/api/training/global", training_global), ("GET", "/api/training/verify", training_verify)]


def routes():
    out = []
    for method, path, fn in TABLE:
        moved = faults.moved(method, path)
        if moved is None:
            continue
        out.append(Route(moved[1], guarded(fn), methods=[moved[0]]))
    if pec("pec-more-routes"):
        async def extra(request):
            return reply("extra", {"hello": "there"})
        out += [Route(V1 + "/about", extra), Route(V1 + "/wallet/address", extra), Route(V1 + "/metrics/prometheus", extra)]
    return out
