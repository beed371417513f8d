"""Pings on a connection of gRPC, at a node of which nobody knows whether it answers them."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from conformance.catalogue import Profile
from conformance.checks import kept_connections
from conformance.editions import DRAFT
from conformance.run import Runner
from conformance.target import Target
from conformance.verdict import Standing

PINGED = "LIM-041"
# A frame of settings without any, and one that has been read.
SETTINGS, READ = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]), bytes([0, 0, 0, 4, 1, 0, 0, 0, 0])


@pytest.fixture
def silent() -> Iterator[str]:
    """Serve connections of HTTP/2 on which no ping is answered; yield the address."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                opened, _ = server.accept()
                opened.sendall(SETTINGS + READ)
                with closing(opened):
                    while opened.recv(4096):
                        pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.getsockname()[1]}"
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(5)


def standing(address: str, url: str = "http://127.0.0.1:9") -> Standing:
    """Judge the pings at an address of gRPC."""
    profiles = frozenset({Profile.GRPC})
    target = Target(url, profiles=profiles, grpc=address, edition=DRAFT)
    run = Runner(target, names={"grpc-pinged"}).run()
    assert run.faults == {}
    return next(item.standing for item in run.results if item.requirement.id == PINGED)


def test_a_node_that_answers_no_ping_is_named(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_connections, "ANSWERED_S", 0.3)
    assert standing(silent) is Standing.VIOLATED


def test_a_node_that_answers_pings_is_proved(target: Target) -> None:
    assert target.grpc is not None
    assert standing(target.grpc, target.url) is Standing.PROVED


def test_nobody_is_judged_where_nobody_listens() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        free = server.getsockname()[1]
    assert standing(f"127.0.0.1:{free}") is Standing.NOT_EXERCISED
