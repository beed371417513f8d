"""The HTTP server on real sockets: connections end when they should, and leave nothing behind."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from hypercorn.events import Event, RawData

from meshnode.domain.errors import StartupError
from meshnode.http import app as app_module
from meshnode.http import server, transport
from meshnode.http.http1 import Http1
from meshnode.http.server import serve_http
from meshnode.turns import ClientTurns
from spec_tests.edges.http_server import (
    TOKEN,
    FakeExecutor,
    start_node,
    wait_until,
)
from spec_tests.edges.raw_http import (
    HEALTH,
    HEALTH_REQUEST,
    INFERENCE,
    parse,
    raw,
    read_all,
    stalled_stream,
)

pytestmark = pytest.mark.wire

# Connections that are kept and connections that are closed


NO_APP: Any = None
"""Stands for the application of servers that end before any request."""


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
        with trio.fail_after(60):
            assert await client.at_end()


async def test_head_and_body_leave_in_one_send(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sends: list[bytes] = []
    send = transport.Connection._send

    async def noting(connection: transport.Connection, data: bytes) -> None:
        sends.append(data)
        await send(connection, data)

    monkeypatch.setattr(transport.Connection, "_send", noting)
    node = await start_node(nursery, tmp_path)
    async with await node.connect() as client:
        assert (await client.ask("GET", HEALTH)).status == 200
        assert len(sends) == 1
        answer = await client.ask("HEAD", HEALTH)
        assert (answer.status, answer.body, len(sends)) == (200, b"", 2)


async def test_the_head_of_a_stream_does_not_wait(nursery: trio.Nursery, tmp_path: Path) -> None:
    """A browser's EventSource calls a connection open when it has the head."""
    executor = FakeExecutor(permits=trio.Semaphore(0))
    node = await start_node(nursery, tmp_path, executor=executor)
    async with await node.connect() as client:
        await client.send("POST", INFERENCE, {"prompt": "hi", "stream": True})
        with trio.fail_after(60):
            assert (await client.stream.receive_some()).startswith(b"HTTP/1.1 200")


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


