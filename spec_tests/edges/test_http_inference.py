"""POST /inference (interface 2.1, 4.1 and 6): one result, or a stream, and clients that leave."""

from pathlib import Path
from typing import Any

import pytest
import trio

from meshnode.domain.errors import (
    ComputationFailed,
    InsufficientBalance,
    InvalidRequest,
    LayersUnavailable,
    RateLimited,
    Unavailable,
)
from meshnode.domain.generation import GenerationRequest
from meshnode.domain.shares import Requester, Standing
from spec_tests.edges.http_server import FakeExecutor, Served, start_node, wait_until

pytestmark = pytest.mark.wire

INFERENCE = "/api/v1/inference"
JSON = {"Content-Type": "application/json"}


async def gated(nursery: trio.Nursery, tmp_path: Path) -> tuple[Served, trio.Semaphore]:
    """Start a node that generates one token for each permit that the test releases."""
    permits = trio.Semaphore(0)
    return await start_node(nursery, tmp_path, executor=FakeExecutor(permits=permits)), permits


async def test_the_result_has_the_documented_fields(nursery: trio.Nursery, tmp_path: Path) -> None:
    node = await start_node(nursery, tmp_path)
    answer = await node.ask("POST", INFERENCE, {"prompt": "hello", "max_tokens": 3})
    assert answer.status == 200
    identifier = answer.json["id"]
    assert answer.json == {
        "id": identifier,
        "text": "token-0 token-1 token-2 ",
        "tokens_generated": 3,
        "finish_reason": "length",
        "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8},
        "cost": {"amount": 0.0, "currency": "MESH"},
        "timing": {"queue_ms": 0.5, "inference_ms": 12.0, "total_ms": 12.5},
    }
    assert isinstance(identifier, str)
    assert type(answer.json["cost"]["amount"]) is float


async def test_parameters_reach_the_engine(nursery: trio.Nursery, tmp_path: Path) -> None:
    node = await start_node(nursery, tmp_path)
    body = {"prompt": "é", "max_tokens": 2.0, "temperature": 0, "stop": ["x"], "unknown": [1]}
    assert (await node.ask("POST", INFERENCE, body)).status == 200
    assert node.executor.generations[0].request == GenerationRequest(
        prompt="é",
        max_tokens=2,
        temperature=0.0,
        stop=("x",),
        requester=Requester(Standing.PAYING, "operator"),
    )


async def test_a_stream_has_the_documented_events(nursery: trio.Nursery, tmp_path: Path) -> None:
    node = await start_node(nursery, tmp_path, executor=FakeExecutor(text='"\n\u2028é{}'))
    body = {"prompt": "hello", "max_tokens": 2, "stream": True}
    answer = await node.ask("POST", INFERENCE, body)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.events == [
        {"token": '"\n\u2028é0', "index": 0},
        {"token": '"\n\u2028é1', "index": 1},
        {
            "token": "[DONE]",
            "finish_reason": "length",
            "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
        },
    ]


async def test_tokens_are_sent_as_they_are_made(nursery: trio.Nursery, tmp_path: Path) -> None:
    node, permits = await gated(nursery, tmp_path)
    async with await node.connect() as client:
        await client.send("POST", INFERENCE, {"prompt": "hi", "stream": True})
        with trio.fail_after(60):
            assert (await client.head())[0] == 200  # the head comes before the first token
            for index in range(5):
                permits.release()
                event = await client.chunk()
                assert event == b'data: {"token":"token-%d ","index":%d}\n\n' % (index, index)


