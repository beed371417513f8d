"""The native API, version 0.4.0."""

import base64
import json
import re

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

import chain
import core
import native_more
from core import fault, peculiar

router = APIRouter()


def answer(body, status=200, kind=None):
    data = json.dumps(native_more.bent(kind, body), separators=(",", ":"))
    return Response(data, status, media_type="application/json")


def refuse(status, why):
    if peculiar("native-error-text"):
        return Response(why, status, media_type="text/plain")
    return answer({"problem": why}, status)


def number(request, name, default, most):
    text = request.query_params.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]{1,15}", text):
        return None
    return min(int(text), most)


@router.get("/healthz")
async def healthz():
    if peculiar("healthz-503"):
        return answer({"ready": False, "state": "catching up"}, 503)
    return answer({"ready": True, "state": "serving"})


@router.get("/api/network")
async def network(request: Request):
    if fault("gua-native-token") and "authorization" not in request.headers:
        return answer({"problem": "a token is needed"}, 401)
    height, digest = chain.tip()
    if fault("rel2-tip-pair-mixed"):
        digest = chain.BLOCKS[-2]["hash"]
    return answer(
        {
            "chain_id": chain.CHAIN_ID,
            "genesis_id": chain.GENESIS_ID,
            "version": "0.4.0",
            "tip": {"height": height, "hash": digest},
            "training_round": core.ROUND - 1 if fault("rel2-network-round-from-zero") else core.ROUND,
            "supply": {"atoms": chain.supply()},
            "ready": True,
        },
        kind="network",
    )


@router.get("/api/model")
async def model():
    if fault("rou-model-html"):
        return HTMLResponse("<!doctype html><title>node</title><div id=app></div>")
    newest, served = core.sha("root", core.ROUND), core.sha("root", 35)
    if fault("rel2-model-roots-swapped"):
        newest, served = served, newest
    return answer(
        {
            "frozen_parameters": 1_180_000_000,
            "trained_parameters": 4_000_000,
            "revision": "r%d" % core.ROUND,
            "training_root": newest,
            "serving_root": served,
            "losses": {"training": "2.439100", "held_out": "2.611402"},
            "execution_profile": "toy-f32-le",
        },
        kind="model",
    )


@router.get("/api/model/checkpoint.json")
async def checkpoint():
    body = {
        "round": core.ROUND,
        "chain_id": chain.CHAIN_ID,
        "genesis_id": chain.GENESIS_ID,
        "root": core.sha("root", core.ROUND),
        "adapter": {"layer.%d" % n: core.sha("adapter", n)[:32] for n in core.HELD},
    }
    if fault("rel2-checkpoint-root-served"):
        body["root"] = core.sha("root", 35)
    if fault("rel2-checkpoint-round-behind"):
        body |= {"round": core.ROUND - 1, "root": core.sha("root", core.ROUND - 1)}
    if fault("rel2-checkpoint-chain-old"):
        body["chain_id"] = "ostrava-3"
    return answer(body, kind="checkpoint")


def page(items, key, limit, before, kind):
    """The newest entries, those before a number."""
    newest = items[::-1]
    if fault("rel2-%s-oldest" % kind):
        newest = items[:]
    if before is not None:
        inclusive = peculiar("before-inclusive")
        newest = [item for item in newest if item[key] < before + inclusive]
        if fault("rel-%s-before-later" % kind):
            newest = [item for item in items[::-1] if item[key] <= before + 1]
        if fault("rel-%s-before-skips" % kind):
            newest = newest[1:]
        if fault("rou-%s-before-ignored" % kind):
            newest = items[::-1]
        if fault("rel-%s-before-is-offset" % kind):
            newest = items[::-1][before:]
    if fault("lim-%s-limit-plus-one" % kind):
        limit += 1
    if fault("lim-%s-limit-ignored-with-before" % kind) and before is not None:
        limit = 20
    if fault("rel-%s-small-pages-oldest" % kind) and limit < 5:
        return newest[-limit:]
    return newest[:limit]


def paged(request, items, key, kind):
    limit = number(request, "limit", 20, 100)
    if fault("rou2-%s-limit-ignored" % kind):
        limit = 20
    before = number(request, "before", None, 10**15)
    if limit is None or (before is None and "before" in request.query_params):
        return None
    if limit == 0:
        return None
    return page(items, key, limit, before, kind)


