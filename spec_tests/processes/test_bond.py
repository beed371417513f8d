"""A bond is made, ended and withdrawn by the commands of docs/chain.md (decisions 0060, 0103)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spec_tests.processes.chain_files import client, require_conserved
from spec_tests.processes.nodes import Node, running_node, wait_until

pytestmark = pytest.mark.process

PROFILE = """
name = "private"
[params]
activation_blocks = 2
epoch_blocks = 4
evidence_blocks = 12
evidence_seconds = 1
"""
EVIDENCE_BLOCKS = 12
WITHIN_S = 300.0
"""Generous: some blocks must be made, each with a payment or a command."""
FEE = 1000
STRANGER = "02fc9b11d0ce24506121dcbad78d9a809fd52770ae77230e46b00b6249eb624161"


@pytest.mark.slow
def test_bond_unbond_and_withdraw(tmp_path: Path) -> None:
    profile, home = tmp_path / "profile.toml", tmp_path / "home"
    profile.write_text(PROFILE)
    maker_dir, follower_dir = tmp_path / "maker", tmp_path / "follower"
    with running_node(maker_dir, MESHNODE_NETWORK_PROFILE=str(profile)) as maker:
        tracker = f"http://127.0.0.1:{maker.port}"
        with running_node(follower_dir, "--tracker", tracker) as follower:
            wait_until(lambda: follower.ask("GET", "/healthz").status == 200, WITHIN_S)
            assert client(home, maker, "key", "new").returncode == 0
            owner = json.loads(client(home, maker, "key", "show", "--json").stdout)["public_key"]
            pay(maker, owner, 10)
            wait_until(lambda: balance(maker, owner) == 10_000_000, WITHIN_S)
            key_file = follower_dir / "validator.json"
            key = json.loads(key_file.read_bytes())["public_key"]

            bonded = client(home, maker, "bond", "1", "--consensus-key", str(key_file))
            assert bonded.returncode == 0, bonded
            assert balance(maker, owner) == 9_000_000 - FEE
            wait_until(lambda: pay(maker, STRANGER) and key in bonds(maker), WITHIN_S)
            assert bonds(maker)[key]["bond"] == "1000000"
            assert bonds(maker)[key]["power"] == 4

            early = client(home, maker, "withdraw", key)
            assert (early.returncode, "still exposed" in early.stderr) == (1, True), early
            assert client(home, maker, "unbond", key).returncode == 0
            # The key signs no more blocks after the next epoch. The bond can be withdrawn once the
            # window for evidence is over.
            wait_until(lambda: pay(maker, STRANGER) and key not in bonds(maker), WITHIN_S)
            released = health(maker)["height"] + EVIDENCE_BLOCKS
            wait_until(
                lambda: pay(maker, STRANGER) and health(maker)["height"] > released, WITHIN_S
            )
            before = balance(maker, owner)
            wait_until(lambda: client(home, maker, "withdraw", key).returncode == 0, WITHIN_S)
            assert balance(maker, owner) == before + 1_000_000 - FEE
            again = client(home, maker, "withdraw", key)
            assert again.returncode == 1, again
            # The follower has checked all of these blocks.
            height = health(maker)["height"]
            wait_until(lambda: health(follower)["height"] >= height, WITHIN_S)
            assert balance(follower, owner) == balance(maker, owner)
    for folder in (maker_dir, follower_dir):
        require_conserved(folder)


def pay(node: Node, to: str, units: int = 1) -> bool:
    """Make a payment, which also causes a block."""
    answer = node.ask("POST", "/api/v1/wallet/send", {"to": to, "amount": units})
    # On a very busy machine a signed payment may get into a block later: 503.
    assert answer.status in (200, 503), answer.body
    return True


def health(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = node.ask("GET", "/healthz", token=None).json
    return found


def balance(node: Node, account: str) -> int:
    answer = node.ask("GET", f"/api/account?public_key={account}", token=None)
    return int(answer.json["balance"])


def bonds(node: Node) -> dict[str, Any]:
    listed = node.ask("GET", "/api/validators", token=None).json["validators"]
    return {one["public_key"]: one for one in listed}
