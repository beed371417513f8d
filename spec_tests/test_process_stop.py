"""Stopping a node: drains, deadlines, second signals, and services that die (decisions/0006)."""

import signal
import socket
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from support_process import (
    ANSWERS_WITHIN_S,
    ENDS_WITHIN_S,
    Node,
    events_of,
    running_node,
    wait_until,
)

pytestmark = pytest.mark.process

# The default model ends a text within a second; a drain can only be watched on a slower one.
SLOW = """
import time
from meshnode.model.engine import Engine
decode = Engine.decode
def slow_decode(self, sessions):
    time.sleep({seconds})
    return decode(self, sessions)
Engine.decode = slow_decode
"""
# Or on one that goes no further than its first token, as long as there is a file.
HELD = """
import os, time
from meshnode.model.engine import Engine
decode = Engine.decode
def held_decode(self, sessions):
    while os.path.exists({file!r}):
        time.sleep(0.01)
    return decode(self, sessions)
Engine.decode = held_decode
"""
PATIENT = {"MESHNODE_DRAIN_S": "900"}
# Each token's event is made this much larger, so that a reader who stalls fills every buffer.
LARGE_EVENTS = """
from meshnode.wire import sse
encode = sse.encode_event
sse.encode_event = lambda value: b": " + b"x" * 1_000_000 + b"\\n" + encode(value)
"""
CRASHING = """
from meshnode.services import executor
async def step(self):
    while not self.active:
        self._work = executor.trio.Event()
        await self._work.wait()
    raise RuntimeError("a fault in the executor")
executor.Executor.step = step
"""
FLAKY_EDGE = """
from functools import partial
import trio
import meshnode.node as node
serve_grpc, crashes = node.serve_grpc, [1]
async def flaky(*arguments, task_status, **options):
    if not crashes:
        return await serve_grpc(*arguments, task_status=task_status, **options)
    crashes.pop()
    async with trio.open_nursery() as nursery:
        task_status.started(await nursery.start(partial(serve_grpc, *arguments, **options)))
        raise RuntimeError("a fault in the edge")
node.serve_grpc = flaky
"""

STORY = {"prompt": "Once upon a time", "max_tokens": 30, "temperature": 0}


