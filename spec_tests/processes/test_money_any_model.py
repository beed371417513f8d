"""Money works whatever model is served, and whatever part of it a node holds (decision 0155)."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from meshnode.services.keystore import Keystore
from spec_tests.model.small_models import make_model
from spec_tests.processes.nodes import Node, issue_token, running_node, wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow]

BALANCE = "/api/v1/wallet/balance"


def available(node: Node) -> float | None:
    answer = node.ask("GET", BALANCE)
    return answer.json["balances"]["available"] if answer.status == 200 else None


def test_holders_of_parts_of_another_model_pay_and_earn(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model")
    with ExitStack() as stack:
        front = stack.enter_context(
            running_node(tmp_path / "front", "--model", str(model), "--layers", "0-1")
        )
        through = ("--tracker", f"http://127.0.0.1:{front.port}")
        with running_node(
            tmp_path / "back", "--model", str(model), "--layers", "2-3", *through
        ) as back:
            # The holders of the layers that the third node fetches are asked of the first one.
            wait_until(lambda: front.ask("GET", "/api/v1/peers").json["peers"])
            fetched = stack.enter_context(
                running_node(
                    tmp_path / "fetched", "--model", "network", "--layers", "2-3", *through
                )
            )
            for node in (back, fetched):
                account = Keystore(node.data_dir).node_key.public_key
                wait_until(lambda node=node: available(node) == 0.0)
                sent = front.ask("POST", "/api/v1/wallet/send", {"to": account, "amount": 3})
                assert sent.status == 200, sent.body
                wait_until(lambda node=node: available(node) == 3.0)
            paid = {"to": Keystore(tmp_path / "fetched").node_key.public_key, "amount": 0.5}
            assert back.ask("POST", "/api/v1/wallet/send", paid).status == 200
            wait_until(lambda: available(fetched) == 3.5)
        stake = {"amount": 2, "duration_days": 1}
        assert fetched.ask("POST", "/api/v1/wallet/stake", stake).status == 200
        alice = issue_token(tmp_path / "front", "alice", "1")
        # A text that is drawn may end at its first token.
        body = {"prompt": "A node serves", "max_tokens": 4, "temperature": 0}

        def served() -> dict[str, Any] | None:
            # The holder that ended may still be on the path for some seconds.
            answer = front.ask("POST", "/api/v1/inference", body, token=alice)
            return answer.json["cost"] if answer.status == 200 else None

        assert wait_until(served) == {"amount": 0.004, "currency": "MESH"}
        wait_until(lambda: fetched.ask("GET", "/api/v1/proofs").json["stats"]["total_verified"])
        rewards = fetched.ask("GET", "/api/v1/metrics", token=None).json["rewards"]
        assert rewards["earned_total"] >= 0.01
