"""The public native API: a chain of blocks, accounts, validators, inference requests, artifacts, JSON-RPC."""
import base64
import hashlib
import json
import re
import time

from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

import faults
import model
import peculiar
import state
from switches import on, pec

CHAIN = "meshnet-5"
OLD_CHAIN = "meshnet-reference-03"
FIRST = 72
PACE = 20.0
ROUNDS = 42


def sha(text):
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def key(name, parity="02"):
    return parity + sha("key/" + name)


OWNERS = [key("validator%d" % i, "02" if i % 2 else "03") for i in range(4)]
USERS = [key("user%d" % i, "03" if i % 2 else "02") for i in range(6)]
DATASET = json.dumps({"format": "tokens-v1", "vocabulary": model.VOCAB, "shards": [
    {"index": i, "tokens": [(i * 31 + j * 7) % model.VOCAB for j in range(48)]} for i in range(6)]}, separators=(",", ":")).encode()
GENESIS_TIME = "2026-05-04T00:00:00Z"
MANIFEST = json.dumps({"kind": "model-manifest", "files": [{"path": "weights.npz", "sha256": sha(model.PLAIN_CHECKPOINT)}, {"path": "dataset.json", "sha256": sha(DATASET)}]}).encode()
GENESIS = json.dumps({"chain_id": CHAIN, "genesis_time": GENESIS_TIME, "initial_height": 1, "app_version": "0.4.0",
                      "dataset": {"path": "/network/dataset.json", "sha256": sha(DATASET)}, "model_manifest_sha256": sha(MANIFEST),
                      "validators": [{"owner": o, "power": 10 + i, "bond": str((50 + i) * 1000000)} for i, o in enumerate(OWNERS)]}, indent=1).encode()
GENESIS_HASH = sha(GENESIS)
ARTIFACTS = {sha(b): b for b in (DATASET, GENESIS, MANIFEST, model.PLAIN_CHECKPOINT)}
PROMPTS = ["Tell me about the %s number %d." % (w, i) for i, w in enumerate(
    ["river", "stone", "garden", "winter", "hill", "song", "water", "glass", "bird", "path", "light", "evening", "morning", "child", "word"])]
REQUESTS = {}
BLOCKS = {}
UPDATES = []


def root(kind, n):
    return sha("%s/root/%d" % (kind, n))


def height():
    return FIRST + int((time.time() - state.STARTED) / PACE)


def block_time(h):
    return state.STARTED - (FIRST - h) * PACE


def block(h):
    """The block at height h, made once; everything in it follows from h."""
    if h in BLOCKS:
        return BLOCKS[h]
    for k in range(max(BLOCKS) + 1 if BLOCKS else 1, h + 1):
        txs, results = [], []
        if k in PLACED:
            for tx in PLACED[k]:
                txs.append(tx)
                results.append({"hash": tx["hash"], "code": 0, "log": ""})
        before = BLOCKS[k - 1]["hash"] if k > 1 else "0" * 64
        BLOCKS[k] = {"chain_id": CHAIN, "height": k, "hash": sha("%s|%d|%s|%s" % (CHAIN, k, before, json.dumps(txs))), "previous_hash": before,
                     "time": state.stamp(block_time(k)), "proposer": OWNERS[k % 4], "transactions": txs, "results": results}
    return BLOCKS[h]


PLACED = {}


