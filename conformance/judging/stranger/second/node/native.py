"""The public native API: a toy chain, its pages, the worker protocol and /rpc."""

import asyncio, json, time, hashlib, base64, re, math, collections
from aiohttp import web
import core, model, state, http_api
from core import fault, pec, hook
from state import iso, R

try:
    import coincurve
except ImportError:  # pragma: no cover
    coincurve = None

UNIT = 1_000_000
NATIVE_ROUTES = {
    "n_healthz": ("GET", "/healthz"),
    "n_network": ("GET", "/api/network"),
    "n_model": ("GET", "/api/model"),
    "n_checkpoint": ("GET", "/api/model/checkpoint.json"),
    "n_training": ("GET", "/api/training"),
    "n_blocks": ("GET", "/api/blocks"),
    "n_block": ("GET", "/api/block/{height}"),
    "n_account": ("GET", "/api/account"),
    "n_validators": ("GET", "/api/validators"),
    "n_inference": ("GET", "/api/inference"),
    "n_request": ("GET", "/api/inference/request"),
    "n_genesis": ("GET", "/network/genesis.json"),
    "n_dataset": ("GET", "/network/dataset.json"),
    "n_artifact": ("GET", "/artifacts/sha256/{hex}"),
    "n_work": ("GET", "/work/status"),
    "n_poll": ("POST", "/work/poll"),
    "n_result": ("POST", "/work/result"),
    "n_rpc": ("POST", "/rpc"),
    "n_ref": ("GET", "/reference/v03/api/{tail:.*}"),
}
GONE = ["/register", "/api/register", "/api/accounts/register"]
MOVED = ["/login", "/signup", "/api/login"]


def sha(b):
    return hashlib.sha256(b if isinstance(b, bytes) else b.encode()).hexdigest()


def canon(x):
    return json.dumps(x, sort_keys=True, separators=(",", ":")).encode()


def key(name):
    k = coincurve.PrivateKey(hashlib.sha256(b"key " + name.encode()).digest())
    return k.public_key.format(compressed=True).hex()


KEYS = {n: key(n) for n in ("ada", "bo", "cy", "val0", "val1", "val2")}
GENESIS = {
    "chain": "stranger-7",
    "format": 3,
    "opened": "2026-05-01T08:00:00+00:00",
    "supply_atoms": "9007199254740993000000" if not pec("supply-small") else "1000000",
    "dataset_sha256": None,
    "owners": [KEYS["val0"], KEYS["val1"], KEYS["val2"]],
}
DATASET = {
    "name": "toy",
    "tokens": [[(i * 7 + j * 13) % model.V for j in range(16)] for i in range(12)],
    "vocabulary": model.V,
}
DATASET_RAW = json.dumps(DATASET).encode()
GENESIS["dataset_sha256"] = sha(DATASET_RAW)
GENESIS_RAW = json.dumps(GENESIS).encode()
ADAPTER_RAW = hashlib.shake_256(b"adapter").digest(70_001)
MANIFEST_RAW = json.dumps({"adapter": sha(ADAPTER_RAW), "dataset": sha(DATASET_RAW)}).encode()
ARTIFACTS = {sha(x): x for x in (DATASET_RAW, ADAPTER_RAW, MANIFEST_RAW, GENESIS_RAW)}


