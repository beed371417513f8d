"""The native API, version 0.4.0."""

import json
import re

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

import chain
import core
from core import fault, nth, peculiar

router = APIRouter()


def answer(body, status=200):
    data = json.dumps(body, separators=(",", ":"))
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
    return answer(
        {
            "chain_id": chain.CHAIN_ID,
            "genesis_id": chain.GENESIS_ID,
            "version": "0.4.0",
            "tip": {"height": height, "hash": digest},
            "training_round": core.ROUND,
            "supply": {"atoms": chain.supply()},
            "ready": True,
        }
    )


@router.get("/api/model")
async def model():
    if fault("rou-model-html"):
        return HTMLResponse("<!doctype html><title>node</title><div id=app></div>")
    return answer(
        {
            "frozen_parameters": 1_180_000_000,
            "trained_parameters": 4_000_000,
            "revision": "r%d" % core.ROUND,
            "training_root": core.sha("root", core.ROUND),
            "serving_root": core.sha("root", 35),
            "losses": {"training": "2.439100", "held_out": "2.611402"},
            "execution_profile": "toy-f32-le",
        }
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
    return answer(body)


def page(items, key, limit, before, kind):
    """The newest entries, those before a number."""
    newest = items[::-1]
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
    before = number(request, "before", None, 10**15)
    if limit is None or (before is None and "before" in request.query_params):
        return None
    if limit == 0:
        return None
    return page(items, key, limit, before, kind)


@router.get("/api/training")
async def training(request: Request):
    updates = paged(request, chain.UPDATES, "round", "updates")
    if updates is None:
        return refuse(400, "limit and before are numbers")
    return answer({"updates": updates, "index": {"round": core.ROUND, "error": None}})


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
    return answer({"blocks": listed})


@router.get("/api/block/{height}")
async def block(height: str):
    if not re.fullmatch(r"[0-9]{1,15}", height):
        return refuse(400, "a height is a number")
    value = int(height)
    if fault("rel-block-index-from-zero"):
        value += 1
    if fault("rel-block-old-is-first") and value < 10:
        value = 1
    if not 1 <= value <= len(chain.BLOCKS):
        return refuse(404, "no such block")
    found = chain.BLOCKS[value - 1]
    if fault("ref-block-empty-404") and not found["tx_count"]:
        return refuse(404, "no such block")
    body = {key: val for key, val in found.items() if key != "txs"}
    body["transactions"] = found["txs"]
    return answer(body)


@router.get("/api/account")
async def account(request: Request):
    key = request.query_params.get("public_key", "")
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
    if fault("fld-account-locked-number-zero"):
        body["locked"]["atoms"] = lock
    return answer(body)


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
    return answer({"validators": rows[start : start + size], "count": len(rows), "from": start})


@router.get("/api/inference")
async def inference():
    waiting = sum(1 for entry in chain.REQUESTS.values() if entry["state"] == "pending")
    return answer(
        {
            "chain_id": chain.CHAIN_ID,
            "genesis_id": chain.GENESIS_ID,
            "serving_root": core.sha("root", 35),
            "default_provider": {
                "owner": chain.VALIDATORS[0]["owner"],
                "heartbeat": {"fresh": True, "height": len(chain.BLOCKS)},
            },
            "price": {"atoms": chain.amount(chain.PRICE)},
            "fee": {"atoms": chain.amount(chain.CHAIN_FEE)},
            "queue_length": waiting,
        }
    )


@router.get("/api/inference/request")
async def inference_request(request: Request):
    chain.tick()
    ident = request.query_params.get("id", "")
    entry = chain.REQUESTS.get(ident)
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
    return Response(chain.DATASET, media_type="application/json")


@router.get("/artifacts/sha256/{digest}")
async def artifact(digest: str):
    data = chain.FILES.get(digest)
    if data is None:
        return refuse(404, "no such artifact")
    if fault("rel-artifact-newline"):
        data += b"\n"
    if fault("rel-artifact-text-decoded"):
        data = data.decode("utf-8", "replace").encode()
    return Response(data, media_type="application/octet-stream")


@router.get("/work/status")
async def work_status():
    return answer(
        {
            "sponsor": None if not peculiar("work-sponsor") else {"owner": chain.KEYS[1]},
            "stages": [{"name": "forward", "available": True}, {"name": "backward", "available": False}],
            "attempts_remaining": 12,
        }
    )


async def worker(request, name):
    raw = await request.body()
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        if fault("ref-work-crash-" + name):
            return refuse(500, "failed")
        return refuse(400, "the message is not JSON")
    if not isinstance(body, dict) or not all(
        isinstance(body.get(k), str) for k in ("public_key", "signature")
    ):
        if fault("ref-work-object-crash"):
            return refuse(500, "failed")
        return refuse(403 if peculiar("work-403") else 400, "the message is not signed")
    return refuse(403, "the signature does not fit")


@router.post("/work/poll")
async def work_poll(request: Request):
    return await worker(request, "poll")


if not fault("rou-work-result-gone"):

    @router.post("/work/result")
    async def work_result(request: Request):
        return await worker(request, "result")


OLD_VIEWS = {
    "status": {"version": "0.3", "height": 1204, "frozen": True},
    "blocks": {"blocks": [{"height": n, "hash": core.sha("v03", n)} for n in range(1204, 1194, -1)]},
    "model": {"revision": "v03-final", "root": core.sha("v03root")},
}
DELETED = set()
VERBS = ["GET"]
if fault("gua-reference-post") or fault("gua-reference-delete"):
    VERBS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


@router.api_route("/reference/v03/api/{rest:path}", methods=VERBS)
async def reference(rest: str, request: Request):
    view = OLD_VIEWS.get(rest)
    if fault("rou-reference-blocks-gone") and rest != "model":
        view = None
    if view is None or rest in DELETED:
        return refuse(404, "no such view")
    if request.method != "GET":
        if fault("gua-reference-delete"):
            if request.method == "DELETE":
                DELETED.add(rest)
            else:
                return refuse(405, "wrong method")
        return answer({"ok": True})
    return answer(view)


GONE = ["/api/register", "/api/auth/register", "/api/accounts/register"]


async def gone(request: Request):
    status = 410
    if fault("rou-legacy-get-200") and request.method == "GET":
        status = 200
    if fault("rou-legacy-post-creates") and request.method == "POST":
        return answer({"account": nth("made"), "api_key": "k-%s" % core.sha("k")[:12]}, 201)
    return refuse(status, "registration has ended")


async def join_redirect(request: Request):
    target, status = "/join", 307
    if peculiar("redirect-301"):
        status = 301
    if peculiar("redirect-absolute"):
        target = str(request.base_url) + "join"
    if fault("rou-signup-404") and request.url.path == "/signup":
        return refuse(404, "no such path")
    return RedirectResponse(target, status)


for path in GONE:
    router.add_api_route(path, gone, methods=["GET", "POST"])
for path in ("/login", "/signup"):
    router.add_api_route(path, join_redirect, methods=["GET"])


@router.get("/join")
async def join():
    return HTMLResponse("<!doctype html><title>Join</title><p>Create a key with the command-line tool.</p>")