async def test_each_pipelined_request_waits_for_its_turn(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One read of 64 KiB may bring a thousand of them (decision 0141)."""
    turns = 0

    async def wait(client: ClientTurns, left: Callable[[], bool]) -> bool:
        nonlocal turns
        turns += 1
        await trio.lowlevel.checkpoint()
        return not left()

    monkeypatch.setattr(ClientTurns, "wait", wait)
    node = await start_node(nursery, tmp_path)
    last = b"GET /nothing HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n"
    response = await raw(node, HEALTH_REQUEST * 9 + last)
    assert response.count(b"HTTP/1.1 ") == 10
    assert turns >= 10


async def test_a_client_that_leaves_before_its_turn_is_not_served(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, seen = trio.Event(), trio.Event()

    async def wait(client: ClientTurns, left: Callable[[], bool]) -> bool:
        waiting.set()
        await wait_until(left)
        seen.set()
        return False

    async def handle(protocol: Http1, event: Event) -> None:
        assert not isinstance(event, RawData)
        await handle_event(protocol, event)

    handle_event = Http1.handle
    node = await start_node(nursery, tmp_path)
    monkeypatch.setattr(ClientTurns, "wait", wait)
    monkeypatch.setattr(Http1, "handle", handle)
    stream = await trio.open_tcp_stream(*node.address)
    # What it sent last would hide the end from whoever reads.
    await stream.send_all(HEALTH_REQUEST)
    with trio.fail_after(10):
        await waiting.wait()
        await stream.send_all(HEALTH_REQUEST)
        await stream.aclose()
        await seen.wait()


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
    with trio.fail_after(60):
        await node.ended.wait()


async def test_an_idle_connection_is_closed(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "KEEP_ALIVE_S", 1.0)
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
        try:
            with trio.fail_after(60):
                while True:
                    await stream.send_all(b"G")
                    await trio.sleep(0.05)
        except trio.BrokenResourceError:
            pass


async def test_a_body_that_does_not_arrive_is_a_timeout(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "BODY_TIMEOUT_S", 0.5)
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
    with trio.fail_after(60):
        await node.executor.generations[0].left.wait()
    await trio.aclose_forcefully(stream)


async def test_a_slow_reader_that_still_reads_is_served(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "STALL_S", 20.0)
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


# Shutdown


async def test_shutdown_closes_idle_connections_and_the_port_at_once(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    node = await start_node(nursery, tmp_path, grace_s=600)
    async with await node.connect() as client, await node.connect() as silent:
        await client.ask("GET", HEALTH)
        node.shutdown.set()
        with trio.fail_after(60):
            assert await client.at_end()
            assert await silent.at_end()
            await node.ended.wait()
    with pytest.raises(OSError, match="all attempts to connect"):
        await trio.open_tcp_stream(*node.address)


async def test_shutdown_lets_responses_in_flight_finish(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    permits = trio.Semaphore(0)
    node = await start_node(nursery, tmp_path, executor=FakeExecutor(permits=permits), grace_s=600)
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
        with trio.fail_after(60):
            await node.ended.wait()


async def test_shutdown_does_not_wait_for_a_stalled_reader(
    nursery: trio.Nursery, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = await start_node(nursery, tmp_path, executor=FakeExecutor(text="x" * 4000), grace_s=0.2)
    stream = await stalled_stream(node)
    node.shutdown.set()
    with trio.fail_after(60):
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
    assert trio.current_time() - started < 60
    assert node.executor.active == 0
    assert caplog.records == []
    await trio.aclose_forcefully(stalled)
    await trio.aclose_forcefully(idle.stream)


# Listening


async def test_a_taken_port_is_one_clear_line(nursery: trio.Nursery, tmp_path: Path) -> None:
    node = await start_node(nursery, tmp_path)
    host, port = node.address
    with pytest.raises(StartupError) as caught:
        await serve_http(NO_APP, host, port, shutdown=trio.Event(), grace_s=0)
    assert str(caught.value) == f"port {port} is already in use on {host}"


@pytest.mark.parametrize("host", ["203.0.113.1", "no-such-host.invalid"])
async def test_an_address_of_another_machine_is_one_clear_line(host: str) -> None:
    with pytest.raises(StartupError, match="cannot listen on") as caught:
        await serve_http(NO_APP, host, 0, shutdown=trio.Event(), grace_s=0)
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
        await serve_http(
            NO_APP, *node.address, shutdown=shutdown, grace_s=0, task_status=task_status
        )

    assert await nursery.start(again) == node.address
    shutdown.set()


async def test_a_newcomer_replaces_the_longest_idle(nursery: trio.Nursery, tmp_path: Path) -> None:
    node = await start_node(nursery, tmp_path, max_connections=2)
    async with await node.connect() as one, await node.connect() as two:
        assert (await two.ask("GET", HEALTH)).status == 200
        assert (await one.ask("GET", HEALTH)).status == 200
        async with await node.connect() as three:
            assert (await three.ask("GET", HEALTH)).status == 200
            with trio.fail_after(60):
                assert await two.stream.receive_some() == b""
            assert (await one.ask("GET", HEALTH)).status == 200


async def test_connections_that_work_are_not_replaced(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    permits = trio.Semaphore(0)
    executor = FakeExecutor(permits=permits)
    node = await start_node(nursery, tmp_path, executor=executor, max_connections=2)
    async with await node.connect() as one, await node.connect() as two:
        for client in (one, two):
            await client.send("POST", INFERENCE, {"prompt": "hi", "max_tokens": 1})
        await wait_until(lambda: len(executor.generations) == 2)
        async with await trio.open_tcp_stream(*node.address) as stream:
            answer = parse(await read_all(stream))
        assert (answer.status, answer.code) == (503, "UNAVAILABLE")
        for _ in range(4):
            permits.release()
        for client in (one, two):
            assert (await client.answer()).status == 200


async def test_a_request_that_never_arrives_in_full_gives_way(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    node = await start_node(nursery, tmp_path, max_connections=2)
    head = (
        f"POST {INFERENCE} HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer {TOKEN}\r\n"
        "Content-Type: application/json\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n"
    ).encode()
    async with await node.connect() as one, await node.connect() as two:
        for client in (one, two):
            await client.stream.send_all(head)
            assert b" 100 " in await client.stream.receive_some()
        async with await node.connect() as three:
            assert (await three.ask("GET", HEALTH)).status == 200
            with trio.fail_after(60):
                assert await read_all(one.stream) == b""


async def test_only_so_many_refusals_are_answered_at_one_time(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each refusal holds a descriptor for a while, so a flood must not get one per attempt."""
    monkeypatch.setattr(server, "MAX_REFUSALS", 1)
    permits = trio.Semaphore(0)
    executor = FakeExecutor(permits=permits)
    node = await start_node(nursery, tmp_path, executor=executor, max_connections=1)
    async with await node.connect() as one:
        await one.send("POST", INFERENCE, {"prompt": "hi", "max_tokens": 1})
        await wait_until(lambda: len(executor.generations) == 1)
        async with (
            await trio.open_tcp_stream(*node.address) as told,
            await trio.open_tcp_stream(*node.address) as dropped,
        ):
            with trio.fail_after(60):
                assert (await read_all(told)).startswith(b"HTTP/1.1 503")
                assert await _nothing_from(dropped)
        for _ in range(2):
            permits.release()
        assert (await one.answer()).status == 200


async def _nothing_from(stream: trio.SocketStream) -> bool:
    """Whether the server closed or reset the connection without sending a byte."""
    try:
        return await read_all(stream) == b""
    except trio.BrokenResourceError:
        return True
