"""A transfer in a plain request takes the short way, on which a client sees no difference."""

import base64
import json
from pathlib import Path

import pytest
import trio

from meshnode.http.native import NativeGate
from meshnode.http.prompt import MAX_BODY_BYTES, plain_request
from spec_tests.domain.chain.net import ALICE, BOB
from spec_tests.edges.http_server import Answer
from spec_tests.edges.native_gateway import Gateway, check_answer, start_gateway
from spec_tests.edges.raw_http import next_answer

pytestmark = pytest.mark.wire

ORDINARY = b"x-other: 1\r\n"
"""A header that no plain request has."""
JSON = b"Content-Type: application/json\r\n"
CALL = {"jsonrpc": "2.0", "id": 1, "method": "broadcast_tx_sync"}


@pytest.fixture
async def gateway(nursery: trio.Nursery, tmp_path: Path) -> Gateway:
    return await start_gateway(nursery, tmp_path)


def head(body: bytes, more: bytes = b"", path: bytes = b"/rpc") -> bytes:
    named = b"" if b"Host:" in more else b"Host: node\r\n"
    length = b"Content-Length: %d\r\n" % len(body)
    return b"POST %b HTTP/1.1\r\n%b%b%b\r\n" % (path, named, length, more)


def post(body: bytes, more: bytes = b"", path: bytes = b"/rpc") -> bytes:
    return head(body, more, path) + body


async def ask(gateway: Gateway, *pieces: bytes, pause_s: float = 0.0) -> Answer:
    async with await trio.open_tcp_stream(*gateway.address) as stream:
        for number, piece in enumerate(pieces):
            if number:
                await trio.sleep(pause_s)
            await stream.send_all(piece)
        return await next_answer(stream)


async def transfers(gateway: Gateway, count: int) -> list[bytes]:
    """Bodies of transfers that the chain accepts in this order."""
    first = await gateway.body(ALICE, "transfer", to=BOB.key, amount=1)
    raw = [ALICE.sign({**first, "nonce": int(str(first["nonce"])) + i}) for i in range(count)]
    return [call(tx=base64.b64encode(one).decode()) for one in raw]


def call(**params: object) -> bytes:
    return json.dumps({**CALL, "params": params}).encode()


def compared(answer: Answer) -> tuple[int, list[str]]:
    check_answer(answer)
    return answer.status, sorted(answer.headers)


async def test_both_ways_accept_transfers(gateway: Gateway, short_way: list[str]) -> None:
    first, second, third = await transfers(gateway, 3)
    short = await ask(gateway, post(first, JSON))
    assert short_way == ["/rpc"]
    long = await ask(gateway, post(second, JSON + ORDINARY))
    apart = await ask(gateway, head(third, JSON + b"Connection: keep-alive\r\n"), third)
    assert short_way == ["/rpc"] * 2
    assert compared(short) == compared(long) == compared(apart)
    for answer in (short, long, apart):
        result = answer.json["result"]
        assert result["code"] == 0, result
        with trio.fail_after(60):
            await gateway.ledger.wait_transaction(result["hash"])


REFUSED = {
    "no JSON": (b'{"broadcast_tx_sync"', b"", 400),
    "not an object": (b'["broadcast_tx_sync"]', b"", 400),
    "nested": (b"[" * 40 + b'"broadcast_tx_sync"', b"", 400),
    "no transaction": (call(), b"", 400),
    "not base64": (call(tx="?"), b"", 400),
    "not signed": (call(tx="e30="), b"", 400),
    "unknown parameter": (call(tx="e30=", more=1), b"", 400),
    "another method": (b'{"method": "nothing", "id": "broadcast_tx_sync"}', b"", 400),
    "a form": (call(tx="e30="), b"Content-Type: text/plain\r\n", 415),
    "another site's name": (call(tx="e30="), b"Host: evil.example\r\n", 403),
    "a status, by its id": (b'{"method": "status", "id": "broadcast_tx_sync"}', b"", 200),
}


