"""Requests at native paths refused before any handler get native answers (interface 4.2)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from meshnode.http.http1 import path_of
from spec_tests.edges.http_server import Answer, PlainApplication, start_node, start_server
from spec_tests.edges.native_gateway import Gateway, check_answer, start_gateway
from spec_tests.edges.raw_http import parse, raw

pytestmark = pytest.mark.wire

LONG = b"y" * 20_000
HEADS = [
    (b"Host: a\r\nbad header\r\n\r\n", 400),
    (b"Host: a\r\nHost: b\r\n\r\n", 400),
    (b"\r\n", 400),
    (b"Host: a\r\nContent-Length: x\r\n\r\n", 400),
    (b"Host: a\r\nContent-Length: -1\r\n\r\n", 400),
    (b"Host: a\r\nContent-Length: 1, 2\r\n\r\n", 400),
    (b"Host: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 400),
    (b"Host: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    (b"Host: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
    (b"Host: a\r\nTransfer-Encoding: nothing\r\n\r\n", 501),
    (b"Host: a\r\nX: " + LONG, 431),
    (b"Host: a\r\nX: " + LONG + b"\r\n\r\n", 431),
]
PATHS = (b"/healthz", b"/api/network", b"/rpc", b"/work/poll", b"/network/genesis.json", b"/join")


@pytest.fixture
async def gateway(nursery: trio.Nursery, tmp_path: Path) -> Gateway:
    return await start_gateway(nursery, tmp_path)


def refused(response: bytes, status: int) -> Answer:
    answer = parse(response)
    assert answer.status == status
    check_answer(answer)
    assert set(answer.json) == {"error"}
    assert answer.json["error"]
    return answer


@pytest.mark.parametrize(("head", "status"), HEADS)
async def test_a_head_that_is_not_understood(gateway: Gateway, head: bytes, status: int) -> None:
    for path in PATHS:
        refused(await raw(gateway, b"POST " + path + b" HTTP/1.1\r\n" + head), status)
    assert (await gateway.ask("GET", "/healthz")).status == 200


async def test_a_target_that_is_too_long(gateway: Gateway) -> None:
    for target in (b"/api/block/" + LONG, b"/api/blocks?limit=" + LONG):
        refused(await raw(gateway, b"GET " + target), 431)
        refused(await raw(gateway, b"GET " + target + b" HTTP/1.1\r\nHost: a\r\n\r\n"), 431)


async def test_another_version_of_http(gateway: Gateway) -> None:
    refused(await raw(gateway, b"GET /healthz HTTP/9.9\r\nHost: a\r\n\r\n"), 505)


async def test_the_answer_to_head_has_no_body(gateway: Gateway) -> None:
    for rest in (
        b" HTTP/9.9\r\nHost: a\r\n\r\n",
        b" HTTP/1.1\r\nHost: a\r\nX: " + LONG + b"\r\n\r\n",
    ):
        head, _, body = (await raw(gateway, b"HEAD /healthz" + rest)).partition(b"\r\n\r\n")
        assert head.split()[1] in (b"505", b"431")
        assert body == b""
    assert (await gateway.ask("GET", "/healthz")).status == 200


async def test_a_body_that_is_not_understood(gateway: Gateway) -> None:
    head = b"POST /rpc HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    refused(await raw(gateway, head + b"zz\r\nbad\r\n"), 400)


@pytest.mark.parametrize(
    ("path", "size", "status"),
    [("/rpc", 32_769, 400), ("/work/poll", 4097, 400), ("/work/result", 2_000_001, 400)],
)
async def test_a_body_that_is_too_large(
    gateway: Gateway, path: str, size: int, status: int
) -> None:
    answer = await gateway.ask("POST", path, b" " * size)
    assert answer.status == status
    check_answer(answer)
    chunked = await gateway.ask("POST", path, b" " * size, headers={"Transfer-Encoding": "chunked"})
    assert chunked.status in (400, 413)
    check_answer(chunked)


async def test_an_answer_that_has_begun_is_finished(nursery: trio.Nursery) -> None:
    """The application refuses before the body has arrived, and the body then is malformed."""
    goes_on = trio.Event()

    async def application(scope: Any, receive: Callable[..., Any], send: Any) -> None:
        headers = [(b"content-length", b"6")]
        await send({"type": "http.response.start", "status": 400, "headers": headers})
        await send({"type": "http.response.body", "body": b"abc", "more_body": True})
        await goes_on.wait()
        await send({"type": "http.response.body", "body": b"def", "more_body": False})

    _, _, address = await start_server(nursery, PlainApplication(application))
    stream = await trio.open_tcp_stream(*address)
    async with stream:
        await stream.send_all(
            b"POST /rpc HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        got = b""
        with trio.fail_after(120):
            while not got.endswith(b"abc"):
                got += await stream.receive_some()
            for junk in (b"zz\r\nbad\r\n", b"x" * 100_000):
                await stream.send_all(junk)
            goes_on.set()
            rest = b"".join([chunk async for chunk in stream])
    assert (got + rest).endswith(b"\r\n\r\nabcdef")


async def test_the_second_of_two_requests_at_once_has_the_answer_of_its_own_api(
    gateway: Gateway,
) -> None:
    for first, second, native in (
        (b"/healthz", b"/nowhere", False),
        (b"/nowhere", b"/healthz", True),
    ):
        whole = b"GET " + first + b" HTTP/1.1\r\nHost: a\r\n\r\n"
        bad = b"GET " + second + b" HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n"
        answers = (await raw(gateway, whole + bad)).split(b"HTTP/1.1 ")
        answer = parse(b"HTTP/1.1 " + answers[-1])
        assert answer.status == 400
        assert isinstance(answer.json["error"], str) == native


async def test_a_request_that_arrives_byte_by_byte(gateway: Gateway) -> None:
    stream = await trio.open_tcp_stream(*gateway.address)
    async with stream:
        for byte in b"GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n":
            await stream.send_all(bytes([byte]))
        with trio.fail_after(120):
            refused(b"".join([chunk async for chunk in stream]), 400)


async def test_other_paths_have_the_other_body(nursery: trio.Nursery, tmp_path: Path) -> None:
    node = await start_node(nursery, tmp_path)
    for path in (b"/api/v1/status", b"/", b"*", b"nonsense"):
        answer = parse(await raw(node, b"GET " + path + b" HTTP/1.1\r\nHost: a\r\nX y\r\n\r\n"))
        assert (answer.status, answer.code) == (400, "INVALID_REQUEST")
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("beginning", "path"),
    [
        (b"GET /rpc HTTP/1.1\r\n", "/rpc"),
        (b"\r\n\r\nPOST /rpc?x=/healthz HTTP/1.1\r\n", "/rpc"),
        (b"GET http://a:1/healthz?x HTTP/1.1\r\n", "/healthz"),
        (b"GET HTTPS://a HTTP/1.1\r\n", ""),
        (b"GET /%72pc HTTP/1.1\r\n", "/rpc"),
        (b"GET /\xff HTTP/1.1\r\n", "/\xff"),
        (b"GET /api/blo", "/api/blo"),
        (b"OPTIONS * HTTP/1.1\r\n", ""),
        (b"GET\r\nX: /rpc\r\n", ""),
        (b"\x16\x03\x01 /rpc", "/rpc"),
        (b"", ""),
    ],
)
def test_the_path_of_a_request_by_its_beginning(beginning: bytes, path: str) -> None:
    assert path_of(beginning) == path
