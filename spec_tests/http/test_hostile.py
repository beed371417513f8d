"""Broken HTTP, endless bodies and vanishing clients are answered or dropped, without leaks."""

import json
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from meshnode import accepting
from meshnode.domain.ratelimit import Rate
from meshnode.http import app as app_module
from meshnode.http import http1, transport
from spec_tests.edges.http_server import (
    TOKEN,
    PlainApplication,
    start_node,
    start_server,
    wait_until,
)
from spec_tests.edges.raw_http import HEALTH, HEALTH_REQUEST, INFERENCE, parse, raw, read_all

pytestmark = pytest.mark.wire

# Bytes that are not HTTP/1


async def test_http_2_with_prior_knowledge_is_refused_cleanly(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    node = await start_node(nursery, tmp_path)
    answer = parse(await raw(node, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)))
    assert (answer.status, answer.code) == (505, "HTTP_VERSION_NOT_SUPPORTED")


@pytest.mark.parametrize(
    "headers",
    [
        {
            "Connection": "Upgrade, HTTP2-Settings",
            "Upgrade": "h2c",
            "HTTP2-Settings": "AAMAAABkAAQAAP__",
        },
        {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        },
        {"Connection": "Upgrade", "Upgrade": "websocket"},
        {"Connection": "Upgrade", "Upgrade": "TLS/1.0"},
    ],
)
async def test_an_upgrade_is_not_taken_and_the_request_is_answered(
    nursery: trio.Nursery, tmp_path: Path, headers: dict[str, str]
) -> None:
    node = await start_node(nursery, tmp_path)
    async with await node.connect() as client:
        assert (await client.ask("GET", HEALTH, headers=headers)).json["healthy"] is True
        assert (await client.ask("GET", HEALTH)).status == 200


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (b"nonsense\r\n\r\n", 400, "INVALID_REQUEST"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "INVALID_REQUEST"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "INVALID_REQUEST"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "INVALID_REQUEST"),
        (b"GET / HTTP/9.9\r\nHost: a\r\n\r\n", 505, "HTTP_VERSION_NOT_SUPPORTED"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nbad header\r\n\r\n", 400, "INVALID_REQUEST"),
        (b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n", 400, "INVALID_REQUEST"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 20_000, 431, "HEADERS_TOO_LARGE"),
        (b"GET /" + b"y" * 20_000, 431, "HEADERS_TOO_LARGE"),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 20_000 + b"\r\n\r\n",
            431,
            "HEADERS_TOO_LARGE",
        ),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            "INVALID_REQUEST",
        ),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            400,
            "INVALID_REQUEST",
        ),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            501,
            "NOT_IMPLEMENTED",
        ),
    ],
)
async def test_what_is_not_http_gets_the_documented_error_body(
    nursery: trio.Nursery, tmp_path: Path, data: bytes, status: int, code: str
) -> None:
    node = await start_node(nursery, tmp_path)
    answer = parse(await raw(node, data))
    assert (answer.status, answer.code) == (status, code)
    assert (await node.ask("GET", HEALTH)).status == 200


