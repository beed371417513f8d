"""With a model that no chain can have, the rest works and routes say why not (decision 0087)."""

from __future__ import annotations

from pathlib import Path

import pytest

from spec_tests.model.small_models import make_model
from spec_tests.processes.chain_files import client, require_private
from spec_tests.processes.nodes import issue_token, running_node

pytestmark = pytest.mark.process

WHY = "no chain with this model: the model's context is shorter than 64 tokens"


def test_inference_is_served_without_a_ledger(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", context_length=40)
    data = tmp_path / "data"
    with running_node(data, "--model", str(model)) as node:
        assert WHY in node.log()
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
        assert node.ask("GET", "/api/v1/health", token=None).json["healthy"] is True
        told = client(tmp_path / "home", node, "status")
        assert (told.returncode, WHY in told.stderr) == (1, True)
    require_private(data)
