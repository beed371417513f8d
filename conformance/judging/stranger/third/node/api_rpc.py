"""POST /rpc: JSON-RPC 2.0, with a list of allowed methods."""

import base64
import hashlib
import json

from fastapi import APIRouter, Request

import chain
import core
from api_native import answer
from core import fault, nth, peculiar

router = APIRouter()
LIMIT = 65536


class RpcError(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code, self.message = code, message


def height_of(params):
    value = params.get("height")
    if value is None:
        return len(chain.BLOCKS)
    if isinstance(value, str) and value.isdigit() and len(value) < 16:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= len(chain.BLOCKS):
        raise RpcError(-32602, "no such height")
    return value


def status(params):
    height, digest = chain.BLOCKS[-1]["height"], chain.BLOCKS[-1]["hash"]
    if fault("rel2-rpc-status-behind"):
        height -= 1
    return {
        "node_info": {"network": chain.CHAIN_ID, "version": "0.4.0"},
        "sync_info": {"latest_block_height": str(height), "latest_block_hash": digest, "catching_up": False},
    }


def block(params):
    if fault("ref-rpc-block-needs-height") and "height" not in params:
        raise RpcError(-32602, "height is missing")
    found = chain.BLOCKS[height_of(params) - 1]
    if fault("rel2-rpc-block-latest"):
        found = chain.BLOCKS[-1]
    return {
        "block_id": {"hash": found["hash"]},
        "block": {
            "header": {
                "height": str(found["height"]),
                "time": found["time"],
                "last_block_id": {"hash": found["parent_hash"]},
            },
            "data": {"txs": [tx["hash"] for tx in found["txs"]]},
        },
    }


def validators(params):
    if fault("ref-rpc-validators-height") and params.get("height") is not None:
        raise RpcError(-32602, "unknown parameter height")
    height = height_of(params)
    return {
        "block_height": str(height),
        "total": str(len(chain.VALIDATORS)),
        "validators": [{"address": row["owner"], "voting_power": str(row["power"])} for row in chain.VALIDATORS],
    }


def abci_query(params):
    path = params.get("path")
    if path == {"rou2-rpc-jobs-gone": "/jobs", "rou2-rpc-job-gone": "/job"}.get(core.FLAGS["fault"], ""):
        raise RpcError(-32602, "no such path")
    chain.tick()
    if path == "/jobs":
        value = [ident for ident, entry in chain.REQUESTS.items() if entry["state"] == "pending"]
    elif path == "/job":
        data = params.get("data", "")
        ident = bytes.fromhex(data).decode() if _hex(data) else data
        value = chain.REQUESTS.get(ident) if isinstance(ident, str) else None
        if value is None:
            return {"response": {"code": 4, "log": "no such job", "value": None}}
    else:
        raise RpcError(-32602, "no such path")
    if isinstance(value, dict):
        value = {key: item for key, item in value.items() if key != "_since"}
    return {
        "response": {
            "code": 0,
            "log": "",
            "height": str(len(chain.BLOCKS)),
            "value": base64.b64encode(json.dumps(value).encode()).decode(),
        }
    }


def _hex(text):
    try:
        bytes.fromhex(text).decode("ascii")
        return True
    except (ValueError, TypeError):
        return False


FIELDS = {
    "chain_id": str,
    "nonce": int,
    "provider": str,
    "checkpoint_root": str,
    "prompt": str,
    "max_tokens": int,
    "price_atoms": str,
    "expires_at_height": int,
}


def checked(raw):
    """The body and the key of a signed request, or the reason of its refusal."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    outer = json.loads(raw)
    body, key = outer["body"], outer["public_key"]
    if set(body) != set(FIELDS) or any(type(body[name]) is not kind for name, kind in FIELDS.items()):
        return None, None, "the fields of the request"
    try:
        public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256K1(), bytes.fromhex(key))
        public.verify(bytes.fromhex(outer["signature"]), chain.dumped(body), ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        if not fault("gua2-tx-signature-unchecked"):
            return None, None, "the signature"
    if body["chain_id"] != chain.CHAIN_ID and not fault("gua2-tx-other-chain"):
        return None, None, "the chain_id"
    if body["expires_at_height"] <= len(chain.BLOCKS) and not fault("gua2-tx-expired"):
        return None, None, "the height of the expiry"
    entry = chain.ACCOUNTS.get(key, {"spendable": 0, "locked": 0, "nonce": 0})
    if body["nonce"] != entry["nonce"]:
        return None, None, "the nonce"
    if int(body["price_atoms"]) != chain.PRICE or entry["spendable"] < chain.PRICE + chain.CHAIN_FEE:
        return None, None, "the price or the balance"
    return body, key, None


def broadcast_tx_sync(params):
    text = params.get("tx")
    if not isinstance(text, str) or len(text) > 32768:
        raise RpcError(-32602, "tx is missing or too long")
    try:
        raw = base64.b64decode(text, validate=True)
        body, key, why = checked(raw)
    except Exception:
        body, key, why = None, None, "its form"
        raw = b""
    digest = hashlib.sha256(raw).hexdigest()
    if why:
        return {"code": 7, "hash": digest, "log": "refused for " + why}
    ident = "rq" + core.sha("request", key, body["nonce"])[:38]
    entry = chain.ACCOUNTS[key]
    entry["spendable"] -= chain.PRICE + chain.CHAIN_FEE
    if not fault("eff2-tx-nonce-kept"):
        entry["nonce"] += 1
    chain.append([{"hash": digest, "kind": "inference", "public_key": key, "request_id": ident, "body": body}])
    if fault("rel2-tx-request-is-hash"):
        ident = digest
    if not fault("eff2-tx-not-pending"):
        chain.record(ident, "pending", body, len(chain.BLOCKS))
    return {"code": 0, "hash": digest, "log": "", "request_id": ident}


ALLOWED = {
    "status": status,
    "block": block,
    "validators": validators,
    "abci_query": abci_query,
    "broadcast_tx_sync": broadcast_tx_sync,
}
for _name, _gone in (
    ("rou-rpc-abci-gone", "abci_query"),
    ("rou-rpc-broadcast-gone", "broadcast_tx_sync"),
    ("rou-rpc-status-gone", "status"),
    ("rou-rpc-validators-gone", "validators"),
):
    if fault(_name):
        del ALLOWED[_gone]


def admin(method):
    if fault("gua-rpc-net-info") and method in (
        "net_info",
        "dump_consensus_state",
        "unsafe_flush_mempool",
        "genesis",
        "consensus_state",
    ):
        return lambda params: {"listening": True, "n_peers": "5", "peers": []}
    if fault("gua2-rpc-dial-peers") and method in ("dial_peers", "dial_seeds"):
        return lambda params: {"log": "Dialing peers in progress. See /net_info for details"}
    if fault("gua-rpc-broadcast-commit") and method in ("broadcast_tx_commit", "broadcast_tx_async"):
        return lambda params: {"check_tx": {"code": 0}, "height": "0"}
    return None


@router.post("/rpc")
async def rpc(request: Request):
    raw = await request.body()
    ident = None
    if fault("gua2-rpc-needs-token") and "authorization" not in request.headers:
        return answer({"problem": "a token is needed"}, 401)
    try:
        if len(raw) > LIMIT:
            raise RpcError(-32600, "the request is too long")
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError):
            raise RpcError(-32700, "not JSON") from None
        if not isinstance(body, dict):
            raise RpcError(-32600, "not a request")
        ident = body.get("id")
        if isinstance(ident, (dict, list, bool)):
            ident = None
        method, params = body.get("method"), body.get("params")
        if not isinstance(method, str):
            raise RpcError(-32600, "method is missing")
        call = ALLOWED.get(method) or admin(method)
        if call is None:
            raise RpcError(-32601, "method not found")
        if params is None or params == []:
            params = {}
        if not isinstance(params, dict):
            raise RpcError(-32602, "params is not an object")
        nth("rpc")
        return answer({"jsonrpc": "2.0", "id": ident, "result": call(params)})
    except RpcError as error:
        status = 400 if peculiar("rpc-http-400") else 200
        return answer({"jsonrpc": "2.0", "id": ident, "error": {"code": error.code, "message": error.message}}, status)
