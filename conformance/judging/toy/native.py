"""The native API of the toy: a chain that stands still, whose blocks name many requests."""

import hashlib
import json
import re
from typing import Any

from conformance.judging.toy.answers import Asked, Response

# The native API's fields are not specified; these are the reference node's.
PLAIN = {"/network/dataset.json", "/work/status", "/healthz"}
ARTIFACT = b"an artifact of the toy"
# As the toy sends it.
DATASET = {"toy": True}
GENESIS = {"dataset_sha256": hashlib.sha256(json.dumps(DATASET).encode()).hexdigest()}
DIGEST = hashlib.sha256(ARTIFACT).hexdigest()
PUBLIC_KEY = "02" + "ab" * 32
VIEW = "/reference/v03/api/network"
_KEY = re.compile(r"(0[23])?[0-9a-f]{64}\Z", re.ASCII | re.IGNORECASE)
# More jobs than the 128 that can be looked up at any node.
CHAIN = "toy-1"
TIP, JOBS = 7, 20


def job_of(height: int, at: int) -> str:
    """Return the ID of one of the requests of a block."""
    return f"{height:032x}{at:032x}"


def results_of(height: int) -> list[dict[str, Any]]:
    """Return what became of the first request of a block."""
    return [{"request_id": job_of(height, 0), "code": 0}]


def loss_of(update: int) -> str:
    """Return the loss of an accepted update, with all its decimals."""
    return f"{2 + 1 / (update + 2):.9f}"


def prompt_of(ident: str) -> str:
    """Return the prompt of a request."""
    return f"Say {ident}."


def record_of(ident: str) -> dict[str, Any]:
    """Return the record of a request, of which one of each block still waits."""
    record = {"id": ident, "prompt": prompt_of(ident), "price_atoms": "3"}
    if ident.endswith(job_of(0, 1)[32:]):
        return {**record, "status": "pending"}
    return {**record, "status": "completed", "response": "It is said."}


NATIVE: dict[str, Any] = {
    "rpc": "jsonrpc", "public_key": PUBLIC_KEY, "request_id": job_of(TIP, 0), "artifact": DIGEST,
    "reference": (VIEW,),
    "field_map": {
        "/api/network readiness": ("ready",), "/api/training progress": ("index_round",),
        "/api/validators power": ("validators[].power",),
        "/api/network height": ("height",), "/api/network hash": ("latest_block_hash",),
        "/api/network money": ("initial_supply",), "/api/blocks height": ("blocks[].height",),
        "/api/block height": ("height",), "/api/block hash": ("hash",),
        "/api/training round": ("records[].round",),
        "/api/account money": ("balance", "locked", "total"),
        "/api/model/checkpoint.json root": ("root",), "/api/network round": ("round",),
        "/api/model roots": ("training_root", "serving_root"),
        "/api/inference root": ("serving_root",), "/api/account nonce": ("next_nonce",),
        "/api/validators money": ("validators[].bond",), "/api/inference money": ("fee_atoms",),
        "/api/model losses": ("loss",), "/api/training loss": ("records[].loss",),
    },
}  # fmt: skip


def native(asked: Asked, query: dict[str, str]) -> Response | None:
    """Answer a request for the native API; None if it is not for it."""
    if asked.path in PLAIN:
        return Response(json=dict(DATASET))
    if asked.path == "/network/genesis.json":
        return Response(json=dict(GENESIS))
    if not all(query.get(name, "0").isdecimal() for name in ("limit", "before")):
        return Response(400, {"error": "no number"})
    if asked.path == "/api/account" and not _KEY.match(query.get("public_key", "")):
        return Response(400, {"error": "no key"})
    before = min(int(query.get("before", TIP + 1)), TIP + 1)
    limit = int(query.get("limit", 5))
    numbers = list(range(before - 1, 0, -1)[:limit])
    owned, locked, total = "415" if query.get("public_key", "").lower() == PUBLIC_KEY else "000"
    found: dict[str, Any] = {
        "/api/network": {"chain_id": CHAIN, "height": TIP, "latest_block_hash": f"hash{TIP}",
                         "tip": {"height": TIP, "hash": f"hash{TIP}"}, "initial_supply": "1000",
                         "round": TIP, "ready": True},
        "/api/blocks": {"blocks": [
            {"height": n, "hash": f"hash{n}", "results": results_of(n)} for n in numbers]},
        "/api/training": {"records": [{"round": n, "loss": loss_of(n)} for n in numbers],
                          "index_round": TIP},
        "/api/model": {"training_root": f"root{TIP}", "serving_root": f"root{TIP}",
                       "loss": loss_of(TIP)},
        "/api/model/checkpoint.json": {"round": TIP, "root": f"root{TIP}",
                                       "adapter": f"/artifacts/sha256/{DIGEST}"},
        "/api/account": {"balance": owned, "locked": locked, "total": total, "next_nonce": 0},
        "/api/validators": {"validators": [{"bond": "5", "power": 3}]},
        "/api/inference": {"chain_id": CHAIN, "fee_atoms": "1", "serving_root": f"root{TIP}"},
        "/api/inference/request": record_of(query.get("id", "")),
        VIEW: {"chain_id": "older"},
    }  # fmt: skip
    if asked.path in found:
        fits = asked.method == "GET"
        return Response(json=found[asked.path]) if fits else Response(403, {"error": "no"})
    if asked.path == f"/artifacts/sha256/{DIGEST}":
        return Response(raw=ARTIFACT, headers={"Content-Type": "application/octet-stream"})
    if asked.path.startswith("/api/block/"):
        height = asked.path.rpartition("/")[2]
        named = int(height) if height.isdecimal() else 0
        if named > TIP:
            return Response(404, {"error": "no such block"})
        idents = [job_of(named, at) for at in range(JOBS)]
        jobs = [{"request_id": ident, "prompt": prompt_of(ident)} for ident in idents]
        whole = {
            "height": height,
            "hash": f"hash{height}",
            "jobs": jobs,
            "results": results_of(named),
        }
        return Response(json={**whole, "previous_hash": f"hash{named - 1}"})
    if asked.path in ("/work/poll", "/work/result"):
        return Response(400, {"error": "not signed"})
    if asked.path == "/rpc" and not isinstance(asked.body, dict):
        return Response(400, {"error": "not a call"})
    if asked.path == "/rpc":
        method = asked.body.get("method")
        if method in ("status", "block", "validators"):
            wanted = (asked.body.get("params") or {}).get("height", TIP)
            if not str(wanted).isdecimal() or int(wanted) > TIP:
                return Response(400, {"error": "no such height"})
            result = {"toy": method, "height": str(wanted), "hash": f"hash{wanted}"}
            result |= {"node_info": {"network": CHAIN}} if method == "status" else {}
            result |= {"validators": [{"voting_power": "3"}]} if method == "validators" else {}
            return Response(json={"jsonrpc": "2.0", "id": asked.body.get("id"), "result": result})
        known = method in ("abci_query", "broadcast_tx_sync")
        path = (asked.body.get("params") or {}).get("path")
        if method == "abci_query" and path:
            served = path in ("/job", "/jobs")
            return Response(json={"result": {}}) if served else Response(400, {"error": "no path"})
        why = "a parameter is missing" if known else "RPC method is not public"
        return Response(400, {"error": why})
    return None