class Chain:
    def __init__(self):
        self.blocks = []
        self.pool = []
        self.requests = collections.OrderedDict()
        self.done = collections.deque()
        self.accounts = {
            k: {"spendable": 50_000 * UNIT + i * 1_234_567, "locked": 0, "nonce": 3 * i}
            for i, k in enumerate(KEYS.values())
        }
        t = state.BOOT - 86400
        ends = []
        for h in range(1, 5 if pec("chain-short") else 151):
            txs = []
            for half in (0, 1) if h % 2 == 0 and 4 < h < 146 else ():
                rid = "rq%06d" % (h * 17 + half)
                txs.append(
                    {
                        "kind": "inference",
                        "request_id": rid,
                        "payer": KEYS["ada"],
                        "nonce": h + half,
                        "price_atoms": str(900 + h),
                        "prompt": "say %d" % (h + half),
                        "max_tokens": 12,
                        "expires_at_height": h + 4,
                        "signature": sha("s%d.%d" % (h, half)) * 2,
                    }
                )
                ends.append((h + 4 if h % 10 == 0 else h + 1, len(ends), rid))
                self.request(rid, txs[-1], h, "expired" if h % 10 == 0 else "completed", t)
            if h % 3 == 0:
                txs.append(
                    {
                        "kind": "transfer",
                        "from": KEYS["ada"],
                        "to": KEYS["bo"],
                        "amount_atoms": str(1000 * h),
                        "nonce": h,
                        "signature": sha("t%d" % h) * 2,
                    }
                )
            self.block(txs, t)
            t += 400
        for _, _, rid in sorted(ends):
            self.finish(rid)
        self.request(
            "rq-open-1",
            {"payer": KEYS["cy"], "price_atoms": "1200", "prompt": "still open", "max_tokens": 9},
            len(self.blocks),
            "pending",
            t,
            10**9,
        )
        n = 0 if pec("no-updates") else 45
        self.updates = [
            {
                "round": r,
                "loss": repr(5.0 - r * 0.03125),
                "root_before": sha("root%d" % (r - 1)),
                "root_after": sha("root%d" % r),
                "by": KEYS["val%d" % (r % 3)],
                "height": 2 * r + 1,
            }
            for r in range(1, n + 1)
        ]

    def request(self, rid, tx, h, st, t, expires=None):
        q = {
            "request_id": rid,
            "state": st,
            "payer": tx["payer"],
            "price_atoms": tx["price_atoms"],
            "prompt": tx["prompt"],
            "max_tokens": tx["max_tokens"],
            "accepted_height": h,
            "expires_at_height": expires or h + 4,
        }
        if st == "completed":
            q["response"] = {"text": "answer %s" % rid, "height": h + 1, "tokens": 7}
        if st == "expired":
            q["refund"] = {"amount_atoms": tx["price_atoms"], "to": tx["payer"], "height": h + 4}
        self.requests[rid] = q
        return q

    def finish(self, rid):
        keep = 128
        for n in (16, 127, 64, 100):
            if fault("lim-native-jobs-%d" % n):
                keep = n
        self.done.append(rid)
        while len(self.done) > keep:
            self.requests.pop(self.done.popleft(), None)

    def block(self, txs, t=None):
        h = len(self.blocks) + 1
        prev = self.blocks[-1]["hash"] if self.blocks else "0" * 64
        b = {
            "height": h,
            "previous": prev,
            "at": iso(t),
            "transactions": txs,
            "results": [{"tx": sha(canon(x)), "code": 0, "gas": 10} for x in txs],
        }
        b["hash"] = sha(canon([h, prev, txs]))
        self.blocks.append(b)

    def wallet(self, id):
        if not pec("wallet-off-chain"):
            self.pool.append({"kind": "wallet", "reference": id, "signature": "operator"})

    async def run(self):
        while True:
            await asyncio.sleep(0.5)
            if self.pool:
                txs, self.pool = self.pool, []
                self.block(txs)
                for rid, q in list(self.requests.items()):
                    if q["state"] == "pending" and q["expires_at_height"] <= len(self.blocks):
                        q["state"] = "expired"
                        q["refund"] = {
                            "amount_atoms": q["price_atoms"],
                            "to": q["payer"],
                            "height": len(self.blocks),
                        }
                        acc = self.accounts.get(q["payer"])
                        if acc:
                            acc["locked"] = max(0, acc["locked"] - int(q["price_atoms"]))
                            acc["spendable"] += int(q["price_atoms"])
                        self.finish(rid)
                    elif q["state"] == "pending" and q.get("fresh"):
                        q["state"] = "completed"
                        q["response"] = {
                            "text": "answer " + rid,
                            "height": len(self.blocks),
                            "tokens": 3,
                        }
                        self.finish(rid)


CHAIN = None


