"""Absence is a finding, and a server error shows nothing: what a probe makes of odd servers."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from conformance.catalogue import Profile
from conformance.judging.hooks import gone
from conformance.judging.toy.answers import error
from conformance.judging.toy.node import TOKEN
from conformance.judging.toy.serving import Serving
from conformance.probe import probe
from conformance.run import Runner
from conformance.session import with_probe
from conformance.target import make_target
from conformance.tests.conftest import Judge
from conformance.verdict import Outcome, Standing

Answers = Callable[[str], tuple[int, Any]]
NODE = {
    "/api/v1/status": {"node_id": "n", "uptime_seconds": 1},
    "/api/v1/health": {"healthy": True, "checks": {}},
    "/api/v1/config": {"port": 8000, "grpc_port": 9000},
}


@contextmanager
def serving(answers: Answers) -> Iterator[str]:
    """Serve JSON with these statuses."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

        def do_GET(self) -> None:
            """Answer from the table."""
            status, body = answers(self.path.partition("?")[0])
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def only_node(path: str) -> tuple[int, Any]:
    """Serve a few routes of the node API, and fail at all other paths."""
    return (200, NODE[path]) if path in NODE else (500, {"detail": "Internal Server Error"})


def test_a_server_error_on_one_path_makes_no_family() -> None:
    with serving(only_node) as url:
        found = probe(make_target({"url": url}))
    assert Profile.NODE_API in found.profiles
    assert Profile.NATIVE_API not in found.profiles
    assert "0 of 5 routes tried" in found.absent[Profile.NATIVE_API]


def test_one_route_alone_makes_no_family() -> None:
    with serving(lambda path: (200, {"height": 1}) if path == "/api/network" else (404, {})) as url:
        found = probe(make_target({"url": url}))
    assert found.profiles == frozenset()


def test_a_node_that_names_a_grpc_port_without_serving_it_is_told_once() -> None:
    with serving(only_node) as url:
        target = with_probe(make_target({"url": url, "token": "t", "timeout_s": 2}))
        assert Profile.GRPC in target.profiles
        run = Runner(target).run()
    blamed = {
        item.requirement.id
        for item in run.results
        if item.requirement.profile in (Profile.GRPC, Profile.DHT, Profile.PIPELINE)
        and item.outcome in (Outcome.FAIL, Outcome.OPEN)
    }
    assert blamed == {"GEN-002"}


def test_a_service_of_another_name_is_told_once(toy: Serving, judge: Judge) -> None:
    def elsewhere(path: str) -> str | None:
        service, _, operation = path.removeprefix("/").partition("/")
        return operation if service == "NodeService" else None

    kept, toy.node.operation_of = toy.node.operation_of, elsewhere
    try:
        run = judge(profiles=frozenset({Profile.GRPC, Profile.DHT, Profile.PIPELINE}), examples=1)
    finally:
        toy.node.operation_of = kept
    failed = {item.requirement.id: item for item in run.results if item.outcome is Outcome.FAIL}
    assert set(failed) == {"GR-NAME-001"}
    assert "it answers as NodeService" in failed["GR-NAME-001"].reason


def test_a_missing_route_of_a_served_family_is_violated(toy: Serving) -> None:
    toy.node.http_hook = gone("/api/training/verify")
    target = with_probe(make_target({"url": toy.url, "token": TOKEN}))
    assert Profile.TRAINING in target.profiles
    run = Runner(target, only=["TR-ROUTE-002"]).run()
    result = next(item for item in run.results if item.requirement.id == "TR-ROUTE-002")
    assert result.standing is Standing.VIOLATED


def test_a_503_may_pass_and_a_500_that_comes_twice_is_wrong(toy: Serving, judge: Judge) -> None:
    for status, standing in ((503, Standing.INCONCLUSIVE), (500, Standing.VIOLATED)):

        def hook(asked: Any, response: Any, status: int = status) -> None:
            if asked.path == "/api/v1/peers":
                response.status = status

        toy.node.http_hook = hook
        run = judge("NA-ROUTE-010")
        result = next(item for item in run.results if item.requirement.id == "NA-ROUTE-010")
        assert result.standing is standing


def test_a_stream_that_is_always_cut_is_violated(toy: Serving, judge: Judge) -> None:
    def hook(asked: Any, response: Any) -> None:
        response.cut = response.events is not None

    toy.node.http_hook = hook
    run = judge("NA-INF-011", examples=1)
    result = next(item for item in run.results if item.requirement.id == "NA-INF-011")
    assert (result.standing, result.reason) == (Standing.VIOLATED, "the stream is cut twice")


@pytest.mark.parametrize(
    ("ident", "method", "path"),
    [
        ("NT-ROUTE-007", "GET", "/api/block/7"),
        ("NT-ROUTE-008", "GET", "/api/account"),
        ("NT-ROUTE-018", "POST", "/rpc"),
    ],
)
@pytest.mark.parametrize("status", [404, 405])
def test_a_native_route_is_missed_without_any_declaration(
    ident: str, method: str, path: str, status: int, toy: Serving, judge: Judge
) -> None:
    bare: dict[str, Any] = {"public_key": None, "rpc": None, "field_map": {}}

    def hook(asked: Any, response: Any) -> None:
        gone = (asked.method, asked.path) == (method, path)
        if gone or "no-such" in asked.path:
            response.__dict__.update(error(status if gone else 404, "NOT_FOUND", "no").__dict__)

    def standing() -> Standing:
        run = judge(ident, **bare)
        return next(item.standing for item in run.results if item.requirement.id == ident)

    assert standing() is Standing.PROVED
    toy.node.http_hook = hook
    assert standing() is Standing.VIOLATED


def test_an_account_that_is_missing_is_no_missing_route(toy: Serving, judge: Judge) -> None:
    def hook(asked: Any, response: Any) -> None:
        if asked.path == "/api/account":
            response.__dict__.update(error(404, "NOT_FOUND", "no such account").__dict__)

    toy.node.http_hook = hook
    run = judge("NT-ROUTE-008", public_key=None)
    result = next(item for item in run.results if item.requirement.id == "NT-ROUTE-008")
    assert result.standing is Standing.NOT_EXERCISED
