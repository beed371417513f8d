"""A plain request for a prompt route takes a short way, on which a client sees no difference."""

import logging
import re
from pathlib import Path
from typing import Any

import pytest
import trio

from meshnode.domain.ratelimit import Rate, RateLimit, RateLimits
from meshnode.edges.http_node import ROUTES
from meshnode.http.access import Access
from meshnode.http.app import node_app
from meshnode.http.prompt import MAX_BYTES, plain_request
from meshnode.http.routes import Route, add_routes
from spec_tests.edges.http_server import Answer, Served, start_node, wait_until
from spec_tests.edges.raw_http import next_answer

pytestmark = pytest.mark.wire

PROMPT = [route.path for route in ROUTES if route.prompt]
ORDINARY = b"x-other: 1\r\n"
"""A header that no plain request has."""
PLAIN = b"User-Agent: curl/8.1\r\naccept: */*\r\nConnection: keep-alive\r\n"


def get(path: str, more: bytes = b"") -> bytes:
    return b"GET %b HTTP/1.1\r\nHost: node\r\n%b\r\n" % (path.encode(), more)


async def ask(stream: trio.SocketStream, data: bytes) -> Answer:
    await stream.send_all(data)
    return await next_answer(stream)


def without_changes(answer: Answer) -> tuple[int, list[str], bytes]:
    body = re.sub(rb'"(uptime_seconds|cpu_percent|ram_used)":[\d.]+', b"", answer.body)
    return answer.status, sorted(set(answer.headers) - {"content-length"}), body


@pytest.mark.parametrize("path", PROMPT)
@pytest.mark.parametrize("draining", [False, True])
async def test_both_ways_give_the_same_answer(
    path: str, draining: bool, nursery: trio.Nursery, tmp_path: Path, short_way: list[str]
) -> None:
    node = await start_node(nursery, tmp_path)
    if draining:
        node.drain.begin()
    async with await trio.open_tcp_stream(*node.address) as stream:
        short = await ask(stream, get(path, PLAIN))
        assert short_way == [path]
        long = await ask(stream, get(path, ORDINARY))
    assert short_way == [path]
    assert without_changes(short) == without_changes(long)
    assert short.headers["x-request-id"] != long.headers["x-request-id"]