def A(n):
    """Money of the native API."""
    if fault("fld-native-atoms-int"):
        return int(n)
    if fault("fld-native-atoms-float"):
        return float(n)
    if fault("fld-native-atoms-units"):
        return "%.6f" % (int(n) / UNIT)
    if fault("fld-native-atoms-commas"):
        return "{:,}".format(int(n))
    if fault("fld-native-atoms-hex"):
        return hex(int(n))
    if fault("fld-native-atoms-exponent"):
        return "%.9e" % int(n)
    if fault("fld-native-atoms-fraction"):
        return "%d.0" % int(n)
    if fault("fld-native-atoms-suffix"):
        return "%d atoms" % int(n)
    return str(n)


def money(x):
    if isinstance(x, dict):
        return {
            k: A(v) if k.endswith("_atoms") and v is not None else money(v) for k, v in x.items()
        }
    if isinstance(x, list):
        return [money(i) for i in x]
    return x


class NFail(Exception):
    def __init__(self, status, msg):
        self.status, self.msg = status, msg


_stale = {}


def qint(r, name, default):
    v = r.query.get(name)
    if v is None:
        return default
    if not re.fullmatch(r"\d{1,18}", v):
        if fault("ref-native-query-500"):
            raise NFail(500, "ValueError")
        raise NFail(400, "%s must be a number" % name)
    return int(v)


async def n_healthz(r):
    if pec("healthz-text"):
        return "ready\n"
    if pec("healthz-503"):
        raise NFail(503, "catching up")
    return {"ready": True, "state": "following", "height": len(CHAIN.blocks)}


async def n_network(r):
    h = len(CHAIN.blocks)
    b = CHAIN.blocks[-1]
    d = {
        "chain": GENESIS["chain"],
        "genesis_sha256": sha(GENESIS_RAW),
        "api": "0.4.0",
        "tip": {"height": h, "hash": b["hash"]},
        "round": CHAIN.updates[-1]["round"] if CHAIN.updates else 0,
        "ready": True,
        "supply": {"total_atoms": GENESIS["supply_atoms"], "locked_atoms": "0"},
    }
    if fault("rel-native-tip-hash-previous"):
        d["tip"]["hash"] = b["previous"]
    if fault("rel-native-tip-height-behind"):
        d["tip"]["height"] = h - 1
    if fault("rel-native-tip-height-ahead"):
        d["tip"]["height"] = h + 1
    if fault("rel-native-tip-hash-of-genesis"):
        d["tip"]["hash"] = sha(GENESIS_RAW)
    if fault("rel-native-tip-hash-upper"):
        d["tip"]["hash"] = b["hash"].upper()
    if fault("rel-native-tip-hash-base64"):
        d["tip"]["hash"] = base64.b64encode(bytes.fromhex(b["hash"])).decode()
    if fault("rel-native-tip-hash-cut"):
        d["tip"]["hash"] = b["hash"][:40]
    if fault("rel-native-tip-stale-hash"):
        d["tip"]["hash"] = _stale.setdefault("hash", b["hash"])
    return d


async def n_model(r):
    return {
        "revision": "toy-6x8-r4",
        "frozen": 1152,
        "trained": 384,
        "training_root": sha("root45"),
        "serving_root": sha("root44"),
        "loss": {"training": "3.59375", "held_out": "3.75"},
        "profile": "f32-scalar",
    }


async def n_checkpoint(r):
    return {
        "chain": GENESIS["chain"],
        "adapter": {"sha256": sha(ADAPTER_RAW), "bytes": len(ADAPTER_RAW)},
        "root": sha("root45"),
        "round": 45,
    }


