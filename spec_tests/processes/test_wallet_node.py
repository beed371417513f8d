"""The wallet as a user sees it: by a node, the command line and HTTP (interface 2.1 and 4.1)."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from meshnode.services.keystore import Keystore
from spec_tests.processes.nodes import issue_token, run, running_node, wait_served, wait_until

pytestmark = pytest.mark.process

PASSPHRASE = "correct horse battery staple"
STRANGER = "02fc9b11d0ce24506121dcbad78d9a809fd52770ae77230e46b00b6249eb624161"
QUICK: dict[str, Any] = {"MESHNODE_KEY_PASSPHRASE": PASSPHRASE, "MESHNODE_SETTLE_EVERY_S": "0.2"}


def test_a_token_is_funded_spends_and_survives_kill_9(tmp_path: Path) -> None:
    data = tmp_path / "data"
    said = ""
    with running_node(data, **QUICK) as node:
        alice = issue_token(data, "alice", "10", **QUICK)

        def balance() -> dict[str, Any]:
            found: dict[str, Any] = node.ask("GET", "/api/v1/wallet/balance", token=alice).json[
                "balances"
            ]
            return found

        assert balance()["available"] == 10.0
        body = {"prompt": "Once upon a time", "max_tokens": 20}
        result = node.ask("POST", "/api/v1/inference", body, token=alice).json
        cost = round(result["tokens_generated"] / 1000, 6)
        assert result["cost"] == {"amount": cost, "currency": "MESH"}
        poor = node.ask("POST", "/api/v1/wallet/send", {"to": STRANGER, "amount": 10}, token=alice)
        assert (poor.status, poor.json["error"]["code"]) == (402, "INSUFFICIENT_BALANCE")
        sent = node.ask(
            "POST", "/api/v1/wallet/send", {"to": STRANGER, "amount": 2.5}, token=alice
        ).json
        assert sent["status"] == "confirmed"
        stream = node.open_stream({"prompt": "Once", "max_tokens": 400})
        stream.read(100)
        said += json.dumps([result, poor.json, sent]) + "\n".join(node.banner)
        node.signal(signal.SIGKILL)
        node.wait()
    refused = run("--data-dir", str(data), "--port", "1", MESHNODE_KEY_PASSPHRASE="wrong")
    assert refused.returncode == 2
    assert "MESHNODE_KEY_PASSPHRASE does not open the key file" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    with running_node(data, **QUICK) as node:
        left = round(10 - 2.501 - cost, 6)
        wait_until(
            lambda: balance() == {"available": left, "staked": 0.0, "pending": 0.0, "total": left}
        )
        revoked = run("token", "revoke", "alice", "--data-dir", str(data))
        assert "revoked" in revoked.stdout
        wait_served(data)
        swept = run("token", "sweep", "alice", "--data-dir", str(data), **QUICK)
        assert "sweep done" in swept.stdout, swept
        said += "\n".join(node.banner)
        log = node.log()
    keys = Keystore(data, PASSPHRASE)
    seeds = [keys.signer(one.public_key).seed for one in keys.accounts()] + [keys.node_key.seed]
    written = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    for secret in (*seeds, PASSPHRASE, alice):
        assert secret not in log + said + refused.stderr
        for path, content in written.items():
            assert secret.encode() not in content, path