def health_word(node: Node) -> tuple[int, str]:
    answer = node.ask("GET", "/api/v1/health", token=None)
    return answer.status, answer.json["checks"]["network"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_node_stops_at_once_with_status_0(tmp_path: Path, number: signal.Signals) -> None:
    with running_node(tmp_path / "data") as node:
        node.signal(number)
        status, log = node.wait()
        assert status == 0, log
        assert f"{number.name}: draining" in log
        assert "Traceback" not in log


def test_a_drain_lets_streams_finish_and_refuses_new_work(tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    with running_node(tmp_path / "data", prelude=HELD.format(file=str(hold)), **PATIENT) as node:
        undisturbed = node.ask("POST", "/api/v1/inference", STORY).json
        hold.touch()
        stream = node.open_stream(STORY)
        events = events_of(stream)
        texts = [next(events)["token"]]
        with grpc.insecure_channel(f"127.0.0.1:{node.port + 1000}") as channel:
            health = health_pb2_grpc.HealthStub(channel)
            watch = health.Watch(health_pb2.HealthCheckRequest(), timeout=ANSWERS_WITHIN_S)
            assert next(watch).status == health_pb2.HealthCheckResponse.SERVING

            node.signal(signal.SIGTERM)
            assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
            assert health_word(node) == (503, "draining")
            status = node.ask("GET", "/api/v1/status", token=None).json
            assert status["status"] == "draining"
            refused = node.ask("POST", "/api/v1/inference", STORY)
            assert refused.status == 503
            assert refused.json["error"]["code"] == "UNAVAILABLE"

        hold.unlink()
        *rest, last = events
        texts += [event["token"] for event in rest]
        assert last["token"] == "[DONE]"
        assert last["usage"] == undisturbed["usage"]
        assert "".join(texts) == undisturbed["text"]
        status, log = node.wait()
        assert status == 0, log
        assert "deadline" not in log


def test_a_stream_that_outlives_the_deadline_is_cancelled(tmp_path: Path) -> None:
    variables = {"MESHNODE_DRAIN_S": "0.5"}
    with running_node(tmp_path / "data", prelude=SLOW.format(seconds=1), **variables) as node:
        stream = node.open_stream(STORY)
        events = events_of(stream)
        next(events)
        node.signal(signal.SIGTERM)
        status, log = node.wait()
        assert status == 0, log
        assert "deadline passed" in log
        assert "[DONE]" not in [event["token"] for event in drained(events)]


def drained(events):
    """What still came before the connection was cut."""
    try:
        yield from events
    except (ConnectionError, ValueError):
        return


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    with running_node(tmp_path / "data", prelude=HELD.format(file=str(hold)), **PATIENT) as node:
        stream = node.open_stream(STORY)
        next(events_of(stream))
        node.signal(signal.SIGTERM)
        wait_until(lambda: health_word(node) == (503, "draining"))
        node.signal(signal.SIGINT)
        status, log = node.wait()
        assert status == 128 + signal.SIGINT, log
        assert "ending at once" in log


def test_a_stalled_reader_does_not_hold_up_the_drain(tmp_path: Path) -> None:
    with running_node(tmp_path / "data", prelude=LARGE_EVENTS, **PATIENT) as node:
        body, headers = node.payload({**STORY, "max_tokens": 100, "stream": True}, "")
        with socket.create_connection(("127.0.0.1", node.port)) as reader:
            head = [b"POST /api/v1/inference HTTP/1.1", b"Host: node"]
            head += [f"{name}: {value}".encode() for name, value in headers.items()]
            head += [f"Content-Length: {len(body)}".encode(), b"", body]
            reader.sendall(b"\r\n".join(head))
            assert reader.recv(12) == b"HTTP/1.1 200"
            # From here on nothing is read, and a hundred megabytes are on their way.
            node.signal(signal.SIGTERM)
            # Long before the drain's deadline.
            status, log = node.wait()
            assert status == 0, log
            assert "deadline" not in log


def test_a_service_that_fails_for_good_ends_the_node_and_is_named(tmp_path: Path) -> None:
    with running_node(tmp_path / "data", prelude=CRASHING) as node:
        assert health_word(node) == (200, "ok")
        with pytest.raises(ConnectionError):
            node.ask("POST", "/api/v1/inference", STORY)
        status, log = node.wait()
        assert status == 1
        assert "service executor failed for good; the node ends" in log
        assert log.splitlines()[-1] == "meshnode: service executor failed for good"
        assert "RuntimeError: a fault in the executor" in log


def test_a_stateless_edge_that_crashes_is_started_again(tmp_path: Path) -> None:
    with running_node(tmp_path / "data", prelude=FLAKY_EDGE) as node:
        with grpc.insecure_channel(f"127.0.0.1:{node.port + 1000}") as channel:
            health = health_pb2_grpc.HealthStub(channel)
            request = health_pb2.HealthCheckRequest()
            answer = health.Check(request, timeout=ANSWERS_WITHIN_S, wait_for_ready=True)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        assert health_word(node) == (200, "ok")
        assert "service grpc crashed" in node.log()
        assert "a fault in the edge" in node.log()
        node.signal(signal.SIGTERM)
        assert node.wait()[0] == 0


def test_a_killed_client_frees_its_place(tmp_path: Path) -> None:
    # It would take longer than is waited for its end.
    slow = SLOW.format(seconds=2 * ENDS_WITHIN_S / 400)
    with running_node(tmp_path / "data", prelude=slow, **PATIENT) as node:
        stream = node.open_stream({**STORY, "max_tokens": 400})
        next(events_of(stream))
        stream.close()
        node.connections.pop().close()
        # An open generation would keep the drain waiting.
        node.signal(signal.SIGTERM)
        status, log = node.wait()
        assert status == 0, log
        assert "deadline" not in log