async def test_bad_chunks_end_the_request_and_not_the_server(
    nursery: trio.Nursery, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = await start_node(nursery, tmp_path)
    head = f"POST {INFERENCE} HTTP/1.1\r\nHost: n\r\nAuthorization: Bearer {TOKEN}\r\n"
    head += "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = parse(await raw(node, head.encode() + b"zz\r\nbad\r\n"))
    assert (answer.status, answer.code) == (400, "INVALID_REQUEST")
    assert (await node.ask("GET", HEALTH)).status == 200
    assert caplog.records == []


async def test_clients_that_vanish_at_any_point_leave_nothing(
    nursery: trio.Nursery, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = await start_node(nursery, tmp_path)
    body = b'{"prompt": "hi", "stream": true}'
    head = f"POST {INFERENCE} HTTP/1.1\r\nHost: n\r\nAuthorization: Bearer {TOKEN}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    whole = head.encode() + body
    for cut in range(0, len(whole) + 1, 7):
        stream = await trio.open_tcp_stream(*node.address)
        await stream.send_all(whole[:cut])
        await trio.aclose_forcefully(stream)
    await wait_until(lambda: node.executor.active == 0)
    assert (await node.ask("GET", HEALTH)).status == 200
    assert caplog.records == []
    node.shutdown.set()
    with trio.fail_after(60):
        await node.ended.wait()


SEEDS = (
    HEALTH_REQUEST,
    b"HEAD /nothing HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /api/v1/status HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    b"POST /api/v1/inference HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + TOKEN.encode()
    + b"\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'1f\r\n{"prompt": "hi", "stream": true}\r\n0\r\n\r\n',
    b"OPTIONS * HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)  # fmt: skip


def damaged(source: random.Random) -> bytes:
    """A few requests in a row, with some bytes changed, removed or added."""
    data = bytearray(b"".join(source.choices(SEEDS, k=source.randint(1, 4))))
    for _ in range(source.choice((0, 1, 1, 3))):
        place = source.randrange(len(data))
        if source.random() < 0.5:
            del data[place : place + source.randint(1, 20)]
        else:
            data[place:place] = source.randbytes(source.randint(1, 8))
        data = data or bytearray(b"x")
    return bytes(data)


async def test_damaged_requests_are_answered_or_dropped_and_nothing_is_left(
    nursery: trio.Nursery,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("LINGER_S", "KEEP_ALIVE_S", "CLOSE_S"):
        monkeypatch.setattr(transport, name, 0.5)
    monkeypatch.setattr(app_module, "BODY_TIMEOUT_S", 0.5)
    limits: dict[str, Any] = {"limits.burst_per_address": 10_000, "limits.burst_per_token": 10_000}
    node = await start_node(nursery, tmp_path, **limits)
    source, limiter = random.Random(7), trio.CapacityLimiter(16)

    async def one(data: bytes, leave: bool, end: bool) -> None:
        async with limiter, await trio.open_tcp_stream(*node.address) as stream:
            with suppress(trio.BrokenResourceError):
                await stream.send_all(data)
                if end:
                    await stream.send_eof()
                if not leave:
                    await read_all(stream)

    async with trio.open_nursery() as clients:
        for _ in range(200):
            clients.start_soon(one, damaged(source), source.random() < 0.2, source.random() < 0.3)
    await wait_until(lambda: node.executor.active == 0)
    assert (await node.ask("GET", HEALTH)).status == 200
    assert caplog.records == []
    node.shutdown.set()
    with trio.fail_after(60):
        await node.ended.wait()


# Large bodies


async def test_a_declared_large_body_is_refused_before_it_is_sent(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    node = await start_node(nursery, tmp_path)
    head = f"POST {INFERENCE} HTTP/1.1\r\nHost: n\r\nAuthorization: Bearer {TOKEN}\r\n"
    head += "Content-Type: application/json\r\nContent-Length: 10000000\r\n\r\n"
    stream = await trio.open_tcp_stream(*node.address)
    async with stream:
        await stream.send_all(head.encode())
        answer = parse(await read_all(stream))
    assert (answer.status, answer.code) == (413, "PAYLOAD_TOO_LARGE")


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_client_that_sends_a_large_body_whole_still_reads_the_answer(
    nursery: trio.Nursery, tmp_path: Path, chunked: bool
) -> None:
    node = await start_node(nursery, tmp_path)
    headers = {"Content-Type": "application/json"}
    if chunked:
        headers["Transfer-Encoding"] = "chunked"
    answer = await node.ask("POST", INFERENCE, b" " * 10_000_000, headers=headers)
    assert (answer.status, answer.code) == (413, "PAYLOAD_TOO_LARGE")


async def test_an_endless_body_is_cut_off(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "LINGER_S", 0.3)
    node = await start_node(nursery, tmp_path)
    head = f"POST {INFERENCE} HTTP/1.1\r\nHost: n\r\nAuthorization: Bearer {TOKEN}\r\n"
    head += "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    stream = await trio.open_tcp_stream(*node.address)
    async with stream:
        await stream.send_all(head.encode())
        with trio.fail_after(60), pytest.raises(trio.BrokenResourceError):
            await send_for_ever(stream, b"10000\r\n" + b" " * 65536 + b"\r\n")


async def send_for_ever(stream: trio.SocketStream, data: bytes) -> None:
    while True:
        await stream.send_all(data)


async def test_a_body_in_tiny_chunks_is_refused(nursery: trio.Nursery, tmp_path: Path) -> None:
    node = await start_node(nursery, tmp_path)
    head = (
        f"POST {INFERENCE} HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer {TOKEN}\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    ).encode()
    few = http1.FREE_CHUNKS - 100
    body = json.dumps({"prompt": "x" * few, "max_tokens": 1}).encode()
    crumbs = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    # The second request of the connection has an allowance of its own.
    answers = await raw(node, (head + crumbs + b"0\r\n\r\n") * 2 + head + crumbs * 2)
    assert answers.count(b"HTTP/1.1 200") == 2
    answer = parse(answers[answers.index(b"HTTP/1.1 400") :])
    assert (answer.status, answer.code) == (400, "INVALID_REQUEST")


async def test_an_address_that_floods_is_told_so_and_cut_off(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Addresses of this machine are exempt, so the test's own is made to look like another.
    monkeypatch.setattr(accepting, "is_here", lambda ip: False)
    served = 0

    async def empty(scope: Any, receive: Any, send: Any) -> None:
        nonlocal served
        served += 1
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    _, _, address = await start_server(
        nursery, PlainApplication(empty), rate=Rate(per_second=1e-9, burst=3)
    )
    async with await trio.open_tcp_stream(*address) as stream:
        await stream.send_all(HEALTH_REQUEST * 5)
        answers = await read_all(stream)
    assert answers.count(b"HTTP/1.1 204") == served == 3
    refusal = parse(answers[answers.index(b"HTTP/1.1 429") :])
    assert refusal.code == "RATE_LIMITED"


async def test_expect_continue_is_answered(nursery: trio.Nursery, tmp_path: Path) -> None:
    node = await start_node(nursery, tmp_path)
    body = json.dumps({"prompt": "hi", "max_tokens": 1}).encode()
    head = f"POST {INFERENCE} HTTP/1.1\r\nHost: n\r\nAuthorization: Bearer {TOKEN}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    head += "Expect: 100-continue\r\nConnection: close\r\n\r\n"
    stream = await trio.open_tcp_stream(*node.address)
    async with stream:
        await stream.send_all(head.encode())
        interim = await stream.receive_some()
        assert interim.startswith(b"HTTP/1.1 100")
        await stream.send_all(body)
        assert parse(await read_all(stream)).json["text"] == "token-0 "


# Applications that misbehave


async def test_a_crash_in_the_application_is_one_internal_error(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    async def crashing(
        scope: dict[str, Any], receive: Callable[..., Any], send: Callable[..., Any]
    ) -> None:
        raise RuntimeError("secret internals")

    _, _, address = await start_server(nursery, PlainApplication(crashing))
    for _ in range(2):
        stream = await trio.open_tcp_stream(*address)
        async with stream:
            await stream.send_all(HEALTH_REQUEST)
            response = await read_all(stream)
        assert response.startswith(b"HTTP/1.1 500")
        assert b"secret" not in response
    assert {record.levelno for record in caplog.records} == {logging.ERROR}