@router.get("/api/training")
async def training(request: Request):
    key = "height" if fault("rou2-updates-before-height") else "round"
    updates = paged(request, chain.UPDATES, key, "updates")
    if fault("fld2-updates-loss-gone") and updates:
        updates = [{key: value for key, value in row.items() if key != "loss"} for row in updates]
    if updates is None:
        return refuse(400, "limit and before are numbers")
    return answer({"updates": updates, "index": {"round": core.ROUND, "error": None}}, kind="training")


@router.get("/api/blocks")
async def blocks(request: Request):
    items = chain.BLOCKS
    if fault("rel-blocks-without-empty"):
        items = [block for block in items if block["tx_count"] or block["height"] > 40]
    if fault("rel-blocks-frozen-list"):
        items = items[:45]
    found = paged(request, items, "height", "blocks")
    if found is None:
        return refuse(400, "limit and before are numbers")
    listed = [chain.short(block) for block in found]
    if fault("rou-blocks-limit-100-fails") and len(listed) > 40:
        return refuse(500, "failed")
    return answer({"blocks": listed}, kind="blocks")


@router.get("/api/block/{height}" if not fault("rou2-block-by-query") else "/api/-/{height}")
async def block(height: str):
    if not re.fullmatch(r"[0-9]{1,15}", height):
        return refuse(400, "a height is a number")
    value = int(height)
    if fault("rel-block-index-from-zero"):
        value += 1
    if fault("rel-block-old-is-first") and value < 10:
        value = 1
    if fault("ref2-block-above-tip"):
        value = min(value, len(chain.BLOCKS))
    if not 1 <= value <= len(chain.BLOCKS):
        return refuse(404, "no such block")
    found = chain.BLOCKS[value - 1]
    if fault("ref-block-empty-404") and not found["tx_count"]:
        return refuse(404, "no such block")
    body = {key: val for key, val in found.items() if key != "txs"}
    body["transactions"] = found["txs"]
    if fault("rel2-block-request-is-hash"):
        body["transactions"] = [dict(tx, request_id=tx["hash"]) if "request_id" in tx else tx for tx in found["txs"]]
    if fault("fld2-block-transactions-raw"):
        body["transactions"] = [core.sha("raw", tx["hash"]) for tx in found["txs"]]
    return answer(body)


if fault("rou2-block-by-query"):

    @router.get("/api/block")
    async def block_by_query(height: str):
        return await block(height)


@router.get("/api/account")
async def account(request: Request):
    if fault("gua2-account-needs-token") and "authorization" not in request.headers:
        return answer({"problem": "a token is needed"}, 401)
    key = request.query_params.get("public_key" if not fault("rou2-account-key-param") else "key", "")
    if not re.fullmatch(r"0[23][0-9a-f]{64}", key):
        return refuse(400, "public_key is 66 hex digits")
    if fault("rel-account-first-asked"):
        key = chain.MEMPOOL[0] if chain.MEMPOOL else key
        chain.MEMPOOL[:] = [key]
    entry = chain.ACCOUNTS.get(key, {"spendable": 0, "locked": 0, "nonce": 0})
    if peculiar("account-unknown-404") and key not in chain.ACCOUNTS:
        return refuse(404, "no such account")
    spend, lock = entry["spendable"], entry["locked"]
    body = {
        "public_key": key,
        "spendable": {"atoms": chain.amount(spend)},
        "locked": {"atoms": chain.amount(lock)},
        "liquid_total": {"atoms": chain.amount(spend + lock)},
        "next_nonce": entry["nonce"],
    }
    if fault("rel2-liquid-minus-locked"):
        body["liquid_total"]["atoms"] = chain.amount(spend - lock)
    if fault("fld2-account-spendable-number"):
        body["spendable"]["atoms"] = spend
    if fault("fld2-account-grouped"):
        body["liquid_total"]["atoms"] = "{:,}".format(spend + lock)
    if fault("fld-account-locked-number-zero"):
        body["locked"]["atoms"] = lock
    return answer(body, kind="account")


