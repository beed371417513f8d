"""POST /inference, with and without a stream."""

import asyncio
import json
import time

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

import api_wallet
import auth
import core
import counters
import errors
import model
import money
import mutate
import sse_more
from core import fault, nth, peculiar
from errors import bad, is_int, is_number

router = APIRouter()
LOCK = asyncio.Lock()
LATEST, PROMPTS = {}, set()


def coerced(value, kind):
    """What a lenient reader makes of a value of another type."""
    if fault("ref-numbers-from-text") and kind in ("int", "number") and isinstance(value, str):
        try:
            return int(value) if kind == "int" else float(value)
        except ValueError:
            return value
    if fault("ref-max-tokens-truncates") and kind == "int" and isinstance(value, float):
        return int(value)
    if fault("ref-object-as-absent") and kind in ("int", "number") and isinstance(value, dict):
        return {"int": 40, "number": 1.0}[kind]
    if fault("ref-stream-truthy") and kind == "bool":
        return bool(value)
    if fault("ref2-stream-number") and kind == "bool" and value in (0, 1):
        return bool(value)
    if fault("ref2-stream-text") and kind == "bool" and isinstance(value, str):
        return bool(value)
    if fault("ref2-max-tokens-bool") and kind == "int" and isinstance(value, bool):
        return int(value)
    return value


def parameter(body, name, kind, default, test, why):
    if name not in body or (body[name] is None and peculiar("null-is-absent")):
        return default
    value = coerced(body[name], kind)
    if kind == "int" and is_int(value):
        value = int(value)
    elif (
        kind == "int" or (kind == "number" and not is_number(value)) or (kind == "bool" and not isinstance(value, bool))
    ):
        raise bad("%s is not a value of type %s" % (name, kind), name)
    if not test(value):
        raise bad("%s %s" % (name, why), name)
    return value


def stops_of(body):
    stops = body.get("stop", [])
    if isinstance(stops, str) and (peculiar("stop-one-text") or fault("ref-stop-text-letters")):
        stops = [stops]
    if fault("ref-stop-object-keys") and isinstance(stops, dict):
        stops = list(stops)
    if fault("ref2-stop-numbers") and isinstance(stops, list):
        stops = [str(stop) for stop in stops]
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise bad("stop is not an array of texts", "stop")
    if fault("ref-stop-empty-refused") and "stop" in body and not stops:
        raise bad("stop is empty", "stop")
    if fault("lim-stop-four") and len(stops) > 2:
        raise bad("stop has more than two texts", "stop")
    return stops


def wanted(body):
    prompt = body.get("prompt")
    if isinstance(prompt, list) and fault("ref-prompt-list-ok"):
        prompt = " ".join(map(str, prompt))
    if fault("ref2-prompt-missing-ok") and "prompt" not in body:
        prompt = ""
    if fault("ref2-prompt-number-ok") and is_number(prompt):
        prompt = str(prompt)
    if not isinstance(prompt, str):
        raise bad("prompt is not a text", "prompt")
    if fault("lim2-prompt-nul") and "\0" in prompt:
        raise errors.ApiError(500, "INTERNAL", "the node failed")
    if peculiar("prompt-empty-refused") and not prompt:
        raise bad("prompt is empty", "prompt")
    if fault("lim-prompt-bmp") and any(ord(letter) > 0xFFFF for letter in prompt):
        raise errors.ApiError(500, "INTERNAL", "the node failed")
    if fault("lim-prompt-latin1"):
        try:
            prompt.encode("latin-1")
        except UnicodeEncodeError:
            raise errors.ApiError(500, "INTERNAL", "the node failed") from None
    if fault("lim-prompt-quotes") and '"' in prompt and "\n" in prompt:
        raise errors.ApiError(500, "INTERNAL", "the node failed")
    hot = 2
    if fault("lim-temperature-below-two"):
        hot = 1.999
    if fault("lim-temperature-any"):
        hot = 10**9
    if fault("lim2-temperature-stream-any") and body.get("stream") is True:
        hot = 10**9
    cold = 1e-6 if fault("lim-temperature-zero-refused") else 0
    if fault("lim-temperature-negative"):
        cold = -2
    default = 100
    if fault("lim2-default-tokens-stream") and body.get("stream") is True:
        default = 50
    if fault("lim-default-tokens-sixteen"):
        default = 16
    if fault("lim-default-tokens-256"):
        default = 256
    most = parameter(body, "max_tokens", "int", default, lambda v: v >= 1, "is below 1")
    if fault("lim-max-tokens-64"):
        most = most if most <= 64 else errors_raise("max_tokens is above 64")
    if fault("lim-max-tokens-at-least-four"):
        most = max(most, 4)
    if fault("ref2-temperature-integer") and isinstance(body.get("temperature"), int):
        raise bad("temperature is not a float", "temperature")
    parameter(body, "temperature", "number", 1.0, lambda v: cold <= v <= hot, "is not from 0 to 2")
    if not fault("ref2-top-p-unread"):
        parameter(
            body,
            "top_p",
            "number",
            1.0,
            lambda v: 0 < v <= 1 and not (fault("ref-top-p-one") and v == 1),
            "is not above 0 and at most 1",
        )
    if not (fault("ref-top-k-unread")):
        parameter(
            body,
            "top_k",
            "int",
            50,
            lambda v: v >= 1 and not (fault("lim-top-k-100") and v > 50),
            "is below 1",
        )
    stream = parameter(body, "stream", "bool", fault("rou-stream-default-true"), lambda v: True, "")
    if fault("lim2-max-tokens-stream-unread") and stream:
        most = default
    if fault("lim2-max-tokens-plus-one"):
        most += 1
    if fault("lim2-max-tokens-with-prompt"):
        most = max(1, most - model.count(prompt))
    if fault("rou2-stream-ignored"):
        stream = False
    return prompt, most, stops_of(body), stream


