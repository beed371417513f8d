"""The HTTP server on real sockets: connections end when they should, and nothing outlives them."""

import json
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from support_http import (
    TOKEN,
    Answer,
    Client,
    FakeExecutor,
    Served,
    start_node,
    start_server,
    wait_until,
)

from meshnode.domain.errors import StartupError
from meshnode.http import app as app_module
from meshnode.http import transport
from meshnode.http.server import serve_http

pytestmark = pytest.mark.wire

HEALTH = "/api/v1/health"
INFERENCE = "/api/v1/inference"
HEALTH_REQUEST = b"GET /api/v1/health HTTP/1.1\r\nHost: node\r\n\r\n"


async def read_all(stream: trio.SocketStream) -> bytes:
    with trio.fail_after(20):
        return b"".join([chunk async for chunk in stream])


async def raw(node: Served, data: bytes) -> bytes:
    """Everything the server says to ``data``, to the end of the connection."""
    stream = await trio.open_tcp_stream(*node.address)
    async with stream:
        await stream.send_all(data)
        return await read_all(stream)


def parse(response: bytes) -> Answer:
    """One response of known length."""
    head, _, body = response.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    assert len(body) == int(headers["content-length"])
    return Answer(int(status.split()[1]), headers, body)


async def stalled_stream(node: Served) -> trio.SocketStream:
    """A client that asks for an endless stream and never reads it, once the pipe is full."""
    sock = trio.socket.socket()
    sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, 4096)
    await sock.connect(node.address)
    client = Client(trio.SocketStream(sock))
    body = {"prompt": "hi", "max_tokens": 10**9, "stream": True}
    await client.send("POST", INFERENCE, body)
    await wait_until(lambda: node.executor.generations)
    generation, made = node.executor.generations[-1], -1
    with trio.fail_after(20):
        while made != generation.made:
            made = generation.made
            await trio.sleep(0.05)  # nothing tells that a pipe is full but that nothing moves
    return client.stream


# Connections that stay and connections that end


async def test_a_connection_serves_several_requests(nursery: trio.Nursery, tmp_path: Path) -> None:
    node = await start_node(nursery, tmp_path)
    async with await node.connect() as client:
        for _ in range(3):
            assert (await client.ask("GET", HEALTH)).status == 200
            assert (await client.ask("POST", INFERENCE, {"prompt": "hi"})).status == 200
            assert (await client.ask("GET", "/nothing")).status == 404


async def test_connection_close_closes_at_once(nursery: trio.Nursery, tmp_path: Path) -> None:
    node = await start_node(nursery, tmp_path)
    async with await node.connect() as client:
        answer = await client.ask("GET", HEALTH, headers={"Connection": "close"})
        assert answer.status == 200
        assert answer.headers["connection"] == "close"
        with trio.fail_after(5):
            assert await client.at_end()


async def test_http_1_0_is_answered_and_closed(nursery: trio.Nursery, tmp_path: Path) -> None:
    node = await start_node(nursery, tmp_path)
    response = parse(await raw(node, b"GET /api/v1/health HTTP/1.0\r\n\r\n"))
    assert response.status == 200
    assert response.json["healthy"] is True