def page_of(items, keyname, r, fid):
    lim = qint(r, "limit", 20 if not pec("native-default-3") else 3)
    before = qint(r, "before", None)
    top = 100 if not pec("native-max-8") else 8
    lim = min(lim, top)
    L = list(reversed(items))
    F = lambda s: fault("%s-%s" % (fid, s))
    if F("limit-ignored"):
        lim = 20
    if F("limit-plus-one"):
        lim += 1
    if F("limit-minimum-five"):
        lim = max(5, lim)
    if F("before-ignored"):
        before = None
    if before is not None:
        if F("before-inclusive-later"):
            L = [x for x in L if x[keyname] <= before + 1]
        elif F("before-skips-one"):
            L = [x for x in L if x[keyname] < before - 1]
        elif F("before-as-offset"):
            L = L[before:]
        elif F("before-as-after"):
            L = [x for x in L if x[keyname] > before]
        elif F("before-as-index"):
            L = [x for x in items if x[keyname] < before]
        elif F("before-halves"):
            L = [x for x in L if x[keyname] < before and (x[keyname] % 2 or len(L) < 3)]
        elif pec("native-before-inclusive"):
            L = [x for x in L if x[keyname] <= before]
        else:
            L = [x for x in L if x[keyname] < before]
    elif F("newest-missing"):
        L = L[1:]
    if F("oldest-first") and before is None:
        L = L[::-1]
    if F("short-page") and lim > 1:
        L = L[: lim - 1]
    if F("entry-twice") and len(L) > 2:
        L = [L[0], L[0]] + L[1:]
    if F("gap") and len(L) > 3:
        L = L[:2] + L[3:]
    if F("empty"):
        L = []
    return L[:lim]


async def n_training(r):
    if pec("index-error"):
        return {
            "index": {"reached": 12, "error": "the index is behind"},
            "accepted": CHAIN.updates[:0],
        }
    return {
        "index": {"reached": len(CHAIN.updates), "error": None},
        "accepted": page_of(CHAIN.updates, "round", r, "rel-updates"),
    }


async def n_blocks(r):
    L = page_of(CHAIN.blocks, "height", r, "rel-blocks")
    return {
        "tip": len(CHAIN.blocks),
        "listed": [
            {k: b[k] for k in ("height", "hash", "previous", "at", "results")}
            | {"count": len(b["transactions"])}
            for b in L
        ],
    }


async def n_block(r):
    s = r.match_info["height"]
    if not re.fullmatch(r"\d{1,18}", s):
        raise NFail(400, "a height is a number")
    h = int(s)
    if fault("rel-block-zero-based"):
        h = h + 1 if h < len(CHAIN.blocks) else h
    if fault("rel-block-previous"):
        h = max(1, h - 1)
    if fault("ref-block-future-tip") and h > len(CHAIN.blocks):
        h = len(CHAIN.blocks)
    if fault("rel-block-tip-always"):
        h = len(CHAIN.blocks)
    if fault("lim-block-latest-100") and h <= len(CHAIN.blocks) - 10:
        raise NFail(404, "pruned")
    if fault("rel-block-old-500") and h < len(CHAIN.blocks) - 40:
        raise NFail(500, "index")
    if not 1 <= h <= len(CHAIN.blocks):
        raise NFail(404, "no block at this height")
    b = dict(CHAIN.blocks[h - 1])
    if fault("rel-block-hash-differs"):
        b["hash"] = sha(b["hash"])
    if fault("rel-block-hash-of-next") and h < len(CHAIN.blocks):
        b["hash"] = CHAIN.blocks[h]["hash"]
    if fault("rel-block-height-string-off"):
        b["height"] = h + 1
    if fault("rel-block-height-requested-off"):
        b["height"] = int(s) - 1
    if fault("rel-block-request-ids-shifted"):
        b["transactions"] = [
            dict(
                t,
                request_id=(CHAIN.blocks[h - 3]["transactions"] or [{}])[0].get(
                    "request_id", t.get("request_id")
                ),
            )
            if t.get("request_id") and h > 9
            else t
            for t in b["transactions"]
        ]
    return b


