"""The signer of the second stranger's node, as `node/OPERATOR.md` says that it is signed."""

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any, Final

# A script of any current directory: the suite need not be installed.
sys.path.append(str(Path(__file__).resolve().parents[4]))
from conformance.judging.stranger import signing

ADA: Final = signing.Key(int.from_bytes(hashlib.sha256(b"key ada").digest()))
MAX_TOKENS: Final = 12


def make(options: argparse.Namespace) -> signing.Message:
    """Return a message of the kind for the node at the URL."""
    node, kind = signing.Node(options.url), options.kind
    if kind in (signing.WORK, signing.FORGED_WORK):
        body = signing.new_prompt()
        signature = signing.der(*ADA.sign(body.encode(), forged=kind == signing.FORGED_WORK))
        return signing.Message("/work/poll", {"key": ADA.public, "body": body, "sig": signature})
    network, offer = node.get("/api/network"), node.get("/api/inference")
    height, price = int(network["tip"]["height"]), int(offer["price_atoms"])
    # A block lets what it is too late for expire before it answers the rest.
    lives = {signing.EXPIRED: 0, signing.UNANSWERED: 1}.get(kind, signing.LIFETIME)
    transaction: dict[str, Any] = {
        "kind": "inference",
        "chain": network["chain"] + ("-other" if kind == signing.FOREIGN else ""),
        "payer": ADA.public,
        "nonce": int(node.get("/api/account", public_key=ADA.public)["next_nonce"]),
        "price_atoms": str(price),
        "prompt": signing.new_prompt(),
        "max_tokens": MAX_TOKENS,
        "expires_at_height": height + lives,
    }
    signature = signing.der(*ADA.sign(_dumped(transaction), forged=kind == signing.FORGED))
    raw = _dumped(transaction | {"signature": signature})
    request_id = "rq" + hashlib.sha256(raw + b"id").hexdigest()[:16]
    named = _dumped(transaction | {"signature": signature, "request_id": request_id})
    return signing.Request(
        "/rpc",
        signing.broadcast(raw),
        request_id=request_id,
        hash=hashlib.sha256(named).hexdigest().upper(),
        public_key=ADA.public,
        prompt=transaction["prompt"],
        # The node shows a fee and takes none.
        cost=str(price),
        expires=height + lives,
    )


def _dumped(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


if __name__ == "__main__":
    signing.run(argparse.ArgumentParser(description=__doc__), make)