async def test_pipelined_requests_are_answered_in_order(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    node = await start_node(nursery, tmp_path)
    last = b"GET /nothing HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n"
    response = await raw(node, HEALTH_REQUEST * 2 + last)
    assert [part[:3] for part in response.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200", b"404"]


async def test_nothing_is_served_after_connection_close(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "LINGER_S", 0.05)
    monkeypatch.setattr(transport, "CLOSE_S", 0.05)
    node = await start_node(nursery, tmp_path)
    first = b"GET /nothing HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n"
    response = await raw(node, first + HEALTH_REQUEST)
    assert response.count(b"HTTP/1.1 ") == 1
    node.shutdown.set()
    with trio.fail_after(5):
        await node.ended.wait()


async def test_an_idle_connection_is_closed(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "KEEP_ALIVE_S", 0.2)
    node = await start_node(nursery, tmp_path)
    async with await node.connect() as client:
        assert (await client.ask("GET", HEALTH)).status == 200
        assert await client.at_end()


async def test_a_head_that_dribbles_in_gets_no_more_time_than_one_that_does_not_come(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "KEEP_ALIVE_S", 0.3)
    node = await start_node(nursery, tmp_path)
    stream = await trio.open_tcp_stream(*node.address)
    async with stream:
        started = trio.current_time()
        try:
            with trio.fail_after(20):
                while True:
                    await stream.send_all(b"G")
                    await trio.sleep(0.05)
        except trio.BrokenResourceError:
            pass
        assert trio.current_time() - started < 5


async def test_a_body_that_does_not_arrive_is_a_timeout(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "BODY_TIMEOUT_S", 0.1)
    node = await start_node(nursery, tmp_path)
    async with await node.connect() as client:
        headers = {"Content-Type": "application/json", "Content-Length": "100"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"POST {INFERENCE} HTTP/1.1\r\nHost: n\r\nAuthorization: Bearer {TOKEN}\r\n{lines}"
        await client.stream.send_all(head.encode() + b'\r\n{"prompt"')
        answer = parse(await read_all(client.stream))
        assert answer.status == 408
        assert answer.code == "REQUEST_TIMEOUT"


async def test_a_stalled_reader_is_dropped_and_its_generation_ends(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "STALL_S", 0.3)
    node = await start_node(nursery, tmp_path, executor=FakeExecutor(text="x" * 4000))
    stream = await stalled_stream(node)
    with trio.fail_after(10):
        await node.executor.generations[0].left.wait()
    await trio.aclose_forcefully(stream)


async def test_a_slow_reader_that_still_reads_is_served(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "STALL_S", 0.5)
    node = await start_node(nursery, tmp_path, executor=FakeExecutor(text="x" * 30_000))
    async with await node.connect() as client:
        body = {"prompt": "hi", "max_tokens": 50, "stream": True}
        await client.send("POST", INFERENCE, body)
        size = 0
        await client.head()
        while chunk := await client.chunk():
            size += len(chunk)
            await trio.sleep(0.01)
        assert size > 1_500_000


# The end of the server


async def test_shutdown_closes_idle_connections_and_the_port_at_once(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    node = await start_node(nursery, tmp_path, grace_s=60)
    async with await node.connect() as client, await node.connect() as silent:
        await client.ask("GET", HEALTH)
        node.shutdown.set()
        with trio.fail_after(2):
            assert await client.at_end()
            assert await silent.at_end()
            await node.ended.wait()
    with pytest.raises(OSError, match="all attempts to connect"):
        await trio.open_tcp_stream(*node.address)


async def test_shutdown_lets_responses_in_flight_finish(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    permits = trio.Semaphore(0)
    node = await start_node(nursery, tmp_path, executor=FakeExecutor(permits=permits), grace_s=60)
    async with await node.connect() as streaming, await node.connect() as waiting:
        body = {"prompt": "hi", "max_tokens": 2}
        await streaming.send("POST", INFERENCE, {**body, "stream": True})
        await waiting.send("POST", INFERENCE, body)
        await wait_until(lambda: len(node.executor.generations) == 2)
        node.shutdown.set()
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(6):
            permits.release()
        assert (await streaming.answer()).events[-1]["token"] == "[DONE]"
        assert (await waiting.answer()).json["text"] == "token-0 token-1 "
        with trio.fail_after(2):
            await node.ended.wait()


async def test_shutdown_does_not_wait_for_a_stalled_reader(
    nursery: trio.Nursery, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = await start_node(nursery, tmp_path, executor=FakeExecutor(text="x" * 4000), grace_s=0.2)
    stream = await stalled_stream(node)
    node.shutdown.set()
    with trio.fail_after(2.5):
        await node.ended.wait()
    assert node.executor.generations[0].left.is_set()
    assert caplog.records == []
    await trio.aclose_forcefully(stream)


async def test_cancelling_the_server_ends_it_at_once_and_quietly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with trio.open_nursery() as nursery:
        node = await start_node(nursery, tmp_path, executor=FakeExecutor(text="x" * 4000))
        stalled = await stalled_stream(node)
        idle = await node.connect()
        await idle.ask("GET", HEALTH)
        started = trio.current_time()
        nursery.cancel_scope.cancel()
    assert trio.current_time() - started < 3
    assert node.executor.active == 0
    assert caplog.records == []
    await trio.aclose_forcefully(stalled)
    await trio.aclose_forcefully(idle.stream)


# Listening


async def test_a_taken_port_is_one_clear_line(nursery: trio.Nursery, tmp_path: Path) -> None:
    node = await start_node(nursery, tmp_path)
    host, port = node.address
    with pytest.raises(StartupError) as caught:
        await serve_http(None, host, port, shutdown=trio.Event(), grace_s=0)
    assert str(caught.value) == f"port {port} is already in use on {host}"


@pytest.mark.parametrize("host", ["203.0.113.1", "no-such-host.invalid"])
async def test_an_address_of_another_machine_is_one_clear_line(host: str) -> None:
    with pytest.raises(StartupError, match="cannot listen on") as caught:
        await serve_http(None, host, 0, shutdown=trio.Event(), grace_s=0)
    assert host in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_port_can_be_taken_again_right_after_the_end(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    node = await start_node(nursery, tmp_path)
    async with await node.connect() as client:
        await client.ask("GET", HEALTH)
        node.shutdown.set()
        await node.ended.wait()
    shutdown = trio.Event()

    async def again(*, task_status: trio.TaskStatus[tuple[str, int]]) -> None:
        await serve_http(None, *node.address, shutdown=shutdown, grace_s=0, task_status=task_status)

    assert await nursery.start(again) == node.address
    shutdown.set()


async def test_too_many_connections_are_told_so(nursery: trio.Nursery, tmp_path: Path) -> None:
    node = await start_node(nursery, tmp_path, max_connections=2)
    async with await node.connect() as one, await node.connect() as two:
        assert (await one.ask("GET", HEALTH)).status == 200
        assert (await two.ask("GET", HEALTH)).status == 200
        stream = await trio.open_tcp_stream(*node.address)
        async with stream:
            answer = parse(await read_all(stream))
        assert (answer.status, answer.code) == (503, "UNAVAILABLE")
        assert (await one.ask("GET", HEALTH)).status == 200


# What is not HTTP/1


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
    with trio.fail_after(2):
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
    """A few requests in a row, with some bytes changed, lost or added."""
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
        monkeypatch.setattr(transport, name, 0.1)
    monkeypatch.setattr(app_module, "BODY_TIMEOUT_S", 0.1)
    limits = {"limits.burst_per_address": 10_000, "limits.burst_per_token": 10_000}
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
    with trio.fail_after(2):
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
        with trio.fail_after(10), pytest.raises(trio.BrokenResourceError):
            await send_for_ever(stream, b"10000\r\n" + b" " * 65536 + b"\r\n")


async def send_for_ever(stream: trio.SocketStream, data: bytes) -> None:
    while True:
        await stream.send_all(data)


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
    async def crashing(scope: dict, receive: Callable, send: Callable) -> None:
        raise RuntimeError("secret internals")

    _, _, address = await start_server(nursery, crashing)
    for _ in range(2):
        stream = await trio.open_tcp_stream(*address)
        async with stream:
            await stream.send_all(HEALTH_REQUEST)
            response = await read_all(stream)
        assert response.startswith(b"HTTP/1.1 500")
        assert b"secret" not in response
    assert {record.levelno for record in caplog.records} == {logging.ERROR}
