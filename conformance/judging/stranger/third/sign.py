"""The signer of the third stranger's node, as `node/OPERATOR.md` says that it is signed."""

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any, Final

# A script of any current directory: the suite need not be installed.
sys.path.append(str(Path(__file__).resolve().parents[4]))
from conformance.judging.stranger import signing

PAYER: Final = signing.Key(0x51DE7E57)
MAX_TOKENS: Final = 24
UNSUPPORTED: Final = {
    signing.UNANSWERED: "each request is answered a second later, whoever is its provider",
    signing.WORK: "the node admits no worker, so a message is refused whatever its signature",
}


def make(options: argparse.Namespace) -> signing.Message:
    """Return a message of the kind for the node at the URL. Raises signing.Unsupported."""
    node, kind = signing.Node(options.url), options.kind
    if kind in UNSUPPORTED:
        raise signing.Unsupported(UNSUPPORTED[kind])
    if kind == signing.FORGED_WORK:
        content: dict[str, Any] = {"result": signing.new_prompt(), "public_key": PAYER.public}
        signature = signing.der(*PAYER.sign(_dumped(content), forged=True))
        return signing.Message("/work/result", content | {"signature": signature})
    network, offer = node.get("/api/network"), node.get("/api/inference")
    nonce = int(node.get("/api/account", public_key=PAYER.public)["next_nonce"])
    height, price = int(network["tip"]["height"]), int(offer["price"]["atoms"])
    body = {
        "chain_id": network["chain_id"] + ("-other" if kind == signing.FOREIGN else ""),
        "nonce": nonce,
        "provider": offer["default_provider"]["owner"],
        "checkpoint_root": offer["serving_root"],
        "prompt": signing.new_prompt(),
        "max_tokens": MAX_TOKENS,
        "price_atoms": str(price),
        "expires_at_height": height if kind == signing.EXPIRED else height + signing.LIFETIME,
    }
    signature = signing.der(*PAYER.sign(_dumped(body), forged=kind == signing.FORGED))
    raw = _dumped({"body": body, "public_key": PAYER.public, "signature": signature})
    named = f"request\0{PAYER.public}\0{nonce}\0".encode()
    return signing.Request(
        "/rpc",
        signing.broadcast(raw),
        request_id="rq" + hashlib.sha256(named).hexdigest()[:38],
        hash=hashlib.sha256(raw).hexdigest(),
        public_key=PAYER.public,
        prompt=body["prompt"],
        cost=str(price + int(offer["fee"]["atoms"])),
        expires=int(body["expires_at_height"]),
    )


def _dumped(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


if __name__ == "__main__":
    signing.run(argparse.ArgumentParser(description=__doc__), make)