def prepare():
    for i, prompt in enumerate(PROMPTS):
        h = 5 + i * 4
        user = USERS[i % len(USERS)]
        rid = sha("request/%d/%s" % (i, prompt))
        message = {"type": "inference_request", "chain_id": CHAIN, "sender": user, "nonce": i // len(USERS), "provider": OWNERS[0],
                   "checkpoint": root("serving", 40), "prompt": prompt, "max_tokens": 16, "price_atoms": "16000", "expires_at_height": h + 6,
                   "request_id": rid}
        tx = {"hash": sha("tx/" + rid), "message": message, "signature": sha("sig/" + rid) + sha("gis/" + rid), "request_id": rid}
        PLACED.setdefault(h, []).append(tx)
        record = {"request_id": rid, "chain_id": CHAIN, "sender": user, "prompt": prompt, "max_tokens": 16, "price_atoms": "16000",
                  "height": h, "transaction_hash": tx["hash"]}
        if i in (3, 9):
            record.update(status="expired", expired_at_height=h + 6, refund={"atoms": "16000", "to": user, "height": h + 6})
        else:
            parts, used, reason = model.generate(prompt, 16, [])
            record.update(status="completed", completed_at_height=h + 2, response={"text": "".join(parts), "tokens": used})
        record["expires_at_height"] = h + 6
        REQUESTS[rid] = record
    # one job is still waiting
    h, prompt = FIRST - 1, "Which way does the water go?"
    rid = sha("request/pending")
    message = {"type": "inference_request", "chain_id": CHAIN, "sender": USERS[5], "nonce": 2, "provider": OWNERS[0], "checkpoint": root("serving", 40),
               "prompt": prompt, "max_tokens": 32, "price_atoms": "32000", "expires_at_height": h + 5000, "request_id": rid}
    tx = {"hash": sha("tx/" + rid), "message": message, "signature": sha("sig/" + rid) + sha("gis/" + rid), "request_id": rid}
    PLACED.setdefault(h, []).append(tx)
    REQUESTS[rid] = {"request_id": rid, "chain_id": CHAIN, "sender": USERS[5], "prompt": prompt, "max_tokens": 32, "price_atoms": "32000", "height": h,
                     "transaction_hash": tx["hash"], "status": "pending", "expires_at_height": h + 5000, "position": 0}
    for n in range(1, 12):      # and some transfers, so that other blocks have something, too
        h = 3 + 6 * n
        tx = {"hash": sha("transfer/%d" % n), "message": {"type": "transfer", "chain_id": CHAIN, "sender": USERS[n % 6], "nonce": 10 + n, "to": USERS[(n + 1) % 6],
                                                          "amount_atoms": str(n * 250000)}, "signature": sha("ts/%d" % n) * 2}
        PLACED.setdefault(h, []).append(tx)
    for r in range(1, ROUNDS + 1):
        UPDATES.append({"round": r, "height": 1 + r * 3 // 2, "loss": round(4.0 * 0.987 ** r, 9), "root": root("training", r), "previous_root": root("training", r - 1),
                        "author": OWNERS[r % 4]})
    block(FIRST)


MONEY = {}
for _i, _k in enumerate(USERS):
    MONEY[_k] = {"available": 120000000 + _i * 7500001, "locked": 32000 if _i == 5 else 0, "nonce": 20 + _i}
for _i, _k in enumerate(OWNERS):
    MONEY[_k] = {"available": 5000000 + _i, "locked": (50 + _i) * 1000000, "nonce": 4 + _i}


class Wrong(Exception):
    def __init__(self, status, message):
        self.status, self.message = status, message


def answer(name, obj, status=200):
    obj = faults.mutate(name, obj)
    obj = peculiar.mutate(name, obj)
    return Response(json.dumps(obj, indent=1 if pec("pec-native-indent") else None).encode(), status, media_type="application/json")


def guarded(fn):
    async def run(request):
        try:
            return await fn(request)
        except Wrong as e:
            if pec("pec-native-text-errors"):
                return Response(e.message, e.status, media_type="text/plain")
            return Response(json.dumps({"error": e.message}).encode(), e.status, media_type="application/json")
    return run


def number(request, name, default, least=0):
    text = request.query_params.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]{1,12}", text) or int(text) < least:
        raise Wrong(400, "%s is not a number" % name)
    return int(text)


async def healthz(request):
    code = 200
    if on("ref-healthz-500"):
        code = 500
    return answer("healthz", {"ready": True, "state": "ready", "height": height()}, code)


async def network(request):
    h = height()
    b = block(h)
    hash_ = b["hash"]
    if on("rel-network-previous-hash"):
        hash_ = block(h - 1)["hash"]
    if on("rel-network-hash-stale"):
        hash_ = block(FIRST)["hash"] if h > FIRST else block(FIRST - 1)["hash"]
    return answer("n.network", {
        "version": "0.4.0", "chain_id": CHAIN, "genesis_hash": GENESIS_HASH, "height": h, "block": {"height": h, "hash": hash_},
        "block_hash": hash_, "training_round": ROUNDS, "supply_atoms": "21000000000000", "ready": True})


