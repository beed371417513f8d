"""A node that may open few files serves while strangers hold connections (decision 0124)."""

from __future__ import annotations

import resource
import signal
import socket
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from spec_tests.processes import changes
from spec_tests.processes.nodes import (
    issue_token,
    running_node,
    starting_node,
    wait_served,
    wait_until,
)

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


@pytest.mark.slow
def test_a_shortage_of_descriptors_ends_nothing_and_passes(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running_node(data) as node:
        wait_served(data)
        pid = node.process.pid
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        # Below what is open already: nothing more can be opened or accepted.
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        with socket.create_connection(("127.0.0.1", node.port), timeout=60):
            wait_until(lambda: "cannot serve all connections" in node.log())
            wait_until(lambda: "cannot read the orders" in node.log())
            wait_until(lambda: "validator-state.json cannot be written" in node.log())
        assert node.process.poll() is None
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        assert node.ask("POST", "/api/v1/inference", BODY).status == 200
        issue_token(data, "alice", "1")
        wait_until(lambda: node.ask("GET", "/api/v1/health").json["healthy"])
        node.signal(signal.SIGTERM)
        assert node.wait()[0] == 0


def test_a_node_that_may_open_too_few_files_does_not_start(tmp_path: Path) -> None:
    few = partial(changes.allow_files, most=200)
    with starting_node(tmp_path / "data", changes=[few]) as node:
        status, log = node.wait()
    assert (status, log.strip()) == (
        2,
        "meshnode: this process may open 200 files: at least 256 are needed",
    )
