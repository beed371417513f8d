"""Status, metrics, health, peers, layers, network, configuration, proofs and the verification of training."""

import time

from fastapi import APIRouter, Request

import auth
import config
import core
import counters
import errors
import money
from core import CONFIG, FLAGS, fault, nth, peculiar

router = APIRouter()
BOOT = time.monotonic()
LAST = {"time": ""}
FROZEN = {}
CACHE = {}


def uptime():
    seconds = time.monotonic() - BOOT + 3
    if fault("rel-uptime-fast"):
        seconds *= 4
    if fault("rel-uptime-frozen"):
        return FROZEN.setdefault("up", int(seconds))
    if fault("rel-uptime-wraps"):
        seconds %= 10
    return int(seconds)


@router.get("/api/v1/status")
async def status(request: Request):
    enabled = CONFIG["training"]["enabled"]
    if fault("eff-status-enabled-stale"):
        enabled = FROZEN.setdefault("enabled", True)
    node = core.node_id()
    layers = list(core.HELD)
    if peculiar("layers-unordered"):
        layers = layers[::-1]
    body = {
        "node_id": node,
        "version": "2.7.1-ostrava",
        "uptime_seconds": uptime(),
        "status": "warming" if peculiar("status-other-word") else "running",
        "role": "archivist" if peculiar("role-other-word") else "validator",
        "layers": layers,
        "peer_count": 0 if peculiar("peers-empty") else len(core.peers()),
        "training": {"enabled": enabled, "epoch": core.EPOCH, "step": core.STEP, "loss": core.LOSS},
        "resources": {
            "gpu_memory_used": 6_871_947_673 * (4 if fault("rel2-status-gpu-sum") else 1),
            "gpu_memory_total": 25_769_803_776,
            "cpu_percent": 17.25,
            "ram_used": 6_979_321_856,
        },
    }
    if peculiar("extra-fields"):
        body["region"] = {"name": "cz-ostrava", "zone": None}
    if peculiar("no-gpu"):
        body["resources"] |= {"gpu_memory_used": 0, "gpu_memory_total": 0}
    return errors.reply("status", body)


@router.get("/api/v1/metrics")
async def metrics():
    view = counters.view()
    today = core.today()
    stamp = core.iso(core.now())
    if fault("rel-metrics-time-minute"):
        stamp = stamp[:17] + "00.000000Z"
    requests = view["requests"]
    if fault("rel-requests-go-back") and nth("metrics") % 3 == 0:
        requests -= 5
    if fault("eff-metrics-cached"):
        kept = FROZEN.get("view")
        if kept is None or time.monotonic() - kept[0] > 30:
            FROZEN["view"] = kept = (time.monotonic(), view)
        view, requests = kept[1], kept[1]["requests"]
    earned = sum(proof["micro"] for proof in money.PROOFS)
    recent = sum(proof["micro"] for proof in money.PROOFS if proof["at"].date() == today)
    minute, p99 = view["minute"], view["p99"]
    if fault("fld2-metrics-minute-null-idle"):
        minute = minute or None
    if fault("fld2-metrics-p99-null-few") and len(view["latency"]) < 100:
        p99 = None
    if fault("rel2-metrics-minute-per-second"):
        minute = round(minute / 60, 4)
    if fault("rel2-metrics-p99-lowest"):
        p99 = min(view["latency"] or [p99])
    if fault("rel2-metrics-today-total"):
        recent = earned + 250_000
    body = {
        "timestamp": stamp,
        "inference": {
            "requests_total": requests,
            "requests_per_minute": minute,
            "avg_latency_ms": view["avg"],
            "p99_latency_ms": p99,
            "tokens_generated": view["tokens"],
        },
        "training": {
            "steps_total": core.STEP,
            "steps_per_hour": 96,
            "gradients_submitted": view["gradients"],
            "gradients_accepted": view["accepted"],
        },
        "network": {
            "bytes_sent": view["sent"],
            "bytes_received": view["received"],
            "active_connections": len(core.peers()),
            "rpc_calls": view["rpc"],
        },
        "rewards": {
            "earned_today": money.units(recent),
            "earned_total": money.units(earned),
            "pending": 3.25,
        },
    }
    if fault("rel-accepted-above-submitted"):
        body["training"]["gradients_accepted"] = body["training"]["gradients_submitted"] + 1
    if fault("fld-metrics-bytes-int32"):
        body["network"]["bytes_sent"] -= 2**31
    return errors.reply("metrics", body)