async def test_a_connection_serves_requests_after_a_stream(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    node = await start_node(nursery, tmp_path)
    async with await node.connect() as client:
        for _ in range(3):
            body = {"prompt": "hi", "max_tokens": 2, "stream": True}
            assert len((await client.ask("POST", INFERENCE, body)).events) == 3
    await wait_until(lambda: node.executor.active == 0)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("half_close", [True, False])
async def test_a_client_that_goes_away_ends_its_generation_within_one_step(
    nursery: trio.Nursery, tmp_path: Path, stream: bool, half_close: bool
) -> None:
    node, permits = await gated(nursery, tmp_path)
    client = await node.connect()
    await client.send("POST", INFERENCE, {"prompt": "hi", "stream": stream})
    await wait_until(lambda: node.executor.generations)
    (generation,) = node.executor.generations
    for _ in range(3):
        permits.release()
    await wait_until(lambda: generation.made == 3)
    if half_close:
        await client.stream.send_eof()
    else:
        await trio.aclose_forcefully(client.stream)
    with trio.fail_after(60):
        await generation.left.wait()
    permits.release()
    await trio.testing.wait_all_tasks_blocked()
    assert generation.made == 3
    await trio.aclose_forcefully(client.stream)


async def test_a_client_that_goes_away_in_a_busy_stream_ends_it(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    node = await start_node(nursery, tmp_path)
    client = await node.connect()
    body = {"prompt": "hi", "max_tokens": 10**9, "stream": True}
    await client.send("POST", INFERENCE, body)
    await client.head()
    await client.chunk()
    await trio.aclose_forcefully(client.stream)
    with trio.fail_after(60):
        await node.executor.generations[0].left.wait()


@pytest.mark.parametrize(
    ("failure", "code"),
    [(ComputationFailed(), "INTERNAL_ERROR"), (Unavailable("the node stops"), "UNAVAILABLE")],
)
async def test_an_error_in_a_stream_is_an_event_then_the_end(
    nursery: trio.Nursery, tmp_path: Path, failure: Exception, code: str
) -> None:
    executor = FakeExecutor(fail_after=2, failure=failure)
    node = await start_node(nursery, tmp_path, executor=executor)
    async with await node.connect() as client:
        answer = await client.ask("POST", INFERENCE, {"prompt": "hi", "stream": True})
        assert answer.status == 200
        assert [event.get("index") for event in answer.events] == [0, 1, None]
        assert answer.events[2] == {"error": {"code": code, "message": str(failure)}}
        assert (await client.ask("GET", "/api/v1/health")).status == 200
    await wait_until(lambda: executor.active == 0)


async def test_an_unforeseen_error_in_a_stream_shows_nothing(
    nursery: trio.Nursery, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = await start_node(nursery, tmp_path, executor=FakeExecutor(fail_after=0))
    answer = await node.ask("POST", INFERENCE, {"prompt": "hi", "stream": True})
    assert answer.events == [{"error": {"code": "INTERNAL_ERROR", "message": "internal error"}}]
    (record,) = caplog.records
    assert vars(record)["fields"]["request_id"] == answer.headers["x-request-id"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("refusal", "status", "code", "details"),
    [
        (
            InvalidRequest("prompt", "does not fit"),
            400,
            "INVALID_REQUEST",
            {"field": "prompt", "reason": "does not fit"},
        ),
        (
            InsufficientBalance(2.5, 1.0),
            402,
            "INSUFFICIENT_BALANCE",
            {"required": 2.5, "available": 1.0},
        ),
        (RateLimited(7), 429, "RATE_LIMITED", {"retry_after": 7}),
        (Unavailable("draining"), 503, "UNAVAILABLE", None),
        (LayersUnavailable("no holder of layer 3"), 503, "UNAVAILABLE", None),
    ],
)
async def test_what_the_engine_refuses_has_its_status_also_for_streams(
    nursery: trio.Nursery,
    tmp_path: Path,
    stream: bool,
    refusal: Exception,
    status: int,
    code: str,
    details: dict[str, Any] | None,
) -> None:
    node = await start_node(nursery, tmp_path, executor=FakeExecutor(refuse=refusal))
    answer = await node.ask("POST", INFERENCE, {"prompt": "hi", "stream": stream})
    assert (answer.status, answer.code, answer.details) == (status, code, details)
    assert ("retry-after" in answer.headers) is (status in (429, 503))


@pytest.mark.parametrize("stream", [True, False])
async def test_a_draining_node_refuses_new_work_and_finishes_what_it_has(
    nursery: trio.Nursery, tmp_path: Path, stream: bool
) -> None:
    node, permits = await gated(nursery, tmp_path)
    async with await node.connect() as client:
        body = {"prompt": "hi", "max_tokens": 1, "stream": stream}
        await client.send("POST", INFERENCE, body)
        await wait_until(lambda: node.executor.generations)
        node.drain.begin()
        refused = await node.ask("POST", INFERENCE, body)
        assert (refused.status, refused.code) == (503, "UNAVAILABLE")
        assert int(refused.headers["retry-after"]) > 0
        permits.release()
        permits.release()
        assert (await client.answer()).status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 415),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "application/jsonp"}, 415),
        ({"Content-Type": "application/json; charset=latin-1"}, 415),
        ({"Content-Type": "application/json; charset=utf-16"}, 415),
        ({**JSON, "Content-Encoding": "gzip"}, 415),
        (JSON, 200),
        ({"Content-Type": "application/json;charset=UTF-8"}, 200),
        ({"Content-Type": 'Application/JSON; charset="utf-8"'}, 200),
        ({"Content-Type": "application/json; odd=1"}, 200),
        ({**JSON, "Content-Encoding": "identity"}, 200),
    ],
)
async def test_bodies_are_json_in_utf8(
    nursery: trio.Nursery, tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    node = await start_node(nursery, tmp_path)
    body = b'{"prompt": "hi", "max_tokens": 1}'
    answer = await node.ask("POST", INFERENCE, body, headers=headers)
    assert answer.status == status
    if status == 415:
        assert answer.code == "UNSUPPORTED_MEDIA_TYPE"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", "body"),
        (b"{", "body"),
        (b"[]", "body"),
        (b'"prompt"', "body"),
        (b"null", "body"),
        (b'{"prompt": "hi", "temperature": NaN}', "body"),
        (b'{"prompt": "hi", "prompt": "ho"}', "body"),
        (b'{"prompt": "hi", "x": ' + b"[" * 5000 + b"]" * 5000 + b"}", "body"),
        (b'{"prompt": "hi", "x": ' + b"[" * 400_000, "body"),
        (b'{"prompt": "\xff"}', "body"),
        (b"\xef\xbb\xbf{}", "body"),
        (b'{"prompt": "\\ud800"}', "prompt"),
        (b"{}", "prompt"),
        (b'{"prompt": 5}', "prompt"),
        (b'{"prompt": "hi", "max_tokens": true}', "max_tokens"),
        (b'{"prompt": "hi", "temperature": 2.01}', "temperature"),
        (b'{"prompt": "hi", "stop": ["a", 5]}', "stop[1]"),
        (b'{"prompt": "hi", "stream": "yes"}', "stream"),
        (b'{"prompt": "hi", "top_k": null}', "top_k"),
    ],
)
async def test_bad_bodies_name_the_field_and_the_reason(
    nursery: trio.Nursery, tmp_path: Path, body: bytes, field: str
) -> None:
    node = await start_node(nursery, tmp_path)
    answer = await node.ask("POST", INFERENCE, body, headers=JSON)
    assert (answer.status, answer.code) == (400, "INVALID_REQUEST")
    assert answer.details["field"] == field
    assert answer.details["reason"]
    assert len(answer.body) < 500
    assert node.executor.generations == []