async def n_account(r):
    k = r.query.get("public_key", "")
    if not re.fullmatch(r"0[23][0-9a-fA-F]{64}", k):
        if fault("ref-account-junk-500"):
            raise NFail(500, "ValueError: non-hexadecimal")
        raise NFail(400, "public_key is a compressed key of 33 bytes")
    k = k.lower()
    a = CHAIN.accounts.get(k) or {"spendable": 0, "locked": 0, "nonce": 0}
    if k not in CHAIN.accounts and pec("unknown-account-404"):
        raise NFail(404, "no such account")
    if fault("rel-account-same-for-all"):
        k = KEYS["ada"]
        a = CHAIN.accounts[k]
    if fault("rel-account-cached"):
        k, a = _stale.setdefault("acct", (k, a))
    return {
        "public_key": k,
        "spendable_atoms": str(a["spendable"]),
        "locked_atoms": str(a["locked"]),
        "liquid_atoms": str(a["spendable"] + a["locked"]),
        "next_nonce": a["nonce"],
    }


async def n_validators(r):
    L = [
        {"owner": KEYS["val%d" % i], "power": 10 + i, "bond_atoms": str((1000 + i) * UNIT)}
        for i in range(3)
    ]
    if pec("validators-many"):
        L = L * 40
    return {"set": L[: qint(r, "count", 50)], "size": len(L)}


async def n_inference(r):
    return {
        "chain": GENESIS["chain"],
        "genesis_sha256": sha(GENESIS_RAW),
        "served_root": sha("root44"),
        "provider": {"key": KEYS["val0"], "heartbeat": "fresh"},
        "price_atoms": "1200",
        "fee_atoms": "15",
        "queue": 1,
    }


async def n_request(r):
    i = r.query.get("id", "")
    if fault("rel-request-latest-always"):
        i = next(reversed(CHAIN.requests))
    if fault("rel-request-next"):
        ks = list(CHAIN.requests)
        if i in ks:
            i2 = ks[(ks.index(i) + 1) % len(ks)]
            return CHAIN.requests[i2]
    if fault("rel-request-cached"):
        i = _stale.setdefault("req", i)
    q = CHAIN.requests.get(i)
    if fault("rel-request-completed-gone") and q and q["state"] == "completed":
        q = None
    if fault("rel-request-pending-gone") and q and q["state"] == "pending":
        q = None
    if fault("rel-request-read-once") and q:
        CHAIN.requests.pop(i)
    if not q:
        if fault("ref-request-unknown-500"):
            raise NFail(500, "KeyError")
        raise NFail(404, "no such request")
    q = {k: v for k, v in q.items() if k != "fresh"}
    return q


async def n_genesis(r):
    return GENESIS_RAW


async def n_dataset(r):
    return DATASET_RAW


async def n_artifact(r):
    h = r.match_info["hex"].lower()
    b = ARTIFACTS.get(h)
    if fault("rel-artifact-any"):
        b = b or MANIFEST_RAW
    if b is None:
        if not re.fullmatch(r"[0-9a-f]{64}", h):
            raise NFail(400, "not a digest")
        raise NFail(404, "no such file")
    if fault("rel-artifact-newline"):
        b = b + b"\n"
    if fault("lim-artifact-64k"):
        b = b[:65536]
    if fault("rel-artifact-reencoded"):
        b = b.decode("latin-1").encode("utf-8")
        if b.isascii():
            b = json.dumps(json.loads(b), indent=1).encode()
    if fault("rel-artifact-other"):
        b = MANIFEST_RAW if b != MANIFEST_RAW else DATASET_RAW
    if fault("rel-artifact-base64"):
        b = base64.b64encode(b)
    if fault("rel-artifact-json-string"):
        b = json.dumps(base64.b64encode(b).decode()).encode()
    return web.Response(body=b, content_type="application/octet-stream")


async def n_work(r):
    return {
        "sponsor": None if pec("no-sponsor") else KEYS["val1"],
        "stages": {"draft": "open", "check": "closed"},
        "attempts_left": 5,
    }


async def n_poll(r):
    return await work(r, "ask")


async def n_result(r):
    return await work(r, "deliver")


