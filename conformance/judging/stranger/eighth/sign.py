"""The signer of the eighth stranger's node, which calls the node's own, `node/sign.js`."""

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any, Final

# A script of any current directory: the suite need not be installed.
sys.path.append(str(Path(__file__).resolve().parents[4]))
from conformance.judging.stranger import signing

KEY: Final = "ed8a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c"
# So many blocks are made while a request of the provider that never answers waits.
SOON_BLOCKS: Final = 4


def _signed(what: str, fields: dict[str, Any]) -> dict[str, Any]:
    return signing.own_tool(__file__, "node", "sign.js", what, json.dumps(fields))


def make(options: argparse.Namespace) -> signing.Message:
    """Return a message of the kind for the node at the URL. Raises signing.Unsupported."""
    node, kind = signing.Node(options.url), options.kind
    if kind in (signing.WORK, signing.FORGED_WORK):
        work = _signed("work", {"worker": signing.new_prompt()})
        if kind == signing.FORGED_WORK:
            work["worker"] = signing.new_prompt()
        return signing.Message("/work/poll", work)
    network, offer = node.get("/api/network"), node.get("/api/inference")
    height = int(network["height"])
    blocks = {signing.EXPIRED: 0, signing.UNANSWERED: SOON_BLOCKS}.get(kind, signing.LIFETIME)
    fields: dict[str, Any] = {
        "nonce": int(node.get("/api/account", public_key=KEY)["next_nonce"]),
        "prompt": signing.new_prompt(),
        "expires_at_height": height + blocks,
    }
    if kind == signing.UNANSWERED:
        fields["provider"] = "silent"
    if kind == signing.FOREIGN:
        fields["chain_id"] = network["chain_id"] + "-other"
    message = _signed("request", fields)
    if kind == signing.FORGED:
        message["signature"] = _signed("request", fields | {"max_tokens": 15})["signature"]
    raw = json.dumps(message, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()
    digest = hashlib.sha256(raw).hexdigest()
    named = hashlib.sha256(f"request of {digest}".encode()).hexdigest()
    return signing.Request(
        "/rpc",
        signing.broadcast(raw),
        request_id=f"req_{named[:32]}",
        hash=digest,
        public_key=KEY,
        prompt=message["prompt"],
        cost=str(int(offer["price_atoms"]) + int(offer["fee_atoms"])),
        expires=int(message["expires_at_height"]),
    )


if __name__ == "__main__":
    signing.run(argparse.ArgumentParser(description=__doc__), make)
