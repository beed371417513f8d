"""With another model than the chain's, the rest works and routes say why not (decision 0155)."""

from __future__ import annotations

from pathlib import Path

import pytest

from spec_tests.model.small_models import make_model
from spec_tests.ports import free_port
from spec_tests.processes.chain_files import client, require_private
from spec_tests.processes.nodes import issue_token, run, running_node, wait_until

pytestmark = pytest.mark.process

WHY = (
    "no chain with its model: the chain's model is not the one that the chain was started with; "
    "name the directory of that one with --chain-model"
)


def test_inference_is_served_without_a_ledger(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model")
    data = tmp_path / "data"
    with running_node(tmp_path / "tracker") as tracker:
        options = ("--tracker", f"http://127.0.0.1:{tracker.port}", "--chain-model", str(model))
        with running_node(data, *options) as node:
            wait_until(lambda: WHY in node.log())
            alice = issue_token(data, "alice")
            body = {"prompt": "hello", "max_tokens": 3}
            served = node.ask("POST", "/api/v1/inference", body)
            assert (served.status, served.json["cost"]["amount"]) == (200, 0.0)
            # A user who would have to pay cannot, and is refused.
            refused = node.ask("POST", "/api/v1/inference", body, token=alice)
            assert (refused.status, refused.json["error"]["message"]) == (503, WHY)
            for path in ("/wallet/balance", "/wallet/transactions"):
                answer = node.ask("GET", "/api/v1" + path)
                assert answer.status == 503
                assert answer.json["error"] == {"code": "UNAVAILABLE", "message": WHY}
            for path in ("/healthz", "/api/network", "/api/inference", "/work/status"):
                answer = node.ask("GET", path, token=None)
                assert (answer.status, answer.json) == (503, {"error": WHY})
            # On a busy machine a node may be late for a moment.
            wait_until(lambda: node.ask("GET", "/api/v1/health", token=None).json["healthy"])
            told = client(tmp_path / "home", node, "status")
            assert (told.returncode, WHY in told.stderr) == (1, True)
    require_private(data)


def test_a_model_that_no_chain_can_have_ends_the_start(tmp_path: Path) -> None:
    short = make_model(tmp_path / "short", context_length=40)
    data = str(tmp_path / "data")
    ended = run("--chain-model", str(short), "--data-dir", data, "--port", str(free_port()))
    assert ended.returncode == 2
    assert "meshnode: --chain-model: the model's context is shorter than 64 tokens" in ended.stderr
