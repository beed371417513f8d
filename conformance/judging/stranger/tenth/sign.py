"""The signer of the tenth stranger's node, which calls the node's own, `sign.ts`."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Final

# A script of any current directory: the suite need not be installed.
sys.path.append(str(Path(__file__).resolve().parents[4]))
from conformance.judging.stranger import signing

# So many blocks are made in four or five seconds.
SOON_BLOCKS: Final = 3


def _signed(what: str, fields: dict[str, Any]) -> dict[str, Any]:
    return signing.own_tool(
        __file__, "./node_modules/.bin/bun", "sign.ts", what, json.dumps(fields)
    )


def make(options: argparse.Namespace) -> signing.Message:
    """Return a message of the kind for the node at the URL. Raises signing.Unsupported."""
    node, kind = signing.Node(options.url), options.kind
    if kind in (signing.WORK, signing.FORGED_WORK):
        fields: dict[str, Any] = {"type": "work_poll"}
        if kind == signing.FORGED_WORK:
            fields["forge"] = True
        return signing.Message("/work/poll", _signed("work", fields))
    network = node.get("/api/network")
    account = "second" if kind == signing.OTHER else "user"
    key = signing_key(account)
    blocks = {signing.EXPIRED: -1, signing.UNANSWERED: SOON_BLOCKS}.get(kind, signing.LIFETIME)
    fields = {
        "account": account,
        "nonce": int(node.get("/api/account", public_key=key)["next_nonce"]),
        "prompt": signing.new_prompt(),
        "expires_height": int(network["height"]) + blocks,
    }
    if kind == signing.FORGED:
        fields["forge"] = True
    if kind == signing.UNANSWERED:
        fields["provider"] = signing.SILENT
    if kind == signing.FOREIGN:
        fields["chain_id"] = network["chain_id"] + "-other"
    message = _signed("request", fields)
    return signing.made_by_tool(message, fields["prompt"], fields["expires_height"])


def signing_key(account: str) -> str:
    """Return the public key of an account that signs."""
    plain = {"account": account, "prompt": "Hello", "nonce": 0, "expires_height": 1}
    made = _signed("request", plain)
    return str(made["public_key"])


if __name__ == "__main__":
    signing.run(argparse.ArgumentParser(description=__doc__), make, signing.OTHER)
