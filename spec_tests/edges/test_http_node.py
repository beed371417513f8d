"""Interface 2.1, 4.1, 5 and 7.1 over HTTP: every field is real, checks run in order."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio

from meshnode.domain.peers import role_of
from meshnode.edges.http_node import ROUTES
from spec_tests.edges.http_server import CARD, NODE_ID, TOKEN, FakeExecutor, Served, start_node

pytestmark = pytest.mark.wire

API = "/api/v1"
INFERENCE = API + "/inference"
AUTHORIZED = [(route.method, route.path) for route in ROUTES if route.auth]


def shape(value: Any) -> Any:
    """The value with each leaf replaced by its type's name, and lists cut to their first item."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value[:1]]
    return type(value).__name__


@pytest.fixture
async def node(nursery: trio.Nursery, tmp_path: Path) -> Served:
    return await start_node(nursery, tmp_path)


# Interface 2.1, typed from the document's tables


async def test_status_has_the_documented_fields(node: Served) -> None:
    answer = await node.ask("GET", API + "/status", token=None)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert shape(answer.json) == {
        "node_id": "str",
        "version": "str",
        "uptime_seconds": "int",
        "status": "str",
        "role": "str",
        "layers": ["int"],
        "peer_count": "int",
        "training": {"enabled": "bool", "epoch": "int", "step": "int", "loss": "float"},
        "resources": {
            "gpu_memory_used": "int",
            "gpu_memory_total": "int",
            "cpu_percent": "float",
            "ram_used": "int",
        },
    }
    assert answer.json["node_id"] == NODE_ID
    assert answer.json["version"] == "1.2.3"
    assert answer.json["status"] == "running"
    assert answer.json["layers"] == [0, 1, 2, 3]
    assert answer.json["training"]["enabled"] is False


async def test_resources_come_from_the_system(node: Served) -> None:
    sum(number * number for number in range(300_000))
    resources = (await node.ask("GET", API + "/status")).json["resources"]
    assert 0 < resources["cpu_percent"] <= 100
    assert resources["ram_used"] == pytest.approx(psutil.Process().memory_info().rss, rel=0.2)


async def test_metrics_have_the_documented_fields_and_count(node: Served) -> None:
    for _ in range(3):
        await node.ask("POST", INFERENCE, {"prompt": "hi", "max_tokens": 5})
    node.traffic.bytes_sent += 7
    node.traffic.rpc_calls += 1
    answer = await node.ask("GET", API + "/metrics", token=None)
    assert shape(answer.json) == {
        "timestamp": "str",
        "inference": {
            "requests_total": "int",
            "requests_per_minute": "float",
            "avg_latency_ms": "float",
            "p99_latency_ms": "float",
            "tokens_generated": "int",
        },
        "training": {
            "steps_total": "int",
            "steps_per_hour": "int",
            "gradients_submitted": "int",
            "gradients_accepted": "int",
        },
        "network": {
            "bytes_sent": "int",
            "bytes_received": "int",
            "active_connections": "int",
            "rpc_calls": "int",
        },
        "rewards": {"earned_today": "float", "earned_total": "float", "pending": "float"},
        # These are not in the document (decision 0039); they are 0 on a node that holds all layers.
        "pipeline": {
            "generations": "int",
            "failovers": "int",
            "hop_queue_ms": "float",
            "hop_compute_ms": "float",
            "hop_network_ms": "float",
            "hop_network_p99_ms": "float",
        },
    }
    assert answer.json["inference"] == {
        "requests_total": 3,
        "requests_per_minute": 3.0,
        "avg_latency_ms": 12.5,
        "p99_latency_ms": pytest.approx(12.5, rel=0.01),
        "tokens_generated": 15,
    }
    assert answer.json["network"]["bytes_sent"] == 7
    assert answer.json["network"]["rpc_calls"] == 1
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", answer.json["timestamp"])
    age = datetime.now(UTC) - datetime.fromisoformat(answer.json["timestamp"])
    assert 0 <= age.total_seconds() < 20


async def test_health_has_the_documented_fields(node: Served) -> None:
    answer = await node.ask("GET", API + "/health", token=None)
    assert answer.status == 200
    assert answer.json == {
        "healthy": True,
        "checks": {"gpu": "absent", "network": "ok", "storage": "ok", "peers": "ok"},
    }


@pytest.mark.parametrize("trouble", ["draining", "service", "gpu"])
async def test_an_unhealthy_node_answers_503(node: Served, trouble: str) -> None:
    if trouble == "draining":
        node.drain.begin()
    elif trouble == "service":
        node.board.set("gRPC", "restarting")
    else:
        node.executor.device = "failing"
    answer = await node.ask("GET", API + "/health")
    assert answer.status == 503
    assert answer.json["healthy"] is False
    assert set(answer.json["checks"]) == {"gpu", "network", "storage", "peers"}