@router.get("/api/v1/health")
async def health(request: Request):
    if fault("gua2-health-needs-token"):
        auth.authorize(request, "health")
    words = {"gpu": "ok", "network": "ok", "storage": "ok", "peers": "ok"}
    if peculiar("health-other-words"):
        words = {"gpu": "throttled", "network": "ok", "storage": "nearly full", "peers": "ok"}
    return errors.reply("health", {"healthy": not peculiar("health-false"), "checks": words})


@router.get("/api/v1/peers")
async def peers(request: Request):
    auth.authorize(request, "peers")
    listed = [] if peculiar("peers-empty") else core.peers()
    out = [
        {
            "id": p["id"],
            "address": "%s:%d" % (p["host"], p["port"]),
            "role": p["role"],
            "layers": p["layers"],
            "latency_ms": p["latency_ms"],
            "connected_since": core.iso(p["since"]),
        }
        for p in listed
    ]
    if peculiar("peer-ipv6") and out:
        out[0]["address"] = "[2001:db8::11]:8100"
    return errors.reply("peers", {"peers": out, "total": len(out)})


@router.get("/api/v1/layers")
async def layers(request: Request):
    if fault("gua2-layers-cached") and time.monotonic() - CACHE.get("layers", -99) < 30:
        pass
    else:
        auth.authorize(request, "layers")
        CACHE["layers"] = time.monotonic()
    out = [
        {
            "index": index,
            "type": "transformer",
            "memory_mb": 512 + 16 * index,
            "status": "loading" if peculiar("layer-other-status") and index == 7 else "active",
        }
        for index in core.HELD
    ]
    if peculiar("layers-all-listed"):
        out = [
            {
                "index": index,
                "type": "transformer",
                "memory_mb": 512 if index in core.HELD else 0,
                "status": "active" if index in core.HELD else "remote",
            }
            for index in range(core.TOTAL_LAYERS)
        ]
    return errors.reply("layers", {"layers": out, "total_layers": core.TOTAL_LAYERS, "my_layer_count": len(core.HELD)})


@router.get("/api/v1/network")
async def network(request: Request):
    if fault("gua2-network-needs-token"):
        auth.authorize(request, "network")
    count = len(core.peers()) + 1
    return errors.reply(
        "network",
        {
            "nodes": {
                "total": -1 if fault("fld-network-total-negative") else count,
                "drivers": 2,
                "workers": 2,
                "validators": 2,
            },
            "architecture": {
                "layers": core.TOTAL_LAYERS,
                "hidden_dim": core.HIDDEN,
                "parameters": "1.2B" if peculiar("parameters-short") else "1184000000",
            },
            "capacity": {"total_memory_gb": 144.0, "used_memory_gb": 61.75},
            "training": {"epoch": core.EPOCH, "global_step": core.STEP, "loss": core.LOSS},
        },
    )


@router.get("/api/v1/config")
async def get_config(request: Request):
    auth.authorize(request, "config")
    port = FLAGS["port"]
    values = config.shown()
    return errors.reply(
        "config",
        {
            "node_id": core.node_id(),
            "port": port,
            "grpc_port": port + 1000,
            "tracker_url": "http://tracker.invalid:7700/t",
            "training": dict(values["training"]),
            "resources": dict(values["resources"]),
        },
    )


@router.patch("/api/v1/config")
async def patch_config(request: Request):
    if fault("gua-patch-applied-before-token"):
        try:
            config.change(await errors.read_object(request))
        except errors.ApiError:
            pass
    auth.authorize(request, "patch")
    body = await errors.read_object(request)
    if fault("eff2-patch-race"):
        return errors.reply("patch", await config.change_copy(body))
    return errors.reply("patch", config.change(body))


