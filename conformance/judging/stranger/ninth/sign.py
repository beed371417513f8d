"""The signer of the ninth stranger's node, which calls the node's own, `node sign`."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Final

# A script of any current directory: the suite need not be installed.
sys.path.append(str(Path(__file__).resolve().parents[4]))
from conformance.judging.stranger import signing

# So many blocks are made in two or three seconds.
SOON_BLOCKS: Final = 3


def _signed(what: str, fields: dict[str, Any]) -> dict[str, Any]:
    return signing.own_tool(__file__, "./node", "sign", what, json.dumps(fields))


def make(options: argparse.Namespace) -> signing.Message:
    """Return a message of the kind for the node at the URL. Raises signing.Unsupported."""
    node, kind = signing.Node(options.url), options.kind
    if kind in (signing.WORK, signing.FORGED_WORK):
        fields = {"type": "work_poll", "forge": kind == signing.FORGED_WORK}
        return signing.Message("/work/poll", _signed("work", fields))
    network = node.get("/api/network")
    blocks = {signing.EXPIRED: -1, signing.UNANSWERED: SOON_BLOCKS}.get(kind, signing.LIFETIME)
    own = {"key": "user-1"} if kind == signing.OTHER else {}
    key = str(_signed("request", dict(own))["public_key"])
    prompt = signing.new_prompt()
    fields = {
        **own,
        "nonce": int(node.get("/api/account", public_key=key)["next_nonce"]),
        "prompt": prompt,
        "expires_height": int(network["height"]) + blocks,
        "forge": kind == signing.FORGED,
    }
    if kind == signing.UNANSWERED:
        fields["provider"] = signing.SILENT
    if kind == signing.FOREIGN:
        fields["chain_id"] = network["chain_id"] + "-other"
    message = _signed("request", fields)
    envelope = {
        "jsonrpc": "2.0", "id": 1, "method": "broadcast_tx_sync", "params": {"tx": message["tx"]},
    }  # fmt: skip
    return signing.Request(
        "/rpc",
        envelope,
        request_id=message["request_id"],
        hash=message["tx_hash"],
        public_key=message["public_key"],
        prompt=prompt,
        cost=message["cost"],
        expires=int(message["expires_height"]),
    )


if __name__ == "__main__":
    signing.run(argparse.ArgumentParser(description=__doc__), make, signing.OTHER)