async def work(r, kind):
    raw = await r.read()
    try:
        m = json.loads(raw)
    except (ValueError, UnicodeDecodeError, RecursionError):
        if fault("ref-work-not-json-500") or fault("ref-work-result-500") and kind == "deliver":
            raise NFail(500, "JSONDecodeError")
        raise NFail(400, "not JSON")
    if not isinstance(m, dict) or not all(
        isinstance(m.get(k), str) for k in ("key", "body", "sig")
    ):
        if fault("ref-work-incomplete-500"):
            raise NFail(500, "KeyError: 'sig'")
        if fault("ref-work-poll-500") and kind == "ask":
            raise NFail(502, "upstream")
        raise NFail(400, "key, body and sig are needed")
    ok = verify(m["key"], m["body"].encode(), m["sig"])
    if not ok:
        if fault("ref-work-bad-signature-500"):
            raise NFail(500, "BadSignature")
        raise NFail(403, "the signature is not that of the key")
    return (
        {"work": None, "wait_seconds": 5}
        if kind == "ask"
        else {"taken": False, "why": "no such job"}
    )


def verify(k, msg, sig):
    try:
        return coincurve.PublicKey(bytes.fromhex(k)).verify(bytes.fromhex(sig), msg)
    except Exception:
        return False


# ---------------------------------------------------------------- /rpc
def rpc_status(p):
    return {
        "node": state.NODE_ID,
        "sync": {
            "latest_height": str(len(CHAIN.blocks)),
            "latest_hash": CHAIN.blocks[-1]["hash"].upper(),
            "catching_up": False,
        },
    }


def rpc_block(p):
    h = p.get("height")
    h = len(CHAIN.blocks) if h is None else int(h)
    if not 1 <= h <= len(CHAIN.blocks):
        raise ValueError("height %d is not there" % h)
    if fault("eff-rpc-block-height-ignored"):
        h = len(CHAIN.blocks)
    b = CHAIN.blocks[h - 1]
    return {
        "block": {
            "header": {"height": str(h), "prev": b["previous"]},
            "data": {"txs": [base64.b64encode(canon(t)).decode() for t in b["transactions"]]},
        },
        "hash": b["hash"].upper(),
    }


def rpc_validators(p):
    h = p.get("height")
    h = len(CHAIN.blocks) if h is None else int(h)
    if not 1 <= h <= len(CHAIN.blocks):
        raise ValueError("height %d is not there" % h)
    return {
        "height": str(h),
        "validators": [{"power": str(10 + i), "key": KEYS["val%d" % i]} for i in range(3)],
    }


def rpc_query(p):
    path = p.get("path", "")
    if path == "/jobs":
        v = list(CHAIN.requests)[-20:]
    elif path == "/job":
        d = str(p.get("data", ""))
        try:
            d = bytes.fromhex(d).decode()
        except ValueError:
            pass
        v = CHAIN.requests.get(d)
    elif path in ("/account", "/height"):
        v = len(CHAIN.blocks)
    else:
        return {"response": {"code": 6, "log": "unknown path", "value": None}}
    return {
        "response": {
            "code": 0 if v is not None else 5,
            "value": base64.b64encode(canon(v)).decode(),
        }
    }


def rpc_broadcast(p):
    raw = p.get("tx", "")
    try:
        raw = base64.b64decode(raw, validate=True)
        t = json.loads(raw)
    except Exception:
        return {"code": 2, "log": "the transaction cannot be read", "hash": ""}
    if len(raw) > 16384:
        return {"code": 3, "log": "too long", "hash": ""}
    if not isinstance(t, dict):
        return {"code": 2, "log": "not an object", "hash": ""}
    sig = t.pop("signature", "")
    if not isinstance(sig, str) or not verify(
        str(t.get("payer", t.get("from", ""))), canon(t), sig
    ):
        return {"code": 4, "log": "bad signature", "hash": ""}
    acc = CHAIN.accounts.get(t.get("payer", t.get("from", "")))
    if not acc or t.get("nonce") != acc["nonce"] or t.get("chain") != GENESIS["chain"]:
        return {"code": 7, "log": "nonce or chain", "hash": ""}
    t["signature"] = sig
    if t.get("kind") == "inference":
        price = int(t.get("price_atoms", "1200"))
        if acc["spendable"] < price:
            return {"code": 8, "log": "funds", "hash": ""}
        acc["spendable"] -= price
        acc["locked"] += price
        rid = "rq" + sha(canon(t) + b"id")[:16]
        t["request_id"] = rid
        q = CHAIN.request(
            rid,
            {
                "payer": t["payer"],
                "price_atoms": str(price),
                "prompt": str(t.get("prompt", "")),
                "max_tokens": t.get("max_tokens", 10),
            },
            len(CHAIN.blocks),
            "pending",
            None,
            int(t.get("expires_at_height", 10**9)),
        )
        q["fresh"] = True
    acc["nonce"] += 1
    CHAIN.pool.append(t)
    return {"code": 0, "log": "", "hash": sha(canon(t)).upper(), "request_id": t.get("request_id")}