async def test_layers_have_the_documented_fields(node: Served) -> None:
    answer = await node.ask("GET", API + "/layers")
    layer = {"type": "transformer", "memory_mb": 3, "status": "active"}
    assert answer.json == {
        "layers": [{"index": index, **layer} for index in range(4)],
        "total_layers": 4,
        "my_layer_count": 4,
    }


@pytest.mark.parametrize(
    ("layers", "role"),
    [((0, 1, 2, 3), "driver"), ((0,), "driver"), ((1, 2), "worker"), ((2, 3), "validator")],
)
def test_the_role_follows_from_the_layers(layers: tuple[int, ...], role: str) -> None:
    assert role_of(layers, CARD.num_layers) == role


async def test_configuration_has_the_documented_fields(node: Served) -> None:
    answer = await node.ask("GET", API + "/config")
    assert shape(answer.json) == {
        "node_id": "str",
        "port": "int",
        "grpc_port": "int",
        "dtype": "str",
        "device": "str",
        "tracker_url": "str",
        "training": {
            "enabled": "bool",
            "batch_size": "int",
            "learning_rate": "float",
            "diloco_steps": "int",
        },
        "resources": {"max_memory_gb": "float", "cpu_threads": "int"},
    }
    assert answer.json["grpc_port"] == answer.json["port"] + 1000


async def test_a_patch_answers_dotted_paths_and_is_in_force(node: Served) -> None:
    body = {"training": {"batch_size": 4, "enabled": True}}
    answer = await node.ask("PATCH", API + "/config", body)
    assert answer.json == {
        "success": True,
        "updated": ["training.batch_size", "training.enabled"],
        "restart_required": False,
    }
    assert (await node.ask("GET", API + "/config")).json["training"]["batch_size"] == 4
    assert (await node.ask("GET", API + "/status")).json["training"]["enabled"] is True


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"training": {"diloco_steps": -1}}, "training.diloco_steps"),
        ({"port": 9999}, "port"),
        ({"no_such_key": 1}, "no_such_key"),
        ({"training": {"batch_size": 4, "learning_rate": "fast"}}, "training.learning_rate"),
    ],
)
async def test_a_bad_patch_names_its_field_and_applies_nothing(
    node: Served, body: dict[str, Any], field: str
) -> None:
    before = (await node.ask("GET", API + "/config")).json
    answer = await node.ask("PATCH", API + "/config", body)
    assert (answer.status, answer.code) == (400, "INVALID_REQUEST")
    assert answer.details["field"] == field
    assert answer.details["reason"]
    assert (await node.ask("GET", API + "/config")).json == before


async def test_a_key_that_the_client_made_up_is_not_echoed_at_length(node: Served) -> None:
    for key, field in {
        "x" * 100_000: "x" * 200 + "…",
        "\ud800": "?",
        'a"\n\u2028': 'a"\n\u2028',
    }.items():
        answer = await node.ask("PATCH", API + "/config", {key: 1})
        assert (answer.status, answer.details["field"]) == (400, field)
        assert len(answer.body) < 1000


# Interface 5


@pytest.mark.parametrize(("method", "path"), AUTHORIZED)
@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("", "a bearer token is required"),
        (f"Basic {TOKEN}", "a bearer token is required"),
        ("Bearer", "a bearer token is required"),
        ("Bearer wrong", "invalid or expired token"),
        (f"Bearer  {TOKEN}", "invalid or expired token"),
    ],
)
async def test_marked_routes_need_a_valid_token(
    node: Served, method: str, path: str, header: str, message: str
) -> None:
    headers = {"Authorization": header, "Content-Type": "application/json"}
    answer = await node.ask(method, path, b"{", token=None, headers=headers)
    assert (answer.status, answer.code) == (401, "UNAUTHORIZED")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.json["error"]["message"] == message
    assert answer.details is None


async def test_an_issued_token_works_until_it_is_revoked(node: Served) -> None:
    _, secret = node.tokens.issue("alice")
    assert (await node.ask("GET", API + "/layers", token=secret)).status == 200
    node.tokens.revoke("alice")
    assert (await node.ask("GET", API + "/layers", token=secret)).code == "UNAUTHORIZED"


# Interface 7.1


