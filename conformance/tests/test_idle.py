"""Connections that are used again: how often, for what, and what becomes of one that is lost."""

from collections.abc import Iterator

import pytest

from conformance import idle
from conformance.httpwire import HttpClient, Unanswered
from conformance.idle import MOST, TRUSTED, Idle
from conformance.journal import Journal
from conformance.judging.toy.answers import Asked, Response
from conformance.judging.toy.serving import Serving
from conformance.secrecy import Redactor

STATUS, INFERENCE = "/api/v1/status", "/api/v1/inference"
MANY = 60


@pytest.fixture
def client(toy: Serving) -> Iterator[HttpClient]:
    journal = Journal(Redactor({}))
    http = HttpClient(toy.url, journal, timeout_s=5, max_wait_s=5, idle=Idle(0))
    yield http
    assert http.idle is not None
    http.idle.close()
    journal.close()


@pytest.fixture
def seen(toy: Serving) -> list[tuple[str, int]]:
    """What came on which connection."""
    found: list[tuple[str, int]] = []

    def note(asked: Asked, response: Response) -> None:
        found.append((asked.method, asked.connection))

    toy.node.http_hook = note
    return found


def again(seen: list[tuple[str, int]]) -> list[str]:
    """The methods of the requests on connections that had been used."""
    known, found = set[int](), list[str]()
    for method, connection in seen:
        if connection in known:
            found.append(method)
        known.add(connection)
    return found


def test_some_requests_go_on_a_used_connection_and_some_do_not(
    client: HttpClient, seen: list[tuple[str, int]]
) -> None:
    assert all(client.call("GET", STATUS).ok for _ in range(MANY))
    connections = [connection for _, connection in seen]
    assert max(connections.count(one) for one in set(connections)) == MOST
    assert MANY / 4 < len(again(seen)) < MANY * 3 / 4


def test_a_record_repeats_what_was_sent_on_the_connection_before(client: HttpClient) -> None:
    commands = [client.call("GET", STATUS).exchange.reproduce for _ in range(MANY)]
    counts = {command.count(STATUS) for command in commands}
    assert counts == set(range(1, MOST + 1))


def test_nothing_but_reads_goes_on_one_before_it_is_trusted(
    client: HttpClient, seen: list[tuple[str, int]]
) -> None:
    for _ in range(MANY):
        client.call("POST", INFERENCE, json_body={})
    assert "POST" not in again(seen)
    seen.clear()
    while len(again(seen)) < TRUSTED:
        client.call("GET", STATUS)
    for _ in range(MANY):
        client.call("POST", INFERENCE, json_body={})
    assert "POST" in again(seen)


def closing(toy: Serving) -> list[int]:
    """Have the toy end each connection with the second request on it, and say nothing of it."""
    asked: list[int] = []

    def hook(request: Asked, response: Response) -> None:
        response.reset = request.connection in asked
        asked.append(request.connection)

    toy.node.http_hook = hook
    return asked


def test_a_read_that_is_lost_is_sent_once_more_and_no_connection_is_trusted_then(
    toy: Serving, client: HttpClient
) -> None:
    asked = closing(toy)
    assert all(client.call("GET", STATUS).ok for _ in range(MANY))
    assert len(asked) == MANY + 1


def test_nothing_else_is_sent_once_more(
    toy: Serving, client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "TRUSTED", 0)
    monkeypatch.setattr(idle, "KEPT_SHARE", 1.1)
    asked = closing(toy)
    client.call("GET", STATUS)
    with pytest.raises(Unanswered, match="reset"):
        client.call("POST", INFERENCE, json_body={})
    assert len(asked) == 2
    assert client.call("POST", INFERENCE, json_body={}).status == 401


def test_what_no_command_can_repeat_goes_alone(
    client: HttpClient, seen: list[tuple[str, int]]
) -> None:
    for _ in range(MANY):
        client.call("GET", STATUS)
        client.call("POST", INFERENCE, content=b"\xff")
    assert "POST" not in again(seen)


def test_an_old_connection_is_not_used(
    client: HttpClient, seen: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "WITHIN_S", 0.0)
    for _ in range(MANY):
        client.call("GET", STATUS)
    assert again(seen) == []