async def model_(request):
    return answer("n.model", {
        "chain_id": CHAIN, "genesis_hash": GENESIS_HASH, "frozen_parameters": 4096, "trainable_parameters": model.PARAMS - 4096, "revision": "r40-5f2c",
        "training_root": root("training", ROUNDS), "serving_root": root("serving", 40), "manifest_sha256": sha(MANIFEST),
        "losses": {"first": UPDATES[0]["loss"], "latest": UPDATES[-1]["loss"]}, "execution_profile": "cpu-f32-deterministic"})


async def checkpoint(request):
    r = ROUNDS
    if on("rel-checkpoint-old-round"):
        r = 40
    root_ = root("training", r)
    if on("n-rel-checkpoint-serving-root"):
        root_ = root("serving", 40)
    return answer("n.checkpoint", {"chain_id": CHAIN, "genesis_hash": GENESIS_HASH, "round": r, "root": root_,
                                   "adapter": {"rank": 4, "sha256": sha(model.PLAIN_CHECKPOINT), "values": [round(x, 6) for x in model.W[0][0][:8].tolist()]}})


def page(rows, at, request, default):
    """The newest rows below `before`, newest first."""
    limit = number(request, "limit", default, 1)
    before = number(request, "before", None)
    limit = min(limit, 100)
    if on("lim-native-limit-ignored"):
        limit = default
    if on("lim-native-limit-plus-one"):
        limit += 1
    if on("lim-native-before-ignored"):
        before = None
    if on("lim-native-before-offset") and before is not None:
        rows = rows[before:]
        before = None
    if on("lim-native-before-after") and before is not None:
        rows = [r for r in rows if at(r) >= before][:limit]
        before = None
    if on("lim-native-before-skips") and before is not None:
        before -= 1
    if on("lim-native-oldest-first"):
        rows = list(reversed(rows))
    if on("n-lim-native-limit-with-before") and before is not None:
        limit = 20
    if on("n-lim-before-above-head") and before is not None and rows and before > at(rows[0]) + 1:
        return []
    if on("n-lim-before-text") and before is not None:
        rows = [r for r in rows if str(at(r)) < str(before)]
        before = None
    if before is not None:
        bound = before + 1 if pec("pec-before-inclusive") else before
        rows = [r for r in rows if at(r) < bound]
        if on("t-lim-last-page") and len(rows) < limit:
            return []
    return rows[:limit]


async def training(request):
    if on("t-rou-training-page"):
        return Response(b"<!doctype html><title>Explorer</title><div id=app></div>", media_type="text/html")
    rows = page(list(reversed(UPDATES[1:] if on("n-eff-training-first-lost") else UPDATES)), lambda u: u["round"], request, 20)
    if on("lim-training-before-height") and request.query_params.get("before"):
        rows = [u for u in reversed(UPDATES) if u["height"] < int(request.query_params["before"])][:len(rows) or 20]
    if on("rel-training-roots-per-page"):
        rows = [dict(u, root=sha("%s/%s" % (u["root"], request.url.query))) for u in rows]
    return answer("n.training", {"chain_id": CHAIN, "genesis_hash": GENESIS_HASH, "updates": rows, "index": {"height": height(), "round": ROUNDS, "error": None}})


async def blocks(request):
    top = height()
    rows = []
    for h in range(top, 0, -1):
        b = block(h)
        rows.append({"height": b["height"], "hash": b["hash"], "previous_hash": b["previous_hash"], "time": b["time"], "proposer": b["proposer"],
                     "transaction_count": len(b["transactions"]), "results": b["results"]})
    if on("eff-blocks-empty-left-out"):
        rows = [r for r in rows if r["transaction_count"]]
    if on("eff-blocks-lag"):
        rows = rows[10:]
    out = page(rows, lambda b: b["height"], request, 20)
    if on("rel-block-hash-list"):
        out = [dict(b, hash=sha("list" + b["hash"])) for b in out]
    if on("num-block-height-zero-based"):
        out = [dict(b, height=b["height"] - 1) for b in out]
    return answer("n.blocks", {"chain_id": CHAIN, "blocks": out, "latest_height": top})


