"""A node that may open few files serves while strangers hold connections (decision 0124)."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from spec_tests.processes import changes
from spec_tests.processes.nodes import running_node, starting_node

pytestmark = pytest.mark.process

FILES = 300
SILENT_HTTP, SILENT_GRPC = 400, 100
BODY = {"prompt": "hello", "max_tokens": 2}


def test_silent_connections_leave_files_and_places_for_others(tmp_path: Path) -> None:
    few = partial(changes.allow_files, most=FILES)
    with running_node(tmp_path / "data", changes=[few]) as node, ExitStack() as silent:
        before = node.ask("POST", "/api/v1/inference", BODY).json["text"]
        ports = [node.port] * SILENT_HTTP + [node.port + 1000] * SILENT_GRPC
        for number, port in enumerate(ports):
            silent.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            if number % 50 == 0:
                assert node.ask("POST", "/api/v1/inference", BODY).status == 200
        served = node.ask("POST", "/api/v1/inference", BODY)
        assert (served.status, bool(served.json["text"])) == (200, bool(before))
        assert node.ask("GET", "/api/v1/health").json["healthy"]
        # The wallet needs to open files, so it would fail first without any left.
        assert node.ask("GET", "/api/v1/wallet/balance").status == 200
        assert node.process.poll() is None
        assert "Too many open files" not in node.log()


def test_a_node_that_may_open_too_few_files_does_not_start(tmp_path: Path) -> None:
    few = partial(changes.allow_files, most=200)
    with starting_node(tmp_path / "data", changes=[few]) as node:
        status, log = node.wait()
    assert (status, log.strip()) == (
        2,
        "meshnode: this process may open 200 files: at least 256 are needed",
    )