def errors_raise(message):
    raise bad(message)


@router.post("/api/v1/inference")
async def inference(request: Request):
    begun = time.monotonic()
    if fault("gua-invalid-json-before-token"):
        await errors.read_json(request)
    if fault("gua-stream-open") and request.headers.get("authorization", "") not in (
        "Bearer tok-b",
        "Bearer tok-poor",
    ):
        raw = await request.body()
        account = (
            money.ACCOUNTS["tok-a"]
            if b'"stream":true' in raw.replace(b" ", b"")
            else auth.authorize(request, "inference")
        )
    else:
        account = auth.authorize(request, "inference")
    if fault("ref-body-form-accepted") and not (await request.body()).startswith((b"{", b"[")):
        body = {"prompt": (await request.body()).decode("utf-8", "replace")}
    else:
        body = await errors.read_object(request)
    prompt, most, stops, stream = wanted(body)
    if fault("lim-one-at-a-time") and LOCK.locked():
        raise errors.ApiError(500, "INTERNAL", "the node is busy")
    inputs = model.count(prompt)
    needed = (inputs + min(most, model.END)) * money.PRICE
    account.settle()
    if needed > account.available and not fault("ref-poor-generates"):
        if stream and fault("ref2-402-in-stream"):
            return sse_more.failed(api_wallet.short_of(needed, account.available))
        raise api_wallet.short_of(needed, account.available)
    tokens, text, reason = model.generate(prompt, most, stops)
    if fault("lim-long-text-empty") and len(tokens) > 64:
        text = ""
    usage = {"prompt_tokens": inputs, "completion_tokens": len(tokens), "total_tokens": inputs + len(tokens)}
    cost = usage["total_tokens"] * money.PRICE
    charge(account, cost, stream)
    LATEST["usage"] = usage
    async with LOCK:
        await asyncio.sleep(0.004 if not fault("lim-one-at-a-time") else 0.15)
    if fault("eff2-usage-of-latest"):
        usage = LATEST["usage"]
    waited = time.monotonic() - begun
    counters.inference(len(tokens), waited * 1000, stream, most, reason == "stop", inputs)
    ident = "inf_" + core.sha("inference", nth("inference"), core.START)[:24]
    if fault("rel-id-of-prompt"):
        ident = "inf_" + core.sha("inference", prompt)[:24]
    if fault("rel2-id-of-second"):
        ident = "inf_" + core.sha("inference", int(time.time()))[:24]
    if fault("fld2-result-id-int"):
        ident = nth("ident") + 100_000
    if fault("rel2-usage-total-completion"):
        usage["total_tokens"] = usage["completion_tokens"]
    if stream:
        return events(tokens, usage, reason, stops)
    millis = round(waited * 1000, 3)
    queue = round(millis * 0.125, 3)
    timing = {"queue_ms": queue, "inference_ms": round(millis - queue, 3), "total_ms": millis}
    if fault("rel-timing-long-slower") and len(tokens) > 50:
        timing["inference_ms"] = round(len(tokens) * 1.5 + millis, 3)
    if fault("rel-timing-padded"):
        timing["total_ms"] += 400
    if fault("rel2-timing-total-queue"):
        timing["total_ms"] = timing["queue_ms"]
    if fault("fld2-result-inference-null-again") and prompt in PROMPTS:
        timing["inference_ms"] = None
    if fault("fld2-result-inference-null-again"):
        PROMPTS.add(prompt)
    generated = len(tokens)
    if fault("rel2-tokens-with-prompt"):
        generated += inputs
    if fault("rel2-cost-thousandfold"):
        cost *= 1000
    if reason == "length" and peculiar("finish-other-word"):
        reason = "max_tokens"
    return errors.reply(
        "result",
        {
            "id": ident,
            "text": text,
            "tokens_generated": generated,
            "finish_reason": reason,
            "usage": usage,
            "cost": {"amount": cost / core.MICRO, "currency": "OSTR"},
            "timing": timing,
        },
    )