async def one_block(request):
    text = request.path_params["height"]
    if not re.fullmatch(r"[0-9]{1,12}", text):
        raise Wrong(400, "a height is a number")
    h = int(text)
    if on("num-block-off-by-one"):
        h = max(1, h - 1)
    if on("eff-block-always-latest"):
        h = height()
    if on("eff-block-recent-only") and h < height() - 30:
        raise Wrong(404, "the block is no longer kept")
    if on("n-ref-block-future") and height() < h <= height() + 1000:
        b = block(height())
        return answer("n.block", dict(b, height=h, hash=sha("%s|%d" % (b["hash"], h)), previous_hash=b["hash"], transactions=[], results=[]))
    if not 1 <= h <= height():
        raise Wrong(404, "there is no block at this height")
    b = block(h)
    if on("fld-block-transactions-encoded"):
        b = dict(b, transactions=[base64.b64encode(json.dumps(t).encode()).decode() for t in b["transactions"]])
    if on("rel-tx-hash-is-request-id"):
        b = dict(b, transactions=[dict(t, hash=t.get("request_id", t["hash"])) for t in b["transactions"]])
    if on("rel-block-prompt-cut"):
        b = dict(b, transactions=[dict(t, message=dict(t["message"], prompt=t["message"]["prompt"][:8] + "...")) if "prompt" in t["message"] else t for t in b["transactions"]])
    return answer("n.block", b)


_seen = [None]


_read = set()


async def account(request):
    if on("t-gua-native-needs") and "authorization" not in request.headers:
        raise Wrong(401, "a bearer token is missing")
    k = request.path_params.get("key") or request.query_params.get("public_key", "")
    if on("ref-account-02-only") and k.startswith("03"):
        raise Wrong(400, "public_key is not a compressed key")
    if not re.fullmatch(r"0[23][0-9a-fA-F]{64}", k):
        raise Wrong(400, "public_key is not a compressed key in hexadecimal")
    k = k.lower()
    if on("eff-account-cached"):
        _seen[0] = _seen[0] or k
        k = _seen[0]
    if on("ref-account-unknown-404") and k not in MONEY:
        pass
    if on("t-eff-account-parity"):
        k = next((x for x in MONEY if x[2:] == k[2:]), k)
    m = MONEY.get(k, {"available": 0, "locked": 0, "nonce": 0})
    total = m["available"] + m["locked"]
    if on("rel-account-total"):
        total = m["available"]
    return answer("n.account", {"chain_id": CHAIN, "public_key": k, "available_atoms": str(m["available"]), "locked_atoms": str(m["locked"]),
                                "total_atoms": str(total), "next_nonce": m["nonce"]})


async def validators(request):
    rows = [{"owner": o, "power": 10 + i, "bond": str((50 + i) * 1000000)} for i, o in enumerate(OWNERS)]
    offset, limit = number(request, "offset", 0), number(request, "limit", 50, 1)
    return answer("n.validators", {"chain_id": CHAIN, "validators": rows[offset:offset + limit], "total": len(rows)})


async def inference(request):
    return answer("n.inference", {"chain_id": CHAIN, "genesis_hash": GENESIS_HASH, "serving_root": root("serving", 40),
                                  "default_provider": {"public_key": OWNERS[0], "heartbeat": {"height": height(), "alive": True}},
                                  "price_atoms": "1000", "fee_atoms": "500", "queue_length": 1})


_last_request = [None]


async def inference_request(request):
    rid = request.query_params.get("id", "")
    if on("eff-request-cached") and _last_request[0]:
        rid = _last_request[0]
    if on("eff-request-unknown-pending") and rid not in REQUESTS and rid:
        return answer("n.request", {"request_id": rid, "status": "pending"})
    if not rid:
        raise Wrong(400, "id is missing")
    record = REQUESTS.get(rid)
    if on("n-ref-request-by-hash") and record is None:
        record = next((r for r in REQUESTS.values() if r["transaction_hash"] == rid), None)
    if on("n-eff-request-read-expires") and record and record["status"] == "pending":
        REQUESTS[rid] = dict(record, status="expired", expired_at_height=height(), refund={"atoms": record["price_atoms"], "to": record["sender"], "height": height()})
    if on("eff-request-old-gone") and record and record["height"] < FIRST - 30:
        record = None
    if on("eff-request-expired-gone") and record and record["status"] == "expired":
        record = None
    if on("rel-request-next") and record:
        keys = list(REQUESTS)
        record = REQUESTS[keys[(keys.index(rid) + 1) % len(keys)]]
    if record is None:
        raise Wrong(404, "no such request")
    _last_request[0] = rid
    return answer("n.request", dict(record))


