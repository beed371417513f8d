"""Each request is logged in one line, which holds nothing the client wrote (decision 0114)."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import trio

from spec_tests.edges.http_server import FakeExecutor, Served, start_node, wait_until

pytestmark = pytest.mark.wire

INFERENCE = "/api/v1/inference"
LOGGER = "meshnode.http.access_log"
SECRET = "do-not-log-this"


@pytest.fixture
async def node(nursery: trio.Nursery, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Served:
    caplog.set_level(logging.INFO, LOGGER)
    return await start_node(nursery, tmp_path, log_requests=True)


def fields(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(record)["fields"] for record in caplog.records if record.name == LOGGER]


async def test_a_request_has_one_line(node: Served, caplog: pytest.LogCaptureFixture) -> None:
    answer = await node.ask("GET", "/api/v1/status")
    await wait_until(lambda: fields(caplog))
    (line,) = fields(caplog)
    assert line.pop("ms") >= 0
    assert line == {
        "method": "GET",
        "route": "/api/v1/status",
        "status": 200,
        "request_id": answer.headers["x-request-id"],
    }


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_generation_says_how_many_tokens_it_made(
    node: Served, caplog: pytest.LogCaptureFixture, streamed: bool
) -> None:
    await node.ask("POST", INFERENCE, {"prompt": SECRET, "max_tokens": 7, "stream": streamed})
    await wait_until(lambda: fields(caplog))
    (line,) = fields(caplog)
    assert (line["route"], line["status"], line["tokens"]) == (INFERENCE, 200, 7)
    assert "complete" not in line


async def test_a_client_that_leaves_has_a_line_too(
    nursery: trio.Nursery, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    executor = FakeExecutor(permits=trio.Semaphore(2))
    node = await start_node(nursery, tmp_path, executor=executor, log_requests=True)
    async with await node.connect() as client:
        await client.send("POST", INFERENCE, {"prompt": "hi", "stream": True})
        await client.head()
        while not (await client.chunk()).startswith(b'data: {"token":"token-1'):
            pass
    await wait_until(lambda: fields(caplog))
    (line,) = fields(caplog)
    assert (line["status"], line["tokens"], line["complete"]) == (200, 2, False)


async def test_nothing_that_the_client_wrote_is_in_the_log(
    node: Served, caplog: pytest.LogCaptureFixture
) -> None:
    headers = {"X-Request-Id": SECRET, "User-Agent": SECRET, "Referer": SECRET}
    asked = [
        ("GET", f"/{SECRET}", None, 404),
        ("GET", f"/api/v1/status?token={SECRET}", None, 200),
        ("GET", f"ftp://{SECRET}/", None, 400),
        (SECRET.upper(), "/api/v1/status", None, 405),
        ("POST", INFERENCE, {"prompt": SECRET, "max_tokens": 1, SECRET: SECRET}, 200),
        ("POST", INFERENCE, {"prompt": "", "x": SECRET}, 400),
        ("GET", "/api/v1/layers", None, 401),
    ]
    for method, path, body, status in asked:
        token = SECRET if status == 401 else "test-operator-token"
        answer = await node.ask(method, path, body, headers=headers, token=token)
        assert answer.status == status
    await wait_until(lambda: len(fields(caplog)) == len(asked))
    lines = fields(caplog)
    assert [line["status"] for line in lines] == [status for *_, status in asked]
    assert [line["method"] for line in lines][3] == "other"
    assert [line["route"] for line in lines][:3] == [None, "/api/v1/status", None]
    text = json.dumps(lines) + "".join(record.getMessage() for record in caplog.records)
    assert SECRET not in text.lower()
    assert "test-operator-token" not in text


async def test_it_can_be_switched_off(
    nursery: trio.Nursery, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    node = await start_node(nursery, tmp_path, log_requests=False)
    assert (await node.ask("GET", "/api/v1/status")).status == 200
    node.shutdown.set()
    with trio.fail_after(60):
        await node.ended.wait()
    assert fields(caplog) == []
