"""The signer of the first stranger's node, which says in `node/native.js` how it is signed."""

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any, Final

# A script of any current directory: the suite need not be installed.
sys.path.append(str(Path(__file__).resolve().parents[3]))
from conformance.judging.stranger import signing

ADA: Final = signing.Key(int.from_bytes(hashlib.sha256(b"key:ada").digest()))
MAX_TOKENS: Final = 16


def make(options: argparse.Namespace) -> signing.Message:
    """Return a message of the kind for the node at the URL. Raises signing.Unsupported."""
    node, kind = signing.Node(options.url), options.kind
    if kind == signing.UNANSWERED:
        raise signing.Unsupported(
            "each request is answered 1.5 s later, and blocks come with transactions"
        )
    if kind in (signing.WORK, signing.FORGED_WORK):
        return signing.Message(
            "/work/poll", _signed({"ask": signing.new_prompt()}, forged=kind == signing.FORGED_WORK)
        )
    network, offer = node.get("/api/network"), node.get("/api/inference")
    nonce = int(node.get("/api/account", public_key=ADA.public)["next_nonce"])
    height, price = int(network["height"]), int(offer["price_per_token_atoms"])
    payload = {
        "chain_id": network["chain_id"] + ("-other" if kind == signing.FOREIGN else ""),
        "nonce": nonce,
        "type": "inference",
        "provider": offer["provider"]["public_key"],
        "checkpoint": offer["serving_root"],
        "prompt": signing.new_prompt(),
        "max_tokens": MAX_TOKENS,
        "price_atoms": str(price),
        "expires_height": height if kind == signing.EXPIRED else height + signing.LIFETIME,
    }
    raw = _dumped(_signed(payload, forged=kind == signing.FORGED))
    named = f"request:{network['chain_id']}:{ADA.public}:{nonce}".encode()
    return signing.Request(
        "/rpc",
        signing.broadcast(raw),
        request_id=hashlib.sha256(named).hexdigest()[:40],
        hash=hashlib.sha256(raw).hexdigest().upper(),
        public_key=ADA.public,
        prompt=payload["prompt"],
        cost=str(price * MAX_TOKENS + int(offer["fee_atoms"])),
        expires=int(payload["expires_height"]),
    )


def _signed(payload: dict[str, Any], *, forged: bool) -> dict[str, Any]:
    r, s = ADA.sign(_dumped(payload), forged=forged)
    return {"payload": payload, "public_key": ADA.public, "signature": f"{r:064x}{s:064x}"}


def _dumped(value: dict[str, Any]) -> bytes:
    """The text that JSON.stringify writes: the order of members is that of the message."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


if __name__ == "__main__":
    signing.run(argparse.ArgumentParser(description=__doc__), make)
