"""CometBFT's own clients against our ``/rpc``, whoever makes the blocks: ``nox -s clients``.

``Comet38Client`` of ``@cosmjs/tendermint-rpc`` is brought by the session.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from spec_tests.domain.chain.net import Actor
from spec_tests.processes.chain_files import healthz
from spec_tests.processes.comet.cluster import missing
from spec_tests.processes.nodes import Node, running_node, wait_until

NPM_FOLDER = "MESHNODE_TEST_NPM"
"""The variable with the folder in which npm has installed the client's package."""
PACKAGES = Path(os.environ.get(NPM_FOLDER, "")) / "node_modules"
NO_CLIENT = f"there is no node, or {NPM_FOLDER} names no folder with @cosmjs/tendermint-rpc"
HAS_CLIENT = shutil.which("node") and (PACKAGES / "@cosmjs" / "tendermint-rpc").is_dir()

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(not HAS_CLIENT, reason=NO_CLIENT),
]

SCRIPT = Path(__file__).with_name("comet_client.cjs")
STRANGER = "02fc9b11d0ce24506121dcbad78d9a809fd52770ae77230e46b00b6249eb624161"


def owner(node: Node) -> Actor:
    """The key of the node's own account."""
    return Actor(json.loads((node.data_dir / "key.json").read_text())["seed"])


def transfers(node: Node, chain: str, nonces: list[int]) -> list[str]:
    """Signed transfers of 1 atom, in base64."""
    who = owner(node)
    bodies = [{"kind": "transfer", "chain_id": chain, "nonce": nonce} for nonce in nonces]
    signed = [who.sign({**body, "to": STRANGER, "amount": 1}) for body in bodies]  # type: ignore[dict-item]
    return [base64.b64encode(raw).decode() for raw in signed]


def understood(node: Node, *transactions: str) -> Any:
    """What the client understood, as JSON."""
    found = subprocess.run(
        ["node", str(SCRIPT), f"http://127.0.0.1:{node.port}/rpc", *transactions],
        env={**os.environ, "NODE_PATH": str(PACKAGES)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


def nonce_of(node: Node, payer: Node) -> int:
    """The next nonce of a node's account, as another node knows it."""
    found = node.ask("GET", f"/api/account?public_key={owner(payer).key}")
    return int(found.json["nonce"]) if found.status == 200 else -1


def wait_ready(node: Node) -> dict[str, Any]:
    def ready() -> dict[str, Any] | None:
        status, network = healthz(node)
        return network if status == 200 and network["latest_block_height"] > 1 else None

    found = wait_until(ready)
    assert isinstance(found, dict)
    return found


def require_understood(node: Node, *, maker: Node | None = None) -> Any:
    """The client connects, reads and broadcasts; the bytes that wait are known."""
    network = wait_ready(node)
    chain = str(network["chain_id"])
    payer = maker or node
    nonce = 0 if maker is None else wait_until(lambda: nonce_of(node, payer) == 2) and 2
    found = understood(node, *transfers(payer, chain, [nonce, nonce + 1]))
    assert found["is38"] is True
    assert found["network"] == found["chain"] == chain
    assert found["moniker"] == f"meshnode-{network['node_id'][:8]}"
    assert found["listen"] == f"tcp://127.0.0.1:{node.port}"
    assert found["version"] == "0.38.25"
    assert (found["power"] == "0") == (maker is not None)
    assert found["earliest"] == 1
    assert found["later"] > found["height"] > 1
    assert found["blockHash"] == found["committed"]
    shown = node.ask("GET", f"/api/block/{found['height']}").json
    assert (shown["hash"], shown["app_hash"].upper()) == (found["blockHash"], found["appHash"])
    assert found["signatures"] == found["total"] == len(found["validators"]) == 1
    assert found["summary"]["chain_id"] == chain
    # The gateway answers a refusal with 400, as the public network's does (native network 3).
    assert "400" in found["genesis"]["refused"]
    assert "400" in found["tooHigh"]["refused"]
    first, second, again = found["broadcasts"]
    assert first["code"] == 0
    assert first["height"] > 0
    raws = map(base64.b64decode, transfers(payer, chain, [nonce, nonce + 1]))
    hashes = [hashlib.sha256(raw).hexdigest().upper() for raw in raws]
    assert [first["hash"], second["hash"]] == hashes
    assert second["code"] == 0
    # Refused while it waits. A block in between makes it an old one.
    assert "400" in again.get("refused", "") or again["code"] == 1
    return found


def test_comet38client_understands_a_node_that_makes_all_blocks_and_its_follower(
    tmp_path: Path,
) -> None:
    with running_node(tmp_path / "solo") as solo:
        require_understood(solo)
        tracker = f"http://127.0.0.1:{solo.port}"
        with running_node(tmp_path / "follower", "--tracker", tracker) as follower:
            require_understood(follower, maker=solo)


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_comet38client_understands_a_node_under_cometbft(tmp_path: Path) -> None:
    with running_node(tmp_path / "comet", MESHNODE_CHAIN_ENGINE="cometbft") as node:
        require_understood(node)
        node.signal(signal.SIGTERM)
        assert node.wait()[0] == 0