@pytest.mark.parametrize(("body", "more", "status"), REFUSED.values(), ids=REFUSED)
async def test_both_ways_refuse_in_the_same_words(
    gateway: Gateway, short_way: list[str], body: bytes, more: bytes, status: int
) -> None:
    short = await ask(gateway, post(body, more))
    assert short_way == ["/rpc"]
    long = await ask(gateway, post(body, more + ORDINARY))
    assert short_way == ["/rpc"]
    assert compared(short) == compared(long)
    assert short.status == status
    assert short.json == long.json


async def test_a_draining_node_refuses_both(gateway: Gateway, short_way: list[str]) -> None:
    first, second = await transfers(gateway, 2)
    gateway.draining[0] = True
    short, long = await ask(gateway, post(first)), await ask(gateway, post(second, ORDINARY))
    assert short_way == ["/rpc"]
    assert (short.status, short.json) == (long.status, long.json)
    assert short.status == 503


async def test_the_rate_limit_counts_both(nursery: trio.Nursery, tmp_path: Path) -> None:
    gateway = await start_gateway(nursery, tmp_path, gate=NativeGate(2))
    named, body = JSON + b"X-Real-IP: 198.51.100.1\r\n", call(tx="e30=")
    assert (await ask(gateway, post(body, named))).status == 400
    assert (await ask(gateway, post(body, named + ORDINARY))).status == 400
    short = await ask(gateway, post(body, named))
    long = await ask(gateway, post(body, named + ORDINARY))
    assert short.status == long.status == 429
    assert compared(short) == compared(long)


async def test_a_body_that_comes_late_or_never(gateway: Gateway, short_way: list[str]) -> None:
    first, second = await transfers(gateway, 2)
    late = await ask(gateway, head(first), first, pause_s=0.2)
    assert late.json["result"]["code"] == 0
    crumbs = [second[at : at + 40] for at in range(0, len(second), 40)]
    slow = await ask(gateway, head(second), *crumbs, pause_s=0.03)
    assert slow.json["result"]["code"] == 0
    async with await trio.open_tcp_stream(*gateway.address) as stream:
        await stream.send_all(head(first) + first[:50])
        await stream.send_eof()
        with trio.fail_after(60):
            assert await stream.receive_some() == b""
    assert short_way == []


async def test_a_request_behind_a_transfer_is_answered(
    gateway: Gateway, short_way: list[str]
) -> None:
    first, second = await transfers(gateway, 2)
    async with await trio.open_tcp_stream(*gateway.address) as stream:
        await stream.send_all(post(first) + post(second, JSON))
        received, found = b"", 0
        with trio.fail_after(60):
            while found < 2:
                received += await stream.receive_some()
                found = received.count(b'"code":0')
    assert short_way == []
    assert received.count(b"HTTP/1.1 200") == 2


BODY = call(tx="e30=")
NOT_PLAIN = {
    "two lengths": post(BODY, b"Content-Length: %d\r\n" % len(BODY)),
    "a length of another form": post(BODY).replace(b"Length: ", b"Length: 0"),
    "no length": b"POST /rpc HTTP/1.1\r\nHost: node\r\n\r\n",
    "chunks": b"POST /rpc HTTP/1.1\r\nHost: node\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two types": post(BODY, JSON + JSON),
    "a coding": post(BODY, b"Content-Encoding: gzip\r\n"),
    "an expectation": post(BODY, b"Expect: 100-continue\r\n"),
    "an origin": post(BODY, b"Origin: http://node\r\n"),
    "another connection": post(BODY, b"Connection: keep-alive, close\r\n"),
    "too much": post(b'"broadcast_tx_sync"'.ljust(MAX_BODY_BYTES + 1)),
    "more than it says": post(BODY) + b" ",
}


@pytest.mark.parametrize("data", NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_everything_else_is_not_plain(data: bytes) -> None:
    assert plain_request(data) is None


def test_what_is_missing_of_a_body() -> None:
    for length in range(len(BODY) + 1):
        found = plain_request(head(BODY) + BODY[:length])
        assert found is not None
        assert (found.body, found.missing) == (BODY[:length], len(BODY) - length)