@router.get("/api/v1/proofs")
async def proofs(request: Request):
    auth.authorize(request, "proofs")
    query = request.query_params
    limit = errors.whole(query, "limit", 50, 1, 100)
    if fault("rou-proofs-limit-ignored"):
        limit = 50
    if fault("lim-proofs-off-by-one"):
        limit += 1
    listed = list(money.PROOFS)
    if peculiar("proofs-oldest-first"):
        listed.reverse()
    if fault("rel-proofs-order-shuffled") and nth("proofs") % 2 == 0:
        listed[:4] = listed[3::-1]
    if fault("rel-proofs-page-from-end") and limit < 20:
        listed = listed[-limit:]
    page = listed[:limit]
    out = [
        {
            "id": p["id"],
            "type": p["type"],
            "layer": p["layer"],
            "timestamp": core.iso(p["at"]),
            "verified": p["verified"],
            "reward": money.units(p["micro"]),
        }
        for p in page
    ]
    verified = [p for p in money.PROOFS if p["verified"]]
    total = sum(p["micro"] for p in verified)
    if fault("fld-proofs-time-future-first"):
        out[0]["timestamp"] = core.iso(core.now().replace(year=core.now().year + 1))
    body = {
        "proofs": out,
        "stats": {
            "total_submitted": len(page if fault("rel2-proofs-stats-page") else money.PROOFS),
            "total_verified": len(verified),
            "total_reward": money.units(total),
        },
    }
    if fault("fld2-proofs-stats-gone-limit") and "limit" in query:
        del body["stats"]
    return errors.reply("proofs", body)


@router.get("/api/training/global")
@router.get("/api/v1/training/global") if peculiar("training-also-v1") else (lambda f: f)
async def training_global(request: Request):
    enabled = CONFIG["training"]["enabled"]
    steps = CONFIG["training"]["diloco_steps"]
    inner = core.STEP % steps
    if fault("gua2-global-needs-token"):
        auth.authorize(request, "global")
    diverged = peculiar("training-diverged") or fault("rel-verify-works-when-diverged")
    diverged |= fault("rel2-global-converging-diverged") or fault("fld2-verify-action-gone")
    splits = diverged and not fault("rel2-global-converging-diverged")
    return errors.reply(
        "global",
        {
            "global_avg_loss": 2.51,
            "global_min_loss": 2.4375,
            "hash_agreement_rate": 0.8333 if diverged else 1.0,
            "total_nodes_training": 6,
            "successful_syncs": 342,
            "failed_syncs": 18,
            "sync_success_rate": 0.95,
            "global_steps": core.STEP,
            "global_tokens": 91_440_128,
            "data_shards_covered": [0, 1, 2, 5, 9],
            "is_converging": not splits,
            "training_verified": not diverged,
            "loss_trend": "plateau" if peculiar("trend-other-word") else "improving",
            "local": {
                "node_id": core.node_id(),
                "training_rounds": core.ROUND,
                "current_loss": core.LOSS,
                "is_training": enabled,
            },
            "diloco": {
                "enabled": enabled,
                "inner_step_count": inner,
                "inner_steps_total": steps,
                "progress": round(inner / steps, 4),
                "outer_step_count": core.ROUND,
            },
        },
    )


@router.get("/api/training/verify")
async def training_verify(request: Request):
    if fault("gua-verify-needs-token"):
        auth.authorize(request, "verify")
    diverged = peculiar("training-diverged") or fault("rel2-global-converging-diverged")
    if diverged or fault("fld2-verify-action-gone") or fault("rel2-verify-false-at-full"):
        body = {
            "is_working": False,
            "reason": "one of six models has another hash",
            "action": "fetch the newest checkpoint",
        }
        if fault("fld2-verify-action-gone"):
            del body["action"]
        return errors.reply("verify", body)
    agreement = "100%" if not fault("rel-verify-works-when-diverged") else "83.33%"
    return errors.reply(
        "verify",
        {
            "is_working": True,
            "reason": "the loss falls and all hashes agree",
            "metrics": {
                "loss_trend": "plateau" if peculiar("trend-other-word") else "improving",
                "hash_agreement": "100.0 %" if peculiar("percent-space") else agreement,
                "global_loss": 2.51,
            },
        },
    )