async def test_many_streams_at_once_are_all_whole(nursery: trio.Nursery, tmp_path: Path) -> None:
    node = await start_node(nursery, tmp_path)
    ended = []

    async def read_one() -> None:
        body = {"prompt": "hi", "max_tokens": 20, "stream": True}
        answer = await node.ask("POST", INFERENCE, body)
        assert [event.get("index") for event in answer.events] == [*range(20), None]
        ended.append(1)

    async with trio.open_nursery() as clients:
        for _ in range(32):
            clients.start_soon(read_one)
    assert len(ended) == 32
    await wait_until(lambda: node.executor.active == 0)


# Keys in the body that no rule knows (decision 0115)


async def test_unknown_keys_are_named_beside_the_result(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    node = await start_node(nursery, tmp_path)
    body = {"prompt": "hi", "max_tokens": 1, "temprature": 0.1, "user": "me"}
    expected = [
        "the unknown parameter 'temprature' was ignored; did you mean temperature?",
        "the unknown parameter 'user' was ignored",
    ]
    answer = await node.ask("POST", INFERENCE, body)
    assert (answer.status, answer.json["warnings"]) == (200, expected)
    events = (await node.ask("POST", INFERENCE, {**body, "stream": True})).events
    assert events[-1]["warnings"] == expected
    assert all("warnings" not in event for event in events[:-1])


async def test_without_unknown_keys_nothing_is_added(nursery: trio.Nursery, tmp_path: Path) -> None:
    node = await start_node(nursery, tmp_path)
    body = {"prompt": "hi", "max_tokens": 1, "seed": 1, "stop": ["x"], "top_p": 1, "top_k": 5}
    assert "warnings" not in (await node.ask("POST", INFERENCE, body)).json
    events = (await node.ask("POST", INFERENCE, {**body, "stream": True})).events
    assert set(events[-1]) == {"token", "finish_reason", "usage"}


async def test_warnings_are_bounded_and_safe(nursery: trio.Nursery, tmp_path: Path) -> None:
    node = await start_node(nursery, tmp_path)
    odd = {"\ud800\n\x1b[2J": 1, "x" * 100_000: 1, **{f"key{n}": "secret" for n in range(500)}}
    answer = await node.ask("POST", INFERENCE, {"prompt": "hi", "max_tokens": 1, **odd})
    warnings = answer.json["warnings"]
    assert len(warnings) == 9
    assert warnings[0] == "the unknown parameter '???[2J' was ignored"
    assert warnings[-1] == "494 more unknown parameters were ignored"
    assert all(len(warning) < 150 and warning.isprintable() for warning in warnings)
    assert "secret" not in str(warnings)