async def genesis(request):
    body = GENESIS
    if on("t-eff-genesis-rewritten"):
        body = json.dumps(json.loads(body)).encode()
    if on("rel-genesis-other-chain"):
        body = body.replace(CHAIN.encode(), b"meshnet-4")
    if on("rel-genesis-dataset-digest"):
        body = body.replace(sha(DATASET).encode(), sha(DATASET + b"\n").encode())
    return Response(body, media_type="application/json")


async def dataset(request):
    body = DATASET
    if on("eff-dataset-empty"):
        body = b"{}"
    return Response(body, media_type="application/json")


async def artifact(request):
    h = request.path_params["digest"]
    if not re.fullmatch(r"[0-9a-fA-F]{64}", h):
        raise Wrong(400, "not a digest")
    body = ARTIFACTS.get(h.lower())
    if on("n-ref-artifact-prefix"):
        body = next((b for k, b in ARTIFACTS.items() if k[:8] == h.lower()[:8]), None)
    if body is None:
        if on("ref-artifact-unknown-200"):
            return Response(b"not found", media_type="application/octet-stream")
        raise Wrong(404, "no such artifact")
    if on("n-eff-artifact-text") and body is not None:
        body = body.decode("utf-8", "replace").encode()
    if on("eff-artifact-newline"):
        body += b"\n"
    if on("eff-artifact-cut"):
        body = body[:-16]
    if on("eff-artifact-base64"):
        body = base64.b64encode(body)
    if on("t-eff-artifact-read-once"):
        if h.lower() in _read:
            body = b""
        _read.add(h.lower())
    return Response(body, media_type="application/octet-stream")


async def work_status(request):
    return answer("n.work", {"chain_id": CHAIN, "sponsor": None, "stages": [{"name": "forward", "available": True, "attempts_remaining": 3},
                                                                           {"name": "update", "available": False, "attempts_remaining": 0}]})


async def work(request):
    raw = await request.body()
    try:
        data = json.loads(raw.decode())
    except (ValueError, RecursionError):
        if on("ref-work-500"):
            raise Wrong(500, "Traceback (most recent call last): json.decoder.JSONDecodeError")
        raise Wrong(400, "the message is not JSON")
    if on("ref-work-unsigned-ok"):
        return answer("work", {"work": None, "accepted": True})
    if on("n-gua-work-signature-true") and isinstance(data, dict) and data.get("signature") is True:
        return answer("work", {"work": None, "accepted": True})
    if not isinstance(data, dict) or not data.get("signature"):
        raise Wrong(401, "the message is not signed")
    if on("ref-work-forged-ok"):
        return answer("work", {"work": None, "accepted": True})
    raise Wrong(403, "the signature does not fit the message and a known worker")


def rpc_block(h):
    b = block(h)
    return {"block_id": {"hash": b["hash"].upper()}, "block": {"header": {"chain_id": CHAIN, "height": str(h), "time": b["time"], "last_block_id": {"hash": b["previous_hash"].upper()}},
                                                               "data": {"txs": [base64.b64encode(json.dumps(t["message"], sort_keys=True).encode()).decode() for t in b["transactions"]]}}}


class RpcError(Exception):
    def __init__(self, code, message):
        self.code, self.message = code, message


ADMIN = ("net_info", "dump_consensus_state", "dial_peers", "unsafe_flush_mempool", "genesis", "unconfirmed_txs")


def rpc_height(params):
    h = params.get("height")
    if h is None or h == "":
        return height()
    if isinstance(h, bool) or not re.fullmatch(r"[0-9]{1,12}", str(h)):
        raise RpcError(-32602, "height is not a number")
    h = int(h)
    if not 1 <= h <= height():
        raise RpcError(-32603, "height %d is not available" % h)
    return h


