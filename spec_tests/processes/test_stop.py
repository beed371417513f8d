"""Stopping a node: drains, deadlines, second signals, and services that die (decision 0006)."""

import signal
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from spec_tests.processes import changes
from spec_tests.processes.calls import Call
from spec_tests.processes.nodes import (
    ANSWERS_WITHIN_S,
    ENDS_WITHIN_S,
    Node,
    events_of,
    running_node,
    wait_until,
)

pytestmark = pytest.mark.process

PATIENT = {"MESHNODE_DRAIN_S": "900"}

STORY = {"prompt": "Once upon a time", "max_tokens": 30, "temperature": 0}


def held_by(file: Path) -> Call:
    return partial(changes.hold_decoding, file=str(file))


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
    with running_node(
        tmp_path / "data", changes=[partial(changes.hold_decoding, file=str(hold))], **PATIENT
    ) as node:
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
    with running_node(
        tmp_path / "data", changes=[partial(changes.decode_slowly, seconds=1)], **variables
    ) as node:
        stream = node.open_stream(STORY)
        events = events_of(stream)
        next(events)
        node.signal(signal.SIGTERM)
        status, log = node.wait()
        assert status == 0, log
        assert "deadline passed" in log
        assert "[DONE]" not in [event["token"] for event in drained(events)]


def drained(events: Any) -> Iterator[Any]:
    """The events that still came before the connection was cut."""
    try:
        yield from events
    except (ConnectionError, ValueError):
        return


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    with running_node(
        tmp_path / "data", changes=[partial(changes.hold_decoding, file=str(hold))], **PATIENT
    ) as node:
        stream = node.open_stream(STORY)
        next(events_of(stream))
        node.signal(signal.SIGTERM)
        wait_until(lambda: health_word(node) == (503, "draining"))
        node.signal(signal.SIGINT)
        status, log = node.wait()
        assert status == 128 + signal.SIGINT, log
        assert "ending at once" in log


@pytest.mark.slow
def test_a_stalled_reader_does_not_hold_up_the_drain(tmp_path: Path) -> None:
    with running_node(
        tmp_path / "data", changes=[partial(changes.enlarge_events)], **PATIENT
    ) as node:
        body, headers = node.payload({**STORY, "max_tokens": 100, "stream": True}, "")
        assert body is not None
        with socket.create_connection(("127.0.0.1", node.port)) as reader:
            head = [b"POST /api/v1/inference HTTP/1.1", b"Host: node"]
            head += [f"{name}: {value}".encode() for name, value in headers.items()]
            head += [f"Content-Length: {len(body)}".encode(), b"", body]
            reader.sendall(b"\r\n".join(head))
            assert reader.recv(12) == b"HTTP/1.1 200"
            # From here on the reader reads nothing, while a hundred megabytes are to be sent.
            node.signal(signal.SIGTERM)
            # The node ends long before the drain's deadline.
            status, log = node.wait()
            assert status == 0, log
            assert "deadline" not in log


def test_a_service_that_fails_for_good_ends_the_node_and_is_named(tmp_path: Path) -> None:
    with running_node(tmp_path / "data", changes=[partial(changes.crash_executor)]) as node:
        assert health_word(node) == (200, "ok")
        with pytest.raises(ConnectionError):
            node.ask("POST", "/api/v1/inference", STORY)
        status, log = node.wait()
        assert status == 1
        assert "service executor failed for good; the node ends" in log
        assert log.splitlines()[-1] == "meshnode: service executor failed for good"
        assert "RuntimeError: a fault in the executor" in log


def test_a_stateless_edge_that_crashes_is_started_again(tmp_path: Path) -> None:
    with running_node(tmp_path / "data", changes=[partial(changes.crash_grpc_once)]) as node:
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
    # To its end, the stream would take longer than the test waits for the node's end.
    slow = partial(changes.decode_slowly, seconds=2 * ENDS_WITHIN_S / 400)
    with running_node(tmp_path / "data", changes=[slow], **PATIENT) as node:
        stream = node.open_stream({**STORY, "max_tokens": 400})
        next(events_of(stream))
        stream.close()
        node.connections.pop().close()
        # If the generation were still open, the drain would wait for it.
        node.signal(signal.SIGTERM)
        status, log = node.wait()
        assert status == 0, log
        assert "deadline" not in log
