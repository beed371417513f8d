"""What the metrics count."""

import threading
import time

from core import fault, nth

LOCK = threading.Lock()
C = {
    "requests": 1204,
    "tokens": 48211,
    "sent": 9_411_220,
    "received": 3_870_114,
    "rpc": 5120,
    "gradients": 212,
    "accepted": 187,
    "latency": [],
    "stamps": [],
}


def sent(size):
    with LOCK:
        C["sent"] += size + 180


def received(size):
    with LOCK:
        C["received"] += size


def rpc():
    if fault("eff2-rpc-calls-frozen"):
        return
    with LOCK:
        C["rpc"] += 1


def gradient(accepted):
    with LOCK:
        C["gradients"] += 1
        C["accepted"] += bool(accepted)


def inference(tokens, millis, stream=False, asked=0, stop=False, inputs=0):
    with LOCK:
        if fault("eff2-metrics-two-workers") and nth("worker") % 2 == 0:
            return
        if not (stream and fault("eff-stream-not-counted")):
            C["requests"] += 1
        if stream and fault("eff-stream-counted-twice"):
            C["requests"] += 1
        if fault("eff-long-counted-twice") and not stream and tokens > 50:
            C["requests"] += 1
        if fault("eff-early-counts-asked") and stop:
            C["tokens"] += asked
        elif stream and fault("eff-stream-tokens-not-counted"):
            pass
        elif stream and fault("eff-stream-tokens-plus-done"):
            C["tokens"] += tokens + 1
        elif fault("eff2-tokens-with-prompt"):
            C["tokens"] += tokens + inputs
        elif fault("eff-tokens-in-tens"):
            C["tokens"] += tokens // 10 * 10
        else:
            C["tokens"] += tokens
        C["latency"] = (C["latency"] + [millis])[-500:]
        C["stamps"] = (C["stamps"] + [time.monotonic()])[-5000:]


def view():
    with LOCK:
        moment = time.monotonic()
        minute = sum(1 for stamp in C["stamps"] if moment - stamp < 60)
        latency = sorted(C["latency"]) or [41.5]
        return dict(
            C,
            minute=float(minute),
            avg=round(sum(latency) / len(latency), 3),
            p99=round(latency[min(len(latency) - 1, int(len(latency) * 0.99))], 3),
        )