RPC = {
    "status": rpc_status,
    "block": rpc_block,
    "validators": rpc_validators,
    "abci_query": rpc_query,
    "broadcast_tx_sync": rpc_broadcast,
}


async def n_rpc(r):
    raw = await r.read()
    try:
        m = json.loads(raw)
    except (ValueError, UnicodeDecodeError, RecursionError):
        return {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "not JSON"}}
    if not isinstance(m, dict) or not isinstance(m.get("method"), str):
        return {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "not a call"}}
    name, p = m["method"], m.get("params") or {}
    i = m.get("id")
    table = dict(RPC)
    for n in list(RPC):
        if fault("rou-rpc-no-%s" % n.replace("_", "-")):
            table.pop(n)
    for n, v in (
        ("unsafe_flush_mempool", {}),
        ("dump_consensus_state", {"round_state": {}}),
        ("net_info", {"n_peers": "4", "peers": []}),
        ("genesis", GENESIS),
        ("broadcast_tx_commit", {"check_tx": {"code": 0}}),
        ("tx_search", {"txs": [], "total_count": "0"}),
        ("consensus_params", {"block": {"max_bytes": "1"}}),
        ("unconfirmed_txs", {"n_txs": "0"}),
        ("abci_info", {"response": {}}),
        ("dial_peers", {"log": "dialing"}),
        ("dial_seeds", {"log": "dialing"}),
        ("unsafe_start_cpu_profiler", {}),
        ("private_key", {"key": "00" * 32}),
        ("priv_validator", {"priv_key": "AA=="}),
        ("health", {}),
        ("num_unconfirmed_txs", {"n_txs": "0"}),
        ("consensus_state", {"round_state": {}}),
        ("broadcast_evidence", {"hash": ""}),
        ("block_results", {}),
        ("subscribe", {}),
    ):
        if fault("ref-rpc-open-" + n.replace("_", "-")):
            table[n] = lambda p, v=v: v
    if fault("ref-rpc-open-any") and name not in table:
        table[name] = lambda p: {}
    if fault("ref-rpc-open-unsafe-prefix") and name.startswith("unsafe_"):
        table[name] = lambda p: {}
    if fault("ref-rpc-case-insensitive"):
        name = name.strip()
    if name not in table:
        b = {
            "jsonrpc": "2.0",
            "id": i,
            "error": {"code": -32601, "message": "this method is not served"},
        }
        if pec("rpc-errors-400"):
            raise NFail(400, "this method is not served")
        return b
    if isinstance(p, list):
        p = dict(
            zip(
                {
                    "block": ["height"],
                    "validators": ["height"],
                    "abci_query": ["path", "data"],
                    "broadcast_tx_sync": ["tx"],
                }.get(name, []),
                p,
            )
        )
    if not isinstance(p, dict):
        return {"jsonrpc": "2.0", "id": i, "error": {"code": -32602, "message": "params"}}
    if fault("ref-rpc-no-height") and name in ("block", "validators") and "height" in p:
        return {
            "jsonrpc": "2.0",
            "id": i,
            "error": {"code": -32602, "message": "unexpected parameter height"},
        }
    if fault("ref-rpc-height-needed") and name in ("block", "validators") and "height" not in p:
        return {
            "jsonrpc": "2.0",
            "id": i,
            "error": {"code": -32602, "message": "height is missing"},
        }
    try:
        res = table[name](p)
    except (ValueError, TypeError) as e:
        return {"jsonrpc": "2.0", "id": i, "error": {"code": -32602, "message": str(e)[:80]}}
    res = hook("rpc_" + name, res, p)
    return {"jsonrpc": "2.0", "id": i, "result": res}