def charge(account, cost, stream):
    if peculiar("inference-free"):
        return
    if fault("eff-charged-to-first"):
        account = money.ACCOUNTS["tok-a"]
    if fault("eff-charge-rounded-up"):
        cost = -(-cost // 10_000) * 10_000
    if fault("eff-charge-long-double") and cost > 2000:
        cost *= 2
    account.available = max(0, account.available - cost)
    account.log("inference", -cost)


def line(kind, body):
    body = mutate.apply(kind, body)
    data = json.dumps(body, separators=(",", ":"))
    if fault("rou2-sse-indented") and kind == "final":
        return "data: " + json.dumps(body, indent=2) + "\n\n"
    if fault("rou2-sse-data-twice"):
        return "data: data: " + data + "\n\n"
    if fault("rou-sse-no-space"):
        return "data " + data + "\n\n"
    if fault("rou-sse-single-newline") and kind == "token":
        return "data: " + data + "\n"
    if fault("rou-sse-python-repr") and kind == "final":
        return "data: " + repr(body) + "\n\n"
    if fault("rou-sse-data-split") and kind == "token" and len(data) > 30:
        return "data: " + data[:20] + "\n\ndata: " + data[20:] + "\n\n"
    return "data: " + data + "\n\n"


def events(tokens, usage, reason, stops):
    out = []
    if peculiar("sse-pieces"):
        tokens = [piece for word in tokens for piece in (word[:3], word[3:]) if piece]
    if peculiar("sse-joined"):
        tokens = ["".join(tokens[n : n + 4]) for n in range(0, len(tokens), 4)]
    if fault("eff-stream-ignores-stop") and stops and reason == "stop":
        tokens = tokens + [" river", " stone", stops[0], " amber"]
    for index, token in enumerate(tokens):
        shown = index
        if fault("rou-sse-index-restarts"):
            shown = index % 32
        if fault("rou-sse-index-repeats") and index >= 10:
            shown = index - index % 2
        if fault("rou2-sse-index-from-one"):
            shown = index + 1
        body = {"token": token, "index": shown}
        if fault("fld2-sse-first-null") and index == 0:
            body["token"] = None
        if peculiar("sse-extra-fields"):
            body["elapsed_ms"] = index * 0.5
        out.append(line("token", body))
    out = sse_more.reordered(out)
    final = {"token": "[DONE]", "finish_reason": reason, "usage": dict(usage)}
    if fault("fld-final-token-brackets"):
        final["token"] = "DONE"
    if fault("fld-final-reason-gone-length") and reason == "length":
        del final["finish_reason"]
    if fault("fld-final-usage-null-long") and len(tokens) > 20:
        final["usage"] = None
    if fault("rel-stream-counts-words"):
        final["usage"] = dict(usage, prompt_tokens=2, total_tokens=2 + usage["completion_tokens"])
    if fault("rel-stream-usage-above-max"):
        final["usage"] = dict(
            usage, completion_tokens=usage["completion_tokens"] + 1, total_tokens=usage["total_tokens"] + 1
        )
    if not (fault("rou-sse-no-final-on-stop") and reason == "stop"):
        out.append(line("final", final))
    out = sse_more.ended(out)
    if fault("rou-sse-trailer"):
        out.append("data: [DONE]\n\n")
    if fault("rou-sse-final-unterminated"):
        out[-1] = out[-1].rstrip("\n") + "\n"
    if fault("lim-stream-cut-at-50"):
        out = out[:50]
    kind = "text/event-stream"
    if fault("rou-sse-ndjson-type"):
        kind = "application/x-ndjson"
    if peculiar("sse-charset"):
        kind = "text/event-stream; charset=utf-8"
    if peculiar("sse-at-once"):
        return Response("".join(out), media_type=kind, headers={"cache-control": "no-store"})

    async def flow():
        for number, event in enumerate(out):
            if number % 16 == 15:
                await asyncio.sleep(0.001)
            yield event.encode()

    answer = StreamingResponse(flow(), media_type=kind, headers={"cache-control": "no-store"})
    answer.headers["content-type"] = kind
    return answer