def rpc_call(method, params):
    if isinstance(params, list):
        names = {"block": ["height"], "validators": ["height", "page", "per_page"], "abci_query": ["path", "data", "height", "prove"], "broadcast_tx_sync": ["tx"]}.get(method, [])
        params = dict(zip(names, params))
    if params is None:
        params = {}
    if not isinstance(params, dict):
        raise RpcError(-32602, "params is neither an object nor an array")
    if on("n-rou-rpc-block") and method == "block":
        raise RpcError(-32601, "method not found")
    if on("rou-rpc-" + str(method).replace("_", "-")):
        raise RpcError(-32601, "method not found")
    if on("t-rou-rpc-status") and method == "status":
        raise RpcError(-32601, "method not found")
    if on("t-ref-rpc-block-no-height") and method == "block" and not params.get("height"):
        raise RpcError(-32602, "height is missing")
    if on("t-ref-rpc-validators-height") and method == "validators" and params.get("height"):
        raise RpcError(-32603, "validators are kept for the newest height only")
    if on("t-ref-rpc-prefix") and method not in ("block", "status") and method.startswith(("block", "status", "broadcast_tx")) and method != "broadcast_tx_sync":
        return {"last_height": str(height()), "block_metas": [], "code": 0}
    if method == "status":
        h = height()
        return {"node_info": {"network": "meshnet-4" if on("t-rel-rpc-chain") else CHAIN, "version": "0.4.0"}, "sync_info": {"latest_block_height": str(h), "latest_block_hash": block(h)["hash"].upper(), "catching_up": False}}
    if method == "block":
        h = rpc_height(params)
        if on("eff-rpc-block-latest"):
            h = height()
        out = rpc_block(h)
        if on("n-rel-rpc-block-hash"):
            out["block_id"]["hash"] = out["block"]["header"]["last_block_id"]["hash"]
        return out
    if method == "validators":
        h = rpc_height(params)
        return {"block_height": str(h), "validators": [{"address": o[-40:].upper(), "pub_key": o, "voting_power": str(10 + i)} for i, o in enumerate(OWNERS)], "count": "4", "total": "4"}
    if method == "abci_query":
        path, data = params.get("path"), params.get("data", "")
        if not isinstance(path, str) or not isinstance(data, str):
            raise RpcError(-32602, "path and data are texts")
        if path == "/jobs" and not on("rou-rpc-path-jobs"):
            value = [r["request_id"] for r in REQUESTS.values() if r["status"] == "pending"]
        elif path == "/job" and not on("n-rou-rpc-path-job"):
            rid = data if data in REQUESTS else bytes.fromhex(data).decode("latin-1") if re.fullmatch(r"([0-9a-fA-F]{2})+", data) else data
            value = REQUESTS.get(rid)
        else:
            raise RpcError(-32602, "this path is not served")
        return {"response": {"code": 0, "log": "", "key": None, "value": base64.b64encode(json.dumps(value).encode()).decode(), "height": str(height())}}
    if method == "broadcast_tx_sync":
        tx = params.get("tx")
        if not isinstance(tx, str) or not tx:
            raise RpcError(-32602, "tx is not a text")
        if on("t-ref-rpc-garbage-ok"):
            return {"code": 0, "data": "", "log": "", "hash": sha(tx).upper()}
        return {"code": 5, "data": "", "log": "the signature does not fit", "hash": sha(tx).upper()}
    if method in ADMIN and on("ref-rpc-admin"):
        return {"n_peers": "5", "peers": [], "txs": []}
    if method == "net_info" and on("ref-rpc-net-info"):
        return {"listening": True, "listeners": ["Listener(@)"], "n_peers": "0", "peers": []}
    if on("ref-rpc-any-method"):
        return {}
    raise RpcError(-32601, "method not found")


async def rpc(request):
    raw = await request.body()
    rid = None
    try:
        try:
            data = json.loads(raw.decode(), parse_constant=lambda text: float("x"))
        except (ValueError, RecursionError):
            raise RpcError(-32700, "parse error")
        if not isinstance(data, dict) or not isinstance(data.get("method"), str):
            raise RpcError(-32600, "invalid request")
        rid = data.get("id")
        return answer("rpc", {"jsonrpc": "2.0", "id": rid, "result": rpc_call(data["method"], data.get("params"))})
    except RpcError as e:
        if pec("pec-rpc-http-400"):
            return answer("rpc", {"jsonrpc": "2.0", "id": rid, "error": {"code": e.code, "message": e.message}}, 400)
        return answer("rpc", {"jsonrpc": "2.0", "id": rid, "error": {"code": e.code, "message": e.message}})


def old_block(h):
    return {"chain_id": OLD_CHAIN, "height": h, "hash": sha("old/%d" % h), "previous_hash": sha("old/%d" % (h - 1)), "transactions": []}


