"""What the engine's light client is answered, and by whom (decision 0221)."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.testing

from meshnode.domain.errors import RateLimited, Unavailable
from meshnode.services.engine import light
from meshnode.services.engine.light import LightServer, serve_questions
from spec_tests.services.ledger.ledgers import GENESIS

Reply = tuple[int, Any] | Exception


def gateway(monkeypatch: pytest.MonkeyPatch, *replies: Reply) -> list[tuple[str, str, bytes]]:
    """A gateway that answers so; returns what it is asked."""
    asked, left = list[tuple[str, str, bytes]](), list(replies)

    async def fetch(url: str, path: str, *, body: bytes, **options: object) -> tuple[int, bytes]:
        asked.append((url, path, body))
        reply = left.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply[0], json.dumps(reply[1]).encode()

    monkeypatch.setattr(light, "fetch", fetch)
    return asked


async def answer(method: str, **params: str) -> dict[str, Any]:
    question = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    return await LightServer("http://a:1", GENESIS).answer(json.dumps(question).encode())


async def test_commits_and_validators_are_the_gateways(monkeypatch: pytest.MonkeyPatch) -> None:
    result = {"jsonrpc": "2.0", "id": 7, "result": {"canonical": True}}
    asked = gateway(monkeypatch, (200, result), (200, result))
    assert await answer("commit", height="5") == result
    assert await answer("validators", height="5", page="1", per_page="100") == result
    assert [(url, path) for url, path, _ in asked] == [("http://a:1", "/rpc")] * 2
    assert json.loads(asked[0][2])["params"] == {"height": "5"}


async def test_parameters_are_those_of_the_genesis(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = gateway(monkeypatch)
    found = (await answer("consensus_params", height="5"))["result"]
    assert found["block_height"] == "5"
    assert found["consensus_params"] == json.loads(GENESIS)["consensus_params"]
    assert not asked


@pytest.mark.parametrize("method", ["broadcast_tx_sync", "status", "dump_consensus_state", ""])
async def test_nothing_else_reaches_the_gateway(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    asked = gateway(monkeypatch)
    assert "is not asked here" in (await answer(method))["error"]["data"]
    assert not asked


async def test_a_refusal_has_the_words_by_which_light_clients_know_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = "height 9 must be less than or equal to the current blockchain height 5"
    refusal = {"error": json.dumps({"code": -32603, "message": "Internal error", "data": words})}
    gateway(monkeypatch, (400, refusal), (503, {"error": "the node is not ready"}))
    assert (await answer("commit", height="9"))["error"]["data"] == words
    assert (await answer("commit", height="9"))["error"]["data"] == "the node is not ready"


async def test_a_gateway_that_is_busy_is_asked_again_and_one_that_is_gone_is_an_error(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    result = {"jsonrpc": "2.0", "id": 7, "result": {}}
    asked = gateway(monkeypatch, RateLimited(2), (200, result), Unavailable("no connection"))
    assert await answer("commit", height="1") == result
    assert len(asked) == 2
    assert (await answer("commit", height="1"))["error"]["data"] == "no connection"
    gateway(monkeypatch, *[RateLimited(5)] * 9)
    assert "too long" in (await answer("commit", height="1"))["error"]["data"]


async def test_questions_follow_one_another_on_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    server, limit = LightServer("http://a:1", GENESIS), trio.CapacityLimiter(1)
    body = json.dumps({"id": 3, "method": "consensus_params", "params": {"height": "2"}}).encode()
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_questions, server, limit, theirs)
        for _ in range(2):
            await ours.send_all(head + body)
            got = b""
            while b"vote_extensions_enable_height" not in got:
                got += bytes(await ours.receive_some(65536))
            assert got.startswith(b"HTTP/1.1 200")
        await ours.send_all(b"nonsense\r\n\r\n")
        assert await ours.receive_some(10) == b""


@pytest.mark.parametrize("body", [b"", b"[]", b"3", b"\xff", b'{"method": 3}'])
async def test_what_is_no_question_is_answered_as_such(body: bytes) -> None:
    found = await LightServer("http://a:1", GENESIS).answer(body)
    assert found["error"]["code"] == -32603
