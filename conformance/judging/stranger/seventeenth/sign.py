"""The signer of the seventeenth stranger's node, which calls the node's own, `./run sign`."""

import argparse
import json
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any, Final

# A script of any current directory: the suite need not be installed.
sys.path.append(str(Path(__file__).resolve().parents[4]))
from conformance.judging.stranger import signing

# A block is made in two seconds, or at once behind a transaction.
SOON_BLOCKS: Final = 6
LIVES_BLOCKS: Final = 900


def _signed(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
    return signing.own_tool(__file__, "./run", "sign", json.dumps({"kind": kind, **fields}))


def make(options: argparse.Namespace) -> signing.Message:
    """Return a message of the kind for the node at the URL. Raises signing.Failed."""
    node, kind = signing.Node(options.url), options.kind
    if kind in (signing.WORK, signing.FORGED_WORK):
        poll = _signed("poll", {"forge": kind == signing.FORGED_WORK})
        return signing.Message(poll["path"], poll["body"])
    if kind == signing.FORGED_RESULT:
        poll = _signed("poll", {})
        answer = node.post(poll["path"], poll["body"])
        if answer["job"] is None:
            raise signing.Failed("there is no work")
        result = _signed("result", {"job": answer, "forge": True})
        return signing.Message(result["path"], result["body"])
    network, served = node.get("/api/network"), node.get("/api/inference")
    fields: dict[str, Any] = {
        "account": "beta" if kind == signing.OTHER else "alpha",
        "checkpoint": served["serving_root"],
        "max_tokens": signing.tokens_of(kind),
    }
    key = str(_signed("request", fields)["public_key"])
    soon = dict.fromkeys((signing.UNANSWERED, signing.BRIEF), SOON_BLOCKS)
    blocks = {signing.EXPIRED: -1, **soon}.get(kind, LIVES_BLOCKS)
    fields |= {
        "nonce": int(node.get("/api/account", public_key=key)["next_nonce"]),
        "prompt": signing.new_prompt(),
        "expires_height": int(network["height"]) + blocks,
        "forge": kind == signing.FORGED,
        "silent": kind == signing.UNANSWERED,
    }
    if kind == signing.FOREIGN:
        fields["chain_id"] = network["chain_id"] + "-other"
    made = _signed("request", fields)
    call = signing.broadcast(b64decode(made["tx"]))
    named = made | {"rpc": call, "cost_atoms": str(made["cost"])}
    return signing.made_by_tool(named, fields["prompt"], fields["expires_height"])


if __name__ == "__main__":
    more = (signing.OTHER, signing.FORGED_RESULT, signing.BRIEF)
    signing.run(argparse.ArgumentParser(description=__doc__), make, *more)
