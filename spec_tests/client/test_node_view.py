"""The tables of ``meshnode status`` and ``meshnode peers``."""

from meshnode.client.node_view import node_table, peers_table


def test_a_node_is_a_line_for_each_figure() -> None:
    status = {
        "node_id": "ab" * 20,
        "version": "1.2.3",
        "status": "running",
        "role": "driver",
        "layers": [0, 1, 2, 5],
        "peer_count": 2,
        "uptime_seconds": 3720,
        "resources": {"ram_used": 300 << 20, "cpu_percent": 12.4},
        "training": {"enabled": False},
    }
    health = {"healthy": False, "checks": {"gpu": "absent", "storage": "no space left"}}
    table = node_table(status, health, {"inference": {"requests_total": 7}})
    lines = dict(line.split(maxsplit=1) for line in table.splitlines())
    assert lines["health"] == "storage: no space left"
    assert lines["up"] == "1 h 02 min"
    assert lines["layers"] == "0-2,5"
    assert lines["memory"] == "300 MiB"
    assert lines["requests"] == "7"
    assert lines["tokens"] == "-"
    rows = zip(table.splitlines(), lines.values(), strict=True)
    assert len({line.index(value) for line, value in rows}) == 1


def test_peers_are_aligned_and_cannot_steer_a_terminal() -> None:
    peer = {
        "id": "cd" * 20,
        "address": "10.0.0.1:8000\x1b[2J",
        "role": "worker",
        "layers": [3, 4],
        "latency_ms": 1.25,
        "connected_since": "2026-01-01T00:00:00.000Z",
    }
    table = peers_table({"peers": [peer, {"id": None, "layers": "all"}, "nonsense"]})
    assert "\x1b" not in table
    head, first, second, third = table.splitlines()
    assert first.index("10.0.0.1:8000") == head.index("ADDRESS")
    assert first.index("3-4") == head.index("LAYERS")
    assert second.split()[0] == third.split()[0] == "-"
    assert peers_table({}) == "no peers"
