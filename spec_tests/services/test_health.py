"""Interface 2.1, Health: it reports the actual state of each part (decision 0004)."""

import errno
import os
from pathlib import Path

import pytest
import trio
import trio.testing

from meshnode.services.health import (
    PROBE_STALE_S,
    Health,
    probe_storage,
    serve_storage_probe,
)
from meshnode.supervise import Drain, ServiceBoard


class Node:
    """A ``Health`` whose inputs a test can change."""

    def __init__(self, tracker_url: str = "") -> None:
        self.drain, self.services = Drain(), ServiceBoard()
        self.gpu, self.peers, self.time = "absent", 0, 100.0
        self.uncovered = ""
        self.health = Health(
            drain=self.drain,
            services=self.services,
            device=lambda: self.gpu,
            peer_count=lambda: self.peers,
            tracker_url=tracker_url,
            now=lambda: self.time,
            uncovered=lambda: self.uncovered,
        )

    def unhealthy(self, check: str) -> str:
        report = self.health.report()
        assert report.healthy is False
        ill = {name for name, word in report.checks.items() if word not in {"ok", "absent"}}
        assert ill == {check}
        return report.checks[check]


async def test_a_node_on_its_own_is_healthy() -> None:
    report = Node().health.report()
    assert report.healthy is True
    assert report.checks == {"gpu": "absent", "network": "ok", "storage": "ok", "peers": "ok"}


async def test_each_part_can_make_the_node_unhealthy() -> None:
    node = Node(tracker_url="http://tracker:8000")
    assert node.unhealthy("peers") == "none connected"
    node.peers = 1
    assert node.health.report().healthy is True
    node.gpu = "failing"
    assert node.unhealthy("gpu") == "failing"
    node.gpu = "ok"
    node.services.set("grpc", "restarting")
    assert node.unhealthy("network") == "grpc restarting"
    node.services.set("grpc", "ok")
    node.health.storage_probed("No space left on device")
    assert node.unhealthy("storage") == "No space left on device"
    node.health.storage_probed("ok")
    node.time += PROBE_STALE_S + 1
    assert node.unhealthy("storage") == "not answering"
    node.health.storage_probed("ok")
    node.drain.begin()
    assert node.unhealthy("network") == "draining"


def test_the_probe_writes_and_says_what_the_system_said(tmp_path: Path) -> None:
    assert probe_storage(tmp_path) == "ok"
    assert (tmp_path / "health.probe").stat().st_size == 4096
    assert probe_storage(tmp_path / "missing") == "No such file or directory"


def test_the_probe_notices_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert probe_storage(tmp_path) == "ok"

    def full(handle: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.write", full)
    assert probe_storage(tmp_path) == "No space left on device"
    # The probe file of the successful write remains, and the failed write leaves no other.
    assert [path.name for path in tmp_path.iterdir()] == ["health.probe"]
    monkeypatch.undo()
    assert probe_storage(tmp_path) == "ok"


async def test_the_probe_service_reports_and_can_be_cancelled(tmp_path: Path) -> None:
    node = Node()
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_storage_probe, node.health, tmp_path / "missing")
        assert node.unhealthy("storage") == "No such file or directory"
        nursery.cancel_scope.cancel()


async def test_a_driver_without_a_holder_of_some_layer_is_unhealthy_until_there_is_one() -> None:
    node = Node()
    node.uncovered = "no reachable holder of layers 4-7"
    assert node.unhealthy("network") == "no reachable holder of layers 4-7"
    node.services.set("grpc", "restarting")
    assert node.unhealthy("network") == "grpc restarting"
    node.services.set("grpc", "ok")
    node.uncovered = ""
    assert node.health.report().healthy is True
