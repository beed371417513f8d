"""A holder with a stake gets a proof and a reward for an inference (interface 4.1, 4.3)."""

from pathlib import Path
from typing import Any

import pytest

from meshnode.services.keystore import Keystore
from spec_tests.processes.nodes import Node, running_node, wait_until

pytestmark = pytest.mark.process

PENALTY = 0.1
FEE = 0.001


def proofs(node: Node, query: str = "") -> dict[str, Any]:
    found: dict[str, Any] = node.ask("GET", f"/api/v1/proofs{query}").json
    return found


def test_a_holder_that_has_a_stake_is_paid_for_what_the_driver_asked(tmp_path: Path) -> None:
    with running_node(tmp_path / "driver", "--layers", "0-1") as driver:
        tracker = f"http://127.0.0.1:{driver.port}"
        with running_node(tmp_path / "holder", "--layers", "2-7", "--tracker", tracker) as holder:
            wait_until(lambda: driver.ask("GET", "/api/v1/peers").json["peers"])
            account = Keystore(tmp_path / "holder").node_key.public_key
            sent = driver.ask("POST", "/api/v1/wallet/send", {"to": account, "amount": 3})
            assert sent.status == 200, sent.body
            path = "/api/v1/wallet/balance"
            # A follower's wallet answers once its chain has started.
            wait_until(lambda: b'"available":3.0' in holder.ask("GET", path).body)
            stake = {"amount": 2, "duration_days": 1}
            staked = holder.ask("POST", "/api/v1/wallet/stake", stake)
            assert staked.status == 200, staked.body
            empty = {"total_submitted": 0, "total_verified": 0, "total_reward": 0}
            assert proofs(holder) == {"proofs": [], "stats": empty}

            body = {"prompt": "Once upon a time", "max_tokens": 8}
            answer = driver.ask("POST", "/api/v1/inference", body)
            assert answer.status == 200, answer.body

            def verified() -> dict[str, Any] | None:
                found = proofs(holder)
                return found if found["stats"]["total_verified"] else None

            found = wait_until(verified)
            (entry,) = found["proofs"]
            assert (entry["type"], entry["layer"], entry["verified"]) == ("forward", 2, True)
            assert entry["reward"] >= 0.01
            assert found["stats"] == {
                "total_submitted": 1,
                "total_verified": 1,
                "total_reward": entry["reward"],
            }
            # The driver cannot claim a reward for work that it did for itself.
            assert proofs(driver)["stats"] == empty
            history = holder.ask("GET", "/api/v1/wallet/transactions").json["transactions"]
            (reward,) = [one for one in history if one["type"] == "reward"]
            assert reward["details"]["proof_id"] == entry["id"]
            assert reward["amount"] == entry["reward"]
            balances = holder.ask("GET", path).json["balances"]
            assert balances["available"] == round(1 - 2 * FEE + entry["reward"], 6)
            assert balances["staked"] == 2.0

            assert holder.ask("GET", "/api/v1/proofs?limit=1").json == found
            for wrong in ("0", "101", "x", "-1"):
                refused = holder.ask("GET", f"/api/v1/proofs?limit={wrong}")
                assert (refused.status, refused.json["error"]["code"]) == (400, "INVALID_REQUEST")
            assert holder.ask("GET", "/api/v1/proofs", token=None).status == 401