async def test_rate_limits_of_an_address_and_their_answer(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    limits: dict[str, Any] = {
        "limits.requests_per_second_per_address": 0.01,
        "limits.burst_per_address": 3,
    }
    node = await start_node(nursery, tmp_path, **limits)
    # Every request counts towards the limit, also one that fails.
    for path in ("/status", "/nothing", "/layers"):
        assert (await node.ask("GET", API + path, token=None)).status in (200, 404, 401)
    forged = {"X-Forwarded-For": "198.51.100.9", "Forwarded": "for=198.51.100.9"}
    answer = await node.ask("GET", API + "/status", headers=forged)
    assert (answer.status, answer.code) == (429, "RATE_LIMITED")
    assert 0 < answer.details["retry_after"] <= 100
    assert answer.headers["retry-after"] == str(answer.details["retry_after"])
    assert (await node.ask("GET", API + "/health")).status == 200


async def test_rate_limits_of_a_token_do_not_touch_others(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    limits: dict[str, Any] = {
        "limits.requests_per_second_per_token": 0.01,
        "limits.burst_per_token": 2,
    }
    node = await start_node(nursery, tmp_path, **limits)
    _, other = node.tokens.issue("other")
    for _ in range(2):
        assert (await node.ask("GET", API + "/layers")).status == 200
    assert (await node.ask("GET", API + "/layers")).code == "RATE_LIMITED"
    assert (await node.ask("GET", API + "/layers", token=other)).status == 200
    assert (await node.ask("GET", API + "/status", token=None)).status == 200


async def test_the_checks_come_in_their_order(nursery: trio.Nursery, tmp_path: Path) -> None:
    limits: dict[str, Any] = {
        "limits.requests_per_second_per_token": 0.01,
        "limits.burst_per_token": 5,
    }
    node = await start_node(nursery, tmp_path, **limits)
    json_type = {"Content-Type": "application/json"}
    bad_rules = {"prompt": ""}
    assert (await node.ask("POST", INFERENCE, b"{", token="no")).status == 401
    assert (await node.ask("POST", INFERENCE, b"{")).status == 415
    assert (await node.ask("POST", INFERENCE, b"{", headers=json_type)).details["field"] == "body"
    assert (await node.ask("POST", INFERENCE, bad_rules)).details["field"] == "prompt"
    assert (await node.ask("POST", INFERENCE, {"prompt": "x", "max_tokens": 1})).status == 200
    node.drain.begin()
    assert (await node.ask("POST", INFERENCE, b"{")).status == 503
    assert (await node.ask("POST", INFERENCE, b"{")).status == 429
    assert (await node.ask("POST", INFERENCE, b"{", token="no")).status == 401


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
async def test_an_unknown_path_is_404_in_the_documented_body(node: Served, method: str) -> None:
    for path in ("/api", API + "/status/", "/api//v1/status", API + "/STATUS", "/%00"):
        answer = await node.ask(method, path)
        assert (answer.status, answer.code) == (404, "NOT_FOUND")


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
async def test_another_method_is_405_with_allow(node: Served, route: Any) -> None:
    known = {other.method for other in ROUTES if other.path == route.path} | {"OPTIONS"}
    if "GET" in known:
        known.add("HEAD")
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "BREW"} - known:
        answer = await node.ask(method, route.path)
        assert (answer.status, answer.code) == (405, "METHOD_NOT_ALLOWED")
        assert set(answer.headers["allow"].split(", ")) == known


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
async def test_options_and_head_are_sane(node: Served, route: Any) -> None:
    answer = await node.ask("OPTIONS", route.path, token=None)
    assert (answer.status, answer.body) == (200, b"")
    assert route.method in answer.headers["allow"]
    assert "content-type" not in answer.headers
    if route.method == "GET":
        get = await node.ask("GET", route.path)
        head = await node.ask("HEAD", route.path)
        assert (head.status, head.body) == (200, b"")
        assert head.headers["content-type"] == get.headers["content-type"]
        assert int(head.headers["content-length"]) > 0


async def test_unforeseen_failures_show_nothing_and_are_logged(
    nursery: trio.Nursery, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    executor = FakeExecutor(fail_after=0)
    node = await start_node(nursery, tmp_path, executor=executor)
    answer = await node.ask("POST", INFERENCE, {"prompt": "hi"})
    assert (answer.status, answer.code) == (500, "INTERNAL_ERROR")
    assert b"secret" not in answer.body
    (record,) = caplog.records
    assert "secret internals" in str(record.exc_info and record.exc_info[1])
    assert vars(record)["fields"]["request_id"] == answer.headers["x-request-id"]
    assert executor.active == 0


async def test_hosts_and_targets_of_all_kinds_are_answered_in_json(node: Served) -> None:
    for host in ("a b", "a/b", "[::1", b"\xc3\xa4", "x" * 300, "a:99999", "@"):
        answer = await node.ask("GET", API + "/health", headers={"Host": host})
        assert answer.status in (200, 400)
        assert answer.headers["content-type"] == "application/json"
    for target, status in {
        "http://node/api/v1/health": 200,
        "http://node": 200,
        "http://node/nothing": 404,
        "*": 400,
        "?x": 400,
        "ftp://node/": 400,
    }.items():
        assert (await node.ask("GET", target)).status == status
    assert (await node.ask("GET", API + "/health?x=%ff&&==")).status == 200


async def test_nothing_tells_which_server_this_is(node: Served) -> None:
    for path in ("/nothing", API + "/health"):
        answer = await node.ask("GET", path)
        assert "server" not in answer.headers
        assert not re.search(rb"hypercorn|quart|werkzeug|python", answer.body, re.IGNORECASE)
