"""Payments as the public network's command line makes them (native network 1 and 3).

It asks ``/rpc`` for the status and, in hexadecimal, for the account; signs; broadcasts; and asks
for the account again until the payment is in a block.
"""

from __future__ import annotations

import base64
import http.client
import json
import time
from typing import Any

from spec_tests.domain.chain.net import Actor


def pay(host: str, port: int, seed: str, to: str, count: int, within_s: float) -> None:
    """Make ``count`` payments of one atom, and print the heights at which they were seen."""
    who, heights = Actor(seed), []

    def ask(method: str, **params: Any) -> dict[str, Any]:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        end = time.monotonic() + within_s
        while True:
            connection = http.client.HTTPConnection(host, port, timeout=within_s)
            connection.request("POST", "/rpc", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            content = response.read()
            connection.close()
            # Not ready. The same question, or the same signed bytes, may be sent again.
            if response.status != 503 or time.monotonic() > end:
                break
            time.sleep(0.5)
        assert response.status == 200, content
        return dict(json.loads(content)["result"])

    def account() -> dict[str, Any]:
        data = json.dumps({"public_key": who.key}).encode().hex()
        found = ask("abci_query", path="/account", data=data)["response"]
        assert found["code"] == 0, found
        return dict(json.loads(base64.b64decode(found["value"])))

    for _ in range(count):
        before, status = account(), ask("status")
        raw = who.sign(
            {
                "kind": "transfer",
                "chain_id": status["node_info"]["network"],
                "nonce": before["nonce"],
                "to": to,
                "amount": 1,
            }
        )
        sent = ask("broadcast_tx_sync", tx=base64.b64encode(raw).decode())
        assert sent["code"] == 0, sent
        end = time.monotonic() + within_s
        while account()["nonce"] == before["nonce"]:
            assert time.monotonic() < end, "the payment is in no block"
            time.sleep(0.2)
        heights.append(int(ask("status")["sync_info"]["latest_block_height"]))
    print(json.dumps(heights))