async def test_a_failure_has_the_same_body_and_is_logged(
    nursery: trio.Nursery,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = await start_node(nursery, tmp_path)
    monkeypatch.delattr(node.executor, "gpu_memory", raising=False)
    monkeypatch.delattr(type(node.executor), "gpu_memory")
    async with await trio.open_tcp_stream(*node.address) as stream:
        short = await ask(stream, get("/api/v1/status"))
        long = await ask(stream, get("/api/v1/status", ORDINARY))
    assert short.status == 500
    assert without_changes(short) == without_changes(long)
    logged = [record for record in caplog.records if record.exc_info]
    assert len(logged) == 2


async def test_the_rate_limit_of_the_address_counts_both(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    limits: dict[str, Any] = {
        "limits.requests_per_second_per_address": 0.001,
        "limits.burst_per_address": 2,
    }
    node = await start_node(nursery, tmp_path, **limits)
    # A connection of its own for each way: right after an ordinary answer the parser may still be
    # busy with it, and then the next request goes the ordinary way too.
    async with (
        await trio.open_tcp_stream(*node.address) as plain,
        await trio.open_tcp_stream(*node.address) as other,
    ):
        assert (await ask(other, get("/api/v1/status", ORDINARY))).status == 200
        assert (await ask(plain, get("/api/v1/status"))).status == 200
        short = await ask(plain, get("/api/v1/status"))
        long = await ask(other, get("/api/v1/status", ORDINARY))
        # Monitors may always ask.
        assert (await ask(plain, get("/api/v1/health"))).status == 200
    assert short.status == 429
    assert short.json["error"]["code"] == "RATE_LIMITED"
    assert without_changes(short)[:2] == without_changes(long)[:2]


async def test_each_is_logged_with_its_route(
    nursery: trio.Nursery, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    node = await start_node(nursery, tmp_path, log_requests=True)
    async with await trio.open_tcp_stream(*node.address) as stream:
        short = await ask(stream, get("/api/v1/status"))
    lines = [record for record in caplog.records if record.getMessage() == "request"]
    await wait_until(lambda: lines)
    fields = lines[0].__dict__["fields"]
    assert fields["route"] == "/api/v1/status"
    assert (fields["method"], fields["status"]) == ("GET", 200)
    assert fields["request_id"] == short.headers["x-request-id"]
    assert "complete" not in fields


NOT_PLAIN = {
    "a header that is not known": get("/api/v1/status", ORDINARY),
    "an origin": get("/api/v1/status", b"Origin: http://a.example\r\n"),
    "connection": get("/api/v1/status", b"Connection: close\r\n"),
    "a body that is empty": get("/api/v1/status", b"Content-Length: 0\r\n"),
    "a body": get("/api/v1/status", b"Content-Length: 2\r\n") + b"{}",
    "a query": get("/api/v1/status?a=1"),
    "a second host": get("/api/v1/status", b"Host: other\r\n"),
    "no host": b"GET /api/v1/status HTTP/1.1\r\nAccept: */*\r\n\r\n",
    "HTTP/1.0": b"GET /api/v1/status HTTP/1.0\r\nHost: node\r\n\r\n",
    "another method": b"HEAD /api/v1/status HTTP/1.1\r\nHost: node\r\n\r\n",
    "a folded line": get("/api/v1/status", b"Accept: a\r\n b\r\n"),
    "a space before the colon": get("/api/v1/status", b"Accept : a\r\n"),
    "a byte that is not ASCII": get("/api/v1/status", b"Accept: \xff\r\n"),
    "a zero byte": get("/api/v1/status", b"Accept: \x00\r\n"),
    "a bare line feed": b"GET /api/v1/status HTTP/1.1\nHost: node\n\n",
    "an escaped path": get("/api/v1/%73tatus"),
    "a whole URL": get("http://node/api/v1/status"),
    "a part": get("/api/v1/status")[:-1],
    "two at once": 2 * get("/api/v1/status"),
    "much": get("/api/v1/status", b"Accept: %b\r\n" % (b"a" * MAX_BYTES)),
}


@pytest.mark.parametrize("data", NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_everything_else_is_not_plain(data: bytes) -> None:
    assert plain_request(data) is None


async def test_a_request_in_pieces_goes_the_ordinary_way(
    nursery: trio.Nursery, tmp_path: Path, short_way: list[str]
) -> None:
    node = await start_node(nursery, tmp_path)
    async with await trio.open_tcp_stream(*node.address) as stream:
        # The second piece looks like a plain request by itself.
        await stream.send_all(b"POST /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\n")
        plain = get("/api/v1/status").ljust(50, b"\n")
        answer = await ask(stream, plain[:50])
        assert answer.status == 404
        assert short_way == []
        # h11 is between two requests again.
        assert (await ask(stream, get("/api/v1/status"))).status == 200


async def test_a_connection_ends_after_a_thousand_requests_on_either_way(
    nursery: trio.Nursery, tmp_path: Path, short_way: list[str]
) -> None:
    node = await start_node(nursery, tmp_path)
    async with await trio.open_tcp_stream(*node.address) as stream:
        for _ in range(999):
            answer = await ask(stream, get("/api/v1/health"))
            assert "connection" not in answer.headers
        last = await ask(stream, get("/api/v1/health"))
        assert last.headers["connection"] == "close"
        assert await stream.receive_some() == b""
    assert len(short_way) == 999


async def test_an_idle_connection_ends_with_the_server(
    nursery: trio.Nursery, tmp_path: Path, short_way: list[str]
) -> None:
    node: Served = await start_node(nursery, tmp_path)
    async with await trio.open_tcp_stream(*node.address) as stream:
        await ask(stream, get("/api/v1/health"))
        node.shutdown.set()
        with trio.fail_after(60):
            assert await stream.receive_some() == b""
            await node.ended.wait()
    assert short_way == ["/api/v1/health"]


@pytest.mark.parametrize(
    ("method", "path", "more"),
    [
        ("POST", "/a", {}),
        ("GET", "/a/<name>", {}),
        ("GET", "/a", {"private": True}),
    ],
)
def test_a_route_that_looks_at_its_request_cannot_be_prompt(
    method: str, path: str, more: dict[str, bool]
) -> None:
    limit = RateLimit(Rate(1.0, 1.0))
    access = Access(lambda _: None, RateLimits(limit, limit))  # type: ignore[arg-type, return-value]

    async def handler(_: object) -> None:
        return None

    route: Route[object] = Route(method, path, handler, "", prompt=True, **more)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="without a look"):
        add_routes(node_app(access, 1), object(), [route], access)
