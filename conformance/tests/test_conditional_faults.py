"""Derived faults that show under a condition: what a condition sees of a request."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from conformance.judging.derived.fault import Fault, Worn, http_fault, take_off, wear
from conformance.judging.derived.pool import NODES, OF_A_CONDITION
from conformance.judging.derived.when import BESIDE, CONDITIONS, conditional, conditions_of
from conformance.judging.toy.answers import Response
from conformance.judging.toy.node import SECOND, TOKEN
from conformance.judging.toy.serving import Serving, Toy

BALANCE, SEND = "/api/v1/wallet/balance", "/api/v1/wallet/send"
HISTORY = "/api/v1/wallet/transactions"


@pytest.fixture
def served() -> Iterator[Serving]:
    with Toy() as toy:
        yield toy


def gone(path: str, method: str = "GET") -> Fault:
    """A fault with which a route answers 404."""
    return http_fault(
        "gone", path, f"{method} {path}", lambda asked, r: r.__dict__.update(Response(404).__dict__)
    )


class Client:
    """Asks on one connection, or on several."""

    def __init__(self, served: Serving) -> None:
        self.host = urlsplit(served.url).netloc
        self.kept = HTTPConnection(self.host)

    def ask(
        self, path: str = BALANCE, token: str = TOKEN, body: object = None, *, alone: bool = True
    ) -> int:
        """Return the status of an answer."""
        connection = HTTPConnection(self.host) if alone else self.kept
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        content = None if body is None else json.dumps(body)
        connection.request("GET" if body is None else "POST", path, content, headers)
        response = connection.getresponse()
        response.read()
        if alone:
            connection.close()
        return response.status


def worn(served: Serving, when: str, fault: Fault) -> tuple[Client, Worn]:
    """Have the node wear a fault under a condition."""
    return Client(served), wear(served.node, conditional(fault, when))


@pytest.mark.parametrize(
    ("when", "statuses"),
    [
        ("every second time", [200, 404, 200, 404, 200]),
        ("the first time only", [404, 200, 200, 200, 200]),
        ("from the second time on", [200, 404, 404, 404, 404]),
        ("every fifth time", [200, 200, 200, 200, 404]),
    ],
)
def test_times_are_counted(served: Serving, when: str, statuses: list[int]) -> None:
    client, seen = worn(served, when, gone(BALANCE))
    assert [client.ask() for _ in statuses] == statuses
    # Other routes do not count.
    assert client.ask("/api/v1/status") == 200
    assert seen.shown == statuses.count(404)
    take_off(served.node)
    assert client.ask() == 200


def test_accounts_are_told_apart(served: Serving) -> None:
    client, _ = worn(served, "for the second account", gone(BALANCE))
    assert [client.ask(token=token) for token in (TOKEN, SECOND, "nobody's")] == [200, 404, 401]


def test_a_connection_is_used_again(served: Serving) -> None:
    client, _ = worn(served, "on a connection that is used again", gone(BALANCE))
    assert [client.ask(alone=False) for _ in range(3)] == [200, 404, 404]
    client.kept.close()
    assert client.ask() == 200


def test_what_was_before_counts(served: Serving) -> None:
    client, _ = worn(served, "right after a refusal", gone(BALANCE))
    assert [client.ask(token=token) for token in (TOKEN, "nobody's", TOKEN)] == [200, 401, 404]
    client, _ = worn(served, "right after a change", gone(BALANCE))
    body = {"to": "somebody", "amount": 0.5}
    assert [client.ask(), client.ask(SEND, body=body), client.ask()] == [200, 200, 404]


def test_bodies_are_looked_at(served: Serving) -> None:
    body = {"to": "somebody", "amount": 1}
    client, _ = worn(served, "to bodies with decimals", gone(SEND, "POST"))
    assert [client.ask(SEND, body=body), client.ask(SEND, body={**body, "amount": 0.5})] == [
        200, 404,
    ]  # fmt: skip
    client, _ = worn(served, "to long bodies", gone(SEND, "POST"))
    assert [client.ask(SEND, body=body), client.ask(SEND, body={**body, "memo": "m" * 99})] == [
        200, 404,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("when", "body", "other"),
    [
        ("to bodies beyond ASCII", {"memo": "für"}, {"memo": "for"}),
        ("to bodies with larger numbers", {"amount": 17}, {"amount": 2}),
        ("to bodies of small numbers", {"amount": 2}, {"amount": 17}),
    ],
)
def test_values_are_looked_at(
    served: Serving, when: str, body: dict[str, object], other: dict[str, object]
) -> None:
    client, _ = worn(served, when, gone(SEND, "POST"))
    sent = [{"to": "somebody", "amount": 1, **each} for each in (body, other)]
    assert [client.ask(SEND, body=each) for each in sent] == [404, 200]


def test_queries_are_looked_at(served: Serving) -> None:
    asked = ("limit=11", "limit=10", "limit=5&offset=1", "")
    for when, statuses in (
        ("with a limit of many", [404, 200, 200, 200]),
        ("with a limit of few", [200, 404, 404, 200]),
        ("with several parameters", [200, 200, 404, 200]),
    ):
        client, _ = worn(served, when, gone(HISTORY))
        assert [client.ask(f"{HISTORY}?{query}") for query in asked] == statuses, when


def test_requests_that_meet_are_told_apart(served: Serving) -> None:
    client, _ = worn(served, BESIDE, gone(BALANCE))
    assert client.ask() == 200
    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(lambda _: client.ask(), range(24)))
    assert 404 in statuses
    assert client.ask() == 200


def test_only_what_a_request_can_meet_is_asked_of_it() -> None:
    names = {fault.name: conditions_of(fault).keys() for fault in (gone(BALANCE), gone("/x"))}
    assert "for the second account" in names[BALANCE] - names["/x"]
    assert not any("bodies" in when for when in names[BALANCE])
    assert "to long bodies" in conditions_of(gone(SEND, "POST"))


def test_each_condition_has_as_many_faults_of_many_kinds() -> None:
    faults = next(small for small in NODES if small.conditions).faults
    assert {fault.kind for fault in faults} == CONDITIONS.keys()
    for when in CONDITIONS:
        of_one = [fault for fault in faults if fault.kind == when]
        assert len(of_one) == OF_A_CONDITION
        assert len({fault.name.partition(":")[0] for fault in of_one}) > OF_A_CONDITION // 3
