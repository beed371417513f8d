"""The signer of the eleventh stranger's node, which calls the node's own, `node sign`."""

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
SILENT: Final = "prov-hush"


def _signed(what: str, fields: dict[str, Any]) -> dict[str, Any]:
    return signing.own_tool(__file__, "./node", "sign", what, json.dumps(fields))


def make(options: argparse.Namespace) -> signing.Message:
    """Return a message of the kind for the node at the URL. Raises signing.Unsupported."""
    node, kind = signing.Node(options.url), options.kind
    if kind in (signing.WORK, signing.FORGED_WORK):
        fields: dict[str, Any] = {"act": "poll", "forge": kind == signing.FORGED_WORK}
        work = _signed("work", fields)
        return signing.Message(work["path"], work["message"])
    if kind == signing.FORGED_RESULT:
        polled = _signed("work", {"act": "poll"})
        work = node.post(polled["path"], polled["message"])["work"]
        fields = {"act": "result", "attempt": work["attempt"], "output": "[1]", "forge": True}
        result = _signed("work", fields)
        return signing.Message(result["path"], result["message"])
    fields = {"account": "second" if kind == signing.OTHER else "buyer"}
    key = str(_signed("request", fields)["public_key"])
    network = node.get("/api/network")
    soon = {signing.UNANSWERED: SOON_BLOCKS, signing.BRIEF: 2 * SOON_BLOCKS}
    blocks = {signing.EXPIRED: -1, **soon}.get(kind, signing.LIFETIME)
    fields |= {
        "nonce": int(node.get("/api/account", public_key=key)["next_nonce"]),
        "prompt": signing.new_prompt(),
        "expires_height": int(network["height"]) + blocks,
        "forge": kind == signing.FORGED,
    }
    if kind == signing.UNANSWERED:
        fields["provider"] = SILENT
    if kind == signing.FOREIGN:
        fields["chain_id"] = network["chain_id"] + "-other"
    message = _signed("request", fields)
    return signing.made_by_tool(message, fields["prompt"], fields["expires_height"])


if __name__ == "__main__":
    more = (signing.OTHER, signing.FORGED_RESULT, signing.BRIEF)
    signing.run(argparse.ArgumentParser(description=__doc__), make, *more)
