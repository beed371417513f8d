"""A node that computes on a device, which the processor plays (decision 0229)."""

from pathlib import Path

import pytest

from meshnode.domain.units import GIBIBYTE
from spec_tests.processes.nodes import run, running_node

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_a_node_on_a_device_serves_and_shows_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running_node(data, "--device", "auto", MESHNODE_SIMULATED_DEVICE="1.25") as node:
        status = node.ask("GET", "/api/v1/status").json["resources"]
        assert status["gpu_memory_total"] == 5 * GIBIBYTE // 4
        health = node.ask("GET", "/api/v1/health").json
        assert health["healthy"] is True
        assert health["checks"]["gpu"] == "ok"
        assert node.ask("GET", "/api/v1/config").json["device"] == "auto"
        body = {"prompt": "The capital of France is " * 8, "max_tokens": 4, "seed": 5}
        first, second = (node.ask("POST", "/api/v1/inference", body) for _ in range(2))
        assert first.status == 200
        # The second one finds its prompt in the cache.
        assert first.json["text"] == second.json["text"]
        metrics = node.ask("GET", "/metrics").body.decode()
        hits = [line for line in metrics.splitlines() if line.startswith("vllm:prefix_cache_hits")]
        assert any(float(line.rpartition(" ")[2]) > 0 for line in hits)
    assert "computing on cpu (simulated)" in node.log()


def test_auto_falls_back_and_a_named_device_without_room_ends_the_start(tmp_path: Path) -> None:
    with running_node(tmp_path / "data", "--device", "auto", MESHNODE_SIMULATED_DEVICE="1") as node:
        assert node.ask("GET", "/api/v1/health").json["checks"]["gpu"] == "absent"
    assert "computing on the CPU, not on cpu (simulated): the weights take" in node.log()
    folder = str(tmp_path / "other")
    refused = run("--device", "cuda", "--data-dir", folder, MESHNODE_SIMULATED_DEVICE="1")
    assert refused.returncode == 2
    assert "--device cuda: the weights take" in refused.stderr
    assert "--device cpu would serve" in refused.stderr
    absent = run("--device", "cuda:1", "--data-dir", folder)
    assert absent.returncode == 2
    assert "--device cuda:1: torch finds no CUDA device here" in absent.stderr
