"""Silence, resets, garbage and cut bodies prove nothing; 402 and 429 are judged."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from conformance import messages
from conformance.catalogue import Effect, Profile
from conformance.checks.passes import gradient_shape
from conformance.context import Service
from conformance.ended import Run
from conformance.judging.toy.answers import Asked, Response, error
from conformance.judging.toy.serving import Serving
from conformance.run import Runner
from conformance.target import Target
from conformance.tests.conftest import Judge
from conformance.verdict import Exit, Standing


def standing_of(run: Run, ident: str) -> Standing:
    """Return the standing of one requirement."""
    return next(item.standing for item in run.results if item.requirement.id == ident)


def hostile(reply: Callable[[socket.socket], Any]) -> Any:
    """Serve every connection with one function, which may leave it open."""

    @contextmanager
    def serving() -> Iterator[str]:
        held: list[socket.socket] = []
        with socket.create_server(("127.0.0.1", 0)) as listener:
            stopped = threading.Event()

            def accept() -> None:
                while not stopped.is_set():
                    try:
                        connection, _ = listener.accept()
                    except OSError:
                        return
                    held.append(connection)
                    reply(connection)

            thread = threading.Thread(target=accept)
            thread.start()
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            stopped.set()
            # This wakes up the accept.
            socket.create_connection(listener.getsockname()).close()
            thread.join()
            for connection in held:
                connection.close()

    return serving()


def sends(data: bytes) -> Callable[[socket.socket], None]:
    """Send some bytes and close."""

    def reply(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(data)
        connection.close()

    return reply


OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
HOSTILE: dict[str, Callable[[socket.socket], Any]] = {
    "silent": lambda connection: None,
    "closing at once": lambda connection: connection.close(),
    "talking garbage": sends(b"\x00\x01\x02 hello\r\n\r\n"),
    "cutting the body": sends(OK + b"Content-Length: 100\r\n\r\n{"),
    "cutting a chunk": sends(OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{"),
    "cutting the head": sends(b"HTTP/1.1 200 OK\r\nContent-Le"),
}


@pytest.mark.parametrize(
    "reply", HOSTILE.values(), ids=[name.replace(" ", "-") for name in HOSTILE]
)
def test_no_whole_answer_is_inconclusive_and_never_proved(
    reply: Callable[[socket.socket], Any],
) -> None:
    with hostile(reply) as url:
        target = Target(
            url,
            profiles=frozenset({Profile.NODE_API}),
            token="t",
            allow=frozenset({Effect.SPEND}),
            timeout_s=0.2,
            inference_timeout_s=0.2,
        )
        run = Runner(target, only=["NA-ROUTE-001", "NA-ROUTE-004", "NA-SSE-001"]).run()
    assert run.faults == {}
    assert not any(item.standing is Standing.PROVED for item in run.results)
    assert standing_of(run, "NA-ROUTE-001") is Standing.INCONCLUSIVE
    assert standing_of(run, "NA-SSE-001") is Standing.INCONCLUSIVE
    # A stream that is cut twice is a violation.
    assert run.ended() in (Exit.INCONCLUSIVE, Exit.VIOLATED)


def test_a_port_where_nobody_listens_is_inconclusive() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    target = Target(
        f"http://127.0.0.1:{port}",
        profiles=frozenset({Profile.NODE_API, Profile.GRPC}),
        grpc=f"127.0.0.1:{port}",
        timeout_s=1,
    )
    run = Runner(target, only=["NA-ROUTE-001", "GR-OP-006"]).run()
    assert standing_of(run, "NA-ROUTE-001") is Standing.INCONCLUSIVE
    assert standing_of(run, "GR-OP-006") is Standing.INCONCLUSIVE


def test_a_trickle_ends_at_the_time_out() -> None:
    def drip(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(OK + b"\r\n")
        try:
            while True:
                connection.sendall(b" ")
                threading.Event().wait(0.02)
        except OSError:
            return

    with hostile(drip) as url:
        target = Target(url, profiles=frozenset({Profile.NODE_API}), timeout_s=0.2)
        # The drops never end, so the run ends only if it does not wait for them.
        run = Runner(target, only=["NA-ROUTE-002"]).run()
    assert standing_of(run, "NA-ROUTE-002") is Standing.INCONCLUSIVE


def test_a_stream_that_is_cut_off_is_inconclusive(toy: Serving, judge: Judge) -> None:
    def hook(asked: Asked, response: Response) -> None:
        response.cut = response.events is not None

    toy.node.http_hook = hook
    run = judge("NA-SSE-005")
    assert standing_of(run, "NA-SSE-005") is Standing.INCONCLUSIVE


def test_a_server_that_cannot_serve_now_is_not_blamed_for_the_rule(
    toy: Serving, judge: Judge
) -> None:
    def hook(asked: Asked, response: Response) -> None:
        response.__dict__.update(error(503, "UNAVAILABLE", "sorry").__dict__)

    toy.node.http_hook = hook
    run = judge("NA-ROUTE-001")
    assert standing_of(run, "NA-ROUTE-001") is Standing.INCONCLUSIVE


def limiting(body: Any) -> Callable[[Asked, Response], None]:
    """Answer every second request with this 429."""
    count = 0

    def hook(asked: Asked, response: Response) -> None:
        nonlocal count
        count += 1
        if count % 2:
            response.status, response.json, response.events = 429, body, None

    return hook


@pytest.mark.parametrize(
    ("body", "ident"),
    [
        ({"error": {"code": "SLOW", "message": "", "details": {"retry_after": 0}}}, "NA-ERR-006"),
        ({"error": {"code": "RATE_LIMITED", "message": "", "details": {"retry_after": "soon"}}},
         "NA-ERR-007"),
        ({"error": {"code": "RATE_LIMITED", "message": "", "details": {"retry_after": -1}}},
         "NA-ERR-007"),
        ({"error": {"code": "RATE_LIMITED", "message": "", "details": []}}, "NA-ERR-004"),
        ({"error": "slow down"}, "NA-ERR-001"),
    ],
)  # fmt: skip
def test_a_429_is_waited_out_and_its_body_judged(
    body: Any, ident: str, toy: Serving, judge: Judge
) -> None:
    toy.node.http_hook = limiting(body)
    run = judge("NA-HEALTH-001")
    assert standing_of(run, ident) is Standing.VIOLATED
    assert standing_of(run, "NA-HEALTH-001") is Standing.PROVED


def test_a_429_that_never_ends_is_inconclusive(toy: Serving, judge: Judge) -> None:
    def hook(asked: Asked, response: Response) -> None:
        limited = error(429, "RATE_LIMITED", "never", retry_after=3600)
        response.__dict__.update(limited.__dict__)

    toy.node.http_hook = hook
    run = judge("NA-HEALTH-001")
    assert standing_of(run, "NA-HEALTH-001") is Standing.INCONCLUSIVE
    assert standing_of(run, "NA-ERR-007") is Standing.PROVED


@pytest.mark.parametrize(
    ("details", "code", "ident", "expected"),
    [
        ({"required": 5, "available": 0.5}, "INSUFFICIENT_BALANCE", "NA-ERR-010", Standing.PROVED),
        ({"available": 0.5}, "INSUFFICIENT_BALANCE", "NA-ERR-010", Standing.VIOLATED),
        ({"required": 5}, "INSUFFICIENT_BALANCE", "NA-ERR-011", Standing.VIOLATED),
        ({"required": 5, "available": 0.5}, "POOR", "NA-ERR-009", Standing.VIOLATED),
    ],
)
def test_a_402_does_not_count_as_a_refusal_of_the_parameters(
    details: Any, code: str, ident: str, expected: Standing, toy: Serving, judge: Judge
) -> None:
    def hook(asked: Asked, response: Response) -> None:
        if asked.path == "/api/v1/inference" and asked.authorized:
            poor = error(402, code, "too little", **details)
            response.__dict__.update({**poor.__dict__, "events": None})

    toy.node.http_hook = hook
    run = judge("NA-INF-005")
    assert standing_of(run, ident) is expected
    assert standing_of(run, "NA-INF-005") is Standing.INCONCLUSIVE


def test_a_configuration_that_cannot_be_put_back_is_reported(toy: Serving, judge: Judge) -> None:
    changed = 0

    def hook(asked: Asked, response: Response) -> None:
        nonlocal changed
        if asked.path == "/api/v1/config" and asked.authorized and response.status == 200:
            if asked.method == "PATCH":
                changed += 1
            else:
                response.json["training"]["batch_size"] += changed

    toy.node.http_hook = hook
    run = judge("NA-PATCH-103", examples=1)
    assert run.residue
    assert "training.batch_size" in run.residue[0]


@pytest.mark.parametrize("name", ["silent", "closing at once", "talking garbage"])
def test_a_port_that_speaks_no_grpc_is_inconclusive(name: str) -> None:
    with hostile(HOSTILE[name]) as url:
        target = Target(
            url,
            profiles=frozenset({Profile.GRPC, Profile.DHT}),
            grpc=url.removeprefix("http://"),
            timeout_s=0.3,
        )
        run = Runner(target, only=["GR-OP-006", "GR-OP-015", "GR-CODE-001"]).run()
    assert run.faults == {}
    assert not any(item.standing is Standing.PROVED for item in run.results)
    assert standing_of(run, "GR-OP-006") is Standing.INCONCLUSIVE
    assert standing_of(run, "GR-OP-015") is Standing.INCONCLUSIVE


def test_a_web_server_on_the_grpc_port_proves_nothing(toy: Serving, judge: Judge) -> None:
    run = judge("GR-OP-006", grpc=toy.url.removeprefix("http://"))
    assert standing_of(run, "GR-OP-006") is not Standing.PROVED


@pytest.mark.parametrize("shape", [[99] * 44, [2**40], [1, 2, 2**30], [-1, 2, 8], [0], []])
def test_a_shape_that_nobody_has_memory_for_makes_no_gradient(shape: list[int]) -> None:
    logits = messages.make("PipelineForwardResponse", logits=b"few", logits_shape=shape)
    context: Any = SimpleNamespace(service=Service())
    assert gradient_shape(context, logits) == []
    states = messages.make("PipelineForwardResponse", hidden_states=b"few", hidden_shape=shape)
    assert gradient_shape(context, states) == []


def test_gradients_of_hidden_states_have_the_shape_that_was_sent() -> None:
    last = messages.make("PipelineForwardResponse", logits=b"few", logits_shape=[1, 1, 32])
    service = Service()
    service.other_gradients = True
    target = SimpleNamespace(pipeline={"hidden_shape": [1, 4, 16]})
    context: Any = SimpleNamespace(service=service, target=target)
    assert gradient_shape(context, last) == [1, 4, 16]
    assert gradient_shape(context, last, [1, 5, 16]) == [1, 5, 16]
