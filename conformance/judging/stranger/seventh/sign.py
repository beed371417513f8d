"""The signer of the seventh stranger's node, which calls the node's own, `node --sign`."""

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any, Final

# A script of any current directory: the suite need not be installed.
sys.path.append(str(Path(__file__).resolve().parents[4]))
from conformance.judging.stranger import signing

KEY: Final = "0280613bf693d72b50ea51e734e7cfffc79f89d6bc1395bc876e58677087aa5f82"
MAX_TOKENS: Final = 12
PRICE_ATOMS, FEE_ATOMS = 1500, 250


def _signed(content: dict[str, Any]) -> dict[str, Any]:
    return signing.own_tool(__file__, "./node", "--sign", json.dumps(content))


def make(options: argparse.Namespace) -> signing.Message:
    """Return a message of the kind for the node at the URL. Raises signing.Unsupported."""
    node, kind = signing.Node(options.url), options.kind
    if kind in (signing.WORK, signing.FORGED_WORK):
        work = _signed({"public_key": KEY, "result": signing.new_prompt()})
        if kind == signing.FORGED_WORK:
            work["result"] = signing.new_prompt()
        return signing.Message("/work/poll", work)
    network, offer = node.get("/api/network"), node.get("/api/inference")
    height, price = int(network["height"]), PRICE_ATOMS * MAX_TOKENS + FEE_ATOMS
    # One that ends with the next block is answered by nobody.
    blocks = {signing.EXPIRED: 0, signing.UNANSWERED: 1}.get(kind, signing.LIFETIME)
    content = {
        "type": "inference_request",
        "public_key": KEY,
        "chain_id": network["chain_id"] + ("-other" if kind == signing.FOREIGN else ""),
        "nonce": int(node.get("/api/account", public_key=KEY)["next_nonce"]),
        "provider": offer["provider"]["public_key"],
        "checkpoint": offer["serving_root"],
        "prompt": signing.new_prompt(),
        "max_tokens": MAX_TOKENS,
        "price_atoms": str(price),
        "expires_at": height + blocks,
    }
    message = _signed(content)
    if kind == signing.FORGED:
        message["signature"] = _signed(content | {"max_tokens": MAX_TOKENS + 1})["signature"]
    raw = json.dumps(message, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()
    return signing.Request(
        "/rpc",
        signing.broadcast(raw),
        request_id="req-" + hashlib.sha256(raw).hexdigest()[:32],
        hash=hashlib.sha256(b"tx" + raw).hexdigest(),
        public_key=KEY,
        prompt=message["prompt"],
        cost=str(price),
        expires=int(message["expires_at"]),
    )


if __name__ == "__main__":
    signing.run(argparse.ArgumentParser(description=__doc__), make)