REF = {
    "status": {"chain": "stranger-v03", "version": "0.3", "closed_at_height": 4410},
    "blocks": {
        "listed": [
            {"height": 4410, "hash": sha("old4410")},
            {"height": 4409, "hash": sha("old4409")},
        ]
    },
    "supply": {"total_atoms": "77000000"},
}


async def n_ref(r):
    t = r.match_info["tail"].strip("/")
    if t in REF and r.method in ("GET", "HEAD"):
        return REF[t]
    if r.method not in ("GET", "HEAD"):
        if fault("eff-ref-delete") and r.method == "DELETE":
            REF.pop(t, None)
            return {"deleted": t}
        if fault("eff-ref-put") and r.method in ("PUT", "POST"):
            try:
                REF[t] = json.loads(await r.read())
            except ValueError:
                REF[t] = {}
            return {"stored": t}
        if fault("eff-ref-patch") and r.method == "PATCH" and t in REF:
            REF[t] = dict(REF[t], patched=True)
            return REF[t]
        if fault("eff-ref-delete-quiet") and r.method == "DELETE":
            REF.pop(t, None)
            raise NFail(405, "read only")
        if fault("eff-ref-put-quiet") and r.method == "PUT":
            REF[t] = {"replaced": True}
            raise NFail(405, "read only")
        if fault("ref-ref-post-200"):
            return REF.get(t, {})
        raise NFail(405, "these are views to read only")
    raise NFail(404, "nothing was kept here")


def endpoint(route, fn):
    async def handler(r):
        status, body = 200, None
        try:
            body = await fn(r)
        except NFail as f:
            status, body = f.status, {"problem": f.msg}
        if isinstance(body, web.Response):
            if core.HOOKS.get("raw:" + route):
                body = hook("raw:" + route, body, r) or body
            return body
        ct = "application/json"
        if isinstance(body, bytes):
            o = http_api.Out(route, status, None)
            o.text = body
        elif isinstance(body, str):
            o = http_api.Out(route, status, None, "text/plain")
            o.text = body
        else:
            if status == 200:
                body = money(body)
                body = hook(route, body, r)
            o = http_api.Out(route, status, body)
        return await http_api.render(r, o)

    return handler


def routes(app):
    global CHAIN
    for n, (m, p) in NATIVE_ROUTES.items():
        p2 = core.ROUTEMOD.get(n, (m, p))
        if not p2:
            continue
        h = endpoint(n, globals()[n])
        app.router.add_route("*" if n == "n_ref" else p2[0], p2[1], h)

    async def gone(r):
        st = core.ROUTEMOD.get("gone:" + r.path, core.ROUTEMOD.get("gone", 410))
        if pec("gone-text"):
            return web.Response(status=st, text="gone")
        if st in (301, 302):
            return web.Response(status=st, headers={"Location": "/join"})
        return web.json_response(
            {"problem": "registration has ended"} if not pec("gone-empty") else {}, status=st
        )

    async def moved(r):
        st = core.ROUTEMOD.get("moved:" + r.path, core.ROUTEMOD.get("moved", 302))
        for q in (301, 303, 307, 308):
            if pec("redirect-%d" % q):
                st = q
        loc = core.ROUTEMOD.get("loc", "/join")
        if pec("redirect-absolute"):
            loc = "http://%s/join" % r.host
        if st == 200:
            return web.Response(text="<html>join</html>", content_type="text/html")
        return web.Response(status=st, headers={"Location": loc} if st < 400 else {})

    async def join(r):
        return web.Response(text="<!doctype html><title>join</title>", content_type="text/html")

    for p in GONE:
        app.router.add_route("*", p, gone)
    for p in MOVED:
        app.router.add_route("*", p, moved)
    app.router.add_get("/join", join)
