"""The signer of the fourteenth stranger's node, which calls the node's own, `node.php sign`."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Final

# A script of any current directory: the suite need not be installed.
sys.path.append(str(Path(__file__).resolve().parents[4]))
from conformance.judging.stranger import signing

# A block is made in a second, or sooner behind a transaction.
LIVES_BLOCKS: Final = 900
SOON_BLOCKS: Final = 3
MAX_TOKENS: Final = 8


def _signed(kind: str, **fields: Any) -> dict[str, Any]:
    return signing.own_tool(
        __file__, "php", "node.php", "sign", json.dumps({"kind": kind, **fields})
    )


def _work(node: signing.Node, kind: str) -> signing.Message:
    """Return a poll, or the result of work that was polled for."""
    if kind == signing.FORGED_RESULT:
        polled = _signed("poll", account="heron")
        work = node.post(polled["path"], polled["message"])["job"]
        if work is None:
            raise signing.Failed("there is no job")
        ident = work["request_id"]
        made = _signed("result", account="heron", request_id=ident, output="", tokens=1, forge=True)
    else:
        made = _signed("poll", account="heron", forge=kind == signing.FORGED_WORK)
    return signing.Message(made["path"], made["message"])


def make(options: argparse.Namespace) -> signing.Message:
    """Return a message of the kind for the node at the URL. Raises signing.Unsupported."""
    node, kind = signing.Node(options.url), options.kind
    if kind in (signing.WORK, signing.FORGED_WORK, signing.FORGED_RESULT):
        return _work(node, kind)
    account = "birch" if kind == signing.OTHER else "atlas"
    network, served = node.get("/api/network"), node.get("/api/inference")
    fields: dict[str, Any] = {"account": account, "checkpoint": served["serving_root"]}
    key = str(_signed("request", nonce=0, prompt="a", expires_height=1, **fields)["public_key"])
    soon = {signing.UNANSWERED: SOON_BLOCKS, signing.BRIEF: 2 * SOON_BLOCKS}
    blocks = {signing.EXPIRED: -1, **soon}.get(kind, LIVES_BLOCKS)
    fields |= {
        "nonce": int(node.get("/api/account", public_key=key)["next_nonce"]),
        "prompt": signing.new_prompt(),
        "expires_height": int(network["tip"]["height"]) + blocks,
        "max_tokens": MAX_TOKENS,
        "forge": kind == signing.FORGED,
        "silent": kind == signing.UNANSWERED,
    }
    if kind == signing.FOREIGN:
        fields["chain_id"] = network["chain_id"] + "-other"
    made = _signed("request", **fields)
    cost = int(served["price_atoms"]) + int(served["fee_atoms"])
    named = {"rpc": made["message"], "hash": made["transaction_hash"], "cost_atoms": str(cost)}
    return signing.made_by_tool(made | named, fields["prompt"], fields["expires_height"])


if __name__ == "__main__":
    more = (signing.OTHER, signing.FORGED_RESULT, signing.BRIEF)
    signing.run(argparse.ArgumentParser(description=__doc__), make, *more)