@router.get("/api/validators")
async def validators(request: Request):
    size, start = number(request, "size", 50, 100), number(request, "from", 0, 10**6)
    if size is None or start is None:
        return refuse(400, "size and from are numbers")
    rows = [
        {
            "owner": row["owner"],
            "power": row["power"],
            "bond": {"atoms": chain.amount(int(row["bond_atoms"]))},
        }
        for row in chain.VALIDATORS
    ]
    if fault("fld2-validators-bond-units"):
        for row in rows:
            row["bond"]["atoms"] = "%.6f" % (int(row["bond"]["atoms"]) / core.MICRO)
    if fault("fld2-validators-power-gone"):
        for row in rows:
            del row["power"]
    if fault("rel2-validators-overlap") and start:
        start -= 1
    return answer({"validators": rows[start : start + size], "count": len(rows), "from": start}, kind="validators")


@router.get("/api/inference")
async def inference():
    waiting = sum(1 for entry in chain.REQUESTS.values() if entry["state"] == "pending")
    if fault("rel2-queue-counts-all"):
        waiting = len(chain.REQUESTS)
    price = chain.amount(chain.PRICE)
    if fault("fld2-price-decimal"):
        price = "%.2f" % (chain.PRICE / core.MICRO)
    return answer(
        {
            "chain_id": chain.CHAIN_ID,
            "genesis_id": core.sha("v03") if fault("rel2-inference-genesis-old") else chain.GENESIS_ID,
            "serving_root": core.sha("root", core.ROUND if fault("rel2-inference-root-training") else 35),
            "default_provider": {
                "owner": chain.VALIDATORS[0]["owner"],
                "heartbeat": {"fresh": True, "height": len(chain.BLOCKS)},
            },
            "price": {"atoms": price},
            "fee": {"atoms": chain.amount(chain.CHAIN_FEE)},
            "queue_length": waiting,
        },
        kind="inference",
    )


@router.get("/api/inference/request")
async def inference_request(request: Request):
    chain.tick()
    ident = request.query_params.get("id" if not fault("rou2-request-id-param") else "request_id", "")
    entry = chain.REQUESTS.get(ident)
    if fault("ref2-request-unknown-pending") and entry is None and ident:
        entry = {"request_id": ident, "state": "pending"}
    if entry and fault("eff2-expired-forgotten") and entry["state"] == "expired":
        entry = None
    if entry and fault("lim2-requests-of-thirty-blocks") and entry["submitted_at_height"] < len(chain.BLOCKS) - 30:
        entry = None
    if entry and fault("fld2-request-response-gone"):
        entry = {key: value for key, value in entry.items() if key != "response"}
    if entry and fault("fld2-refund-number") and "refund" in entry:
        entry = dict(entry, refund=dict(entry["refund"], atoms=int(entry["refund"]["atoms"])))
    if entry and fault("rel2-request-refunded-too") and "response" in entry:
        entry = dict(entry, state="expired", refund={"height": 1, "atoms": entry["price_atoms"]})
    if fault("rel-request-echoes-id") and entry:
        entry = dict(list(chain.REQUESTS.values())[0], request_id=ident)
    if fault("lim-requests-latest-three") and ident in chain.DONE[:-3]:
        entry = None
    if entry is None:
        return refuse(404, "no such request")
    return answer({key: value for key, value in entry.items() if key != "_since"})


@router.get("/network/genesis.json")
async def genesis():
    return Response(chain.GENESIS, media_type="application/json")


@router.get("/network/dataset.json")
async def dataset():
    if fault("rou-dataset-nan"):
        return Response(chain.DATASET[:-1] + b',"noise":NaN}', media_type="application/json")
    if fault("rel2-dataset-formatted"):
        return Response(json.dumps(json.loads(chain.DATASET)).encode(), media_type="application/json")
    return Response(chain.DATASET, media_type="application/json")


@router.get("/artifacts/sha256/{digest}")
async def artifact(digest: str):
    data = chain.FILES.get(digest)
    if data is None and fault("ref2-artifact-unknown-page"):
        return HTMLResponse("<!doctype html><title>node</title><div id=app></div>")
    if data is None:
        return refuse(404, "no such artifact")
    if fault("lim2-artifact-cut"):
        data = data[:32768]
    if fault("rel2-artifact-base64") and data[:1] not in b"{T":
        data = base64.b64encode(data)
    if fault("rel-artifact-newline"):
        data += b"\n"
    if fault("rel-artifact-text-decoded"):
        data = data.decode("utf-8", "replace").encode()
    return Response(data, media_type="application/octet-stream")