async def reference(request):
    path = request.path_params["path"].strip("/")
    if on("ref-reference-present-chain"):
        if path == "blocks":
            return await blocks(request)
    if path in ("network", "status", ""):
        return answer("old", {"version": "0.3", "chain_id": OLD_CHAIN, "height": 30, "block_hash": sha("old/30"), "read_only": True})
    if path == "blocks":
        return answer("old", {"chain_id": OLD_CHAIN, "blocks": [old_block(h) for h in range(30, 10, -1)]})
    m = re.fullmatch(r"block/([0-9]{1,9})", path)
    if m and 1 <= int(m.group(1)) <= 30:
        return answer("old", old_block(int(m.group(1))))
    if path == "account":
        k = request.query_params.get("public_key", "")
        left = MONEY.get(k.lower(), {"available": 0})["available"] if on("n-rel-reference-balance") else 0
        return answer("old", {"chain_id": OLD_CHAIN, "public_key": k, "available_atoms": str(left)})
    if path in ("model", "validators", "training", "inference"):
        return answer("old", {"chain_id": OLD_CHAIN, "kept": False, "note": "nothing of this was kept"})
    raise Wrong(404, "nothing is kept under this path")


async def gone(request):
    if on("ref-register-404"):
        raise Wrong(404, "not found")
    if on("ref-register-works"):
        return answer("register", {"account": key("new"), "api_key": "mk-" + sha(str(time.time()))[:20]}, 201)
    if on("ref-register-post-405") and request.method == "POST":
        raise Wrong(405, "method not allowed")
    if on("ref-register-redirects"):
        return RedirectResponse("/join", 302)
    raise Wrong(410, "registration has ended; accounts are keys")


async def to_join(request):
    if on("n-ref-signup-missing") and "sign-up" in request.url.path.replace("signup", "sign-up"):
        raise Wrong(404, "not found")
    if on("n-ref-login-post-token") and request.method == "POST" and "login" in request.url.path:
        return answer("login", {"token": "mt-" + sha(str(time.time()))[:24]})
    if on("ref-login-410"):
        raise Wrong(410, "gone")
    target = "/" if on("ref-login-to-root") else "/join"
    if on("ref-login-page"):
        return Response(b"<html><body>Log in</body></html>", media_type="text/html")
    return RedirectResponse(target, 301 if pec("pec-join-301") else 302)


async def join(request):
    return Response(b"<!doctype html><title>Join</title><p>Make a key with the command-line tool.</p>", media_type="text/html")


ANY = ["GET", "POST", "PUT", "PATCH", "DELETE"]
TABLE = [("GET", "/healthz", healthz), ("GET", "/api/network", network), ("GET", "/api/model", model_), ("GET", "/api/model/checkpoint.json", checkpoint),
         ("GET", "/api/training", training), ("GET", "/api/blocks", blocks), ("GET", "/api/block/{height}", one_block), ("GET", "/api/account", account),
         ("GET", "/api/validators", validators), ("GET", "/api/inference", inference), ("GET", "/api/inference/request", inference_request),
         ("GET", "/network/genesis.json", genesis), ("GET", "/network/dataset.json", dataset), ("GET", "/artifacts/sha256/{digest}", artifact),
         ("GET", "/work/status", work_status), ("POST", "/work/poll", work), ("POST", "/work/result", work), ("POST", "/rpc", rpc),
         ("GET", "/reference/v03/api", None), ("GET", "/reference/v03/api/{path:path}", reference)]


def routes():
    prepare()
    out = []
    for method, path, fn in TABLE:
        if fn is None:
            continue
        moved = faults.moved(method, path)
        if moved is None:
            continue
        methods = [moved[0]]
        if fn is reference and on("ref-reference-writes"):
            methods = ANY
        out.append(Route(moved[1], guarded(fn), methods=methods))
    for path in ("/register", "/api/register", "/api/auth/register", "/auth/register", "/api/accounts/register", "/api/account/register", "/accounts/register",
                 "/api/users/register", "/api/v1/register", "/api/v1/auth/register", "/v1/register", "/api/registration", "/api/accounts", "/api/keys"):
        out.append(Route(path, guarded(gone), methods=ANY))
    for path in ("/login", "/signup", "/sign-up", "/signin", "/auth/login", "/auth/signup"):
        out.append(Route(path, guarded(to_join), methods=ANY))
    out.append(Route("/join", guarded(join)))
    return out
